"""The two shard stores, which pass one suite."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from instance.shards.delta import DeltaShardStore
from instance.shards.simulated import SimulatedDisk, SimulatedShardStore
from instance.shards.store import ShardStore

#: Each call is another process with the same disk.
MakeStore = Callable[[], ShardStore]


@pytest_asyncio.fixture(params=["simulated", "delta"])
async def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[MakeStore]:
    disk, made = SimulatedDisk(), list[ShardStore]()

    def make() -> ShardStore:
        made.append(SimulatedShardStore(disk) if request.param == "simulated" else DeltaShardStore(tmp_path))
        return made[-1]

    yield make
    for store in made:
        await store.close()


@pytest_asyncio.fixture
async def store(make_store: MakeStore) -> ShardStore:
    return make_store()
