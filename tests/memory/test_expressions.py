"""Expressions mean what Spark SQL means in ANSI mode."""

import math
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types
import pytest
from hypothesis import given
from hypothesis import strategies as st

from instance.memory.expressions import compile_expression
from instance.memory.rows import Row, declared_format, microseconds, values_of
from plainsong.types import type_name
from reconcile.errors import InvalidRequest

COLUMNS = (
    ("a", "int"), ("b", "int"), ("g", "bigint"), ("d", "double"), ("m", "decimal(10,2)"),
    ("s", "string"), ("t", "date"), ("ts", "timestamp"), ("we ird", "boolean"), ("bin", "binary"),
)  # fmt: skip
FORMAT = declared_format(COLUMNS)
MOMENT = microseconds(datetime(2024, 2, 29, 12, 30, 5, 250_000, tzinfo=UTC))
ROW: Row = (7, -2, 2**40, 1.5, Decimal("-12.25"), "Ab c ", 19_782, MOMENT, True, b"\x01\x02")
NULLS: Row = (None,) * len(COLUMNS)


def compute(text: str, *rows: Row) -> list[Any]:
    frame = pa.RecordBatch.from_arrays(FORMAT.arrays(rows or (ROW,)), schema=FORMAT.schema)
    expression = compile_expression(text, FORMAT)
    found = expression.array(frame)
    assert found.type == expression.type
    return values_of(found)


@pytest.mark.parametrize(
    ("text", "type", "value"),
    [
        ("a + b", "int", 5),
        ("a + g", "bigint", 2**40 + 7),
        ("a - 1L", "bigint", 6),
        ("a * d", "double", 10.5),
        ("a / b", "double", -3.5),
        ("a DIV b", "bigint", -3),
        ("b % 7", "int", -2),
        ("mod(a, b)", "int", 1),
        ("-a", "int", -7),
        ("abs(b)", "int", 2),
        ("m + 1", "decimal(11,2)", Decimal("-11.25")),
        ("m * m", "decimal(21,4)", Decimal("150.0625")),
        ("m / 3", "decimal(14,6)", Decimal("-4.083333")),
        ("m % 5", "decimal(3,2)", Decimal("-2.25")),
        ("m + d", "double", -10.75),
        ("1.50 + 2", "decimal(4,2)", Decimal("3.50")),
        ("1e3", "double", 1000.0),
        ("-9223372036854775808", "bigint", -(2**63)),
        ("round(m, 1)", "decimal(10,1)", Decimal("-12.3")),
        ("round(2.5D)", "double", 3.0),
        ("round(a, -1)", "int", 10),
        ("a BETWEEN 7 AND 8", "boolean", True),
        ("a IN (1, 7)", "boolean", True),
        ("a NOT IN (1, 2, 3, 4, 5)", "boolean", True),
        ("a IN (1, NULL)", "boolean", None),
        ("a IN (1, 2, 3, 4, NULL)", "boolean", None),
        ("a <=> NULL", "boolean", False),
        ("`we ird` IS TRUE", "boolean", True),
        ("m = -12.250", "boolean", True),
        ("m < a", "boolean", True),
        ("s LIKE 'A_ %'", "boolean", True),
        ("s LIKE 'a%'", "boolean", False),
        ("'10%' LIKE '10!%' ESCAPE '!'", "boolean", True),
        ("CASE WHEN a > 100 THEN 'big' WHEN a > 5 THEN 'mid' ELSE 'small' END", "string", "mid"),
        ("CASE a WHEN 7 THEN 1 END", "int", 1),
        ("if(a = 8, 1, 2.5)", "decimal(11,1)", Decimal("2.5")),
        ("coalesce(NULL, b, a)", "int", -2),
        ("nullif(a, 7)", "int", None),
        ("upper(s)", "string", "AB C "),
        ("upper('straße')", "string", "STRASSE"),
        ("length(s)", "int", 5),
        ("length(bin)", "int", 2),
        ("substring(s, 2, 3)", "string", "b c"),
        ("substring(s, -3)", "string", " c "),
        ("substring(s, 0, 1)", "string", "A"),
        ("concat(s, a, '!')", "string", "Ab c 7!"),
        ("s || NULL", "string", None),
        ("trim(s)", "string", "Ab c"),
        ("trim(BOTH 'A ' FROM s)", "string", "b c"),
        ("t > DATE '2024-01-01'", "boolean", True),
        ("t = '2024-02-29'", "boolean", True),
        ("ts < TIMESTAMP '2024-02-29 12:30:05.3'", "boolean", True),
        ("ts > t", "boolean", True),
        ("CAST(ts AS DATE) = t", "boolean", True),
        ("CAST(ts AS STRING)", "string", "2024-02-29 12:30:05.25"),
        ("CAST(t AS STRING)", "string", "2024-02-29"),
        ("CAST('2024-02-29T13:30:05.25+01:00' AS TIMESTAMP) = ts", "boolean", True),
        ("CAST(m AS INT)", "int", -12),
        ("CAST(d AS BIGINT)", "bigint", 1),
        ("CAST(1.005 AS DECIMAL(3,2))", "decimal(3,2)", Decimal("1.01")),
        ("CAST(' 12 ' AS INT)", "int", 12),
        ("CAST('1e2' AS DOUBLE)", "double", 100.0),
        ("CAST('yes' AS BOOLEAN)", "boolean", True),
        ("CAST(1e10 AS STRING)", "string", "1.0E10"),
        ("CAST(CAST(0.1 AS FLOAT) AS STRING)", "string", "0.1"),
        ("CAST(a AS STRING)", "string", "7"),
        ("X'0102' = bin", "boolean", True),
        ("A", "int", 7),
    ],
)  # fmt: skip
def test_an_expression_has_the_type_and_value_that_spark_gives_it(text: str, type: str, value: Any) -> None:
    assert type_name(compile_expression(text, FORMAT).type) == type
    assert compute(text) == [value]


