"""Laws of the compute reconciler: what was before a reconnection must not show after it."""

import os
import subprocess
import sys
from pathlib import Path

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from reconcile.actions import EndSession, Reply
from reconcile.compute_actions import (
    CommandReceived,
    Compact,
    ComputeAction,
    ComputeEvent,
    Drop,
    PeekFinished,
    Render,
    SessionClosed,
    SessionOpened,
    StopPeek,
    UpperReported,
)
from reconcile.compute_protocol import (
    AllowCompaction,
    ComputeCommand,
    CreateInstance,
    DataflowStatus,
    FrontierUppers,
    Hello,
    InitializationComplete,
    Kept,
    PeekRows,
    Replaced,
)
from reconcile.dataflow import ExportKind, normalised_objects
from reconcile.frontiers import CLOSED, MINIMUM, Antichain
from reconcile.history import History
from reconcile.ids import Epoch, GlobalId, SessionId
from reconcile.installed import InstalledDataflow
from reconcile.live import LiveDataflow
from reconcile.plan import plan
from reconcile.reconciler import Reconciler
from reconcile.sessions import Stage
from reconcile.uppers import UpperListener
from tests.laws.commands import COMMANDS, PEEKS, STEPS, USER_IDS, right_logs

UPPERS = st.lists(st.tuples(USER_IDS, st.one_of(st.builds(Antichain.at, STEPS), st.just(CLOSED))), max_size=8)


def act(reconciler: Reconciler, event: ComputeEvent) -> tuple[ComputeAction, ...]:
    actions = reconciler.handle(event)
    reconciler.check()
    return actions


def connect(reconciler: Reconciler, session: str, epoch: int, log: list[ComputeCommand]) -> tuple[ComputeAction, ...]:
    """A whole start of a term; what it did at ``InitializationComplete``."""
    act(reconciler, SessionOpened(hello=Hello(epoch=Epoch(epoch), session=SessionId(session))))
    for command in log:
        assert act(reconciler, CommandReceived(session=SessionId(session), command=command)) == ()
    return act(reconciler, CommandReceived(session=SessionId(session), command=InitializationComplete()))


def feed(reconciler: Reconciler, uppers: list[tuple[GlobalId, Antichain]]) -> None:
    for id, upper in uppers:
        act(reconciler, UpperReported(id=id, upper=upper))


def observable(reconciler: Reconciler) -> object:
    """What a controller could find out, whatever the way there; uppers, ages and internal ids are not part of it."""
    installed = [
        (
            sorted(flow.description.export_ids),
            sorted(flow.description.imports),
            sorted(map(repr, normalised_objects(flow.description))),
            sorted(flow.sinces),
            flow.writable,
            flow.error,
        )
        for flow in reconciler.installed.snapshot()
    ]
    state = reconciler.installed
    return sorted(map(repr, installed)), list(state.peeks), state.logging, state.configuration


def uppers_of(reconciler: Reconciler) -> list[tuple[GlobalId, Antichain]]:
    return [pair for flow in reconciler.installed.snapshot() for pair in flow.uppers]


@st.composite
def reconnections(draw: st.DrawFn) -> tuple[Reconciler, list[ComputeCommand]]:
    """An instance with a past, and what the next controller asks of it: the same, more of it, or something else."""
    reconciler = Reconciler()
    past = draw(right_logs())
    connect(reconciler, "past", 1, past)
    feed(reconciler, draw(UPPERS))
    if draw(st.booleans()):
        act(reconciler, SessionClosed(session=SessionId("past")))
        feed(reconciler, draw(UPPERS))
    same = draw(st.booleans())
    requested = past if same else draw(right_logs(internal=50))
    return reconciler, requested


@given(reconnections(), st.lists(COMMANDS, max_size=8), UPPERS)
@settings(max_examples=300, deadline=None)
def test_a_reconciled_instance_is_observably_a_fresh_one(
    given_: tuple[Reconciler, list[ComputeCommand]],
    later: list[ComputeCommand],
    uppers: list[tuple[GlobalId, Antichain]],
) -> None:
    old, requested = given_
    fresh = Reconciler()

    connect(old, "b", 2, requested)
    connect(fresh, "b", 2, requested)

    assert observable(old) == observable(fresh)
    feed(fresh, uppers_of(old))
    assert sorted(uppers_of(old)) == sorted(uppers_of(fresh))
    events: list[ComputeEvent] = [CommandReceived(session=SessionId("b"), command=command) for command in later]
    events += [UpperReported(id=id, upper=upper) for id, upper in uppers]
    for event in events:
        ours, theirs = act(old, event), act(fresh, event)
        assert [repr(action) for action in ours] == [repr(action) for action in theirs]


