"""Reading files piece by piece: rows that fit, rows that do not and why, and where to go on.

A reader is given a place in a file and returns the next piece of it; the same place leads to the same piece, so that
whoever was interrupted reads it again. Calls block.
"""

import csv
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Protocol

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types
import pyarrow.csv as pa_csv  # type: ignore[import-untyped]
import pyarrow.json as pa_json  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from reconcile.errors import PlainsongError
from reconcile.source_types import FileFormat, FilesOptions

#: One piece of a text file, and of a Parquet file.
PIECE_BYTES = 4 * 1024 * 1024
PIECE_ROWS = 50_000
#: What is kept of a row that does not fit.
_TEXT_CHARACTERS_MAX = 4_096
#: Rows of a file without a header that show how many columns it has.
_ROWS_LOOKED_AT = 20
#: Lines that one quoted value may span; beyond it the quote is taken for a mistake.
_RECORD_LINES_MAX = 64


#: In a place, in the stead of bytes.
BY_ROWS = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """So many bytes and lines of a text file, or rows of a Parquet file, are behind.

    With ``BY_ROWS`` for bytes, so many rows of any file: all of it fits, and it was begun by who cannot tell bytes.
    """

    byte: int = 0
    line: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRow:
    """A row that does not fit: where it begins, why, and its text as far as that can be shown."""

    line: int
    reason: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """The next piece of a file; ``then`` is None at its end."""

    rows: pa.Table
    bad: tuple[BadRow, ...] = ()
    #: Columns of the file that the source does not have.
    unknown: tuple[str, ...] = ()
    then: Place | None = None


class BadFile(PlainsongError):
    """No row of the file can be read."""

    code = "INVALID_ARGUMENT"


class FileReader(Protocol):
    """How files of one source are read."""

    def piece(self, file: Path, place: Place) -> Piece:
        """What comes after ``place``; raises ``BadFile`` if nothing of the file makes sense."""
        ...

    def close(self) -> None:
        """Lets go of what it keeps; it may be used again."""
        ...


#: Who reads the files of a source with these options and columns.
MakeReader = Callable[[FilesOptions, pa.Schema], FileReader]


class BadValue(Exception):
    """A value that Arrow would take and the source's columns do not."""


def arrow_reader(options: FilesOptions, columns: pa.Schema) -> FileReader:
    """Reads with Arrow, in this process."""
    match options.format:
        case FileFormat.CSV:
            return _ArrowReader(_CsvReader(options, columns), columns)
        case FileFormat.JSON:
            return _ArrowReader(_JsonReader(columns), columns)
        case FileFormat.PARQUET:
            return _ArrowReader(_ParquetReader(columns), columns)


class _ArrowReader:
    """Reads one format; and goes on with a file that somebody else began."""

    def __init__(self, format: "_CsvReader | _JsonReader | _ParquetReader", columns: pa.Schema) -> None:
        self._format = format
        self._columns = columns

    def piece(self, file: Path, place: Place) -> Piece:
        if place.byte != BY_ROWS:
            return self._format.piece(file, place)
        behind, then, unknown = 0, Place(), tuple[str, ...]()
        while True:
            piece = self._format.piece(file, then)
            behind += piece.rows.num_rows
            if behind > place.line:
                rows = piece.rows.slice(piece.rows.num_rows - (behind - place.line))
                return Piece(rows=rows, bad=piece.bad, unknown=piece.unknown, then=piece.then)
            if piece.then is None:
                return Piece(rows=self._columns.empty_table(), unknown=unknown)
            then, unknown = piece.then, piece.unknown

    def close(self) -> None:
        """There is nothing to let go."""


# --- what fits --------------------------------------------------------------------------------------------


