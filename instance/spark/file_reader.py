"""Files read by Spark: a file is turned into Parquet by one job, and its rows are handed out from there.

Whatever Spark finds fault with is read again in this process, the whole file: so what fits, what does not, why and
on which line is decided in one place, and only files with faults are read twice. A small file is not worth a job.
"""

import asyncio
import logging
import os
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession

from instance.spark.session import SparkHost
from instance.storage.file_reading import (
    BY_ROWS,
    BadValue,
    FileReader,
    MakeReader,
    Piece,
    Place,
    arrow_reader,
    csv_header,
    fitted,
    json_unknown,
    parquet_names,
)
from plainsong.types import type_name
from reconcile.errors import InvalidRequest
from reconcile.source_types import FileFormat, FilesOptions

T = TypeVar("T")

_LOG = logging.getLogger(__name__)

#: Files below this are read in this process. Measured on two cores: a job costs 250 ms before it reads anything, and
#: each MiB 15 (JSON) to 30 ms (Parquet) after that, so from here on the job itself is less than a tenth of the whole.
#: Arrow in this process takes 2.5 to 4 ms for each MiB, whatever the size: Spark is there to have it done elsewhere.
SPARK_BYTES_MIN = 256 * 1024 * 1024
#: A job that takes longer than this, and than its file at this speed, is taken for one that hangs.
_JOB_S_MIN = 120.0
_BYTES_PER_S_MIN = 1024 * 1024
#: Rows handed out at once.
PIECE_ROWS = 50_000
_CORRUPT = "_corrupt_record"
#: What Spark puts where bytes are no UTF-8.
_REPLACED = "\N{REPLACEMENT CHARACTER}"


class RunsSpark(Protocol):
    """Runs a call with the session and waits for it, so long at most; not to be used on the event loop."""

    def __call__(self, call: Callable[[SparkSession], T], seconds_max: float) -> T: ...


def spark_reader(
    host: SparkHost, scratch: Path, *, loop: asyncio.AbstractEventLoop, bytes_min: int = SPARK_BYTES_MIN
) -> MakeReader:
    """Readers that run on ``host``, whose calls are made on ``loop``."""

    def run(call: Callable[[SparkSession], T], seconds_max: float) -> T:
        ran = host.run(call, deadline_ms=int(seconds_max * 1000))
        return asyncio.run_coroutine_threadsafe(ran, loop).result()

    def make(options: FilesOptions, columns: pa.Schema) -> FileReader:
        return SparkFileReader(run, options, columns, scratch=scratch, bytes_min=bytes_min)

    return make


