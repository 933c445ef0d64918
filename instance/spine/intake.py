"""The intake of a spine: tables from outside become canonical columns with their hashes."""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types
from numpy.typing import NDArray

from instance.spine.finding import Wanted
from instance.spine.hashing import Hashes, Hashing
from instance.spine.run import KEY_MASK, ROW_MASK, Run, Updates
from instance.spine.values import canonical, equal, has_floats
from plainsong.types import DIFF, STEP, updates_schema
from reconcile.errors import InvalidRequest, InvariantBroken

#: How much of a large table is sorted at once.
ROWS_AT_ONCE, BYTES_AT_ONCE = 1 << 20, 1 << 28


class Intake:
    """The columns of a collection, and which of them are its key."""

    def __init__(self, schema: pa.Schema, key: Sequence[str], hashing: Hashing) -> None:
        self.updates_schema = updates_schema(schema)
        #: That of rows with their counts.
        self.counted_schema = self.updates_schema.remove(len(schema))
        names = schema.names
        for name in key:
            if names.count(name) != 1:
                detail = f"it has {', '.join(names)}"
                raise InvalidRequest(f"cannot arrange by {name!r}: there is no such column", detail=detail)
        if not names:
            raise InvalidRequest("cannot arrange rows without columns")
        self.schema = schema
        self.key = tuple(key) or tuple(names)
        self.key_places = tuple(names.index(name) for name in self.key)
        self._others = [place for place in range(len(names)) if place not in self.key_places]
        self._types = [field.type for field in schema]
        self._with_floats = [has_floats(type) for type in self._types]
        self._hashing = hashing

    def updates(self, table: pa.Table, horizon: int) -> Iterator[Updates]:
        """The updates in a table, earlier steps first, in pieces of bounded size and none empty."""
        rows = table.num_rows
        if rows > 1 and not _ascending(self._numbers(table, STEP)):
            table = table.take(pa.array(np.argsort(self._numbers(table, STEP), kind="stable")))
        at_once = ROWS_AT_ONCE
        if rows > 1 and table.nbytes > BYTES_AT_ONCE:
            at_once = max(1, min(at_once, BYTES_AT_ONCE * rows // table.nbytes))
        for begin in range(0, rows, at_once):
            piece = table if rows <= at_once else table.slice(begin, at_once)
            columns = [self._column(piece, place) for place in range(len(self._types))]
            steps = self._numbers(piece, STEP)
            if int(steps[0]) < horizon:
                steps = np.maximum(steps, horizon)
            yield Updates(columns=columns, hashes=self._hashes(columns), steps=steps, diffs=self._numbers(piece, DIFF))

    def wanted(self, keys: pa.Table) -> Wanted:
        """The keys in a table with the key columns and at least one row."""
        columns = [self._column(keys, place) for place in self.key_places]
        return Wanted(columns, self._hashing(columns, None))

    def _hashes(self, columns: Sequence[pa.Array]) -> Hashes:
        keys = self._hashing([columns[place] for place in self.key_places], None)
        if not self._others:
            return keys
        rows = self._hashing([columns[place] for place in self._others], keys)
        return (keys & KEY_MASK) | (rows & ROW_MASK)

    def _column(self, table: pa.Table, place: int) -> pa.Array:
        array = _only(table, self.schema.names[place], self._types[place])
        return canonical(array) if self._with_floats[place] else array

    def _numbers(self, table: pa.Table, name: str) -> NDArray[np.int64]:
        array = _only(table, name, pa.int64())
        if array.null_count:
            raise InvalidRequest(f"column {name!r} has nulls")
        return array.to_numpy()  # type: ignore[no-any-return]

    def check(self, run: Run) -> None:
        """Restates what holds for every run."""
        if sum(len(part) for part in run.parts) != run.rows or not run.rows:
            raise InvariantBroken(f"run {run.number} does not have its {run.rows} rows")
        before = 0
        for part in run.parts:
            updates = part.between(0, len(part))
            columns = updates.columns
            if len(columns) != len(self._types) or [column.type for column in columns] != self._types:
                raise InvariantBroken(f"run {run.number} has other columns")
            if not (updates.hashes == self._hashes(columns)).all() or before > int(updates.hashes[0]):
                raise InvariantBroken(f"run {run.number} has other hashes")
            before = int(updates.hashes[-1])
            steps = updates.steps
            if not _ascending(updates.hashes) or steps.min() < run.first or steps.max() > run.last:
                raise InvariantBroken(f"run {run.number} is not in order")
            if not updates.diffs.all() or len(updates.consolidated(by_step=True)) < len(updates):
                raise InvariantBroken(f"run {run.number} is not consolidated")
            for column, floats in zip(columns, self._with_floats, strict=True):
                if floats and not equal(column, canonical(column)).all():
                    raise InvariantBroken(f"run {run.number} has values that are not canonical")


def _ascending(numbers: NDArray[np.int64] | Hashes) -> bool:
    return bool((numbers[1:] >= numbers[:-1]).all())


def _only(table: pa.Table, name: str, type: pa.DataType) -> pa.Array:
    """The column as one array of this type."""
    try:
        column = table.column(name)
        array = column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks or [pa.array([], type)])
        return array if array.type == type else array.cast(type)
    except (KeyError, ValueError, NotImplementedError, pa.ArrowException) as error:
        detail = f"column {name!r} should be {type}; they have {table.schema.to_string()}"
        raise InvalidRequest("rows do not have the columns that are arranged", detail=detail) from error
