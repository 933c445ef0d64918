"""Batches mean the same whether they are rows or Arrow."""

from random import Random

import pytest

from instance.memory import batch as batches
from instance.memory.batch import Batch, RowUpdate, concat
from instance.memory.rows import NAN, RowFormat, declared_format
from reconcile.frontiers import Antichain

FORMAT = declared_format((("k", "string"), ("v", "double"), ("w", "array<int>")))


def updates(seed: int) -> list[RowUpdate]:
    random = Random(seed)
    return [
        (
            (
                random.choice(["a", "b", "é", None]),
                random.choice([0.0, 1.5, NAN, None]),
                random.choice([(), (1, None), None]),
            ),
            random.randrange(6),
            random.choice([-2, -1, 1, 1, 2]),
        )
        for _ in range(random.choice([1, 2, 300]))
    ]


def both(format: RowFormat, updates: list[RowUpdate]) -> tuple[Batch, Batch]:
    rows = Batch.of(format, updates)
    return rows, Batch.of_arrow(format, Batch.of(format, updates).arrow)


def listed(batch: Batch) -> list[str]:
    return sorted(map(repr, batch.updates))


def is_in_order(batch: Batch) -> bool:
    steps = [step for _, step, _ in batch.updates]
    return steps == sorted(steps)


@pytest.mark.parametrize("seed", range(20))
def test_what_rows_sum_up_to_arrow_does_too(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "_ARROW_UPDATES_MIN", 1)
    rows, arrow = both(FORMAT, updates(seed))

    summed, advanced = arrow.consolidated(), arrow.advanced(3)

    # What only adds rows stays as it is, with rows that are there twice.
    only_adds = all(diff > 0 for _, _, diff in rows.updates)
    assert summed is arrow if only_adds else listed(summed) == listed(rows.consolidated())
    assert listed(advanced) == listed(rows.advanced(3))
    assert is_in_order(advanced)
    assert only_adds or is_in_order(summed)


@pytest.mark.parametrize("seed", range(5))
def test_batches_are_joined_and_split_alike(seed: int) -> None:
    one, two = both(FORMAT, updates(seed)), both(FORMAT, updates(seed + 100))

    joined = [concat(FORMAT, [one[place], two[place]]) for place in range(2)]

    assert [not each.is_rows for each in joined] == [False, True]
    assert listed(joined[0]) == listed(joined[1])
    for batch in both(FORMAT, updates(seed)):
        early, late = batch.split(Antichain.at(3))
        assert all(step < 3 for _, step, _ in early.updates)
        assert all(step >= 3 for _, step, _ in late.updates)
        assert len(early) + len(late) == len(batch)
