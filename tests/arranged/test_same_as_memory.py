"""Operators over spines give what those in memory give: the same changes at the same steps, or the same error."""

from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from instance.arranged import matching, thinning
from instance.arranged.group import Group
from instance.arranged.join import Join
from instance.arranged.operator import ArrangedOperator, Setting
from instance.arranged.rendering import distinct_of
from instance.memory.batch import Batch
from instance.memory.distinct import Distinct
from instance.memory.group import Group as GroupInMemory
from instance.memory.join import Join as JoinInMemory
from instance.memory.operators import Operator
from instance.spine.files import RunFiles
from instance.spine.hashing import row_hashes
from reconcile.errors import InvalidRequest
from reconcile.frontiers import Antichain
from tests.arranged.histories import FORMAT, OTHER, TINY, Played, Steps, changes_of, colliding, histories

relaxed = settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))


def tended(operator: ArrangedOperator) -> None:
    """What happens in the background, at once."""
    for spine in operator.spines().values():
        spine.compact(Antichain.at(spine.newest + 1))
        while (merge := spine.merge_due()) is not None:
            spine.install(merge, merge.run())
        spine.check()


def outcome(apply: Callable[[Sequence[Batch], int], Batch], changes: Sequence[Batch], at: int) -> Any:
    try:
        return changes_of(apply(changes, at))
    except InvalidRequest as error:
        # Of several groups that fail, either may be named first.
        return error.message


def same(
    model: Operator, make: Callable[[Setting], ArrangedOperator], played: list[Played], given: list[list[Steps]],
    *, collide: bool, backwards: bool,
) -> None:  # fmt: skip
    with TemporaryDirectory() as folder:
        setting = Setting(
            place=lambda name: RunFiles(Path(folder) / name),
            sizes=TINY,
            hashing=colliding if collide else row_hashes,
        )
        operator = make(setting)
        assert operator.format is model.format
        at = 3
        for steps in zip(*given, strict=True):
            changes = [each.batch(of, at, backwards=backwards) for each, of in zip(played, steps, strict=True)]
            expected = outcome(model.apply, changes, at)
            assert outcome(operator.apply, changes, at) == expected
            if isinstance(expected, str):
                return
            tended(operator)
            at += max(map(len, steps)) + 1


KEYS = ["k", "i", "d", "m", "f", "t", "o", "coalesce(i, 7) % 2"]
ARGUMENTS: dict[str, list[str | None]] = {
    "sum": ["i", "b", "d", "f", "m", "w", "i * 2L"],
    "avg": ["i", "b", "d", "f", "m", "w"],
    "min": ["k", "i", "b", "d", "f", "m", "w", "t", "o"],
    "max": ["k", "i", "b", "d", "f", "m", "w", "t", "o"],
    "count": ["k", "i", "d", "o", None],
}
aggregates = st.lists(
    st.sampled_from([(function, text) for function, texts in ARGUMENTS.items() for text in texts]), max_size=4
)


@pytest.mark.parametrize("thins", [False, True], ids=["as it comes", "thinned"])
@relaxed
@given(
    keys=st.lists(st.sampled_from(KEYS), max_size=2),
    chosen=aggregates,
    history=histories(FORMAT),
    collide=st.booleans(),
    backwards=st.booleans(),
)
def test_groups(
    thins: bool, keys: list[str], chosen: list[tuple[str, str | None]], history: list[Steps], collide: bool,
    backwards: bool,
) -> None:  # fmt: skip
    named = [(f"k{place}", text) for place, text in enumerate(keys)]
    made = [(f"a{place}", function, text) for place, (function, text) in enumerate(chosen)]
    if not named and not made:
        made = [("n", "count", None)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(thinning, "ROWS_MIN", 1 if thins else 1 << 30)

        same(
            GroupInMemory(FORMAT, named, made), lambda setting: Group(FORMAT, named, made, setting),
            [Played(FORMAT)], [history], collide=collide, backwards=backwards,
        )  # fmt: skip


@relaxed
@given(history=histories(OTHER, 5), collide=st.booleans(), backwards=st.booleans())
def test_distinct(history: list[Steps], collide: bool, backwards: bool) -> None:
    same(
        Distinct(OTHER), lambda setting: distinct_of(OTHER, setting), [Played(OTHER)], [history],
        collide=collide, backwards=backwards,
    )  # fmt: skip


PAIRS = [("k", "j"), ("i", "n"), ("b", "n"), ("d", "e"), ("m", "g"), ("i", "g"), ("f", "e"), ("i + 1", "n"), ("d", "n")]


@pytest.mark.parametrize("large", [1, 1 << 30], ids=["by Arrow", "by hash"])
@relaxed
@given(
    on=st.lists(st.sampled_from(PAIRS), max_size=2),
    left=histories(FORMAT, 3),
    right=histories(OTHER, 3),
    collide=st.booleans(),
    backwards=st.booleans(),
)
def test_joins(
    large: int, on: list[tuple[str, str]], left: list[Steps], right: list[Steps], collide: bool, backwards: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matching, "LARGE", large)

        same(
            JoinInMemory(FORMAT, OTHER, on), lambda setting: Join(FORMAT, OTHER, on, setting),
            [Played(FORMAT), Played(OTHER)], [left, right], collide=collide, backwards=backwards,
        )  # fmt: skip