@pytest.mark.parametrize(
    "text", ["a + b", "m * 2", "upper(s)", "a = b", "d > 1", "s LIKE 'x'", "CAST(a AS STRING)", "a IN (1, 2)"]
)
def test_null_in_is_null_out(text: str) -> None:
    assert compute(text, NULLS, ROW)[0] is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a / 0", "divide by zero"),
        ("a % 0", "division by zero"),
        ("m / 0", "division by zero"),
        ("a DIV 0", "division by zero"),
        ("a + 2147483647", "overflow"),
        ("g * g", "overflow"),
        ("-(b - 2147483646)", "overflow"),
        ("CAST(g AS INT)", "Integer value"),
        ("CAST(d * 1e300 AS INT)", "overflow"),
        ("CAST(m AS DECIMAL(3,2))", "overflow"),
        ("CAST(s AS INT)", "'Ab c ' is not a int"),
        ("CAST('2024-02-30' AS DATE) = t", "'2024-02-30' is not a date"),
    ],
)
def test_what_has_no_value_is_an_error(text: str, reason: str) -> None:
    with pytest.raises((InvalidRequest, pa.ArrowInvalid), match=reason):
        compute(text)


@pytest.mark.parametrize(
    "text",
    [
        "CASE WHEN b = 0 THEN 0 ELSE a / b END",
        "if(b <> 0, a / b, 0)",
        "b <> 0 AND a / b > 0",
        "b = 0 OR a / b > 0",
        "coalesce(nullif(b, 0), CAST('1' AS INT)) > 0",
        "CASE WHEN TRUE THEN 1 ELSE 1 / 0 END",
    ],
)
def test_what_is_not_needed_is_not_computed(text: str) -> None:
    zero: Row = (7, 0, *NULLS[2:])

    assert None not in compute(text, zero, ROW)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a +", "cannot read"),
        ("nothing", "column 'nothing' does not exist; there are a, b"),
        ("s + 1", r"\+ is not defined for string"),
        ("a AND TRUE", "AND needs a boolean, not int"),
        ("t = TRUE", "date and boolean do not go together"),
        ("CAST(t AS INT)", "date cannot be cast to int"),
        ("rand()", "not supported"),
        ("now()", "not supported"),
        ("sum(a)", "not supported"),
        ("x.a", "names a table"),
        ("TRY_CAST(s AS INT)", "TRY_CAST is not supported"),
        ("(SELECT 1)", "not supported"),
        ("CAST(a AS ARRAY<INT>)", "int cannot be cast to array<int>"),
        ("(" * 300 + "a" + ")" * 300, "deep"),
    ],
)
def test_what_is_not_understood_is_refused_when_it_is_compiled(text: str, reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason):
        compile_expression(text, FORMAT)


