"""Reads: at which step, from which collection, and how the answer comes back.

A read holds what it reads at its step, so that no since passes it. Strict serializable reads take the newest
acknowledged step and wait until it is complete; serializable ones take a step that is complete already.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, auto
from typing import assert_never

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types

from controller.cluster import Cluster, TailTold
from controller.engine import Engine
from controller.objects import CatalogObject, ObjectKind
from controller.ordering import finished, ordered_plan
from controller.planning import Relations
from controller.sql import CompiledQuery, compile_query
from controller.sql.plans import check_size
from plainsong.arrow_updates import from_ipc
from plainsong.errors import InvalidRequest, TimedOut, Unavailable
from reconcile.compute_protocol import (
    AllowCompaction,
    CreateDataflows,
    PeekCanceled,
    PeekFailed,
    PeekOutcome,
    PeekRefusal,
    PeekRefused,
    PeekRows,
)
from reconcile.dataflow import DataflowDescription, Export, Index, ObjectToBuild, Tail
from reconcile.errors import PlainsongError
from reconcile.frontiers import CLOSED, Antichain, join
from reconcile.ids import GlobalId, PeekId, ReplicaId, Step
from reconcile.plan_tree import Node, PlanValue

#: Batches of one tail that wait for its client; beyond it the tail ends, and the client resumes.
TAIL_BATCHES_MAX = 10_000


class Consistency(Enum):
    STRICT_SERIALIZABLE = auto()
    SERIALIZABLE = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadAt:
    """When and where to read, and how long to wait."""

    consistency: Consistency = Consistency.STRICT_SERIALIZABLE
    step: Step | None = None
    replica: ReplicaId | None = None
    timeout_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Rows as an Arrow IPC stream, right for ``step``."""

    step: Step
    rows: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class TailPiece:
    """All changes from ``lower`` up to ``upper``; ``updates`` is an Arrow IPC stream, empty for none."""

    lower: Antichain
    upper: Antichain
    updates: bytes


