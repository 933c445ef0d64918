"""Laws of the merges: one voice, whatever replicas and partitions say and in whatever order.

The model keeps the whole list of events and recomputes everything from it.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from hypothesis import given, settings
from hypothesis import strategies as st

from reconcile.compute_protocol import (
    PeekCanceled,
    PeekFailed,
    PeekOutcome,
    PeekRefusal,
    PeekRefused,
    PeekResponse,
    PeekRows,
    TailResponse,
)
from reconcile.frontiers import CLOSED, MINIMUM, Antichain
from reconcile.ids import GlobalId, Incarnation, PeekId, ReplicaId, Step
from reconcile.limits import TAIL_HELD_BATCHES_MAX
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
    ReplicaRestarted,
    ReplicaSaid,
    TailHeard,
    TailRequested,
)
from reconcile.partitions import PartitionMerge, PartitionSaid
from reconcile.updates import Update, UpdateList

law = settings(max_examples=200, deadline=None)

#: Steps of all laws are before this one; a frontier that gets there is closed.
END = 16
VIEW, OTHER, TAIL = GlobalId("u", 1), GlobalId("u", 2), GlobalId("t", 3)
REPLICAS = tuple(ReplicaId(number) for number in (1, 2, 3, 4))
PEEKS = 5


def far(frontier: Antichain) -> float:
    return inf if frontier.step is None else frontier.step


def frontier_at(place: int) -> Antichain:
    return CLOSED if place >= END else Antichain.at(place)


# --- random lives of a cluster ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Said:
    """A line of the current incarnation of ``replica``, or of one that was ``late`` incarnations before it."""

    replica: ReplicaId
    late: int
    said: FrontierHeard | AnswerHeard | TailHeard


Raw = Said | MergeEvent

frontiers = st.integers(0, END).map(frontier_at)
replicas = st.sampled_from(REPLICAS)
peeks = st.integers(1, PEEKS).map(PeekId)
collections = st.sampled_from([VIEW, OTHER])
outcomes = st.one_of(
    st.builds(PeekRows, rows=st.sampled_from(["x", "y"])),
    st.builds(PeekFailed, error=st.sampled_from(["overflow", "division by zero", "out of memory"])),
    st.builds(PeekFailed, error=st.sampled_from(["overflow", "division by zero", "out of memory"])),
)


@st.composite
def batches(draw: st.DrawFn) -> TailHeard:
    lower, upper = sorted([draw(st.integers(0, END)), draw(st.integers(0, END))])
    inside = draw(st.lists(st.integers(lower, upper - 1), max_size=3)) if lower < upper else []
    updates = tuple(Update(step=Step(step), row=draw(st.sampled_from("ab"))) for step in sorted(inside))
    return TailHeard(id=TAIL, lower=frontier_at(lower), upper=frontier_at(upper), updates=UpdateList(updates))


def said(what: st.SearchStrategy[FrontierHeard | AnswerHeard | TailHeard]) -> st.SearchStrategy[Said]:
    return st.builds(Said, replicas, st.sampled_from((0, 0, 0, 0, 1, 2)), what)


reports = said(st.builds(FrontierHeard, id=collections, upper=frontiers))
answers = said(st.builds(AnswerHeard, peek=peeks, outcome=outcomes))
tail_lines = said(batches())
memberships: st.SearchStrategy[Raw] = st.one_of(
    st.builds(ReplicaJoined, replica=replicas),
    st.builds(ReplicaJoined, replica=replicas),
    st.builds(ReplicaLeft, replica=replicas),
    st.builds(ReplicaRestarted, replica=replicas),
)
peek_requests = st.builds(PeekRequested, peek=peeks, target=st.one_of(st.none(), st.none(), st.none(), replicas))
peek_cancels = st.builds(PeekCancelRequested, peek=peeks)
frontier_events: st.SearchStrategy[Raw] = st.one_of(
    reports,
    reports,
    st.builds(CollectionCreated, id=collections, as_of=frontiers),
    st.builds(CollectionDropped, id=collections),
)
tail_events: st.SearchStrategy[Raw] = st.one_of(
    tail_lines,
    tail_lines,
    tail_lines,
    st.builds(TailRequested, id=st.just(TAIL), as_of=frontiers),
    st.builds(CollectionDropped, id=st.just(TAIL)),
)
peek_events: st.SearchStrategy[Raw] = st.one_of(answers, answers, answers, answers, peek_requests, peek_cancels)


def lived(raw: Sequence[Raw]) -> list[MergeEvent]:
    """Gives each line its incarnation, and leaves out second requests for a peek: ids are never used twice."""
    events: list[MergeEvent] = [ReplicaJoined(replica=REPLICAS[0])]
    asked: set[PeekId] = set()
    for event in raw:
        if isinstance(event, Said):
            births = lives(events)[1].get(event.replica, 0)
            incarnation = Incarnation(births - event.late)
            events.append(ReplicaSaid(replica=event.replica, incarnation=incarnation, said=event.said))
        elif isinstance(event, PeekRequested):
            if event.peek not in asked:
                events.append(event)
            asked.add(event.peek)
        else:
            events.append(event)
    return events


def histories(of: st.SearchStrategy[Raw], most: int = 35) -> st.SearchStrategy[list[MergeEvent]]:
    return st.lists(st.one_of(of, of, memberships), max_size=most).map(lived)


peek_histories = histories(peek_events)
frontier_histories = histories(frontier_events)
whole_histories = histories(st.one_of(peek_events, frontier_events, tail_events), most=40)


def handled(merge: ReplicaMerge, event: MergeEvent) -> tuple[MergeAction, ...]:
    actions = merge.handle(event)
    merge.check()
    return actions


# --- the model --------------------------------------------------------------------------------------------

Live = dict[ReplicaId, Incarnation]


def lives(events: Sequence[MergeEvent]) -> tuple[Live, Live]:
    """Who is alive after these events, and the last incarnation of all who ever were."""
    live: Live = {}
    last: Live = {}
    for event in events:
        match event:
            case ReplicaLeft(replica=replica):
                live.pop(replica, None)
            case ReplicaJoined(replica=replica) if replica not in live:
                live[replica] = last[replica] = Incarnation(last.get(replica, 0) + 1)
            case ReplicaRestarted(replica=replica) if replica in live:
                live[replica] = last[replica] = Incarnation(last.get(replica, 0) + 1)
            case _:
                pass
    return live, last


class Model:
    """All events so far, each with who was alive after it; everything else is worked out when asked for."""

    def __init__(self, events: Sequence[MergeEvent]) -> None:
        self.events = events
        self.live = [lives(events[: now + 1])[0] for now in range(len(events))]

    def heard(self, now: int) -> ReplicaSaid | None:
        """The line at ``now``, if it counts."""
        event = self.events[now]
        if isinstance(event, ReplicaSaid) and self.live[now].get(event.replica) == event.incarnation:
            return event
        return None

    def actions(self, now: int) -> tuple[MergeAction, ...]:
        """What is to be done at ``now``."""
        actions: list[MergeAction] = []
        for id in (VIEW, OTHER):
            before, after = self.told(id, now - 1), self.told(id, now)
            if after > before:
                actions.append(FrontierTold(id=id, before=before, upper=after))
        for peek in self.asked():
            end = self.end_of(peek)
            if end is not None and end.at == now:
                actions.append(PeekResponse(peek=peek, outcome=end.outcome))
                if end.working:
                    actions.append(CancelOn(peek=peek, replicas=end.working))
        return (*actions, *self.tail_pieces(now))

    # --- frontiers

    def told(self, id: GlobalId, now: int) -> Antichain:
        """The furthest report at or after as_of since the collection was created."""
        as_of: Antichain | None = None
        told = MINIMUM
        for at, event in enumerate(self.events[: now + 1]):
            heard = self.heard(at)
            if event == CollectionDropped(id=id):
                as_of, told = None, MINIMUM
            elif isinstance(event, CollectionCreated) and event.id == id and as_of is None:
                as_of = event.as_of
            elif heard is not None and isinstance(heard.said, FrontierHeard) and heard.said.id == id:
                counts = as_of is not None and far(heard.said.upper) >= far(as_of)
                told = max(told, heard.said.upper, key=far) if counts else told
        return told

    # --- peeks

    def asked(self) -> list[PeekId]:
        return [event.peek for event in self.events if isinstance(event, PeekRequested)]

    def asked_at(self, peek: PeekId) -> tuple[int, ReplicaId | None]:
        return next(
            (at, event.target)
            for at, event in enumerate(self.events)
            if isinstance(event, PeekRequested) and event.peek == peek
        )

    def answers(self, peek: PeekId, first: int, last: int) -> list[tuple[int, ReplicaSaid, PeekRows | PeekFailed]]:
        """The first answer of each incarnation that counts, with when it came."""
        found: dict[tuple[ReplicaId, Incarnation], tuple[int, ReplicaSaid, PeekRows | PeekFailed]] = {}
        for at in range(first, last + 1):
            heard = self.heard(at)
            if heard is not None and isinstance(heard.said, AnswerHeard) and heard.said.peek == peek:
                found.setdefault((heard.replica, heard.incarnation), (at, heard, heard.said.outcome))
        return sorted(found.values(), key=lambda answer: answer[0])

    def end_of(self, peek: PeekId) -> "End | None":
        """When and how a peek ended: at the first moment at which there was a reason to end it."""
        asked, target = self.asked_at(peek)
        for now in range(asked, len(self.events)):
            live = self.live[now]
            if target is not None:
                if target not in live or live[target] != self.live[asked].get(target):
                    return End(now, PeekRefused(refusal=PeekRefusal.TARGET_GONE))
                live = {target: live[target]}
            answers = [
                answer for answer in self.answers(peek, asked, now) if target is None or answer[1].replica == target
            ]
            done = {(said.replica, said.incarnation) for _, said, _ in answers}
            working = tuple(sorted(replica for replica in live if (replica, live[replica]) not in done))
            rows = [outcome for _, _, outcome in answers if isinstance(outcome, PeekRows)]
            if rows:
                return End(now, rows[0], working)
            if self.events[now] == PeekCancelRequested(peek=peek):
                return End(now, PeekCanceled(), working)
            if live and not working:
                return End(now, answers[-1][2])
        return None

    # --- tails

    def tail_pieces(self, now: int) -> list[TailResponse]:
        """What is told at ``now``: as long as any batch heard so far fits, the one that begins first."""
        told: Antichain | None = None
        batches: list[TailHeard] = []
        pieces: list[TailResponse] = []
        for at, event in enumerate(self.events[: now + 1]):
            pieces = []
            heard = self.heard(at)
            if event == CollectionDropped(id=TAIL):
                told, batches = None, []
            elif isinstance(event, TailRequested) and told is None:
                told = event.as_of
            elif heard is not None and isinstance(heard.said, TailHeard) and told is not None:
                batches.append(heard.said)
            while told is not None:
                reached = far(told)
                fitting = [batch for batch in batches if far(batch.lower) <= reached < far(batch.upper)]
                if not fitting:
                    break
                batch = min(fitting, key=lambda fits: far(fits.lower))
                assert isinstance(batch.updates, UpdateList)
                fresh = tuple(update for update in batch.updates.updates if update.step >= reached)
                pieces.append(TailResponse(id=TAIL, lower=told, upper=batch.upper, updates=UpdateList(fresh)))
                told = batch.upper
        return pieces


@dataclass(frozen=True, slots=True)
class End:
    """How a peek ended, and who still worked on it."""

    at: int
    outcome: PeekOutcome
    working: tuple[ReplicaId, ...] = ()


@law
@given(events=whole_histories)
def test_the_merge_does_what_the_whole_history_says(events: list[MergeEvent]) -> None:
    merge = ReplicaMerge()
    model = Model(events)

    for now, event in enumerate(events):
        assert handled(merge, event) == model.actions(now)
        assert {replica: merge.incarnation(replica) for replica in REPLICAS} == {
            replica: model.live[now].get(replica) for replica in REPLICAS
        }


@law
@given(events=peek_histories)
def test_peeks_end_as_the_whole_history_says(events: list[MergeEvent]) -> None:
    merge = ReplicaMerge()
    model = Model(events)

    for now, event in enumerate(events):
        assert handled(merge, event) == model.actions(now)


# --- peeks ------------------------------------------------------------------------------------------------


@law
@given(events=peek_histories, healthy=replicas)
def test_every_peek_has_exactly_one_answer_once_a_healthy_replica_answers(
    events: list[MergeEvent], healthy: ReplicaId
) -> None:
    merge = ReplicaMerge()
    ended: Counter[PeekId] = Counter()
    asked = {event.peek for event in events if isinstance(event, PeekRequested)}

    def count(actions: tuple[MergeAction, ...]) -> None:
        ended.update(action.peek for action in actions if isinstance(action, PeekResponse))
        assert all(times == 1 for times in ended.values())

    for event in events:
        count(handled(merge, event))
    assert ended.keys() <= asked
    # A fresh incarnation of one replica outlives the others and answers all that is still asked.
    for other in REPLICAS:
        if other != healthy:
            count(handled(merge, ReplicaLeft(replica=other)))
    count(handled(merge, ReplicaJoined(replica=healthy)))
    count(handled(merge, ReplicaRestarted(replica=healthy)))
    incarnation = merge.incarnation(healthy)
    assert incarnation is not None
    for peek in sorted(asked):
        answer = AnswerHeard(peek=peek, outcome=PeekRows(rows="at last"))
        count(handled(merge, ReplicaSaid(replica=healthy, incarnation=incarnation, said=answer)))

    assert ended == Counter(asked)


@law
@given(events=peek_histories)
def test_rows_win_at_once_over_all_errors_before_them(events: list[MergeEvent]) -> None:
    merge = ReplicaMerge()
    waiting: dict[PeekId, ReplicaId | None] = {}
    answered: set[tuple[PeekId, ReplicaId, Incarnation]] = set()

    for event in events:
        actions = handled(merge, event)
        if isinstance(event, PeekRequested):
            waiting[event.peek] = event.target
        if isinstance(event, ReplicaSaid) and isinstance(event.said, AnswerHeard):
            peek, outcome = event.said.peek, event.said.outcome
            live = merge.incarnation(event.replica) == event.incarnation
            wanted = peek in waiting and waiting[peek] in (None, event.replica)
            first = (peek, event.replica, event.incarnation) not in answered
            if live and wanted:
                answered.add((peek, event.replica, event.incarnation))
                if first and isinstance(outcome, PeekRows):
                    assert actions[0] == PeekResponse(peek=peek, outcome=outcome)
        for action in actions:
            if isinstance(action, PeekResponse):
                waiting.pop(action.peek, None)


@law
@given(events=peek_histories)
def test_an_error_is_passed_on_only_when_every_live_replica_has_failed(events: list[MergeEvent]) -> None:
    merge = ReplicaMerge()
    targets = {event.peek: event.target for event in events if isinstance(event, PeekRequested)}
    failed: set[tuple[PeekId, ReplicaId, Incarnation]] = set()
    errors: set[tuple[PeekId, PeekFailed]] = set()

    for event in events:
        actions = handled(merge, event)
        match event:
            case ReplicaSaid(
                replica=replica, incarnation=incarnation, said=AnswerHeard(peek=peek, outcome=PeekFailed() as error)
            ):
                failed.add((peek, replica, incarnation))
                errors.add((peek, error))
            case _:
                pass
        for action in actions:
            if isinstance(action, PeekResponse) and isinstance(action.outcome, PeekFailed):
                target = targets[action.peek]
                asked = REPLICAS if target is None else (target,)
                live = [(replica, merge.incarnation(replica)) for replica in asked]
                assert any(incarnation is not None for _, incarnation in live)
                assert all((action.peek, *one) in failed for one in live if one[1] is not None)
                assert (action.peek, action.outcome) in errors


# --- frontiers --------------------------------------------------------------------------------------------


@law
@given(events=frontier_histories)
def test_the_unified_upper_is_the_furthest_report_and_never_goes_back(events: list[MergeEvent]) -> None:
    merge = ReplicaMerge()
    created: dict[GlobalId, Antichain] = {}
    reported: dict[GlobalId, list[Antichain]] = {}

    for event in events:
        before = {id: merge.upper(id) for id in created}
        actions = handled(merge, event)
        match event:
            case CollectionCreated(id=id, as_of=as_of) if id not in created:
                created[id], reported[id] = as_of, []
            case CollectionDropped(id=id):
                created.pop(id, None)
            case ReplicaSaid(replica=replica, incarnation=incarnation, said=FrontierHeard(id=id, upper=upper)):
                if merge.incarnation(replica) == incarnation and id in created:
                    reported[id].append(upper)
            case _:
                pass

        for id, as_of in created.items():
            counted = [far(upper) for upper in reported[id] if far(upper) >= far(as_of)]
            now = merge.upper(id)
            assert now is not None
            assert far(now) == max(counted, default=0)
            assert far(now) == 0 or far(now) >= far(as_of)
            assert now >= (before.get(id) or MINIMUM)
            told = [FrontierTold(id=id, before=before.get(id) or MINIMUM, upper=now)]
            assert [action for action in actions if isinstance(action, FrontierTold) and action.id == id] == (
                told if now != (before.get(id) or MINIMUM) else []
            )
        assert {id for id in (VIEW, OTHER) if merge.upper(id) is not None} == created.keys()


@law
@given(events=whole_histories)
def test_what_an_earlier_incarnation_says_has_no_effect(events: list[MergeEvent]) -> None:
    merge, without_late_lines = ReplicaMerge(), ReplicaMerge()

    for event in events:
        actions = handled(merge, event)
        if isinstance(event, ReplicaSaid) and merge.incarnation(event.replica) != event.incarnation:
            assert actions == ()
        else:
            assert handled(without_late_lines, event) == actions


# --- tails ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Stream:
    """A replica sends the next ``length`` steps of the tail."""

    replica: ReplicaId
    length: int


@dataclass(frozen=True, slots=True)
class Begin:
    """A replica is added or restarts, and streams from ``start`` on, or from as_of."""

    replica: ReplicaId
    start: int | None


@dataclass(frozen=True, slots=True)
class Leave:
    """A replica is removed."""

    replica: ReplicaId


@dataclass(frozen=True, slots=True)
class Late:
    """A line that was sent before arrives again, from the incarnation that sent it."""

    which: int


Happening = Stream | Begin | Leave | Late
streams = st.builds(Stream, replicas, st.integers(0, 5))
happenings: st.SearchStrategy[Happening] = st.one_of(
    streams,
    streams,
    streams,
    st.builds(Begin, replicas, st.none() | st.integers(0, END)),
    st.builds(Leave, replicas),
    st.builds(Late, st.integers(0, 50)),
)
truths = st.lists(st.integers(0, END - 1), max_size=20).map(
    lambda steps: tuple(Update(step=Step(step), row=place) for place, step in enumerate(sorted(steps)))
)


class TailWorld:
    """Replicas that all stream one true list of updates, each cut in its own way."""

    def __init__(self, truth: tuple[Update, ...], as_of: int) -> None:
        self.truth = truth
        self.as_of = as_of
        self.merge = ReplicaMerge()
        self.told = as_of
        self.rows: list[Update] = []
        #: How far each replica has streamed.
        self.sent: dict[ReplicaId, int] = {}
        self.lines: list[ReplicaSaid] = []
        #: The steps covered by lines that counted.
        self.covered: set[int] = set()
        self.perform(TailRequested(id=TAIL, as_of=frontier_at(as_of)))

    def happen(self, happening: Happening, *, gaps: bool) -> None:
        match happening:
            case Begin(replica=replica, start=start):
                begins = self.as_of if start is None else start
                self.sent[replica] = begins if gaps else min(begins, self.told)
                alive = self.merge.incarnation(replica) is not None
                self.perform(ReplicaRestarted(replica=replica) if alive else ReplicaJoined(replica=replica))
            case Leave(replica=replica):
                self.perform(ReplicaLeft(replica=replica))
            case Stream(replica=replica, length=length):
                incarnation = self.merge.incarnation(replica)
                if incarnation is not None:
                    lower = self.sent[replica]
                    upper = self.sent[replica] = min(lower + length, END)
                    batch = TailHeard(
                        id=TAIL,
                        lower=frontier_at(lower),
                        upper=frontier_at(upper),
                        updates=UpdateList(self.between(lower, upper)),
                    )
                    self.covered.update(range(lower, upper))
                    self.lines.append(ReplicaSaid(replica=replica, incarnation=incarnation, said=batch))
                    self.perform(self.lines[-1])
            case Late(which=which) if self.lines:
                self.perform(self.lines[which % len(self.lines)])
            case Late():
                pass

    def perform(self, event: MergeEvent) -> None:
        for piece in handled(self.merge, event):
            assert isinstance(piece, TailResponse)
            assert isinstance(piece.updates, UpdateList)
            assert piece.lower == frontier_at(self.told)
            assert piece.upper > piece.lower
            self.told = END if piece.upper.step is None else piece.upper.step
            self.rows.extend(piece.updates.updates)

    def between(self, lower: int, upper: int) -> tuple[Update, ...]:
        return tuple(update for update in self.truth if lower <= update.step < upper)


@law
@given(truth=truths, as_of=st.integers(0, 8), happens=st.lists(happenings, max_size=40))
def test_a_tail_has_no_gap_and_no_repeat(truth: tuple[Update, ...], as_of: int, happens: list[Happening]) -> None:
    world = TailWorld(truth, as_of)
    world.happen(Begin(REPLICAS[0], None), gaps=False)

    for happening in happens:
        world.happen(happening, gaps=False)
        assert tuple(world.rows) == world.between(as_of, world.told)
        assert world.told == max([as_of, *(step + 1 for step in world.covered)])


@law
@given(truth=truths, as_of=st.integers(0, 8), happens=st.lists(happenings, max_size=40))
def test_a_tail_waits_for_a_gap_to_be_filled_by_whoever_fills_it(
    truth: tuple[Update, ...], as_of: int, happens: list[Happening]
) -> None:
    world = TailWorld(truth, as_of)
    world.happen(Begin(REPLICAS[0], None), gaps=True)

    for happening in happens:
        world.happen(happening, gaps=True)
        assert tuple(world.rows) == world.between(as_of, world.told)
        assert world.told == next(step for step in range(as_of, END + 1) if step not in world.covered)


def test_a_replica_that_leaves_too_many_gaps_is_mistrusted() -> None:
    merge = ReplicaMerge()
    handled(merge, ReplicaJoined(replica=REPLICAS[0]))
    handled(merge, TailRequested(id=TAIL, as_of=MINIMUM))

    def batch(lower: int) -> ReplicaSaid:
        line = TailHeard(id=TAIL, lower=Antichain.at(lower), upper=Antichain.at(lower + 1), updates=UpdateList())
        return ReplicaSaid(replica=REPLICAS[0], incarnation=Incarnation(1), said=line)

    for lower in range(1, TAIL_HELD_BATCHES_MAX + 1):
        assert merge.handle(batch(lower)) == ()
    merge.check()

    assert handled(merge, batch(TAIL_HELD_BATCHES_MAX + 5)) == (
        Mistrust(replica=REPLICAS[0], why=f"tail {TAIL} waits for a gap at 0"),
    )
    assert len(handled(merge, batch(0))) == TAIL_HELD_BATCHES_MAX + 1


# --- partitions -------------------------------------------------------------------------------------------


def from_part(
    merge: PartitionMerge, part: int, said: FrontierHeard | AnswerHeard | TailHeard
) -> tuple[FrontierHeard | AnswerHeard | TailHeard, ...]:
    told = merge.handle(PartitionSaid(partition=part, said=said))
    merge.check()
    return told


@law
@given(parts=st.integers(1, 4), lines=st.lists(st.tuples(st.integers(0, 3), frontiers), max_size=25))
def test_the_frontier_of_a_copy_is_that_of_its_slowest_part(parts: int, lines: list[tuple[int, Antichain]]) -> None:
    merge = PartitionMerge(parts)
    furthest = [MINIMUM] * parts

    for line, upper in lines:
        part = line % parts
        before = min(furthest, key=far)
        furthest[part] = max(furthest[part], upper, key=far)
        after = min(furthest, key=far)

        told = from_part(merge, part, FrontierHeard(id=VIEW, upper=upper))

        assert told == ((FrontierHeard(id=VIEW, upper=after),) if after != before else ())


part_outcomes = st.one_of(
    st.builds(PeekRows, rows=st.lists(st.sampled_from("xyz"), max_size=2).map(tuple)),
    st.builds(PeekRows, rows=st.lists(st.sampled_from("xyz"), max_size=2).map(tuple)),
    st.builds(PeekRows, rows=st.sampled_from(["one", "two"])),
    st.builds(PeekFailed, error=st.just("overflow")),
)


@law
@given(
    parts=st.integers(1, 4),
    lines=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3).map(PeekId), part_outcomes), max_size=20),
    canceled=st.lists(st.integers(0, 25), max_size=2),
)
def test_a_peek_is_answered_exactly_when_all_parts_have_answered(
    parts: int, lines: list[tuple[int, PeekId, PeekRows | PeekFailed]], canceled: list[int]
) -> None:
    merge = PartitionMerge(parts)
    running = {PeekId(1), PeekId(2)}
    for peek in running:
        merge.start_peek(peek)
    heard: list[tuple[int, PeekId, PeekRows]] = []

    for place, (line, peek, outcome) in enumerate(lines):
        part = line % parts
        if place in canceled:
            merge.cancel_peek(peek)
            running.discard(peek)

        told = from_part(merge, part, AnswerHeard(peek=peek, outcome=outcome))

        if peek not in running:
            assert told == ()
        elif isinstance(outcome, PeekFailed):
            assert told == (AnswerHeard(peek=peek, outcome=outcome),)
            running.discard(peek)
        else:
            heard.append((part, peek, outcome))
            last = {part: rows.rows for part, of, rows in heard if of == peek}
            if len(last) < parts:
                assert told == ()
            else:
                united: list[object] = []
                for number in range(parts):
                    of_part = last[number]
                    united.extend(of_part if isinstance(of_part, tuple) else [of_part])
                assert told == (AnswerHeard(peek=peek, outcome=PeekRows(rows=tuple(united))),)
                running.discard(peek)


@law
@given(
    parts=st.integers(1, 4),
    truth=truths,
    as_of=st.integers(0, 8),
    lines=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 6), st.integers(0, 3)), max_size=30),
)
def test_the_tail_of_a_copy_is_the_union_of_its_parts_up_to_the_slowest(
    parts: int, truth: tuple[Update, ...], as_of: int, lines: list[tuple[int, int, int]]
) -> None:
    merge = PartitionMerge(parts)
    merge.follow_tail(TAIL, frontier_at(as_of))
    reached = [as_of] * parts
    rows: list[Update] = []
    told = as_of

    # Every row belongs to one part; a part sends on from where it stands, or from ``again`` steps before that.
    for line, length, again in lines:
        part = line % parts
        lower = max(reached[part] - again, 0)
        upper = min(lower + length, END)
        mine = tuple(
            update
            for update in truth
            if isinstance(update.row, int) and update.row % parts == part and lower <= update.step < upper
        )
        reached[part] = max(reached[part], upper)
        batch = TailHeard(id=TAIL, lower=frontier_at(lower), upper=frontier_at(upper), updates=UpdateList(mine))

        pieces = from_part(merge, part, batch)

        assert len(pieces) == (1 if min(reached) > told else 0)
        for piece in pieces:
            assert isinstance(piece, TailHeard)
            assert isinstance(piece.updates, UpdateList)
            assert (piece.lower, piece.upper) == (frontier_at(told), frontier_at(min(reached)))
            steps = [update.step for update in piece.updates.updates]
            assert steps == sorted(steps)
            rows.extend(piece.updates.updates)
        told = min(reached)
        assert Counter(rows) == Counter(update for update in truth if as_of <= update.step < told)


@law
@given(parts=st.integers(1, 3), upper=frontiers)
def test_a_dropped_collection_and_an_unfollowed_tail_are_silent(parts: int, upper: Antichain) -> None:
    merge = PartitionMerge(parts)
    merge.follow_tail(TAIL, MINIMUM)
    merge.drop(TAIL)

    for part in range(parts):
        batch = TailHeard(id=TAIL, lower=MINIMUM, upper=upper, updates=UpdateList())
        assert from_part(merge, part, batch) == ()
