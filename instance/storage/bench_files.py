"""Figures of the files source: ``python -P -m instance.storage.bench_files --rows N --json FILE``.

One question: how fast do CSV files go into a shard, exactly once and step by step, compared with one plain Spark batch
that reads the same files with a schema and writes them as Parquet, in the same run on the same disk? Asked of both
readers, the one in this process and Spark. Steps are opened in this process too: the wire is not in the figures.
"""

import argparse
import asyncio
import json
import os
import tempfile
import time
from functools import partial
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types
import pyarrow.csv as pa_csv  # type: ignore[import-untyped]

from instance.shards.blocking import BlockingPool
from instance.shards.delta import DeltaShardStore
from instance.spark.file_reader import spark_reader
from instance.spark.session import SparkHost, start_spark
from instance.spark.settings import SparkSettings
from instance.storage.file_reading import MakeReader, arrow_reader
from instance.storage.files import FilesFeed
from instance.storage.stepped import SteppedSource
from instance.storage.steps import Steps
from plainsong.types import schema
from reconcile.errors import InvariantBroken
from reconcile.ids import GlobalId, Step, WriterEpoch
from reconcile.sources import SourceDescription
from reconcile.steps import RecordsReported, StepEvent, StepOpener, StepRules, Tick
from reconcile.storage_actions import RecordsReceived, SourceFares, SourceStopped, StepsCut, StorageReport
from reconcile.storage_protocol import OpenStep
from reconcile.table_writes import StepsOpened

ROWS = 5_000_000
FILES = 10
#: The Spark batch is run so often, and its best time counts: the first one also warms the JVM.
BATCHES = 3
#: When steps are opened, as a controller does by default.
RULES = StepRules(records_max=50_000, linger_ms=100)

COLUMNS = (
    ("id", "bigint", True),
    ("customer", "int", False),
    ("item", "string", False),
    ("price", "decimal(10,2)", False),
    ("ordered_at", "timestamp", False),
)
_SPARK_SCHEMA = ", ".join(f"{name} {type}" for name, type, _ in COLUMNS)


