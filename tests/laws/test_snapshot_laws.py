"""Laws of snapshot appends: what is held becomes what is wanted, and nothing else changes."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from reconcile.ids import Step
from reconcile.updates import UpdateList, snapshot_changes

law = settings(max_examples=200, deadline=None)

steps = st.integers(0, 6).map(Step)
multisets = st.lists(st.sampled_from("abcde"), max_size=10)


def applied(held: list[str], changes: UpdateList) -> Counter[str]:
    counts = Counter(held)
    for update in changes.updates:
        counts[str(update.row)] += update.diff
    return counts


@law
@given(held=multisets, wanted=multisets, step=steps)
def test_the_changes_of_a_snapshot_make_what_is_held_what_is_wanted(
    held: list[str], wanted: list[str], step: Step
) -> None:
    changes = snapshot_changes(wanted=wanted, held=held, step=step)

    assert applied(held, changes) == Counter(wanted)
    assert all(update.step == step and update.diff != 0 for update in changes.updates)
    assert len({update.row for update in changes.updates}) == len(changes)


@law
@given(held=multisets, wanted=multisets, step=steps)
def test_a_snapshot_sent_twice_changes_nothing_the_second_time(held: list[str], wanted: list[str], step: Step) -> None:
    now = list(applied(held, snapshot_changes(wanted=wanted, held=held, step=step)).elements())

    assert snapshot_changes(wanted=wanted, held=now, step=step) == UpdateList()


@law
@given(held=multisets, wanted=multisets, step=steps)
def test_a_snapshot_retracts_before_it_adds(held: list[str], wanted: list[str], step: Step) -> None:
    by_appearance = list(dict.fromkeys([*held, *wanted]))
    gone = [row for row in by_appearance if held.count(row) > wanted.count(row)]
    come = [row for row in by_appearance if held.count(row) < wanted.count(row)]

    changes = snapshot_changes(wanted=wanted, held=held, step=step)

    assert [update.row for update in changes.updates] == gone + come
