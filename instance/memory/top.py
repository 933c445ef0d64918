"""The top operator: the first rows of a collection, in an order in which no two different rows are equal."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

from instance.memory.batch import Batch, RowUpdate
from instance.memory.rows import Row, RowFormat, order_key, row_format
from reconcile.errors import InvalidRequest

#: A column, whether the greatest comes first, and whether null comes first.
Ordering = tuple[str, bool, bool]

#: Rows in one piece of the sorted rows, at most: an insert moves this many.
_PIECE_ROWS_MAX = 1024


class _Descending:
    """Orders values the other way round."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Descending) and bool(self.value == other.value)

    def __lt__(self, other: "_Descending") -> bool:
        return bool(other.value < self.value)

    __hash__ = None  # type: ignore[assignment]  # it is only compared


class SortedRows:
    """Rows in order, each with how often it occurs.

    The pieces are not empty, each is sorted, and none has more than ``_PIECE_ROWS_MAX`` rows; ``_counts`` has exactly
    the rows that are in them.
    """

    def __init__(self, key: Callable[[Row], Any]) -> None:
        self._key = key
        self._pieces: list[list[tuple[Any, Row]]] = []
        self._counts: dict[Row, int] = {}

    def __len__(self) -> int:
        """Each different row once."""
        return sum(map(len, self._pieces))

    def add(self, updates: Iterable[tuple[Row, int]]) -> None:
        """Counts each row ``diff`` times more."""
        came: set[Row] = set()
        gone: set[Row] = set()
        for row, diff in updates:
            before = self._counts.get(row, 0)
            if before + diff:
                self._counts[row] = before + diff
            else:
                del self._counts[row]
            if not before and row not in gone:
                came.add(row)
            gone.discard(row)
            if not before + diff:
                (came.discard if row in came else gone.add)(row)
        for row in gone:
            self._remove(row)
        if len(came) > _PIECE_ROWS_MAX:
            self._merge(came)
        else:
            for row in came:
                self._insert(row)

    def first(self, rows: int, after: int) -> dict[Row, int]:
        """How often each row occurs among ``rows`` rows behind the first ``after``."""
        found: dict[Row, int] = {}
        for row in self._in_order():
            if not rows:
                break
            count = self._counts[row]
            skipped = min(after, count)
            after -= skipped
            taken = min(rows, count - skipped)
            rows -= taken
            if taken:
                found[row] = taken
        return found

    def _in_order(self) -> Iterator[Row]:
        for piece in self._pieces:
            for _, row in piece:
                yield row

    def _piece_of(self, key: Any) -> int:
        return min(bisect_left(self._pieces, key, key=lambda piece: piece[-1][0]), len(self._pieces) - 1)

    def _insert(self, row: Row) -> None:
        key = self._key(row)
        if not self._pieces:
            self._pieces.append([(key, row)])
            return
        place = self._piece_of(key)
        piece = self._pieces[place]
        piece.insert(bisect_left(piece, key, key=itemgetter(0)), (key, row))
        if len(piece) > _PIECE_ROWS_MAX:
            half = len(piece) // 2
            self._pieces[place : place + 1] = [piece[:half], piece[half:]]

    def _remove(self, row: Row) -> None:
        key = self._key(row)
        place = self._piece_of(key)
        piece = self._pieces[place]
        del piece[bisect_left(piece, key, key=itemgetter(0))]
        if not piece:
            del self._pieces[place]

    def _merge(self, rows: Iterable[Row]) -> None:
        """Sorts everything again: many rows at once, as when a view begins."""
        found = [(self._key(row), row) for row in rows]
        found += [entry for piece in self._pieces for entry in piece]
        found.sort(key=itemgetter(0))
        half = _PIECE_ROWS_MAX // 2
        self._pieces = [found[place : place + half] for place in range(0, len(found), half)]


class Top:
    """The first ``limit`` rows behind ``offset``, of which it gives some columns.

    It keeps all rows in order, so that a change costs the rows in it, and the rows that are shown.
    """

    linear = False

    def __init__(
        self,
        input: RowFormat,
        *,
        order: Sequence[Ordering],
        limit: int,
        offset: int,
        columns: Sequence[str],
    ) -> None:
        if {name for name, _, _ in order} != set(input.names):
            raise InvalidRequest("rows are ordered by all of their columns", detail=f"they have {input.names}")
        places = [input.places[name] for name in columns]
        self.format = row_format(tuple(columns), tuple(input.types[place] for place in places))
        self._places = places
        self._limit, self._offset = limit, offset
        self._rows = SortedRows(_row_key(input, order))
        #: What was last given, of the input.
        self._shown: dict[Row, int] = {}

    @property
    def rows_kept(self) -> int:
        return len(self._rows)

    def apply(self, changes: Sequence[Batch], at: int) -> Batch:  # noqa: ARG002
        (batch,) = changes
        found: list[RowUpdate] = []
        for step, updates in groupby(batch.in_step_order(), itemgetter(1)):
            self._rows.add((row, diff) for row, _, diff in updates)
            shown = self._rows.first(self._limit, self._offset)
            for row in {**self._shown, **shown}:
                diff = shown.get(row, 0) - self._shown.get(row, 0)
                if diff:
                    found.append((tuple(row[place] for place in self._places), step, diff))
            self._shown = shown
        return Batch.of(self.format, found) if found else Batch.nothing(self.format)


def _row_key(input: RowFormat, order: Sequence[Ordering]) -> Callable[[Row], Any]:
    """What rows are sorted by: column after column, nulls where they are said to be."""
    columns = [
        (input.places[name], order_key(input.types[input.places[name]]), descending, (0,) if nulls_first else (2,))
        for name, descending, nulls_first in order
    ]

    def key(row: Row) -> Any:
        found: list[tuple[Any, ...]] = []
        for place, ascending, descending, null in columns:
            value = row[place]
            if value is None:
                found.append(null)
            else:
                part = ascending(value)
                found.append((1, _Descending(part) if descending else part))
        return tuple(found)

    return key
