"""An arrangement: the rows of a collection by key, with enough history to read it at every step since it was compacted.

The history of a row are the steps at which its count changed. Compacting to ``since`` folds what happened before
``since - 1`` into one change at that step: one step more than asked for, because a reader that resumes at ``since``
must tell the changes *at* ``since`` from everything before it.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter

from instance.inputs import NotReadable
from instance.memory.batch import RowUpdate
from instance.memory.rows import Row
from reconcile.errors import InvariantBroken
from reconcile.frontiers import Antichain

#: Changes of a row's count, earliest first; no step twice, no change zero, never empty.
History = list[tuple[int, int]]


def key_of(places: Sequence[int]) -> Callable[[Row], Row]:
    """Takes the key columns, given by place, out of a row; no places at all are all of them."""
    if not places:
        return lambda row: row
    if len(places) == 1:
        place = places[0]
        return lambda row: (row[place],)
    return itemgetter(*places)


class Arrangement:
    """Rows by key, multi-versioned. Readable at ``horizon`` and every later step that has been inserted."""

    __slots__ = ("_due", "_groups", "_key_of", "horizon", "size")

    def __init__(self, places: Sequence[int] = ()) -> None:
        self._key_of = key_of(places)
        #: Every row whose history is not empty, by key; no group is empty.
        self._groups: dict[Row, dict[Row, History]] = {}
        #: The rows whose history can be shortened once the horizon reaches the step, earliest first.
        self._due: deque[tuple[int, Row, Row]] = deque()
        #: Everything up to here is folded into one change each.
        self.horizon = 0
        #: How many rows have a history.
        self.size = 0

    def insert(self, updates: Iterable[RowUpdate]) -> None:
        """Takes in updates, earlier steps first and none before what was inserted already."""
        groups, key_of, horizon = self._groups, self._key_of, self.horizon
        for row, step, diff in updates:
            if step < horizon:
                step = horizon
            key = key_of(row)
            group = groups.get(key)
            if group is None:
                group = groups[key] = {}
            history = group.get(row)
            if history is None:
                group[row] = [(step, diff)]
                self.size += 1
            elif history[-1][0] < step:
                history.append((step, diff))
                self._due.append((step, key, row))
            else:
                self._amend(key, row, history, diff)

    def _amend(self, key: Row, row: Row, history: History, diff: int) -> None:
        """Adds to the last change of a row."""
        step, earlier = history.pop()
        if earlier + diff:
            history.append((step, earlier + diff))
        elif not history:
            self._remove(key, row)

    def _remove(self, key: Row, row: Row) -> None:
        group = self._groups[key]
        del group[row]
        self.size -= 1
        if not group:
            del self._groups[key]

    def compact(self, since: Antichain) -> None:
        """Forgets what only reads before ``since`` need. Costs what has changed since it was last called."""
        if since.step is None:
            self._groups, self.size = {}, 0
            self._due.clear()
            return
        self.horizon = max(self.horizon, since.step - 1)
        while self._due and self._due[0][0] <= self.horizon:
            _, key, row = self._due.popleft()
            history = self._groups.get(key, {}).get(row)
            if history is not None:
                self._fold(key, row, history)

    def _fold(self, key: Row, row: Row, history: History) -> None:
        folded = [(step, diff) for step, diff in history if step > self.horizon]
        count = sum(diff for step, diff in history if step <= self.horizon)
        if count:
            folded.insert(0, (self.horizon, count))
        if folded:
            history[:] = folded
        else:
            self._remove(key, row)

    # --- reading ------------------------------------------------------------------------------------------

    def lookup(self, key: Row, at: int) -> list[tuple[Row, int]]:
        """The rows with this key at step ``at``, each with its count."""
        self.check_readable(at)
        return list(_counted(self._groups.get(key, {}), at))

    def keys(self) -> list[Row]:
        """Every key that may have rows at some readable step."""
        return list(self._groups)

    def rows_of(self, keys: Iterable[Row], at: int) -> Iterator[tuple[Row, int]]:
        """The rows with any of these keys at step ``at``, each with its count."""
        self.check_readable(at)
        for key in keys:
            group = self._groups.get(key)
            if group is not None:
                yield from _counted(group, at)

    def contents(self, at: int) -> Iterator[tuple[Row, int]]:
        """All rows at step ``at``, each with its count."""
        return self.rows_of(self.keys(), at)

    def changes_from(self, step: int) -> list[RowUpdate]:
        """All updates at or after ``step``, earlier ones first."""
        if step:
            self.check_readable(step - 1)
        found = [
            (row, at, diff)
            for group in self._groups.values()
            for row, history in group.items()
            for at, diff in history
            if at >= step
        ]
        return sorted(found, key=itemgetter(1))

    def check_readable(self, at: int) -> None:
        """Raises ``NotReadable`` if what was there at ``at`` is gone."""
        if at < self.horizon:
            raise NotReadable(Antichain.at(self.horizon))

    def check(self) -> None:
        """Restates the invariants."""
        rows = 0
        for key, group in self._groups.items():
            if not group:
                raise InvariantBroken(f"key {key} has no rows")
            for row, history in group.items():
                rows += 1
                steps = [step for step, _ in history]
                if not history or steps != sorted(set(steps)) or not all(diff for _, diff in history):
                    raise InvariantBroken(f"row {row} has the history {history}")
                if self._key_of(row) != key:
                    raise InvariantBroken(f"row {row} is under key {key}")
        if rows != self.size:
            raise InvariantBroken(f"there are {rows} rows, counted {self.size}")


def _counted(group: dict[Row, History], at: int) -> Iterator[tuple[Row, int]]:
    for row, history in group.items():
        if len(history) == 1:
            step, count = history[0]
            if step <= at and count > 0:
                yield row, count
            continue
        count = 0
        for step, diff in history:
            if step > at:
                break
            count += diff
        if count > 0:
            yield row, count