def write_files(folder: Path, rows: int) -> int:
    """CSV files with so many rows in all; how many bytes they have."""
    folder.mkdir()
    for number in range(FILES):
        ids = range(rows * number // FILES, rows * (number + 1) // FILES)
        # Values that do not repeat: what compresses well flatters whoever writes.
        drawn = [id * 0x9E3779B97F4A7C15 % 2**64 for id in ids]
        table = pa.table(
            {
                "id": pa.array(ids, pa.int64()),
                "customer": pa.array([lot % 1_000_003 for lot in drawn], pa.int32()),
                "item": [f"item {lot % 10**9:x}" for lot in drawn],
                "price": [f"{lot >> 40}"[:7] + f".{lot % 100:02}" for lot in drawn],
                "ordered_at": [
                    f"2024-{lot % 12 + 1:02}-{lot % 28 + 1:02}T{lot % 24:02}:{lot % 59:02}:{lot % 53:02}Z"
                    for lot in drawn
                ],
            }
        )
        pa_csv.write_csv(table, folder / f"{number:03}.csv", pa_csv.WriteOptions(quoting_style="needed"))
    return sum(file.stat().st_size for file in folder.iterdir())


# --- through the source -----------------------------------------------------------------------------------


class _Controller:
    """Opens steps as the controller would, and knows when the source is finished."""

    def __init__(self) -> None:
        self.steps = Steps()
        self.finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.opened = 0
        self._loop = asyncio.get_running_loop()
        self._opener = StepOpener(RULES, opened=Step(0))
        self._open(Step(0))

    def report(self, report: StorageReport) -> None:
        # As over a wire: never from within the source.
        self._loop.call_soon(self._hear, report)

    def _hear(self, report: StorageReport) -> None:
        match report:
            case RecordsReceived(id=id, step=step, received=received):
                self._handle(RecordsReported(id=id, step=step, received=received))
            case StepsCut(seal=seal) if seal.upper.is_closed and not self.finished.done():
                self.finished.set_result(None)
            case SourceStopped(error=error) | SourceFares(error=error) if error and not self.finished.done():
                self.finished.set_exception(InvariantBroken(f"the source failed: {error}"))
            case _:
                pass

    def _handle(self, event: StepEvent) -> None:
        for one in (Tick(now_ms=int(self._loop.time() * 1000)), event):
            for asked in self._opener.handle(one):
                self._open(asked.step)
        if (due := self._opener.due_ms) is not None:
            self._loop.call_at(due / 1000, self._handle, Tick(now_ms=due))

    def _open(self, step: Step) -> None:
        self.opened = step
        self.steps.open(OpenStep(step=step, granted=step, every_ms=1_000))
        self._opener.handle(StepsOpened(step=step))


async def through_source(
    files: Path, folder: Path, rows: int, make_reader: MakeReader = arrow_reader
) -> dict[str, float]:
    """Seconds from the source's start until the last row is durable in its shard."""
    definition = (
        ("type", "files"),
        ("path", str(files)),
        ("format", "csv"),
        ("bounded", "true"),
        ("poll_ms", "10"),
        ("columns", json.dumps(COLUMNS)),
    )
    description = SourceDescription(id=GlobalId("s", 1), definition=definition, writer_epoch=WriterEpoch(1))
    controller, reading, store = _Controller(), BlockingPool(), DeltaShardStore(folder / "shards")
    source = SteppedSource(
        description,
        store,
        controller.report,
        steps=controller.steps,
        make_feed=partial(FilesFeed, folder=folder, pool=reading, make_reader=make_reader),
    )
    began, cpu = time.perf_counter(), time.process_time()
    await source.start()
    await controller.finished
    seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu
    await source.stop()
    shard = await store.open(description.id, schema(COLUMNS))
    held = (await shard.snapshot(Step(controller.opened))).num_rows
    await store.close()
    await reading.close()
    if held != rows:
        raise InvariantBroken(f"the shard holds {held} rows instead of {rows}")
    return {"seconds": seconds, "cpu_seconds": cpu_seconds, "steps": controller.opened}


# --- the yardstick ----------------------------------------------------------------------------------------


async def plain_batch(host: SparkHost, files: Path, folder: Path) -> float:
    """Seconds that one Spark batch over the same files takes, at its best."""
    best = float("inf")
    for number in range(BATCHES):
        target = str(folder / f"batch-{number}")
        began = time.perf_counter()
        await host.run(
            lambda session, target=target: (
                session.read.schema(_SPARK_SCHEMA)  # type: ignore[misc]  # typed by run
                .csv(str(files), header=True)
                .write.parquet(target)
            ),
            deadline_ms=600_000,
        )
        best = min(best, time.perf_counter() - began)
    return best


async def measured(rows: int, cores: int) -> dict[str, object]:
    with tempfile.TemporaryDirectory(prefix="plainsong-bench-") as scratch:
        root = Path(scratch)
        size = write_files(root / "files", rows)
        by_arrow = await through_source(root / "files", root / "arrow", rows)
        # Started here and not before: a JVM that idles still takes memory.
        memory = {"spark.driver.memory": "2g"}
        settings = SparkSettings(master=f"local[{cores}]", conf=memory, warehouse=root / "warehouse")
        host = start_spark(settings, _dead)
        reader = spark_reader(host, root / "staged", loop=asyncio.get_running_loop(), bytes_min=0)
        try:
            batch = await plain_batch(host, root / "files", root)
            by_spark = await through_source(root / "files", root / "spark", rows, reader)
        finally:
            host.close()
    return {
        "rows": rows,
        "bytes": size,
        "spark_batch_seconds": round(batch, 3),
        "read_by_arrow": _compared(by_arrow, batch),
        "read_by_spark": _compared(by_spark, batch),
        "ratio_wanted": 0.35,
    }


def _compared(source: dict[str, float], batch: float) -> dict[str, float]:
    return {**{name: round(value, 3) for name, value in source.items()}, "ratio": round(batch / source["seconds"], 3)}


def _dead(error: Exception) -> None:
    raise error


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", type=Path, help="Write the figures here too.")
    arguments = parser.parse_args()
    figures = json.dumps(asyncio.run(measured(arguments.rows, arguments.cores)), indent=2)
    print(figures)  # noqa: T201  # what was asked for
    if arguments.json is not None:
        arguments.json.write_text(figures + "\n")


if __name__ == "__main__":
    main()