class SparkFileReader:
    """Reads files of one source. One file is staged at a time, in a folder of its own below ``scratch``."""

    def __init__(
        self,
        run: RunsSpark,
        options: FilesOptions,
        columns: pa.Schema,
        *,
        scratch: Path,
        bytes_min: int = SPARK_BYTES_MIN,
    ) -> None:
        self._run = run
        self._options = options
        self._columns = columns
        self._scratch = scratch
        self._bytes_min = bytes_min
        self._arrow: FileReader = arrow_reader(options, columns)
        #: The file that was staged last, as it was then; without a folder if Spark found fault with it.
        self._staged: _Staged | None = None

    def piece(self, file: Path, place: Place) -> Piece:
        if place.byte > 0 or (place.byte == 0 and place.line == 0 and file.stat().st_size < self._bytes_min):
            return self._arrow.piece(file, place)
        if place.byte == 0 and place.line > 0 and self._options.format is FileFormat.PARQUET:
            return self._arrow.piece(file, place)  # begun without Spark
        staged = self._stage(file)
        if staged.rows is None:
            return self._arrow.piece(file, place)
        if not staged.rows.count:
            return Piece(rows=self._columns.empty_table(), unknown=staged.unknown)
        first = place.line if place.byte == BY_ROWS else 0
        rows = staged.rows.slice(first, PIECE_ROWS)
        behind = first + rows.num_rows
        then = None if behind >= staged.rows.count else Place(byte=BY_ROWS, line=behind)
        return Piece(rows=fitted(rows, self._columns), unknown=staged.unknown, then=then)

    def close(self) -> None:
        """Lets go of what is staged."""
        staged, self._staged = self._staged, None
        if staged is not None and staged.rows is not None:
            shutil.rmtree(staged.rows.folder, ignore_errors=True)

    # --- staging ------------------------------------------------------------------------------------------

    def _stage(self, file: Path) -> "_Staged":
        status = file.stat()
        stamp = (str(file), status.st_size, status.st_mtime_ns)
        if self._staged is None or self._staged.stamp != stamp:
            self.close()
            self._staged = self._read(file, stamp)
        return self._staged

    def _read(self, file: Path, stamp: tuple[str, int, int]) -> "_Staged":
        folder = self._scratch / uuid.uuid4().hex
        names = self._names(file)
        unknown = tuple(name for name in names if name not in self._columns.names)
        known = [name for name in self._columns.names if name in names]
        seconds_max = _JOB_S_MIN + stamp[1] / _BYTES_PER_S_MIN
        _LOG.info("%s is read by Spark, %d MiB", file, stamp[1] // 2**20)
        try:
            self._run(lambda session: _write(self._frame(session, file, names), known, folder), seconds_max)
            rows = _StagedRows(folder)
            if self._is_sound(rows):
                return _Staged(stamp, rows, unknown)
        except (InvalidRequest, pa.ArrowException, BadValue):
            pass  # read again below, where its faults are named
        shutil.rmtree(folder, ignore_errors=True)
        return _Staged(stamp, None, unknown)

    def _names(self, file: Path) -> list[str]:
        match self._options.format:
            case FileFormat.CSV:
                return csv_header(file, self._options, self._columns)[0]
            case FileFormat.JSON:
                with file.open("rb") as opened:
                    return [*self._columns.names, *json_unknown(opened.readline(), self._columns)]
            case FileFormat.PARQUET:
                return parquet_names(file, self._columns)

    def _frame(self, session: SparkSession, file: Path, names: list[str]) -> DataFrame:
        # A path is a pattern to Spark: what means something there is escaped.
        path = "".join(f"\\{letter}" if letter in "*?[]{}\\," else letter for letter in str(file))
        match self._options.format:
            case FileFormat.CSV:
                reader = session.read.options(
                    header=self._options.header,
                    sep=self._options.delimiter,
                    quote='"',
                    escape='"',
                    nullValue="",
                    emptyValue="",
                    multiLine=True,
                    mode="PERMISSIVE",
                    columnNameOfCorruptRecord=_CORRUPT,
                )
                return reader.schema(self._schema(names, text=_TEXT_IN_CSV)).csv(path)
            case FileFormat.JSON:
                reader = session.read.options(
                    mode="PERMISSIVE",
                    columnNameOfCorruptRecord=_CORRUPT,
                    allowSingleQuotes=False,
                )
                return reader.schema(self._schema(list(self._columns.names), text=_TEXT_IN_JSON)).json(path)
            case FileFormat.PARQUET:
                return session.read.parquet(path)

    def _schema(self, names: list[str], text: tuple[Callable[[pa.DataType], bool], ...]) -> str:
        def spark_type(name: str) -> str:
            if name not in self._columns.names:
                return "string"
            type = self._columns.field(name).type
            return "string" if any(is_text(type) for is_text in text) else type_name(type)

        listed = [f"{_quoted(name)} {spark_type(name)}" for name in names]
        return ", ".join([*listed, f"{_CORRUPT} string"])

    def _is_sound(self, rows: "_StagedRows") -> bool:
        """Whether every row fits. Looks at all, so that a file is read one way from its first row to its last."""
        first = 0
        while first < rows.count:
            piece = rows.slice(first, PIECE_ROWS)
            if _CORRUPT in piece.column_names and piece[_CORRUPT].null_count < piece.num_rows:
                return False
            for field in piece.schema:
                if pa.types.is_string(field.type) and pc.any(pc.match_substring(piece[field.name], _REPLACED)).as_py():
                    return False
            fitted(piece, self._columns)
            first += piece.num_rows
        return True


#: Types whose text Spark and Arrow do not take alike: read as text, and cast where every other file is.
_TEXT_IN_CSV = (pa.types.is_timestamp, pa.types.is_decimal, pa.types.is_floating)
_TEXT_IN_JSON = (pa.types.is_timestamp, pa.types.is_date, pa.types.is_decimal)


class _Staged:
    """A file as it was when it was staged; ``rows`` is None if Spark found fault with it."""

    def __init__(self, stamp: tuple[str, int, int], rows: "_StagedRows | None", unknown: tuple[str, ...]) -> None:
        self.stamp = stamp
        self.rows = rows
        self.unknown = unknown


class _StagedRows:
    """The rows of one file in the order of the file, in as many Parquet files as Spark had tasks."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        #: Files in their order, each with the number of its first row.
        self._parts: list[tuple[int, Path]] = []
        self.count = 0
        for name in sorted(os.listdir(folder)):
            if name.startswith("part-") and name.endswith(".parquet"):
                self._parts.append((self.count, folder / name))
                self.count += int(pq.read_metadata(folder / name).num_rows)
        self._read: tuple[int, pa.Table] | None = None

    def slice(self, first: int, rows: int) -> pa.Table:
        """At most ``rows`` rows from ``first`` on; fewer at the end of a part."""
        begin, path = next(part for part in reversed(self._parts) if part[0] <= first)
        with pq.ParquetFile(path) as opened:
            place = 0
            while begin + opened.metadata.row_group(place).num_rows <= first:
                begin += opened.metadata.row_group(place).num_rows
                place += 1
            if self._read is None or self._read[0] != begin:
                self._read = (begin, opened.read_row_group(place))
        return self._read[1].slice(first - begin, rows)


def _write(frame: DataFrame, known: list[str], folder: Path) -> None:
    kept = [name for name in (*known, _CORRUPT) if name in frame.columns]
    frame.select(*(_quoted(name) for name in kept)).write.option("parquet.block.size", 16 * 1024 * 1024).parquet(
        f"file://{folder}"
    )


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
