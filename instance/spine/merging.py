"""Merging of runs: which, decided on their sizes alone, and how.

Runs are merged with their neighbours in age, so that an older run never has later steps than a younger one and a
stable sort by hash leaves the changes of a row in the order of their steps. A run is merged once the younger ones
together are as large as it is, and there are a few of them: every merge at least doubles the run that an update is in,
so there are O(log n) runs and an update is written O(log n) times.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types

from instance.spine.files import RunFiles, TooNarrow, Widths, widths_of
from instance.spine.run import Part, Run, Updates, joined, slices
from instance.spine.sizes import SIZES, Sizes

#: A run is merged when the younger ones together have reached this part of its size.
REACH = 4
#: So many runs of about one size are left beside each other: more make merges rarer and reads slower.
STANDING = 3


def window_due(sizes: Sequence[int | None], rows_max: int | None = None) -> tuple[int, int] | None:
    """Which neighbours to merge, from a place to before another; sizes are those of the runs, oldest first.

    A run that must not be merged has the size None. The result has at most ``rows_max`` rows.
    """
    end = len(sizes)
    while end > STANDING:
        begin, total = end, 0
        while begin > 0:
            size = sizes[begin - 1]
            if size is None or (total and size > REACH * total) or (rows_max is not None and total + size > rows_max):
                break
            begin, total = begin - 1, total + size
        if end - begin > STANDING:
            return begin, end
        end -= 1
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """A merge that is due: ``run`` needs nothing but immutable runs, so it may be called in any thread."""

    number: int
    #: Neighbours, the oldest first.
    runs: tuple[Run, ...]
    schema: pa.Schema
    horizon: int
    #: Where to write the result; None leaves it in memory.
    files: RunFiles | None
    sizes: Sizes = SIZES

    @property
    def rows(self) -> int:
        """How many rows have to be read."""
        return sum(run.rows for run in self.runs)

    def run(self) -> Run | None:
        """The merged run, durable if it is to be in a file; None if nothing is left of it.

        Takes time and memory for a part, and leaves the interpreter to others most of the time.
        """
        if self.files is None:
            parts = tuple(self._parts())
            return Run.of(self.number, parts, self.horizon) if parts else None
        widths = widths_of(self.runs, self.horizon)
        try:
            return self._written(self.files, widths)
        except TooNarrow:
            return self._written(self.files, replace(widths, diff=8))

    def _written(self, files: RunFiles, widths: Widths) -> Run | None:
        parts = self._parts()
        first = next(parts, None)
        if first is None:
            return None
        file = files.write(self.number, self.schema, widths, _chain(first, parts))
        return Run.of(self.number, files.mapped(file, self.schema), self.horizon, file)

    def _parts(self) -> Iterator[Part]:
        """The parts of the result, in order; none is empty."""
        rows_max = max(self.sizes.part_rows, self.rows // self.sizes.parts_max)
        row_bytes = sum(run.bytes for run in self.runs) // self.rows + 1
        for low, high in slices(self.runs, max(1, min(rows_max, self.sizes.part_bytes_max // row_bytes))):
            pieces = [piece for run in self.runs for piece in run.between(low, high)]
            if pieces and len(merged := merged_updates(pieces, self.horizon)):
                yield Part.of(merged)


def _chain(first: Part, others: Iterator[Part]) -> Iterator[Part]:
    yield first
    yield from others


def merged_updates(pieces: Sequence[Updates], horizon: int) -> Updates:
    """Consolidates sorted pieces, the oldest first, with everything up to ``horizon`` folded into one change there."""
    updates = joined(pieces)
    if len(updates) and int(updates.steps.min()) < horizon:
        updates = replace(updates, steps=np.maximum(updates.steps, horizon))
    return updates.consolidated(by_step=True, is_sorted=len(pieces) == 1)