class Reads:
    """Answers everything that is asked of collections."""

    def __init__(self, engine: Engine, *, transient_base: int) -> None:
        self._engine = engine
        self._next_peek = 0
        #: Transient ids differ between reigns, so that none is taken for one of an earlier reign.
        self._next_transient = transient_base

    # --- peeks --------------------------------------------------------------------------------------------

    def index_on(self, name: str) -> CatalogObject | None:
        """An index that answers for ``name``, which may be one itself; of several the first that knows most columns."""
        object = self._engine.state.catalog.require(name)
        if object.kind is ObjectKind.INDEX:
            return object
        indexes = self._engine.state.catalog.indexes_on(object.id)
        return max(indexes, key=lambda index: len(index.columns), default=None)

    async def peek(self, index: CatalogObject, finishing: PlanValue, at: ReadAt) -> Answer:
        """Reads an index."""
        if isinstance(finishing, Node):
            check_size(finishing)
        cluster = self._engine.state.clusters[index.cluster].machine
        self._check_replica(index.cluster, at)
        step = self._step(at, [index.id])
        with self._held([index.id], step):
            return Answer(step=step, rows=await self._rows(cluster, index.id, step, finishing, at, [index.id]))

    async def peek_log(self, id: GlobalId, finishing: PlanValue, at: ReadAt) -> Answer:
        """Reads what one replica tells of itself."""
        if isinstance(finishing, Node):
            check_size(finishing)
        cluster = self.cluster_of(_require_replica(at))
        machine, step = self._engine.state.clusters[cluster].machine, self._engine.acknowledged
        return Answer(step=step, rows=await self._rows(machine, id, step, finishing, at, ()))

    def cluster_of(self, replica: ReplicaId) -> str:
        """The cluster that has a replica; ids of replicas are never used twice."""
        for name, record in self._engine.state.clusters.items():
            if replica in record.replicas:
                return name
        known = [str(id) for record in self._engine.state.clusters.values() for id in record.replicas]
        raise InvalidRequest(f"there is no replica {replica}", hint=f"there are {', '.join(known) or 'none'}")

    async def query(self, compiled: CompiledQuery, cluster: str, at: ReadAt) -> Answer:
        """Reads what no index offers: renders it for this one step, asks, and drops it again."""
        machine = self._engine.state.cluster(cluster).machine
        plan = ordered_plan(compiled)
        check_size(plan)
        self._check_replica(cluster, at)
        # What a replica tells of itself has no history to hold.
        inputs = tuple(id for id in compiled.reads if not id.is_logging)
        if inputs != compiled.reads:
            _require_replica(at)
        step = self._step(at, inputs)
        id = self._transient()
        until = Antichain.at(step + 1)
        with self._held(inputs, step):
            self._render(machine, id, compiled.reads, plan, Index(id=id), Antichain(step), until)
            try:
                rows = await self._rows(machine, id, step, None, at, inputs)
            finally:
                self._drop(machine, id)
        return Answer(step=step, rows=finished(rows, compiled))

    def compiled(self, sql: str, cluster: str) -> CompiledQuery:
        self._engine.state.cluster(cluster)
        state = self._engine.state
        return compile_query(sql, Relations(state, cluster, logging=True), functions=state.functions)

    async def _rows(
        self,
        cluster: Cluster,
        id: GlobalId,
        step: Step,
        finishing: PlanValue,
        at: ReadAt,
        inputs: Iterable[GlobalId],
    ) -> bytes:
        engine = self._engine
        self._next_peek += 1
        peek = PeekId(self._next_peek)
        answer: asyncio.Future[PeekOutcome] = asyncio.get_running_loop().create_future()
        engine.peeks[peek] = answer
        engine.perform(cluster, cluster.peek(peek, id, step, finishing, at.replica))
        timeout_ms = at.timeout_ms or engine.settings.timeout_ms
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                outcome = await answer
        except TimeoutError as error:
            raise self._late(cluster, step, inputs, timeout_ms) from error
        finally:
            if peek in engine.peeks:
                del engine.peeks[peek]
                engine.perform(cluster, cluster.cancel_peek(peek))
        return _rows_of(outcome)

    def _late(self, cluster: Cluster, step: Step, inputs: Iterable[GlobalId], timeout_ms: int) -> PlainsongError:
        """Names what kept a read waiting."""
        if not cluster.replicas:
            return TimedOut(
                f"no answer within {timeout_ms} ms",
                detail=f"cluster {cluster.name} has no replica that can be reached",
                hint="see `plainsong status`",
            )
        late = [id for id in inputs if not self._engine.upper(id) > Antichain(step)]
        names = [self._name(id) for id in late]
        waits = f"{', '.join(names)} is not complete through step {step}" if names else "the replicas are busy"
        return TimedOut(
            f"no answer within {timeout_ms} ms",
            detail=waits,
            hint="a serializable read takes a step that is complete already",
        )

    def _step(self, at: ReadAt, inputs: Iterable[GlobalId]) -> Step:
        """The step to read at: asked for, newest acknowledged, or newest complete."""
        engine = self._engine
        inputs = tuple(inputs)
        since = join(engine.since(id) for id in inputs)
        if at.step is not None:
            if since > Antichain(at.step):
                raise InvalidRequest(f"step {at.step} can no longer be read", detail=f"history begins at {since}")
            if at.step > engine.state.opened:
                raise InvalidRequest(f"step {at.step} is not open yet", detail=f"the newest is {engine.state.opened}")
            return at.step
        if at.consistency is Consistency.STRICT_SERIALIZABLE or not inputs:
            return max(engine.acknowledged, since.step or Step(0))
        complete = [engine.upper(id).step for id in inputs]
        newest = min((step - 1 for step in complete if step is not None), default=engine.acknowledged)
        # A source may have opened steps by itself; until they are open for all, nobody reads there.
        return Step(max(min(newest, engine.state.opened), since.step or 0))

    def _check_replica(self, cluster: str, at: ReadAt) -> None:
        known = self._engine.state.clusters[cluster].replicas
        if at.replica is not None and at.replica not in known:
            raise InvalidRequest(
                f"cluster {cluster} has no replica {at.replica}", hint=f"it has {', '.join(map(str, known)) or 'none'}"
            )

    @contextmanager
    def _held(self, ids: Iterable[GlobalId], step: Step) -> Iterator[None]:
        held = tuple(ids)
        for id in held:
            self._engine.holds.acquire(id, step)
        try:
            yield
        finally:
            for id in held:
                self._engine.holds.release(id, step)

    def _name(self, id: GlobalId) -> str:
        object = self._engine.state.catalog.get(id)
        return object.name if object is not None else str(id)

    # --- tails --------------------------------------------------------------------------------------------

    async def tail(
        self, name: str, cluster: str, *, snapshot: bool, resume: Step | None, as_of: Step | None
    ) -> AsyncIterator[TailPiece]:
        """Streams the changes of ``name``; contiguous from its first step on, whatever happens to replicas."""
        engine = self._engine
        machine = engine.state.cluster(cluster).machine
        relation = Relations(engine.state, cluster).relation(name)
        reads = relation.reads
        first = self._first_step(reads, resume, as_of)
        id = self._transient()
        queue: asyncio.Queue[TailTold | None] = asyncio.Queue()

        def follow(told: TailTold) -> None:
            if queue.qsize() < TAIL_BATCHES_MAX:
                queue.put_nowait(told)
            else:
                engine.tails.pop(id, None)
                queue.put_nowait(None)

        hold = _TailHold(engine, reads, first)
        engine.tails[id] = follow
        machine.follow(id, Antichain(first))
        export = Tail(id=id, snapshot=snapshot and resume is None)
        self._render(machine, id, reads, relation.plan, export, Antichain(first), CLOSED)
        try:
            while True:
                told = await queue.get()
                if told is None:
                    raise Unavailable("this tail is too slow", hint="it resumes at what it has seen")
                yield TailPiece(lower=told.lower, upper=told.upper, updates=_ipc_of(told))
                if told.upper.is_closed:
                    return
                hold.move(told.upper)
                machine.request(AllowCompaction(id=id, since=told.upper))
        finally:
            engine.tails.pop(id, None)
            self._drop(machine, id)
            # A client that lost its connection resumes where it stands.
            asyncio.get_running_loop().call_later(engine.settings.resume_ms / 1000, hold.release)

    def _first_step(self, reads: tuple[GlobalId, ...], resume: Step | None, as_of: Step | None) -> Step:
        engine = self._engine
        since = join(engine.since(id) for id in reads)
        asked = resume if resume is not None else as_of
        if asked is None:
            return max(engine.acknowledged, since.step or Step(0))
        # To go on at a step is to know what was there just before it.
        needed = Antichain.at(max(asked - 1, 0)) if resume is not None else Antichain(asked)
        if since > needed:
            raise InvalidRequest(
                f"cannot begin at step {asked}",
                detail=f"history before {since} is gone",
                hint="begin anew with a snapshot",
            )
        if asked > engine.state.opened + 1:
            raise InvalidRequest(f"step {asked} is not open yet", detail=f"the newest is {engine.state.opened}")
        return asked

    # --- transient dataflows ------------------------------------------------------------------------------

    def _transient(self) -> GlobalId:
        self._next_transient += 1
        return GlobalId("t", self._next_transient)

    def _render(
        self,
        cluster: Cluster,
        id: GlobalId,
        reads: tuple[GlobalId, ...],
        plan: PlanValue,
        export: Export,
        as_of: Antichain,
        until: Antichain,
    ) -> None:
        description = DataflowDescription(
            imports=reads,
            objects=(ObjectToBuild(id=id, plan=plan),),
            exports=(export,),
            as_of=as_of,
            until=until,
        )
        cluster.create_collection(id, as_of)
        cluster.request(CreateDataflows(dataflows=(description,)))

    def _drop(self, cluster: Cluster, id: GlobalId) -> None:
        self._engine.perform(cluster, cluster.drop_collection(id))
        cluster.request(AllowCompaction(id=id, since=CLOSED))


