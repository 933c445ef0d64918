"""Replicas agree to the bit: batches and the order of rows change no double, no list and no decision between ties."""

import struct
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types
import pytest
from pyspark.sql import DataFrame, SparkSession

from controller.sql import compile_query
from instance.memory.rows import Row
from instance.spark import evaluation
from instance.spark.session import SparkHost
from reconcile.errors import InvalidRequest
from tests.spark.oracle import Answers, maintained
from tests.spark.shape_tables import shape_history
from tests.sql.shapes import SHAPE_TABLES

#: Sums of these are rounded, and another way in another order.
VALUES: dict[str, list[Any]] = {
    "double": [0.1, 0.2, 0.3, 1e17, -1e17, 1e-300, 3.3, -0.0, 0.0, 1 / 3, -7.7e15],
    "bigint": [2**53 + 1, 2**53 + 3, -(2**53) - 1, 1, 3, 2**55 + 7],
    "int": [0, 1, 1, 2],
    "string": ["x", "y"],
}
#: A line for each: its name, then the query.
_TEXT = """
sum and average | SELECT c, sum(d) AS s, avg(d) AS v, sum(CAST(d AS FLOAT)) AS f, avg(s.a) AS w FROM r JOIN s ON r.b = s.e GROUP BY c
sum of all | SELECT sum(d) AS s, avg(d * 3) AS v FROM r
beside others | SELECT c, count(DISTINCT a) AS n, sum(d) AS s, avg(d) AS v, sum(CAST(d AS FLOAT)) AS f FROM r GROUP BY c
averages of large numbers beside others | SELECT e, count(DISTINCT k) AS n, avg(a) AS v, avg(DISTINCT a) AS w FROM s GROUP BY e
sums that may not fail | SELECT c, try_sum(d) AS s, count(DISTINCT a) AS n FROM r GROUP BY c
distinct sums | SELECT c, sum(DISTINCT d) AS s, avg(DISTINCT d) AS v FROM r GROUP BY c
distinct sums beside others | SELECT c, sum(DISTINCT d) AS s, count(a) AS n, count(DISTINCT a) AS m FROM r GROUP BY c
deviations | SELECT c, stddev(d) AS a, stddev_pop(d) AS b, variance(d) AS e, var_pop(d) AS f, std(d) AS g FROM r GROUP BY c
deviations of large numbers | SELECT e, stddev(a) AS s, var_pop(a) AS v FROM s GROUP BY e
percentiles | SELECT c, percentile(d, 0.3) AS p, median(d) AS m, percentile_cont(0.7) WITHIN GROUP (ORDER BY d) AS q FROM r GROUP BY c
rollup | SELECT b, c, sum(d) AS s, avg(d) AS v FROM r GROUP BY ROLLUP (b, c)
filtered | SELECT c, sum(d) FILTER (WHERE a > 0) AS s, avg(d) FILTER (WHERE b = 1) AS v, bool_or(a > 1) AS n FROM r GROUP BY c
computed | SELECT c, sum(sqrt(abs(d))) AS s, avg(exp(a)) AS v FROM r GROUP BY c
window sums | SELECT c, a, sum(d) OVER (PARTITION BY c) AS s, avg(d) OVER (PARTITION BY c ORDER BY a) AS v FROM r
window deviations | SELECT c, a, stddev(d) OVER (PARTITION BY c) AS s, var_pop(d) OVER (PARTITION BY c ORDER BY a) AS v FROM r
window averages of large numbers | SELECT e, k, avg(a) OVER (PARTITION BY e) AS v, avg(a) OVER (PARTITION BY e ORDER BY k) AS w FROM s
frames of rows | SELECT c, sum(d) OVER (PARTITION BY c ORDER BY a ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS s FROM r
window over all | SELECT c, sum(d) OVER (ORDER BY c) AS s FROM r
sums of sums | SELECT c, sum(d) AS s, sum(sum(d)) OVER (PARTITION BY c) AS t, avg(sum(d)) OVER (PARTITION BY b) AS u FROM r GROUP BY c, b
of a union | SELECT c, sum(d) AS s FROM (SELECT c, d FROM r UNION ALL SELECT c, d * 1.1 FROM r) GROUP BY c
linked subquery | SELECT a, (SELECT avg(q.d) FROM r AS q WHERE q.c = r.c) AS v FROM r
having | SELECT c, sum(d) AS s FROM r GROUP BY c HAVING avg(d) > (SELECT avg(d) FROM r)
lists | SELECT c, collect_list(d) AS l, collect_set(d) AS s, array_agg(a) AS g FROM r GROUP BY c
lists of structs | SELECT c, collect_list(named_struct('d', d, 'a', a)) AS l FROM r GROUP BY c
folded lists | SELECT c, aggregate(collect_list(d), CAST(0 AS DOUBLE), (x, y) -> x + y) AS l FROM r GROUP BY c
windowed lists | SELECT c, a, collect_list(d) OVER (PARTITION BY c ORDER BY a) AS l FROM r
by another | SELECT c, max_by(d, a) AS m, min_by(d, b) AS n, max_by(st, a) AS o FROM r GROUP BY c
joined texts | SELECT b, listagg(c, '-') WITHIN GROUP (ORDER BY a) AS l FROM r GROUP BY b
row numbers | SELECT c, d, m, row_number() OVER (PARTITION BY c ORDER BY a) AS n FROM r
places | SELECT d, lag(d) OVER (PARTITION BY c ORDER BY a) AS p, lead(d, 2) OVER (PARTITION BY c ORDER BY a) AS q, ntile(3) OVER (PARTITION BY c ORDER BY b) AS t FROM r
first and last | SELECT d, first_value(d) OVER (PARTITION BY c ORDER BY a) AS f, nth_value(d, 2) OVER (PARTITION BY c ORDER BY a ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS n FROM r
best of each | SELECT c, d FROM (SELECT c, d, row_number() OVER (PARTITION BY c ORDER BY a DESC) AS n FROM r) WHERE n <= 2
first rows | SELECT d, c FROM (SELECT d, c FROM r ORDER BY a LIMIT 3)
first rows of nested | SELECT d, items FROM (SELECT d, items, mp FROM r ORDER BY a LIMIT 3)
first rows without an order | SELECT d FROM (SELECT d, c FROM r LIMIT 3 OFFSET 2)
negative zero | SELECT DISTINCT d, d * -1 AS e FROM r WHERE abs(d) < 1
negative zero grouped | SELECT d * -1 AS k, count(DISTINCT a) AS n FROM r GROUP BY d * -1
"""  # noqa: E501
QUERIES = dict(line.split(" | ", 1) for line in _TEXT.strip().splitlines())
#: What would be rounded in the order in which rows come, and is refused.
REFUSED = [
    *("corr(d, a)", "covar_pop(d, a)", "covar_samp(d, a)", "regr_slope(d, a)", "regr_r2(d, a)", "regr_avgx(d, a)"),
    *("regr_intercept(d, a)", "kurtosis(d)", "skewness(d)", "try_avg(d)", "first(d)", "last(d)", "any_value(d)"),
    *("approx_percentile(d, 0.5)", "mode(d)", "listagg(c, '-')"),
]
_PARTS = 6


