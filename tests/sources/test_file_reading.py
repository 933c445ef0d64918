"""Files are read piece by piece, and every row is taken or told with its line and the reason."""

import json
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from instance.storage import file_reading
from instance.storage.file_reading import BadFile, BadRow, FileReader, Place, arrow_reader, sieve
from plainsong.types import schema
from reconcile.source_types import FileFormat, FilesOptions

COLUMNS = schema([("id", "bigint", True), ("name", "string"), ("price", "decimal(8,2)"), ("at", "timestamp")])


def reader(format: FileFormat = FileFormat.CSV, columns: pa.Schema = COLUMNS, **options: object) -> FileReader:
    return arrow_reader(FilesOptions(path="/", format=format, **options), columns)  # type: ignore[arg-type]


def all_of(reader: FileReader, file: Path) -> tuple[list[dict[str, object]], list[BadRow], set[str]]:
    rows: list[dict[str, object]] = []
    bad: list[BadRow] = []
    unknown: set[str] = set()
    place: Place | None = Place()
    while place is not None:
        piece = reader.piece(file, place)
        assert piece == reader.piece(file, place)  # whoever was interrupted reads the same again
        rows += piece.rows.to_pylist()
        bad += piece.bad
        unknown.update(piece.unknown)
        place = piece.then
    return rows, bad, unknown


def written(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_csv_values_are_read_as_spark_reads_them(tmp_path: Path) -> None:
    file = written(
        tmp_path / "a.csv",
        'id,name,price,at\n1,anvil,1.50,2024-01-02T03:04:05Z\n2,,,\n3,"",7,2024-01-02 03:04:05\n4,"a ""b"", c",0.1,2024-01-02\n',
    )

    rows, bad, _ = all_of(reader(), file)

    assert bad == []
    assert [(row["id"], row["name"], str(row["price"])) for row in rows] == [
        (1, "anvil", "1.50"),
        (2, None, "None"),
        (3, "", "7.00"),
        (4, 'a "b", c', "0.10"),
    ]
    assert [str(row["at"]) for row in rows] == [
        "2024-01-02 03:04:05+00:00",
        "None",
        "2024-01-02 03:04:05+00:00",
        "2024-01-02 00:00:00+00:00",
    ]


def test_bad_lines_are_told_with_their_number_and_reason_and_the_rest_is_taken(tmp_path: Path) -> None:
    file = written(
        tmp_path / "a.csv",
        b"id,name,price,at\n1,a,1,\nx,b,2,\n3,c\n\n4,\xff,3,\n,e,4,\n6,f,1.234,\n7,g,5,yesterday\n8,h,6,\n",
    )

    rows, bad, _ = all_of(reader(), file)

    assert [row["id"] for row in rows] == [1, 8]
    assert [row.line for row in bad] == [3, 4, 6, 7, 8, 9]
    assert bad[0].text == "x,b,2,"
    for row, reason in zip(
        bad, ["'x'", "Expected 4 columns", "UTF8", "id must not be null", "", "yesterday"], strict=True
    ):
        assert reason in row.reason


def test_columns_are_found_by_name_and_those_that_are_unknown_are_told(tmp_path: Path) -> None:
    file = written(tmp_path / "a.csv", "\ufeffcolour,NAME,id\r\nred,a,1\r\nblue,b,2\r\n")

    rows, bad, unknown = all_of(reader(), file)

    assert [(row["id"], row["name"], row["price"]) for row in rows] == [(1, "a", None), (2, "b", None)]
    assert (bad, unknown) == ([], {"colour"})


def test_a_file_without_a_column_that_must_be_there_is_bad_as_a_whole(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match="no column id"):
        reader().piece(written(tmp_path / "a.csv", "name,price\na,1\n"), Place())
    with pytest.raises(BadFile, match="none of the columns"):
        reader().piece(written(tmp_path / "b.csv", "x,y\na,1\n"), Place())
    with pytest.raises(BadFile, match="a name twice"):
        reader().piece(written(tmp_path / "c.csv", "id,id\n1,1\n"), Place())
    with pytest.raises(BadFile, match="not a Parquet file"):
        reader(FileFormat.PARQUET).piece(written(tmp_path / "d.parquet", "no"), Place())


def test_a_csv_file_may_lack_a_header_and_use_another_delimiter(tmp_path: Path) -> None:
    file = written(tmp_path / "a.csv", "1;a;1;\n2;b;2;")

    rows, _, _ = all_of(reader(header=False, delimiter=";"), file)

    assert [row["id"] for row in rows] == [1, 2]


def test_empty_files_hold_nothing(tmp_path: Path) -> None:
    assert all_of(reader(header=False), written(tmp_path / "a.csv", "")) == ([], [], set())
    assert all_of(reader(), written(tmp_path / "b.csv", "id,name\n"))[0] == []
    assert all_of(reader(FileFormat.JSON), written(tmp_path / "c.json", "\n\n")) == ([], [], set())


def test_json_lines_are_read_and_bad_ones_told(tmp_path: Path) -> None:
    columns = schema([("id", "bigint", True), ("day", "date"), ("price", "decimal(8,2)"), ("ok", "boolean")])
    good = {"id": 1, "day": "2024-01-02", "price": "1.50", "ok": True, "more": {"x": [1]}}
    lines = [json.dumps(good), '{"id": "two"}', "{", '{"ok": false}', '{"id": 5}', '{"id": 6, "day": "soon"}']
    file = written(tmp_path / "a.json", "\n".join(lines))

    rows, bad, unknown = all_of(reader(FileFormat.JSON, columns), file)

    assert [(row["id"], str(row["day"]), row["ok"]) for row in rows] == [(1, "2024-01-02", True), (5, "None", None)]
    assert [row.line for row in bad] == [2, 3, 4, 6]
    assert unknown == {"more"}


def test_parquet_rows_that_do_not_fit_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_reading, "PIECE_ROWS", 3)
    columns = schema([("id", "int", True), ("name", "string")])
    table = pa.table({"id": pa.array([1, 2**40, 3, None, 5, 6, 7], pa.int64()), "extra": ["x"] * 7})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=4)

    rows, bad, unknown = all_of(reader(FileFormat.PARQUET, columns), tmp_path / "a.parquet")

    assert rows == [{"id": number, "name": None} for number in (1, 3, 5, 6, 7)]
    assert [row.line for row in bad] == [2, 4]
    assert unknown == {"extra"}


