"""Laws of frontiers: whole machines against lists of numbers, in which ``[]`` is infinity."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconcile.compute_protocol import FrontierChange, FrontierUppers
from reconcile.errors import InvariantBroken, ProtocolViolation, Violation
from reconcile.frontiers import CLOSED, MINIMUM, Antichain, ChangeBatch, CountedFrontier, join, meet
from reconcile.ids import GlobalId, Step
from reconcile.uppers import UpperListener, UpperTeller

law = settings(max_examples=200, deadline=None)

frontiers = st.one_of(st.integers(0, 6).map(Antichain.at), st.just(CLOSED))
steps = st.integers(0, 6).map(Step)


def far(frontier: Antichain) -> float:
    """How far a frontier got, as a plain number."""
    return inf if frontier.step is None else frontier.step


def total(batches: Iterable[ChangeBatch], start: Antichain) -> Counter[Step]:
    """What a frontier counted once at ``start`` becomes when all batches are added up."""
    counts = Counter(start.elements())
    for batch in batches:
        for step, change in batch:
            counts[step] += change
    return Counter({step: count for step, count in counts.items() if count})


# --- order and lattice ------------------------------------------------------------------------------------


@law
@given(a=frontiers, b=frontiers)
def test_frontiers_are_ordered_as_numbers_with_the_closed_one_greatest(a: Antichain, b: Antichain) -> None:
    assert (a < b, a <= b, a == b, a >= b, a > b) == (
        far(a) < far(b),
        far(a) <= far(b),
        far(a) == far(b),
        far(a) >= far(b),
        far(a) > far(b),
    )
    assert (hash(a) == hash(b)) or a != b
    assert MINIMUM <= a <= CLOSED


@law
@given(a=frontiers, b=frontiers, c=frontiers)
def test_the_order_of_frontiers_is_total(a: Antichain, b: Antichain, c: Antichain) -> None:
    assert [a < b, a == b, a > b].count(True) == 1
    assert a <= b or b <= a
    assert not (a <= b and b <= c) or a <= c


@law
@given(frontier=frontiers, step=steps)
def test_a_frontier_is_open_at_what_it_has_not_passed(frontier: Antichain, step: Step) -> None:
    assert frontier.is_open_at(step) == (far(frontier) <= step)
    assert frontier.is_closed == (frontier.elements() == ())


@law
@given(a=frontiers, b=frontiers, c=frontiers)
def test_join_and_meet_form_a_distributive_lattice(a: Antichain, b: Antichain, c: Antichain) -> None:
    assert (join([a, a]), meet([a, a])) == (a, a)
    assert (join([a, b]), meet([a, b])) == (join([b, a]), meet([b, a]))
    assert join([a, join([b, c])]) == join([join([a, b]), c]) == join([a, b, c])
    assert meet([a, meet([b, c])]) == meet([meet([a, b]), c]) == meet([a, b, c])
    assert join([a, meet([a, b])]) == a == meet([a, join([a, b])])
    assert meet([a, join([b, c])]) == join([meet([a, b]), meet([a, c])])
    assert (join([a, MINIMUM]), join([a, CLOSED]), meet([a, MINIMUM]), meet([a, CLOSED])) == (a, CLOSED, MINIMUM, a)


@law
@given(parts=st.lists(frontiers, max_size=6))
def test_join_is_the_furthest_and_meet_the_one_that_lags(parts: list[Antichain]) -> None:
    assert far(join(parts)) == max((far(part) for part in parts), default=0)
    assert far(meet(parts)) == min((far(part) for part in parts), default=inf)


# --- change batches and counted frontiers -----------------------------------------------------------------


@law
@given(changes=st.lists(st.tuples(steps, st.integers(-2, 2)), max_size=10))
def test_a_change_batch_is_the_ordered_sum_of_its_changes(changes: list[tuple[Step, int]]) -> None:
    sums = {step: sum(change for other, change in changes if other == step) for step in range(7)}

    batch = ChangeBatch.of(changes)

    assert tuple(batch) == tuple((step, change) for step, change in sums.items() if change)
    assert bool(batch) == any(sums.values())


@law
@given(path=st.lists(frontiers, min_size=1, max_size=8))
def test_batches_along_a_path_sum_to_where_it_ends(path: list[Antichain]) -> None:
    batches = [ChangeBatch.between(before, after) for before, after in pairwise(path)]

    assert total(batches, path[0]) == Counter(path[-1].elements())
    assert [bool(batch) for batch in batches] == [a != b for a, b in pairwise(path)]


@law
@given(
    start=frontiers,
    parts=st.integers(0, 4),
    moves=st.lists(st.tuples(st.integers(0, 3), frontiers), max_size=20),
)
def test_a_counted_frontier_is_the_least_of_its_parts(
    start: Antichain, parts: int, moves: list[tuple[int, Antichain]]
) -> None:
    counted = CountedFrontier(start, parts)
    model = [start] * parts
    effects: list[ChangeBatch] = []

    for part, to in moves:
        if part < parts:
            before, model[part] = model[part], to
            effects.append(counted.update(ChangeBatch.between(before, to)))
        counted.check()
        assert far(counted.frontier) == min((far(one) for one in model), default=inf)

    assert total(effects, start if parts else CLOSED) == Counter(counted.frontier.elements())


@law
@given(batches=st.lists(st.lists(st.tuples(steps, st.integers(-2, 2)), max_size=4), max_size=12))
def test_a_batch_that_counts_below_zero_is_refused_and_changes_nothing(batches: list[list[tuple[Step, int]]]) -> None:
    counted = CountedFrontier()
    model: list[Step] = [Step(0)]  # each time as often as it is counted

    for changes in batches:
        sums = Counter(model)
        for step, change in changes:
            sums[step] += change
        before = Antichain(min(model, default=None))
        if any(count < 0 for count in sums.values()):
            with pytest.raises(InvariantBroken):
                counted.update(ChangeBatch.of(changes))
        else:
            model = sorted(sums.elements())
            after = Antichain(min(model, default=None))
            assert counted.update(ChangeBatch.of(changes)) == ChangeBatch.between(before, after)
        counted.check()
        assert counted.frontier == Antichain(min(model, default=None))

    # Nothing of a refused batch is left behind: what is counted can be taken away exactly.
    counted.update(ChangeBatch.of((step, -1) for step in model))
    assert counted.frontier == CLOSED


# --- tellers and listeners --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Install:
    id: GlobalId
    as_of: Antichain


@dataclass(frozen=True, slots=True)
class Rise:
    id: GlobalId
    upper: Antichain


@dataclass(frozen=True, slots=True)
class Tell:
    pass


@dataclass(frozen=True, slots=True)
class Close:
    id: GlobalId


@dataclass(frozen=True, slots=True)
class Remove:
    id: GlobalId


@dataclass(frozen=True, slots=True)
class BeginTerm:
    as_ofs: tuple[tuple[GlobalId, Antichain], ...]


collections = st.sampled_from([GlobalId("u", 1), GlobalId("u", 2), GlobalId("l", 1)])
teller_events = st.one_of(
    st.builds(Install, collections, frontiers),
    st.builds(Rise, collections, frontiers),
    st.builds(Rise, collections, frontiers),
    st.just(Tell()),
    st.builds(Close, collections),
    st.builds(Remove, collections),
    st.builds(BeginTerm, st.dictionaries(collections, frontiers).map(lambda as_ofs: tuple(as_ofs.items()))),
)


@dataclass(slots=True)
class TruthModel:
    """What a controller should know: of each collection all uppers reported, and its as_of in this term."""

    reported: dict[GlobalId, list[Antichain]]
    as_of: dict[GlobalId, Antichain]
    closed: set[GlobalId]

    def upper(self, id: GlobalId) -> float:
        return max((far(upper) for upper in self.reported[id]), default=0)

    def told(self, id: GlobalId) -> float:
        """What must have been told once everything untold was."""
        return self.upper(id) if self.upper(id) >= far(self.as_of[id]) else 0


def hear(listener: UpperListener, known: dict[GlobalId, float], change: FrontierChange | None) -> None:
    """Takes in one change and holds that it is news."""
    if change is not None:
        assert far(change.upper) > known.get(change.id, 0)
        assert tuple(listener.hear(FrontierUppers(changes=(change,)))) == ((change.id, change.upper),)
        known[change.id] = far(change.upper)


@law
@given(events=st.lists(teller_events, max_size=30))
def test_a_listener_that_hears_all_that_is_told_ends_at_the_truth(
    events: list[Install | Rise | Tell | Close | Remove | BeginTerm],
) -> None:
    teller, listener = UpperTeller(), UpperListener()
    known: dict[GlobalId, float] = {}
    truth = TruthModel(reported={}, as_of={}, closed=set())

    for event in [*events, Tell()]:
        match event:
            case Install(id=id, as_of=as_of):
                if id not in truth.reported and id not in known and id not in truth.closed:  # a name is never reused
                    teller.install(id, as_of)
                    truth.reported[id], truth.as_of[id] = [], as_of
            case Rise(id=id, upper=upper):
                news = id in truth.reported and far(upper) > truth.upper(id)
                assert teller.rise(id, upper) == news
                if id in truth.reported:
                    truth.reported[id].append(upper)
            case Tell():
                for id in teller:
                    hear(listener, known, teller.untold(id))
                assert [teller.untold(id) for id in teller] == [None for _ in teller]
                assert all(known.get(id, 0) == truth.told(id) for id in truth.reported)
            case Close(id=id):
                if id in truth.reported:
                    hear(listener, known, teller.close(id))
                    assert known[id] == inf
                    del truth.reported[id]
                    truth.closed.add(id)
            case Remove(id=id):
                teller.remove(id)
                if truth.reported.pop(id, None) is not None:
                    truth.closed.add(id)
            case BeginTerm(as_ofs=as_ofs):
                teller.begin_term(dict(as_ofs))
                listener, known = UpperListener(), {}
                truth.as_of = {id: dict(as_ofs).get(id, MINIMUM) for id in truth.reported}
        teller.check()
        assert set(teller) == set(truth.reported)
        assert all(far(teller.upper(id)) == truth.upper(id) for id in teller)


@law
@given(path=st.lists(frontiers, max_size=6), said=frontiers)
def test_a_listener_refuses_a_sum_that_differs_from_its_cross_check(path: list[Antichain], said: Antichain) -> None:
    id = GlobalId("u", 1)
    rising = sorted({MINIMUM, *path})
    listener = UpperListener()
    for before, after in pairwise(rising[:-1]):
        right = FrontierChange(id=id, changes=ChangeBatch.between(before, after), upper=after)
        listener.hear(FrontierUppers(changes=(right,)))

    last = FrontierChange(id=id, changes=ChangeBatch.between(*(rising[-2:] if rising[1:] else rising * 2)), upper=said)

    if said == rising[-1]:
        assert tuple(listener.hear(FrontierUppers(changes=(last,)))) == ((id, said),)
    else:
        with pytest.raises(ProtocolViolation) as refusal:
            listener.hear(FrontierUppers(changes=(last,)))
        assert refusal.value.why is Violation.FRONTIER_MISMATCH


@law
@given(
    said=st.lists(st.tuples(st.lists(st.tuples(steps, st.integers(-1, 2)), max_size=3), frontiers), max_size=8),
)
def test_a_listener_refuses_all_that_goes_back_or_does_not_add_up(
    said: list[tuple[list[tuple[Step, int]], Antichain]],
) -> None:
    id = GlobalId("u", 1)
    listener = UpperListener()
    counts: Counter[int] = Counter([0])

    for changes, upper in said:
        before = min(counts, default=inf)
        for step, change in changes:
            counts[step] += change
        right = all(count >= 0 for count in counts.values())
        counts = Counter({step: count for step, count in counts.items() if count})
        right = right and before <= far(upper) == min(counts, default=inf)
        response = FrontierUppers(changes=(FrontierChange(id=id, changes=ChangeBatch.of(changes), upper=upper),))
        if not right:
            with pytest.raises(ProtocolViolation) as refusal:
                listener.hear(response)
            assert refusal.value.why is Violation.FRONTIER_MISMATCH
            return
        assert tuple(listener.hear(response)) == ((id, upper),)


@law
@given(first=frontiers, again=frontiers)
def test_a_listener_that_forgot_a_collection_starts_it_at_the_minimum(first: Antichain, again: Antichain) -> None:
    id = GlobalId("u", 1)
    listener = UpperListener()
    for upper in (first, again):
        change = FrontierChange(id=id, changes=ChangeBatch.between(MINIMUM, upper), upper=upper)

        assert tuple(listener.hear(FrontierUppers(changes=(change,)))) == ((id, upper),)
        listener.forget(id)
