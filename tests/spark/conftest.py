"""One Spark session for all tests of a process: it takes seconds to start."""

import os
from collections.abc import Iterator

import pytest

from instance.spark.session import SparkDead, SparkHost, start_spark
from instance.spark.settings import SparkSettings


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkHost]:
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    deaths: list[SparkDead] = []
    settings = SparkSettings(master="local[2]", warehouse=tmp_path_factory.mktemp("warehouse"))
    host = start_spark(settings, deaths.append)
    yield host
    host.close()
    assert deaths == []
