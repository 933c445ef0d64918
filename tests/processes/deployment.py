"""A real deployment for tests: processes on loopback, in a folder of their own, killed with real signals."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import plainsong

#: How long anything may take before a test is red; nothing waits for it to pass.
PATIENCE_S = 30


class Program:
    """One process of Plainsong; its output goes to a file."""

    def __init__(self, module: str, arguments: list[str], log: Path, env: Mapping[str, str] | None = None) -> None:
        self._log = log
        command = [sys.executable, "-P", "-m", module, *arguments]
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=output,
                cwd=log.parent,
                env={**os.environ, **(env or {})},
                text=True,
            )

    def address(self) -> str:
        """Where it listens, once it says so; fails with its log if it ends instead."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if " listens on " in line:
                return line.split()[-1]
        raise AssertionError(f"it ended with {self.process.wait()}:\n{self._log.read_text()}")

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self) -> int:
        return self.process.wait(PATIENCE_S)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


class Deployment:
    """One data folder, the controllers that reign over it, and their replicas."""

    def __init__(self, folder: Path, *options: str, database: str = "") -> None:
        self.folder = folder
        self._options = options
        self._database = database
        self._port = "0"
        self.programs: list[Program] = []
        self.controller: Program | None = None
        self.address = ""

    def start(self, *options: str, failpoint: str = "", data: Path | None = None) -> Program:
        """Starts a controller; returns when it listens. It listens where the one before it did."""
        program = self.launch(*options, failpoint=failpoint, data=data)
        self.address = program.address()
        self._port = self.address.rpartition(":")[2]
        self.controller = program
        return program

    def launch(self, *options: str, failpoint: str = "", data: Path | None = None, port: str = "") -> Program:
        """Starts a controller and does not wait for it."""
        arguments = ["--data", str(data or self.data), "--migrate", "--listen", f"127.0.0.1:{port or self._port}"]
        if self._database:
            arguments += ["--database", self._database]
        env = {"PLAINSONG_FAILPOINT": failpoint}
        log = self.folder / f"controller-{len(self.programs)}.log"
        program = Program("controller", [*arguments, *self._options, *options], log, env)
        self.programs.append(program)
        return program

    def instance(self, number: int, *options: str, failpoint: str = "") -> tuple[Program, str]:
        """Starts an instance that no orchestrator looks after; returns it and where it listens."""
        data = self.folder / f"own-{number}"
        arguments = ["--data", str(data), "--shards", str(self.data / "shards"), *options]
        env = {"PLAINSONG_FAILPOINT": failpoint}
        program = Program("instance", arguments, self.folder / f"instance-{number}.log", env)
        self.programs.append(program)
        return program, program.address()

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def kill(self) -> None:
        """Kills the controller as a power cut would."""
        assert self.controller is not None
        self.controller.kill()

    def replica_pid(self, replica: int, cluster: str = "main") -> int:
        record = json.loads((self.data / "replicas" / f"{cluster}-{replica}" / "address.json").read_text())
        return int(record["pid"])

    def client(self) -> plainsong.Client:
        return plainsong.connect(self.address)

    def logs(self) -> str:
        """Everything that any process of this deployment has logged."""
        files = [*self.folder.glob("*.log"), *(self.data / "logs").glob("*")]
        return "\n".join(f"--- {file.name}\n{file.read_text(errors='replace')}" for file in sorted(files))

    def close(self) -> None:
        for program in self.programs:
            program.close()
        for record in (self.data / "replicas").glob("*/process.json"):
            pid = int(json.loads(record.read_text())["pid"])
            command = Path(f"/proc/{pid}/cmdline")
            if command.exists() and str(self.data).encode() in command.read_bytes():
                os.kill(pid, signal.SIGKILL)


@contextmanager
def deployed(folder: Path, *options: str, database: str = "") -> Iterator[Deployment]:
    """A deployment whose processes are all gone when the test is over; its logs are shown when it fails."""
    deployment = Deployment(folder, *options, database=database)
    try:
        yield deployment
    except BaseException:
        print(deployment.logs())  # noqa: T201  # pytest shows it with the failure
        raise
    finally:
        deployment.close()
