"""Column types: each name of Spark SQL has one Arrow type, and each of those one name."""

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plainsong.types import arrow_type, schema, type_name, updates_schema
from reconcile.errors import InvalidRequest

TYPES = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "decimal(12,2)": pa.decimal128(12, 2),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "array<int>": pa.list_(pa.field("element", pa.int32())),
    "map<string,decimal(5,2)>": pa.map_(pa.string(), pa.decimal128(5, 2)),
    "struct<a:int,`b c`:array<string>>": pa.struct(
        [("a", pa.int32()), ("b c", pa.list_(pa.field("element", pa.string())))]
    ),
    "array<map<string,struct<x:date>>>": pa.list_(pa.map_(pa.string(), pa.struct([("x", pa.date32())]))),
    "struct<>": pa.struct([]),
}


@pytest.mark.parametrize("name", TYPES)
def test_every_type_has_its_arrow_type_and_its_name_back(name: str) -> None:
    assert arrow_type(name) == TYPES[name]
    assert type_name(TYPES[name]) == name


@given(precision=st.integers(1, 38), draw=st.data())
def test_every_decimal_has_its_arrow_type_and_its_name_back(precision: int, draw: st.DataObject) -> None:
    scale = draw.draw(st.integers(0, precision))
    name = f"decimal({precision},{scale})"

    assert arrow_type(name) == pa.decimal128(precision, scale)
    assert type_name(arrow_type(name)) == name


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("BIGINT", "bigint"),
        (" Long ", "bigint"),
        ("integer", "int"),
        ("short", "smallint"),
        ("byte", "tinyint"),
        ("real", "float"),
        ("decimal", "decimal(10,0)"),
        ("DEC(5)", "decimal(5,0)"),
        ("numeric( 5 , 2 )", "decimal(5,2)"),
        ("ARRAY<INTEGER>", "array<int>"),
        ("Map< string , long >", "map<string,bigint>"),
        ("STRUCT<a: INT, B: array<dec(3,1)>>", "struct<a:int,B:array<decimal(3,1)>>"),
        ("struct<a INT, `x``y` date>", "struct<a:int,`x``y`:date>"),
    ],
)
def test_names_that_spark_reads_are_read(written: str, meant: str) -> None:
    assert type_name(arrow_type(written)) == meant


@pytest.mark.parametrize(
    "name",
    [
        "",
        "varchar",
        "array<>",
        "array<int,int>",
        "array<blob>",
        "map<int>",
        "struct<int>",
        "int8",
        "big int",
        "timestamp_ntz",
        "decimal()",
        "decimal(5,2",
        "decimal(0,0)",
        "decimal(3,4)",
        "decimal(-1,0)",
        "decimal(39,0)",
        "decimal(99999999999999,1)",
    ],
)
def test_a_type_that_is_none_is_named_and_the_right_ones_are_hinted_at(name: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        arrow_type(name)

    assert repr(name) in refused.value.message or "'blob'" in refused.value.message
    assert "int" in refused.value.hint


@pytest.mark.parametrize(
    "type",
    [
        pa.null(),
        pa.uint8(),
        pa.large_string(),
        pa.date64(),
        pa.timestamp("ns"),
        pa.timestamp("us"),
        pa.list_(pa.uint8()),
        pa.large_list(pa.int8()),
        pa.decimal256(50, 2),
        pa.decimal128(5, -1),
    ],
    ids=str,
)
def test_an_arrow_type_without_a_name_is_refused(type: pa.DataType) -> None:
    with pytest.raises(InvalidRequest, match="no place in a table"):
        type_name(type)


def test_a_schema_says_what_may_be_null() -> None:
    made = schema([("a", "bigint"), ("b", "string", False), ("c", "date", True)])

    assert made == pa.schema(
        [pa.field("a", pa.int64()), pa.field("b", pa.string()), pa.field("c", pa.date32(), nullable=False)]
    )


def test_updates_carry_when_and_how_many_beside_the_columns() -> None:
    made = updates_schema(schema([("a", "bigint")]))

    assert made.names == ["a", "_step", "_diff"]
    assert not made.field("_step").nullable
    assert not made.field("_diff").nullable


def test_a_name_is_given_once_and_two_are_reserved() -> None:
    with pytest.raises(InvalidRequest, match="'a' is there twice"):
        schema([("a", "bigint"), ("b", "int"), ("a", "string")])
    with pytest.raises(InvalidRequest, match="'_diff' has a reserved name"):
        updates_schema(schema([("_diff", "bigint")]))
