"""Figures of the shard store: ``python -m instance.shards.bench store SCALE`` prints them as JSON.

Three questions. Do appends stay as fast as they began, with maintenance running as it does in production? How do they
compare with plain ``write_deltalake`` on the same disk in the same run, which syncs nothing and promises less? And what
does a process spend on shards that step without anything happening? ``scale`` 1 is 20,000 appends.

And a yardstick for others, ``python -m instance.shards.bench floor COUNT``: how many milliseconds each of so many
INSERTs costs at the least, one SQLite commit and one plain append to a Delta table.
"""

import asyncio
import json
import sqlite3
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median, quantiles

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types
from deltalake import write_deltalake

from instance.shards.delta import DeltaShardStore
from instance.shards.maintenance import maintained
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
#: Plain appends to one table before the next is taken.
FLOOR_TABLE_INSERTS = 50
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

    async def step(number: int) -> None:
        await append(shard, number)
        if number % RETAINED_STEPS == 0:
            await shard.advance_since(Antichain.at(max(0, number - RETAINED_STEPS)))

    compared = min(COMPARED, count // 2)
    used: dict[int, float] = {}

    async def counted(number: int) -> None:
        if number in (0, compared, count - compared):
            used[number] = time.process_time()
        await step(number)

    async with maintained(store, time.time):
        spent = await timed(count, counted)
        ended = time.process_time()
    await store.close()
    first, last = median(spent[:compared]), median(spent[-compared:])
    return {
        "appends": count,
        "first_p50_ms": first,
        "last_p50_ms": last,
        "last_over_first": last / first,
        # Of the whole process, maintenance and all; says the same whatever else the machine does.
        "first_cpu_ms": (used[compared] - used[0]) * 1000 / compared,
        "last_cpu_ms": (ended - used[count - compared]) * 1000 / compared,
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
    return {
        "appends": count,
        "first_p50_ms": median(spent[:100]),
        "last_p50_ms": median(spent[-100:]),
        "appends_per_s": 1000 * count / sum(spent),
    }


async def floor(folder: Path, count: int) -> list[float]:
    database = sqlite3.connect(folder / "db", isolation_level=None)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = FULL")
    database.execute("CREATE TABLE log (number INTEGER PRIMARY KEY, said TEXT)")
    one_row = rows_of(0).slice(0, 1)
    # A table that nobody maintains grows slow, which would flatter whoever is compared with it.
    tables = [str(folder / f"table-{number}") for number in range(count // FLOOR_TABLE_INSERTS + 1)]
    for table in tables:
        write_deltalake(table, one_row)

    async def insert(number: int) -> None:
        database.execute("INSERT INTO log (said) VALUES ('about as much as is said of an insert')")
        write_deltalake(tables[number // FLOOR_TABLE_INSERTS], one_row, mode="append")

    spent = await timed(count, insert)
    database.close()
    return spent


async def idle(folder: Path) -> dict[str, float]:
    store = DeltaShardStore(folder)
    shards = [await store.open(GlobalId("s", number), COLUMNS) for number in range(IDLE_SHARDS)]
    for shard in shards:
        await append(shard, 0)
    async with maintained(store, time.time):
        begin, used = time.monotonic(), time.process_time()
        steps = 0
        while time.monotonic() - begin < IDLE_SECONDS:
            steps += 1
            for shard in shards:
                shard.advance(Antichain.at(1 + steps))
            await asyncio.sleep(begin + steps / IDLE_STEPS_PER_SECOND - time.monotonic())
        share = (time.process_time() - used) / (time.monotonic() - begin)
    await store.close()
    return {"shards": IDLE_SHARDS, "steps": steps, "cpu_share": share}


async def figures(root: Path, scale: float) -> dict[str, dict[str, float]]:
    count = max(10, int(APPENDS * scale))
    return {
        "plain": await plain(root / "plain", min(count, PLAIN_APPENDS_MAX)),
        "shard": await appends(root / "shard", count),
        "idle": await idle(root / "idle"),
    }


def main(what: str, size: str) -> None:
    with tempfile.TemporaryDirectory(prefix="plainsong-bench-") as folder:
        root = Path(folder)
        found = asyncio.run(floor(root, int(size)) if what == "floor" else figures(root, float(size)))
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
