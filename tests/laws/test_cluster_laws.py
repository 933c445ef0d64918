"""Laws of a cluster: whatever is asked for, and whoever comes and goes, replicas run what is asked for.

The replicas are the real reconcilers, fed from the queues of their links, which are cut anywhere. The controller
around the cluster does as the real one does: what needs the disk happens late, in order, and the rest at once.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import assert_never

from hypothesis import given, settings
from hypothesis import strategies as st

from controller.cluster import (
    AllotWriters,
    Cluster,
    ClusterEffect,
    EndLink,
    ObjectFailedOn,
    PeekAnswered,
    WriterIsLost,
    WriterIsPlaced,
)
from controller.links import Link
from reconcile.actions import EndSession, Refuse, Reply
from reconcile.compute_actions import (
    CommandReceived,
    ComputeAction,
    PeekFinished,
    SessionClosed,
    SessionOpened,
    UpperReported,
)
from reconcile.compute_protocol import (
    AllowCompaction,
    CancelPeeks,
    ComputeCommand,
    ComputeResponse,
    CreateDataflows,
    Hello,
    Peek,
    PeekFailed,
    PeekResponse,
    PeekRows,
)
from reconcile.frontiers import CLOSED, MINIMUM, Antichain
from reconcile.ids import Epoch, GlobalId, PeekId, ReplicaId, SessionId, WriterEpoch
from reconcile.limits import SESSION_QUEUE_MAX
from reconcile.live import LiveDataflows
from reconcile.reconciler import Reconciler
from reconcile.scheduling import RunOn, ScheduleAction
from reconcile.sources import SourceDescription
from reconcile.storage_actions import NoteSeals, StorageAction, StorageCommandReceived
from reconcile.storage_protocol import (
    Append,
    CreateSources,
    SealTables,
    StorageCommand,
    StorageResponse,
    TableSeal,
)
from reconcile.storage_reconciler import StorageReconciler
from reconcile.updates import UpdateList
from tests.laws.commands import RightController

law = settings(max_examples=200, deadline=None)
#: A full queue takes a moment to fill.
slow_law = settings(law, max_examples=6)

REPLICAS = tuple(ReplicaId(number) for number in (1, 2, 3))

# --- what happens -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ask:
    """The controller says this to everybody, or asks one replica for it."""

    command: ComputeCommand
    target: ReplicaId | None


@dataclass(frozen=True, slots=True)
class AddSource:
    """A table is created."""


@dataclass(frozen=True, slots=True)
class MoveSince:
    """The since of a table rises, or it is dropped."""

    which: int
    since: Antichain


@dataclass(frozen=True, slots=True)
class Seal:
    """A table is complete further than before."""

    which: int


@dataclass(frozen=True, slots=True)
class Write:
    """An append goes to the writer of a table."""

    which: int


@dataclass(frozen=True, slots=True)
class Commit:
    """The oldest writer epochs that wait for it become durable."""


@dataclass(frozen=True, slots=True)
class Reach:
    """A replica accepts a session; it is told nothing before its writer epochs are durable."""

    replica: ReplicaId


@dataclass(frozen=True, slots=True)
class Connect:
    """A replica that was reached, and is not waited for, is told everything."""

    replica: ReplicaId


@dataclass(frozen=True, slots=True)
class Join:
    """Both, and what must be durable in between."""

    replica: ReplicaId


@dataclass(frozen=True, slots=True)
class Lose:
    """The session of a replica ends, in the middle of whatever is said; it may not notice, or die of it."""

    replica: ReplicaId
    noticed: bool
    restarts: bool


@dataclass(frozen=True, slots=True)
class Remove:
    """A replica is dropped for good."""

    replica: ReplicaId


@dataclass(frozen=True, slots=True)
class Consume:
    """A replica takes so many commands of each kind from its link."""

    replica: ReplicaId
    count: int


@dataclass(frozen=True, slots=True)
class Answer:
    """A replica finishes one of its peeks."""

    replica: ReplicaId
    which: int
    right: bool


@dataclass(frozen=True, slots=True)
class Rise:
    """A dataflow of a replica gets on."""

    replica: ReplicaId
    which: int
    upper: int


@dataclass(frozen=True, slots=True)
class Hear:
    """The controller hears so many replies of each kind."""

    replica: ReplicaId
    count: int


Happening = (
    Ask
    | AddSource
    | MoveSince
    | Seal
    | Write
    | Commit
    | Reach
    | Connect
    | Join
    | Lose
    | Remove
    | Consume
    | Answer
    | Rise
    | Hear
)

replicas = st.sampled_from([REPLICAS[0], REPLICAS[0], *REPLICAS])
numbers = st.integers(0, 5)
counts = st.sampled_from([1, 2, 100, 100])
others: tuple[st.SearchStrategy[Happening], ...] = (
    st.just(AddSource()),
    st.builds(MoveSince, numbers, st.sampled_from([Antichain.at(2), Antichain.at(4), CLOSED])),
    st.builds(Seal, numbers),
    st.builds(Write, numbers),
    st.just(Commit()),
    st.just(Commit()),
    st.builds(Reach, replicas),
    st.builds(Connect, replicas),
    st.builds(Join, replicas),
    st.builds(Join, replicas),
    st.builds(Join, replicas),
    st.builds(Lose, replicas, st.booleans(), st.booleans()),
    st.builds(Lose, replicas, st.booleans(), st.booleans()),
    st.builds(Consume, replicas, counts),
    st.builds(Consume, replicas, counts),
    st.builds(Consume, replicas, counts),
    st.builds(Answer, replicas, numbers, st.booleans()),
    st.builds(Answer, replicas, numbers, st.booleans()),
    st.builds(Rise, replicas, numbers, st.integers(0, 12)),
    st.builds(Hear, replicas, counts),
    st.builds(Hear, replicas, counts),
)
#: One choice in so many drops a replica for good.
RARE = 40


@st.composite
def histories(draw: st.DrawFn, length_max: int = 40) -> list[Happening]:
    """What a right controller asks, amid everything that can happen to its replicas."""
    controller = RightController(draw, internal=0)
    happens: list[Happening] = []
    for _ in range(draw(st.integers(0, length_max))):
        choice = draw(st.integers(0, RARE))
        if choice == RARE:
            happens.append(Remove(draw(replicas)))
        elif choice % 3:
            happens.append(draw(others[draw(st.integers(0, len(others) - 1))]))
        else:
            command = controller.say()
            target = draw(replicas) if isinstance(command, Peek) and draw(st.booleans()) else None
            happens += [] if command is None else [Ask(command, target)]
    return happens


# --- the world --------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Process:
    """One replica: the real machines, what it has in hand, and what it has said that nobody heard yet."""

    compute: Reconciler = field(default_factory=Reconciler)
    storage: StorageReconciler = field(default_factory=StorageReconciler)
    #: Peeks answered in this session.
    answered: set[PeekId] = field(default_factory=set)
    #: The last seals noted.
    noted: dict[GlobalId, TableSeal] = field(default_factory=dict)
    said_compute: deque[ComputeResponse] = field(default_factory=deque)
    said_storage: deque[StorageResponse] = field(default_factory=deque)


@dataclass(slots=True)
class Member:
    """One replica as the controller knows it."""

    process: Process = field(default_factory=Process)
    session: SessionId | None = None
    #: Whether writer epochs must be durable before it is told anything.
    waits: bool = False
    link: Link | None = None


def nothing() -> None:
    """Nobody is to be woken here."""


def overflown() -> None:
    raise AssertionError("a queue as short as this overflows")


class World:
    """A cluster, its replicas, and the controller around them."""

    def __init__(self) -> None:
        self.cluster = Cluster("main")
        self.members = {replica: Member() for replica in REPLICAS}
        self.sessions = 0
        #: Moves whose epochs are not durable yet, oldest first, each with the replica that waits for them.
        self.pending: deque[tuple[tuple[ScheduleAction, ...], ReplicaId | None]] = deque()
        #: Target of each peek that was asked and has no answer.
        self.running: dict[PeekId, ReplicaId | None] = {}
        #: Whether each table that lives has a writer that can be told something.
        self.tables: dict[GlobalId, bool] = {}
        self.tables_ever = 0
        self.seals: dict[GlobalId, TableSeal] = {}
        #: The last writer epoch of each table that was allotted, and that was told to a replica.
        self.allotted: dict[GlobalId, WriterEpoch] = {}
        self.told: dict[GlobalId, WriterEpoch] = {}
        self.add_source()
        for replica in REPLICAS[:2]:
            self.join(replica)

    # --- the controller -----------------------------------------------------------------------------------

    def perform(self, effects: Iterable[ClusterEffect], waiting: ReplicaId | None = None) -> None:
        for effect in effects:
            match effect:
                case PeekAnswered(peek=peek):
                    assert peek in self.running, "a peek is answered twice"
                    del self.running[peek]
                case AllotWriters(moves=moves):
                    self.allot(moves, waiting)
                case WriterIsPlaced(id=id):
                    assert not self.tables[id], "a writer is placed before the last one is lost"
                    self.tables[id] = True
                case WriterIsLost(id=id):
                    assert self.tables[id], "a writer is lost that was not there"
                    self.tables[id] = False
                case EndLink() | ObjectFailedOn():
                    raise AssertionError(f"every replica here is right: {effect}")
                case _:
                    pass

    def allot(self, moves: tuple[ScheduleAction, ...], waiting: ReplicaId | None) -> None:
        """Only writer epochs need the disk; what has none is done at once, before older moves that wait."""
        epochs = [move for move in moves if isinstance(move, RunOn)]
        for move in epochs:
            assert move.writer_epoch is not None
            assert move.writer_epoch > self.allotted.get(move.id, 0)
            self.allotted[move.id] = move.writer_epoch
        if epochs:
            self.pending.append((moves, waiting))
            if waiting is not None:
                self.members[waiting].waits = True
        else:
            self.perform(self.cluster.allotted(moves))

    def commit(self) -> None:
        if self.pending:
            moves, waiting = self.pending.popleft()
            self.perform(self.cluster.allotted(moves))
            if waiting is not None and all(other != waiting for _, other in self.pending):
                self.members[waiting].waits = False

    def ask(self, command: ComputeCommand, target: ReplicaId | None) -> None:
        cluster = self.cluster
        match command:
            case Peek(peek=peek, id=id, at=at, finishing=finishing):
                self.running[peek] = target
                self.perform(cluster.peek(peek, id, at, finishing, target))
            case CancelPeeks(peeks=peeks):
                for peek in peeks:
                    self.perform(cluster.cancel_peek(peek))
                    assert peek not in self.running
            case CreateDataflows(dataflows=dataflows):
                for description in dataflows:
                    for id in description.export_ids:
                        cluster.create_collection(id, description.as_of)
                cluster.request(command)
            case AllowCompaction(id=id, since=since):
                if since.is_closed:
                    self.perform(cluster.drop_collection(id))
                cluster.request(command)
            case _:
                cluster.request(command)

    def add_source(self) -> None:
        self.tables_ever += 1
        id = GlobalId("s", self.tables_ever)
        self.tables[id] = False
        self.perform(self.cluster.create_source(SourceDescription(id=id, definition=(("type", "table"),))))

    def move_since(self, id: GlobalId, since: Antichain) -> None:
        if since.is_closed:
            del self.tables[id]
            self.seals.pop(id, None)
        self.perform(self.cluster.compact_source(AllowCompaction(id=id, since=since)))

    def seal(self, id: GlobalId) -> None:
        last = self.seals.get(id)
        further = Antichain.at(1 if last is None or last.upper.step is None else last.upper.step + 1)
        self.seals[id] = TableSeal(id=id, durable=MINIMUM, upper=further)
        self.cluster.seal((self.seals[id],))

    def write(self, id: GlobalId) -> None:
        """An append reaches the writer, if there is one, and nobody else."""
        before = {replica: len(member.link.storage) for replica, member in self.members.items() if member.link}
        append = Append(id=id, upper=Antichain.at(100), updates=UpdateList(), token="t")

        self.cluster.append(append, id)

        hosts = [self.cluster.hosts[id][0]] if self.tables[id] else []
        grown = [
            replica
            for replica, member in self.members.items()
            if member.link and len(member.link.storage) > before[replica]
        ]
        assert grown == hosts

    # --- replicas -----------------------------------------------------------------------------------------

    def reach(self, replica: ReplicaId) -> None:
        member = self.members[replica]
        if member.session is not None:
            return
        self.sessions += 1
        member.session = SessionId(f"session {self.sessions}")
        process = member.process
        process.answered.clear()
        process.noted.clear()
        hello = SessionOpened(hello=Hello(epoch=Epoch(1), session=member.session))
        for actions in (process.compute.handle(hello), process.storage.handle(hello)):
            assert not any(isinstance(action, Refuse) for action in actions)
        self.perform(self.cluster.joining(replica), waiting=replica)

    def connect(self, replica: ReplicaId) -> None:
        member = self.members[replica]
        if member.session is not None and member.link is None and not member.waits:
            member.link = Link(on_put=nothing, on_overflow=overflown)
            self.perform(self.cluster.connected(replica, member.link))

    def join(self, replica: ReplicaId) -> None:
        """Older moves become durable first; those that nobody waits for may stay behind."""
        self.reach(replica)
        while self.members[replica].waits:
            self.commit()
        self.connect(replica)

    def lose(self, replica: ReplicaId, *, noticed: bool, restarts: bool) -> None:
        member = self.members[replica]
        if restarts:
            member.process = Process()
        elif noticed and member.session is not None:
            member.process.compute.handle(SessionClosed(session=member.session))
            member.process.storage.handle(SessionClosed(session=member.session))
        member.process.said_compute.clear()
        member.process.said_storage.clear()
        member.session, member.link, member.waits = None, None, False
        self.pending = deque((moves, None if other == replica else other) for moves, other in self.pending)
        self.perform(self.cluster.lost(replica))

    def remove(self, replica: ReplicaId) -> None:
        """Dropped for good: its number is never used again. The last one stays, so that something can be shown."""
        if len(self.members) > 1:
            self.lose(replica, noticed=True, restarts=False)
            del self.members[replica]
            self.perform(self.cluster.removed(replica))

    def consume(self, replica: ReplicaId, count: int) -> None:
        link = self.members[replica].link
        if link is None:
            return
        for _ in range(min(count, len(link.storage))):
            self.consume_storage(replica, link.storage.popleft())
        for _ in range(min(count, len(link.compute))):
            self.consume_compute(replica, link.compute.popleft())

    def consume_compute(self, replica: ReplicaId, command: ComputeCommand) -> None:
        member = self.members[replica]
        if isinstance(command, Peek):
            assert self.running.get(command.peek) in (None, replica), "a targeted peek goes elsewhere"
        for action in member.process.compute.handle(CommandReceived(session=member.session, command=command)):
            assert not isinstance(action, Refuse | EndSession), f"{command}: {action}"
            self.said(member, action)
        member.process.compute.check()

    def consume_storage(self, replica: ReplicaId, command: StorageCommand) -> None:
        member = self.members[replica]
        if isinstance(command, CreateSources):
            for source in command.sources:
                assert source.writer_epoch is not None
                assert source.writer_epoch > self.told.get(source.id, 0), "an epoch serves two writers"
                self.told[source.id] = source.writer_epoch
        actions = member.process.storage.handle(StorageCommandReceived(session=member.session, command=command))
        member.process.storage.check()
        self.take_storage(member.process, command, actions)

    def take_storage(self, process: Process, command: StorageCommand, actions: tuple[StorageAction, ...]) -> None:
        for action in actions:
            assert not isinstance(action, Refuse | EndSession), f"{command}: {action}"
            if isinstance(action, NoteSeals):
                process.noted.update((seal.id, seal) for seal in action.seals)
            if isinstance(action, Reply):
                process.said_storage.append(action.response)

    def said(self, member: Member, action: ComputeAction) -> None:
        """What is said in a session that ended unnoticed is not heard."""
        if isinstance(action, Reply) and action.session == member.session:
            if isinstance(action.response, PeekResponse):
                member.process.answered.add(action.response.peek)
            member.process.said_compute.append(action.response)

    def answer(self, replica: ReplicaId, which: int, *, right: bool) -> None:
        process = self.members[replica].process
        peeks = [peek.peek for peek in process.compute.installed.peeks]
        if peeks:
            outcome = PeekRows(rows="rows") if right else PeekFailed(error="overflow")
            finished = PeekFinished(peek=peeks[which % len(peeks)], outcome=outcome)
            for action in process.compute.handle(finished):
                self.said(self.members[replica], action)

    def rise(self, replica: ReplicaId, which: int, upper: int) -> None:
        process = self.members[replica].process
        exports = [export.id for export in process.compute.installed.inventory().exports]
        if exports:
            report = UpperReported(id=exports[which % len(exports)], upper=Antichain.at(upper))
            for action in process.compute.handle(report):
                self.said(self.members[replica], action)

    def hear(self, replica: ReplicaId, count: int) -> None:
        member = self.members[replica]
        if member.link is None:
            return
        process = member.process
        for _ in range(min(count, len(process.said_compute))):
            self.perform(self.cluster.heard_compute(replica, process.said_compute.popleft()))
        for _ in range(min(count, len(process.said_storage))):
            self.perform(self.cluster.heard_storage(replica, process.said_storage.popleft()))

    # --- all of it ----------------------------------------------------------------------------------------

    def happen(self, happening: Happening) -> None:
        match happening:
            case Ask(command=command, target=target):
                self.ask(command, target)
            case AddSource():
                self.add_source()
            case Commit():
                self.commit()
            case MoveSince() | Seal() | Write():
                tables = list(self.tables)
                if tables:
                    self.happen_to_table(tables[happening.which % len(tables)], happening)
            case _:
                if happening.replica in self.members:
                    self.happen_to_replica(happening.replica, happening)
        self.check()

    def happen_to_table(self, id: GlobalId, happening: MoveSince | Seal | Write) -> None:
        match happening:
            case MoveSince(since=since):
                self.move_since(id, since)
            case Seal():
                self.seal(id)
            case Write():
                self.write(id)
            case _:
                assert_never(happening)

    def happen_to_replica(
        self, replica: ReplicaId, happening: Reach | Connect | Join | Lose | Remove | Consume | Answer | Rise | Hear
    ) -> None:
        match happening:
            case Reach():
                self.reach(replica)
            case Connect():
                self.connect(replica)
            case Join():
                self.join(replica)
            case Lose(noticed=noticed, restarts=restarts):
                self.lose(replica, noticed=noticed, restarts=restarts)
            case Remove():
                self.remove(replica)
            case Consume(count=count):
                self.consume(replica, count)
            case Answer(which=which, right=right):
                self.answer(replica, which, right=right)
            case Rise(which=which, upper=upper):
                self.rise(replica, which, upper)
            case Hear(count=count):
                self.hear(replica, count)
            case _:
                assert_never(happening)

    def settle(self) -> None:
        """All is well from now on: every replica is reached, told everything, and heard."""
        while self.pending:
            self.commit()
        for replica in self.members:
            self.join(replica)
        for _ in range(3):
            for replica in self.members:
                self.consume(replica, 10_000)
                self.hear(replica, 10_000)
        self.check()

    # --- what always holds --------------------------------------------------------------------------------

    def check(self) -> None:
        cluster = self.cluster
        for part in (cluster.history, cluster.sources, cluster.merge, cluster.scheduler):
            part.check()
        for id, placed in self.tables.items():
            host = cluster.hosts.get(id)
            assert placed == (host is not None and host[0] in cluster.replicas)
        assert cluster.hosts.keys() <= self.tables.keys()
        for replica, member in self.members.items():
            if member.link is not None and not member.link.compute:
                self.check_compute(replica, member.process)
            if member.link is not None and not member.link.storage:
                self.check_storage(replica, member.process)

    def check_compute(self, replica: ReplicaId, process: Process) -> None:
        """It has taken in all that was said to it: it runs what is asked for, and works on all it has not answered."""
        installed = process.compute.installed
        assert flows(installed.dataflows) == flows(self.cluster.history.dataflows)
        mine = {peek for peek, target in self.running.items() if target in (None, replica)}
        assert {peek.peek for peek in installed.peeks} == mine - process.answered

    def check_storage(self, replica: ReplicaId, process: Process) -> None:
        hosts, sources = self.cluster.hosts, self.cluster.sources
        expected = {id: (epoch, sources.since(id)) for id, (host, epoch) in hosts.items() if host == replica}
        running = process.storage.ingesting.snapshot()
        assert {source.id: (source.writer_epoch, since) for source, since, _ in running} == expected
        assert {id: seal for id, seal in process.noted.items() if id in self.tables} == self.seals


def flows(dataflows: LiveDataflows) -> list[tuple[tuple[GlobalId, ...], dict[GlobalId, Antichain]]]:
    """Exports with their sinces; an instance may have rendered them in another order."""
    return sorted(((flow.description.export_ids, dict(flow.sinces)) for flow in dataflows), key=lambda flow: flow[0])


# --- the laws ---------------------------------------------------------------------------------------------


@law
@given(happens=histories())
def test_a_replica_that_has_heard_everything_runs_what_is_asked_for(happens: list[Happening]) -> None:
    world = World()

    for happening in happens:
        world.happen(happening)


@law
@given(happens=histories())
def test_when_all_is_well_each_table_has_one_writer_and_every_replica_works_on_every_peek(
    happens: list[Happening],
) -> None:
    world = World()
    for happening in happens:
        world.happen(happening)

    world.settle()

    assert all(world.tables.values())
    runs = {
        id: [
            replica
            for replica, member in world.members.items()
            if any(source.id == id for source, _, _ in member.process.storage.ingesting.snapshot())
        ]
        for id in world.tables
    }
    assert runs == {id: [world.cluster.hosts[id][0]] for id in world.tables}
    # What waits can be answered: its collection is there.
    live = {id for flow in world.cluster.history.dataflows for id, since in flow.sinces.items() if since != CLOSED}
    for member in world.members.values():
        assert {peek.id for peek in member.process.compute.installed.peeks} <= live


@slow_law
@given(replayed=st.integers(0, 5), behind=st.integers(0, 5))
def test_a_link_overflows_once_when_too_much_waits_behind_what_was_replayed(replayed: int, behind: int) -> None:
    overflows: list[None] = []
    wakes: list[None] = []
    link = Link(on_put=lambda: wakes.append(None), on_overflow=lambda: overflows.append(None))
    seal = SealTables(tables=())

    link.replay([], [seal] * replayed)
    for _ in range(SESSION_QUEUE_MAX):
        link.put_storage(seal)
    assert overflows == []
    for _ in range(behind):
        link.put_storage(seal)

    assert overflows == [None] * min(behind, 1)
    assert len(link.storage) == replayed + SESSION_QUEUE_MAX + behind
    assert len(wakes) == 1 + SESSION_QUEUE_MAX + behind
