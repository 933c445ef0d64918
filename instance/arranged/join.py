"""The join operator over spines: inner equi-join, by the change of each side with what the other had before.

Its spines ``left`` and ``right`` have the rows of each side by key. The changes of both sides are joined with each
other, each pair at the later of its steps.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types

from instance.arranged.matching import pairs
from instance.arranged.operator import SETTING, ArrangedOperator, Setting
from instance.memory.batch import Batch
from instance.memory.casts import cast
from instance.memory.expression import Expression
from instance.memory.expressions import compile_expression
from instance.memory.operators import evaluated
from instance.memory.rows import RowFormat, row_format
from instance.memory.type_rules import common
from instance.spine.consolidation import Numbers
from instance.spine.spine import Spine
from instance.spine.values import Places, canonical, valid_of
from plainsong.types import DIFF, STEP
from reconcile.errors import InvalidRequest


class Rows:
    """Rows of one side: their columns, after them the keys that are not among these, steps and differences."""

    __slots__ = ("columns", "diffs", "steps")

    def __init__(self, columns: Sequence[pa.Array], steps: Numbers | None, diffs: Numbers) -> None:
        self.columns = columns
        #: None for what was there before.
        self.steps = steps
        self.diffs = diffs

    def __len__(self) -> int:
        return len(self.diffs)


class Side:
    """One side: how its rows get their keys."""

    def __init__(self, format: RowFormat, keys: Sequence[tuple[str, Expression]]) -> None:
        self.width = len(format.names)
        #: The places of the key columns; a column that is a key already, or none at all, gets one after the others.
        self.key_places: list[int] = []
        self._computed: list[tuple[str, Expression]] = []
        for text, expression in keys:
            place = expression.column
            if place is None or place in self.key_places:
                place = self.width + len(self._computed)
                self._computed.append((text, expression))
            self.key_places.append(place)
        types = [*format.types, *(expression.type for _, expression in self._computed)]
        self.schema = pa.schema([pa.field(f"_{place}", type) for place, type in enumerate(types)])
        self.key = [self.schema.names[place] for place in self.key_places]

    def rows(self, batch: Batch) -> Rows:
        """The updates whose keys have no null in them."""
        batch, computed = evaluated(batch, "join", self._computed) if len(batch) else (batch, [])
        *columns, steps, diffs = batch.arrow.columns
        if not len(batch):
            return Rows([], np.zeros(0, np.int64), np.zeros(0, np.int64))
        found = [canonical(column) for column in (*columns, *computed)]
        rows = Rows(found, steps.to_numpy(), diffs.to_numpy())
        null = [found[place] for place in self.key_places if found[place].null_count]
        if not null:
            return rows
        kept = np.ones(len(rows), np.bool_)
        for column in null:
            kept &= valid_of(column)
        return taken(rows, np.flatnonzero(kept))

    def keys(self, rows: Rows) -> list[pa.Array]:
        return [rows.columns[place] for place in self.key_places]

    def before(self, spine: Spine, keys: Sequence[pa.Array]) -> Rows:
        """What has any of these keys; everything if rows have none."""
        if self.key:
            pieces = [spine.lookup(pa.table(list(keys), names=self.key))]
        else:
            pieces = list(spine.contents())
        table = pa.concat_tables(pieces) if pieces else None
        if table is None or not table.num_rows:
            return Rows([], None, np.zeros(0, np.int64))
        *columns, counts = [column.combine_chunks() for column in table.columns]
        return Rows(columns, None, counts.to_numpy())


class Join(ArrangedOperator):
    """Each pair of rows whose keys are equal; null equals nothing. Without keys, each pair."""

    def __init__(
        self, left: RowFormat, right: RowFormat, on: Sequence[tuple[str, str]], setting: Setting = SETTING
    ) -> None:
        shared = [name for name in left.names if name in right.places]
        if shared:
            raise InvalidRequest(f"both sides of a join have a column {shared[0]!r}", hint="rename one of them")
        self.format = row_format((*left.names, *right.names), (*left.types, *right.types))
        ours, theirs = keys_of(left, right, on)
        self._left, self._right = Side(left, ours), Side(right, theirs)
        schemas = {"left": (self._left.schema, self._left.key), "right": (self._right.schema, self._right.key)}
        super().__init__(schemas, setting)

    def apply(self, changes: Sequence[Batch], at: int) -> Batch:  # noqa: ARG002
        left, right = self._left.rows(changes[0]), self._right.rows(changes[1])
        held_left, held_right = self._spines["left"], self._spines["right"]
        found = []
        if len(left):
            if held_right.rows:
                found.append(self._joined(left, self._right.before(held_right, self._left.keys(left))))
            found.append(self._joined(left, right))
        if len(right) and held_left.rows:
            found.append(self._joined(self._left.before(held_left, self._right.keys(right)), right))
        _remember(held_left, left)
        _remember(held_right, right)
        pieces = [piece for piece in found if piece is not None]
        if not pieces:
            return Batch.nothing(self.format)
        whole = pieces[0] if len(pieces) == 1 else pa.concat_batches(pieces)
        return Batch.of_arrow(self.format, whole)

    def _joined(self, left: Rows, right: Rows) -> pa.RecordBatch | None:
        """The pairs of left and right rows, each at the later of their steps."""
        if not len(left) or not len(right):
            return None
        if self._left.key:
            ours, theirs = pairs(self._left.keys(left), self._right.keys(right), self._hashing)
        else:
            ours = np.repeat(np.arange(len(left)), len(right))
            theirs = np.tile(np.arange(len(right)), len(left))
        steps = _later(left.steps, ours, right.steps, theirs)
        diffs = left.diffs[ours] * right.diffs[theirs]
        columns = [column.take(pa.array(ours)) for column in left.columns[: self._left.width]]
        columns += [column.take(pa.array(theirs)) for column in right.columns[: self._right.width]]
        arrays = [*columns, pa.array(steps), pa.array(diffs)]
        return pa.RecordBatch.from_arrays(arrays, schema=self.format.updates_schema)


def keys_of(
    left: RowFormat, right: RowFormat, on: Sequence[tuple[str, str]]
) -> tuple[list[tuple[str, Expression]], list[tuple[str, Expression]]]:
    """The keys of both sides, in types that they share; raises ``InvalidRequest`` if there are none."""
    ours, theirs = [], []
    for text, other_text in on:
        one, other = compile_expression(text, left), compile_expression(other_text, right)
        try:
            type = common(one, other)
        except InvalidRequest as error:
            raise InvalidRequest(f"cannot join on {text} = {other_text}", detail=str(error)) from error
        ours.append((text, cast(one, type)))
        theirs.append((other_text, cast(other, type)))
    return ours, theirs


def taken(rows: Rows, places: Places) -> Rows:
    chosen = pa.array(places)
    steps = None if rows.steps is None else rows.steps[places]
    return Rows([column.take(chosen) for column in rows.columns], steps, rows.diffs[places])


def _later(one: Numbers | None, ours: Places, other: Numbers | None, theirs: Places) -> Numbers:
    if one is None:
        assert other is not None, "something has changed"
        return other[theirs]
    return one[ours] if other is None else np.maximum(one[ours], other[theirs])


def _remember(spine: Spine, rows: Rows) -> None:
    """Takes the rows in, all at the last of their steps: nobody asks for an earlier one."""
    if len(rows):
        assert rows.steps is not None
        newest = max(int(rows.steps.max()), spine.newest)
        arrays = [*rows.columns, pa.array(np.full(len(rows), newest)), pa.array(rows.diffs)]
        spine.insert(pa.table(arrays, names=[*spine.schema.names, STEP, DIFF]))
