"""How each shape of query is kept up to date: what Spark computes, and for which keys."""

import pytest

from controller.sql import CompiledQuery, compile_query, explain
from controller.sql.strategies import nodes, strategy
from reconcile.errors import InvalidRequest
from reconcile.plan_tree import Node
from tests.sql.shapes import SHAPE_TABLES, SHAPES, R, S

#: A line for each shape: its name, then the strategies of the nodes that Spark computes, outermost first.
_CHOSEN = """
left join | by CAST(`r.a` AS BIGINT) = `s.a`
left join, star | by CAST(x AS BIGINT) = a
left join with more in ON | by CAST(`r.a` AS BIGINT) = `s.a`
right join | by CAST(`r.a` + 1 AS BIGINT) = `s.a`
full join | by CAST(`r.a` AS BIGINT) = `s.a`, b = e
full join using | by `t.b` = `from.b`
left join using | by `t.b` = `r.b`
natural right join | by `from.a` = `from.a#2`
inner join using | -
semi join | by CAST(`r.a` AS BIGINT) = `s.a`
anti join | by CAST(`r.a` AS BIGINT) = `s.a`
left join without equality | recompute
null-safe join | by a = x
null-safe left join | by `r.b` = `t.b`
inner then left then inner | by e = x
left join with where above | by CAST(`r.a` AS BIGINT) = `s.a`
join on a function | linear ; linear
self outer join | by `x.a` = `y.b`
exists | by CAST(a AS BIGINT) = _key
not exists with more | by CAST(a AS BIGINT) = _key
exists without link | -
exists without equality | recompute
in | by a = _item
in, linked | by b = _key, a = _item
in of pairs | by a = _item, b = `_item#2`
not in of values that are never null | by COALESCE(a, 0) = _item
not in | by a = `_item#2`
not in of nothing | by a = `_item#2`
not in, linked | by b = _key
in below or | by a = _item
exists as a column | by a = _key
scalar | -
scalar, linked | by CAST(a AS BIGINT) = _key1
scalar count, linked | by CAST(a AS BIGINT) = _key1
scalar, linked, in where | by a = _key1
scalar that is no aggregate | recompute
scalar in having | -
in over groups | by a = _item
count distinct | -
count distinct of all | -
count distinct beside others | by c
count distinct of two | by c
count distinct beside others of all | recompute
deviation | linear ; by c
percentile | by c
percentile_cont | by c
booleans | by c
max_by | by c
collect | linear ; by c
bits | by c
filtered aggregates | -
filtered other aggregates | by c
listagg | by c
approximate count | by c
keys that Spark computes | linear
rollup | recompute
grouping sets with a common key | by b
cube beside a key | by x
group by all | -
having on another aggregate | -
row number | by c
rank | by c
running sum | by c
running sum of doubles | linear ; by c
lag and lead | by b
frames | by b
first value | by b
last value | by b
named window | by y
windows with a common part | by b
windows with nothing in common | by y ; by b
window over all | by b ; recompute
window over groups | by c
qualify | by b
qualify by alias | by b
top k per group | by b
share of a whole | by y
window in an expression | by b
intersect | by a
intersect all | by a, c
except | by a, b
except all | by b
chain of set operations | by a
order and limit | -
order by what is not selected | -
limit alone | -
limit and offset | -
limit of a union | -
case and functions | linear
where Spark must | linear
dates | linear
timestamps | linear
texts | linear
numbers | linear
decimals | by c
explode | linear
explode a map | linear
posexplode | linear
lateral view | linear ; linear
lateral view, grouped | linear
lateral join | linear
inline | linear ; linear
structs | linear ; linear
arrays | linear ; linear
maps | linear
higher order | linear
array of structs | linear ; linear
distinct of structs | -
group by a struct | by st
try | linear
star with exceptions | -
a name given before | -
common table expressions | by `p.c` = `q.c`
json | linear
left join on a function | by _k1 = y ; linear
group by a function beside others | by _k1 ; linear
window by a function | by _k1, b ; linear
groups above a linked subquery | linear ; by c, day ; by a = _key1
an equality in each branch | -
order and limit by what is computed | -
names that we use | linear
like any | linear
"""
CHOSEN = dict(line.split(" | ", 1) for line in _CHOSEN.strip().splitlines())


