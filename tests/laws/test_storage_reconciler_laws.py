"""Laws of the storage reconciler: a source is kept, altered or refused, never replaced; an append is answered once.

The models are the rules on plain dictionaries, and a runtime that performs writes one after the other, late.
"""

import copy
from collections import Counter, deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import assert_never

from hypothesis import given, settings
from hypothesis import strategies as st

from reconcile.actions import Accept, EndSession, Reply
from reconcile.compute_actions import SessionClosed, SessionOpened, UpperReported
from reconcile.compute_protocol import (
    AllowCompaction,
    CreateInstance,
    FrontierUppers,
    Hello,
    InitializationComplete,
)
from reconcile.frontiers import CLOSED, MINIMUM, Antichain
from reconcile.ids import Epoch, GlobalId, SessionId, Step, WriterEpoch
from reconcile.sessions import Stage
from reconcile.sources import SourceDescription
from reconcile.storage_actions import (
    AlterSource,
    AppendDurable,
    CompactShard,
    ContentsRead,
    ReadContents,
    RunSource,
    SourceStopped,
    StopSource,
    StorageAction,
    StorageCommandReceived,
    StorageEvent,
    Write,
)
from reconcile.storage_protocol import (
    AlterSources,
    Append,
    AppendResult,
    AppendSnapshot,
    CreateSources,
    SourceAltered,
    SourceKept,
    SourceRefused,
    SourceStatus,
    StorageCommand,
    StorageResponse,
)
from reconcile.storage_reconciler import StorageReconciler
from reconcile.updates import Update, UpdateList
from reconcile.uppers import UpperListener

law = settings(max_examples=200, deadline=None)

IDS = tuple(GlobalId("s", number) for number in range(1, 4))
ids = st.sampled_from(IDS)
steps = st.integers(0, 8)
frontiers = st.one_of(steps.map(Antichain.at), steps.map(Antichain.at), steps.map(Antichain.at), st.just(CLOSED))


def act(reconciler: StorageReconciler, event: StorageEvent) -> tuple[StorageAction, ...]:
    actions = reconciler.handle(event)
    reconciler.check()
    return actions


def greet(reconciler: StorageReconciler, session: str) -> None:
    actions = act(reconciler, SessionOpened(hello=Hello(epoch=Epoch(1), session=SessionId(session))))
    assert isinstance(actions[-1], Accept)


def say(reconciler: StorageReconciler, session: str, command: StorageCommand) -> tuple[StorageAction, ...]:
    return act(reconciler, StorageCommandReceived(session=SessionId(session), command=command))


def replies(actions: tuple[StorageAction, ...]) -> list[StorageResponse]:
    return [action.response for action in actions if isinstance(action, Reply)]


# --- reconciliation ---------------------------------------------------------------------------------------

FIELDS = ("type", "name", "size")


@dataclass(frozen=True, slots=True)
class Wanted:
    """One source as a term asks for it."""

    source: SourceDescription
    since: Antichain


definitions = st.tuples(
    st.just("table"), st.sampled_from(["a", "a", "b"]), st.one_of(st.none(), st.sampled_from(["1", "1", "2"]))
).flatmap(
    lambda values: st.permutations(
        [(name, value) for name, value in zip(FIELDS, values, strict=True) if value is not None]
    )
)
described = st.builds(
    SourceDescription,
    id=ids,
    definition=definitions.map(tuple),
    alterable=st.lists(st.sampled_from(FIELDS), max_size=2, unique=True).map(tuple),
    writer_epoch=st.sampled_from([None, WriterEpoch(1), WriterEpoch(2)]),
)
wanted_sources = st.builds(Wanted, described, steps.map(Antichain.at))
terms = st.lists(wanted_sources, max_size=3, unique_by=lambda wanted: wanted.source.id)
Report = UpperReported | SourceStopped
reports: st.SearchStrategy[Report] = st.one_of(
    st.builds(UpperReported, id=ids, upper=frontiers),
    st.builds(UpperReported, id=ids, upper=frontiers),
    st.builds(SourceStopped, id=ids, error=st.just("disk full")),
)


