"""What a shard lacks: whoever writes it, in whatever pieces, it comes to hold what was computed."""

from collections import Counter
from random import Random

import pytest

from instance.memory.batch import Batch, RowUpdate
from instance.memory.owed import Owed
from instance.memory.rows import Row, declared_format
from reconcile.frontiers import Antichain

FORMAT = declared_format((("k", "int"),))
STEPS = 12


def contents(updates: list[RowUpdate], at: int) -> Counter[Row]:
    found: Counter[Row] = Counter()
    for row, step, diff in updates:
        if step <= at:
            found[row] += diff
    return Counter({row: count for row, count in found.items() if count})


@pytest.mark.parametrize("seed", range(60))
def test_after_each_write_of_ours_the_shard_holds_what_was_computed(seed: int) -> None:
    random = Random(seed)
    desired = [((random.randrange(3),), step, random.choice([-1, 1])) for step in range(STEPS) for _ in range(2)]
    shard: list[RowUpdate] = []
    upper, computed, owed = 0, 0, Owed(FORMAT)
    written_at = set[int]()

    while computed < STEPS or upper < STEPS:
        if computed < STEPS and random.random() < 0.5:
            before, computed = computed, random.randint(computed + 1, STEPS)
            change = [update for update in desired if before <= update[1] < computed]
            owed.compute(Batch.of(FORMAT, change), Antichain.at(computed))
        elif upper < STEPS and random.random() < 0.3:
            # Somebody else comes first, and may be wrong, or ahead of us.
            before, upper = upper, random.randint(upper + 1, STEPS)
            wrong = [((9,), before, 1)] if random.random() < 0.4 else []
            other = [update for update in desired if before <= update[1] < upper] + wrong
            shard += other
            owed.hold(Batch.of(FORMAT, other), Antichain.at(upper))
        elif computed > upper:
            due = owed.due().updates
            assert all(upper <= step < computed for _, step, _ in due)
            shard += due
            owed.wrote(Antichain.at(computed))
            upper = computed
            written_at.add(upper - 1)
            assert contents(shard, upper - 1) == contents(desired, upper - 1)
            assert len(owed.due()) == 0
        assert owed.held == Antichain.at(upper)

    assert all(contents(shard, at) == contents(desired, at) for at in written_at)


def test_what_another_wrote_as_we_would_have_leaves_nothing_owed() -> None:
    owed, change = Owed(FORMAT), Batch.of(FORMAT, [((1,), 0, 1), ((2,), 1, 1)])

    owed.hold(change, Antichain.at(2))
    owed.compute(change, Antichain.at(2))
    owed.compute(Batch.nothing(FORMAT), Antichain.at(3))

    assert len(owed.due()) == 0
    assert len(owed) == 0