def compiled(sql: str, *, strict: bool = False) -> CompiledQuery:
    return compile_query(sql, SHAPE_TABLES, allow_order=False, strict=strict)


def test_there_are_many_shapes_and_each_has_its_strategy() -> None:
    assert len(SHAPES) >= 60
    assert CHOSEN.keys() == SHAPES.keys()


@pytest.mark.parametrize("name", SHAPES)
def test_each_shape_is_computed_for_as_few_rows_as_can_be(name: str) -> None:
    plan = compiled(SHAPES[name]).plan

    by_spark = [node for node in nodes(plan) if node.op in ("sql", "sql_linear")]
    chosen = [strategy(node).replace("touched keys by", "by") for node in by_spark]
    assert (" ; ".join(chosen) or "-") == CHOSEN[name]


@pytest.mark.parametrize("name", SHAPES)
def test_one_meaning_has_one_plan(name: str) -> None:
    query = compiled(SHAPES[name])
    keywords = ("SELECT", "FROM", "WHERE", "GROUP BY", "JOIN", "ON", "AS", "OVER", "ORDER BY", "EXISTS", "IN")
    laid_out = SHAPES[name]
    for keyword in keywords:
        laid_out = laid_out.replace(f" {keyword} ", f"\n  /* note */ {keyword.lower()}\t")

    assert compiled(SHAPES[name]) == query
    assert compiled(query.text) == query
    assert compiled(laid_out).plan == query.plan


@pytest.mark.parametrize("name", SHAPES)
def test_strict_refuses_exactly_what_is_recomputed(name: str) -> None:
    if "recompute" in CHOSEN[name]:
        with pytest.raises(InvalidRequest, match="cannot be maintained incrementally") as refused:
            compiled(SHAPES[name], strict=True)
        assert refused.value.detail
        assert refused.value.hint
    else:
        assert compiled(SHAPES[name], strict=True) == compiled(SHAPES[name])


def get(name: str) -> Node:
    relation = SHAPE_TABLES.resolve(name)
    assert relation is not None
    columns = tuple((column.name, column.type) for column in relation.columns)
    return Node(op="get", fields=(("id", relation.id), ("columns", columns)))


def test_the_fields_of_an_sql_node_are_those_that_instances_expect() -> None:
    plan = compiled("SELECT r.c, s.f FROM r LEFT JOIN s ON r.a = s.a").plan

    left = (("r.a", "a"), ("c", "c"))
    right = (("s.a", "a"), ("f", "f"))
    sides = [
        Node(op="project", fields=(("input", get(name)), ("columns", columns)))
        for name, columns in (("r", left), ("s", right))
    ]
    columns = (("r.a", "int"), ("c", "string"), ("s.a", "bigint"), ("f", "string"))
    join = Node(
        op="sql",
        fields=(
            ("inputs", (("_1", sides[0], ("CAST(`r.a` AS BIGINT)",)), ("_2", sides[1], ("`s.a`",)))),
            ("text", "SELECT `r.a`, c, `s.a`, f FROM _1 LEFT JOIN _2 ON CAST(`r.a` AS BIGINT) = `s.a`"),
            ("columns", columns),
            ("why", "rows meet only where CAST(`r.a` AS BIGINT) = `s.a`"),
        ),
    )
    assert plan == Node(op="project", fields=(("input", join), ("columns", (("c", "c"), ("f", "f")))))


def test_the_fields_of_an_sql_linear_node_are_those_that_instances_expect() -> None:
    plan = compiled("SELECT k, reverse(f) AS g FROM s").plan

    assert plan == Node(
        op="sql_linear",
        fields=(
            ("input", ("_1", get("s"))),
            ("text", "SELECT k, REVERSE(f) AS g FROM _1"),
            ("columns", (("k", "int"), ("g", "string"))),
            ("why", "each row by itself"),
        ),
    )


