"""Files read by Spark: the same rows, and the same told of what does not fit, as without it."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from pyspark.sql import SparkSession

from instance.spark import file_reader
from instance.spark.file_reader import SparkFileReader
from instance.spark.session import SparkHost
from instance.storage.file_reading import FileReader, Place, arrow_reader
from plainsong.types import schema
from reconcile.source_types import FileFormat, FilesOptions
from tests.sources.reading_suite import *  # noqa: F403  # the tests that every reader passes
from tests.sources.reading_suite import COLUMNS, MakeReader, all_of, written

T = TypeVar("T")
ROWS = schema([("id", "bigint", True), ("name", "string"), ("price", "decimal(8,2)")])


class Counting:
    """Runs calls on the session's own loop, as an instance does; counts them."""

    def __init__(self, host: SparkHost, loop: asyncio.AbstractEventLoop) -> None:
        self._host = host
        self._loop = loop
        self.calls = 0

    def __call__(self, call: Callable[[SparkSession], T], seconds_max: float) -> T:
        self.calls += 1
        assert seconds_max >= 60
        return asyncio.run_coroutine_threadsafe(self._host.run(call), self._loop).result(60)


@pytest.fixture(scope="module")
def run(spark: SparkHost) -> Iterator[Counting]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield Counting(spark, loop)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.fixture
def make_reader(run: Counting, tmp_path: Path) -> MakeReader:
    def make(format: FileFormat = FileFormat.CSV, columns: pa.Schema = COLUMNS, **options: object) -> FileReader:
        described = FilesOptions(path="/", format=format, **options)  # type: ignore[arg-type]
        return SparkFileReader(run, described, columns, scratch=tmp_path / "scratch", bytes_min=0)

    return make


def csv_rows(path: Path, count: int, bad: str = "") -> Path:
    lines = "".join(f"{n},name {n},{n % 1000}.25\n" for n in range(count))
    return written(path, f"id,name,price\n{lines}{bad}")


def test_a_sound_file_is_read_by_one_job_and_resumed_anywhere(
    run: Counting, make_reader: MakeReader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_reader, "PIECE_ROWS", 700)
    file = csv_rows(tmp_path / "a.csv", 5_000)
    before = run.calls

    rows, bad, _ = all_of(make_reader(columns=ROWS), file)

    assert run.calls == before + 1
    assert [row["id"] for row in rows] == list(range(5_000))
    assert bad == []
    place: Place | None = Place()
    resumed: list[int] = []
    while place is not None:
        # Each time as another process would.
        piece = make_reader(columns=ROWS).piece(file, place)
        resumed += piece.rows["id"].to_pylist()
        place = piece.then
    assert resumed == list(range(5_000))


def test_a_file_with_a_fault_is_read_again_here_and_its_lines_are_told(make_reader: MakeReader, tmp_path: Path) -> None:
    sound, faulty = csv_rows(tmp_path / "a.csv", 2_000), csv_rows(tmp_path / "b.csv", 2_000, bad="x,y,1\n7,z,1.234\n")
    reader = make_reader(columns=ROWS)

    assert all_of(reader, sound)[1] == []
    rows, bad, _ = all_of(reader, faulty)

    assert len(rows) == 2_000
    assert [(row.line, row.text) for row in bad] == [(2002, "x,y,1"), (2003, "7,z,1.234")]


def test_a_small_file_costs_no_job_and_nothing_is_left_behind(run: Counting, tmp_path: Path) -> None:
    options = FilesOptions(path="/", format=FileFormat.CSV)
    reader = SparkFileReader(run, options, ROWS, scratch=tmp_path / "scratch")
    before = run.calls

    assert len(all_of(reader, csv_rows(tmp_path / "a.csv", 10))[0]) == 10

    assert run.calls == before
    large = SparkFileReader(run, options, ROWS, scratch=tmp_path / "scratch", bytes_min=0)
    all_of(large, tmp_path / "a.csv")
    large.close()
    assert list((tmp_path / "scratch").iterdir()) == []


def test_a_file_begun_without_spark_is_finished_without_it(
    run: Counting, make_reader: MakeReader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("instance.storage.file_reading.PIECE_BYTES", 1_000)
    file = csv_rows(tmp_path / "a.csv", 500)
    small = SparkFileReader(run, FilesOptions(path="/", format=FileFormat.CSV), ROWS, scratch=tmp_path)
    first = small.piece(file, Place())
    assert first.then is not None
    before = run.calls

    rest = make_reader(columns=ROWS).piece(file, first.then)

    assert run.calls == before
    assert rest.rows["id"][0].as_py() == first.rows.num_rows


@pytest.mark.parametrize("format", FileFormat)
def test_a_file_begun_by_spark_is_finished_without_it(
    make_reader: MakeReader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: FileFormat
) -> None:
    monkeypatch.setattr(file_reader, "PIECE_ROWS", 700)
    monkeypatch.setattr("instance.storage.file_reading.PIECE_BYTES", 1_000)
    file = csv_rows(tmp_path / "a.csv", 2_000)
    if format is FileFormat.JSON:
        file = written(tmp_path / "a.json", "".join(f'{{"id": {n}, "name": "n"}}\n' for n in range(2_000)))
    elif format is FileFormat.PARQUET:
        file = tmp_path / "a.parquet"
        pq.write_table(pa.table({"id": pa.array(range(2_000)), "name": ["n"] * 2_000}), file, row_group_size=300)
    first = make_reader(format, ROWS).piece(file, Place())
    assert first.then == Place(byte=-1, line=700)

    arrow = arrow_reader(FilesOptions(path="/", format=format), ROWS)
    place: Place | None = first.then
    rest: list[int] = []
    while place is not None:
        piece = arrow.piece(file, place)
        assert piece.bad == ()
        rest += piece.rows["id"].to_pylist()
        place = piece.then

    assert rest == list(range(700, 2_000))
    assert arrow.piece(file, Place(byte=-1, line=2_000)).rows.num_rows == 0


def test_large_parquet_and_json_files_keep_their_order(make_reader: MakeReader, tmp_path: Path) -> None:
    table = pa.table({"id": pa.array(range(30_000), pa.int64()), "name": ["x" * 20] * 30_000})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=3_000)
    text = "".join(f'{{"id": {n}, "name": "n"}}\n' for n in range(30_000))
    file = written(tmp_path / "odd [name] {1,2}.json", text)
    columns = schema([("id", "bigint"), ("name", "string")])

    for format, path in ((FileFormat.PARQUET, tmp_path / "a.parquet"), (FileFormat.JSON, file)):
        rows, bad, _ = all_of(make_reader(format, columns), path)

        assert [row["id"] for row in rows] == list(range(30_000))
        assert bad == []
