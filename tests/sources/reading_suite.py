"""What every reader of files must do: each row is taken, or told with its line and the reason.

Whoever imports these tests says by the fixture ``make_reader`` which reader is on trial.
"""

import json
from pathlib import Path
from typing import Protocol

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from instance.storage import file_reading
from instance.storage.file_reading import BadFile, BadRow, FileReader, Place
from plainsong.types import schema
from reconcile.source_types import FileFormat

COLUMNS = schema([("id", "bigint", True), ("name", "string"), ("price", "decimal(8,2)"), ("at", "timestamp")])


class MakeReader(Protocol):
    def __call__(
        self, format: FileFormat = FileFormat.CSV, columns: pa.Schema = COLUMNS, **options: object
    ) -> FileReader: ...


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


def test_csv_values_are_read_as_spark_reads_them(make_reader: MakeReader, tmp_path: Path) -> None:
    file = written(
        tmp_path / "a.csv",
        "id,name,price,at\n1,anvil,1.50,2024-01-02T03:04:05Z\n2,,,\n"
        '3,"",7,2024-01-02 03:04:05\n4,"a ""b"", c",0.1,2024-01-02\n',
    )

    rows, bad, _ = all_of(make_reader(), file)

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


def test_bad_lines_are_told_with_their_number_and_reason_and_the_rest_is_taken(
    make_reader: MakeReader, tmp_path: Path
) -> None:
    file = written(
        tmp_path / "a.csv",
        b"id,name,price,at\n1,a,1,\nx,b,2,\n3,c\n\n4,\xff,3,\n,e,4,\n6,f,1.234,\n7,g,5,yesterday\n8,h,6,\n",
    )

    rows, bad, _ = all_of(make_reader(), file)

    assert [row["id"] for row in rows] == [1, 8]
    assert [row.line for row in bad] == [3, 4, 6, 7, 8, 9]
    assert bad[0].text == "x,b,2,"
    for row, reason in zip(
        bad, ["'x'", "Expected 4 columns", "UTF8", "id must not be null", "", "yesterday"], strict=True
    ):
        assert reason in row.reason


def test_columns_are_found_by_name_and_those_that_are_unknown_are_told(make_reader: MakeReader, tmp_path: Path) -> None:
    file = written(tmp_path / "a.csv", "\ufeffcolour,NAME,id\r\nred,a,1\r\nblue,b,2\r\n")

    rows, bad, unknown = all_of(make_reader(), file)

    assert [(row["id"], row["name"], row["price"]) for row in rows] == [(1, "a", None), (2, "b", None)]
    assert (bad, unknown) == ([], {"colour"})


def test_a_file_without_a_column_that_must_be_there_is_bad_as_a_whole(make_reader: MakeReader, tmp_path: Path) -> None:
    with pytest.raises(BadFile, match="no column id"):
        make_reader().piece(written(tmp_path / "a.csv", "name,price\na,1\n"), Place())
    with pytest.raises(BadFile, match="none of the columns"):
        make_reader().piece(written(tmp_path / "b.csv", "x,y\na,1\n"), Place())
    with pytest.raises(BadFile, match="a name twice"):
        make_reader().piece(written(tmp_path / "c.csv", "id,id\n1,1\n"), Place())
    with pytest.raises(BadFile, match="not a Parquet file"):
        make_reader(FileFormat.PARQUET).piece(written(tmp_path / "d.parquet", "no"), Place())


def test_a_csv_file_may_lack_a_header_and_use_another_delimiter(make_reader: MakeReader, tmp_path: Path) -> None:
    file = written(tmp_path / "a.csv", "1;a;1;\n2;b;2;")

    rows, _, _ = all_of(make_reader(header=False, delimiter=";"), file)

    assert [row["id"] for row in rows] == [1, 2]


def test_a_file_without_a_header_may_lack_columns_that_were_added_and_have_more(
    make_reader: MakeReader, tmp_path: Path
) -> None:
    columns = schema([("id", "bigint", True), ("name", "string"), ("note", "string")])
    reader = make_reader(header=False, columns=columns)

    older = all_of(reader, written(tmp_path / "a.csv", "1,a\n2,b\n"))
    newer = all_of(reader, written(tmp_path / "b.csv", "3,c,x,7\n4,d,y,8\n"))
    mixed, bad, _ = all_of(reader, written(tmp_path / "c.csv", "5\n6,e,z\n7,f,z,9\n"))

    assert older == ([{"id": 1, "name": "a", "note": None}, {"id": 2, "name": "b", "note": None}], [], set())
    assert newer[:2] == ([{"id": 3, "name": "c", "note": "x"}, {"id": 4, "name": "d", "note": "y"}], [])
    assert newer[2] == {"column 4"}
    assert mixed == [{"id": 6, "name": "e", "note": "z"}]
    assert [row.line for row in bad] == [1, 3]


