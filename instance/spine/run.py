"""A run: an immutable sequence of updates, sorted by (hash, row, step), in memory or mapped from a file.

The hash of an update has the high bits of its key's hash and the low bits of its row's: one number orders the run,
finds a key and brings equal rows together. Updates of one row stand in the order of their steps; rows whose hashes
collide may stand among each other. A run has a few parts, one after the other, so that no array grows beyond what
Arrow can address and a merge never holds more than a part.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types
from numpy.typing import NDArray

from instance.spine.consolidation import Consolidated, Numbers, consolidated
from instance.spine.hashing import Hashes
from instance.spine.searching import AMONG_MIN, SOUGHT_MIN, fences_of, searched
from instance.spine.values import Places

#: How much of a hash comes from the row. The rest comes from the key.
ROW_BITS = 24
ROW_MASK = np.uint64((1 << ROW_BITS) - 1)
KEY_MASK = np.uint64(((1 << 64) - 1) ^ ((1 << ROW_BITS) - 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Updates:
    """Updates column by column; all columns have the same length."""

    columns: Sequence[pa.Array]
    hashes: Hashes
    steps: Numbers
    diffs: Numbers

    def __len__(self) -> int:
        return len(self.hashes)

    def taken(self, places: Places) -> "Updates":
        chosen = pa.array(places)
        return Updates(
            columns=[column.take(chosen) for column in self.columns],
            hashes=self.hashes[places],
            steps=self.steps[places],
            diffs=self.diffs[places],
        )

    def kept(self, found: Consolidated) -> "Updates":
        """What consolidating them has left."""
        columns = self.columns
        if len(found.places) < len(self) or not found.in_place:
            chosen = pa.array(found.places)
            columns = [column.take(chosen) for column in columns]
        return Updates(columns=columns, hashes=found.hashes, steps=found.steps, diffs=found.diffs)

    def consolidated(self, *, by_step: bool, is_sorted: bool = False, in_runs: bool = True) -> "Updates":
        steps = self.steps if by_step else None
        found = consolidated(self.hashes, self.columns, steps, self.diffs, is_sorted=is_sorted, in_runs=in_runs)
        return self.kept(found)


def joined(pieces: Sequence[Updates]) -> Updates:
    """All of them, one after the other; at least one."""
    if len(pieces) == 1:
        return pieces[0]
    columns = [pa.concat_arrays(same) for same in zip(*(piece.columns for piece in pieces), strict=True)]
    return Updates(
        columns=columns,
        hashes=np.concatenate([piece.hashes for piece in pieces]),
        steps=np.concatenate([piece.steps for piece in pieces]),
        diffs=np.concatenate([piece.diffs for piece in pieces]),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Part:
    """Part of a run. Steps are stored less ``base``, steps and diffs in as few bytes as all of the run need."""

    columns: Sequence[pa.Array]
    hashes: Hashes
    steps: NDArray[np.integer[Any]]
    diffs: NDArray[np.integer[Any]]
    base: int = 0
    #: Nothing, or the fences among the hashes, made when many keys are first looked for.
    _fences: list[Hashes] = field(default_factory=list, repr=False)

    @classmethod
    def of(cls, updates: Updates) -> "Part":
        return cls(columns=updates.columns, hashes=updates.hashes, steps=updates.steps, diffs=updates.diffs)

    def __len__(self) -> int:
        return len(self.hashes)

    @property
    def bytes(self) -> int:
        others = self.hashes.nbytes + self.steps.nbytes + self.diffs.nbytes
        return others + sum(int(column.nbytes) for column in self.columns)

    def between(self, begin: int, end: int) -> Updates:
        """The updates from one place to before another; columns are not copied."""
        return Updates(
            columns=[column.slice(begin, end - begin) for column in self.columns],
            hashes=self.hashes[begin:end],
            steps=self._steps_of(self.steps[begin:end]),
            diffs=self.diffs[begin:end].astype(np.int64),
        )

    def at(self, places: Places) -> Updates:
        chosen = pa.array(places)
        return Updates(
            columns=[column.take(chosen) for column in self.columns],
            hashes=self.hashes[places],
            steps=self._steps_of(self.steps[places]),
            diffs=self.diffs[places].astype(np.int64),
        )

    def searched(self, sought: Hashes) -> Places:
        """How many hashes are less than each of these."""
        if len(sought) < SOUGHT_MIN or len(self) < AMONG_MIN:
            return self.hashes.searchsorted(sought)
        if not self._fences:
            self._fences.append(fences_of(self.hashes))
        return searched(self.hashes, self._fences[0], sought)

    def _steps_of(self, stored: NDArray[np.integer[Any]]) -> Numbers:
        return stored.astype(np.int64) + self.base if self.base else stored.astype(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFile:
    """A file with a run in it, and how to recognise that it is whole."""

    name: str
    bytes: int
    #: CRC-32 of the file's footer, and of the whole file.
    footer_crc: int
    whole_crc: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Updates of one collection between two steps, never empty. Those of an older run are not at later steps."""

    #: No two runs of a spine have the same; a younger one may have a smaller number.
    number: int
    parts: tuple[Part, ...]
    rows: int
    first: int
    last: int
    #: How many updates are later changes of a row that has earlier ones: what folding could save at most.
    later_changes: int
    file: RunFile | None = None

    @classmethod
    def of(cls, number: int, parts: Iterable[Part], horizon: int, file: RunFile | None = None) -> "Run":
        """A run of these parts, of which at least one has rows; everything up to ``horizon`` is folded."""
        held = tuple(part for part in parts if len(part))
        first = min(int(part.steps.min()) + part.base for part in held)
        last = max(int(part.steps.max()) + part.base for part in held)
        changes = 0
        if last > horizon:
            changes = sum(int(np.count_nonzero(part.hashes[1:] == part.hashes[:-1])) for part in held)
        rows = sum(len(part) for part in held)
        return cls(number=number, parts=held, rows=rows, first=first, last=last, later_changes=changes, file=file)

    @property
    def bytes(self) -> int:
        return sum(part.bytes for part in self.parts)

    def between(self, low: int, high: int | None) -> Iterator[Updates]:
        """The updates whose hash is at least ``low`` and below ``high``; to the greatest if that is None."""
        for part in self.parts:
            begin = int(np.searchsorted(part.hashes, np.uint64(low))) if low else 0
            end = len(part) if high is None else int(np.searchsorted(part.hashes, np.uint64(high)))
            if begin < end:
                yield part.between(begin, end)


def slices(runs: Sequence[Run], rows_max: int) -> list[tuple[int, int | None]]:
    """Ranges of hashes that together are all, each with about ``rows_max`` rows at most in all of the runs together."""
    total = sum(run.rows for run in runs)
    count = -(-total // rows_max)
    if count <= 1:
        return [(0, None)]
    largest = max(runs, key=lambda run: run.rows)
    # Hashes lie evenly, and those of the largest run say where others lie too if they do not.
    wanted = {place * largest.rows // count for place in range(1, count)}
    cuts: set[int] = set()
    before = 0
    for part in largest.parts:
        cuts.update(int(part.hashes[place - before]) for place in wanted if before <= place < before + len(part))
        before += len(part)
    ordered = sorted(cuts - {0})
    return list(zip([0, *ordered], [*ordered, None], strict=True))
