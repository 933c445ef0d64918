"""The interface of every orchestrator: what should run, what does, and where."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

from reconcile.ids import Epoch, ReplicaId


class ReplicaKey(NamedTuple):
    """One replica of one cluster."""

    cluster: str
    replica: ReplicaId

    def __str__(self) -> str:
        return f"replica {self.replica} of {self.cluster}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """It should not run, and does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Starting:
    """It should run and does not yet listen; ``reason`` says why it had to be started again, if it had to."""

    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """It runs and has said where it listens."""

    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantined:
    """It ended too often; nobody starts it again before somebody asks for it."""

    reason: str


ReplicaStatus: TypeAlias = Stopped | Starting | Running | Quarantined


class Orchestrator(Protocol):
    """Keeps replicas running.

    Level-triggered: the controller says what should run, as often as it likes, and asks how things stand. ``ensure``
    does not wait for a replica to be ready: one that is slow or broken delays nobody.
    """

    async def ensure(self, cluster: str, replica: ReplicaId, epoch: Epoch, *, reset: bool = False) -> None:
        """From now on this replica should run. ``epoch`` is where one with an empty disk begins.

        ``reset`` forgets its crashes and so ends a quarantine.
        """
        ...

    async def drop(self, cluster: str, replica: ReplicaId) -> None:
        """This replica should not run, now and for ever; returns when it does not."""
        ...

    async def retain(self, wanted: Collection[ReplicaKey]) -> None:
        """Drops every replica that is not among ``wanted``, also those that an earlier reign started."""
        ...

    async def address(self, cluster: str, replica: ReplicaId) -> str:
        """Where a replica listens; waits until that is known, however long it takes."""
        ...

    def listening(self, cluster: str, replica: ReplicaId) -> str | None:
        """Where a replica listens; ``None`` while that is not known."""
        ...

    def status(self, cluster: str, replica: ReplicaId) -> ReplicaStatus:
        """How a replica stands."""
        ...

    async def close(self, *, stop_children: bool) -> None:
        """Stops looking after replicas; ends them too only if ``stop_children``."""
        ...
