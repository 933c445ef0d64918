"""One cluster: what its replicas are asked to run, and what they say of it.

Pure: commands go into the queues of links, what the controller must do comes back as effects. The requested state
is kept reduced in the two histories, so that a replica that joins is told all of it and no more.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, assert_never

from controller.links import Link
from plainsong.logs import LOGGING_IDS
from reconcile.compute_protocol import (
    AllowCompaction,
    CancelPeeks,
    ComputeCommand,
    ComputeResponse,
    CreateInstance,
    DataflowStatus,
    Failed,
    FrontierUppers,
    Heartbeat,
    Hydrating,
    InitializationComplete,
    Inventory,
    Kept,
    Peek,
    PeekCanceled,
    PeekFailed,
    PeekOutcome,
    PeekRefused,
    PeekResponse,
    PeekRows,
    Replaced,
    TailResponse,
)
from reconcile.frontiers import CLOSED, MINIMUM, Antichain
from reconcile.history import History
from reconcile.ids import GlobalId, PeekId, ReplicaId, Step, WriterEpoch
from reconcile.merge import (
    AnswerHeard,
    CancelOn,
    CollectionCreated,
    CollectionDropped,
    FrontierHeard,
    FrontierTold,
    MergeAction,
    MergeEvent,
    Mistrust,
    PeekCancelRequested,
    PeekRequested,
    ReplicaJoined,
    ReplicaLeft,
    ReplicaMerge,
    ReplicaSaid,
    TailHeard,
    TailRequested,
)
from reconcile.plan_tree import PlanValue
from reconcile.scheduling import (
    ReplicaAdded,
    ReplicaFailed,
    ReplicaRecovered,
    ReplicaRemoved,
    RunOn,
    ScheduleAction,
    ScheduleEvent,
    Scheduler,
    SourceCreated,
    SourceDropped,
    StopOn,
)
from reconcile.sources import SourceDescription, is_table
from reconcile.storage_history import StorageHistory
from reconcile.storage_protocol import (
    AlterSources,
    AppendResult,
    CreateSources,
    OpenStep,
    SealTables,
    SourceAltered,
    SourceFailed,
    SourceKept,
    SourceRefused,
    SourceRunning,
    SourceSealed,
    SourceStatus,
    StepReport,
    StorageCommand,
    StorageResponse,
    TableSeal,
)
from reconcile.updates import Updates
from reconcile.uppers import UpperListener

# --- effects ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class PeekAnswered:
    """The one answer to a peek."""

    peek: PeekId
    outcome: PeekOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class TailTold:
    """The next piece of a tail."""

    id: GlobalId
    lower: Antichain
    upper: Antichain
    updates: Updates


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontierRose:
    """The unified upper of ``id`` rose."""

    id: GlobalId
    upper: Antichain


@dataclass(frozen=True, slots=True, kw_only=True)
class AllotWriters:
    """Make these writer epochs durable, then call ``allotted`` with them."""

    moves: tuple[ScheduleAction, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterIsPlaced:
    """Appends to ``id`` have somewhere to go."""

    id: GlobalId


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterIsLost:
    """Appends to ``id`` have nowhere to go."""

    id: GlobalId


@dataclass(frozen=True, slots=True, kw_only=True)
class EndLink:
    """End the session of a replica that cannot be believed."""

    replica: ReplicaId
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectFailedOn:
    """A dataflow or source failed with the user's error."""

    id: GlobalId
    replica: ReplicaId
    error: str


ClusterEffect = (
    PeekAnswered
    | TailTold
    | FrontierRose
    | AllotWriters
    | WriterIsPlaced
    | WriterIsLost
    | EndLink
    | ObjectFailedOn
    | AppendResult
    | StepReport
    | SourceSealed
)
Effects = Iterator[ClusterEffect]


@dataclass(slots=True)
class ReplicaView:
    """What is known of one connected replica in its current session."""

    link: Link
    compute: UpperListener = field(default_factory=UpperListener)
    storage: UpperListener = field(default_factory=UpperListener)
    uppers: dict[GlobalId, Antichain] = field(default_factory=dict)
    #: What was installed when the session began, and how much of it nobody asks for any more.
    found: int = 0
    unasked: int = 0
    kept: int = 0
    replaced: dict[GlobalId, tuple[str, ...]] = field(default_factory=dict)
    hydrating: dict[GlobalId, tuple[int, int]] = field(default_factory=dict)
    failed: dict[GlobalId, str] = field(default_factory=dict)
    #: What is to be known of sources that run.
    notes: dict[GlobalId, str] = field(default_factory=dict)


