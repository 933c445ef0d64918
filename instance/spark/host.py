"""The Spark session in an instance process: when Spark dies, so does the process, to be started again."""

import logging
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from instance.spark.session import SparkDead, SparkHost, start_spark
from instance.spark.settings import SparkSettings
from reconcile.errors import StorageFailed

_LOG = logging.getLogger(__name__)

#: With which a process ends whose Spark died.
EXIT_CODE = 3


@contextmanager
def spark_started(settings: SparkSettings, scratch: Path) -> Iterator[tuple[SparkHost, Path]]:
    """A session, and a folder for what is shipped to it; what an earlier one left there is removed."""
    shutil.rmtree(scratch, ignore_errors=True)
    try:
        scratch.mkdir(parents=True)
    except OSError as error:
        raise StorageFailed(f"cannot use {scratch} for what is shipped to Spark", detail=str(error)) from error
    jvm: list[int | None] = []

    def end(dead: SparkDead) -> None:
        _LOG.error("this instance ends: %s", dead)
        logging.shutdown()
        # Nothing that waits for the JVM would ever end; and a JVM that hangs would stay behind.
        with suppress(ProcessLookupError):
            for pid in filter(None, jvm):
                os.kill(pid, signal.SIGKILL)
        os._exit(EXIT_CODE)

    host = start_spark(settings, end)
    jvm.append(host.jvm_pid)
    _LOG.info("Spark %s runs on %s", host.session.version, settings.master)
    try:
        yield host, scratch
    finally:
        host.close()
