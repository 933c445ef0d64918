"""Merging of runs: which, decided on their sizes alone, and how.

Runs are merged with their neighbours in age, so that an older run never has later steps than a younger one and a
stable sort by hash leaves the changes of a row in the order of their steps. A run is merged once the younger ones
together have reached a part of its size, and there are a few of them. So sizes fall geometrically, there are O(log n)
runs, and an update is written O(log n) times. Merging earlier makes for more writing and fewer runs: a read pays for
every large run, because each is beyond the processor's cache.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types

from instance.spine.consolidation import consolidated
from instance.spine.files import RunFiles, TooNarrow, Widths, widths_of
from instance.spine.run import Part, Run, Updates, joined, slices
from instance.spine.sizes import SIZES, Sizes

#: A run is merged when the younger ones together, times this, have reached its size.
REACH = 4
#: So many runs of about one size are left beside each other: more make merges rarer and reads slower.
STANDING = 2
#: After a merge of so many rows, memory is given back to the system.
RELEASED_ROWS = 1 << 18


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
        finally:
            if self.rows >= RELEASED_ROWS:
                # Or Arrow keeps for later what a part needed.
                pa.default_memory_pool().release_unused()

    def _written(self, files: RunFiles, widths: Widths) -> Run | None:
        file = files.write(self.number, self.schema, widths, self._parts())
        parts = files.mapped(file, self.schema)
        if not parts:
            files.remove([file.name])
            return None
        return Run.of(self.number, parts, self.horizon, file)

    def _parts(self) -> Iterator[Part]:
        """The parts of the result, in order; none is empty."""
        rows_max = max(self.sizes.part_rows, self.rows // self.sizes.parts_max)
        row_bytes = sum(run.bytes for run in self.runs) // self.rows + 1
        for low, high in slices(self.runs, max(1, min(rows_max, self.sizes.part_bytes_max // row_bytes))):
            pieces = [piece for run in self.runs for piece in run.between(low, high)]
            merged = merged_updates(pieces, self.horizon) if pieces else None
            if merged:
                yield Part.of(merged)
            # Before the next part is made: two at a time would be twice the memory.
            del merged


def merged_updates(pieces: list[Updates], horizon: int) -> Updates:
    """Consolidates sorted pieces, the oldest first, with everything up to ``horizon`` folded into one change there.

    Takes the pieces out of the list: they may be large, and go as soon as they are not needed.
    """
    is_sorted = len(pieces) == 1
    updates = joined(pieces)
    pieces.clear()
    steps = updates.steps
    if len(steps) and int(steps.min()) < horizon:
        steps = np.maximum(steps, horizon)
    columns = list(updates.columns)
    found = consolidated(updates.hashes, columns, steps, updates.diffs, is_sorted=is_sorted, in_runs=True)
    del updates, steps
    if len(columns) and not (found.in_place and len(found.places) == len(columns[0])):
        chosen = pa.array(found.places)
        for place in range(len(columns)):
            columns[place] = columns[place].take(chosen)
    return Updates(columns=columns, hashes=found.hashes, steps=found.steps, diffs=found.diffs)
