"""The Spark session of one instance, and the only way to call it.

Every call runs in one of a few threads, never on the event loop, and has a deadline: a JVM that ran out of memory
leaves its caller waiting for ever. A session that is dead stays dead: the instance ends and is started again.
"""

import asyncio
import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]  # no types
from pyspark.errors import PySparkException, PythonException
from pyspark.sql import SparkSession

from instance.spark.settings import PINNED, SparkSettings
from reconcile.errors import InvalidRequest, PlainsongError

T = TypeVar("T")

#: Between two attempts to cancel the jobs of a call that nobody waits for.
CANCEL_SECONDS = 0.1
#: Of what a user's function raised; longer ones are cut in the middle.
TRACEBACK_CHARACTERS_MAX = 4_000
#: Errors of the JVM after which nothing it says can be relied on.
FATAL = (
    "java.lang.OutOfMemoryError",
    "java.lang.StackOverflowError",
    "SparkContext was shut down",
    "stopped SparkContext",
)


class SparkDead(PlainsongError):
    """The JVM died, hangs, or ran out of memory."""

    code = "UNAVAILABLE"


class SparkHost:
    """One session, started once."""

    def __init__(self, session: SparkSession, settings: SparkSettings, on_dead: Callable[[SparkDead], None]) -> None:
        self._session = session
        self._settings = settings
        self._on_dead = on_dead
        self._dead: SparkDead | None = None
        self._threads = ThreadPoolExecutor(settings.threads, thread_name_prefix="spark")
        self._closed = threading.Event()

    @property
    def session(self) -> SparkSession:
        return self._session

    @property
    def jvm_pid(self) -> int | None:
        """The process of the JVM, if this one started it."""
        process: subprocess.Popen[bytes] | None = getattr(self._session.sparkContext._gateway, "proc", None)
        return process.pid if process is not None else None

    async def run(self, call: Callable[[SparkSession], T], *, deadline_ms: int | None = None) -> T:
        """Runs ``call`` in a thread of ours. A user's mistake is ``InvalidRequest``; a dead session ``SparkDead``.

        A caller that is cancelled, or that waited too long, has its Spark jobs cancelled.
        """
        if self._dead is not None:
            raise self._dead
        tag, done = uuid.uuid4().hex, threading.Event()
        work = asyncio.get_running_loop().run_in_executor(self._threads, self._tagged, call, tag, done)
        deadline_ms = deadline_ms or self._settings.call_ms_max
        try:
            async with asyncio.timeout(deadline_ms / 1000):
                return await asyncio.shield(work)
        except TimeoutError as error:
            work.add_done_callback(_forgotten)
            raise self._died(SparkDead(f"Spark did not answer within {deadline_ms} ms")) from error
        except asyncio.CancelledError:
            work.add_done_callback(_forgotten)
            threading.Thread(target=self._cancel, args=(tag, done), name="spark-cancel", daemon=True).start()
            raise

    def close(self) -> None:
        """Stops the session; calls under way fail."""
        if self._closed.is_set():
            return
        self._closed.set()
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._dead is None:
            self._session.stop()

    def _tagged(self, call: Callable[[SparkSession], T], tag: str, done: threading.Event) -> T:
        try:
            self._session.sparkContext.addJobTag(tag)
            return call(self._session)
        except (PySparkException, Py4JError, ConnectionError, EOFError) as error:
            raise self._meaning(error) from error
        finally:
            if self._dead is None and not self._closed.is_set():
                self._untag(tag)
            done.set()

    def _untag(self, tag: str) -> None:
        try:
            self._session.sparkContext.removeJobTag(tag)
        except (Py4JError, ConnectionError) as error:
            self._died(SparkDead("the JVM is gone", detail=_first_line(error)))

    def _cancel(self, tag: str, done: threading.Event) -> None:
        """Until the call is over: it may be about to start a job, and only jobs that run can be cancelled."""
        while not done.wait(CANCEL_SECONDS) and self._dead is None and not self._closed.is_set():
            try:
                self._session.sparkContext.cancelJobsWithTag(tag)
            except (Py4JError, ConnectionError) as error:
                self._died(SparkDead("the JVM is gone", detail=_first_line(error)))

    def _meaning(self, error: Exception) -> PlainsongError:
        """What an error of Spark says about the query, or about Spark."""
        if isinstance(error, PythonException) and not self._jvm_ended():
            # Whatever it says: these are the words of a user's function.
            return InvalidRequest("a function failed", detail=user_traceback(str(error)))
        if unanswered(error) or self._jvm_ended() or any(sign in str(error) for sign in FATAL):
            return self._died(SparkDead("the JVM is gone or out of memory", detail=_first_line(error)))
        if isinstance(error, PySparkException):
            return InvalidRequest("Spark refuses it", detail=_first_line(error))
        return InvalidRequest("Spark failed", detail=_first_line(error))

    def _jvm_ended(self) -> bool:
        process: subprocess.Popen[bytes] | None = getattr(self._session.sparkContext._gateway, "proc", None)
        return process is not None and process.poll() is not None

    def _died(self, error: SparkDead) -> SparkDead:
        if self._dead is None:
            self._dead = error
            self._on_dead(error)
        return self._dead


