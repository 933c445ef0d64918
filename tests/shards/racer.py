"""A process that races others on one shard: ``python -m tests.shards.racer FOLDER ROLE NAME SECONDS``.

What step n adds is known whoever wins it, so that any reader can tell whether a snapshot is right.
"""

import asyncio
import sys
import time
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types

from instance.inputs import NotReadable
from instance.shards.delta import DeltaShardStore
from instance.shards.maintenance import maintain
from instance.shards.rules import UpkeepRules
from instance.shards.store import Appended, Shard
from reconcile.frontiers import Antichain
from reconcile.ids import Step
from tests.shards.rows import COLUMNS, updates
from tests.shards.writer import S1

#: How many steps a row stays, and how far the since trails the upper.
STAYS, TRAILS = 5, 20
#: The maintainers' clock goes faster, so that seconds are enough for grace periods to pass.
HASTE = 100
EAGER = UpkeepRules(tier_files_max=8, history_rows_min=50, log_versions_min=40, reopen_after=20)


def of_step(step: int, name: str) -> pa.Table:
    """A row that says who won the step, one that comes, and one that goes."""
    gone = [("x", step - STAYS, step, -1)] if step >= STAYS else []
    return updates((name, step, step, 1), ("x", step, step, 1), *gone)


def check_contents(table: pa.Table, at: int) -> None:
    rows = table.to_pylist()
    assert all(row["_diff"] == 1 for row in rows), f"at {at}: {[row for row in rows if row['_diff'] != 1]}"
    stays = sorted(row["amount"] for row in rows if row["name"] == "x")
    assert stays == list(range(max(0, at + 1 - STAYS), at + 1)), f"at {at}: {stays}"
    won = sorted(row["amount"] for row in rows if row["name"] != "x")
    assert won == list(range(at + 1)), f"at {at}: won are {len(won)}"


def check_changes(table: pa.Table, lower: int, upper: int) -> None:
    came = sorted(row["amount"] for row in table.to_pylist() if row["_diff"] == 1 and row["name"] == "x")
    assert came == list(range(lower, upper)), f"[{lower}, {upper}): {came}"


async def write(shard: Shard, name: str) -> bool:
    step = shard.upper.step
    assert step is not None
    outcome = await shard.compare_and_append(
        expected=shard.upper,
        upper=Antichain.at(step + 1),
        updates=of_step(step, name),
        writer_epoch=None,
        token=f"{name}-{step}",
    )
    return isinstance(outcome, Appended)


async def compact(shard: Shard, _: str) -> bool:
    await shard.refresh()
    await shard.advance_since(Antichain.at(max(0, (shard.upper.step or 0) - TRAILS)))
    return (await maintain(shard, time.time() * HASTE)).compacted


async def read(shard: Shard, _: str) -> bool:
    """As the handle stands, which may be long behind; then with a fresh look."""
    right = 0
    for _look in range(2):
        since, upper = shard.since.step, shard.upper.step
        assert since is not None
        assert upper is not None
        try:
            for step in {since, upper - 1} if since < upper else ():
                check_contents(await shard.snapshot(Step(step)), step)
            check_changes(await shard.read(Antichain.at(since), Antichain.at(upper)), since, upper)
            right += 1
        except NotReadable as refusal:
            if not refusal.since > Antichain.at(since):
                raise AssertionError(f"refused at {since} though it is readable") from refusal
        await asyncio.sleep(0.05)
        await shard.refresh()
    return right > 0


async def main(folder: str, role: str, name: str, seconds: str) -> None:
    store = DeltaShardStore(Path(folder), rules=EAGER)
    shard = await store.open(S1, COLUMNS)
    do = {"write": write, "compact": compact, "read": read}[role]
    end, done, tried = time.monotonic() + float(seconds), 0, 0
    while time.monotonic() < end:
        done += await do(shard, name)
        tried += 1
    print(done, tried)  # noqa: T201  # the answer to the test that started this process
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
