"""What cannot be compiled is refused with what, where and a hint."""

import pytest

from controller.sql import Column, NotYet, Relation, compile_expression, compile_query
from reconcile.errors import InvalidRequest
from reconcile.limits import PLAN_BYTES_MAX, PLAN_DEPTH_MAX
from tests.sql.tables import ORDERS, TABLES, Tables, columns, compiled

LONG = "x" * 256

REFUSED = [
    # names
    ("SELECT * FROM order_s", "unknown table 'order_s' at 1:15", "did you mean 'orders'"),
    ("SELECT * FROM zzz", "unknown table 'zzz' at 1:15", "there are 'customers', 'events', 'orders'"),
    ("SELECT id,\n  ammount\nFROM orders", "unknown column 'ammount' at 2:3", "did you mean 'amount'?"),
    ("SELECT x.id FROM orders o", "unknown table 'x' at 1:8", "'o'"),
    ("SELECT orders.id FROM orders o", "unknown table 'orders' at 1:8", "'o'"),
    ("SELECT q.* FROM orders o", "unknown table 'q' at 1:8", "'o'"),
    ("SELECT id FROM orders o JOIN customers c ON o.id = c.id", "ambiguous column 'id' at 1:8", "o.id or c.id"),
    ("SELECT id, amount AS ID FROM orders", "two columns are named 'ID' at 1:12", "AS"),
    ("SELECT * FROM orders o, customers c", "two columns are named 'id' at 1:8", "AS"),
    ("SELECT 1 AS x FROM orders, orders", "table 'orders' is there twice at 1:20", "AS"),
    (
        "SELECT o.id FROM orders o JOIN customers c ON o.id = d.id JOIN events d ON TRUE",
        "unknown table 'd' at 1:54",
        "'c'",
    ),
    (f"SELECT id AS {LONG} FROM orders", "is too long at 1:14", "255"),
    (f"SELECT * FROM {LONG}", "is too long at 1:15", "255"),
    ("SELECT id AS `a\tb` FROM orders", "cannot be used at 1:8", "printable"),
    ("SELECT id AS _step FROM orders", "column name '_step' is reserved at 1:8", "another name"),
    ("SELECT q FROM (SELECT id FROM orders) AS t(q, r)", "2 names are given to 1 columns at 1:42", "name each"),
    ("SELECT q FROM (SELECT id, status FROM orders) AS t(q, q)", "two columns are named 'q' at 1:50", "another"),
    (
        "WITH a AS (SELECT id FROM orders), A AS (SELECT id FROM orders) SELECT * FROM a",
        "the name 'A' twice at 1:6",
        "another",
    ),
    # what gives another answer each time
    ("SELECT id, now() AS t FROM orders", "'now' gives another answer each time it is asked at 1:12", "store"),
    (
        "SELECT id FROM orders WHERE\n current_timestamp > id",
        "'current_timestamp' gives another answer each time it is asked at 2:2",
        "store",
    ),
    (
        "SELECT current_date() AS d FROM orders",
        "'current_date' gives another answer each time it is asked at 1:8",
        "store",
    ),
    ("SELECT id + rand() AS r FROM orders", "'rand' gives another answer each time it is asked at 1:13", "store"),
    ("SELECT uuid() AS u FROM orders", "'uuid' gives another answer each time it is asked at 1:8", "store"),
    ("SELECT unix_timestamp() AS u FROM orders", "gives another answer each time it is asked at 1:8", "store"),
    (
        "SELECT Monotonically_Increasing_ID() AS u FROM orders",
        "gives another answer each time it is asked at 1:8",
        "store",
    ),
    ("SELECT first(id) AS u FROM orders", "'first' depends on the order of rows, which have none at 1:8", "min or max"),
    # syntax
    ("SELECT id FRO orders", "syntax error near 'orders' at 1:15", "backticks"),
    ("SELECT id +", "syntax error near '+' at 1:11", "check"),
    ("SELECT id FROM orders\nWHERE (id = 1", "syntax error near '1' at 2:13", "check"),
    ("SELECT 'abc\nFROM orders", "the text breaks off at 1:8", "not closed"),
    ("SELECT `id, 'x' FROM orders", "the text breaks off at 1:8", "not closed"),
    ("SELECT id /* FROM orders", "the text breaks off at 1:11", "not closed"),
    ("", "the text is empty", "SELECT"),
    (" ;; -- nothing", "the text is empty", "SELECT"),
    ("SELECT id FROM orders; SELECT 2", "a second statement begins at 1:24", "one statement"),
    ("INSERT INTO orders VALUES (1)", "'INSERT' does not begin a query at 1:1", "SELECT"),
    ("  DROP TABLE orders", "'DROP' does not begin a query at 1:3", "SELECT"),
    ("CREATE VIEW v AS SELECT 1", "'CREATE' does not begin a query at 1:1", "SELECT"),
    ("SELECT id\0 FROM orders", "NUL character at 1:10", "remove"),
    ("SELECT '\ud800' FROM orders", "surrogate pair at 1:9", "Unicode"),
    ("SELECT 'it''s' AS x FROM orders", "two texts stand side by side at 1:8", r"it\'s"),
    ("SELECT id AS :x FROM orders", "'x' is not a name at 1:8", "backticks"),
    ("SELECT :x AS x FROM orders", "parameters are not possible here", "value"),
    # grouping
    ("SELECT id, count(*) FROM orders", "column 'id' is neither grouped nor aggregated at 1:8", "GROUP BY"),
    (
        "SELECT status, id + 1 AS x FROM orders GROUP BY status",
        "column 'id' is neither grouped nor aggregated at 1:16",
        "GROUP BY",
    ),
    ("SELECT * FROM orders GROUP BY id", "column 'customer' is neither grouped nor aggregated at 1:8", "GROUP BY"),
    (
        "SELECT status AS id FROM orders GROUP BY status HAVING id > 1",
        "column 'id' is neither grouped nor aggregated at 1:56",
        "GROUP BY",
    ),
    ("SELECT id FROM orders WHERE sum(id) > 1", "sum cannot stand here at 1:29", "HAVING"),
    ("SELECT sum(max(id)) AS s FROM orders", "max cannot stand here at 1:12", "subquery"),
    ("SELECT max(id) AS m FROM orders GROUP BY m", "an aggregate cannot be grouped by at 1:42", "GROUP BY".lower()),
    ("SELECT id FROM orders GROUP BY sum(id)", "sum cannot stand here at 1:32", "group by"),
    ("SELECT id FROM orders GROUP BY 2", "GROUP BY 2 means no column at 1:32", "1 to 1"),
    ("SELECT id FROM orders HAVING id > 1", "HAVING without aggregates at 1:30", "WHERE"),
    ("SELECT sum(*) AS s FROM orders", "sum(*) means nothing at 1:8", "sum(x)"),
    ("SELECT sum(status) AS s FROM orders", "sum does not apply to string at 1:8", "CAST"),
    # order and limit
    ("SELECT * FROM (SELECT id FROM orders ORDER BY id)", "ORDER BY is not possible here at 1:47", "end of the query"),
    (
        "WITH a AS (SELECT id FROM orders LIMIT 3) SELECT * FROM a",
        "LIMIT is not possible here at 1:40",
        "end of the query",
    ),
    ("SELECT id FROM orders ORDER BY amount", "unknown column 'amount' at 1:32", "add it to the select list"),
    ("SELECT id FROM orders ORDER BY nothing", "unknown column 'nothing' at 1:32", "'id'"),
    ("SELECT id FROM orders ORDER BY 3", "ORDER BY 3 means no column at 1:32", "1 to 1"),
    ("SELECT id FROM orders LIMIT id", "LIMIT needs a whole number at 1:29", "LIMIT 10"),
    ("SELECT id FROM orders LIMIT 9999999999", "LIMIT 9999999999 is too large at 1:29", "at most"),
    ("SELECT id FROM orders LIMIT 3 OFFSET 2", "OFFSET is not possible here at 1:38", "end of the query"),
    # union
    ("SELECT id FROM orders UNION ALL SELECT id, name FROM customers", "has 1 columns, this one 2 at 1:40", "as many"),
    (
        "SELECT id FROM orders UNION ALL SELECT name FROM customers",
        "column 'id' is int, in this part of the UNION string at 1:40",
        "CAST",
    ),
    ("SELECT NULL AS n FROM orders", "column 'n' has no type", "CAST(NULL AS STRING)"),
]

