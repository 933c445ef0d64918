"""A snapshot of a spine: what it holds at one moment, to be read in any thread."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types
import pyarrow.compute as pc  # type: ignore[import-untyped]

from instance.inputs import NotReadable
from instance.spine.intake import Intake
from instance.spine.merging import merged_updates
from instance.spine.run import Run, Updates, joined, slices
from reconcile.frontiers import Antichain

#: Which rows, given by their columns, to keep.
Where: TypeAlias = Callable[[Sequence[pa.Array]], pa.Array]


class Snapshot:
    """The runs of a spine as they were. Immutable; whatever becomes of the spine, their files stay mapped."""

    __slots__ = ("_horizon", "_intake", "_piece_rows", "_runs")

    def __init__(self, intake: Intake, runs: Sequence[Run], horizon: int, piece_rows: int) -> None:
        self._intake = intake
        self._runs = runs
        self._horizon = horizon
        self._piece_rows = piece_rows

    def lookup(self, keys: pa.Table, at: int | None = None) -> pa.Table:
        """The rows with any of these keys at step ``at``, or the newest, with their counts in ``_diff``, none zero.

        ``keys`` has the key columns. Null matches null, NaN matches NaN and 0.0 matches -0.0.
        """
        found = self._find(keys, at)
        if found is None:
            return self._intake.counted_schema.empty_table()
        updates, is_sorted = found
        return self._counted(updates.consolidated(by_step=False, is_sorted=is_sorted))

    def history(self, keys: pa.Table, lower: int) -> pa.Table:
        """The rows with any of these keys at ``lower``, at that step, and all their changes after it."""
        self._check_readable(lower)
        found = self._find(keys, None)
        if found is None:
            return self._intake.updates_schema.empty_table()
        updates, is_sorted = found
        return self._stepped(_folded(updates, lower).consolidated(by_step=True, is_sorted=is_sorted))

    def contents(self, at: int | None = None, where: Where | None = None) -> Iterator[pa.Table]:
        """All rows at step ``at``, or the newest, in pieces of bounded size, none empty; only those ``where`` keeps."""
        self._check_readable(at)
        return self._pieces(at, where)

    def _pieces(self, at: int | None, where: Where | None) -> Iterator[pa.Table]:
        for low, high in slices(self._runs, self._piece_rows) if self._runs else ():
            pieces = []
            for run in self._runs:
                for piece in run.between(low, high):
                    kept = piece if at is None or run.last <= at else piece.taken(np.flatnonzero(piece.steps <= at))
                    if where is not None and len(kept):
                        kept = _kept(kept, where)
                    if len(kept):
                        pieces.append(kept)
            if pieces:
                found = joined(pieces).consolidated(by_step=False, is_sorted=len(pieces) == 1)
                if len(found):
                    yield self._counted(found)

    def range(
        self,
        low: pa.Scalar | None,
        high: pa.Scalar | None,
        at: int | None = None,
        *,
        low_included: bool = True,
        high_included: bool = False,
    ) -> Iterator[pa.Table]:
        """The contents whose first key column lies between bounds, of which None is none; null lies in no range.

        NaN is greater than every number. Runs are in the order of hashes, so this reads them all.
        """
        place = self._intake.key_places[0]
        type = self._intake.schema.field(place).type
        bounds = [None if each is None else _scalar(each, type) for each in (low, high)]

        def where(columns: Sequence[pa.Array]) -> pa.Array:
            return _between(columns[place], bounds[0], bounds[1], low_included, high_included)

        return self.contents(at, where)

    def changes_from(self, step: int) -> pa.Table:
        """All updates at or after ``step``, in no order."""
        if step:
            self._check_readable(step - 1)
        pieces = []
        for run in self._runs:
            if run.last >= step:
                pieces += [part.at(np.flatnonzero(part.steps >= step - part.base)) for part in run.parts]
        if not pieces:
            return self._intake.updates_schema.empty_table()
        return self._stepped(merged_updates(pieces, self._horizon))

    def _find(self, keys: pa.Table, at: int | None) -> tuple[Updates, bool] | None:
        self._check_readable(at)
        wanted = self._intake.wanted(keys) if keys.num_rows else None
        return None if wanted is None else wanted.find(self._runs, self._intake.key_places, at)

    def _check_readable(self, at: int | None) -> None:
        if at is not None and at < self._horizon:
            raise NotReadable(Antichain.at(self._horizon))

    def _counted(self, updates: Updates) -> pa.Table:
        return pa.Table.from_arrays([*updates.columns, pa.array(updates.diffs)], schema=self._intake.counted_schema)

    def _stepped(self, updates: Updates) -> pa.Table:
        arrays = [*updates.columns, pa.array(updates.steps), pa.array(updates.diffs)]
        return pa.Table.from_arrays(arrays, schema=self._intake.updates_schema)


def _folded(updates: Updates, lower: int) -> Updates:
    return replace(updates, steps=np.maximum(updates.steps, lower))


def _kept(updates: Updates, where: Where) -> Updates:
    flags = pc.fill_null(where(updates.columns), False).to_numpy(zero_copy_only=False)
    return updates if flags.all() else updates.taken(np.flatnonzero(flags))


def _scalar(value: pa.Scalar, type: pa.DataType) -> pa.Scalar:
    return value if value.type == type else value.cast(type)


def _between(
    column: pa.Array, low: pa.Scalar | None, high: pa.Scalar | None, low_included: bool, high_included: bool
) -> pa.Array:
    """Which values lie between the bounds."""
    found = pc.is_valid(column)
    if low is not None:
        found = pc.and_(found, _at_least(column, low, low_included))
    if high is not None:
        found = pc.and_(found, pc.invert(_at_least(column, high, not high_included)))
    return found


def _at_least(column: pa.Array, bound: pa.Scalar, included: bool) -> pa.Array:
    """Which values are at least ``bound``, or above it if it is not included; null for null."""
    is_float = pa.types.is_floating(column.type)
    if is_float and bound.as_py() != bound.as_py():
        return pc.is_nan(column) if included else pc.and_(pc.is_nan(column), False)
    found = pc.greater_equal(column, bound) if included else pc.greater(column, bound)
    return pc.or_(found, pc.is_nan(column)) if is_float else found
