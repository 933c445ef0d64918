"""The first rows of a collection that changes, beside a list that is sorted anew."""

from collections import Counter
from random import Random

import pytest

from instance.memory.batch import Batch
from instance.memory.rows import NAN, Row, declared_format
from instance.memory.top import Top
from reconcile.errors import InvalidRequest

FORMAT = declared_format((("n", "int"), ("d", "double"), ("s", "string")))
ORDER = [("d", True, False), ("s", False, False), ("n", True, True)]
VALUES = [(None, 0, 1, 2, 3), (None, NAN, 0.0, 1.5, -2.0), (None, "", "x", "y", "é")]


def sorted_by_order(rows: list[Row]) -> list[Row]:
    """Least by least: each part of the order, the last first, as sorts are stable."""
    found = list(rows)
    for name, descending, nulls_first in reversed(ORDER):
        place = FORMAT.places[name]
        known = [row for row in found if row[place] is not None]
        nulls = [row for row in found if row[place] is None]
        known.sort(key=lambda row: (row[place] != row[place], row[place] if row[place] == row[place] else 0))
        if descending:
            # Reversed pieces of equals keep their own order.
            values = list(dict.fromkeys(row[place] for row in known))
            known = [row for value in reversed(values) for row in known if row[place] is value or row[place] == value]
        found = [*nulls, *known] if nulls_first else [*known, *nulls]
    return found


@pytest.mark.parametrize(("limit", "offset"), [(3, 0), (2, 4), (0, 0), (50, 1)])
@pytest.mark.parametrize("seed", range(6))
def test_the_first_rows_are_those_of_a_sorted_list_at_every_step(seed: int, limit: int, offset: int) -> None:
    random = Random(seed)
    top = Top(FORMAT, order=ORDER, limit=limit, offset=offset, columns=["s", "n"])
    there: list[Row] = []
    shown: Counter[Row] = Counter()

    for first in range(0, 60, 3):
        updates = []
        expected = {}
        for step in range(first, first + random.choice([1, 3])):
            for _ in range(random.choice([0, 2, 30])):
                if there and random.random() < 0.5:
                    row, diff = there.pop(random.randrange(len(there))), -1
                else:
                    row, diff = tuple(random.choice(values) for values in VALUES), 1
                    there.append(row)
                updates.append((row, step, diff))
            expected[step] = Counter((s, n) for n, _, s in sorted_by_order(there)[offset : offset + limit])

        changes = top.apply([Batch.of(FORMAT, updates)], first).updates

        for step, rows in expected.items():
            for row, at, diff in changes:
                if at == step:
                    shown[row] += diff
            assert +shown == rows
            assert min(shown.values(), default=0) >= 0


def test_many_rows_come_and_go_at_once() -> None:
    format = declared_format((("n", "int"),))
    top = Top(format, order=[("n", False, True)], limit=2, offset=0, columns=["n"])
    rows = [(number,) for number in range(10_000)]
    Random(1).shuffle(rows)

    came = top.apply([Batch.of(format, [(row, 0, 1) for row in rows])], 0)
    gone = top.apply([Batch.of(format, [((number,), 1, -1) for number in range(9_999)])], 1)
    again = top.apply([Batch.of(format, [((number,), 2, 1) for number in range(5_000, 0, -1)])], 2)

    assert sorted(came.updates) == [((0,), 0, 1), ((1,), 0, 1)]
    assert sorted(gone.updates) == [((0,), 1, -1), ((1,), 1, -1), ((9_999,), 1, 1)]
    assert sorted(again.updates) == [((1,), 2, 1), ((2,), 2, 1), ((9_999,), 2, -1)]


def test_an_order_that_leaves_a_column_out_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="ordered by all of their columns"):
        Top(FORMAT, order=ORDER[:2], limit=1, offset=0, columns=["n"])