NOT_YET = [
    (
        "SELECT sum(id) OVER (PARTITION BY status) AS s FROM orders",
        "window functions are not supported yet at 1:8",
        "GROUP BY",
    ),
    (
        "SELECT o.id FROM orders o LEFT JOIN customers c ON o.id = c.id",
        "LEFT JOIN is not supported yet at 1:37",
        "INNER JOIN",
    ),
    (
        "SELECT o.id FROM orders o FULL OUTER JOIN customers c ON o.id = c.id",
        "FULL OUTER JOIN is not supported yet",
        "INNER",
    ),
    (
        "SELECT o.id FROM orders o LEFT SEMI JOIN customers c ON o.id = c.id",
        "LEFT SEMI JOIN is not supported yet",
        "INNER",
    ),
    ("SELECT amount FROM orders JOIN customers USING (id)", "USING is not supported yet at 1:32", "ON"),
    ("SELECT amount FROM orders NATURAL JOIN customers", "NATURAL JOIN is not supported yet at 1:40", "ON"),
    (
        "SELECT id FROM orders WHERE id IN (SELECT id FROM customers)",
        "IN with a subquery is not supported yet at 1:29",
        "join",
    ),
    (
        "SELECT (SELECT max(id) FROM orders) AS m FROM orders",
        "subqueries in expressions are not supported yet at 1:16",
        "FROM",
    ),
    (
        "SELECT id FROM orders WHERE EXISTS (SELECT id FROM customers)",
        "subqueries in expressions are not supported yet",
        "FROM",
    ),
    ("SELECT count(DISTINCT id) AS n FROM orders", "count with DISTINCT is not supported yet at 1:8", "DISTINCT"),
    ("SELECT id FROM orders EXCEPT SELECT id FROM customers", "EXCEPT is not supported yet at 1:8", "UNION"),
    ("SELECT id FROM orders INTERSECT SELECT id FROM customers", "INTERSECT is not supported yet at 1:8", "UNION"),
    ("SELECT 1 AS one", "SELECT without FROM is not supported yet at 1:8", "FROM t"),
    ("VALUES (1, 2)", "VALUES is not supported yet", "SELECT"),
    ("SELECT id FROM shop.orders", "a database before the name of a table is not supported yet at 1:16", ""),
    ("SELECT reverse(status) AS r FROM orders", "'reverse' is not supported yet at 1:8", ""),
    ("SELECT my_udf(status) AS r FROM orders", "function 'my_udf' is not supported yet at 1:8", ""),
    ("SELECT try_cast(status AS INT) AS r FROM orders", "TRY_CAST is not supported yet at 1:17", "CAST"),
    ("SELECT * EXCEPT (id) FROM orders", "* with exceptions is not supported yet at 1:8", "list"),
    (
        "SELECT status, count(*) FROM orders GROUP BY ROLLUP (status)",
        "ROLLUP, CUBE and GROUPING SETS are not supported yet at 1:54",
        "list",
    ),
    ("WITH RECURSIVE a AS (SELECT id FROM orders) SELECT * FROM a", "WITH RECURSIVE is not supported yet", ""),
    ("SELECT id FROM orders TABLESAMPLE (10 PERCENT)", "TABLESAMPLE is not supported yet", ""),
    ("SELECT c FROM orders LATERAL VIEW explode(array(1)) t AS c", "LATERAL VIEW is not supported yet", ""),
    ("SELECT status.x.y FROM orders", "fields of a column", ""),
]


