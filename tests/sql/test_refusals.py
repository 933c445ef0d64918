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
    ("SELECT * FROM (SELECT id FROM orders LIMIT id)", "LIMIT needs a whole number at 1:44", "LIMIT 10"),
    ("SELECT * FROM (SELECT id FROM orders ORDER BY nothing LIMIT 1)", "unknown column 'nothing' at 1:47", "'id'"),
    ("SELECT * FROM (SELECT DISTINCT id FROM orders ORDER BY amount LIMIT 1)", "DISTINCT leaves out at 1:56", "add"),
    ("SELECT id FROM orders ORDER BY amount", "unknown column 'amount' at 1:32", "add it to the select list"),
    ("SELECT id FROM orders ORDER BY nothing", "unknown column 'nothing' at 1:32", "'id'"),
    ("SELECT id FROM orders ORDER BY 3", "ORDER BY 3 means no column at 1:32", "1 to 1"),
    ("SELECT id FROM orders LIMIT id", "LIMIT needs a whole number at 1:29", "LIMIT 10"),
    ("SELECT id FROM orders LIMIT 9999999999", "LIMIT 9999999999 is too large at 1:29", "at most"),
    ("SELECT id FROM orders LIMIT 3 OFFSET 2", "OFFSET is not possible here at 1:38", "a view"),
    # union
    ("SELECT id FROM orders UNION ALL SELECT id, name FROM customers", "has 1 columns, this one 2 at 1:40", "as many"),
    (
        "SELECT id FROM orders UNION ALL SELECT name FROM customers",
        "column 'id' is int, in this part of the UNION string at 1:40",
        "CAST",
    ),
    ("SELECT NULL AS n FROM orders", "column 'n' has no type", "CAST(NULL AS STRING)"),
    # functions
    ("SELECT reverze(status) AS r FROM orders", "unknown function 'reverze' at 1:8", "'reverse'"),
    ("SELECT my_udf(status) AS r FROM orders", "unknown function 'my_udf' at 1:8", "there are"),
    ("SELECT id + transfrom(status) AS r FROM orders", "unknown function 'transfrom' at 1:13", "'transform'"),
    ("SELECT map_from_entries(array()) AS m FROM orders", "column 'm' has no type that is known at 1:8", "CAST"),
    ("SELECT INTERVAL 1 DAY AS m FROM orders", "column 'm' has no type that is known", "CAST"),
    ("SELECT array() AS m FROM orders", "column 'm' has no type that is known", "CAST"),
    ("SELECT collect_list(id) AS l, any_value(status) AS a FROM orders", "depends on the order of rows", "max_by"),
    (
        "SELECT percentile_approx(id, 0.5) AS p FROM orders",
        "depends on the order of rows, which have none",
        "percentile",
    ),
    ("SELECT mode(id) AS p FROM orders", "depends on the order of rows, which have none at 1:8", "WITHIN GROUP"),
    (
        "SELECT listagg(status) AS p FROM orders",
        "depends on the order of rows, which have none at 1:16",
        "WITHIN GROUP",
    ),
    ("SELECT corr(id, customer) AS p FROM orders", "in the order in which rows come at 1:8", "decimals"),
    ("SELECT shuffle(array(1)) AS p FROM orders", "gives another answer each time it is asked at 1:8", "store"),
    ("SELECT current_user() AS p FROM orders", "gives another answer each time it is asked at 1:8", "store"),
    ("SELECT current_timezone() AS p FROM orders", "gives another answer each time it is asked at 1:8", "store"),
    ("SELECT input_file_name() AS p FROM orders", "gives another answer each time it is asked at 1:8", "store"),
    ("SELECT spark_partition_id() AS p FROM orders", "gives another answer each time it is asked at 1:8", "store"),
    ("SELECT randn() AS p FROM orders", "gives another answer each time it is asked at 1:8", "store"),
    # windows and generators
    ("SELECT id FROM orders WHERE rank() OVER (ORDER BY id) = 1", "a window cannot stand here at 1:", "QUALIFY"),
    ("SELECT row_number() AS n FROM orders", "row_number needs a window at 1:8", "OVER"),
    ("SELECT upper(status) OVER (PARTITION BY id) AS n FROM orders", "'upper' is no function of a window", "sum(x)"),
    ("SELECT sum(id) OVER w AS n FROM orders", "unknown window 'w' at 1:21", "define"),
    (
        "SELECT last_value(id) OVER (PARTITION BY status ORDER BY amount) AS n FROM orders",
        "'last_value' over a range of equal rows has several answers at 1:8",
        "ROWS",
    ),
    ("SELECT explode(status) AS e FROM orders", "explode does not apply to string at 1:8", "arrays"),
    ("SELECT 1 + explode(array(1)) AS e FROM orders", "explode cannot stand here at 1:12", "LATERAL VIEW"),
    ("SELECT explode(array(1)) AS a, explode(array(2)) AS b FROM orders", "one generator at 1:32", "LATERAL VIEW"),
    ("SELECT status.x.y FROM orders", "'status' has no fields at 1:", "struct"),
    ("SELECT named_struct('a', id).b AS b FROM orders", "unknown field 'b' at 1:", "'a'"),
    ("SELECT id[0] AS b FROM orders", "int has no elements at 1:8", "arrays"),
    ("SELECT grouping(status) AS g FROM orders GROUP BY status", "there are no grouping sets", "ROLLUP"),
    # joins and subqueries
    ("SELECT amount FROM orders JOIN customers USING (ident)", "unknown column 'ident' in USING", "'id'"),
    (
        "SELECT id FROM orders WHERE id IN (SELECT id, name FROM customers)",
        "1 values with 2 columns at 1:29",
        "as many",
    ),
    ("SELECT (SELECT id, name FROM customers) AS m FROM orders", "has several columns at 1:16", "one"),
    ("SELECT * EXCEPT (ident) FROM orders", "unknown column 'ident' at 1:", "'id'"),
]