def window(term: list[Wanted]) -> list[StorageCommand]:
    compactions = [AllowCompaction(id=wanted.source.id, since=wanted.since) for wanted in term]
    return [CreateInstance(), *(CreateSources(sources=(wanted.source,)) for wanted in term), *compactions]


def begin(reconciler: StorageReconciler, session: str, term: list[Wanted]) -> tuple[StorageAction, ...]:
    """A whole start of a term; what it did at ``InitializationComplete``."""
    greet(reconciler, session)
    for command in window(term):
        assert say(reconciler, session, command) == ()
    return say(reconciler, session, InitializationComplete())


@dataclass(slots=True)
class Running:
    """One running source as the rules say."""

    source: SourceDescription
    since: Antichain
    upper: Antichain = MINIMUM
    ended: bool = False


@dataclass(slots=True)
class Verdicts:
    """What a term does to what runs; fields as a set, because their order says nothing."""

    statuses: list[tuple[GlobalId, type[object], set[str]]] = field(default_factory=list)
    started: list[SourceDescription] = field(default_factory=list)
    altered: list[SourceDescription] = field(default_factory=list)


def judged(running: dict[GlobalId, Running], term: list[Wanted]) -> Verdicts:
    """The rules, source by source; ``running`` is as they leave it."""
    verdicts = Verdicts()
    for id in set(running) - {wanted.source.id for wanted in term}:
        del running[id]
    for wanted in term:
        source, have = wanted.source, running.get(wanted.source.id)
        if have is None:
            running[source.id] = Running(source, wanted.since)
            verdicts.started.append(source)
            continue
        fields = {name for name, _ in set(have.source.definition) ^ set(source.definition)}
        if not fields <= set(source.alterable):
            verdicts.statuses.append((source.id, SourceRefused, fields))
            continue
        verdicts.statuses.append((source.id, SourceAltered if fields else SourceKept, fields))
        if fields or have.source.writer_epoch != source.writer_epoch:
            have.source = source
            verdicts.altered.append(source)
        have.since = max(have.since, wanted.since)
        if have.ended:
            have.ended = False
            verdicts.started.append(have.source)
    return verdicts


@law
@given(past=st.lists(st.tuples(terms, st.lists(reports, max_size=6)), max_size=3), term=terms)
def test_an_instance_runs_what_is_asked_for_and_what_it_had_to_refuse(
    past: list[tuple[list[Wanted], list[Report]]], term: list[Wanted]
) -> None:
    reconciler = StorageReconciler()
    running: dict[GlobalId, Running] = {}

    for number, (asked, heard) in enumerate([*past, (term, [])]):
        before = set(running)
        actions = begin(reconciler, f"session {number}", asked)
        verdicts = judged(running, asked)

        assert [
            (one.id, type(one.status), set(getattr(one.status, "fields", ()))) for one in statuses_of(actions)
        ] == verdicts.statuses
        assert by_id([action.source for action in actions if isinstance(action, RunSource)]) == by_id(verdicts.started)
        assert [action.source for action in actions if isinstance(action, AlterSource)] == verdicts.altered
        assert {action.id for action in actions if isinstance(action, StopSource)} == before - set(running)
        for report in heard:
            act(reconciler, report)
            if report.id in running and isinstance(report, UpperReported):
                running[report.id].upper = max(running[report.id].upper, report.upper)
            elif report.id in running:
                running[report.id].ended = True
        snapshot = reconciler.ingesting.snapshot()
        assert {source.id: (source, since, upper) for source, since, upper in snapshot} == {
            id: (one.source, one.since, one.upper) for id, one in running.items()
        }


def statuses_of(actions: tuple[StorageAction, ...]) -> list[SourceStatus]:
    verdicts = SourceKept | SourceAltered | SourceRefused
    told = [response for response in replies(actions) if isinstance(response, SourceStatus)]
    return [one for one in told if isinstance(one.status, verdicts)]


def by_id(sources: list[SourceDescription]) -> list[SourceDescription]:
    return sorted(sources, key=lambda source: source.id)


