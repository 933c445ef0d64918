"""One Spark session for all tests of a process: it takes seconds to start."""

import os
from collections.abc import Iterator

import pytest

from instance.spark.session import SparkDead, SparkHost, start_spark
from instance.spark.settings import SparkSettings


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkHost]:
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    deaths: list[SparkDead] = []
    host = start_spark(SparkSettings(master="local[2]"), deaths.append)
    yield host
    host.close()
    assert deaths == []