def dumb_keeps(installed: list[LiveDataflow], requested: list[LiveDataflow]) -> list[tuple[GlobalId, ...]]:
    """Which requested dataflows go on, straight from the rules, by comparing everything with everything."""
    kept: dict[GlobalId, int] = {}
    names = []
    for wanted in requested:
        matches = [one for one in installed if set(one.sinces) & set(wanted.sinces)]
        if len(matches) != 1:
            continue
        one = matches[0]
        same = (
            set(one.sinces) == set(wanted.sinces)
            and {e.id: e.kind for e in one.description.exports} == {e.id: e.kind for e in wanted.description.exports}
            and set(one.description.imports) == set(wanted.description.imports)
            and normalised_objects(one.description) == normalised_objects(wanted.description)
            and all(one.sinces[id] <= wanted.sinces[id] for id in wanted.sinces)
            and all(kept.get(id, one.age) < one.age for id in wanted.description.imports if id.kind == "u")
            and not any(e.kind is ExportKind.TAIL for e in wanted.description.exports)
        )
        if same:
            kept.update(dict.fromkeys(wanted.sinces, one.age))
            names.append(wanted.description.export_ids)
    return names


@given(reconnections())
@settings(max_examples=300, deadline=None)
def test_what_may_be_kept_is_kept_and_costs_nothing_but_compaction(
    given_: tuple[Reconciler, list[ComputeCommand]],
) -> None:
    reconciler, requested = given_
    wanted = History()
    for command in requested:
        wanted.handle(command)
    expected = dumb_keeps(list(reconciler.installed.dataflows), list(wanted.dataflows))

    actions = connect(reconciler, "b", 2, requested)

    statuses = [a.response for a in actions if isinstance(a, Reply) and isinstance(a.response, DataflowStatus)]
    assert [s.exports for s in statuses if isinstance(s.status, Kept)] == expected
    kept = {id for exports in expected for id in exports}
    rendered = {id for a in actions if isinstance(a, Render) for id in a.description.export_ids}
    dropped = {id for a in actions if isinstance(a, Drop) for id in a.exports}
    assert kept & (rendered | dropped) == set()
    assert kept | rendered == {id for flow in wanted.dataflows for id in flow.sinces}
    assert all(s.status.reasons for s in statuses if isinstance(s.status, Replaced))


@given(reconnections())
@settings(max_examples=200, deadline=None)
def test_drops_come_before_renders_and_what_is_read_outlives_its_readers(
    given_: tuple[Reconciler, list[ComputeCommand]],
) -> None:
    reconciler, requested = given_
    running = {id: flow for flow in reconciler.installed.dataflows for id in flow.sinces}

    actions = connect(reconciler, "b", 2, requested)

    kinds = [type(action) for action in actions if isinstance(action, StopPeek | Drop | Render)]
    assert kinds == sorted(kinds, key=[StopPeek, Drop, Render].index)
    order = [type(action) for action in actions if isinstance(action, Drop | Compact | Render)]
    assert Drop not in order[len([kind for kind in order if kind is Drop]) :]
    gone: set[GlobalId] = set()
    for drop in (action for action in actions if isinstance(action, Drop)):
        readers = {id for id, flow in running.items() if set(flow.description.imports) & set(drop.exports)}
        later = {i for a in actions if isinstance(a, Drop) for i in a.exports} - gone - set(drop.exports)
        assert readers & later == set()
        gone |= set(drop.exports)
    there = set(running) - gone
    for render in (action for action in actions if isinstance(action, Render)):
        assert {id for id in render.description.imports if id.kind == "u"} <= there
        there |= set(render.description.export_ids)


@given(reconnections())
@settings(max_examples=200, deadline=None)
def test_planning_twice_gives_an_empty_second_plan(given_: tuple[Reconciler, list[ComputeCommand]]) -> None:
    reconciler, requested = given_
    wanted = History()
    for command in requested:
        wanted.handle(command)
    assume(not any(flow.description.is_tail for flow in wanted.dataflows))

    connect(reconciler, "b", 2, requested)

    assert plan(reconciler.installed.dataflows, wanted.dataflows).is_empty


@given(reconnections())
@settings(max_examples=200, deadline=None)
def test_an_instance_restored_from_its_manifest_is_one_that_never_stopped(
    given_: tuple[Reconciler, list[ComputeCommand]],
) -> None:
    old, requested = given_
    restored = Reconciler(epoch=old.sessions.epoch, restored=old.installed.snapshot())
    act(old, SessionClosed(session=SessionId("past")))
    for peek in list(old.installed.peeks):
        act(old, PeekFinished(peek=peek.peek, outcome=PeekRows(rows="nobody listens")))

    ours, theirs = connect(old, "b", 2, requested), connect(restored, "b", 2, requested)

    assert _without_logging(ours) == _without_logging(theirs)
    assert observable(old) == observable(restored)


def _without_logging(actions: tuple[ComputeAction, ...]) -> list[str]:
    """The logs of an instance are its own affair; a restarted one sets them up again."""
    return [repr(action) for action in actions if type(action).__name__ not in ("SetLogging", "Configure")]


# --- frontiers, under anything at all -----------------------------------------------------------------------

