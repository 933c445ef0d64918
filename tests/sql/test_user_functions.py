"""Functions that users registered, in queries: declared types, versions in plans, and what is refused."""

import pytest

from controller.sql import UserFunction, compile_query, stored_function, user_function
from controller.sql.strategies import nodes, strategy
from reconcile.errors import InvalidRequest
from reconcile.limits import FUNCTION_BYTES_MAX
from tests.sql.shapes import SHAPE_TABLES

TWICE = user_function("twice", "def twice(x):\n    return x and 2 * x\n", (("x", "bigint"),), "bigint", ())
WORDS = user_function(
    "words",
    "def words(text, least):\n    for word in (text or '').split():\n        yield word, len(word)\n",
    (("text", "string"), ("least", "int")),
    "",
    (("word", "string"), ("size", "int")),
)
FUNCTIONS = {"twice": TWICE, "words": WORDS}


def carried(sql: str) -> list[tuple[str, ...]]:
    """The functions beside each text of a plan, by the names that the plan has for them."""
    plan = compile_query(sql, SHAPE_TABLES, allow_order=False, functions=FUNCTIONS).plan
    found = [dict(node.fields).get("functions") for node in nodes(plan) if node.op in ("sql", "sql_linear")]
    return [tuple(function[0] for function in each) for each in found if each]  # type: ignore[union-attr,index,misc]


def test_a_call_has_the_declared_type_and_its_arguments_are_brought_to_theirs() -> None:
    query = compile_query("SELECT twice(x) AS y FROM t", SHAPE_TABLES, functions=FUNCTIONS)

    assert [(column.name, column.type) for column in query.columns] == [("y", "bigint")]
    text = str(dict(query.plan.fields)["text"])
    assert text.lower() == f"select {TWICE.plan_name}(cast(x as bigint)) as y from _1"
    assert strategy(query.plan) == "linear"
    assert query.functions == (TWICE,)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT twice(x) AS y FROM t",
        "SELECT x FROM t WHERE twice(x) > 3",
        "SELECT twice(b) AS k, count(*) AS n, sum(twice(x)) AS s FROM t GROUP BY twice(b)",
        "SELECT t.x, s.k FROM t JOIN s ON twice(t.x) = s.a",
        "SELECT x, max(twice(x)) OVER (PARTITION BY b) AS m FROM t",
        "SELECT count(DISTINCT twice(x)) AS n, max(b) AS m FROM t GROUP BY y",
        "SELECT x FROM t ORDER BY twice(x), x LIMIT 2",
        "SELECT x FROM t WHERE EXISTS (SELECT 1 FROM s WHERE twice(s.e) = t.x)",
    ],
)
def test_wherever_a_function_is_called_the_plan_carries_it(sql: str) -> None:
    assert set(carried(sql)) == {(TWICE.plan_name,)}


def test_rows_of_a_table_function_stand_in_from() -> None:
    for sql in (
        "SELECT x, word, size FROM t LATERAL VIEW words(y, 1) w",
        "SELECT x, w.word, n AS size FROM t, LATERAL words(y, 1) AS w(word, n)",
        "SELECT x, word, size FROM t LATERAL VIEW OUTER words(y, NULL) w AS word, size",
    ):
        query = compile_query(sql, SHAPE_TABLES, functions=FUNCTIONS)

        assert [column.type for column in query.columns] == ["int", "string", "int"]
        assert carried(sql) == [(WORDS.plan_name,)]


def test_a_version_is_of_the_content_and_survives_storage() -> None:
    again = stored_function(TWICE.definition())
    other = user_function("twice", TWICE.source + "\n", TWICE.args, TWICE.returns, ())
    wider = user_function("twice", TWICE.source, (("x", "double"),), "double", ())

    assert again == TWICE
    assert len({TWICE.version, other.version, wider.version}) == 3
    assert stored_function(WORDS.definition()) == WORDS


