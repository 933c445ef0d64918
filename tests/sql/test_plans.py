"""What each shape of query compiles to."""

import pytest

from controller.sql import Column, Ordering, Relation, compile_query, explain
from reconcile.ids import GlobalId
from reconcile.plan_tree import Node
from tests.sql.tables import CUSTOMERS, NAMES, ORDERS, TABLES, Tables, columns, compiled

GET_ORDERS = Node(
    op="get",
    fields=(
        ("id", ORDERS),
        ("columns", (("id", "int"), ("customer", "int"), ("amount", "decimal(10,2)"), ("status", "string"))),
    ),
)
GET_CUSTOMERS = Node(
    op="get",
    fields=(("id", CUSTOMERS), ("columns", (("id", "bigint"), ("name", "string"), ("joined", "date")))),
)

ORD = "get orders (s1) (id, customer, amount, status)"
CUS = "get customers (s2) (id, name, joined)"
EVE = "get events (u3) (at, size, small, ok, raw, Mixed Case)"

SHAPES = {
    "every column": ("SELECT * FROM orders", [ORD]),
    "a renamed and a computed column": (
        "SELECT id AS order_id, amount * 2 AS twice FROM orders",
        ["project id as order_id, amount * 2 as twice", f"  {ORD}"],
    ),
    "a filter": (
        "SELECT * FROM orders AS o WHERE o.status = 'open' AND (amount > 10 OR customer IS NULL)",
        ["filter status = 'open' AND (amount > 10 OR customer IS NULL)", f"  {ORD}"],
    ),
    "a group that is its select list": (
        "SELECT status, count(*) AS n, sum(amount) FROM orders GROUP BY status",
        ["group by status: count(*) as n, sum(amount)", f"  {ORD}"],
    ),
    "a group with more above": (
        "SELECT n + 1 AS more FROM (SELECT status, count(customer) AS n FROM orders GROUP BY 1 HAVING max(id) > 3)",
        [
            "project n + 1 as more",
            "  project status, n",
            "    filter `max(id)` > 3",
            "      group by status: count(customer) as n, max(id)",
            f"        {ORD}",
        ],
    ),
    "an expression as a key, by its alias": (
        "SELECT upper(status) AS s, avg(id) AS a FROM orders GROUP BY s",
        ["group by UPPER(status) as s: avg(id) as a", f"  {ORD}"],
    ),
    "an aggregate over everything": (
        "SELECT count(1) AS n FROM orders",
        ["group all rows as one: count(*) as n", f"  {ORD}"],
    ),
    "a join": (
        "SELECT name, amount FROM orders o JOIN customers c ON o.customer = c.id",
        [
            "project name, amount",
            "  inner join on CAST(customer AS BIGINT) = `c.id`",
            "    project customer, amount",
            f"      {ORD}",
            "    project id as c.id, name",
            f"      {CUS}",
        ],
    ),
    "a join whose sides share a name, with conditions of every kind": (
        (
            "SELECT o.id, c.id AS cid FROM orders o JOIN customers c ON o.customer = c.id AND o.id < c.id"
            " WHERE c.joined >= '2020-01-01' AND o.status LIKE 'a%'"
        ),
        [
            "project `o.id` as id, `c.id` as cid",
            "  filter CAST(`o.id` AS BIGINT) < `c.id`",
            "    inner join on CAST(customer AS BIGINT) = `c.id`",
            "      project id as o.id, customer",
            "        filter status LIKE 'a%'",
            f"          {ORD}",
            "      project id as c.id",
            "        filter joined >= CAST('2020-01-01' AS DATE)",
            f"          {CUS}",
        ],
    ),
    "a comma join, joined by what WHERE says": (
        "SELECT a.id FROM orders a, orders b WHERE b.customer = a.id",
        [
            "project `a.id` as id",
            "  inner join on `a.id` = `b.customer`",
            "    project id as a.id",
            f"      {ORD}",
            "    project customer as b.customer",
            f"      {ORD}",
        ],
    ),
    "a comma join in another order than written": (
        "SELECT a.status FROM orders a, events e, customers c WHERE a.id = c.id AND c.id = e.size",
        [
            "project status",
            "  inner join on CAST(`c.id` AS DOUBLE) = size",
            "    inner join on CAST(`a.id` AS BIGINT) = `c.id`",
            "      project id as a.id, status",
            f"        {ORD}",
            "      project id as c.id",
            f"        {CUS}",
            "    project size",
            f"      {EVE}",
        ],
    ),
    "a cross join": (
        "SELECT count(*) AS n FROM orders CROSS JOIN customers",
        [
            "group all rows as one: count(*) as n",
            "  join every row with every row",
            "    project id as orders.id",
            f"      {ORD}",
            "    project id as customers.id",
            f"      {CUS}",
        ],
    ),
    "common table expressions": (
        "WITH a AS (SELECT id AS x FROM orders), b(y) AS (SELECT x FROM a WHERE x > 1) SELECT * FROM b",
        ["project x as y", "  filter x > 1", "    project id as x", f"      {ORD}"],
    ),
    "distinct": ("SELECT DISTINCT status FROM orders", ["distinct", "  project status", f"    {ORD}"]),
    "union all, of three, with a common type": (
        "SELECT id FROM orders UNION ALL SELECT id FROM customers UNION ALL SELECT 1 FROM orders",
        [
            "union all",
            "  project CAST(id AS BIGINT) as id",
            "    project id",
            f"      {ORD}",
            "  project id",
            f"    {CUS}",
            "  project CAST(`1` AS BIGINT) as id",
            "    project 1",
            f"      {ORD}",
        ],
    ),
    "union": (
        "SELECT status FROM orders UNION SELECT name FROM customers",
        [
            "distinct",
            "  union all",
            "    project status",
            f"      {ORD}",
            "    project name as status",
            "      project name",
            f"        {CUS}",
        ],
    ),
    "names that need quotes, without regard to case": (
        "SELECT `MIXED case` AS `select`, Ok FROM EVENTS",
        ["project `Mixed Case` as select, ok as Ok", f"  {EVE}"],
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_each_shape_of_query_has_its_plan(shape: str) -> None:
    sql, lines = SHAPES[shape]

    assert explain(compiled(sql).plan, NAMES, strategies=False).splitlines() == lines


@pytest.mark.parametrize("shape", SHAPES)
def test_the_canonical_text_compiles_to_the_same_query(shape: str) -> None:
    query = compiled(SHAPES[shape][0])

    assert compiled(query.text) == query


@pytest.mark.parametrize("shape", SHAPES)
def test_layout_comments_and_the_case_of_keywords_make_no_difference(shape: str) -> None:
    sql = SHAPES[shape][0]
    keywords = ("SELECT", "FROM", "WHERE", "GROUP BY", "UNION", "ALL", "JOIN", "ON", "AS", "DISTINCT", "HAVING")
    for keyword in keywords:
        sql = sql.replace(f"{keyword} ", f"{keyword.lower()} /* note */\n\t")

    assert compiled(f"-- first\n{sql} ;").plan == compiled(SHAPES[shape][0]).plan


def test_the_fields_of_the_nodes_are_those_that_instances_expect() -> None:
    query = compiled(
        "SELECT name, count(*) AS n, sum(amount) AS total FROM orders JOIN customers ON customer = customers.id"
        " WHERE amount > 0 GROUP BY name"
    )

    left = Node(
        op="project",
        fields=(
            ("input", Node(op="filter", fields=(("input", GET_ORDERS), ("predicate", "amount > 0")))),
            ("columns", (("customer", "customer"), ("amount", "amount"))),
        ),
    )
    right = Node(
        op="project",
        fields=(("input", GET_CUSTOMERS), ("columns", (("customers.id", "id"), ("name", "name")))),
    )
    join = Node(
        op="join",
        fields=(
            ("left", left),
            ("right", right),
            ("kind", "inner"),
            ("on", (("CAST(customer AS BIGINT)", "`customers.id`"),)),
        ),
    )
    group = Node(
        op="group",
        fields=(
            ("input", join),
            ("keys", (("name", "name"),)),
            ("aggregates", (("n", "count", None), ("total", "sum", "amount"))),
        ),
    )
    assert query.plan == group


def test_union_and_distinct_have_their_inputs() -> None:
    plan = compiled("SELECT * FROM orders UNION SELECT * FROM orders").plan

    union = Node(op="union", fields=(("inputs", (GET_ORDERS, GET_ORDERS)),))
    assert plan == Node(op="distinct", fields=(("input", union),))


def test_a_query_tells_its_columns_what_it_reads_and_how_it_ends() -> None:
    query = compiled(
        "SELECT c.name, count(*) AS n FROM orders o JOIN customers c ON o.id = c.id GROUP BY c.name"
        " ORDER BY n DESC, 1 LIMIT 5"
    )

    assert query.columns == columns("name string", "n bigint!")
    assert query.reads == (ORDERS, CUSTOMERS)
    assert query.names == ("orders", "customers")
    assert query.order == (
        Ordering(expression="n", descending=True, nulls_first=False),
        Ordering(expression="name", descending=False, nulls_first=True),
    )
    assert query.limit == 5


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("amount", "amount"),
        ("id", "paid"),
        ("2", "amount"),
        ("o.amount", "amount"),
        ("amount + paid", "amount + paid"),
    ],
)
def test_order_by_means_output_columns_before_those_of_the_table(order: str, expected: str) -> None:
    query = compiled(f"SELECT id AS paid, amount FROM orders AS o ORDER BY {order}")

    assert query.order == (Ordering(expression=expected, descending=False, nulls_first=True),)


