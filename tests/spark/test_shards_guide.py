"""The block of ``docs/shards.md`` that reads a shard with Spark."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from instance.spark.session import SparkHost
from tests.test_docs_shards import SPARK, block, write_shard


@pytest.mark.asyncio
async def test_spark_sums_up_the_contents_of_a_shard(
    spark: SparkHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    await write_shard(tmp_path)
    monkeypatch.chdir(tmp_path)

    def run(_: SparkSession) -> None:
        exec(block(SPARK), {})

    await spark.run(run)

    assert capsys.readouterr().out.splitlines() == ["(None, 3, 2)", "('ann', 15, 1)", "('cem', 1, 1)"]