class Cluster:
    """The requested and the reported state of one cluster."""

    def __init__(self, name: str, writer_epochs: Mapping[GlobalId, WriterEpoch] | None = None) -> None:
        self.name = name
        self.history = History()
        self.sources = StorageHistory()
        self.merge = ReplicaMerge()
        self.scheduler = Scheduler(writer_epochs or {})
        #: Connected replicas.
        self.replicas: dict[ReplicaId, ReplicaView] = {}
        #: Where each singleton runs, with its durable writer epoch.
        self.hosts: dict[GlobalId, tuple[ReplicaId, WriterEpoch]] = {}
        #: Every replica that belongs to the cluster, connected or not, that the scheduler knows.
        self._scheduled: set[ReplicaId] = set()
        #: The newest placement of each source; an older one that becomes durable after it is void.
        self._placing: dict[GlobalId, RunOn] = {}
        #: Peeks sent to all that have no answer; what they read may have been dropped since.
        self._peeks: dict[PeekId, Peek] = {}
        self._seals: dict[GlobalId, TableSeal] = {}
        #: The newest one told, once there is a source that cuts at steps.
        self._opened: OpenStep | None = None
        for command in (CreateInstance(logging=LOGGING_IDS), InitializationComplete()):
            self.history.handle(command)

    # --- what is asked for --------------------------------------------------------------------------------

    def request(self, command: ComputeCommand) -> None:
        """Adds a command to the requested state and tells every replica."""
        self.history.handle(command)
        for view in self.replicas.values():
            view.link.put_compute(command)

    def create_collection(self, id: GlobalId, as_of: Antichain) -> None:
        self.merge.handle(CollectionCreated(id=id, as_of=as_of))

    def drop_collection(self, id: GlobalId) -> Effects:
        yield from self._merged(CollectionDropped(id=id))
        for view in self.replicas.values():
            kept: dict[GlobalId, Any]
            for kept in (view.uppers, view.replaced, view.hydrating, view.failed, view.notes):
                kept.pop(id, None)

    def follow(self, id: GlobalId, as_of: Antichain) -> None:
        self.merge.handle(TailRequested(id=id, as_of=as_of))

    def peek(self, peek: PeekId, id: GlobalId, at: Step, finishing: PlanValue, target: ReplicaId | None) -> Effects:
        """Sends a peek to all replicas, those that join later among them; or to its target alone."""
        yield from self._merged(PeekRequested(peek=peek, target=target))
        command = Peek(peek=peek, id=id, at=at, finishing=finishing)
        if target is None:
            self._peeks[peek] = command
            self.request(command)
        elif target in self.replicas:
            self.replicas[target].link.put_compute(command)

    def cancel_peek(self, peek: PeekId) -> Effects:
        yield from self._merged(PeekCancelRequested(peek=peek))

    def create_source(self, source: SourceDescription) -> Effects:
        self.sources.handle(CreateSources(sources=(source,)))
        yield from self.schedule_source(source.id)

    def alter_source(self, source: SourceDescription) -> None:
        """Gives a source another definition, and tells its writer; whoever becomes it is told as it begins."""
        self.sources.handle(AlterSources(sources=(source,)))
        host = self.hosts.get(source.id)
        if host is not None and host[0] in self.replicas:
            told = replace(source, writer_epoch=host[1])
            self.replicas[host[0]].link.put_storage(AlterSources(sources=(told,)))

    def schedule_source(self, id: GlobalId) -> Effects:
        yield from self._schedule(SourceCreated(id=id, singleton=True))

    def compact_source(self, command: AllowCompaction) -> Effects:
        """Moves the since of a source up; ``[]`` drops it."""
        self.sources.handle(command)
        host = self.hosts.get(command.id)
        if host is not None and host[0] in self.replicas:
            self.replicas[host[0]].link.put_storage(command)
        if command.since.is_closed:
            self.hosts.pop(command.id, None)
            self._seals.pop(command.id, None)
            yield from self._schedule(SourceDropped(id=command.id))

    def append(self, command: StorageCommand, id: GlobalId) -> None:
        """Sends an append to the writer of its table."""
        host = self.hosts.get(id)
        if host is not None and host[0] in self.replicas:
            self.replicas[host[0]].link.put_storage(command)

    @property
    def has_stepped_sources(self) -> bool:
        return any(not is_table(source) for source in self.sources)

    def open_step(self, opened: OpenStep) -> None:
        """Tells every replica, writers or not: whoever becomes a writer must not cut at a step of its predecessor."""
        if self.has_stepped_sources:
            self._opened = opened
            for view in self.replicas.values():
                view.link.put_storage(opened)

    def sealed(self, id: GlobalId) -> Antichain:
        """How far a source is complete, as everybody was told."""
        seal = self._seals.get(id)
        return MINIMUM if seal is None else seal.upper

    def seal(self, seals: tuple[TableSeal, ...]) -> None:
        self._seals.update((seal.id, seal) for seal in seals)
        for view in self.replicas.values():
            view.link.put_storage(SealTables(tables=seals))

    # --- replicas -----------------------------------------------------------------------------------------

    def joining(self, replica: ReplicaId) -> Effects:
        """A replica can be reached: what it shall run is decided, and made durable, before it is told anything."""
        known = replica in self._scheduled
        self._scheduled.add(replica)
        yield from self._schedule(ReplicaRecovered(replica=replica) if known else ReplicaAdded(replica=replica))

    def allotted(self, moves: Iterable[ScheduleAction]) -> Effects:
        """Performs moves whose writer epochs are durable."""
        for move in moves:
            match move:
                case RunOn(id=id, replica=replica, writer_epoch=epoch):
                    if epoch is None or id not in self.sources or self._placing.get(id) != move:
                        continue
                    self.hosts[id] = (replica, epoch)
                    if replica in self.replicas:
                        for command in self._create_commands(id):
                            self.replicas[replica].link.put_storage(command)
                        yield WriterIsPlaced(id=id)
                case StopOn(id=id, replica=replica):
                    if replica in self.replicas and self.hosts.get(id, (None,))[0] != replica:
                        stop = AllowCompaction(id=id, since=CLOSED)
                        self.replicas[replica].link.put_storage(stop)
                case _:
                    assert_never(move)

    def connected(self, replica: ReplicaId, link: Link) -> Effects:
        """Both sessions are accepted: queues the whole requested state."""
        yield from self._merged(ReplicaJoined(replica=replica))
        self.replicas[replica] = ReplicaView(link)
        placed = [id for id, (host, _) in self.hosts.items() if host == replica]
        storage: list[StorageCommand] = [CreateInstance()]
        if self._opened is not None:
            storage.append(self._opened)
        for id in placed:
            storage += self._create_commands(id)
        if self._seals:
            storage.append(SealTables(tables=tuple(self._seals.values())))
        storage.append(InitializationComplete())
        # The history forgets peeks on what was dropped, but somebody waits: the replica says that it is gone.
        orphans = [peek for id, peek in self._peeks.items() if id not in self.history.peeks]
        link.replay([*self.history.commands(), *orphans], storage)
        for id in placed:
            yield WriterIsPlaced(id=id)

    def lost(self, replica: ReplicaId) -> Effects:
        """The session ended. Its sources move to where they can run."""
        placed = [id for id, (host, _) in self.hosts.items() if host == replica]
        for id in placed:
            # At once, and not when its move is durable: it may be back before that.
            del self.hosts[id]
        if self.replicas.pop(replica, None) is not None:
            yield from (WriterIsLost(id=id) for id in placed)
            yield from self._merged(ReplicaLeft(replica=replica))
        yield from self._schedule(ReplicaFailed(replica=replica))

    def removed(self, replica: ReplicaId) -> Effects:
        yield from self.lost(replica)
        self._scheduled.discard(replica)
        yield from self._schedule(ReplicaRemoved(replica=replica))

    def _create_commands(self, id: GlobalId) -> Iterator[StorageCommand]:
        yield CreateSources(sources=(replace(self.sources.source(id), writer_epoch=self.hosts[id][1]),))
        since = self.sources.since(id)
        if since is not None and since > MINIMUM:
            yield AllowCompaction(id=id, since=since)

    def _schedule(self, event: ScheduleEvent) -> Effects:
        moves = self.scheduler.handle(event)
        for move in moves:
            newest = self._placing.get(move.id)
            if isinstance(move, RunOn):
                self._placing[move.id] = move
            elif newest is not None and newest.replica == move.replica:
                del self._placing[move.id]
        if moves:
            yield AllotWriters(moves=moves)

    # --- what replicas say --------------------------------------------------------------------------------

    def heard_compute(self, replica: ReplicaId, response: ComputeResponse) -> Effects:
        view = self.replicas[replica]
        match response:
            case FrontierUppers():
                for id, upper in view.compute.hear(response):
                    view.uppers[id] = upper
                    view.hydrating.pop(id, None)
                    if upper.is_closed:
                        view.compute.forget(id)
                        if self.history.dataflows.since(id) is None:
                            view.uppers.pop(id)  # it was dropped; else all that it reads is finished
                    yield from self._said(replica, FrontierHeard(id=id, upper=upper))
            case PeekResponse(peek=peek, outcome=outcome):
                answer = _answer(outcome)
                if answer is not None:
                    yield from self._said(replica, AnswerHeard(peek=peek, outcome=answer))
            case TailResponse(id=id, lower=lower, upper=upper, updates=updates):
                yield from self._said(replica, TailHeard(id=id, lower=lower, upper=upper, updates=updates))
            case DataflowStatus():
                yield from self._status(replica, view, response)
            case Inventory(exports=exports):
                view.found = len(exports)
                view.unasked = sum(self.history.dataflows.since(export.id) is None for export in exports)
            case Heartbeat():
                pass
            case _:
                assert_never(response)

    def heard_storage(self, replica: ReplicaId, response: StorageResponse) -> Effects:
        view = self.replicas[replica]
        match response:
            case FrontierUppers():
                for id, upper in view.storage.hear(response):
                    if upper.is_closed:
                        view.storage.forget(id)
            case AppendResult(id=id):
                if self.hosts.get(id, (None,))[0] == replica:
                    yield response
            case SourceStatus(id=id, status=status):
                match status:
                    case SourceFailed(error=error):
                        view.failed[id] = error
                        yield ObjectFailedOn(id=id, replica=replica, error=error)
                    case SourceRefused(fields=fields):
                        error = f"an installed source differs in {', '.join(fields)}"
                        view.failed[id] = error
                        yield ObjectFailedOn(id=id, replica=replica, error=error)
                    case SourceKept() | SourceAltered():
                        view.failed.pop(id, None)
                    case SourceRunning(note=note):
                        view.failed.pop(id, None)
                        view.notes[id] = note
                    case _:
                        assert_never(status)
            case StepReport(id=id):
                if self.hosts.get(id, (None,))[0] == replica:
                    yield response
            case SourceSealed(seal=seal):
                # From whoever: a seal is true for ever.
                if seal.id in self.sources and seal.upper > self.sealed(seal.id):
                    yield response
            case Heartbeat():
                pass
            case _:
                assert_never(response)

    def _status(self, replica: ReplicaId, view: ReplicaView, response: DataflowStatus) -> Effects:
        id = response.exports[0]
        match response.status:
            case Kept():
                view.kept += 1
            case Replaced(reasons=reasons):
                view.replaced[id] = tuple(str(reason) for reason in reasons)
            case Hydrating(done=done, total=total):
                view.hydrating[id] = (done, total)
            case Failed(error=error):
                for export in response.exports:
                    view.failed[export] = error
                    yield ObjectFailedOn(id=export, replica=replica, error=error)
            case _:
                assert_never(response.status)

    def _said(self, replica: ReplicaId, said: FrontierHeard | AnswerHeard | TailHeard) -> Effects:
        incarnation = self.merge.incarnation(replica)
        if incarnation is not None:
            yield from self._merged(ReplicaSaid(replica=replica, incarnation=incarnation, said=said))

    def _merged(self, event: MergeEvent) -> Effects:
        for action in self.merge.handle(event):
            yield from self._merge_effect(action)

    def _merge_effect(self, action: MergeAction) -> Effects:
        match action:
            case FrontierTold(id=id, upper=upper):
                yield FrontierRose(id=id, upper=upper)
            case PeekResponse(peek=peek, outcome=outcome):
                self.history.handle(CancelPeeks(peeks=(peek,)))
                self._peeks.pop(peek, None)
                yield PeekAnswered(peek=peek, outcome=outcome)
            case CancelOn(peek=peek, replicas=replicas):
                for replica in replicas:
                    if replica in self.replicas:
                        self.replicas[replica].link.put_compute(CancelPeeks(peeks=(peek,)))
            case TailResponse(id=id, lower=lower, upper=upper, updates=updates):
                yield TailTold(id=id, lower=lower, upper=upper, updates=updates)
            case Mistrust(replica=replica, why=why):
                yield EndLink(replica=replica, why=why)
            case _:
                assert_never(action)


def _answer(outcome: PeekOutcome) -> PeekRows | PeekFailed | None:
    match outcome:
        case PeekRows() | PeekFailed():
            return outcome
        case PeekRefused(refusal=refusal):
            return PeekFailed(error=str(refusal))
        case PeekCanceled():
            return None
        case _:
            assert_never(outcome)
