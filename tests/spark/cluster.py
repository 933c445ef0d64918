"""A real Spark cluster for tests: a master and workers from the wheel, processes on loopback."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import pyspark

from tests.processes.deployment import PATIENCE_S

T = TypeVar("T")

#: Between two looks at a log, which nobody is told of.
LOOK_S = 0.02


class Daemon:
    """One process of the cluster; its output goes to a file."""

    def __init__(self, kind: str, arguments: list[str], log: Path) -> None:
        home = Path(pyspark.__file__).parent
        self.log = log
        command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}", *arguments]
        env = {
            **os.environ,
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "PYSPARK_PYTHON": sys.executable,
        }
        with log.open("wb") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=env, cwd=log.parent)

    def said(self, pattern: str) -> str:
        """The first group of the first match in its log, once it is there."""
        found = seen(lambda: re.search(pattern, self.log.read_text(errors="replace")), f"{pattern} in {self.log}")
        return found.group(1)

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait()


class Worker(Daemon):
    """One worker, and through it the executors that it started."""

    def __init__(self, master: str, number: int, folder: Path) -> None:
        self.work = folder / f"work-{number}"
        self.work.mkdir()
        arguments = ["--host", "127.0.0.1", "--cores", "1", "--memory", "600m", "--webui-port", "0"]
        arguments += ["--work-dir", str(self.work), master]
        super().__init__("worker.Worker", arguments, folder / f"worker-{number}.log")

    def executors(self) -> list[int]:
        """The processes of its executors: JVMs that it is the parent of."""
        return [pid for pid in children(self.process.pid) if b"CoarseGrainedExecutorBackend" in command_of(pid)]

    def started_tasks(self) -> set[int]:
        return self._tasks(r"Running task \S+ in stage \S+ \(TID (\d+)\)")

    def running_tasks(self) -> set[int]:
        """Tasks that an executor has begun and not ended."""
        return self.started_tasks() - self._tasks(r"Finished task \S+ in stage \S+ \(TID (\d+)\)")

    def _tasks(self, pattern: str) -> set[int]:
        logs = [log.read_text(errors="replace") for log in self.work.glob("*/*/stderr")]
        return {int(task) for text in logs for task in re.findall(pattern, text)}

    def kill_all(self) -> None:
        """Kills it and its executors as the loss of their machine would."""
        executors = self.executors()
        # The worker first: it would start others in place of those that die.
        self.process.kill()
        for pid in executors:
            os.kill(pid, signal.SIGKILL)
        self.process.wait()


class SparkCluster:
    """A master and its workers."""

    def __init__(self, folder: Path, workers: int) -> None:
        self._master = Daemon(
            "master.Master", ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"], folder / "master.log"
        )
        self.workers: list[Worker] = []
        try:
            self.master = self._master.said(r"Starting Spark master at (spark://127\.0\.0\.1:[1-9]\d*)")
            self.workers += [Worker(self.master, number, folder) for number in range(workers)]
            for worker in self.workers:
                worker.said(r"(Successfully registered) with master")
        except BaseException:
            self.close()
            raise

    def busy_worker(self) -> Worker:
        """A worker of which an executor is in the middle of a task, as soon as there is one."""
        return seen(lambda: next((worker for worker in self.workers if worker.running_tasks()), None), "a running task")

    def close(self) -> None:
        for worker in self.workers:
            for pid in worker.executors():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            worker.kill()
        self._master.kill()


@contextmanager
def spark_cluster(folder: Path, workers: int = 2) -> Iterator[SparkCluster]:
    """A cluster whose processes are all gone afterwards."""
    folder.mkdir(parents=True)
    cluster = SparkCluster(folder, workers)
    try:
        yield cluster
    finally:
        cluster.close()


def seen(look: Callable[[], T | None], what: str) -> T:
    """What ``look`` finds, looked for until it is there."""
    deadline = time.monotonic() + PATIENCE_S
    while (found := look()) is None:
        assert time.monotonic() < deadline, f"never seen: {what}"
        time.sleep(LOOK_S)
    return found


def children(pid: int) -> list[int]:
    """The processes that ``pid`` has started."""
    found = list[int]()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):
            # pid (name) state parent ...; the name may hold anything but ends with the last bracket.
            if int(stat.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(stat.parent.name))
    return found


def command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""
