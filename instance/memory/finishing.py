"""Finishing: from the rows that a peek found to its answer, an Arrow IPC stream.

A lookup by the whole index key touches one group of the arrangement and no Arrow kernel. What depends only on the
text of the peek (expressions, the schema's bytes) is made once and remembered.
"""

from dataclasses import dataclass
from functools import lru_cache
from heapq import nsmallest
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types
import pyarrow.compute as pc  # type: ignore[import-untyped]

from instance.memory.arrangement import key_of
from instance.memory.batch import Batch
from instance.memory.operators import Filter, Project
from instance.memory.ordering import first_rows
from instance.memory.rows import Row, RowFormat, Value, is_nested, row_order, to_array, value_from_plan, values_of
from plainsong.types import DIFF
from reconcile.errors import InvalidRequest
from reconcile.plan_tree import Node, PlanValue

#: Ends an Arrow IPC stream: a continuation mark and no bytes.
_END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"
_FIELDS = ("lookup", "predicate", "columns", "limit")
#: Shapes of peeks that are remembered; the least recently used go first.
_SHAPES_MAX = 4_096


class Shape:
    """What a peek makes of rows of one format: which it keeps, which columns, and the bytes around them."""

    __slots__ = ("_filter", "_is_nested", "_order", "_pick", "_prelude", "_project", "format")

    def __init__(self, input: RowFormat, predicate: str | None, columns: tuple[tuple[str, str], ...] | None) -> None:
        self._filter = None if predicate is None else Filter(input, predicate)
        self._project = None if columns is None else Project(input, columns)
        places = None if self._project is None else self._project.places
        self._pick = None if places is None else key_of(places)
        self.format = input if self._project is None else self._project.format
        self._order = row_order(self.format.types)
        self._is_nested = any(is_nested(type) for type in self.format.types)
        self._prelude: bytes = self.format.schema.serialize().to_pybytes()

    def answer(self, found: Batch, limit: int | None) -> bytes:
        """A stream with each row as often as it occurs; with a limit, the first ones in the order of all columns."""
        in_rows = found.is_rows or self._is_nested
        batch = self._in_rows(found, limit) if in_rows else self._in_arrow(found, limit)
        if batch is None or batch.num_rows == 0:
            return self._prelude + _END_OF_STREAM
        return b"".join((self._prelude, batch.serialize().to_pybytes(), _END_OF_STREAM))

    def _in_rows(self, found: Batch, limit: int | None) -> pa.RecordBatch | None:
        rows = self._rows(found)
        if limit is not None:
            rows = nsmallest(limit, rows, key=self._order)
        return pa.RecordBatch.from_arrays(self.format.arrays(rows), schema=self.format.schema) if rows else None

    def _rows(self, found: Batch) -> list[Row]:
        if self._filter is None and (self._project is None or self._pick is not None):
            pick = self._pick
            return [row if pick is None else pick(row) for row, _, count in found.updates for _ in range(count)]
        return [row for row, _, count in self._finished(found).updates for _ in range(count)]

    def _in_arrow(self, found: Batch, limit: int | None) -> pa.RecordBatch:
        counted = self._finished(found).arrow.select([*self.format.names, DIFF])
        if limit is not None:
            counted = first_rows(counted, limit)
        *columns, diffs = counted.columns
        rows = pa.RecordBatch.from_arrays([_canonical(column) for column in columns], schema=self.format.schema)
        counts = diffs.to_numpy()
        return rows if (counts == 1).all() else rows.take(pa.array(np.repeat(np.arange(len(counts)), counts)))

    def _finished(self, found: Batch) -> Batch:
        for operator in (self._filter, self._project):
            if operator is not None:
                found = operator.apply([found], 0)
        return found


@lru_cache(maxsize=_SHAPES_MAX)
def shape(input: RowFormat, predicate: str | None, columns: tuple[tuple[str, str], ...] | None) -> Shape:
    return Shape(input, predicate, columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finishing:
    """One peek, ready to be answered."""

    shape: Shape
    #: The whole index key, if the peek names it: then nothing but its rows is looked at.
    key: Row | None = None
    #: Otherwise what the columns at these places must be.
    equal: tuple[tuple[int, Value], ...] = ()
    limit: int | None = None

    def wanted(self, found: Batch) -> Batch:
        """The rows that are looked for, of those that were found."""
        if not self.equal:
            return found
        if not found.is_rows:
            for place, value in self.equal:
                found = Batch.of_arrow(found.format, found.arrow.filter(_equal(found.arrow.column(place), value)))
            return found
        # Compared inside tuples, where NaN is itself.
        return Batch.of(
            found.format,
            [update for update in found.updates if all((update[0][at],) == (value,) for at, value in self.equal)],
        )

    def answer(self, found: Batch) -> bytes:
        return self.shape.answer(found, self.limit)


def _canonical(column: pa.Array) -> pa.Array:
    """Negative zero is zero, as in rows."""
    return pc.add(column, pa.scalar(0.0, column.type)) if pa.types.is_floating(column.type) else column


def _equal(column: pa.Array, value: Value) -> pa.Array:
    """Which values are this one; null is null, and NaN is NaN."""
    if value is None:
        return pc.is_null(column)
    if is_nested(column.type):
        return pa.array([each == value for each in values_of(column)])
    if value != value:
        return pc.is_nan(column)
    return pc.equal(column, to_array([value], column.type)[0])


def finishing(plan: PlanValue, format: RowFormat, index_key: tuple[str, ...] = ()) -> Finishing:
    """How to answer a peek on rows of ``format`` that are kept by ``index_key``; raises ``InvalidRequest``."""
    if plan is None:
        return Finishing(shape=shape(format, None, None))
    if not isinstance(plan, Node) or plan.op != "finish":
        raise InvalidRequest("a peek must be finished by a finish operator", detail=f"{plan!r}")
    fields: dict[str, Any] = dict(plan.fields)
    if any(name not in _FIELDS for name in fields):
        unknown = next(name for name in fields if name not in _FIELDS)
        raise InvalidRequest(f"a peek cannot be finished by {unknown!r}", hint=f"use {', '.join(_FIELDS)}")
    limit = fields.get("limit")
    if limit is not None and (not isinstance(limit, int) or limit < 0):
        raise InvalidRequest(f"the limit of a peek cannot be {limit!r}")
    made = shape(format, fields.get("predicate"), fields.get("columns"))
    lookup = fields.get("lookup")
    if not lookup:
        return Finishing(shape=made, limit=limit)
    places = {_place(format, name): value for name, value in lookup}
    values = {place: _value(value, format.types[place]) for place, value in places.items()}
    key_places = [format.places[name] for name in index_key]
    if len(values) == len(key_places) == len(lookup) and all(place in values for place in key_places):
        return Finishing(shape=made, key=tuple(values[place] for place in key_places), limit=limit)
    return Finishing(shape=made, equal=tuple(values.items()), limit=limit)


def _place(format: RowFormat, name: str) -> int:
    try:
        return format.places[name]
    except KeyError:
        raise InvalidRequest(f"column {name!r} does not exist", detail=f"there are {', '.join(format.names)}") from None


def _value(value: PlanValue, type: pa.DataType) -> Value:
    # The two kinds of keys that matter most need no reading.
    if (value.__class__ is int and pa.types.is_int64(type)) or (value.__class__ is str and pa.types.is_string(type)):
        return value
    return value_from_plan(value, type)