def bits(value: Any) -> Any:
    """A value whose equals have the same bits."""
    if isinstance(value, float):
        return struct.pack(">d", value)
    return tuple(map(bits, value)) if isinstance(value, tuple) else value


def to_the_bit(answers: Answers | str) -> dict[int, Counter[Row]]:
    assert not isinstance(answers, str), answers
    return {at: Counter({bits(row): times for row, times in rows.items()}) for at, rows in answers.items()}


@pytest.fixture
def disorder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows reach Spark in any order and in several parts, as on any cluster."""
    random = Random(7)

    def shipped(session: SparkSession, table: pa.Table, file: Path) -> DataFrame:  # noqa: ARG001
        places = random.sample(range(table.num_rows), table.num_rows)
        return session.createDataFrame(table.take(pa.array(places, pa.int64()))).repartition(random.randint(1, 3))

    monkeypatch.setattr(evaluation, "shipped", shipped)


@pytest.mark.parametrize("part", [pytest.param(n, marks=() if n == 0 else pytest.mark.heavy) for n in range(_PARTS)])
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.heavy)])
@pytest.mark.usefixtures("disorder")
@pytest.mark.asyncio
async def test_batches_and_orders_of_rows_change_no_bit(spark: SparkHost, tmp_path: Path, seed: int, part: int) -> None:
    names = list(QUERIES)[part::_PARTS]
    views = {name: compile_query(QUERIES[name], SHAPE_TABLES, allow_order=False) for name in names}
    history = shape_history(Random(seed), (), VALUES)
    late = replace(history, begin=history.steps - 1)

    first = await maintained(history, views, Random(seed + 1), spark, tmp_path)
    second = await maintained(history, views, Random(seed + 2), spark, tmp_path)
    whole = await maintained(late, views, Random(seed + 3), spark, tmp_path)

    for name in names:
        assert to_the_bit(first[name]) == to_the_bit(second[name]), name
        assert to_the_bit(whole[name]) == {late.begin: to_the_bit(first[name])[late.begin]}, name


@pytest.mark.parametrize("call", REFUSED)
def test_what_is_rounded_in_the_order_of_rows_is_refused(call: str) -> None:
    with pytest.raises(InvalidRequest, match="order") as refused:
        compile_query(f"SELECT c, {call} AS v FROM r GROUP BY c", SHAPE_TABLES)

    assert refused.value.hint