@law
@given(past=terms, term=terms, altered=st.lists(described, max_size=4))
def test_a_definition_altered_within_a_term_is_judged_as_at_its_start(
    past: list[Wanted], term: list[Wanted], altered: list[SourceDescription]
) -> None:
    reconciler = StorageReconciler()
    running: dict[GlobalId, Running] = {}
    for number, asked in enumerate((past, term)):
        actions = begin(reconciler, f"session {number}", asked)
        judged(running, asked)
    refused = {status.id for status in statuses_of(actions) if isinstance(status.status, SourceRefused)}

    for source in altered:
        actions = say(reconciler, "session 1", AlterSources(sources=(source,)))

        if source.id not in running or source.id in refused:
            assert actions == ()
            continue
        one = {source.id: running[source.id]}
        verdicts = judged(one, [Wanted(source, MINIMUM)])
        told = [(each.id, type(each.status), set(getattr(each.status, "fields", ()))) for each in statuses_of(actions)]
        assert told == verdicts.statuses
        assert [action.source for action in actions if isinstance(action, AlterSource)] == verdicts.altered
        assert len(actions) == len(verdicts.statuses) + len(verdicts.altered)
        refused |= {id for id, kind, _ in verdicts.statuses if kind is SourceRefused}
    snapshot = reconciler.ingesting.snapshot()
    assert {source.id: source for source, _, _ in snapshot} == {id: each.source for id, each in running.items()}


@law
@given(term=terms, altered=st.lists(described, max_size=4))
def test_a_definition_altered_before_the_term_has_begun_is_the_one_asked_for(
    term: list[Wanted], altered: list[SourceDescription]
) -> None:
    reconciler = StorageReconciler()
    greet(reconciler, "first")
    for command in [*window(term), *(AlterSources(sources=(source,)) for source in altered)]:
        assert say(reconciler, "first", command) == ()

    actions = say(reconciler, "first", InitializationComplete())

    newest = {wanted.source.id: wanted.source for wanted in term}
    newest.update((source.id, source) for source in altered if source.id in newest)
    assert [action.source for action in actions if isinstance(action, RunSource)] == list(newest.values())


@law
@given(past=terms, heard=st.lists(reports, max_size=4), term=terms, later=st.lists(reports, max_size=6))
def test_nothing_is_said_of_a_refused_source_nor_done_to_it(
    past: list[Wanted], heard: list[Report], term: list[Wanted], later: list[Report]
) -> None:
    reconciler = StorageReconciler()
    begin(reconciler, "past", past)
    for report in heard:
        act(reconciler, report)
    before = {entry[0].id: entry[:2] for entry in reconciler.ingesting.snapshot()}

    actions = begin(reconciler, "now", term)
    refused = {status.id for status in statuses_of(actions) if isinstance(status.status, SourceRefused)}
    for report in later:
        if report.id in refused:
            assert act(reconciler, report) == ()
    for id in refused:
        updates = UpdateList((Update(step=Step(20), row="late"),))
        assert say(reconciler, "now", Append(id=id, upper=Antichain.at(21), updates=updates, token="t")) == ()
        assert say(reconciler, "now", AllowCompaction(id=id, since=Antichain.at(30))) == ()
        assert say(reconciler, "now", AllowCompaction(id=id, since=CLOSED)) == ()

    after = {entry[0].id: entry[:2] for entry in reconciler.ingesting.snapshot()}
    assert {id: after[id] for id in refused} == {id: before[id] for id in refused}
    done = [action for action in actions if isinstance(action, RunSource | AlterSource)]
    assert refused.isdisjoint(action.source.id for action in done)
    touched = [action for action in actions if isinstance(action, StopSource | CompactShard)]
    assert refused.isdisjoint(action.id for action in touched)


# --- uppers, under anything at all ------------------------------------------------------------------------

commands: st.SearchStrategy[StorageCommand] = st.one_of(
    st.builds(lambda wanted: CreateSources(sources=(wanted.source,)), wanted_sources),
    st.builds(lambda wanted: CreateSources(sources=(wanted.source,)), wanted_sources),
    st.builds(AllowCompaction, id=ids, since=frontiers),
    st.just(InitializationComplete()),
    st.just(InitializationComplete()),
    st.just(CreateInstance()),
)
#: A whole term, a single word, or the end of a session.
Event = tuple[Wanted, ...] | StorageCommand | Report | None
events: st.SearchStrategy[Event] = st.one_of(
    terms.map(tuple), terms.map(tuple), commands, commands, reports, reports, reports, st.none()
)


