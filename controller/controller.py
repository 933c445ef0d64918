"""The controller: one reign over one deployment, from taking it to losing it.

Start-up: take the reign, load, dial all replicas in parallel, serve. An unreachable replica delays nobody.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from controller.cluster import Cluster
from controller.engine import Engine, Request
from controller.events import ReplicaHasChanged
from controller.leftovers import dropped_folders, remove
from controller.links import Link
from controller.orchestrator.interface import Orchestrator, Quarantined, ReplicaKey
from controller.reads import Reads
from controller.replica_session import Caller, ReplicaSession
from controller.rows import Rows
from controller.settings import Settings
from controller.state import ReplicaRecord, State, restored
from controller.statements import Statement
from controller.store.interface import Reign, Store
from controller.transport import Dialer
from plainsong.failpoint import failpoint
from reconcile.compute_protocol import ComputeResponse, DataflowStatus, FrontierUppers
from reconcile.errors import PlainsongError
from reconcile.ids import ReplicaId
from reconcile.storage_protocol import SourceStatus, StorageResponse

Result = TypeVar("Result")


@dataclass(slots=True)
class _Member:
    """One replica that is kept connected."""

    session: ReplicaSession
    task: "asyncio.Task[None]"
    #: Why it is not connected; empty while it is.
    trouble: str = "not reached yet"
    #: How many sessions it has had in this reign.
    incarnation: int = 0


class Controller:
    """Everything that one reign runs."""

    def __init__(
        self,
        *,
        store: Store,
        reign: Reign,
        state: State,
        dialer: Dialer,
        orchestrator: Orchestrator,
        settings: Settings,
        data: Path | None = None,
    ) -> None:
        #: Where sources of the replicas that this controller starts keep things; None if it is not known.
        self._data = data
        #: Resolved with what ended the reign.
        self.ended: asyncio.Future[PlainsongError] = asyncio.get_running_loop().create_future()
        self.reign = reign
        self.settings = settings
        self.orchestrator = orchestrator
        self.engine = Engine(store=store, state=state, settings=settings, on_fatal=self._fatal)
        self.engine.end_session = self._end_session
        self.reads = Reads(self.engine, transient_base=reign.epoch << 32)
        self.rows = Rows(self.engine, self.reads)
        self.store = store
        self._dialer = dialer
        self._members: dict[ReplicaId, _Member] = {}

    @classmethod
    async def start(
        cls,
        *,
        store: Store,
        holder: str,
        dialer: Dialer,
        orchestrator: Callable[[Reign], Orchestrator],
        settings: Settings,
        data: Path | None = None,
    ) -> "Controller":
        """Takes the reign and begins to serve it; ``orchestrator`` makes the one for it."""
        reign = await store.open_reign(holder)
        failpoint("controller-after-reign")
        state = restored(await store.load())
        runs = orchestrator(reign)
        controller = cls(
            store=store, reign=reign, state=state, dialer=dialer, orchestrator=runs, settings=settings, data=data
        )
        known = [ReplicaKey(name, id) for name, record in state.clusters.items() for id in record.replicas]
        await runs.retain(known)
        for key in known:
            controller._keep(key.cluster, state.clusters[key.cluster].replicas[key.replica])
        controller.engine.spawn(controller._ticking(settings.compaction_ms, controller.engine.compact))
        controller.engine.spawn(controller._ticking(settings.reign_heartbeat_ms, controller.store.heartbeat))
        controller.engine.spawn(controller._ticking(settings.compaction_ms, controller._remove_leftovers))
        return controller

    @property
    def state(self) -> State:
        return self.engine.state

    async def execute(
        self, plan: Callable[[State], Statement[Result]], request: Request, encode: Callable[[Result], bytes]
    ) -> bytes:
        """Carries out a statement, and brings the replicas that run in line with those that should."""
        ran: list[Statement[Any]] = []

        def planned(state: State) -> Statement[Result]:
            statement = plan(state)
            ran.append(statement)
            return statement

        reply = await self.engine.execute(planned, request, encode)
        for statement in ran:
            for name, replica in statement.replicas_created:
                self._keep(name, replica)
            for name, dropped in statement.replicas_dropped:
                await self._let_go(name, dropped)
        return reply

    async def close(self, *, stop_replicas: bool) -> None:
        for member in self._members.values():
            member.task.cancel()
        await asyncio.gather(*(member.task for member in self._members.values()), return_exceptions=True)
        await self.engine.close()
        await self.orchestrator.close(stop_children=stop_replicas)
        await self.store.close()

    def _fatal(self, error: PlainsongError) -> None:
        if not self.ended.done():
            self.ended.set_result(error)

    async def _ticking(self, every_ms: int, work: Callable[[], Any]) -> None:
        while True:
            await asyncio.sleep(every_ms / 1000)
            await work()

    async def _remove_leftovers(self) -> None:
        """Again and again, because a writer that was not told yet may put back what was removed."""
        if self._data is not None:
            await asyncio.to_thread(remove, dropped_folders(self._data, self.state.catalog))

    # --- replicas -----------------------------------------------------------------------------------------

    def incarnation(self, replica: ReplicaId) -> int:
        return self._members[replica].incarnation if replica in self._members else 0

    def trouble(self, cluster: str, replica: ReplicaId) -> tuple[str, bool]:
        """Why a replica is not connected, and whether nobody tries any more."""
        member = self._members.get(replica)
        status = self.orchestrator.status(cluster, replica)
        if isinstance(status, Quarantined):
            return status.reason, True
        return (member.trouble if member is not None else "", False)

    def _keep(self, cluster: str, replica: ReplicaRecord) -> None:
        """Has a replica run and stay connected."""

        async def address() -> str:
            if replica.address:
                return replica.address
            await self.orchestrator.ensure(cluster, replica.id, self.reign.epoch)
            return await self.orchestrator.address(cluster, replica.id)

        session = ReplicaSession(
            owner=_Owner(self, cluster, self.state.clusters[cluster].machine),
            replica=replica.id,
            caller=Caller(epoch=self.reign.epoch, deployment=self.reign.deployment),
            address=address,
            dialer=self._dialer,
            settings=self.settings,
        )
        task = asyncio.get_running_loop().create_task(session.run())
        task.add_done_callback(self._session_finished)
        self._members[replica.id] = _Member(session=session, task=task)

    def _session_finished(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            known = error if isinstance(error, PlainsongError) else None
            self._fatal(known or PlainsongError("a session failed", detail=repr(error)))

    async def _let_go(self, cluster: str, replica: ReplicaId) -> None:
        member = self._members.pop(replica, None)
        if member is not None:
            member.task.cancel()
            await asyncio.gather(member.task, return_exceptions=True)
        if cluster in self.state.clusters:
            machine = self.state.clusters[cluster].machine
            self.engine.perform(machine, machine.removed(replica))
        await self.orchestrator.drop(cluster, replica)
        self.engine.events.tell(ReplicaHasChanged(cluster=cluster, replica=replica))

    def _end_session(self, replica: ReplicaId, why: str) -> None:
        if replica in self._members:
            self._members[replica].session.end(why)

    # --- what sessions say --------------------------------------------------------------------------------

    def member_changed(self, cluster: str, replica: ReplicaId, trouble: str) -> None:
        member = self._members.get(replica)
        if member is None:
            return
        if not trouble:
            member.incarnation += 1
        if member.trouble != trouble:
            member.trouble = trouble
            self.engine.events.tell(ReplicaHasChanged(cluster=cluster, replica=replica))


class _Owner:
    """The controller as the sessions of one cluster see it."""

    def __init__(self, controller: Controller, name: str, cluster: Cluster) -> None:
        self._controller = controller
        self._name = name
        self._cluster = cluster

    async def joining(self, replica: ReplicaId) -> None:
        await self._controller.engine.join(self._cluster, replica)

    def connected(self, replica: ReplicaId, link: Link) -> None:
        self._controller.engine.perform(self._cluster, self._cluster.connected(replica, link))
        self._controller.member_changed(self._name, replica, "")

    def lost(self, replica: ReplicaId, why: str) -> None:
        self._controller.engine.perform(self._cluster, self._cluster.lost(replica))
        self._controller.member_changed(self._name, replica, why)

    def heard_compute(self, replica: ReplicaId, response: ComputeResponse) -> None:
        self._controller.engine.perform(self._cluster, self._cluster.heard_compute(replica, response))
        if isinstance(response, DataflowStatus | FrontierUppers):
            self._controller.engine.events.stirred(self._name, replica)

    def heard_storage(self, replica: ReplicaId, response: StorageResponse) -> None:
        self._controller.engine.perform(self._cluster, self._cluster.heard_storage(replica, response))
        if isinstance(response, SourceStatus):
            self._controller.engine.events.stirred(self._name, replica)

    async def deposed(self) -> None:
        """The database decides who reigns: a deposed controller learns it there."""
        await self._controller.store.heartbeat()
