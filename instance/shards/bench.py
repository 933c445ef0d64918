"""Figures of the shard store: ``python -m instance.shards.bench [scale]`` prints them as JSON.

Three questions. Do appends stay as fast as they began, with maintenance running as it does in production? How do they
compare with plain ``write_deltalake`` on the same disk in the same run, which syncs nothing and promises less? And what
does a process spend on shards that step without anything happening? ``scale`` 1 is 20,000 appends.
"""

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median, quantiles

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types
from deltalake import write_deltalake

from instance.shards.delta import DeltaShardStore
from instance.shards.maintenance import maintain_for_ever
from instance.shards.store import Appended, Shard
from plainsong.types import schema, updates_schema
from reconcile.errors import InvariantBroken
from reconcile.frontiers import Antichain
from reconcile.ids import GlobalId

APPENDS = 20_000
ROWS = 10
#: How many of the first and the last appends are compared.
COMPARED = 1_000
#: Appends of plain ``write_deltalake``; more would only make it look worse, as nothing maintains its table.
PLAIN_APPENDS_MAX = 1_000
#: How far the since trails the upper.
RETAINED_STEPS = 100
IDLE_SHARDS, IDLE_SECONDS, IDLE_STEPS_PER_SECOND = 20, 10.0, 2

COLUMNS = schema([("key", "bigint"), ("amount", "bigint")])


def rows_of(step: int) -> pa.Table:
    """Some rows of a step: each key's amount replaces the one it had a hundred steps earlier."""
    keys = [(step * ROWS + place) % (100 * ROWS) for place in range(ROWS)]
    table = {
        "key": [*keys, *keys],
        "amount": [*([step] * ROWS), *([step - 100] * ROWS)],
        "_step": [step] * (2 * ROWS),
        "_diff": [*([1] * ROWS), *([-1] * ROWS)],
    }
    whole = pa.table(table, schema=updates_schema(COLUMNS))
    return whole if step >= 100 else whole.slice(0, ROWS)


async def append(shard: Shard, step: int) -> None:
    outcome = await shard.compare_and_append(
        expected=Antichain.at(step),
        upper=Antichain.at(step + 1),
        updates=rows_of(step),
        writer_epoch=None,
        token=f"bench-{step}",
    )
    if not isinstance(outcome, Appended):
        raise InvariantBroken(f"nobody else writes here, and yet: {outcome}")


async def timed(count: int, call: Callable[[int], Awaitable[object]]) -> list[float]:
    """Milliseconds of each of ``count`` calls."""
    spent = []
    for number in range(count):
        begin = time.perf_counter()
        await call(number)
        spent.append((time.perf_counter() - begin) * 1000)
    return spent


async def appends(folder: Path, count: int) -> dict[str, float]:
    store = DeltaShardStore(folder)
    shard = await store.open(GlobalId("s", 1), COLUMNS)
    maintainer = asyncio.create_task(maintain_for_ever(lambda: [shard], time.time))

    async def step(number: int) -> None:
        await append(shard, number)
        if number % RETAINED_STEPS == 0:
            await shard.advance_since(Antichain.at(max(0, number - RETAINED_STEPS)))

    spent = await timed(count, step)
    maintainer.cancel()
    await asyncio.gather(maintainer, return_exceptions=True)
    await store.close()
    compared = min(COMPARED, count // 2)
    first, last = median(spent[:compared]), median(spent[-compared:])
    return {
        "appends": count,
        "first_p50_ms": first,
        "last_p50_ms": last,
        "last_over_first": last / first,
        "p99_ms": quantiles(spent, n=100)[98],
        "max_ms": max(spent),
        "appends_per_s": 1000 * count / sum(spent),
        "data_files": len(list((folder / "s1").glob("*.parquet"))),
        "log_files": len(list((folder / "s1" / "_delta_log").iterdir())),
    }


async def plain(folder: Path, count: int) -> dict[str, float]:
    async def write(number: int) -> None:
        write_deltalake(str(folder), rows_of(number), mode="append")

    spent = await timed(count, write)
    return {"appends": count, "p50_ms": median(spent), "appends_per_s": 1000 * count / sum(spent)}


async def idle(folder: Path) -> dict[str, float]:
    store = DeltaShardStore(folder)
    shards = [await store.open(GlobalId("s", number), COLUMNS) for number in range(IDLE_SHARDS)]
    for shard in shards:
        await append(shard, 0)
    maintainer = asyncio.create_task(maintain_for_ever(lambda: shards, time.time))
    begin, used = time.monotonic(), time.process_time()
    steps = 0
    while time.monotonic() - begin < IDLE_SECONDS:
        steps += 1
        for shard in shards:
            shard.advance(Antichain.at(1 + steps))
        await asyncio.sleep(begin + steps / IDLE_STEPS_PER_SECOND - time.monotonic())
    share = (time.process_time() - used) / (time.monotonic() - begin)
    maintainer.cancel()
    await asyncio.gather(maintainer, return_exceptions=True)
    await store.close()
    return {"shards": IDLE_SHARDS, "steps": steps, "cpu_share": share}


async def figures(scale: float) -> dict[str, dict[str, float]]:
    count = max(10, int(APPENDS * scale))
    with tempfile.TemporaryDirectory(prefix="plainsong-bench-") as folder:
        root = Path(folder)
        return {
            "plain": await plain(root / "plain", min(count, PLAIN_APPENDS_MAX)),
            "shard": await appends(root / "shard", count),
            "idle": await idle(root / "idle"),
        }


def main() -> None:
    scale = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0
    found = asyncio.run(figures(scale))
    found["compared"] = {"shard_over_plain": found["shard"]["appends_per_s"] / found["plain"]["appends_per_s"]}
    sys.stdout.write(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