class _TailHold:
    """What a tail reads stays readable where its client stands."""

    def __init__(self, engine: Engine, reads: tuple[GlobalId, ...], first: Step) -> None:
        self._engine = engine
        self._reads = reads
        self._step: Step | None = Step(max(first - 1, 0))
        for id in reads:
            engine.holds.acquire(id, self._step)

    def move(self, to: Antichain) -> None:
        if to.step is not None and self._step is not None:
            step = Step(max(to.step - 1, 0))
            for id in self._reads:
                self._engine.holds.acquire(id, step)
                self._engine.holds.release(id, self._step)
            self._step = step

    def release(self) -> None:
        if self._step is not None:
            for id in self._reads:
                self._engine.holds.release(id, self._step)
            self._step = None


def _require_replica(at: ReadAt) -> ReplicaId:
    if at.replica is None:
        raise InvalidRequest(
            "which replica?", detail="each tells of itself", hint="name one, as in replica=1", reason="WHICH_REPLICA"
        )
    return at.replica


def lookup(columns: tuple[str, ...], values: tuple[PlanValue, ...]) -> Node:
    """The finishing of a peek for one key."""
    return Node(op="finish", fields=(("lookup", tuple(zip(columns, values, strict=True))),))


def table_of(answer: Answer) -> pa.Table:
    return from_ipc(answer.rows)


def _ipc_of(told: TailTold) -> bytes:
    ipc: bytes = getattr(told.updates, "ipc", b"")
    return ipc if len(told.updates) else b""


def _rows_of(outcome: PeekOutcome) -> bytes:
    match outcome:
        case PeekRows(rows=bytes() as rows):
            return rows
        case PeekRows():
            raise InvalidRequest("the replica sent rows that are no bytes")
        case PeekFailed(error=error):
            raise _refused(error)
        case PeekRefused(refusal=refusal):
            raise _refused(str(refusal))
        case PeekCanceled():
            raise Unavailable("the read was cancelled")
        case _:
            assert_never(outcome)


def _refused(error: str) -> PlainsongError:
    """A replica's refusal in words that say what to do."""
    if error == PeekRefusal.TARGET_GONE:
        return Unavailable("the replica that was asked is gone", hint="ask all of them")
    if error in (PeekRefusal.DROPPED, PeekRefusal.UNKNOWN_COLLECTION):
        return InvalidRequest("it was dropped while it was read", reason="DROPPED")
    if error == PeekRefusal.NOT_READABLE:
        return InvalidRequest("this step can no longer be read", hint="read at a later step")
    return InvalidRequest("the read failed", detail=error, reason="READ_FAILED")
