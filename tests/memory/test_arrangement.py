"""An arrangement reads right at every step from its since on, whatever was inserted and compacted when."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instance.inputs import NotReadable
from instance.memory.arrangement import Arrangement
from instance.memory.batch import RowUpdate, consolidate
from instance.memory.rows import Row
from reconcile.frontiers import CLOSED, Antichain

rows = st.tuples(st.one_of(st.none(), st.integers(0, 2)), st.integers(0, 2))
#: For each step: changes, and how far to compact after it (relative to the step).
histories = st.lists(
    st.tuples(st.lists(st.tuples(rows, st.sampled_from([1, 1, 2, -1])), max_size=6), st.integers(-3, 2)), max_size=10
)


def contents(updates: list[RowUpdate], at: int) -> Counter[Row]:
    """The dumb model: sums everything up to ``at``; a count below zero shows as nothing."""
    found: Counter[Row] = Counter()
    for row, step, diff in updates:
        if step <= at:
            found[row] += diff
    return +found


@given(histories, st.sampled_from([(), (0,), (1,), (0, 1), (1, 0)]))
def test_contents_lookups_and_changes_equal_the_sum_of_all_updates(
    history: list[tuple[list[tuple[Row, int]], int]], key: tuple[int, ...]
) -> None:
    arrangement = Arrangement(key)
    all_updates: list[RowUpdate] = []
    since = 0
    for step, (changes, back) in enumerate(history):
        updates = [(row, step, diff) for row, diff in changes]
        all_updates += updates
        arrangement.insert(updates)
        if step + back > since:
            since = step + back
            arrangement.compact(Antichain.at(since))
        arrangement.check()

        first = max(0, since - 1)
        for at in range(first, step + 4):
            expected = contents(all_updates, at)
            assert Counter(dict(arrangement.contents(at))) == expected
            for row in {row for row, _, _ in all_updates}:
                wanted = tuple(row[place] for place in key) or row
                alike = {each: n for each, n in expected.items() if (tuple(each[p] for p in key) or each) == wanted}
                assert dict(arrangement.lookup(wanted, at)) == alike
        for at in range(first + 1, step + 1):
            later = [update for update in all_updates if update[1] >= at]
            assert Counter(arrangement.changes_from(at)) == Counter(consolidate(later))


@given(histories)
def test_nothing_is_kept_of_rows_that_are_gone_before_since(history: list[tuple[list[tuple[Row, int]], int]]) -> None:
    arrangement = Arrangement()
    all_updates: list[RowUpdate] = []
    for step, (changes, _) in enumerate(history):
        updates = [(row, step, diff) for row, diff in changes]
        all_updates += updates
        arrangement.insert(updates)

    arrangement.compact(Antichain.at(len(history) + 1))

    left = Counter[Row]()
    for row, _, diff in all_updates:
        left[row] += diff
    assert arrangement.size == sum(1 for count in left.values() if count)
    arrangement.check()


def test_reading_before_the_horizon_is_refused_and_one_step_before_since_is_not() -> None:
    arrangement = Arrangement()
    arrangement.insert([((1,), 2, 1), ((2,), 5, 1)])
    arrangement.compact(Antichain.at(5))

    assert dict(arrangement.contents(4)) == {(1,): 1}
    assert arrangement.changes_from(5) == [((2,), 5, 1)]
    with pytest.raises(NotReadable):
        arrangement.lookup((1,), 3)
    with pytest.raises(NotReadable):
        arrangement.changes_from(4)


def test_an_arrangement_that_is_closed_holds_nothing() -> None:
    arrangement = Arrangement((0,))
    arrangement.insert([((1,), 2, 1)])

    arrangement.compact(CLOSED)

    assert (arrangement.size, arrangement.keys()) == (0, [])
    arrangement.check()
