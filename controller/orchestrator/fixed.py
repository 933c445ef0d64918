"""The orchestrator of replicas that somebody else runs: their addresses are given."""

import asyncio
from collections.abc import Collection, Mapping

from controller.orchestrator.interface import ReplicaKey, ReplicaStatus, Running, Starting, Stopped
from reconcile.ids import Epoch, ReplicaId


class FixedOrchestrator:
    """Knows where replicas listen, and neither starts nor ends any.

    Whether somebody answers at an address is for the session to find out: here it counts as running.
    """

    def __init__(self, addresses: Mapping[ReplicaKey, str] | None = None) -> None:
        self._addresses = dict(addresses or {})
        self._wanted: set[ReplicaKey] = set()
        self._waiters: dict[ReplicaKey, list[asyncio.Future[str]]] = {}

    def assign(self, cluster: str, replica: ReplicaId, address: str) -> None:
        """Says where a replica listens, or that it has moved."""
        self._addresses[ReplicaKey(cluster, replica)] = address
        for waiter in self._waiters.pop(ReplicaKey(cluster, replica), ()):
            if not waiter.done():
                waiter.set_result(address)

    async def ensure(self, cluster: str, replica: ReplicaId, epoch: Epoch, *, reset: bool = False) -> None:  # noqa: ARG002  # part of the interface
        self._wanted.add(ReplicaKey(cluster, replica))

    async def drop(self, cluster: str, replica: ReplicaId) -> None:
        key = ReplicaKey(cluster, replica)
        self._wanted.discard(key)
        self._addresses.pop(key, None)

    async def retain(self, wanted: Collection[ReplicaKey]) -> None:
        for key in [key for key in self._addresses if key not in wanted]:
            await self.drop(*key)

    async def address(self, cluster: str, replica: ReplicaId) -> str:
        key = ReplicaKey(cluster, replica)
        if (known := self._addresses.get(key)) is not None:
            return known
        waiter: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(key, []).append(waiter)
        return await waiter

    def listening(self, cluster: str, replica: ReplicaId) -> str | None:
        return self._addresses.get(ReplicaKey(cluster, replica))

    def status(self, cluster: str, replica: ReplicaId) -> ReplicaStatus:
        key = ReplicaKey(cluster, replica)
        if key not in self._wanted:
            return Stopped()
        address = self._addresses.get(key)
        return Starting(reason="nobody said where it listens") if address is None else Running(address=address)

    async def close(self, *, stop_children: bool) -> None:
        """Nothing to end: the processes are somebody else's."""