VALUES = st.one_of(st.none(), st.text(st.characters(codec="utf-8", exclude_characters="\r\0"), max_size=8))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.one_of(st.integers(0, 99), st.just("bad")), VALUES), max_size=30), st.integers(8, 200))
def test_it_does_not_matter_where_pieces_end(
    tmp_path_factory: pytest.TempPathFactory, lines: list[tuple[int | str, str | None]], piece_bytes: int
) -> None:
    def quoted(value: str | None) -> str:
        return "" if value is None else '"' + value.replace('"', '""') + '"'

    text = "id,name\n" + "".join(f"{id},{quoted(name)}\n" for id, name in lines)
    file = written(tmp_path_factory.mktemp("pieces") / "a.csv", text)
    expected = [(id, name) for id, name in lines if id != "bad"]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_reading, "PIECE_BYTES", piece_bytes)
        rows, bad, _ = all_of(reader(), file)

    assert [(row["id"], row["name"]) for row in rows] == expected
    assert len(bad) == len(lines) - len(expected)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.booleans(), max_size=60))
def test_the_sieve_finds_exactly_the_bad_rows(fits: list[bool]) -> None:
    def parse(first: int, last: int) -> pa.Table:
        if not all(fits[first:last]):
            raise pa.ArrowInvalid("no")
        return pa.table({"row": list(range(first, last))})

    good, bad = sieve(len(fits), parse)

    assert [row for table in good for row in table["row"].to_pylist()] == [n for n, fit in enumerate(fits) if fit]
    assert bad == [(n, "no") for n, fit in enumerate(fits) if not fit]
