"""What a plan computes is what its SQL means: plans are interpreted, the SQL is run by SQLite, on the same rows."""

import sqlite3
from collections import Counter
from typing import Any

import sqlglot
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controller.sql import Relation, compile_query
from reconcile.ids import GlobalId
from tests.sql.interpreter import Row, run
from tests.sql.tables import Tables, columns

R, S, T = GlobalId("s", 1), GlobalId("s", 2), GlobalId("u", 3)
TABLES = Tables(
    {
        "r": Relation(id=R, columns=columns("a int", "b int", "c string")),
        "s": Relation(id=S, columns=columns("a bigint", "d string", "e int")),
        "t": Relation(id=T, columns=columns("x int", "b int")),
    }
)
SHAPES = """
SELECT * FROM r
SELECT a + b AS n, a - (b - 1) AS m, -a * 2 AS k FROM r
SELECT c, a FROM r WHERE a > 1 AND (b < 2 OR c = 'x')
SELECT a FROM r WHERE NOT (a = b OR b IS NULL)
SELECT a FROM r WHERE a NOT IN (1, 2, b) OR c IS NOT NULL
SELECT a FROM r WHERE a BETWEEN b AND 2 OR a NOT BETWEEN 0 AND 1
SELECT c FROM r WHERE c LIKE 'x%' OR c NOT LIKE '%y_'
SELECT CASE WHEN a > b THEN 'gt' WHEN a = b THEN c ELSE 'lt' END AS k FROM r
SELECT CASE a WHEN 1 THEN b WHEN b THEN 7 END AS k FROM r
SELECT upper(c) AS u, length(trim(c)) AS n, substring(c, 1, 2) AS p, c || '-' || lower(c) AS q FROM r
SELECT coalesce(a, b, 0) AS v, abs(a - 3) AS w, CAST(a AS STRING) AS z FROM r
SELECT a % 3 AS m, a / 2 AS half FROM r
SELECT c, count(*) AS n, count(a) AS m, sum(a) AS total, min(b) AS lo, max(b) AS hi, avg(a) AS mean FROM r GROUP BY c
SELECT count(*) AS n, sum(a) AS s, max(c) AS c FROM r
SELECT count(*) + sum(b) AS n FROM r WHERE a > 2
SELECT a + 1 AS k, sum(b) * 2 AS s FROM r GROUP BY a + 1
SELECT a + 1 + b AS k, count(*) AS n FROM r GROUP BY a + 1, b
SELECT c FROM r GROUP BY c HAVING count(*) > 1 AND max(a) > 1
SELECT b AS a, sum(a) AS s FROM r GROUP BY b HAVING s > 0
SELECT upper(c) AS k, count(*) AS n FROM r GROUP BY 1
SELECT a, count(*) AS n FROM r GROUP BY a, r.a, 1
SELECT DISTINCT a, c FROM r
SELECT DISTINCT sum(a) AS s FROM r GROUP BY b
SELECT r.a, d, e FROM r JOIN s ON r.a = s.a
SELECT r.a, s.a AS sa FROM r JOIN s ON r.a = s.a AND r.b < s.e WHERE r.c = 'x' AND s.d <> 'y'
SELECT r.c, sum(s.e) AS total FROM r JOIN s ON r.a + 1 = s.a GROUP BY r.c
SELECT x.a, y.b FROM r x, r y WHERE x.a = y.b AND y.a > x.b
SELECT r.a, s.e, t.x FROM r, s, t WHERE t.b = r.b AND s.a = t.x
SELECT r.a, t.x FROM r, s, t WHERE r.a = s.a AND s.e = t.x AND t.b = r.b
SELECT r.a, t.x FROM r CROSS JOIN t WHERE r.a < t.x
SELECT count(*) AS n FROM r CROSS JOIN t
SELECT q.k, q.n + 1 AS n FROM (SELECT a AS k, count(*) AS n FROM r GROUP BY a) AS q WHERE q.n > 1
WITH p AS (SELECT a, max(b) AS b FROM r GROUP BY a), q AS (SELECT * FROM p WHERE b > 0) SELECT p.a, q.b FROM p JOIN q ON p.a = q.a
SELECT a FROM r UNION ALL SELECT a FROM s UNION ALL SELECT x FROM t
SELECT a, c FROM r UNION SELECT a, d FROM s
SELECT a FROM r UNION SELECT a FROM s UNION ALL SELECT x FROM t
SELECT n, count(*) AS k FROM (SELECT c, count(*) AS n FROM r GROUP BY c) GROUP BY n
SELECT u.a, count(*) AS n FROM (SELECT a FROM r UNION ALL SELECT a FROM s) AS u JOIN t ON u.a = t.x GROUP BY u.a
SELECT a FROM r WHERE a IN (1, 2) = (b > 1)
SELECT 1 AS one, a FROM r WHERE TRUE
SELECT a FROM r WHERE 1 = 0
""".strip().splitlines()  # noqa: E501

numbers = st.none() | st.integers(-2, 4)
texts = st.none() | st.sampled_from(["x", "y", "xy", " xy ", "Xyz", ""])


def rows(*names: str) -> st.SearchStrategy[list[Row]]:
    values = {name: texts if name in "cd" else numbers for name in names}
    return st.lists(st.fixed_dictionaries(values), max_size=7)


def bag(answers: list[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    rounded = [tuple(round(item, 9) if isinstance(item, float) else item for item in answer) for answer in answers]
    return Counter(rounded)


def test_there_are_many_shapes() -> None:
    assert len(SHAPES) >= 25


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(r=rows("a", "b", "c"), s=rows("a", "d", "e"), t=rows("x", "b"))
def test_plans_compute_what_their_sql_means(r: list[Row], s: list[Row], t: list[Row]) -> None:
    database = sqlite3.connect(":memory:")
    database.execute("PRAGMA case_sensitive_like = ON")
    tables = {R: r, S: s, T: t}
    for name, id in (("r", R), ("s", S), ("t", T)):
        relation = TABLES.resolve(name)
        assert relation is not None
        declared = [f"{c.name} {'TEXT' if c.type == 'string' else 'INTEGER'}" for c in relation.columns]
        database.execute(f"CREATE TABLE {name} ({', '.join(declared)})")
        marks = ", ".join("?" * len(declared))
        database.executemany(
            f"INSERT INTO {name} VALUES ({marks})", [tuple(row[c.name] for c in relation.columns) for row in tables[id]]
        )

    for sql in SHAPES:
        query = compile_query(sql, TABLES)
        answers = [tuple(row[column.name] for column in query.columns) for row in run(query.plan, tables)]
        [expected] = sqlglot.transpile(sql, read="spark", write="sqlite")

        assert bag(answers) == bag(database.execute(expected).fetchall()), sql

    database.close()


def test_the_columns_of_a_plan_are_those_that_the_query_tells() -> None:
    tables: dict[GlobalId, list[Row]] = {
        R: [{"a": 1, "b": 1, "c": "x"}, {"a": 2, "b": 1, "c": "x"}],
        S: [{"a": 1, "d": "q", "e": 2}, {"a": 2, "d": "q", "e": 1}],
        T: [{"x": 1, "b": 1}, {"x": 2, "b": 2}],
    }

    for sql in SHAPES:
        query = compile_query(sql, TABLES)
        for row in run(query.plan, tables):
            assert list(row) == [column.name for column in query.columns], sql