def test_a_view_that_is_read_brings_its_own_versions() -> None:
    tables = SHAPE_TABLES
    compiled = compile_query("SELECT twice(x) AS x FROM t", tables, allow_order=False, functions=FUNCTIONS)
    newer = user_function("twice", "def twice(x):\n    return 0\n", TWICE.args, TWICE.returns, ())
    assert newer.plan_name != TWICE.plan_name

    from controller.sql import Relation
    from tests.sql.tables import Tables

    view = Relation(columns=compiled.columns, plan=compiled.plan, reads=compiled.reads)
    read = compile_query("SELECT twice(x) AS z FROM v", Tables({"v": view}), functions={"twice": newer})

    found = [dict(node.fields)["functions"][0][0] for node in nodes(read.plan) if node.op == "sql_linear"]  # type: ignore[index]
    assert found == [newer.plan_name, TWICE.plan_name]
    assert read.functions == (newer,)


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT twice() AS y FROM t", "takes 1 arguments, not 0"),
        ("SELECT twice(x, x) AS y FROM t", "takes 1 arguments, not 2"),
        ("SELECT twice(y) AS y FROM t", "x of twice is bigint, not string"),
        ("SELECT words(y, 1) AS w FROM t", "words cannot stand here"),
        ("SELECT x FROM t LATERAL VIEW words(y) w", "takes 2 arguments, not 1"),
        ("SELECT x FROM t LATERAL VIEW twice(x) w", "as a generator"),
        ("SELECT transform(items, i -> twice(i)) AS l FROM r", "cannot be called in a lambda"),
        ("SELECT thrice(x) AS y FROM t", "unknown function 'thrice'"),
    ],
)
def test_calls_that_cannot_be_are_refused_with_their_place(sql: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message) as refused:
        compile_query(sql, SHAPE_TABLES, functions=FUNCTIONS)

    assert " at 1:" in refused.value.message
    assert refused.value.hint


def made(name: str = "f", source: str = "def f(x): return x", type: str = "int", returns: str = "int") -> UserFunction:
    return user_function(name, source, (("x", type),), returns, ())


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"name": "F"}, "cannot name a function"),
        ({"name": ""}, "cannot name a function"),
        ({"name": "a.b"}, "cannot name a function"),
        ({"name": "reverse", "source": "def reverse(x): return x"}, "word or function of SQL already"),
        ({"name": "sum", "source": "def sum(x): return x"}, "word or function of SQL already"),
        ({"name": "rand", "source": "def rand(x): return x"}, "word or function of SQL already"),
        ({"name": "rows", "source": "def rows(x): return x"}, "word or function of SQL already"),
        ({"name": "select", "source": "select = 1"}, "word or function of SQL already"),
        ({"source": "def g(x): return x"}, "defines no f"),
        ({"source": "def f(x) return x"}, "is not Python"),
        ({"source": "def f(x):\n  return '\0'"}, "is not Python"),
        ({"source": "(" * 5_000}, "is not Python"),
        ({"source": "async def f(x): return x"}, "cannot be async"),
        ({"source": "def f(): return 1"}, "its def takes others"),
        ({"source": "def f(x, y): return 1"}, "its def takes others"),
        ({"source": "def f(x, *, y): return 1"}, "its def takes others"),
        ({"source": "def f(x): return 1\n#" + "x" * FUNCTION_BYTES_MAX}, "too large"),
        ({"returns": ""}, "must say what it returns"),
        ({"returns": "timestamp"}, "cannot take or give a timestamp"),
        ({"type": "map<string,int>"}, "cannot take or give a map"),
        ({"returns": "array<array<int>>"}, "cannot take or give a array"),
        ({"returns": "nonsense"}, "nonsense"),
    ],
)
def test_functions_that_cannot_be_are_refused(declared: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        made(**declared)


def test_what_takes_as_many_arguments_as_declared_is_taken() -> None:
    for source in (
        "def f(x, y=1): return x",
        "def f(*all): return all[0]",
        "f = abs",
        "def f(x: int, /) -> int: return x",
    ):
        assert made(source=source).source == source
