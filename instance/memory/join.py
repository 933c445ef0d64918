"""The join operator: inner equi-join, by the change of each side with the other."""

from collections.abc import Sequence

from instance.memory.batch import Batch, RowUpdate
from instance.memory.casts import cast
from instance.memory.expression import Expression
from instance.memory.expressions import compile_expression
from instance.memory.operators import evaluated
from instance.memory.rows import Row, RowFormat, row_format, values_of
from instance.memory.type_rules import common
from reconcile.errors import InvalidRequest

#: The rows of one side by key, each with its count; no count is zero, no key empty.
Side = dict[Row, dict[Row, int]]
Keyed = tuple[Row, RowUpdate]


class Join:
    """Each pair of rows whose keys are equal; null equals nothing. Without keys, each pair."""

    linear = False

    def __init__(self, left: RowFormat, right: RowFormat, on: Sequence[tuple[str, str]]) -> None:
        shared = [name for name in left.names if name in right.places]
        if shared:
            raise InvalidRequest(f"both sides of a join have a column {shared[0]!r}", hint="rename one of them")
        self.format = row_format((*left.names, *right.names), (*left.types, *right.types))
        self._left_keys: list[tuple[str, Expression]] = []
        self._right_keys: list[tuple[str, Expression]] = []
        for ours, theirs in on:
            one, other = compile_expression(ours, left), compile_expression(theirs, right)
            try:
                type = common(one, other)
            except InvalidRequest as error:
                raise InvalidRequest(f"cannot join on {ours} = {theirs}", detail=str(error)) from error
            self._left_keys.append((ours, cast(one, type)))
            self._right_keys.append((theirs, cast(other, type)))
        self._left: Side = {}
        self._right: Side = {}

    @property
    def rows_kept(self) -> int:
        """Of both sides, each different row once."""
        return sum(len(rows) for side in (self._left, self._right) for rows in side.values())

    def apply(self, changes: Sequence[Batch], at: int) -> Batch:  # noqa: ARG002
        left, right = (
            _keyed(batch, keys)
            for batch, keys in zip(changes, (self._left_keys, self._right_keys), strict=True)
        )  # fmt: skip
        found: list[RowUpdate] = []
        for key, (row, step, diff) in left:
            for other, count in self._right.get(key, {}).items():
                found.append((row + other, step, diff * count))
        for key, (row, step, diff) in right:
            for other, count in self._left.get(key, {}).items():
                found.append((other + row, step, diff * count))
        if left and right:
            _both_changed(left, right, found)
        _remember(self._left, left)
        _remember(self._right, right)
        return Batch.of(self.format, found) if found else Batch.nothing(self.format)


def _both_changed(left: Sequence[Keyed], right: Sequence[Keyed], found: list[RowUpdate]) -> None:
    """The pairs of changes: each happens at the later of the two steps."""
    by_key: dict[Row, list[RowUpdate]] = {}
    for key, update in right:
        by_key.setdefault(key, []).append(update)
    for key, (row, step, diff) in left:
        for other, other_step, other_diff in by_key.get(key, ()):
            found.append((row + other, max(step, other_step), diff * other_diff))


def _keyed(batch: Batch, keys: Sequence[tuple[str, Expression]]) -> list[Keyed]:
    """The updates whose keys have no null in them, each with its key."""
    if len(batch) == 0:
        return []
    if not keys:
        return [((), update) for update in batch.updates]
    batch, columns = evaluated(batch, "join", keys)
    found = zip(*[values_of(column) for column in columns], strict=True)
    return [
        (key, update)
        for key, update in zip(found, batch.updates, strict=True)
        if not any(value is None for value in key)
    ]


def _remember(side: Side, updates: Sequence[Keyed]) -> None:
    for key, (row, _, diff) in updates:
        rows = side.setdefault(key, {})
        count = rows.get(row, 0) + diff
        if count:
            rows[row] = count
        else:
            rows.pop(row, None)
            if not rows:
                del side[key]
