"""Benchmark of the durable log: appends through the store beside raw SQLite in the same run.

``python -m controller.store.bench`` prints its figures as JSON, for ``plainsong bench control``.
"""

import asyncio
import json
import sqlite3
import statistics
import sys
import tempfile
import time
from pathlib import Path

from controller.store.changes import Channel, ClusterPut, LogAppended
from controller.store.database import sqlite_url
from controller.store.sql import SqlStore, open_store

BODY = b"x" * 100
#: Commands in one transaction of the yardstick.
GROUP = 500


async def appends_per_s(store: SqlStore, *, statements: int, commands: int, at_once: int) -> float:
    """Appends a second when so many statements of so many commands wait at any time."""
    statement = [LogAppended(cluster="main", channel=Channel.COMPUTE, body=BODY)] * commands

    async def worker(count: int) -> None:
        for _ in range(count):
            await store.commit(statement)

    begun = time.perf_counter()
    await asyncio.gather(*(worker(statements // at_once) for _ in range(at_once)))
    return statements // at_once * at_once * commands / (time.perf_counter() - begun)


def raw_per_s(folder: Path, rows: int) -> float:
    """The yardstick: the same rows into a bare table, in groups, each as durable."""
    connection = sqlite3.connect(folder / "raw.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("CREATE TABLE IF NOT EXISTS log (seqno INTEGER PRIMARY KEY, cluster, channel, epoch, body)")
    begun = time.perf_counter()
    for _ in range(rows // GROUP):
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(
            "INSERT INTO log (cluster, channel, epoch, body) VALUES ('main', 'compute', 1, ?)", [(BODY,)] * GROUP
        )
        connection.execute("COMMIT")
    elapsed = time.perf_counter() - begun
    connection.close()
    return rows // GROUP * GROUP / elapsed


async def measured(rows: int, repetitions: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store = await open_store(sqlite_url(folder), migrate=True)
        await store.open_reign("bench")
        await store.load()
        await store.commit([ClusterPut(name="main", definition="{}")])
        runs: dict[str, list[float]] = {"raw": [], "batched": [], "single": []}
        for _ in range(repetitions):
            runs["raw"].append(raw_per_s(folder, rows))
            runs["batched"].append(await appends_per_s(store, statements=rows // 10, commands=10, at_once=50))
            runs["single"].append(await appends_per_s(store, statements=rows // 10, commands=1, at_once=500))
        await store.close()
    return {kind: statistics.median(figures) for kind, figures in runs.items()}


if __name__ == "__main__":
    scale = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0
    print(json.dumps(asyncio.run(measured(max(10_000, int(200_000 * scale)), 5))))  # noqa: T201  # this is a command
