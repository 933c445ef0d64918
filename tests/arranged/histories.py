"""Random histories for operators: batches of several steps in which rows come, go and come again."""

import math
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types
from hypothesis import strategies as st

from instance.memory.batch import Batch, RowUpdate, consolidate
from instance.memory.rows import Row, RowFormat, declared_format
from instance.spine.hashing import Hashes, row_hashes
from instance.spine.sizes import Sizes

COLUMNS = (
    ("k", "string"), ("i", "int"), ("b", "bigint"), ("d", "double"), ("f", "float"), ("m", "decimal(6,2)"),
    ("w", "decimal(38,3)"), ("t", "timestamp"), ("o", "boolean"),
)  # fmt: skip
FORMAT = declared_format(COLUMNS)
OTHER = declared_format((("j", "string"), ("n", "bigint"), ("e", "double"), ("g", "decimal(8,1)")))

#: Everything happens small: runs of a few rows are merged, moved to files and cut in parts.
TINY = Sizes(at_once_rows=4, file_rows=8, piece_rows=3, part_rows=5, parts_max=4, part_bytes_max=1 << 20)

DOUBLES = [
    0.0, -0.0, 0.1, 0.2, 0.3, -1.5, 1e16, -1e16, 123456.789, 2.0**63, -(2.0**64), 2.0**-76, 2.0**-77, 1e300, -1e300,
    1.7976931348623157e308, 5e-324, math.nan, math.inf, -math.inf, 1 / 3, -1e-20,
]  # fmt: skip
_VALUES: dict[str, list[Any]] = {
    "k": ["", "a", "b", "ab", "ß", "a\0"],
    "j": ["", "a", "b", "ab", "ß", "c"],
    "i": [-(2**31), -3, 0, 1, 2, 7, 2**31 - 1],
    "b": [-(2**63), -(2**53) - 1, -1, 0, 1, 5, 2**32, 2**62, 2**63 - 1],
    "n": [0, 1, 2, 7, 2**40],
    "d": DOUBLES,
    "e": DOUBLES,
    "f": [0.0, 0.5, float(np.float32(0.1)), float(np.float32(3e38)), float(np.float32(1e-45)), math.nan, -math.inf],
    "m": [Decimal("0.00"), Decimal("0.01"), Decimal("-1.25"), Decimal("1234.56"), Decimal("-9999.99")],
    "g": [Decimal("0.0"), Decimal("1.0"), Decimal("-1.3"), Decimal("1234.5")],
    "w": [Decimal("0.000"), Decimal("-0.001"), Decimal("123456789012345678901234567890.123"), Decimal("7.125")],
    "t": [0, -1, 86_400_000_000, 2**50],
    "o": [False, True],
}  # fmt: skip


def rows(format: RowFormat) -> st.SearchStrategy[Row]:
    return st.tuples(*(st.sampled_from([None, *_VALUES[name]]) for name in format.names))


#: What one batch does: for each step the rows to insert, and places (modulo what is there) of rows to delete.
Steps = list[tuple[list[Row], list[int]]]


def histories(format: RowFormat, batches: int = 4) -> st.SearchStrategy[list[Steps]]:
    step = st.tuples(st.lists(rows(format), max_size=6), st.lists(st.integers(0, 30), max_size=4))
    return st.lists(st.lists(step, min_size=1, max_size=3), min_size=batches, max_size=batches)


class Played:
    """Turns histories into batches, and knows what is there."""

    def __init__(self, format: RowFormat) -> None:
        self.format = format
        self._there: list[Row] = []

    def batch(self, steps: Steps, at: int, *, backwards: bool) -> Batch:
        """The batch of steps from ``at`` on.

        If it goes backwards, later steps come first, and rows may go at the step at which they come.
        """
        updates: list[RowUpdate] = []
        for step, (come, gone) in enumerate(steps, at):
            if backwards:
                self._there += come
            some = gone[: len(self._there)]
            updates += [(self._there.pop(place % len(self._there)), step, -1) for place in some]
            updates += [(row, step, 1) for row in come]
            if not backwards:
                self._there += come
        if not updates:
            return Batch.nothing(self.format)
        found = Batch.of(self.format, updates[::-1] if backwards else updates)
        # By way of Arrow, as updates come from outside: with -0.0 and whatever NaN there is.
        return Batch.of_arrow(self.format, found.arrow)


def changes_of(batch: Batch) -> Counter[tuple[Row, int]]:
    return Counter({(row, step): diff for row, step, diff in consolidate(batch.updates)})


def colliding(columns: Sequence[pa.Array], start: Hashes | None = None) -> Hashes:
    """Hashes of which there are but a few."""
    return (row_hashes(columns, start) % np.uint64(3)) << np.uint64(62)
