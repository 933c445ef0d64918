"""The engine: the state, its machines, and the effects of whatever happens to them.

Everything runs on one event loop. A statement is planned, committed and applied under one lock, so that the log and
the state go through the same sequence. What replicas say is handled at once and never waits for the disk, except
where the disk decides: writer epochs and steps are durable before anybody is told.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, assert_never

from controller.cluster import (
    AllotWriters,
    Cluster,
    ClusterEffect,
    EndLink,
    FrontierRose,
    ObjectFailedOn,
    PeekAnswered,
    TailTold,
    WriterIsLost,
    WriterIsPlaced,
)
from controller.compaction import Compactable, Holds, allowed_sinces
from controller.events import Events, ObjectHasFailed, ObjectWasAltered, ObjectWasCreated, ObjectWasDropped
from controller.objects import ObjectKind
from controller.settings import Settings
from controller.source_steps import SourceSteps
from controller.state import State
from controller.statements import Statement
from controller.store.changes import Change, Channel, LogAppended, ReplyRemembered, StepOpened, WriterEpochAllotted
from controller.store.interface import Store
from plainsong.codec import encode_command
from plainsong.errors import Unavailable
from plainsong.failpoint import failpoint
from reconcile.compute_protocol import (
    AllowCompaction,
    ComputeCommand,
    CreateDataflows,
    CreateInstance,
    InitializationComplete,
    Peek,
    PeekOutcome,
)
from reconcile.errors import InvalidRequest, PlainsongError
from reconcile.frontiers import MINIMUM, Antichain
from reconcile.ids import GlobalId, PeekId, ReplicaId, Seqno, Step
from reconcile.scheduling import RunOn, ScheduleAction
from reconcile.sources import is_table
from reconcile.steps import RecordsReported, ReporterLost
from reconcile.storage_history import LoggedStorageCommand
from reconcile.storage_protocol import (
    AlterSources,
    AppendResult,
    CreateSources,
    OpenStep,
    SourceSealed,
    StepReport,
    TableSeal,
)
from reconcile.table_writes import (
    Acknowledge,
    AppendResulted,
    OpenStepsThrough,
    RefuseWrite,
    SendAppend,
    StepsOpened,
    TableCreated,
    TableDropped,
    TableWriteEvent,
    TableWrites,
    TellSeals,
    WriterLost,
    WriterPlaced,
)

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What identifies a request that changes something, so that it takes effect once however often it is sent."""

    key: str
    digest: bytes