def test_order_by_prefers_a_name_that_the_select_list_gives() -> None:
    query = compiled("SELECT id AS customer, customer AS id FROM orders ORDER BY id")

    assert query.order == (Ordering(expression="id", descending=False, nulls_first=True),)


def test_a_view_is_inlined_with_what_it_reads() -> None:
    tables = TABLES.and_view("open", "SELECT id, amount FROM orders WHERE status = 'open'")

    query = compile_query("SELECT sum(amount) AS total FROM open", tables)

    assert query.reads == (ORDERS,)
    assert query.names == ("open",)
    assert explain(query.plan, {}, strategies=False).splitlines() == [
        "group all rows as one: sum(amount) as total",
        "  project id, amount",
        "    filter status = 'open'",
        "      get s1 (id, customer, amount, status)",
    ]


def test_only_ids_and_names_of_what_is_read_decide_a_plan() -> None:
    again = Tables({"later": Relation(id=GlobalId("s", 99), columns=columns("x int")), **TABLES._relations})

    for sql, _ in SHAPES.values():
        assert compile_query(sql, again) == compiled(sql)


def test_a_table_is_found_whatever_the_case_of_its_name_and_exactly_if_several_differ_in_it() -> None:
    tables = Tables(
        {
            "T": Relation(id=GlobalId("s", 1), columns=columns("a int")),
            "t": Relation(id=GlobalId("s", 2), columns=columns("a int")),
            "Once": Relation(id=GlobalId("s", 3), columns=columns("a int")),
        }
    )

    assert compile_query("SELECT * FROM t", tables).reads == (GlobalId("s", 2),)
    assert compile_query("SELECT * FROM ONCE", tables).names == ("Once",)


@pytest.mark.parametrize("name", ["a`b", "it's", "../etc", "🙂", "select", "a.b", "x y", "current_date", "1st", 'q"q'])
def test_columns_and_tables_of_any_name_can_be_read(name: str) -> None:
    tables = Tables({name: Relation(id=ORDERS, columns=(Column(name=name, type="int", nullable=False),))})
    quoted = f"`{name.replace('`', '``')}`"

    query = compile_query(f"SELECT {quoted}, max({quoted}) AS m FROM {quoted} WHERE {quoted} > 1 GROUP BY 1", tables)

    assert query.columns == (Column(name=name, type="int", nullable=False), Column(name="m", type="int"))
    assert compile_query(query.text, tables) == query
