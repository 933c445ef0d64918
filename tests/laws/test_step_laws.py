"""Laws of opening steps, against a model that remembers everything and decides from scratch."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from reconcile.ids import GlobalId, Step
from reconcile.steps import RecordsReported, ReporterLost, StepEvent, StepOpener, StepRules, Tick
from reconcile.table_writes import OpenStepsThrough, StepsOpened

law = settings(max_examples=300, deadline=None)

S1, S2 = GlobalId("s", 1), GlobalId("s", 2)
ids = st.sampled_from([S1, S2])
rules = st.builds(
    StepRules,
    records_max=st.integers(1, 12),
    linger_ms=st.integers(0, 30),
    tick_ms=st.sampled_from([0, 0, 25, 70]),
)
events: st.SearchStrategy[StepEvent] = st.one_of(
    st.builds(Tick, now_ms=st.integers(0, 200)),
    st.builds(RecordsReported, id=ids, step=st.integers(0, 14).map(Step), received=st.integers(0, 9)),
    st.builds(RecordsReported, id=ids, step=st.integers(0, 14).map(Step), received=st.integers(0, 9)),
    st.builds(ReporterLost, id=ids),
    st.builds(StepsOpened, step=st.integers(0, 12).map(Step)),
)


def accumulated(happening: Sequence[StepEvent]) -> list[StepEvent]:
    """The same with a clock that goes on by what each tick says, so that timers run out one by one."""
    now = 0
    moved: list[StepEvent] = []
    for event in happening:
        if isinstance(event, Tick):
            now += event.now_ms
            moved.append(Tick(now_ms=now))
        else:
            moved.append(event)
    return moved


#: Little happens between two ticks, and those that wait are often ahead of what is opened.
strolls: st.SearchStrategy[list[StepEvent]] = st.lists(
    st.one_of(
        st.builds(Tick, now_ms=st.integers(1, 20)),
        st.builds(Tick, now_ms=st.integers(1, 20)),
        st.builds(RecordsReported, id=ids, step=st.integers(6, 14).map(Step), received=st.just(1)),
        st.builds(StepsOpened, step=st.integers(1, 8).map(Step)),
    ),
    max_size=14,
).map(accumulated)


@dataclass(slots=True)
class Model:
    """Everything that happened, each event with when it did."""

    rules: StepRules
    happened: list[tuple[int, StepEvent | OpenStepsThrough]] = field(default_factory=list)
    now: int = 0

    def add(self, event: StepEvent | OpenStepsThrough) -> None:
        if isinstance(event, Tick):
            self.now = max(self.now, event.now_ms)
        self.happened.append((self.now, event))

    @property
    def opened(self) -> int:
        return max((event.step for _, event in self.happened if isinstance(event, StepsOpened)), default=0)

    @property
    def asked(self) -> int:
        return max((event.step for _, event in self.happened if isinstance(event, OpenStepsThrough)), default=0)

    @property
    def opened_at(self) -> int:
        at, newest = 0, 0
        for when, event in self.happened:
            if isinstance(event, StepsOpened) and event.step > newest:
                at, newest = when, event.step
        return at

    def waiting(self, until: int) -> dict[GlobalId, tuple[int, int]]:
        """What each writer held after the first ``until`` events, and for which step."""
        opened = max((e.step for _, e in self.happened[:until] if isinstance(e, StepsOpened)), default=0)
        held: dict[GlobalId, tuple[int, int]] = {}
        for id in (S1, S2):
            lost = [n for n, (_, e) in enumerate(self.happened[:until]) if e == ReporterLost(id=id)]
            mine = [
                (event.step, event.received)
                for _, event in self.happened[max(lost, default=-1) + 1 : until]
                if isinstance(event, RecordsReported) and event.id == id and event.received and event.step > opened
            ]
            if mine:
                held[id] = max(mine)
        return held

    @property
    def waiting_since(self) -> int | None:
        """When records began to wait that have waited ever since the newest step was opened."""
        since: int | None = None
        for until in range(1, len(self.happened) + 1):
            when, event = self.happened[until - 1]
            earlier = max((e.step for _, e in self.happened[: until - 1] if isinstance(e, StepsOpened)), default=0)
            if not self.waiting(until):
                since = None
            elif since is None or (isinstance(event, StepsOpened) and event.step > earlier):
                since = when
        return since

    def wanted(self) -> tuple[OpenStepsThrough, ...]:
        if self.asked > self.opened:
            return ()
        held = self.waiting(len(self.happened))
        since = self.waiting_since
        full = bool(held) and sum(received for _, received in held.values()) >= self.rules.records_max
        lingered = since is not None and self.now >= since + self.rules.linger_ms
        ticked = self.rules.tick_ms > 0 and self.now >= self.opened_at + self.rules.tick_ms
        if not (full or lingered or ticked):
            return ()
        return (OpenStepsThrough(step=Step(max([self.opened + 1, *(step for step, _ in held.values())]))),)


@law
@given(rules, st.one_of(st.lists(events, max_size=25), strolls))
def test_steps_are_asked_for_exactly_when_the_rules_say(rules: StepRules, happening: list[StepEvent]) -> None:
    opener, model = StepOpener(rules, opened=Step(0)), Model(rules)

    for event in happening:
        model.add(event)
        actions = opener.handle(event)
        opener.check()

        assert actions == model.wanted()
        for action in actions:
            model.add(action)


@law
@given(rules, st.lists(events, max_size=25))
def test_saying_everything_twice_changes_nothing(rules: StepRules, happening: list[StepEvent]) -> None:
    once, twice = StepOpener(rules, opened=Step(0)), StepOpener(rules, opened=Step(0))

    for event in happening:
        assert twice.handle(event) == once.handle(event)
        assert twice.handle(event) == ()
        twice.check()


@law
@given(rules, st.lists(events, max_size=25))
def test_a_tick_at_the_due_time_asks_and_one_before_does_not(rules: StepRules, happening: list[StepEvent]) -> None:
    opener = StepOpener(rules, opened=Step(0))
    for event in happening:
        opener.handle(event)
    due = opener.due_ms

    if due is not None:
        assert opener.handle(Tick(now_ms=due - 1)) == ()
        assert len(opener.handle(Tick(now_ms=due))) == 1
        assert opener.handle(Tick(now_ms=due + 1_000)) == ()


def test_records_of_a_lost_writer_open_no_step() -> None:
    opener = StepOpener(StepRules(records_max=10, linger_ms=50), opened=Step(3))
    opener.handle(RecordsReported(id=S1, step=Step(4), received=2))

    opener.handle(ReporterLost(id=S1))

    assert opener.handle(Tick(now_ms=1_000)) == ()
    assert opener.due_ms is None


def test_a_source_that_went_ahead_by_itself_is_followed() -> None:
    opener = StepOpener(StepRules(records_max=10, linger_ms=50), opened=Step(3))

    assert opener.handle(RecordsReported(id=S1, step=Step(9), received=10)) == (OpenStepsThrough(step=Step(9)),)
    assert opener.handle(StepsOpened(step=Step(8))) == ()
    assert opener.handle(StepsOpened(step=Step(9))) == ()
    opener.check()


def test_the_clock_opens_a_step_although_a_record_could_wait_longer() -> None:
    opener = StepOpener(StepRules(records_max=10, linger_ms=1_000, tick_ms=25), opened=Step(0))
    assert opener.handle(RecordsReported(id=S1, step=Step(1), received=1)) == ()

    assert opener.due_ms == 25
    assert opener.handle(Tick(now_ms=25)) == (OpenStepsThrough(step=Step(1)),)


def test_a_record_that_no_step_has_taken_yet_waits_anew_after_each() -> None:
    opener = StepOpener(StepRules(records_max=10, linger_ms=30), opened=Step(0))
    opener.handle(RecordsReported(id=S1, step=Step(9), received=1))
    opener.handle(Tick(now_ms=20))

    assert opener.handle(StepsOpened(step=Step(5))) == ()

    assert opener.due_ms == 50
    assert opener.handle(Tick(now_ms=50)) == (OpenStepsThrough(step=Step(9)),)


def test_a_later_report_of_the_same_source_counts_instead_of_the_earlier() -> None:
    opener = StepOpener(StepRules(records_max=10, linger_ms=1_000), opened=Step(0))

    asked = [opener.handle(RecordsReported(id=S1, step=Step(1), received=received)) for received in (4, 4, 7, 9)]

    assert asked == [()] * 4
    assert opener.handle(RecordsReported(id=S2, step=Step(1), received=1)) == (OpenStepsThrough(step=Step(1)),)


def test_the_clock_opens_a_step_also_while_records_wait() -> None:
    opener = StepOpener(StepRules(records_max=10, linger_ms=1_000, tick_ms=50), opened=Step(0))
    assert opener.handle(RecordsReported(id=S1, step=Step(1), received=1)) == ()

    assert opener.handle(Tick(now_ms=50)) == (OpenStepsThrough(step=Step(1)),)


def test_records_of_a_later_step_wait_from_when_the_one_before_was_opened() -> None:
    opener = StepOpener(StepRules(records_max=10, linger_ms=100), opened=Step(0))
    assert opener.handle(RecordsReported(id=S1, step=Step(2), received=1)) == ()
    assert opener.handle(Tick(now_ms=60)) == ()
    assert opener.handle(StepsOpened(step=Step(1))) == ()

    assert opener.handle(Tick(now_ms=110)) == ()
    assert opener.handle(Tick(now_ms=160)) == (OpenStepsThrough(step=Step(2)),)
