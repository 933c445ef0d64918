"""A process that writes a shard for the tests: ``python -m tests.shards.writer FOLDER WHAT NAME``."""

import asyncio
import sys
import time
from pathlib import Path

from instance.shards.delta import DeltaShardStore
from instance.shards.store import Appended, Shard
from reconcile.frontiers import Antichain
from reconcile.ids import GlobalId, WriterEpoch
from tests.shards.rows import COLUMNS, updates

S1 = GlobalId("s", 1)


async def append(shard: Shard, step: int, name: str, *, epoch: WriterEpoch | None = None) -> bool:
    outcome = await shard.compare_and_append(
        expected=Antichain.at(step),
        upper=Antichain.at(step + 1),
        updates=updates((name, step, step, 1)),
        writer_epoch=epoch,
        token=f"{name}-{step}",
    )
    return isinstance(outcome, Appended)


async def race(shard: Shard, name: str, seconds: float) -> None:
    """Appends one step after the other until the time is over; says how many it won, how many it lost."""
    end, won, lost = time.monotonic() + seconds, 0, 0
    while time.monotonic() < end:
        step = shard.upper.step
        assert step is not None
        if await append(shard, step, name):
            won += 1
        else:
            lost += 1
    print(won, lost)  # noqa: T201  # the answer to the test that started this process


async def main(folder: str, what: str, name: str) -> None:
    store = DeltaShardStore(Path(folder))
    shard = await store.open(S1, COLUMNS)
    match what:
        case "race":
            await race(shard, name, 2)
        case "append":
            assert shard.upper.step is not None
            assert await append(shard, shard.upper.step, name)
        case "take-over":
            await shard.take_over(WriterEpoch(2))
        case "since":
            await shard.advance_since(Antichain.at(1))
        case _:
            raise AssertionError(what)
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
