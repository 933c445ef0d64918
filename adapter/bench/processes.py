"""Processes that a benchmark starts, and ends whatever happens."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from reconcile.errors import InvariantBroken


class Started:
    """One process that says where it listens."""

    def __init__(self, module: str, *arguments: str, log: Path) -> None:
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", module, *arguments], stdout=subprocess.PIPE, stderr=errors, text=True
            )
        self._log = log
        self.address = self._address()

    def _address(self) -> str:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if " listens on " in line:
                return line.split()[-1]
        raise InvariantBroken(f"process {self.process.pid} did not start", detail=self._log.read_text()[-2000:])

    def end(self) -> None:
        self.process.terminate()
        self.process.wait()


@contextmanager
def started(module: str, *arguments: str, log: Path) -> Iterator[Started]:
    process = Started(module, *arguments, log=log)
    try:
        yield process
    finally:
        process.end()
