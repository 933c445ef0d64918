"""Benchmark of the shards: the store alone in a process of its own, and a whole INSERT through real processes."""

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import plainsong.aio
from adapter.bench.measure import Figure
from adapter.bench.processes import started

Progress = Callable[[str], None]
#: One after the other, each waiting for its acknowledgement; in rounds, by turns with the yardstick.
INSERTS, ROUNDS = 400, 4
#: Fewer take no time compared with what it takes to begin.
FILE_ROWS, FILE_ROWS_MIN = 5_000_000, 50_000


def shards_figures(scale: float, progress: Progress) -> list[Figure]:
    """All figures of the shards."""
    progress("inserts")
    with tempfile.TemporaryDirectory() as folder:
        ours, least = asyncio.run(_inserts(Path(folder), max(25, int(INSERTS * scale / ROUNDS))))
    progress("appends to one shard, then idle shards; minutes")
    found = _measured("store", str(scale))
    figures = [*_store_figures(found), *_insert_figures(ours, least)]
    if find_spec("pyspark") is None:
        return figures  # the yardstick of files is Spark, which is not installed
    progress("files through a source, then by one Spark batch; minutes")
    rows = max(FILE_ROWS_MIN, int(FILE_ROWS * scale))
    return [*figures, *_files_figures(_measured("--rows", str(rows), module="instance.storage.bench_files"))]


def _measured(*arguments: str, module: str = "instance.shards.bench") -> Any:
    """What a part says of itself; in a process of its own, as an adapter knows nothing of stores."""
    program = [sys.executable, "-P", "-m", module, *arguments]
    run = subprocess.run(program, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(run.stdout)


def _files_figures(found: dict[str, Any]) -> list[Figure]:
    """The reader that a source has by default counts; what Spark as its reader gives is told beside it."""
    arrow, spark, batch = found["read_by_arrow"], found["read_by_spark"], found["spark_batch_seconds"]
    return [
        Figure(
            name=f"speed of {found['rows']:,} rows of CSV through the files source / of one plain Spark batch",
            value=arrow["ratio"],
            unit="x",
            target=found["ratio_wanted"],
            at_least=True,
            note=f"{arrow['seconds']:.1f} s; {batch:.1f} s; read by Spark {spark['seconds']:.1f} s",
        )
    ]


def _store_figures(found: dict[str, dict[str, float]]) -> list[Figure]:
    shard, plain, idle = found["shard"], found["plain"], found["idle"]
    count = f"{shard['appends']:,.0f}"
    slower = f"whose p50 goes from {plain['first_p50_ms']:.1f} to {plain['last_p50_ms']:.1f} ms"
    cpu = f"CPU {shard['last_cpu_ms']:.1f} ms after {shard['first_cpu_ms']:.1f} ms"
    tail = f"p99 {shard['p99_ms']:.1f} ms, max {shard['max_ms']:.0f} ms"
    return [
        Figure(
            name=f"p50 of the last appends / of the first, of {count}",
            value=shard["last_over_first"],
            unit="x",
            target=2.0,
            at_least=False,
            note=f"{shard['last_p50_ms']:.1f} ms after {shard['first_p50_ms']:.1f} ms; {cpu}; {tail}",
        ),
        Figure(
            name="appends, each synced and checked / plain write_deltalake",
            value=shard["appends_per_s"] / plain["appends_per_s"],
            unit="x",
            target=0.5,
            at_least=True,
            note=f"{shard['appends_per_s']:.0f}/s; {plain['appends_per_s']:.0f}/s, {slower}",
        ),
        Figure(
            name=f"CPU share of {idle['shards']:.0f} idle shards stepping twice a second",
            value=idle["cpu_share"],
            unit="cores",
            target=0.1,
            at_least=False,
        ),
    ]


async def _inserts(folder: Path, count: int) -> tuple[list[float], list[float]]:
    """Milliseconds until each of so many INSERTs of one row a round is acknowledged, and of the least they can cost."""
    arguments = ("--data", str(folder / "data"), "--migrate", "--listen", "127.0.0.1:0", "--stop-replicas")
    ours: list[float] = []
    least: list[float] = []
    with started("controller", *arguments, log=folder / "log") as controller:
        async with plainsong.aio.connect(controller.address) as client:
            await client.create_cluster("main", replicas=1)
            await client.create_table("t", {"k": "bigint", "v": "string"})
            await client.insert("t", [{"k": -1, "v": "warm"}])
            for _ in range(ROUNDS):
                least += _measured("floor", str(count))
                for number in range(count):
                    begun = time.perf_counter()
                    await client.insert("t", [{"k": number, "v": f"value {number}"}])
                    ours.append((time.perf_counter() - begun) * 1000)
    return ours, least


def _insert_figures(ours: list[float], least: list[float]) -> list[Figure]:
    parts = {"p50": (median(ours), median(least)), "p99": (quantiles(ours, n=100)[98], quantiles(least, n=100)[98])}
    return [
        Figure(
            name=f"INSERT acknowledged, {part} / one SQLite commit + one Delta append",
            value=took / bare,
            unit="x",
            target=3.0,
            at_least=False,
            note=f"{took:.1f} ms; {bare:.1f} ms",
        )
        for part, (took, bare) in parts.items()
    ]