class Ear:
    """What one session hears of uppers."""

    def __init__(self) -> None:
        self._listener = UpperListener()
        #: What was heard of each source since it last started; ``[]`` is the last word.
        self.heard: dict[GlobalId, Antichain] = {}
        self.refused: set[GlobalId] = set()

    def listen(self, actions: tuple[StorageAction, ...]) -> None:
        for action in actions:
            if isinstance(action, RunSource) and self.heard.get(action.source.id) == CLOSED:
                del self.heard[action.source.id]
        for response in replies(actions):
            if isinstance(response, SourceStatus) and isinstance(response.status, SourceRefused):
                self.refused.add(response.id)
            if isinstance(response, FrontierUppers):
                for id, upper in self._listener.hear(response):
                    assert self.heard.get(id) != CLOSED, "silence after the last word"
                    self.heard[id] = upper
                    if upper.is_closed:
                        self._listener.forget(id)


@settings(law, max_examples=300)
@given(happens=st.integers(0, 30).flatmap(lambda length: st.lists(events, min_size=length, max_size=length)))
def test_told_uppers_never_go_back_in_a_session_and_sum_to_the_truth(happens: list[Event]) -> None:
    reconciler, session, ear = StorageReconciler(), 0, Ear()
    begin(reconciler, "session 0", [])

    for happening in happens:
        stage = reconciler.sessions.stage
        if isinstance(happening, tuple):
            session, stage = session + 1, Stage.GREETED
            actions = begin(reconciler, f"session {session}", list(happening))
        elif happening is None:
            actions = act(reconciler, SessionClosed(session=SessionId(f"session {session}")))
        elif isinstance(happening, StorageCommand):
            actions = say(reconciler, f"session {session}", happening)
        else:
            actions = act(reconciler, happening)

        if stage is not Stage.RUNNING:
            ear = Ear()
        assert all(action.session == f"session {session}" for action in actions if isinstance(action, Reply))
        ear.listen(actions)
        if reconciler.sessions.stage is Stage.RUNNING:
            uppers = {source.id: upper for source, _, upper in reconciler.ingesting.snapshot()}
            for id in uppers.keys() - ear.refused:
                assert ear.heard.get(id, MINIMUM) == uppers[id]
            assert ear.refused.isdisjoint(ear.heard)
            assert all(upper.is_closed for id, upper in ear.heard.items() if id not in uppers)
        else:
            assert replies(actions) == []


# --- appends ----------------------------------------------------------------------------------------------

TABLE = SourceDescription(id=IDS[0], definition=(("type", "table"),))


@dataclass(frozen=True, slots=True)
class Send:
    """The controller appends a row at each of these steps."""

    steps: tuple[int, ...]
    upper: int
    token: str

    def command(self, number: int) -> Append:
        updates = tuple(Update(step=Step(step), row=(number, place)) for place, step in enumerate(self.steps))
        return Append(id=TABLE.id, upper=Antichain.at(self.upper), updates=UpdateList(updates), token=self.token)


@dataclass(frozen=True, slots=True)
class Replace:
    """The controller sends all that the table shall hold."""

    rows: tuple[str, ...]
    upper: int
    token: str

    def command(self, _: int) -> AppendSnapshot:
        return AppendSnapshot(id=TABLE.id, upper=Antichain.at(self.upper), rows=self.rows, token=self.token)


@dataclass(frozen=True, slots=True)
class Work:
    """The runtime does the next thing it was asked."""


@dataclass(frozen=True, slots=True)
class Rise:
    """The shard turns out to be further."""

    upper: int


@dataclass(frozen=True, slots=True)
class Disconnect:
    """The session ends."""


@dataclass(frozen=True, slots=True)
class Reconnect:
    """Another session begins, with these appends in its window."""

    window: tuple[Send, ...]


