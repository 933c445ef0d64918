"""A batch of updates inside a dataflow: rows or Arrow, each made from the other when asked for."""

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types
import pyarrow.compute as pc  # type: ignore[import-untyped]

from instance.memory.rows import Row, RowFormat
from instance.spine.spine import Spine
from plainsong.types import DIFF, STEP
from reconcile.errors import InvalidRequest
from reconcile.frontiers import Antichain
from reconcile.ids import Step

#: Updates from which on they are summed over Arrow, if that is what there is of them.
_ARROW_UPDATES_MIN = 1_000

#: A row, the step at which it changes, and how many times more it occurs from then on.
RowUpdate: TypeAlias = tuple[Row, int, int]


class Batch:
    """Updates of one collection. Immutable; linear operators use the Arrow face, stateful ones the rows."""

    __slots__ = ("__weakref__", "_arrow", "_updates", "format")

    def __init__(self, format: RowFormat, updates: Sequence[RowUpdate] | None, arrow: Any) -> None:
        # ``arrow`` is a record batch, or None; never both are None.
        self.format = format
        self._updates = updates
        self._arrow = arrow

    @classmethod
    def of(cls, format: RowFormat, updates: Sequence[RowUpdate]) -> "Batch":
        return cls(format, updates, None)

    @classmethod
    def of_arrow(cls, format: RowFormat, arrow: pa.RecordBatch) -> "Batch":
        return cls(format, None, arrow)

    @classmethod
    def nothing(cls, format: RowFormat) -> "Batch":
        return cls(format, (), format.empty)

    @classmethod
    def of_table(cls, format: RowFormat, table: pa.Table, step: Step | None = None) -> "Batch":
        """Updates that came from outside; all of them at ``step`` if that is given."""
        if table.num_rows == 0:
            return cls.nothing(format)
        if step is not None and STEP not in table.column_names:
            table = table.append_column(STEP, pa.repeat(pa.scalar(step, pa.int64()), table.num_rows))
        try:
            chosen = table.select([*format.names, STEP, DIFF]).cast(format.updates_schema)
        except (KeyError, pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
            detail = f"they have {table.schema.to_string()}"
            raise InvalidRequest("stored rows do not have the columns that were declared", detail=detail) from error
        return cls.of_arrow(format, chosen.combine_chunks().to_batches()[0])

    @property
    def is_rows(self) -> bool:
        """Whether it was made, or asked for, as rows."""
        return self._updates is not None

    @property
    def updates(self) -> Sequence[RowUpdate]:
        if self._updates is None:
            columns = self._arrow.columns
            rows = self.format.rows(columns[:-2], self._arrow.num_rows)
            self._updates = list(zip(rows, columns[-2].to_pylist(), columns[-1].to_pylist(), strict=True))
        return self._updates

    @property
    def arrow(self) -> pa.RecordBatch:
        if self._arrow is None:
            updates = self._updates or ()
            self._arrow = pa.RecordBatch.from_arrays(
                [
                    *self.format.arrays([row for row, _, _ in updates]),
                    pa.array([step for _, step, _ in updates], pa.int64()),
                    pa.array([diff for _, _, diff in updates], pa.int64()),
                ],
                schema=self.format.updates_schema,
            )
        return self._arrow

    @property
    def table(self) -> pa.Table:
        return pa.Table.from_batches([self.arrow], schema=self.format.updates_schema)

    def __len__(self) -> int:
        if self._updates is not None:
            return len(self._updates)
        return int(self._arrow.num_rows)

    def in_step_order(self) -> Sequence[RowUpdate]:
        """The updates, earlier steps first."""
        updates = self.updates
        if all(updates[place - 1][1] <= updates[place][1] for place in range(1, len(updates))):
            return updates
        return sorted(updates, key=_step_of)

    def consolidated(self) -> "Batch":
        """The same changes with each row at most once a step; itself if it only adds rows."""
        if len(self) == 0 or (self._updates is None and pc.min(self._arrow.column(DIFF)).as_py() > 0):
            return self
        if self._is_much():
            return self._summed(self.table)
        return Batch.of(self.format, consolidate(self.updates))

    def split(self, upper: Antichain) -> tuple["Batch", "Batch"]:
        """What happens before ``upper``, and the rest."""
        step = upper.step
        if len(self) == 0 or step is None:
            return self, Batch.nothing(self.format)
        if self._updates is None:
            # A typed scalar: to find the type of a plain number, pyarrow looks for numpy each time.
            early = pc.less(self._arrow.column(STEP), pa.scalar(step, pa.int64()))
            if early.true_count == len(early):
                return self, Batch.nothing(self.format)
            parts = self._arrow.filter(early), self._arrow.filter(pc.invert(early))
            return Batch.of_arrow(self.format, parts[0]), Batch.of_arrow(self.format, parts[1])
        before = [update for update in self._updates if update[1] < step]
        if len(before) == len(self._updates):
            return self, Batch.nothing(self.format)
        return Batch.of(self.format, before), Batch.of(self.format, [u for u in self._updates if u[1] >= step])

    def advanced(self, step: int) -> "Batch":
        """The same updates with those before ``step`` moved up to it, consolidated."""
        if self._is_much():
            table = self.table
            steps = pc.max_element_wise(table[STEP], pa.scalar(step, pa.int64()))
            return self._summed(table.set_column(len(self.format.names), self.format.updates_schema.field(STEP), steps))
        return Batch.of(self.format, consolidate((row, max(at, step), diff) for row, at, diff in self.updates))

    def negated(self) -> "Batch":
        """The same changes taken back."""
        if self._updates is not None:
            return Batch.of(self.format, [(row, step, -diff) for row, step, diff in self._updates])
        *columns, diffs = self._arrow.columns
        arrays = [*columns, pc.negate(diffs)]
        return Batch.of_arrow(self.format, pa.RecordBatch.from_arrays(arrays, schema=self.format.updates_schema))

    def _is_much(self) -> bool:
        """Whether rows would cost more than Arrow does at all."""
        return self._updates is None and len(self) >= _ARROW_UPDATES_MIN and bool(self.format.names)

    def _summed(self, table: pa.Table) -> "Batch":
        whole = Spine(self.format.schema, ())
        whole.insert(table)
        return Batch.of_table(self.format, whole.changes_from(0).sort_by(STEP))


def concat(format: RowFormat, batches: Sequence[Batch]) -> Batch:
    """All updates of ``batches``, in order."""
    filled = [batch for batch in batches if len(batch)]
    if len(filled) <= 1:
        return filled[0] if filled and filled[0].format is format else _joined(format, filled)
    return _joined(format, filled)


def _joined(format: RowFormat, batches: Sequence[Batch]) -> Batch:
    if batches and not any(batch.is_rows for batch in batches):
        arrays = pa.Table.from_batches([batch.arrow for batch in batches]).cast(format.updates_schema)
        return Batch.of_arrow(format, arrays.combine_chunks().to_batches()[0])
    return Batch.of(format, [update for batch in batches for update in batch.updates])


def consolidate(updates: Iterable[RowUpdate]) -> list[RowUpdate]:
    """Sums the differences of each row and step, and leaves out what cancels; earlier steps first."""
    sums: dict[tuple[Row, int], int] = {}
    for row, step, diff in updates:
        sums[row, step] = sums.get((row, step), 0) + diff
    return sorted(((row, step, diff) for (row, step), diff in sums.items() if diff), key=_step_of)


def _step_of(update: RowUpdate) -> int:
    return update[1]
