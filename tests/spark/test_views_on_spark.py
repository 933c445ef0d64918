"""V1: whatever the query and the history, the maintained view is Spark's own answer at every step."""

from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types
import pytest
from pyspark.sql import SparkSession

from controller.sql import compile_query
from instance.memory.rows import Row, RowFormat, declared_format
from instance.spark.rendering import spark_rules
from instance.spark.session import SparkHost
from reconcile.dataflow import Index
from reconcile.ids import GlobalId
from tests.memory.collections import Collection, Collections
from tests.memory.harness import running
from tests.spark.histories import Step, contents, formats, history
from tests.sql.shapes import IDS, SHAPE_TABLES, SHAPES

STEPS = 5
#: What is there already when the view is created.
BEGIN = 1


def rounded(rows: Counter[Row]) -> Counter[Row]:
    """Sums of fractions depend on the order in which Spark happens to add them; the last digits do not count."""
    found: Counter[Row] = Counter()
    for row, count in rows.items():
        found[tuple(map(_rounded, row))] += count
    return found


def _rounded(value: Any) -> Any:
    """The NaN of rows stays the same object: no other equals it."""
    return float(f"{value:.12g}") if isinstance(value, float) and value == value else value


async def answered(spark: SparkHost, sql: str, tables: dict[str, Counter[Row]], format: RowFormat) -> Counter[Row]:
    """What Spark itself answers over tables with these contents."""

    def call(session: SparkSession) -> pa.Table:
        for name, rows in tables.items():
            columns = formats()[name]
            arrays = columns.arrays(list(rows.elements()))
            session.createDataFrame(pa.table(arrays, schema=columns.schema)).createOrReplaceTempView(name)
        return session.sql(sql).coalesce(1).toArrow()

    found = (await spark.run(call)).rename_columns(list(format.names)).cast(format.schema)
    batches = found.combine_chunks().to_batches()
    return Counter(format.rows(batches[0].columns, found.num_rows)) if batches else Counter()


async def maintained(spark: SparkHost, scratch: Path, sql: str, histories: dict[str, list[Step]]) -> None:
    compiled = compile_query(sql, SHAPE_TABLES, allow_order=False)
    format = declared_format(tuple((column.name, column.type) for column in compiled.columns))
    collections = Collections()
    tables = dict[str, Collection]()
    for name, steps in histories.items():
        relation = SHAPE_TABLES.resolve(name)
        assert relation is not None
        columns = [(column.name, column.type) for column in relation.columns]
        tables[name] = collections.create(str(IDS[name]), columns)
        for step, (added, gone) in enumerate(steps):
            tables[name].append(step, *added)
            tables[name].append(step, *gone, diff=-1)
        tables[name].advance(BEGIN + 1)
    async with running(collections, spark_rules(spark, scratch, scratch)) as it:
        imports = tuple(str(id) for id in compiled.reads)
        it.render(Index(id=GlobalId("u", 100)), objects={"u100": compiled.plan}, imports=imports, as_of=BEGIN)
        await it.upper("u100", BEGIN + 1)
        for table in tables.values():
            table.advance(STEPS)
        await it.upper("u100", STEPS)
        for at in range(BEGIN, STEPS):
            now = {name: contents(steps, at) for name, steps in histories.items()}
            expected = await answered(spark, sql, now, format)
            assert rounded(await it.peek("u100", at)) == rounded(expected), f"at step {at}"


#: Every fourth in the default suite: each takes most of a second.
SHAPE_PARAMETERS = [
    pytest.param(shape, marks=() if place % 4 == 0 else pytest.mark.heavy) for place, shape in enumerate(SHAPES)
]


@pytest.mark.parametrize("shape", SHAPE_PARAMETERS)
@pytest.mark.asyncio
async def test_a_view_is_what_spark_answers_at_every_step(spark: SparkHost, tmp_path: Path, shape: str) -> None:
    random = Random(shape)

    await maintained(spark, tmp_path, SHAPES[shape], {name: history(random, name, STEPS, shape) for name in IDS})