tokens = st.sampled_from(["t1", "t2", "t3"])
appended_steps = st.lists(st.integers(0, 3), max_size=4)
sends = st.builds(
    lambda lower, offsets, token: Send(tuple(lower + one for one in offsets), lower + 4, token),
    st.integers(0, 16),
    appended_steps,
    tokens,
)
replaces = st.builds(Replace, st.lists(st.sampled_from("xyz"), max_size=3).map(tuple), st.integers(0, 20), tokens)
working = st.just(Work())
Doing = Send | Work | Rise | Disconnect | Reconnect
doings: st.SearchStrategy[Doing] = st.one_of(
    sends,
    sends,
    sends,
    working,
    working,
    st.builds(Rise, st.integers(0, 16)),
    st.just(Disconnect()),
    st.builds(Reconnect, st.lists(sends, max_size=2).map(tuple)),
    st.builds(Reconnect, st.lists(sends, max_size=2).map(tuple)),
)


@dataclass
class Desk:
    """Who waits for which result: each append is judged when it is sent, and answered when its own write is done."""

    reconciler: StorageReconciler = field(default_factory=StorageReconciler)
    session: int = 0
    connected: bool = False
    #: What lies below was reported or accepted.
    accepted: int = 0
    #: The writes under way, each with the session that asked and the result it waits for.
    lane: deque[tuple[int, Write, AppendResult]] = field(default_factory=deque)
    sent: int = 0

    def connect(self, window: tuple[Send, ...]) -> None:
        self.session, self.connected = self.session + 1, True
        greet(self.reconciler, str(self.session))
        appends = [self.next_append(send) for send in window]
        asked: list[StorageCommand] = [CreateInstance(), CreateSources(sources=(TABLE,)), *appends]
        for command in asked:
            assert say(self.reconciler, str(self.session), command) == ()
        actions = say(self.reconciler, str(self.session), InitializationComplete())
        assert relevant(actions) == [one for append in appends for one in self.judge(append)]

    def send(self, send: Send) -> None:
        append = self.next_append(send)
        actions = say(self.reconciler, str(self.session), append)
        if self.connected:
            assert relevant(actions) == self.judge(append)
        else:
            assert relevant(actions) == []

    def next_append(self, send: Send) -> Append:
        self.sent += 1
        return send.command(self.sent)

    def judge(self, append: Append) -> list[Write | AppendResult]:
        """What must come of it at once."""
        assert isinstance(append.updates, UpdateList)
        assert append.upper.step is not None
        in_time = tuple(update for update in append.updates.updates if update.step >= self.accepted)
        if append.upper.step <= self.accepted:
            late = len(append.updates)
            upper = Antichain.at(self.accepted)
            return [AppendResult(id=TABLE.id, token=append.token, upper=upper, left_out=late)]
        self.accepted = append.upper.step
        write = Write(id=TABLE.id, upper=append.upper, updates=UpdateList(in_time), token=append.token)
        left_out = len(append.updates) - len(in_time)
        result = AppendResult(id=TABLE.id, token=append.token, upper=append.upper, left_out=left_out)
        self.lane.append((self.session, write, result))
        return [write]

    def work(self) -> None:
        if self.lane:
            session, write, result = self.lane.popleft()
            assert relevant(act(self.reconciler, UpperReported(id=TABLE.id, upper=write.upper))) == []
            actions = act(self.reconciler, AppendDurable(id=TABLE.id, token=write.token))
            assert relevant(actions) == ([result] if self.connected and session == self.session else [])

    def rise(self, upper: int) -> None:
        self.accepted = max(self.accepted, upper)
        assert relevant(act(self.reconciler, UpperReported(id=TABLE.id, upper=Antichain.at(upper)))) == []

    def disconnect(self) -> None:
        self.connected = False
        act(self.reconciler, SessionClosed(session=SessionId(str(self.session))))


def relevant(actions: tuple[StorageAction, ...]) -> list[Write | AppendResult]:
    told = [action.response if isinstance(action, Reply) else action for action in actions]
    return [one for one in told if isinstance(one, Write | AppendResult)]


@law
@given(doing=st.integers(0, 40).flatmap(lambda length: st.lists(doings, min_size=length, max_size=length)))
def test_an_append_writes_what_is_not_late_and_is_answered_in_its_session_when_that_is_durable(
    doing: list[Doing],
) -> None:
    desk = Desk()
    desk.connect(())

    for one in doing:
        match one:
            case Send():
                desk.send(one)
            case Work():
                desk.work()
            case Rise(upper=upper):
                desk.rise(upper)
            case Disconnect():
                desk.disconnect()
            case Reconnect(window=window):
                desk.connect(window)
            case _:
                assert_never(one)

    while desk.lane:
        desk.work()


