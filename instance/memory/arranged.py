"""What an index keeps: rows by key, readable at every step from its horizon on; in dicts, or on a spine.

Batches that are read from it have each row once, with its count as its difference.
"""

import asyncio
import shutil
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Protocol, TypeAlias

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types
import pyarrow.compute as pc  # type: ignore[import-untyped]

from instance.memory.arrangement import Arrangement
from instance.memory.batch import Batch
from instance.memory.rows import Row, RowFormat, to_array
from instance.spine.files import RunFiles
from instance.spine.spine import Spine
from instance.spine.tended import Tended
from plainsong.types import DIFF
from reconcile.frontiers import Antichain
from reconcile.ids import GlobalId, Step

#: Keys in one piece of what is kept in dicts.
_PIECE_KEYS = 4_096


class Arranged(Protocol):
    """Rows by key, multi-versioned."""

    @property
    def size(self) -> int:
        """About how many rows there are."""
        ...

    @property
    def in_threads(self) -> bool:
        """Whether pieces of contents may be computed in a thread, while the loop goes on inserting."""
        ...

    def begin(self, step: int) -> None:
        """What was there before ``step`` is not known: neither contents nor changes may be read from then."""
        ...

    async def insert(self, change: Batch) -> None:
        """Takes in a change, none of it before what was inserted already."""
        ...

    def compact(self, since: Antichain) -> None:
        """Forgets what only reads before ``since`` need."""
        ...

    def lookup(self, key: Row, at: Step) -> Batch:
        """The rows with this key; raises ``NotReadable`` if they are gone, as everything that reads does."""
        ...

    def contents(self, at: Step) -> Iterator[Batch]:
        """All rows, in pieces of bounded size. What is inserted meanwhile is at later steps and does not show."""
        ...

    def changes_from(self, step: int) -> Batch:
        """All updates at or after ``step``."""
        ...

    def stop(self) -> asyncio.Task[None] | None:
        """Does nothing more; returns the task that is ending, if there is one."""
        ...


#: Makes what the index with this id, of these columns, keeps by these key columns; no key columns are all.
Arrange: TypeAlias = Callable[[GlobalId, RowFormat, Sequence[str]], Arranged]


class InDicts:
    """In memory, row by row: nothing is faster for little, and nothing larger for much."""

    in_threads = False

    def __init__(self, id: GlobalId, format: RowFormat, key: Sequence[str]) -> None:  # noqa: ARG002  # an Arrange
        self._format = format
        self._arrangement = Arrangement([format.places[name] for name in key])

    @property
    def size(self) -> int:
        return self._arrangement.size

    def begin(self, step: int) -> None:
        self._arrangement.horizon = max(self._arrangement.horizon, step)

    async def insert(self, change: Batch) -> None:
        self._arrangement.insert(change.in_step_order())

    def compact(self, since: Antichain) -> None:
        self._arrangement.compact(since)

    def lookup(self, key: Row, at: Step) -> Batch:
        return Batch.of(self._format, [(row, at, count) for row, count in self._arrangement.lookup(key, at)])

    def contents(self, at: Step) -> Iterator[Batch]:
        self._arrangement.check_readable(at)
        keys = self._arrangement.keys()
        for first in range(0, len(keys), _PIECE_KEYS):
            rows = self._arrangement.rows_of(keys[first : first + _PIECE_KEYS], at)
            yield Batch.of(self._format, [(row, at, count) for row, count in rows])

    def changes_from(self, step: int) -> Batch:
        return Batch.of(self._format, self._arrangement.changes_from(step))

    def stop(self) -> None:
        return None


class OnSpine:
    """In sorted Arrow runs, in files where they are large; the files end with it."""

    in_threads = True

    def __init__(self, format: RowFormat, key: Sequence[str], place: RunFiles | None = None) -> None:
        self._format = format
        self._key = tuple(key) or format.names
        self._place = place
        self._spine = Tended(Spine(format.schema, key, place), place)

    @property
    def size(self) -> int:
        return self._spine.rows

    def begin(self, step: int) -> None:
        self._spine.compact(Antichain.at(step + 1))

    async def insert(self, change: Batch) -> None:
        await self._spine.insert(change.table)

    def compact(self, since: Antichain) -> None:
        self._spine.compact(since)

    def lookup(self, key: Row, at: Step) -> Batch:
        columns = [
            to_array([value], self._format.types[self._format.places[name]])
            for name, value in zip(self._key, key, strict=True)
        ]
        return self._counted(self._spine.snapshot().lookup(pa.table(columns, names=list(self._key)), at), at)

    def contents(self, at: Step) -> Iterator[Batch]:
        for piece in self._spine.snapshot().contents(at):
            yield self._counted(piece, at)

    def changes_from(self, step: int) -> Batch:
        return Batch.of_table(self._format, self._spine.snapshot().changes_from(step))

    def stop(self) -> asyncio.Task[None]:
        return asyncio.create_task(self._end())

    async def _end(self) -> None:
        await self._spine.close()
        if self._place is not None:
            await asyncio.to_thread(shutil.rmtree, self._place.folder, ignore_errors=True)

    def _counted(self, rows: pa.Table, at: Step) -> Batch:
        """More rows may have been taken away than there were: those are not there."""
        if rows.num_rows and pc.min(rows[DIFF]).as_py() < 0:
            rows = rows.filter(pc.greater(rows[DIFF], pa.scalar(0, pa.int64())))
        return Batch.of_table(self._format, rows, at)


def spines_in(folder: Path) -> Arrange:
    """Keeps indexes on spines with files below ``folder``."""
    numbers = count(1)

    def arrange(id: GlobalId, format: RowFormat, key: Sequence[str]) -> Arranged:
        # What had this id before may still be ending.
        return OnSpine(format, key, RunFiles(folder / f"{id}-{next(numbers)}"))

    return arrange
