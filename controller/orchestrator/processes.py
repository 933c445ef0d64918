"""The orchestrator of child processes on this machine.

Children run in sessions of their own and outlive a controller that is killed; the next one adopts them. What is
needed for that lies in the data folder: for each replica a directory with its ``process.json`` (which process it is)
and ``address.json`` (where it listens), and its log under ``logs/``.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import TypeAlias
from urllib.parse import quote

from controller.orchestrator.identity import read_record
from controller.orchestrator.interface import ReplicaKey, ReplicaStatus, Running, Stopped
from controller.orchestrator.supervisor import Patience, ReplicaSpec, Supervisor
from reconcile.errors import InvariantBroken
from reconcile.ids import Epoch, ReplicaId

Command: TypeAlias = Callable[[ReplicaSpec], Sequence[str]]

#: File systems bear 255 bytes, of which suffixes take some.
_NAME_BYTES_MAX = 200


def instance_command(program: Sequence[str], more: Sequence[str] = ()) -> Command:
    """The command that starts an instance by ``program``, for example ``("plainsong",)``, with ``more`` options."""

    def command(spec: ReplicaSpec) -> Sequence[str]:
        return [
            *program,
            "instance",
            *("--data", str(spec.directory)),
            *("--listen", "127.0.0.1:0"),
            *("--replica", str(spec.replica)),
            *("--epoch", str(spec.epoch)),
            *("--nonce", spec.nonce),
            *more,
        ]

    return command


def file_name(key: ReplicaKey) -> str:
    """What a replica's files are called: readable where possible, one for each replica, and never a path."""
    name = quote(key.cluster, safe="")
    if len(name) > _NAME_BYTES_MAX:
        name = f"{name[:40]}~{sha256(key.cluster.encode()).hexdigest()}"
    return f"{name}-{key.replica}"


class ProcessOrchestrator:
    """Runs replicas as child processes."""

    def __init__(self, data_dir: Path, command: Command, *, random: Random, patience: Patience | None = None) -> None:
        self._replicas = data_dir.absolute() / "replicas"
        self._logs = data_dir.absolute() / "logs"
        self._command = command
        self._random = random
        self._patience = patience or Patience()
        self._supervisors: dict[ReplicaKey, Supervisor] = {}
        #: Set, and replaced by a new one, at each change of any status.
        self._change = asyncio.Event()
        self._closed = False

    async def ensure(self, cluster: str, replica: ReplicaId, epoch: Epoch, *, reset: bool = False) -> None:
        if self._closed:
            raise InvariantBroken(f"a closed orchestrator was asked for replica {replica} of {cluster}")
        supervisor = self._supervisor(ReplicaKey(cluster, replica))
        supervisor.epoch = max(supervisor.epoch, epoch)
        if reset:
            supervisor.reset()
        supervisor.start()

    async def drop(self, cluster: str, replica: ReplicaId) -> None:
        key = ReplicaKey(cluster, replica)
        await self._supervisor(key).stop()
        self._supervisors.pop(key, None)

    async def retain(self, wanted: Collection[ReplicaKey]) -> None:
        recorded = [read_record(directory) for directory in sorted(self._replicas.glob("*"))]
        known = {*self._supervisors, *(record.key for record in recorded if record is not None)}
        await asyncio.gather(*(self.drop(*key) for key in sorted(known) if key not in wanted))

    async def address(self, cluster: str, replica: ReplicaId) -> str:
        while (found := self.listening(cluster, replica)) is None:
            await self.changed()
        return found

    def listening(self, cluster: str, replica: ReplicaId) -> str | None:
        status = self.status(cluster, replica)
        return status.address if isinstance(status, Running) else None

    def status(self, cluster: str, replica: ReplicaId) -> ReplicaStatus:
        supervisor = self._supervisors.get(ReplicaKey(cluster, replica))
        return Stopped() if supervisor is None else supervisor.status

    async def changed(self) -> None:
        """Waits for the next change of any replica's status."""
        await self._change.wait()

    async def close(self, *, stop_children: bool) -> None:
        self._closed = True
        supervisors, self._supervisors = list(self._supervisors.values()), {}
        await asyncio.gather(*(each.close(stop_child=stop_children) for each in supervisors))

    def _supervisor(self, key: ReplicaKey) -> Supervisor:
        if key not in self._supervisors:
            self._supervisors[key] = Supervisor(
                key=key,
                directory=self._replicas / file_name(key),
                log=self._logs / f"{file_name(key)}.log",
                command=self._command,
                random=self._random,
                patience=self._patience,
                changed=self._tell,
            )
        return self._supervisors[key]

    def _tell(self) -> None:
        told, self._change = self._change, asyncio.Event()
        told.set()
