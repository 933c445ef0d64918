"""The types of expressions, by Spark's rules in ANSI mode."""

import pytest

from controller.sql import compile_expression, compile_predicate
from reconcile.errors import InvalidRequest
from tests.sql.tables import columns, compiled

COLUMNS = columns(
    "t tinyint", "s smallint", "i int", "b bigint", "f float", "d double", "m decimal(10,2)", "w decimal(38,10)",
    "x string", "n string!", "o boolean", "a date", "z timestamp", "y binary",
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "canonical", "type"),
    [
        ("1", "1", "int"),
        ("007", "7", "int"),
        ("2147483648", "2147483648", "bigint"),
        ("-2147483648", "-2147483648", "int"),
        ("9223372036854775808", "9223372036854775808", "decimal(19,0)"),
        ("1.50", "1.50", "decimal(3,2)"),
        (".05", "0.05", "decimal(2,2)"),
        ("1e3", "1e3", "double"),
        ("5L", "CAST(5 AS BIGINT)", "bigint"),
        ("true", "TRUE", "boolean"),
        ("'a\\nb'", "'a\\nb'", "string"),
        ("date '2020-01-01'", "CAST('2020-01-01' AS DATE)", "date"),
        ("t + s", "t + s", "smallint"),
        ("i * b", "i * b", "bigint"),
        ("i / i", "i / i", "double"),
        ("f / f", "f / f", "double"),
        ("i + f", "i + f", "double"),
        ("f + f", "f + f", "float"),
        ("m + d", "m + d", "double"),
        ("m + m", "m + m", "decimal(11,2)"),
        ("m + 1", "m + 1", "decimal(11,2)"),
        ("m * i", "m * i", "decimal(21,2)"),
        ("m * 2", "m * 2", "decimal(12,2)"),
        ("m / m", "m / m", "decimal(23,13)"),
        ("m % 7", "m % 7", "decimal(3,2)"),
        ("w * w", "w * w", "decimal(38,6)"),
        ("w + m", "w + m", "decimal(38,9)"),
        ("-(-i)", "-(-i)", "int"),
        ("- m", "-m", "decimal(10,2)"),
        ("i - (i - 1) - 2", "i - (i - 1) - 2", "int"),
        ("(i + 1) * 2 % 3", "(i + 1) * 2 % 3", "int"),
        ("coalesce(i, b)", "COALESCE(CAST(i AS BIGINT), b)", "bigint"),
        ("coalesce(null, a, z)", "COALESCE(CAST(NULL AS TIMESTAMP), CAST(a AS TIMESTAMP), z)", "timestamp"),
        (
            "if(o, i, 1.5)",
            "CASE WHEN o THEN CAST(i AS DECIMAL(11, 1)) ELSE CAST(1.5 AS DECIMAL(11, 1)) END",
            "decimal(11,1)",
        ),
        ("case i when 1 then 'a' end", "CASE i WHEN 1 THEN 'a' END", "string"),
        ("cast(x as decimal)", "CAST(x AS DECIMAL(10, 0))", "decimal(10,0)"),
        ("cast(i as int)", "i", "int"),
        ("x || 'a' || n", "CONCAT(x, 'a', n)", "string"),
        ("length(trim(upper(lower(x))))", "LENGTH(TRIM(UPPER(LOWER(x))))", "int"),
        ("substr(x, 2)", "SUBSTRING(x, 2)", "string"),
        ("abs(m)", "ABS(m)", "decimal(10,2)"),
        ("round(m, 1)", "ROUND(m, 1)", "decimal(10,1)"),
        ("round(m)", "ROUND(m)", "decimal(9,0)"),
        ("round(d, -2)", "ROUND(d, -2)", "double"),
    ],
)
def test_expressions_have_one_text_and_a_type(text: str, canonical: str, type: str) -> None:
    assert compile_expression(text, COLUMNS) == (canonical, type)
    assert compile_expression(canonical, COLUMNS) == (canonical, type)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("x not like 'a%'", "NOT x LIKE 'a%'"),
        ("i not in (1, 2)", "NOT i IN (1, 2)"),
        ("x is not null", "NOT x IS NULL"),
        ("i between 1 and b + 1 and o", "i BETWEEN 1 AND b + 1 AND o"),
        ("(i = 1 or o) and not (o and i <> 2)", "(i = 1 OR o) AND NOT (o AND i <> 2)"),
        ("((i)) = (2)", "i = 2"),
        ("i = b", "CAST(i AS BIGINT) = b"),
        ("a > '2020-01-01'", "a > CAST('2020-01-01' AS DATE)"),
        ("z in ('2020-01-01', a)", "z IN (CAST('2020-01-01' AS TIMESTAMP), CAST(a AS TIMESTAMP))"),
        ("(i = 1) = o", "(i = 1) = o"),
        ("T.i = 1", "i = 1"),
        ("null", "NULL"),
    ],
)
def test_predicates_have_one_text(text: str, canonical: str) -> None:
    assert compile_predicate(text, COLUMNS, table="t") == canonical
    assert compile_predicate(canonical, COLUMNS) == canonical


