"""The group operator: aggregates by key, from accumulators that also forget."""

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from operator import itemgetter

from instance.memory.accumulators import Accumulator, accumulator
from instance.memory.batch import Batch, RowUpdate
from instance.memory.operators import Project
from instance.memory.rows import Row, RowFormat, row_format
from reconcile.errors import InvalidRequest

#: An aggregate: its name, its function, and what it is of; ``count`` of nothing counts rows.
Aggregate = tuple[str, str, str | None]


class _Group:
    """One group: how many rows it has, and what its aggregates have seen of them."""

    __slots__ = ("accumulators", "rows")

    def __init__(self, accumulators: Sequence[Accumulator]) -> None:
        self.rows = 0
        self.accumulators = accumulators


class Group:
    """One row for each key that occurs; without keys, always exactly one row.

    A key occurs as long as one of its rows does. Nulls are one key.
    """

    linear = False

    def __init__(self, input: RowFormat, keys: Sequence[tuple[str, str]], aggregates: Sequence[Aggregate]) -> None:
        counted = [(name, function, text) for name, function, text in aggregates if text is not None]
        arguments = [(f"_{place}", text) for place, (_, _, text) in enumerate(counted)]
        self._width = len(keys)
        named_keys = [(f"_key_{place}", text) for place, (_, text) in enumerate(keys)]
        columns = [*named_keys, *arguments]
        self._project = Project(input, columns, where="group") if columns else None
        types = self._project.format.types if self._project else ()
        self._makers: list[Callable[[], Accumulator]] = []
        #: The place of each aggregate among the accumulators; -1 counts rows.
        self._places: list[int] = []
        result_types = list(types[: self._width])
        for name, function, text in aggregates:
            if text is None and function != "count":
                raise InvalidRequest(f"{function} of {name!r} needs an expression")
            type, maker = accumulator(function, types[self._width + len(self._makers)] if text is not None else None)
            result_types.append(type)
            self._places.append(-1 if text is None else len(self._makers))
            if text is not None:
                self._makers.append(maker)
        self._names = [name for name, _, _ in aggregates]
        self.format = row_format((*(name for name, _ in keys), *self._names), tuple(result_types))
        #: All and only keys with rows; without keys, the one group there is.
        self._groups: dict[Row, _Group] = {}
        self._started = False

    @property
    def rows_kept(self) -> int:
        """One for each group."""
        return len(self._groups)

    def apply(self, changes: Sequence[Batch], at: int) -> Batch:
        (batch,) = changes
        found: list[RowUpdate] = []
        if not self._started and not self._width:
            group = self._groups[()] = self._new_group()
            found.append((self._values((), group), at, 1))
        self._started = True
        if len(batch):
            if self._project is None:
                updates: Sequence[RowUpdate] = [((), step, diff) for _, step, diff in batch.in_step_order()]
            else:
                updates = self._project.apply([batch], at).in_step_order()
            for step, of_step in groupby(updates, itemgetter(1)):
                self._step(step, of_step, found)
        return Batch.of(self.format, found) if found else Batch.nothing(self.format)

    def _step(self, step: int, updates: Iterable[RowUpdate], found: list[RowUpdate]) -> None:
        """Takes in the updates of one step: the rows of the touched keys before and after it are the change."""
        width, groups = self._width, self._groups
        before: dict[Row, Row | None] = {}
        for row, _, diff in updates:
            key = row[:width]
            group = groups.get(key)
            if group is None:
                group = groups[key] = self._new_group()
            if key not in before:
                before[key] = self._row(key, group)
            group.rows += diff
            for held, value in zip(group.accumulators, row[width:], strict=True):
                if value is not None:
                    held.add(value, diff)
        for key, old in before.items():
            group = groups[key]
            new = self._row(key, group)
            if new is None and group.rows == 0:
                del groups[key]
            if old != new:
                if old is not None:
                    found.append((old, step, -1))
                if new is not None:
                    found.append((new, step, 1))

    def _new_group(self) -> _Group:
        return _Group([make() for make in self._makers])

    def _row(self, key: Row, group: _Group) -> Row | None:
        return None if group.rows <= 0 and self._width else self._values(key, group)

    def _values(self, key: Row, group: _Group) -> Row:
        values = []
        for name, place in zip(self._names, self._places, strict=True):
            try:
                values.append(group.rows if place < 0 else group.accumulators[place].result())
            except InvalidRequest as error:
                raise InvalidRequest(f"group failed in {name!r}", detail=str(error)) from error
        return (*key, *values)