class Engine:
    """The live state of one reign."""

    def __init__(
        self, *, store: Store, state: State, settings: Settings, on_fatal: Callable[[PlainsongError], None]
    ) -> None:
        self.state = state
        self.settings = settings
        self.holds = Holds()
        self.events = Events()
        #: Who waits for the answer to a peek.
        self.peeks: dict[PeekId, asyncio.Future[PeekOutcome]] = {}
        #: Who follows a tail.
        self.tails: dict[GlobalId, Callable[[TailTold], None]] = {}
        #: Who waits for a write to be durable.
        self.waiting_writes: dict[str, asyncio.Future[Step]] = {}
        #: The newest step that anybody was told is durable; reads see at least this. Never goes back, across reigns
        #: too, because every acknowledged step was opened durably first.
        self.acknowledged = state.opened
        #: The session of each replica can be ended through this.
        self.end_session: Callable[[ReplicaId, str], None] = _no_session
        self._store = store
        self._on_fatal = on_fatal
        self._statements = asyncio.Lock()
        self._writes = TableWrites(opened=state.opened)
        self._source_steps = SourceSteps(settings, opened=state.opened, ask=self._ask_steps)
        #: Steps become durable one request after the other.
        self._opening = asyncio.Lock()
        self._tasks: set[asyncio.Task[Any]] = set()
        #: When steps were opened, oldest first, as far back as history is retained.
        self._openings: deque[tuple[float, Step]] = deque()
        self._compaction_starts = asyncio.get_running_loop().time() + settings.resume_ms / 1000
        self._last_seqno: dict[tuple[str, Channel], Seqno] = {}
        self._tail_length: dict[tuple[str, Channel], int] = {}
        #: Set, and replaced, whenever the log has grown.
        self.log_grown = asyncio.Event()
        for record in state.clusters.values():
            for source in record.machine.sources:
                if is_table(source):
                    self.write(TableCreated(id=source.id))
            record.machine.open_step(self._newest_step())

    # --- the disk -----------------------------------------------------------------------------------------

    async def commit(self, changes: Sequence[Change]) -> tuple[Seqno, ...]:
        """Makes changes durable; a store that fails, or a newer reign, ends this one."""
        try:
            seqnos = await self._store.commit(changes)
        except InvalidRequest:
            raise  # refused by the ledger before anything was written
        except PlainsongError as error:
            self._on_fatal(error)
            raise
        logged = [change for change in changes if isinstance(change, LogAppended)]
        for change, seqno in zip(logged, seqnos, strict=True):
            channel = (change.cluster, change.channel)
            self._last_seqno[channel] = seqno
            self._tail_length[channel] = self._tail_length.get(channel, 0) + 1
        if logged:
            self.log_grown.set()
            self.log_grown = asyncio.Event()
        return seqnos

    @property
    def log_records(self) -> int:
        """Records that this reign has appended and not reduced since."""
        return sum(self._tail_length.values())

    async def execute(
        self, plan: Callable[[State], Statement[Result]], request: Request, encode: Callable[[Result], bytes]
    ) -> bytes:
        """Carries out one statement, once; returns its reply, or the one that was given before."""
        async with self._statements:
            given = self.state.replies.get(request.key) if request.key else None
            if given is not None:
                if given.request_digest != request.digest:
                    raise InvalidRequest("this idempotency key was used for another request", hint="use a fresh one")
                return given.reply
            statement = plan(self.state)
            reply = encode(statement.result)
            remembered = (
                (ReplyRemembered(key=request.key, request_digest=request.digest, reply=reply),) if request.key else ()
            )
            changes = (*statement.changes, *_logged(statement), *remembered)
            failpoint("statement-before-commit")
            if changes:
                await self.commit(changes)
            failpoint("statement-after-commit")
            for change in changes:
                self.state.apply(change)
            self._publish(statement)
            return reply

    def _publish(self, statement: Statement[Any]) -> None:
        """Tells replicas and watchers what is durable now."""
        for name, command in statement.storage:
            if name in self.state.clusters:
                self._publish_storage(self.state.clusters[name].machine, command)
        for object in statement.dropped:
            if object.cluster in self.state.clusters:
                cluster = self.state.clusters[object.cluster].machine
                self.perform(cluster, cluster.drop_collection(object.id))
        for name, told in statement.compute:
            if name in self.state.clusters:
                self._publish_compute(self.state.clusters[name].machine, told)
        for object in statement.created:
            self.events.tell(ObjectWasCreated(object=object))
        for object in statement.altered:
            self.events.tell(ObjectWasAltered(object=object))
        for object in statement.dropped:
            self.events.tell(ObjectWasDropped(name=object.name))

    def _publish_compute(self, cluster: Cluster, command: ComputeCommand) -> None:
        if isinstance(command, CreateDataflows):
            for description in command.dataflows:
                for id in description.export_ids:
                    cluster.create_collection(id, description.as_of)
        cluster.request(command)

    def _publish_storage(self, cluster: Cluster, command: LoggedStorageCommand) -> None:
        match command:
            case CreateSources(sources=sources):
                for source in sources:
                    if is_table(source):
                        self.write(TableCreated(id=source.id))
                    self.perform(cluster, cluster.create_source(source))
                    # Level-triggered, and before its writer is told to run: until now there may have been no need.
                    cluster.open_step(self._newest_step())
            case AlterSources(sources=sources):
                for source in sources:
                    cluster.alter_source(source)
            case AllowCompaction(id=id, since=since):
                if since.is_closed:
                    self.write(TableDropped(id=id))
                    self._source_steps.handle(ReporterLost(id=id))
                self.perform(cluster, cluster.compact_source(command))
            case _:
                assert_never(command)

    # --- effects ------------------------------------------------------------------------------------------

    def perform(self, cluster: Cluster, effects: Iterable[ClusterEffect]) -> None:
        for effect in effects:
            match effect:
                case PeekAnswered(peek=peek, outcome=outcome):
                    answer = self.peeks.pop(peek, None)
                    if answer is not None and not answer.done():
                        answer.set_result(outcome)
                case FrontierRose(id=id, upper=upper):
                    self.events.risen(id, upper)
                case TailTold(id=id):
                    follower = self.tails.get(id)
                    if follower is not None:
                        follower(effect)
                case AppendResult(id=id, token=token, upper=upper, left_out=left_out):
                    self.write(AppendResulted(id=id, token=token, upper=upper, left_out=left_out))
                case AllotWriters(moves=moves):
                    self.spawn(self._allot(cluster, moves))
                case WriterIsPlaced(id=id):
                    self.write(WriterPlaced(id=id))
                case WriterIsLost(id=id):
                    self.write(WriterLost(id=id))
                    self._source_steps.handle(ReporterLost(id=id))
                case StepReport(id=id, step=step, received=received):
                    self._source_steps.handle(RecordsReported(id=id, step=step, received=received))
                case SourceSealed():
                    self._sealed(effect)
                case EndLink(replica=replica, why=why):
                    self.end_session(replica, why)
                case ObjectFailedOn(id=id, replica=replica, error=error):
                    object = self.state.catalog.get(id)
                    name = object.name if object is not None else str(id)
                    self.events.tell(ObjectHasFailed(id=id, name=name, replica=replica, error=error))
                case _:
                    assert_never(effect)

    async def join(self, cluster: Cluster, replica: ReplicaId) -> None:
        """Decides, durably, what a replica that can be reached shall run."""
        for effect in cluster.joining(replica):
            if isinstance(effect, AllotWriters):
                await self._allot(cluster, effect.moves)

    async def _allot(self, cluster: Cluster, moves: Sequence[ScheduleAction]) -> None:
        epochs = [
            WriterEpochAllotted(id=move.id, epoch=move.writer_epoch)
            for move in moves
            if isinstance(move, RunOn) and move.writer_epoch is not None and move.id in cluster.sources
        ]
        if epochs:
            await self.commit(epochs)
            for change in epochs:
                self.state.apply(change)
        self.perform(cluster, cluster.allotted(moves))

    # --- writes -------------------------------------------------------------------------------------------

    def write(self, event: TableWriteEvent) -> None:
        for action in self._writes.handle(event):
            match action:
                case SendAppend(append=append):
                    self._host(append.id).append(append, append.id)
                case OpenStepsThrough(step=step):
                    self._ask_steps(step)
                case Acknowledge(token=token, step=step):
                    self.acknowledged = max(self.acknowledged, step)
                    self._settle(token, step)
                case RefuseWrite(token=token):
                    self._settle(token, InvalidRequest("the table was dropped"))
                case TellSeals(seals=seals):
                    self._tell_seals(seals)
                case _:
                    assert_never(action)

    def _settle(self, token: str, result: Step | PlainsongError) -> None:
        waiting = self.waiting_writes.pop(token, None)
        if waiting is None or waiting.done():
            return
        if isinstance(result, PlainsongError):
            waiting.set_exception(result)
        else:
            waiting.set_result(result)

    def _tell_seals(self, seals: tuple[TableSeal, ...]) -> None:
        for record in self.state.clusters.values():
            record.machine.seal(seals)
        for seal in seals:
            self.events.risen(seal.id, seal.upper)

    # --- steps --------------------------------------------------------------------------------------------

    def _ask_steps(self, step: Step) -> None:
        self.spawn(self._open_steps(step))

    async def _open_steps(self, step: Step) -> None:
        async with self._opening:
            if step <= self.state.opened:
                return  # somebody else asked for as much, and everybody was told
            reserve = self._reserve(step)
            if reserve > self.state.reserved:
                failpoint("step-before-commit")
                await self.commit([StepOpened(step=reserve)])
                failpoint("step-after-commit")
                self.state.reserved = reserve
            self.state.opened = step
        self._openings.append((asyncio.get_running_loop().time(), step))
        opened = self._newest_step()
        for record in self.state.clusters.values():
            record.machine.open_step(opened)
        self._source_steps.handle(StepsOpened(step=step))
        self.write(StepsOpened(step=step))

    def _reserve(self, step: Step) -> Step:
        """What must be durable before ``step`` is told: with sources, what is granted with it.

        Granted are at least half as many steps as the setting says, so that most steps need no commit.
        """
        granted = self.settings.grant_steps
        if not granted or not any(record.machine.has_stepped_sources for record in self.state.clusters.values()):
            return step
        return Step(step + granted) if step + (granted + 1) // 2 > self.state.reserved else self.state.reserved

    def _newest_step(self) -> OpenStep:
        return OpenStep(step=self.state.opened, granted=self.state.reserved, every_ms=self.settings.grant_every_ms)

    def _sealed(self, sealed: SourceSealed) -> None:
        """Passes on how far a source is cut; what is complete counts as acknowledged, so that reads see it."""
        self._tell_seals((sealed.seal,))
        upper, opened = sealed.seal.upper.step, self.state.opened
        complete = opened if upper is None else min(Step(max(upper - 1, 0)), opened)
        self.acknowledged = max(self.acknowledged, complete)

    def _host(self, table: GlobalId) -> Cluster:
        object = self.state.catalog.get(table)
        if object is None:
            raise InvalidRequest("the table was dropped")
        return self.state.clusters[object.cluster].machine

    # --- frontiers ----------------------------------------------------------------------------------------

    def upper(self, id: GlobalId) -> Antichain:
        """How far a collection is complete, on whatever replica got furthest."""
        upper = self._writes.upper(id)
        if upper is not None:
            return upper
        object = self.state.catalog.get(id)
        machine = self.state.clusters[object.cluster].machine if object and object.cluster else None
        if machine is not None and object is not None and object.kind is ObjectKind.SOURCE:
            return machine.sealed(id)
        return (machine.merge.upper(id) if machine is not None else None) or MINIMUM

    def since(self, id: GlobalId) -> Antichain:
        """From when on a collection is readable."""
        for record in self.state.clusters.values():
            since = record.machine.sources.since(id) or record.machine.history.dataflows.since(id)
            if since is not None:
                return since
        return MINIMUM

    # --- compaction ---------------------------------------------------------------------------------------

    async def compact(self) -> None:
        """Moves sinces up as far as nobody minds, durably first; then shortens logs that have grown."""
        async with self._statements:
            now = asyncio.get_running_loop().time()
            if now >= self._compaction_starts:
                await self._move_sinces(now)
            for name in tuple(self.state.clusters):
                await self._shorten(name, Channel.COMPUTE)
                await self._shorten(name, Channel.STORAGE)

    async def _move_sinces(self, now: float) -> None:
        horizon = now - self.settings.retention_ms / 1000
        retained: Step | None = None
        while self._openings and self._openings[0][0] <= horizon:
            retained = self._openings.popleft()[1]
        if retained is None:
            return
        owners: dict[GlobalId, tuple[str, Channel]] = {}
        collections = list(self._compactable(owners))
        commands = [
            (*owners[id], AllowCompaction(id=id, since=since))
            for id, since in allowed_sinces(collections, retained=min(retained, self.acknowledged), holds=self.holds)
        ]
        durable = [command for command in commands if not command[2].id.is_transient]
        if durable:
            await self.commit(
                [
                    LogAppended(cluster=name, channel=channel, body=encode_command(told))
                    for name, channel, told in durable
                ]
            )
        for name, channel, told in commands:
            cluster = self.state.clusters[name].machine
            if channel is Channel.COMPUTE:
                cluster.request(told)
            else:
                self.perform(cluster, cluster.compact_source(told))

    def _compactable(self, owners: dict[GlobalId, tuple[str, Channel]]) -> Iterable[Compactable]:
        for name, record in self.state.clusters.items():
            for source in record.machine.sources:
                owners[source.id] = (name, Channel.STORAGE)
                since = record.machine.sources.since(source.id) or MINIMUM
                yield Compactable(id=source.id, since=since, upper=self.upper(source.id))
        for name, record in self.state.clusters.items():
            for dataflow in record.machine.history.dataflows:
                for id, since in dataflow.sinces.items():
                    owners[id] = (name, Channel.COMPUTE)
                    upper = record.machine.merge.upper(id) or MINIMUM
                    # What is transient moves when its reader does; until then it holds what it reads.
                    yield Compactable(
                        id=id,
                        since=since,
                        upper=Antichain(since.step) if id.is_transient else upper,
                        imports=dataflow.description.imports,
                    )

    async def _shorten(self, name: str, channel: Channel) -> None:
        """Replaces the log of one channel by its reduced form, when most of it is history."""
        key = (name, channel)
        cluster = self.state.clusters[name].machine
        live = len(cluster.history.dataflows) if channel is Channel.COMPUTE else len(cluster.sources)
        if self._tail_length.get(key, 0) <= max(self.settings.log_tail_max, 2 * live):
            return
        reduced = [encode_command(command) for command in durable_commands(cluster, channel)]
        try:
            await self._store.compact_log(name, channel, self._last_seqno[key], reduced)
        except PlainsongError as error:
            self._on_fatal(error)
            raise
        self._tail_length[key] = 0

    # --- tasks --------------------------------------------------------------------------------------------

    def spawn(self, work: Any) -> None:
        """Runs ``work`` beside everything else; what it raises ends the reign."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_fatal(
                error
                if isinstance(error, PlainsongError)
                else PlainsongError("the controller failed", detail=repr(error))
            )

    async def close(self) -> None:
        self._source_steps.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        stopping = Unavailable("the controller stops", hint="try again: another one takes over")
        everybody: list[asyncio.Future[Any]] = [*self.peeks.values(), *self.waiting_writes.values()]
        for waiting in everybody:
            if not waiting.done():
                waiting.set_exception(stopping)
                waiting.exception()  # nobody may be left to look at it


def _no_session(replica: ReplicaId, why: str) -> None:
    """Stands in until the controller has sessions."""


def durable_commands(cluster: Cluster, channel: Channel) -> Iterable[ComputeCommand | LoggedStorageCommand]:
    """The reduced log: what is asked for, without what lives only as long as somebody reads."""
    if channel is Channel.STORAGE:
        yield from cluster.sources.commands()
        return
    for command in cluster.history.commands():
        match command:
            case CreateInstance() | InitializationComplete() | Peek():
                pass
            case CreateDataflows(dataflows=dataflows) if any(
                id.is_transient for dataflow in dataflows for id in dataflow.export_ids
            ):
                pass
            case AllowCompaction(id=id) if id.is_transient:
                pass
            case _:
                yield command


def _logged(statement: Statement[Any]) -> Iterable[LogAppended]:
    for name, command in statement.storage:
        yield LogAppended(cluster=name, channel=Channel.STORAGE, body=encode_command(command))
    for name, told in statement.compute:
        yield LogAppended(cluster=name, channel=Channel.COMPUTE, body=encode_command(told))