@pytest.mark.parametrize(
    ("text", "type", "nullable"),
    [
        ("count(*)", "bigint", False),
        ("count(x)", "bigint", False),
        ("sum(small)", "bigint", True),
        ("sum(size)", "double", True),
        ("avg(small)", "double", True),
        ("min(at)", "timestamp", True),
        ("max(raw)", "binary", True),
    ],
)
def test_aggregates_have_the_types_that_spark_gives_them(text: str, type: str, nullable: bool) -> None:
    query = compiled(f"SELECT {text.replace('(x)', '(ok)')} AS r FROM events")

    assert [(column.type, column.nullable) for column in query.columns] == [(type, nullable)]


def test_decimal_sums_and_averages_grow() -> None:
    query = compiled("SELECT sum(amount) AS s, avg(amount) AS a FROM orders")

    assert [column.type for column in query.columns] == ["decimal(20,2)", "decimal(14,6)"]


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("x + 1", "+ does not apply to string and int at 1:1", "CAST"),
        ("a - a", "- does not apply to date and date at 1:1", "only numbers"),
        ("i = x", "types int and string do not go together at 1:1", "CAST(i AS STRING)"),
        ("o > 1", "types boolean and int do not go together at 1:1", "CAST"),
        ("i and o", "'i' is not a condition at 1:1", "compare it"),
        ("upper(i)", "upper does not apply to int at 1:1", "CAST"),
        ("abs(x)", "abs does not apply to string at 1:1", "CAST"),
        ("x || i", "does not apply to int at 1:1", "CAST"),
        ("i like 'a'", "LIKE does not apply to int at 1:1", "text"),
        ("round(m, i)", "round needs a fixed number of places at 1:10", "round(x, 2)"),
        ("cast(a as int)", "date cannot be converted to int at 1:6", "string"),
        ("cast(i as array<int>)", "int cannot be converted to array<int> at 1:6", "string"),
        ("cast(i as array<interval>)", "is unknown at 1:6", "bigint"),
        ("cast(i as decimal(50, 2))", "is not possible at 1:6", "decimal(p,s)"),
        ("1e", "'1e' is not a number at 1:1", "1e9"),
        ("i + 1.", "'1.' is not a number at 1:5", "1.5"),
        ("1e999", "number '1e999' is out of range at 1:1", "38 digits"),
        ("123456789012345678901234567890123456789", "out of range at 1:1", "38 digits"),
        ("coalesce(i, x)", "types int and string do not go together at 1:1", "CAST"),
        ("null", "'NULL' has no type", "CAST(NULL AS STRING)"),
        ("-x", "- does not apply to string at 1:2", "numbers"),
    ],
)
def test_types_that_do_not_fit_are_refused_where_they_stand(text: str, message: str, hint: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        compile_expression(text, COLUMNS)

    assert message in refused.value.message
    assert hint in refused.value.hint


def test_a_predicate_must_be_a_condition() -> None:
    with pytest.raises(InvalidRequest, match="'i' is not a condition"):
        compile_predicate("i", COLUMNS)