@pytest.mark.parametrize(("sql", "message", "hint"), REFUSED)
def test_a_wrong_query_is_refused_with_its_place_and_a_hint(sql: str, message: str, hint: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        compiled(sql)

    assert message in refused.value.message
    assert hint in refused.value.hint
    assert refused.value.hint
    assert not isinstance(refused.value, NotYet)


@pytest.mark.parametrize(("sql", "message", "hint"), NOT_YET)
def test_a_sound_query_beyond_our_operators_is_refused_as_such(sql: str, message: str, hint: str) -> None:
    with pytest.raises(NotYet) as refused:
        compiled(sql)

    assert message in refused.value.message
    assert hint in refused.value.hint


@pytest.mark.parametrize(
    ("clause", "message"),
    [("ORDER BY id", "ORDER BY is not possible here at 1:32"), ("LIMIT 3", "LIMIT is not possible here at 1:29")],
)
def test_a_view_has_no_order_and_no_limit(clause: str, message: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        compiled(f"SELECT id FROM orders {clause}", allow_order=False)

    assert message in refused.value.message
    assert "query that reads them" in refused.value.hint


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = 1; b = 2", "no semicolon at 1:6"),
        ("a = 1 FROM t", "syntax error near 'FROM' at 1:7"),
        ("count(*) > 1", "count cannot stand here at 1:1"),
        ("b = 1", "unknown column 'b' at 1:1"),
        ("*", "* stands where one value is needed at 1:1"),
        ("now() > a", "another answer each time it is asked at 1:1"),
        ("", "the text is empty"),
    ],
)
def test_expressions_are_refused_in_the_same_way(text: str, message: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        compile_expression(text, columns("a int"))

    assert message in refused.value.message
    assert refused.value.hint


def test_a_text_over_the_limit_is_refused_before_it_is_read() -> None:
    with pytest.raises(InvalidRequest, match="the text is too long"):
        compiled(f"SELECT '{'x' * PLAN_BYTES_MAX}' AS x FROM orders")


def test_a_plan_over_the_limit_is_refused_however_short_its_text() -> None:
    """Each view reads the one before twice: the plan doubles each time, its text does not."""
    tables = Tables({"v0": Relation(id=ORDERS, columns=columns("a int"))})
    for number in range(12):
        tables = tables.and_view(f"v{number + 1}", f"SELECT a FROM v{number} UNION ALL SELECT a FROM v{number}")

    with pytest.raises(InvalidRequest, match="the plan is too large") as refused:
        tables.and_view("v13", "SELECT a FROM v12 UNION ALL SELECT a FROM v12")

    assert "materialize" in refused.value.hint


def test_doubling_within_one_text_is_refused_at_once() -> None:
    steps = ", ".join(f"v{n + 1} AS (SELECT a.id FROM v{n} a JOIN v{n} b ON a.id = b.id)" for n in range(12))

    with pytest.raises(InvalidRequest, match="the plan is"):
        compiled(f"WITH v0 AS (SELECT id FROM orders), {steps} SELECT * FROM v12")


def test_a_plan_nested_deeper_than_the_limit_is_refused() -> None:
    def stacked(views: int) -> Tables:
        tables = TABLES.and_view("v0", "SELECT id FROM orders")
        for number in range(views):
            tables = tables.and_view(f"v{number + 1}", f"SELECT id + 1 AS id FROM v{number}")
        return tables

    with pytest.raises(InvalidRequest, match="the plan is nested too deeply") as refused:
        stacked(PLAN_DEPTH_MAX)

    assert "materialize" in refused.value.hint


@pytest.mark.parametrize(
    "sql",
    [
        f"SELECT {'(' * 5000}id{')' * 5000} AS x FROM orders",
        f"SELECT {'-' * 1}{' -' * 3000} id AS x FROM orders",
        f"SELECT {' + '.join(['id'] * 3000)} AS x FROM orders",
        f"SELECT id FROM {'(SELECT id FROM ' * 300}orders{')' * 300}",
        f"SELECT {'upper(' * 1000}status{')' * 1000} AS x FROM orders",
    ],
)
def test_a_query_nested_too_deeply_is_refused(sql: str) -> None:
    with pytest.raises(InvalidRequest, match="nested too deeply"):
        compiled(sql)


def test_long_but_flat_queries_are_no_problem() -> None:
    numbers = range(2000)
    names = [Column(name=f"c{number}", type="int") for number in numbers]
    tables = Tables({"wide": Relation(id=ORDERS, columns=tuple(names))})
    either = " OR ".join(f"c{number} = {number}" for number in numbers)

    query = compile_query(f"SELECT * FROM wide WHERE ({either}) AND c1 IN ({', '.join(map(str, numbers))})", tables)

    assert len(query.columns) == len(numbers)
    assert len(compiled(" UNION ALL ".join(["SELECT id FROM orders"] * 200)).reads) == 1