@law
@given(
    doing=st.integers(0, 30).flatmap(
        lambda length: st.lists(st.one_of(sends, replaces, replaces, working), min_size=length, max_size=length)
    )
)
def test_a_table_holds_its_last_snapshot_and_what_was_appended_since(doing: list[Send | Replace | Work]) -> None:
    reconciler = StorageReconciler()
    begin(reconciler, "a", [Wanted(TABLE, MINIMUM)])
    wanted: Counter[Hashable] = Counter()
    accepted = 0
    held: Counter[Hashable] = Counter()
    lane: deque[Write | ReadContents] = deque()
    asked: list[str] = []
    answered: list[str] = []

    def perform(actions: tuple[StorageAction, ...]) -> None:
        lane.extend(action for action in actions if isinstance(action, Write | ReadContents))
        answered.extend(response.token for response in replies(actions) if isinstance(response, AppendResult))

    def work() -> None:
        action = lane.popleft()
        if isinstance(action, ReadContents):
            perform(act(reconciler, ContentsRead(id=TABLE.id, rows=tuple(held.elements()))))
            return
        assert isinstance(action.updates, UpdateList)
        for update in action.updates.updates:
            held[update.row] += update.diff
            assert held[update.row] >= 0
        perform(act(reconciler, AppendDurable(id=TABLE.id, token=action.token)))

    for number, one in enumerate(doing):
        match one:
            case Work():
                if lane:
                    work()
                continue
            case Send(steps=sent):
                if one.upper > accepted:
                    wanted.update((number, place) for place, step in enumerate(sent) if step >= accepted)
            case Replace(rows=rows):
                if one.upper > accepted:
                    wanted = Counter(rows)
            case _:
                assert_never(one)
        accepted = max(accepted, one.upper)
        asked.append(one.token)
        perform(say(reconciler, "a", one.command(number)))
    while lane:
        work()

    assert +held == wanted
    assert sorted(answered) == sorted(asked)


# --- windows ----------------------------------------------------------------------------------------------


@law
@given(
    past=terms,
    appended=st.lists(sends, max_size=3),
    collected=st.lists(st.one_of(commands, sends.map(lambda send: send.command(99)), reports), max_size=12),
    cut=st.sampled_from(["disconnect", "newer session", "new window", "violation"]),
    term=terms,
)
def test_a_window_cut_short_changes_nothing(
    past: list[Wanted],
    appended: list[Send],
    collected: list[StorageCommand | Report],
    cut: str,
    term: list[Wanted],
) -> None:
    ours = StorageReconciler()
    begin(ours, "past", past)
    for number, send in enumerate(appended):
        say(ours, "past", send.command(number))
    theirs = copy.deepcopy(ours)
    for reconciler in (ours, theirs):
        greet(reconciler, "cut")
        say(reconciler, "cut", CreateInstance())

    # The same happens to both, but theirs is never told what shall run.
    for one in collected:
        if isinstance(one, Report):
            assert act(ours, one) == act(theirs, one)
        elif not isinstance(one, InitializationComplete) and ours.sessions.stage is Stage.INITIALIZING:
            for end in say(ours, "cut", one):
                if isinstance(end, EndSession):
                    act(theirs, SessionClosed(session=SessionId("cut")))
    for reconciler in (ours, theirs):
        if cut == "new window" and reconciler.sessions.stage is Stage.INITIALIZING:
            assert say(reconciler, "cut", CreateInstance()) == ()
        elif cut == "violation":
            say(reconciler, "cut", Hello(epoch=Epoch(1), session=SessionId("cut")))
        elif cut == "disconnect":
            act(reconciler, SessionClosed(session=SessionId("cut")))

    assert ours.ingesting.snapshot() == theirs.ingesting.snapshot()
    assert begin(ours, "next", term) == begin(theirs, "next", term)
    assert ours.ingesting.snapshot() == theirs.ingesting.snapshot()
