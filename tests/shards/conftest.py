"""The two shard stores, which pass one suite."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Protocol

import pytest
import pytest_asyncio

from instance.shards.delta import DeltaShardStore
from instance.shards.progress import PROGRESS_MS
from instance.shards.rules import DEFAULT_RULES, UpkeepRules
from instance.shards.simulated import SimulatedDisk, SimulatedShardStore
from instance.shards.store import ShardStore


class MakeStore(Protocol):
    """Each call is another process with the same disk."""

    def __call__(self, *, rules: UpkeepRules = DEFAULT_RULES, progress_ms: int = PROGRESS_MS) -> ShardStore: ...


@pytest_asyncio.fixture(params=["simulated", "delta"])
async def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[MakeStore]:
    disk, made = SimulatedDisk(), list[ShardStore]()

    def make(*, rules: UpkeepRules = DEFAULT_RULES, progress_ms: int = PROGRESS_MS) -> ShardStore:
        store: ShardStore
        if request.param == "simulated":
            store = SimulatedShardStore(disk, rules=rules, progress_ms=progress_ms)
        else:
            store = DeltaShardStore(tmp_path, rules=rules, progress_ms=progress_ms)
        made.append(store)
        return store

    yield make
    for store in made:
        await store.close()


@pytest_asyncio.fixture
async def store(make_store: MakeStore) -> ShardStore:
    return make_store()
