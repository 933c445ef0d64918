"""Tables on their way to Spark: whatever arrays they are made of, Spark sees their rows."""

from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types
import pytest

from instance.spark.evaluation import shipped
from instance.spark.session import SparkHost
from plainsong.types import schema

VALUES = {
    "array<struct<x:int,y:string>>": [[{"x": 1, "y": "a"}], None, [], None, [{"x": None, "y": None}, None]],
    "array<array<int>>": [[[1], None], None, [[]], None, []],
    "array<timestamp>": [[], None, [None], None, []],
    "map<string,array<int>>": [[("a", [1])], None, [("b", None)], None, []],
    "struct<l:array<struct<v:int>>>": [{"l": [{"v": 1}]}, None, {"l": None}, {"l": []}, {"l": [None]}],
}


@pytest.mark.asyncio
async def test_slices_of_nested_columns_with_nulls_arrive(spark: SparkHost, tmp_path: Path) -> None:
    columns = [(f"c{place}", type) for place, type in enumerate(VALUES)]
    table = pa.table(list(VALUES.values()), schema=schema(columns)).slice(1)

    found = await spark.run(lambda session: shipped(session, table, tmp_path / "file").toArrow())

    assert found.cast(table.schema).to_pylist() == table.to_pylist()
