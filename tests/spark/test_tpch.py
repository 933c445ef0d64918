"""TPC-H: each of the 22 queries as a view, at every step what Spark and, where the types agree, DuckDB answer."""

from functools import cache
from pathlib import Path
from random import Random

import pytest

from controller.sql import compile_query
from instance.spark.session import SparkHost
from tests.spark.oracle import History, answers_of_spark, difference, maintained, output_format
from tests.spark.second_opinion import answers_of_duckdb
from tests.spark.tpch_history import tpch_history
from tests.sql.tpch import QUERIES, TABLES

#: Queries that DuckDB computes in other types, so that it rounds otherwise.
ROUNDED_BY_DUCKDB = {
    "Q1": "averages of decimals are doubles",
    "Q8": "quotients of decimals are doubles",
    "Q14": "quotients of decimals are doubles",
    "Q17": "averages and quotients of decimals are doubles",
    "Q22": "averages of decimals are doubles",
}


@cache
def history() -> History:
    return tpch_history(1)


@pytest.mark.heavy
@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.asyncio
async def test_a_view_of_tpch_is_right_at_every_step(spark: SparkHost, tmp_path: Path, name: str) -> None:
    sql = QUERIES[name]
    compiled = compile_query(sql, TABLES, allow_order=False)
    format = output_format(compiled)

    ours = (await maintained(history(), {name: compiled}, Random(name), spark, tmp_path))[name]
    theirs = (await spark.run(lambda session: answers_of_spark(session, history(), {name: (sql, format)})))[name]

    assert not isinstance(ours, str), ours
    assert not isinstance(theirs, str), theirs
    assert difference(ours, theirs) == ""
    # Otherwise it would say little.
    assert any(any(value is not None for value in row) for rows in theirs.values() for row in rows)
    assert len({frozenset(rows.items()) for rows in theirs.values()}) > 1, "nothing ever changes"
    if name not in ROUNDED_BY_DUCKDB:
        assert difference(ours, answers_of_duckdb(history(), sql, format)) == ""