def user_traceback(text: str) -> str:
    """What a function raised, then where: the part of a Python worker's traceback that is about the function.

    The exception stands first, because whoever passes an error on may cut it.
    """
    lines = []
    for line in text.splitlines():
        if line.startswith(("\tat ", "JVM stacktrace")):
            break
        if line.strip():
            lines.append(line)
    first = next((place for place, line in enumerate(lines) if 'File "<function ' in line), None)
    if first is None:
        # Not even loaded, or not ours to know: the last words say what it was.
        return _shortened("\n".join(lines[-1:]) or text)
    frames = [place for place, line in enumerate(lines) if place >= first and line.startswith(" ")]
    raised = "\n".join(lines[frames[-1] + 1 :])
    return _shortened(f"{_shortened(raised)}\nTraceback (most recent call last):\n" + "\n".join(lines[first:]))


def _shortened(text: str) -> str:
    half = TRACEBACK_CHARACTERS_MAX // 2
    return text if len(text) <= 2 * half else f"{text[:half]}\n...\n{text[-half:]}"


def unanswered(error: Exception) -> bool:
    """Whether the JVM never answered the call: its process may be gone before anybody can see that it ended.

    Py4J swallows the error of a lost connection and raises its plain error; what the JVM itself answered always
    carries the Java exception or its trace.
    """
    if isinstance(error, Py4JNetworkError | ConnectionError | EOFError):
        return True
    return type(error) is Py4JError and "Trace:" not in str(error)


def start_spark(settings: SparkSettings, on_dead: Callable[[SparkDead], None]) -> SparkHost:
    """Starts the session; takes seconds, and must come before the first gRPC object."""
    if refused := settings.refused():
        raise InvalidRequest(
            f"{refused[0]} cannot be set",
            detail=f"it is {PINNED[refused[0]]}: it decides results",
            hint="leave it out",
        )
    # Workers of Python functions must be this interpreter, whatever is first in the path.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.builder.master(settings.master).appName(settings.name)
    for name, value in settings.all_conf().items():
        builder = builder.config(name, value)
    try:
        session = builder.getOrCreate()
    except Exception as error:
        raise SparkDead(
            "Spark does not start",
            detail=_first_line(error),
            hint="it needs a JDK 17 or 21: set JAVA_HOME, or install one (Debian: apt install openjdk-17-jre-headless)",
        ) from error
    session.sparkContext.setLogLevel("ERROR")
    return SparkHost(session, settings, on_dead)


def _forgotten(work: "asyncio.Future[Any]") -> None:
    """Nobody waits any more; what it raises is nobody's."""
    if not work.cancelled():
        work.exception()


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
