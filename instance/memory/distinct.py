"""The distinct operator: each row once, as long as it occurs at all."""

from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter

from instance.memory.batch import Batch, RowUpdate
from instance.memory.rows import Row, RowFormat


class Distinct:
    """Counts rows, and changes only when a count leaves zero or comes back to it."""

    linear = False

    def __init__(self, input: RowFormat) -> None:
        self.format = input
        #: How often each row occurs; none zero.
        self._counts: dict[Row, int] = {}

    @property
    def rows_kept(self) -> int:
        return len(self._counts)

    def apply(self, changes: Sequence[Batch], at: int) -> Batch:  # noqa: ARG002
        (batch,) = changes
        if len(batch) == 0:
            return batch
        found: list[RowUpdate] = []
        for step, updates in groupby(batch.in_step_order(), itemgetter(1)):
            before: dict[Row, int] = {}
            for row, _, diff in updates:
                count = self._counts.get(row, 0)
                before.setdefault(row, count)
                self._counts[row] = count + diff
            for row, old in before.items():
                new = self._counts[row]
                if not new:
                    del self._counts[row]
                if (old > 0) != (new > 0):
                    found.append((row, step, 1 if new > 0 else -1))
        return Batch.of(self.format, found)