NOT_YET = [
    ("SELECT 1 AS one", "SELECT without FROM is not supported yet at 1:8", "FROM t"),
    ("VALUES (1, 2)", "VALUES is not supported yet", "SELECT"),
    ("SELECT id FROM shop.orders", "a database before the name of a table is not supported yet at 1:16", ""),
    ("WITH RECURSIVE a AS (SELECT id FROM orders) SELECT * FROM a", "WITH RECURSIVE is not supported yet", ""),
    ("SELECT id FROM orders TABLESAMPLE (10 PERCENT)", "TABLESAMPLE is not supported yet", ""),
    ("SELECT * FROM orders PIVOT (sum(amount) FOR status IN ('a'))", "PIVOT is not supported yet", ""),
    ("SELECT id FROM orders WHERE id > ALL (SELECT id FROM customers)", "ANY and ALL are not supported yet", "IN"),
    (
        "SELECT (SELECT name FROM customers c WHERE c.id = o.id) AS n FROM orders o",
        "a subquery for one value that is no aggregate is not supported yet at 1:",
        "max",
    ),
    (
        "SELECT (SELECT max(c.id) FROM customers c WHERE c.id < o.id) AS n FROM orders o",
        "with other conditions than equality is not supported yet at 1:",
        "join",
    ),
    (
        "SELECT id FROM orders o WHERE EXISTS (SELECT o.id FROM customers c WHERE c.id = o.id GROUP BY o.id)",
        "columns of the query around, used in this place, are not supported yet at 1:",
        "WHERE",
    ),
    ("SELECT o.id FROM orders o, LATERAL (SELECT 1) AS t", "LATERAL with a subquery is not supported yet", "join"),
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


def test_a_view_has_no_order() -> None:
    with pytest.raises(InvalidRequest) as refused:
        compiled("SELECT id FROM orders ORDER BY id", allow_order=False)

    assert "ORDER BY is not possible here at 1:32" in refused.value.message
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
        f"SELECT {'reverse(' * 1000}status{')' * 1000} AS x FROM orders",
    ],
)
def test_a_query_nested_too_deeply_is_refused(sql: str) -> None:
    with pytest.raises(InvalidRequest, match="nested too deeply"):
        compiled(sql)


@pytest.mark.parametrize(
    "nested",
    [
        "SELECT id FROM ({}) LIMIT 3",
        "SELECT id FROM orders WHERE id NOT IN ({})",
        "SELECT id FROM orders WHERE id IN ({}) OR id = 1",
        "SELECT id FROM orders WHERE EXISTS ({})",
        "SELECT id FROM orders WHERE id > (SELECT max(id) FROM ({}))",
    ],
)
def test_nesting_costs_no_more_than_its_depth(nested: str) -> None:
    sql = "SELECT id FROM orders"
    for _ in range(16):
        sql = nested.format(sql)
    try:
        query = compiled(sql, allow_order=False)
    except InvalidRequest as refused:
        assert "the plan is" in refused.message  # noqa: PT017
    else:
        assert query.names == ("orders",)


def test_long_but_flat_queries_are_no_problem() -> None:
    numbers = range(2000)
    names = [Column(name=f"c{number}", type="int") for number in numbers]
    tables = Tables({"wide": Relation(id=ORDERS, columns=tuple(names))})
    either = " OR ".join(f"c{number} = {number}" for number in numbers)

    query = compile_query(f"SELECT * FROM wide WHERE ({either}) AND c1 IN ({', '.join(map(str, numbers))})", tables)

    assert len(query.columns) == len(numbers)
    assert len(compiled(" UNION ALL ".join(["SELECT id FROM orders"] * 200)).reads) == 1