EVENTS: st.SearchStrategy[object] = st.one_of(
    COMMANDS,
    COMMANDS,
    st.tuples(USER_IDS, st.one_of(st.builds(Antichain.at, STEPS), st.just(CLOSED))),
    st.tuples(USER_IDS, st.one_of(st.builds(Antichain.at, STEPS), st.just(CLOSED))),
    st.just(InitializationComplete()),
    st.just(InitializationComplete()),
    st.just(CreateInstance()),
    st.just("disconnect"),
    st.just("connect"),
    PEEKS.map(lambda peek: PeekFinished(peek=peek, outcome=PeekRows(rows="rows"))),
)


@given(st.lists(EVENTS, max_size=60))
@settings(max_examples=400, deadline=None)
def test_told_uppers_rise_from_as_of_to_the_truth_and_end_in_silence(events: list[object]) -> None:
    reconciler, sessions, listener = Reconciler(), 0, UpperListener()
    told: dict[GlobalId, Antichain] = {}
    for given_ in ["connect", CreateInstance(), *events]:
        stage = reconciler.sessions.stage
        if given_ == "connect":
            sessions += 1
            event: ComputeEvent = SessionOpened(hello=Hello(epoch=Epoch(1), session=SessionId(f"s{sessions}")))
        elif given_ == "disconnect":
            event = SessionClosed(session=SessionId(f"s{sessions}"))
        elif isinstance(given_, tuple):
            event = UpperReported(id=given_[0], upper=given_[1])
        elif isinstance(given_, PeekFinished):
            event = given_
        else:
            event = CommandReceived(session=SessionId(f"s{sessions}"), command=given_)  # type: ignore[arg-type]
        actions = act(reconciler, event)
        if isinstance(given_, InitializationComplete) and stage is Stage.INITIALIZING:
            listener, told = UpperListener(), {}
        for action in actions:
            if isinstance(action, Render):
                for id in action.description.export_ids:  # a new life of the id, told from the start
                    listener.forget(id)
                    told.pop(id, None)
            if isinstance(action, Reply) and isinstance(action.response, FrontierUppers):
                assert reconciler.sessions.stage is Stage.RUNNING
                for id, upper in listener.hear(action.response):
                    assert upper > told.get(id, MINIMUM)
                    told[id] = upper
        _assert_truth(reconciler, told)


def _assert_truth(reconciler: Reconciler, told: dict[GlobalId, Antichain]) -> None:
    """In a running term everything that may be told was told, and nothing more."""
    if reconciler.sessions.stage is not Stage.RUNNING:
        return
    for flow in reconciler.installed.snapshot():
        for id, upper in flow.uppers:
            assert told.get(id, MINIMUM) in (upper, MINIMUM)
            if told.get(id, MINIMUM) == MINIMUM < upper:
                assert upper < max(flow.description.as_of, *(since for _, since in flow.sinces))


# --- refusals -----------------------------------------------------------------------------------------------


@given(right_logs(), st.lists(COMMANDS, max_size=12))
@settings(max_examples=300, deadline=None)
def test_a_violation_ends_the_session_and_changes_nothing_else(
    log: list[ComputeCommand], wild: list[ComputeCommand]
) -> None:
    reconciler = Reconciler()
    connect(reconciler, "a", 1, log)
    for number, command in enumerate(wild):
        before: tuple[object, tuple[InstalledDataflow, ...]] = observable(reconciler), reconciler.installed.snapshot()

        actions = act(reconciler, CommandReceived(session=reconciler.sessions.live, command=command))

        if any(isinstance(action, EndSession) for action in actions):
            assert len(actions) == 1
            assert (observable(reconciler), reconciler.installed.snapshot()) == before
            assert reconciler.sessions.stage is Stage.ENDED
            connect(reconciler, f"again{number}", 1, log)


@given(reconnections())
@settings(max_examples=100, deadline=None)
def test_a_window_cut_short_changes_nothing(given_: tuple[Reconciler, list[ComputeCommand]]) -> None:
    reconciler, requested = given_
    before = observable(reconciler), reconciler.installed.snapshot()

    session = SessionId("cut")
    act(reconciler, SessionOpened(hello=Hello(epoch=Epoch(5), session=session)))
    for command in [*requested, AllowCompaction(id=GlobalId("u", 1), since=CLOSED)]:
        act(reconciler, CommandReceived(session=session, command=command))
    act(reconciler, SessionClosed(session=session))

    assert (observable(reconciler), reconciler.installed.snapshot()) == before
    assert reconciler.sessions.epoch == 5


SOUP = """
import random
from pathlib import Path
from adapter.bench.core import log
from adapter.script.runner import run_text
from itertools import islice
from reconcile.history import reduce
for path in sorted(Path("tests/scripts").rglob("*.txt")):
    print(run_text(path.read_text()).text)
print(reduce(islice(log(3), 30_000)))
"""


def test_results_are_the_same_under_any_hash_seed() -> None:
    root = Path(__file__).parents[2]

    def output(seed: str) -> bytes:
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(root)}
        run = subprocess.run([sys.executable, "-c", SOUP], cwd=root, env=environment, capture_output=True, check=True)
        return run.stdout

    first = output("0")
    assert len(first) > 100_000
    assert output("1") == output("4242") == first