def test_what_is_recomputed_has_no_keys_and_says_why() -> None:
    plan = compiled("SELECT items FROM r ORDER BY b LIMIT 2").plan

    fields = dict(plan.fields)
    assert plan.op == "sql"
    assert fields["text"] == "SELECT items FROM _1 ORDER BY _order, items LIMIT 2"
    assert [input[2] for input in fields["inputs"]] == [()]  # type: ignore[union-attr,index]
    assert "depends on all of them" in str(fields["why"])


def test_the_first_rows_are_kept_in_an_order_over_all_columns() -> None:
    plan = compiled("SELECT x FROM t WHERE x > 0 ORDER BY abs(b) DESC, y NULLS LAST LIMIT 2 OFFSET 1").plan

    assert explain(plan, {R: "r"}).splitlines()[0] == (
        "first 2 rows behind 1 by _order desc, _order#2 asc, x asc  [touched keys by place in the order]"
    )
    assert plan.fields[1:] == (
        ("order", (("_order", "desc", "last"), ("_order#2", "asc", "last"), ("x", "asc", "first"))),
        ("limit", 2),
        ("offset", 1),
        ("columns", ("x",)),
    )


def test_what_every_branch_of_an_or_demands_is_seen_by_itself() -> None:
    either = "SELECT r.a FROM r, t WHERE r.a = t.x AND r.b = 1 AND t.b = 2 OR t.y = 'x' AND r.a = t.x AND r.b = 1"

    assert (
        compiled(either).plan
        == compiled("SELECT r.a FROM r, t WHERE r.a = t.x AND r.b = 1 AND (t.b = 2 OR t.y = 'x')").plan
    )
    assert (
        compiled("SELECT a FROM r WHERE a = 1 OR a = 1 AND b = 2").plan == compiled("SELECT a FROM r WHERE a = 1").plan
    )


@pytest.mark.parametrize(
    ("sql", "by"),
    [
        ("SELECT reverse(c) AS k, count(DISTINCT a) AS n, sum(b) AS s FROM r GROUP BY reverse(c)", "_k1"),
        ("SELECT a, count(*) OVER (PARTITION BY reverse(c), b) AS n FROM r", "_k1, b"),
        ("SELECT r.a, t.x FROM r LEFT JOIN t ON reverse(r.c) = t.y", "_k1 = y"),
        ("SELECT a FROM r WHERE EXISTS (SELECT 1 FROM t WHERE reverse(t.y) = c)", "c = _key"),
    ],
)
def test_keys_that_spark_computes_are_columns_before_they_are_keys(sql: str, by: str) -> None:
    [node] = [node for node in nodes(compiled(sql).plan) if node.op == "sql"]

    assert strategy(node) == f"touched keys by {by}"


def test_explain_shows_operators_with_strategy_and_reason() -> None:
    plan = compiled("SELECT y, count(DISTINCT x) AS n, max(x) AS m FROM t WHERE b > 0 GROUP BY y").plan

    assert explain(plan, {R: "r", S: "s"}).splitlines() == [
        (
            "sql SELECT y AS y, COUNT(DISTINCT x) AS n, MAX(x) AS m FROM _1 GROUP BY y"
            "  [touched keys by y: the rows of one group decide its aggregates: y]"
        ),
        "  project x, y  [linear]",
        "    filter b > 0  [linear]",
        "      get u3 (x, b, y)",
    ]


def test_ties_are_decided_by_all_columns_and_only_where_they_matter() -> None:
    def text(sql: str) -> str:
        return str(next(dict(node.fields)["text"] for node in nodes(compiled(sql).plan) if node.op == "sql"))

    placed = text("SELECT x, y, row_number() OVER (PARTITION BY b ORDER BY x DESC) AS n FROM t")
    ranked = text("SELECT x, y, rank() OVER (PARTITION BY b ORDER BY x DESC) AS n FROM t")
    first = text("SELECT x, first_value(y) OVER (PARTITION BY b) AS n FROM t")

    assert "ORDER BY x DESC, b, y)" in placed
    assert "ORDER BY x DESC)" in ranked
    assert "ORDER BY x, b, y ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)" in first
