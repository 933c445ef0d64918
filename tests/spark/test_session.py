"""The session: calls with deadlines, mistakes told from deaths."""

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]  # no types
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from instance.spark.session import TRACEBACK_CHARACTERS_MAX, SparkHost, start_spark, unanswered, user_traceback
from instance.spark.settings import SparkSettings
from reconcile.errors import InvalidRequest


def counted(rows: int) -> Callable[[SparkSession], int]:
    return lambda session: session.range(rows).count()


def collected(sql: str) -> Callable[[SparkSession], object]:
    return lambda session: session.sql(sql).collect()


@pytest.mark.asyncio
async def test_calls_run_beside_the_event_loop(spark: SparkHost) -> None:
    here = threading.get_ident()

    there = await spark.run(lambda _: threading.get_ident())
    answers = await asyncio.gather(*(spark.run(counted(n)) for n in range(1, 6)))

    assert there != here
    assert answers == [1, 2, 3, 4, 5]


@pytest.mark.asyncio
async def test_a_mistake_of_the_user_is_told_and_harms_nobody(spark: SparkHost) -> None:
    for sql, reason in [
        ("SELECT nothing FROM nowhere", "TABLE_OR_VIEW_NOT_FOUND"),
        ("SELEC 1", "PARSE_SYNTAX_ERROR"),
        ("SELECT 1 / 0", "DIVIDE_BY_ZERO"),
        ("SELECT CAST('x' AS INT)", "CAST_INVALID_INPUT"),
    ]:
        with pytest.raises(InvalidRequest) as refused:
            await spark.run(collected(sql))
        assert reason in refused.value.detail

    assert await spark.run(lambda s: s.range(3).count()) == 3


@pytest.mark.asyncio
async def test_what_decides_results_is_pinned(spark: SparkHost, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="cannot be set"):
        start_spark(SparkSettings(conf={"spark.sql.session.timeZone": "Europe/Paris"}, warehouse=tmp_path), print)

    zone = await spark.run(lambda s: s.conf.get("spark.sql.session.timeZone"))
    assert zone == "UTC"


@pytest.mark.asyncio
async def test_a_cancelled_call_takes_its_jobs_with_it(spark: SparkHost) -> None:
    started = threading.Event()

    def slow(session: SparkSession) -> int:
        started.set()
        return int(session.range(10**12).selectExpr("sum(id % 7)").collect()[0][0])

    call = asyncio.create_task(spark.run(slow))
    await asyncio.to_thread(started.wait)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call

    # Two cores: this would wait for the slow one if it went on.
    assert await spark.run(lambda s: s.range(10).count(), deadline_ms=30_000) == 10


@pytest.mark.parametrize(
    ("error", "gone"),
    [
        (Py4JNetworkError("Answer from Java side is empty"), True),
        (ConnectionResetError(104, "Connection reset by peer"), True),
        (EOFError(), True),
        (Py4JError("An error occurred while calling o45.addJobTag"), True),
        (Py4JError("An error occurred while calling o45.nothing. Trace:\npy4j.Py4JException: no method"), False),
        (PySparkException("[DIVIDE_BY_ZERO] Division by zero."), False),
    ],
)
def test_a_call_that_was_never_answered_is_told_from_one_that_failed(error: Exception, gone: bool) -> None:
    assert unanswered(error) is gone


DYING = """
import asyncio, json, os, signal, sys
from pathlib import Path
from instance.spark.session import SparkDead, start_spark
from instance.spark.settings import SparkSettings

async def main(how, folder):
    deaths = []
    settings = SparkSettings(master="local[1]", call_ms_max=4_000, warehouse=Path(folder))
    host = start_spark(settings, deaths.append)
    await host.run(lambda s: s.range(1).count(), deadline_ms=60_000)  # the first is slow
    if how == "killed":
        os.kill(host.jvm_pid, signal.SIGKILL)
    elif how == "stopped":
        os.kill(host.jvm_pid, signal.SIGSTOP)
    told = []
    for _ in range(2):
        try:
            await host.run(lambda s: s.range(1).count())
        except SparkDead as error:
            told.append(error.message)
    if how == "stopped":
        os.kill(host.jvm_pid, signal.SIGKILL)
    print(json.dumps({"told": told, "deaths": len(deaths)}), flush=True)
    os._exit(0)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize(
    ("how", "said"), [("killed", "the JVM is gone"), ("stopped", "Spark did not answer within 4000 ms")]
)
def test_a_jvm_that_dies_or_hangs_is_noticed_once_and_for_all(how: str, said: str, tmp_path: Path) -> None:
    stands = tmp_path / "where the user stands"
    stands.mkdir()
    command = [sys.executable, "-c", DYING, how, str(tmp_path / "warehouse")]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, env=os.environ, check=False, cwd=stands)

    assert run.returncode == 0, run.stderr
    story = json.loads(run.stdout.splitlines()[-1])
    assert story["deaths"] == 1
    assert len(story["told"]) == 2
    assert said in story["told"][0]
    assert list(stands.iterdir()) == [], "Spark writes where it is told to"


def test_of_a_traceback_the_users_part_is_told_with_what_was_raised_first() -> None:
    told = """
  An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "/somewhere/pyspark/worker.py", line 1, in main
    process()
  File "<function bad>", line 2, in bad
    return 1 // k
           ~~^^~~
ZeroDivisionError: integer division or modulo by zero

\tat org.apache.spark.api.python.BasePythonRunner.handle(PythonRunner.scala:1)
\tat java.lang.Thread.run(Thread.java:1)
"""

    assert user_traceback(told).splitlines() == [
        "ZeroDivisionError: integer division or modulo by zero",
        "Traceback (most recent call last):",
        '  File "<function bad>", line 2, in bad',
        "    return 1 // k",
        "           ~~^^~~",
        "ZeroDivisionError: integer division or modulo by zero",
    ]
    assert user_traceback(told.replace("<function bad>", "elsewhere")).startswith("ZeroDivisionError")
    long = user_traceback(told.replace("integer division", "x" * 1_000_000))
    assert long.startswith("ZeroDivisionError: xxx")
    assert len(long) < TRACEBACK_CHARACTERS_MAX + 10
