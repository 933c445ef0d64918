"""The supervisor of one replica: adopts its process or starts it, and starts it again when it ends."""

import asyncio
import contextlib
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from uuid import uuid4

from controller.orchestrator.backoff import CRASHES_MAX, CRASHES_WITHIN_S, Crashes
from controller.orchestrator.child import Child
from controller.orchestrator.identity import (
    ADDRESS_FILE,
    ProcessRecord,
    boot_id,
    find,
    read_address,
    read_record,
    start_time,
    write_record,
)
from controller.orchestrator.interface import Quarantined, ReplicaKey, ReplicaStatus, Running, Starting, Stopped
from reconcile.ids import Epoch, ReplicaId

#: How often we look whether a starting child has said where it listens.
ADDRESS_POLL_S = 0.05
LOG_BYTES_MAX = 64 * 1024 * 1024
#: As much of a log as explains a quarantine.
LOG_LINES_SHOWN, LOG_BYTES_SHOWN = 10, 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSpec:
    """What a command to start a replica is made from. The child must bear ``nonce`` as a word of its command line,
    and write ``{"pid", "nonce", "address"}`` to ``directory / "address.json"``, atomically, when it listens."""

    cluster: str
    replica: ReplicaId
    epoch: Epoch
    directory: Path
    nonce: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a child may take."""

    #: To say where it listens; a Spark session takes ten seconds.
    start_s: float = 120.0
    #: To end after it was asked to.
    end_s: float = 10.0


class Supervisor:
    """Keeps one replica's process running, and never two of them.

    Before each start it looks whether the process that is written down still runs: it may have been started by an
    earlier reign, or by a later one while we were stopped.
    """

    def __init__(
        self,
        *,
        key: ReplicaKey,
        directory: Path,
        log: Path,
        command: Callable[[ReplicaSpec], Sequence[str]],
        random: Random,
        patience: Patience,
        changed: Callable[[], None],
    ) -> None:
        self.key = key
        self.status: ReplicaStatus = Stopped()
        self.epoch = Epoch(0)
        self._directory = directory
        self._log = log
        self._command = command
        self._random = random
        self._patience = patience
        self._changed = changed
        self._crashes = Crashes()
        self._reset = asyncio.Event()
        self._child: Child | None = None
        self._nonce = ""
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begins to look after the replica; what runs already is adopted before this returns."""
        if self._task is None:
            self._become(Starting())
            self._adopt()
            self._task = asyncio.get_running_loop().create_task(self._keep_running())

    def reset(self) -> None:
        """Forgets all crashes; ends a quarantine or a wait."""
        self._crashes = Crashes()
        self._reset.set()

    async def stop(self) -> None:
        """Ends the process, and the replica with all its files."""
        await self._abandon()
        self._adopt()
        if (child := self._child) is not None:
            await child.end(self._patience.end_s)
            child.let_go()
            self._child = None
        self._become(Stopped())
        await asyncio.to_thread(shutil.rmtree, self._directory, ignore_errors=True)

    async def close(self, *, stop_child: bool) -> None:
        """Looks after the replica no longer; its files stay."""
        await self._abandon()
        if (child := self._child) is not None:
            if stop_child:
                await child.end(self._patience.end_s)
            child.let_go()
            self._child = None
        self._become(Stopped())

    async def _abandon(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    # --- one life after the other ---

    async def _keep_running(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            started = loop.time()
            ended = await self._live()
            self._crashes = self._crashes.another(started=started, now=loop.time())
            self._reset.clear()
            if self._crashes.are_too_many:
                self._become(Quarantined(reason=self._story(ended)))
                await self._reset.wait()
            else:
                self._become(Starting(reason=f"its process {ended}"))
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._reset.wait(), self._crashes.wait_s(self._random))
            self._become(Starting())

    async def _live(self) -> str:
        """One life of the process, from its start or adoption to its end; says how it ended."""
        if self._child is None:
            self._adopt()
        if self._child is None:
            try:
                self._start()
            except OSError as error:
                return f"could not be started: {error}"
        child = self._child
        assert child is not None
        if not await self._listens(child):
            child.kill()
        await child.wait()
        ended = child.exited.result()
        child.let_go()
        self._child = None
        return ended

    async def _listens(self, child: Child) -> bool:
        """Waits until the child has said where it listens, or has ended; false if it does neither in time."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._patience.start_s
        while (address := read_address(self._directory, self._nonce, child.pid)) is None:
            if loop.time() >= deadline:
                return False
            await child.wait(ADDRESS_POLL_S)
            if child.exited.done():
                return True
        if not child.exited.done():
            self._become(Running(address=address))
        return True

    def _adopt(self) -> None:
        """Takes over the process that is written down, if it runs."""
        if self._child is not None or (record := read_record(self._directory)) is None or record.key != self.key:
            return
        if (found := find(record)) is None:
            return
        pid, pidfd = found
        self._child, self._nonce = Child(pid, pidfd, None), record.nonce
        if record.pid is None:
            self._write_pid(record, pid)

    def _start(self) -> None:
        """Starts a new process, of which no controller can lose track.

        Its nonce is written down first: a controller that dies before it has written the pid down leaves enough to find
        the process by.
        """
        self._directory.mkdir(parents=True, exist_ok=True)
        self._log.parent.mkdir(parents=True, exist_ok=True)
        if self._log.exists() and self._log.stat().st_size > LOG_BYTES_MAX:
            self._log.rename(self._log.with_suffix(".log.1"))
        (self._directory / ADDRESS_FILE).unlink(missing_ok=True)
        nonce = uuid4().hex
        record = ProcessRecord(cluster=self.key.cluster, replica=self.key.replica, nonce=nonce, boot=boot_id())
        write_record(self._directory, record)
        spec = ReplicaSpec(
            cluster=self.key.cluster,
            replica=self.key.replica,
            epoch=self.epoch,
            directory=self._directory,
            nonce=nonce,
        )
        self._child, self._nonce = Child.start(self._command(spec), self._log), nonce
        self._write_pid(record, self._child.pid)

    def _write_pid(self, record: ProcessRecord, pid: int) -> None:
        # Without it the process is still found, by its nonce; so a full disk ends nothing here.
        with contextlib.suppress(OSError):
            write_record(self._directory, replace(record, pid=pid, started=start_time(pid)))

    def _become(self, status: ReplicaStatus) -> None:
        if status != self.status:
            self.status = status
            self._changed()

    def _story(self, ended: str) -> str:
        lines = self._last_lines()
        story = f"ended {CRASHES_MAX} times within {CRASHES_WITHIN_S:g} s; the last time its process {ended}"
        return f"{story}; the end of {self._log.name}:\n{lines}" if lines else story

    def _last_lines(self) -> str:
        try:
            with self._log.open("rb") as log:
                log.seek(max(0, log.seek(0, 2) - LOG_BYTES_SHOWN))
                text = log.read().decode("utf-8", errors="replace")
        except OSError:
            return ""
        return "\n".join(text.splitlines()[-LOG_LINES_SHOWN:])
