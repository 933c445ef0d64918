"""DuckDB as a second opinion: where the dialects agree, a maintained view is what DuckDB answers, too."""

import math
from pathlib import Path
from random import Random

import pytest

from controller.sql import compile_query
from instance.spark.session import SparkHost
from tests.spark.oracle import difference, maintained, needs_spark, output_format
from tests.spark.random_tables import VALUES
from tests.spark.second_opinion import answers_of_duckdb
from tests.spark.shape_tables import shape_history
from tests.sql.shapes import SHAPE_TABLES, SHAPES

#: Shapes that are not compared, and why.
NOT_COMPARED = {
    "full join using": "columns of USING come first in Spark's star, at their own places in DuckDB's",
    "inner join using": "columns of USING come first in Spark's star, at their own places in DuckDB's",
    "booleans": "DuckDB has no aggregate every",
    "collect": "a list of nothing is null in DuckDB, and empty in Spark",
    "filtered other aggregates": "count_if of nothing is null in translation",
    "dates": "trunc(day, 'MM') is not translated",
    "numbers": "DuckDB has no pmod",
    "percentile": "percentile is translated to quantiles that do not interpolate",
    "explode a map": "DuckDB explodes lists only",
    "lateral view": "DuckDB explodes lists only",
    "lateral view, grouped": "OUTER is lost in translation",
    "lateral join": "LATERAL explode is not translated",
    "maps": "an empty map of DuckDB has no types",
    "higher order": "filter is a word of DuckDB's syntax",
    "array of structs": "fields of a list of structs cannot be named in DuckDB",
    "json": "the schema of from_json is written otherwise",
}
COMPARED = [shape for shape in SHAPES if shape not in NOT_COMPARED]
#: NaN and infinity behave otherwise in aggregates of DuckDB.
FINITE = {**VALUES, "double": [value for value in VALUES["double"] if math.isfinite(value)]}
_PARTS = 18


def test_nearly_all_shapes_are_compared() -> None:
    assert NOT_COMPARED.keys() <= SHAPES.keys()
    assert len(COMPARED) > 100


@pytest.mark.parametrize("part", [pytest.param(n, marks=() if n == 0 else pytest.mark.heavy) for n in range(_PARTS)])
@pytest.mark.asyncio
async def test_a_view_is_what_duckdb_answers_at_every_step(spark: SparkHost, tmp_path: Path, part: int) -> None:
    random = Random(part)
    shapes = COMPARED[part::_PARTS]
    history = shape_history(random, shapes, FINITE)
    views = {shape: compile_query(SHAPES[shape], SHAPE_TABLES, allow_order=False) for shape in shapes}

    ours = await maintained(history, views, random, spark, tmp_path)

    for shape, compiled in views.items():
        mine = ours[shape]
        assert not isinstance(mine, str), (shape, mine)
        assert difference(mine, answers_of_duckdb(history, SHAPES[shape], output_format(compiled))) == "", shape


@pytest.mark.asyncio
async def test_views_that_need_no_spark_are_what_duckdb_answers(tmp_path: Path) -> None:
    compiled = {shape: compile_query(SHAPES[shape], SHAPE_TABLES, allow_order=False) for shape in COMPARED}
    views = {shape: each for shape, each in compiled.items() if not needs_spark(each)}
    assert len(views) >= 15

    for seed in range(5):
        random = Random(seed)
        history = shape_history(random, list(views), FINITE)
        ours = await maintained(history, views, random, None, tmp_path)
        for shape, each in views.items():
            mine = ours[shape]
            assert not isinstance(mine, str), (shape, mine)
            assert difference(mine, answers_of_duckdb(history, SHAPES[shape], output_format(each))) == "", shape