def sieve(count: int, parse: Callable[[int, int], pa.Table]) -> tuple[list[pa.Table], list[tuple[int, str]]]:
    """The tables of all rows that can be parsed, in order, and the rows that cannot with the reason.

    ``parse`` takes a range of rows and raises if one of them does not fit; each half is then tried by itself, so that
    a bad row costs a logarithm of all.
    """
    good: list[pa.Table] = []
    bad: list[tuple[int, str]] = []
    ranges = [(0, count)] if count else []
    while ranges:
        first, last = ranges.pop()
        try:
            good.append(parse(first, last))
        except (pa.ArrowException, BadValue) as error:
            if last - first == 1:
                bad.append((first, _reason(error)))
            else:
                middle = (first + last) // 2
                ranges += [(middle, last), (first, middle)]
    return good, bad


def _reason(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def fitted(table: pa.Table, columns: pa.Schema) -> pa.Table:
    """``table`` with exactly ``columns``; what it lacks is null."""
    arrays = []
    for field in columns:
        if field.name in table.column_names:
            values = _cast(table[field.name], field.type)
        else:
            values = pa.chunked_array([pa.nulls(table.num_rows, field.type)])
        if not field.nullable and values.null_count:
            raise BadValue(f"column {field.name} must not be null")
        arrays.append(values)
    return pa.Table.from_arrays(arrays, schema=columns)


def _cast(values: pa.ChunkedArray, type: pa.DataType) -> pa.ChunkedArray:
    if pa.types.is_timestamp(type) and pa.types.is_string(values.type):
        try:
            return values.cast(type)
        except pa.ArrowInvalid:
            return values.cast(pa.timestamp("us")).cast(type)  # without a zone it is UTC
    return values.cast(type)


def _as_read(columns: pa.Schema, *texts: Callable[[pa.DataType], bool]) -> pa.Schema:
    """``columns`` with those types as text that a reader of Arrow would not take as they are written."""
    read = [pa.field(f.name, pa.string() if any(is_text(f.type) for is_text in texts) else f.type) for f in columns]
    return pa.schema(read)


# --- text files -------------------------------------------------------------------------------------------


class _TextReader:
    """Files whose rows are lines; a quoted value of a CSV file may hold line ends."""

    quote: bytes | None = None

    def __init__(self, columns: pa.Schema) -> None:
        self._columns = columns

    def _block(self, file: Path, place: Place) -> tuple[bytes, bool]:
        """Whole rows from ``place`` on, and whether the file ends with them."""
        with file.open("rb") as opened:
            opened.seek(place.byte)
            block = b""
            while True:
                more = opened.read(PIECE_BYTES)
                block += more
                if len(more) < PIECE_BYTES:
                    return block, True
                end = self._last_row_end(block)
                if end:
                    return block[:end], False

    def _last_row_end(self, block: bytes) -> int:
        """Just after the last line end that is not inside a quoted value; of any, if all seem to be."""
        last = end = block.rfind(b"\n") + 1
        if self.quote is None or not end:
            return end
        quotes = block.count(self.quote, 0, end)
        for _ in range(_RECORD_LINES_MAX):
            if quotes % 2 == 0:
                return end
            before = block.rfind(b"\n", 0, end - 1) + 1
            if not before:
                break
            quotes -= block.count(self.quote, before, end)
            end = before
        return last

    def _rows_of(self, block: bytes) -> list[bytes]:
        """The rows of a block, each with its line end; a quote that never ends spans one line only."""
        lines = _lines(block)
        if self.quote is None:
            return lines
        rows: list[bytes] = []
        place = 0
        while place < len(lines):
            taken = 1
            while b"".join(lines[place : place + taken]).count(self.quote) % 2 and taken < _RECORD_LINES_MAX:
                taken += 1
            whole = b"".join(lines[place : place + taken])
            if whole.count(self.quote) % 2:
                whole, taken = lines[place], 1
            rows.append(whole)
            place += taken
        return rows

    def _piece(self, block: bytes, place: Place, last: bool, parse: Callable[[bytes], pa.Table]) -> Piece:
        then = None if last else Place(byte=place.byte + len(block), line=place.line + block.count(b"\n"))
        if not block.strip():
            return Piece(rows=self._columns.empty_table(), then=then)
        try:
            return Piece(rows=parse(block), then=then)
        except (pa.ArrowException, BadValue):
            rows = self._rows_of(block)
        good, bad = sieve(len(rows), lambda first, end: parse(b"".join(rows[first:end])))
        lines = _first_lines(rows, place.line + 1)
        told = [
            BadRow(line=lines[row], reason=reason, text=_shown(rows[row])) for row, reason in bad if rows[row].strip()
        ]
        return Piece(rows=pa.concat_tables([self._columns.empty_table(), *good]), bad=tuple(told), then=then)


def _lines(block: bytes) -> list[bytes]:
    *lines, tail = block.split(b"\n")
    return [*(line + b"\n" for line in lines), *([tail] if tail else [])]


def _first_lines(rows: Sequence[bytes], first: int) -> list[int]:
    lines = []
    for row in rows:
        lines.append(first)
        first += row.count(b"\n")
    return lines


def _shown(row: bytes) -> str:
    return row.decode("utf-8", errors="replace").rstrip("\r\n")[:_TEXT_CHARACTERS_MAX]


class _CsvReader(_TextReader):
    quote = b'"'

    def __init__(self, options: FilesOptions, columns: pa.Schema) -> None:
        super().__init__(columns)
        self._options = options
        self._read = _as_read(columns, pa.types.is_timestamp)

    def piece(self, file: Path, place: Place) -> Piece:
        names, begin = csv_header(file, self._options, self._columns)
        if place.byte < begin.byte:
            place = begin
        known = [name for name in self._columns.names if name in names]
        unknown = tuple(name for name in names if name not in known)
        read_options = {"column_names": names}
        parse_options = pa_csv.ParseOptions(delimiter=self._options.delimiter)
        convert_options = pa_csv.ConvertOptions(
            column_types={name: self._read.field(name).type for name in known},
            include_columns=known,
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )

        def parse(block: bytes) -> pa.Table:
            if not block.strip():
                return self._columns.empty_table()
            whole = pa_csv.ReadOptions(block_size=len(block) + 1, **read_options)
            table = pa_csv.read_csv(pa.py_buffer(block), whole, parse_options, convert_options)
            return fitted(table, self._columns)

        block, last = self._block(file, place)
        piece = self._piece(block, place, last, parse)
        return Piece(rows=piece.rows, bad=piece.bad, unknown=unknown, then=piece.then)


def csv_header(file: Path, options: FilesOptions, columns: pa.Schema) -> tuple[list[str], Place]:
    """The names of a CSV file's columns, and where its rows begin."""
    if not options.header:
        return _names_by_place(file, options, columns), Place()
    with file.open("rb") as opened:
        line = opened.readline(PIECE_BYTES)
    text = line.decode("utf-8-sig", errors="replace").rstrip("\r\n")
    given = next(csv.reader([text], delimiter=options.delimiter), [])
    ours = {name.lower(): name for name in columns.names}
    names = [ours.get(name.strip().lower(), name) for name in given]
    if len(names) != len(set(names)):
        raise BadFile("its header has a name twice", detail=text[:_TEXT_CHARACTERS_MAX])
    _require_columns(columns, names)
    return names, Place(byte=len(line), line=1)


def _names_by_place(file: Path, options: FilesOptions, columns: pa.Schema) -> list[str]:
    """The names of the columns of a CSV file without a header, as its first rows show.

    A file from before columns were added to the source has fewer in every row, one from after its maker added some
    has more; else a row with another number of values is a row that does not fit.
    """
    with file.open(encoding="utf-8-sig", errors="replace", newline="") as opened:
        try:
            rows = islice(csv.reader(opened, delimiter=options.delimiter), _ROWS_LOOKED_AT)
            widths = {len(row) for row in rows if row}
        except csv.Error:
            widths = set()
    names, width = list(columns.names), len(columns)
    if width in widths or not widths:
        return names
    shorter = [one for one in widths if one < width]
    if not shorter:
        return [*names, *(f"column {place + 1}" for place in range(width, min(widths)))]
    # What must not be null cannot have been added: then these rows do not fit.
    lacked = list(columns)[max(shorter) :]
    return names[: max(shorter)] if all(field.nullable for field in lacked) else names


class _JsonReader(_TextReader):
    def __init__(self, columns: pa.Schema) -> None:
        super().__init__(columns)
        self._parse_options = pa_json.ParseOptions(
            explicit_schema=_as_read(columns, pa.types.is_date), unexpected_field_behavior="ignore"
        )

    def piece(self, file: Path, place: Place) -> Piece:
        block, last = self._block(file, place)
        piece = self._piece(block, place, last, self._parse)
        return Piece(rows=piece.rows, bad=piece.bad, unknown=json_unknown(block, self._columns), then=piece.then)

    def _parse(self, block: bytes) -> pa.Table:
        if not block.strip():
            return self._columns.empty_table()
        whole = pa_json.ReadOptions(block_size=len(block) + 1)
        return fitted(pa_json.read_json(pa.py_buffer(block), whole, self._parse_options), self._columns)


def json_unknown(block: bytes, columns: pa.Schema) -> tuple[str, ...]:
    """Names that are not ours, as far as the first row shows: looking at every row would cost as much as reading it."""
    try:
        first = json.loads(block.lstrip().partition(b"\n")[0] or b"{}")
    except ValueError:
        return ()
    return tuple(name for name in first if name not in columns.names) if isinstance(first, dict) else ()


# --- Parquet ----------------------------------------------------------------------------------------------


class _ParquetReader:
    def __init__(self, columns: pa.Schema) -> None:
        self._columns = columns
        #: The row group that was read last, with the file and the number of the first row in it.
        self._group: tuple[Path, int, pa.Table] | None = None

    def piece(self, file: Path, place: Place) -> Piece:
        with _opened_parquet(file) as opened:
            names = opened.schema_arrow.names
            _require_columns(self._columns, names)
            unknown = tuple(name for name in names if name not in self._columns.names)
            if place.line >= opened.metadata.num_rows:
                return Piece(rows=self._columns.empty_table(), unknown=unknown)
            first, group = self._group_at(file, opened, place.line)
            total = opened.metadata.num_rows
        rows = group.slice(place.line - first, PIECE_ROWS)
        good, bad = sieve(rows.num_rows, lambda begin, end: fitted(rows.slice(begin, end - begin), self._columns))
        behind = place.line + rows.num_rows
        told = tuple(
            BadRow(
                line=place.line + row + 1,
                reason=reason,
                text=str(rows.slice(row, 1).to_pylist()[0])[:_TEXT_CHARACTERS_MAX],
            )
            for row, reason in bad
        )
        return Piece(
            rows=pa.concat_tables([self._columns.empty_table(), *good]),
            bad=told,
            unknown=unknown,
            then=None if behind >= total else Place(line=behind),
        )

    def _group_at(self, file: Path, opened: pq.ParquetFile, row: int) -> tuple[int, pa.Table]:
        if self._group is not None:
            path, first, table = self._group
            if path == file and first <= row < first + table.num_rows:
                return first, table
        first, number = 0, 0
        while first + opened.metadata.row_group(number).num_rows <= row:
            first += opened.metadata.row_group(number).num_rows
            number += 1
        wanted = [name for name in opened.schema_arrow.names if name in self._columns.names]
        self._group = (file, first, opened.read_row_group(number, columns=wanted))
        return first, self._group[2]


def _opened_parquet(file: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(file)
    except pa.ArrowException as error:
        raise BadFile("it is not a Parquet file", detail=_reason(error)) from error


def parquet_names(file: Path, columns: pa.Schema) -> list[str]:
    """The names of a Parquet file's columns."""
    with _opened_parquet(file) as opened:
        names: list[str] = opened.schema_arrow.names
    _require_columns(columns, names)
    return names


def _require_columns(columns: pa.Schema, names: Sequence[str]) -> None:
    if not any(name in names for name in columns.names):
        raise BadFile("it has none of the columns", detail=f"it has {', '.join(names)[:_TEXT_CHARACTERS_MAX]}")
    missing = [field.name for field in columns if not field.nullable and field.name not in names]
    if missing:
        raise BadFile(f"it has no column {missing[0]}, which must not be null", detail=f"it has {', '.join(names)}")
