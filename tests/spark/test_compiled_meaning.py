"""What a compiled plan computes is what Spark makes of its SQL, whole and in parts."""

import math
import random
from collections import Counter
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types
import pytest

from controller.sql import compile_query
from controller.sql.strategies import nodes
from instance.spark.session import SparkHost
from plainsong.types import schema
from reconcile.plan_tree import Node
from tests.spark.plan_texts import plan_text
from tests.sql.calls import GROUP_CALLS, ROW_CALLS, WINDOW_CALLS
from tests.sql.shapes import IDS, SHAPE_TABLES, SHAPES

ROWS = 24


def value(type: str, chance: random.Random) -> Any:
    if chance.random() < 0.15:
        return None
    number = chance.randint(-1, 3)
    match type:
        case "string":
            return chance.choice(["x", "y", "xy", "Yx", ""])
        case "double":
            return number + chance.choice([0.1, 0.25, 0.7])
        case "decimal(10,2)":
            return Decimal(number) + Decimal("0.55")
        case "date":
            return date(2024, 2, 27) + timedelta(days=number)
        case "timestamp":
            return datetime.fromisoformat("2024-02-29T23:30:00+00:00") + timedelta(minutes=40 * number)
        case "array<int>":
            return [value("int", chance) for _ in range(chance.randint(0, 3))]
        case "struct<x:int,y:string>":
            return {"x": value("int", chance), "y": value("string", chance)}
        case "map<string,int>":
            return {key: value("int", chance) for key in chance.sample(["x", "y", "z"], chance.randint(0, 3))}
        case _:
            return number


def table(name: str, chance: random.Random) -> pa.Table:
    relation = SHAPE_TABLES.resolve(name)
    assert relation is not None
    columns = relation.columns
    rows = []
    for _ in range(ROWS):
        row = {}
        for column in columns:
            made = value(column.type, chance)
            while made is None and not column.nullable:
                made = value(column.type, chance)
            row[column.name] = list(made.items()) if isinstance(made, dict) and "map" in column.type else made
        rows.append(row)
    # Rows that are equal count each.
    rows += rows[:4]
    return pa.Table.from_pylist(rows, schema=schema([(column.name, column.type) for column in columns]))


@pytest.fixture(scope="module", autouse=True)
def inputs(spark: SparkHost) -> None:
    chance = random.Random(7)
    for name, id in IDS.items():
        frame = spark.session.createDataFrame(table(name, chance)).coalesce(1).cache()
        frame.createOrReplaceTempView(name)
        frame.createOrReplaceTempView(f"input_{id}")


def plain(item: Any) -> Any:
    """A value that can be counted; numbers that were rounded on the way may differ in their last digits."""
    if isinstance(item, float):
        return float(f"{item:.9g}") if math.isfinite(item) else str(item)
    if isinstance(item, dict):
        return tuple(sorted((plain(key), plain(inner)) for key, inner in item.items()))
    if isinstance(item, list | tuple):
        return tuple(plain(inner) for inner in item)
    return item


@pytest.mark.parametrize("calls", [ROW_CALLS, GROUP_CALLS, WINDOW_CALLS], ids=["rows", "groups", "windows"])
def test_each_function_has_the_type_that_spark_gives_it(spark: SparkHost, calls: list[str]) -> None:
    sql = f"SELECT {', '.join(f'{call} AS v{place}' for place, call in enumerate(calls))} FROM r"
    compiled = compile_query(sql, SHAPE_TABLES)

    asked, built = (spark.session.sql(text).schema for text in (sql, plan_text(compiled.plan)))
    types = [(call, column.type) for call, column in zip(calls, compiled.columns, strict=True)]
    assert types == [(call, field.dataType.simpleString()) for call, field in zip(calls, asked, strict=True)]
    assert types == [(call, field.dataType.simpleString()) for call, field in zip(calls, built, strict=True)]


@pytest.mark.parametrize("name", SHAPES)
def test_a_plan_gives_the_columns_and_rows_that_spark_gives_whole_and_in_parts(spark: SparkHost, name: str) -> None:
    compiled = compile_query(SHAPES[name], SHAPE_TABLES)
    whole, parts = plan_text(compiled.plan), plan_text(compiled.plan, parts=2)

    schemas = [
        [(field.name, field.dataType.simpleString()) for field in spark.session.sql(text).schema]
        for text in (SHAPES[name], whole)
    ]
    assert schemas == [[(column.name, column.type) for column in compiled.columns]] * 2

    # In one query, since each costs as much as its rows.
    texts = [SHAPES[name], whole] if parts == whole else [SHAPES[name], whole, parts]
    asked = " UNION ALL ".join(f"SELECT {place} AS _place, * FROM ({text})" for place, text in enumerate(texts))
    bags: list[Counter[Any]] = [Counter() for _ in texts]
    for place, *row in spark.session.sql(asked).collect():
        bags[place][plain(row)] += 1
    assert bags == [bags[0]] * len(texts)


@pytest.mark.parametrize("key", ["x", "b"])
def test_a_wrong_key_would_be_noticed(spark: SparkHost, key: str) -> None:
    [node] = [
        node
        for node in nodes(
            compile_query("SELECT x, count(*) OVER (PARTITION BY b ORDER BY y) AS n FROM t", SHAPE_TABLES).plan
        )
        if node.op == "sql"
    ]
    fields: dict[str, Any] = dict(node.fields)
    [(alias, input, _)] = fields["inputs"]
    claimed = Node(op="sql", fields=(("inputs", ((alias, input, (key,)),)), *node.fields[1:]))

    bags = [
        Counter(plain(tuple(row)) for row in spark.session.sql(plan_text(claimed, parts=parts)).collect())
        for parts in (1, 2)
    ]

    assert (bags[0] == bags[1]) == (key == "b")
