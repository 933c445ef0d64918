"""Laws of scheduling: one writer for each singleton, on a healthy replica, wherever failures push it.

The model is the rules of the page word by word, on plain lists. The replay is the cluster itself: what really runs
on each replica when it does as it is told, and a failed one hears nothing.
"""

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from reconcile.ids import GlobalId, ReplicaId, WriterEpoch
from reconcile.scheduling import (
    PlacementForgotten,
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

law = settings(max_examples=200, deadline=None)

replicas = st.integers(1, 4).map(ReplicaId)
sources = st.integers(1, 4).map(lambda number: GlobalId("s", number))
created = st.builds(SourceCreated, id=sources, singleton=st.booleans())
added = st.builds(ReplicaAdded, replica=replicas)
schedule_events: st.SearchStrategy[ScheduleEvent] = st.one_of(
    added,
    added,
    created,
    created,
    st.builds(ReplicaFailed, replica=replicas),
    st.builds(ReplicaFailed, replica=replicas),
    st.builds(ReplicaRecovered, replica=replicas),
    st.builds(ReplicaRecovered, replica=replicas),
    st.builds(ReplicaRemoved, replica=replicas),
    st.builds(SourceDropped, id=sources),
    st.just(PlacementForgotten()),
)
histories = st.lists(schedule_events, max_size=40)


def handled(scheduler: Scheduler, event: ScheduleEvent) -> tuple[ScheduleAction, ...]:
    actions = scheduler.handle(event)
    scheduler.check()
    return actions


@dataclass(slots=True)
class Membership:
    """Who is there, who of them is healthy, and which sources are wanted: what everybody can see."""

    #: Whether each replica is healthy.
    healthy: dict[ReplicaId, bool] = field(default_factory=dict)
    #: Whether each source is a singleton, in order of creation.
    wanted: dict[GlobalId, bool] = field(default_factory=dict)

    def see(self, event: ScheduleEvent) -> bool:
        """Takes in an event; whether it made a difference."""
        before = (dict(self.healthy), dict(self.wanted))
        match event:
            case ReplicaAdded(replica=replica):
                self.healthy.setdefault(replica, True)
            case ReplicaRemoved(replica=replica):
                self.healthy.pop(replica, None)
            case ReplicaFailed(replica=replica) if replica in self.healthy:
                self.healthy[replica] = False
            case ReplicaRecovered(replica=replica) if replica in self.healthy:
                self.healthy[replica] = True
            case SourceCreated(id=id, singleton=singleton):
                self.wanted.setdefault(id, singleton)
            case SourceDropped(id=id):
                self.wanted.pop(id, None)
            case _:
                pass
        return before != (self.healthy, self.wanted)

    def up(self) -> list[ReplicaId]:
        return sorted(replica for replica, healthy in self.healthy.items() if healthy)


# --- the model --------------------------------------------------------------------------------------------


class Model:
    """The rules, one by one."""

    def __init__(self) -> None:
        self.membership = Membership()
        self.host: dict[GlobalId, ReplicaId] = {}
        self.epochs: dict[GlobalId, int] = {}
        #: What each failed replica ran when it failed, in order of creation; nothing after a restart of the controller.
        self.ran: dict[ReplicaId, list[GlobalId]] = {}

    def actions(self, event: ScheduleEvent) -> list[ScheduleAction]:
        wanted = dict(self.membership.wanted)
        up_before = self.membership.up()
        changed = self.membership.see(event)
        up = self.membership.up()
        match event:
            case PlacementForgotten():
                self.host, self.ran = {}, {}
                return [run for id in wanted for replica in up for run in self.run(id, replica)]
            case _ if not changed:
                return []
            case SourceCreated(id=id):
                return [run for replica in up for run in self.run(id, replica)]
            case SourceDropped(id=id):
                hosts = ([self.host.pop(id)] if id in self.host else []) if wanted[id] else up
                return [StopOn(id=id, replica=replica) for replica in hosts]
            case ReplicaAdded(replica=replica):
                return [run for id in wanted for run in self.run(id, replica)]
            case ReplicaRemoved(replica=replica):
                self.ran.pop(replica, None)
                return self.moved_from(replica, stop=False)
            case ReplicaFailed(replica=replica):
                assert replica in up_before
                self.ran[replica] = [id for id in wanted if not wanted[id] or self.host.get(id) == replica]
                return self.moved_from(replica, stop=True)
            case ReplicaRecovered(replica=replica):
                runs = [run for id in wanted for run in self.run(id, replica)]
                here = {run.id for run in runs}
                gone = [id for id in self.ran.pop(replica, []) if id not in here]
                return [*(StopOn(id=id, replica=replica) for id in gone), *runs]

    def moved_from(self, replica: ReplicaId, *, stop: bool) -> list[ScheduleAction]:
        actions: list[ScheduleAction] = []
        for id in [id for id in self.membership.wanted if self.host.get(id) == replica]:
            del self.host[id]
            actions += [StopOn(id=id, replica=replica)] if stop else []
            actions += [run for other in self.membership.up() for run in self.run(id, other)]
        return actions

    def run(self, id: GlobalId, replica: ReplicaId) -> list[RunOn]:
        """Runs a source there if it should run there and does not run elsewhere."""
        if not self.membership.wanted[id]:
            return [RunOn(id=id, replica=replica, writer_epoch=None)]
        if id in self.host:
            return []
        self.host[id] = replica
        self.epochs[id] = self.epochs.get(id, 0) + 1
        return [RunOn(id=id, replica=replica, writer_epoch=WriterEpoch(self.epochs[id]))]

    def placement(self) -> list[tuple[GlobalId, tuple[ReplicaId, ...]]]:
        hosts = {id: (self.host[id],) if id in self.host else () for id in self.membership.wanted}
        everywhere = tuple(self.membership.up())
        return [(id, hosts[id] if singleton else everywhere) for id, singleton in self.membership.wanted.items()]


@law
@given(events=histories)
def test_the_schedule_does_what_the_rules_say(events: list[ScheduleEvent]) -> None:
    scheduler, model = Scheduler(), Model()

    for event in events:
        assert list(handled(scheduler, event)) == model.actions(event)
        assert list(scheduler.placement()) == model.placement()


# --- laws -------------------------------------------------------------------------------------------------


@law
@given(events=histories)
def test_a_writer_epoch_has_one_writer_and_never_repeats(events: list[ScheduleEvent]) -> None:
    scheduler, membership = Scheduler(), Membership()
    writers: dict[tuple[GlobalId, WriterEpoch], ReplicaId] = {}
    last: dict[GlobalId, WriterEpoch] = {}

    for event in events:
        membership.see(event)
        for action in handled(scheduler, event):
            if isinstance(action, RunOn):
                assert (action.writer_epoch is not None) == membership.wanted[action.id]
            if isinstance(action, RunOn) and action.writer_epoch is not None:
                assert action.writer_epoch > last.get(action.id, 0)
                assert (action.id, action.writer_epoch) not in writers
                last[action.id] = action.writer_epoch
                writers[action.id, action.writer_epoch] = action.replica

        # Whoever holds the highest epoch, which fences all others, is where the source is said to be.
        for id, hosts in scheduler.placement():
            if membership.wanted[id] and hosts:
                assert hosts == (writers[id, last[id]],)


@law
@given(events=histories)
def test_a_singleton_is_on_one_healthy_replica_whenever_there_is_one(events: list[ScheduleEvent]) -> None:
    scheduler, membership = Scheduler(), Membership()

    for event in events:
        handled(scheduler, event)
        membership.see(event)
        up = membership.up()

        placement = dict(scheduler.placement())
        assert list(placement) == list(membership.wanted)
        for id, singleton in membership.wanted.items():
            if singleton:
                assert len(placement[id]) == min(1, len(up))
                assert set(placement[id]) <= set(up)
            else:
                assert placement[id] == tuple(up)


@law
@given(events=histories)
def test_a_singleton_moves_only_when_its_replica_fails_or_is_removed_or_all_is_forgotten(
    events: list[ScheduleEvent],
) -> None:
    scheduler, membership = Scheduler(), Membership()

    for event in events:
        before = {id: hosts[0] for id, hosts in scheduler.placement() if membership.wanted[id] and hosts}
        actions = handled(scheduler, event)
        membership.see(event)

        placement = dict(scheduler.placement())
        for id, host in before.items():
            excused = event in (ReplicaFailed(replica=host), ReplicaRemoved(replica=host), SourceDropped(id=id))
            if not excused and event != PlacementForgotten():
                assert placement[id] == (host,)
                assert [action for action in actions if action.id == id] == []
        # One that starts or moves goes to the healthy replica with the smallest number.
        for action in actions:
            if isinstance(action, RunOn) and action.writer_epoch is not None:
                assert action.replica == membership.up()[0]


@law
@given(events=histories)
def test_replicas_that_do_as_told_run_exactly_what_is_placed_there(events: list[ScheduleEvent]) -> None:
    scheduler, membership = Scheduler(), Membership()
    running: dict[ReplicaId, set[GlobalId]] = {}

    for event in events:
        actions = handled(scheduler, event)
        membership.see(event)
        if event == PlacementForgotten():  # all reconcile with the new controller: what is not requested stops
            running = {replica: set() for replica in membership.healthy}
        running = {replica: running.get(replica, set()) for replica in membership.healthy}
        for action in actions:
            if isinstance(action, RunOn):
                assert membership.healthy[action.replica]
                running[action.replica].add(action.id)
            elif membership.healthy[action.replica]:  # a failed one does not hear it
                assert action.id in running[action.replica]
                running[action.replica].remove(action.id)
            else:
                assert event == ReplicaFailed(replica=action.replica)

        up = membership.up()
        placed = {replica: {id for id, hosts in scheduler.placement() if replica in hosts} for replica in up}
        assert {replica: running[replica] for replica in up} == placed


@law
@given(events=histories)
def test_an_event_that_changes_nothing_moves_nothing(events: list[ScheduleEvent]) -> None:
    scheduler, membership = Scheduler(), Membership()

    for event in events:
        before = scheduler.placement()
        actions = handled(scheduler, event)
        if not membership.see(event) and event != PlacementForgotten():
            assert (actions, scheduler.placement()) == ((), before)


@law
@given(events=histories)
def test_a_restarted_controller_starts_every_source_with_its_next_epoch(events: list[ScheduleEvent]) -> None:
    scheduler, membership = Scheduler(), Membership()
    epochs: dict[GlobalId, int] = {}
    for event in events:
        membership.see(event)
        for action in handled(scheduler, event):
            if isinstance(action, RunOn) and action.writer_epoch is not None:
                epochs[action.id] = action.writer_epoch

    up = membership.up()
    expected = [
        RunOn(id=id, replica=replica, writer_epoch=WriterEpoch(epochs.get(id, 0) + 1) if singleton else None)
        for id, singleton in membership.wanted.items()
        for replica in (up[:1] if singleton else up)
    ]

    assert list(handled(scheduler, PlacementForgotten())) == expected
