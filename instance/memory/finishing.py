"""Finishing: from the rows that a peek found to its answer, an Arrow IPC stream.

A lookup by the whole index key touches one group of the arrangement and no Arrow kernel. What depends only on the
text of the peek (expressions, the schema's bytes) is made once and remembered.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types

from instance.memory.arrangement import key_of
from instance.memory.batch import Batch
from instance.memory.operators import Filter, Project
from instance.memory.rows import Row, RowFormat, Value, row_order, value_from_plan
from reconcile.errors import InvalidRequest
from reconcile.plan_tree import Node, PlanValue

#: Ends an Arrow IPC stream: a continuation mark and no bytes.
_END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"
_FIELDS = ("lookup", "predicate", "columns", "limit")
#: Shapes of peeks that are remembered; the least recently used go first.
_SHAPES_MAX = 4_096


class Shape:
    """What a peek makes of rows of one format: which it keeps, which columns, and the bytes around them."""

    __slots__ = ("_filter", "_input", "_order", "_pick", "_prelude", "_project", "format")

    def __init__(self, input: RowFormat, predicate: str | None, columns: tuple[tuple[str, str], ...] | None) -> None:
        self._input = input
        self._filter = None if predicate is None else Filter(input, predicate)
        self._project = None if columns is None else Project(input, columns)
        places = None if self._project is None else self._project.places
        self._pick = None if places is None else key_of(places)
        self.format = input if self._project is None else self._project.format
        self._order = row_order(self.format.types)
        self._prelude: bytes = self.format.schema.serialize().to_pybytes()

    def answer(self, rows: Sequence[tuple[Row, int]], limit: int | None) -> bytes:
        """A stream with each row as often as it occurs; with a limit, the first ones in the order of all columns."""
        found = self._rows(rows)
        if limit is not None:
            found = sorted(found, key=self._order)[:limit]
        if not found:
            return self._prelude + _END_OF_STREAM
        batch = pa.RecordBatch.from_arrays(self.format.arrays(found), schema=self.format.schema)
        return b"".join((self._prelude, batch.serialize().to_pybytes(), _END_OF_STREAM))

    def _rows(self, rows: Sequence[tuple[Row, int]]) -> list[Row]:
        if self._filter is None and (self._project is None or self._pick is not None):
            pick = self._pick
            return [row if pick is None else pick(row) for row, count in rows for _ in range(count)]
        batch = Batch.of(self._input, [(row, 0, count) for row, count in rows])
        for operator in (self._filter, self._project):
            if operator is not None:
                batch = operator.apply([batch], 0)
        return [row for row, _, count in batch.updates for _ in range(count)]


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

    def wanted(self, rows: Iterable[tuple[Row, int]]) -> list[tuple[Row, int]]:
        """The rows that are looked for, of those that were found."""
        # Compared inside tuples, where NaN is itself.
        if not self.equal:
            return list(rows)
        return [(row, count) for row, count in rows if all((row[place],) == (value,) for place, value in self.equal)]

    def answer(self, rows: Sequence[tuple[Row, int]]) -> bytes:
        return self.shape.answer(rows, self.limit)


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