@pytest.mark.parametrize("format", FileFormat)
def test_a_column_that_a_file_lacks_is_null_and_one_that_it_has_more_is_told(
    make_reader: MakeReader, tmp_path: Path, format: FileFormat
) -> None:
    columns = schema([("id", "bigint", True), ("note", "string"), ("price", "decimal(8,2)")])
    file = tmp_path / f"a.{format}"
    match format:
        case FileFormat.CSV:
            file.write_text("id,colour\n1,red\n2,blue\n")
        case FileFormat.JSON:
            file.write_text('{"id": 1, "colour": "red"}\n{"id": 2, "colour": "blue"}\n')
        case FileFormat.PARQUET:
            pq.write_table(pa.table({"id": [1, 2], "colour": ["red", "blue"]}), file)

    rows, bad, unknown = all_of(make_reader(format, columns), file)

    assert rows == [{"id": 1, "note": None, "price": None}, {"id": 2, "note": None, "price": None}]
    assert (bad, unknown) == ([], {"colour"})


def test_empty_files_hold_nothing(make_reader: MakeReader, tmp_path: Path) -> None:
    assert all_of(make_reader(header=False), written(tmp_path / "a.csv", "")) == ([], [], set())
    assert all_of(make_reader(), written(tmp_path / "b.csv", "id,name\n"))[0] == []
    assert all_of(make_reader(FileFormat.JSON), written(tmp_path / "c.json", "\n\n")) == ([], [], set())


def test_json_lines_are_read_and_bad_ones_told(make_reader: MakeReader, tmp_path: Path) -> None:
    columns = schema([("id", "bigint", True), ("day", "date"), ("price", "decimal(8,2)"), ("ok", "boolean")])
    good = {"id": 1, "day": "2024-01-02", "price": "1.50", "ok": True, "more": {"x": [1]}}
    lines = [json.dumps(good), '{"id": "two"}', "{", '{"ok": false}', '{"id": 5}', '{"id": 6, "day": "soon"}']
    file = written(tmp_path / "a.json", "\n".join(lines))

    rows, bad, unknown = all_of(make_reader(FileFormat.JSON, columns), file)

    assert [(row["id"], str(row["day"]), row["ok"]) for row in rows] == [(1, "2024-01-02", True), (5, "None", None)]
    assert [row.line for row in bad] == [2, 3, 4, 6]
    assert unknown == {"more"}


def test_parquet_rows_that_do_not_fit_are_told(
    make_reader: MakeReader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_reading, "PIECE_ROWS", 3)
    columns = schema([("id", "int", True), ("name", "string")])
    table = pa.table({"id": pa.array([1, 2**40, 3, None, 5, 6, 7], pa.int64()), "extra": ["x"] * 7})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=4)

    rows, bad, unknown = all_of(make_reader(FileFormat.PARQUET, columns), tmp_path / "a.parquet")

    assert rows == [{"id": number, "name": None} for number in (1, 3, 5, 6, 7)]
    assert [row.line for row in bad] == [2, 4]
    assert unknown == {"extra"}


def test_quoted_values_may_hold_line_ends_and_delimiters(make_reader: MakeReader, tmp_path: Path) -> None:
    columns = schema([("id", "bigint", True), ("name", "string")])
    text = 'id,name\n1,"a\n2,b"\n3,"c, ""d""\r\n"\n4,\\\n5,\N{PILE OF POO}\n'

    rows, bad, _ = all_of(make_reader(columns=columns), written(tmp_path / "a.csv", text))

    assert [(row["id"], row["name"]) for row in rows] == [
        (1, "a\n2,b"),
        (3, 'c, "d"\r\n'),
        (4, "\\"),
        (5, "\N{PILE OF POO}"),
    ]
    assert bad == []


def test_every_type_is_read_from_every_format(make_reader: MakeReader, tmp_path: Path) -> None:
    types = {
        "boolean": ("true", True),
        "tinyint": ("-5", -5),
        "smallint": ("-300", -300),
        "int": ("70000", 70000),
        "bigint": ("9007199254740993", 9007199254740993),
        "float": ("0.5", 0.5),
        "double": ("1e300", 1e300),
        "string": ("x y", "x y"),
        "date": ("2024-02-29", "2024-02-29"),
        "timestamp": ("2024-02-29T01:02:03.000004Z", "2024-02-29 01:02:03.000004+00:00"),
        "decimal(20,3)": ("12345678901234567.125", "12345678901234567.125"),
    }
    columns = schema([(f"c{place}", type) for place, type in enumerate(types)])
    names = list(columns.names)
    csv = ",".join(names) + "\n" + ",".join(text for text, _ in types.values()) + "\n" + "," * (len(names) - 1) + "\n"
    plain = ("boolean", "tinyint", "smallint", "int", "bigint", "float", "double")
    values = [json.loads(text) if type in plain else text for type, (text, _) in types.items()]
    lines = json.dumps(dict(zip(names, values, strict=True))) + "\n" + json.dumps(dict.fromkeys(names)) + "\n"
    files = {
        FileFormat.CSV: written(tmp_path / "a.csv", csv),
        FileFormat.JSON: written(tmp_path / "a.json", lines),
    }
    rows, bad, _ = all_of(make_reader(FileFormat.CSV, columns), files[FileFormat.CSV])
    pq.write_table(pa.Table.from_pylist(rows, schema=columns), tmp_path / "a.parquet")
    files[FileFormat.PARQUET] = tmp_path / "a.parquet"

    for format, file in files.items():
        rows, bad, _ = all_of(make_reader(format, columns), file)

        assert bad == [], format
        told = [value if isinstance(value, bool | int | float) else str(value) for value in rows[0].values()]
        assert told == [meant for _, meant in types.values()], format
        assert set(rows[1].values()) == {None}, format