def test_a_long_chain_of_conditions_is_not_deep_and_is_computed_from_the_left() -> None:
    long = " OR ".join(f"a = {number}" for number in range(1000, 3000))

    assert compute(f"{long} OR a = 7") == [True]
    assert compute("b <> -2 AND a > 0 AND 1 / 0 > 1 AND 2 / 0 > 1") == [False]
    assert compute("b = -2 OR 1 / 0 > 1 OR 2 / 0 > 1") == [True]


_truths = st.sampled_from([True, False, None])


@given(_truths, _truths)
def test_logic_has_three_values(one: bool | None, other: bool | None) -> None:
    format = declared_format((("p", "boolean"), ("q", "boolean")))
    frame = pa.RecordBatch.from_arrays(format.arrays([(one, other)]), schema=format.schema)

    def value(text: str) -> Any:
        return compile_expression(text, format).array(frame)[0].as_py()

    both, either = value("p AND q"), value("p OR q")
    assert both is (False if False in (one, other) else None if None in (one, other) else True)
    assert either is (True if True in (one, other) else None if None in (one, other) else False)
    assert value("NOT p") is (None if one is None else not one)
    assert value("p <=> q") is (one is other)


_doubles = st.one_of(st.none(), st.sampled_from([math.nan, math.inf, -math.inf, 0.0, -0.0, 1.5, -1.5]))


@given(_doubles, _doubles)
def test_doubles_are_ordered_with_nan_above_all(one: float | None, other: float | None) -> None:
    format = declared_format((("p", "double"), ("q", "double")))
    frame = pa.RecordBatch.from_arrays(
        [pa.array([one], pa.float64()), pa.array([other], pa.float64())], schema=format.schema
    )
    found = [
        compile_expression(f"p {sign} q", format).array(frame)[0].as_py() for sign in ("<", "<=", "=", ">=", ">", "<>")
    ]

    if one is None or other is None:
        assert found == [None] * 6
        return
    ours, theirs = ((value != value, 0.0 if value != value else value) for value in (one, other))
    assert found == [ours < theirs, ours <= theirs, ours == theirs, ours >= theirs, ours > theirs, ours != theirs]


@given(st.integers(-(2**31), 2**31 - 1), st.integers(-(2**31), 2**31 - 1))
def test_integer_arithmetic_is_exact_or_fails(one: int, other: int) -> None:
    format = declared_format((("p", "int"), ("q", "int")))
    frame = pa.RecordBatch.from_arrays(format.arrays([(one, other)]), schema=format.schema)
    for sign, exact in (("+", one + other), ("-", one - other), ("*", one * other)):
        expression = compile_expression(f"p {sign} q", format)
        if -(2**31) <= exact < 2**31:
            assert expression.array(frame)[0].as_py() == exact
        else:
            with pytest.raises(pa.ArrowInvalid, match="overflow"):
                expression.array(frame)
    if other:
        assert compile_expression("p % q", format).array(frame)[0].as_py() == int(math.fmod(one, other))
