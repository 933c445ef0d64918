"""A process that is killed on purpose: ``python -m tests.shards.victim``.

It reads lines ``SCENARIO FOLDER`` and answers each with the id of a child that has everything imported and nothing
begun, later with how it ended. The child begins when the file ``FOLDER/go`` is there, and says in ``FOLDER/said``
what it was acknowledged.
"""

import asyncio
import os
import sys
import time
import traceback
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types

from instance.shards.delta import DeltaShardStore
from instance.shards.rules import UpkeepRules
from instance.shards.store import Appended, Shard
from plainsong.types import schema
from reconcile.frontiers import Antichain
from tests.shards.rows import COLUMNS, updates
from tests.shards.writer import S1

#: Steps that are there before a child begins.
STEPS = 9
#: As if everything that may be cleared away had waited long enough.
LATER = 1e12
#: Everything happens to a shard of a few steps that in earnest happens to one of thousands.
#: What a shard is grown to.
WIDER = schema([("name", "string"), ("amount", "bigint"), ("note", "string")])
EAGER = UpkeepRules(tier_files_max=3, history_rows_min=2, log_versions_min=2, reopen_after=4)


async def append(shard: Shard, step: int, note: str | None = None) -> bool:
    """Step n adds n and takes n - 3 away; the token tells a successor whether it was there."""
    rows = updates(("a", step, step, 1), *([("a", step - 3, step, -1)] if step >= 3 else []))
    if note is not None:
        rows = rows.append_column("note", pa.array([note, *[None] * (rows.num_rows - 1)]))
    outcome = await shard.compare_and_append(
        expected=Antichain.at(step),
        upper=Antichain.at(step + 1),
        updates=rows,
        writer_epoch=None,
        token=f"t{step}",
    )
    return isinstance(outcome, Appended)


async def prepare(folder: Path) -> None:
    """What is there before: a compacted beginning, loose files after it, log checkpoints, and what vacuum may take."""
    store = DeltaShardStore(folder, rules=EAGER)
    shard = await store.open(S1, COLUMNS)
    for step in range(STEPS):
        assert await append(shard, step)
        if step == STEPS // 2:
            await shard.advance_since(Antichain.at(2))
            assert await shard.compact()
            await shard.tidy(0.0)
    await store.close()


async def scenario(folder: Path, what: str) -> None:
    store = DeltaShardStore(folder, rules=EAGER)
    shard = await store.open(S1, COLUMNS)
    if what in ("append", "all"):
        for step in range(STEPS, STEPS + 2):
            assert await append(shard, step)
            _say(folder, f"upper {step + 1}")
    if what == "growth":
        await shard.grow(WIDER, writer_epoch=None)
        _say(folder, f"width {len(WIDER)}")
        for step in range(STEPS, STEPS + 2):
            assert await append(shard, step, f"n{step}")
            _say(folder, f"upper {step + 1}")
    if what in ("compaction", "all"):
        await shard.advance_since(Antichain.at(6))
        _say(folder, "since 6")
        assert await shard.compact()
    if what in ("upkeep", "all"):
        # A first look, a commit that makes it certain that nobody commits what was seen, and the clearing itself.
        await shard.tidy(0.0)
        await shard.advance_since(Antichain.at(7))
        _say(folder, "since 7")
        await shard.tidy(LATER)
    await store.close()


def _say(folder: Path, what: str) -> None:
    with (folder / "said").open("a") as said:
        said.write(what + "\n")


def _serve() -> None:
    for line in sys.stdin:
        what, folder = line.split(maxsplit=1)
        child = os.fork()
        if child == 0:
            path = Path(folder.strip())
            while not (path / "go").exists():
                time.sleep(0.001)
            try:
                asyncio.run(prepare(path) if what == "prepare" else scenario(path, what))
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        sys.stdout.write(f"{child}\n")
        sys.stdout.flush()
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _serve()
