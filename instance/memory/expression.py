"""A compiled expression: its type, and how to compute it over a record batch.

Evaluation is by Arrow kernels where they do what Spark SQL does in ANSI mode, and value by value where they do not.
It happens only for rows that need it, so that ``CASE WHEN b <> 0 THEN a / b END`` does not divide by zero.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import repeat
from typing import Any, TypeAlias

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types
import pyarrow.compute as pc  # type: ignore[import-untyped]

from instance.memory.rows import Value, to_array, values_of
from reconcile.errors import InvalidRequest

#: A ``pa.Array`` as long as the batch, or a ``pa.Scalar`` that stands for all its rows.
Datum: TypeAlias = Any

_ONE_ROW = pa.RecordBatch.from_arrays([pa.array([0])], names=["_"])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Expression:
    """One expression over the columns of one format."""

    type: pa.DataType
    evaluate: Callable[[pa.RecordBatch], Datum]
    #: Whether some row can make it fail; then it must not see rows that do not need it.
    can_fail: bool = False
    #: The value, if it reads no column and cannot fail.
    constant: pa.Scalar | None = None
    #: The place of the column that this is, if it is nothing but a column.
    column: int | None = None
    #: Whether this is a number as it was written: only then its type may shrink to its digits.
    literal: bool = False

    def array(self, frame: pa.RecordBatch) -> pa.Array:
        """The values for all rows of ``frame``."""
        found = self.evaluate(frame)
        return pa.repeat(found, frame.num_rows) if isinstance(found, pa.Scalar) else found


def column(place: int, type: pa.DataType) -> Expression:
    return Expression(type=type, evaluate=lambda frame: frame.column(place), column=place)


def constant(value: Value, type: pa.DataType, *, literal: bool = False) -> Expression:
    scalar = to_array([value], type)[0]
    return Expression(type=type, evaluate=lambda _: scalar, constant=scalar, literal=literal)


def constant_value(expression: Expression) -> Value:
    """The value of an expression that is constant."""
    return values_of(pa.repeat(expression.constant, 1))[0]


@lru_cache(maxsize=1024)
def function(name: str) -> pc.Function:
    return pc.get_function(name)


def kernel(
    name: str,
    type: pa.DataType,
    *arguments: Expression,
    options: pc.FunctionOptions | None = None,
    can_fail: bool = False,
) -> Expression:
    """An expression that one Arrow kernel computes."""
    found = function(name)

    def evaluate(frame: pa.RecordBatch) -> Datum:
        return found.call([argument.evaluate(frame) for argument in arguments], options)

    return folded(type, evaluate, arguments, can_fail=can_fail)


def elementwise(
    compute: Callable[..., Value], type: pa.DataType, *arguments: Expression, can_fail: bool = False
) -> Expression:
    """An expression computed value by value; null wherever an argument is."""

    def evaluate(frame: pa.RecordBatch) -> Datum:
        found = [argument.evaluate(frame) for argument in arguments]
        if all(isinstance(datum, pa.Scalar) for datum in found):
            values = [values_of(pa.repeat(datum, 1))[0] for datum in found]
            return to_array([None if None in values else compute(*values)], type)[0]
        columns = [_values(datum) for datum in found]
        if len(columns) == 1:
            return to_array([None if value is None else compute(value) for value in columns[0]], type)
        return to_array(
            [None if _null_in(values) else compute(*values) for values in zip(*columns, strict=False)], type
        )

    return folded(type, evaluate, arguments, can_fail=can_fail)


def _values(datum: Datum) -> Any:
    return repeat(values_of(pa.repeat(datum, 1))[0]) if isinstance(datum, pa.Scalar) else values_of(datum)


def _null_in(values: Sequence[Value]) -> bool:
    # Not ``None in values``: that compares, and comparing a decimal with everything is slow.
    return any(value is None for value in values)


def folded(
    type: pa.DataType,
    evaluate: Callable[[pa.RecordBatch], Datum],
    arguments: Sequence[Expression],
    *,
    can_fail: bool = False,
) -> Expression:
    """The expression, computed now if it is the same for every row.

    One that fails is left as it is: perhaps no row ever needs it.
    """
    can_fail = can_fail or any(argument.can_fail for argument in arguments)
    compiled = Expression(type=type, evaluate=evaluate, can_fail=can_fail)
    if not all(argument.constant is not None for argument in arguments):
        return compiled
    try:
        scalar = compiled.array(_ONE_ROW)[0]
    except (InvalidRequest, pa.ArrowException, ArithmeticError):
        return compiled
    return replace(compiled, evaluate=lambda _: scalar, can_fail=False, constant=scalar)


def chosen(type: pa.DataType, branches: Sequence[tuple[Expression, Expression]], default: Expression) -> Expression:
    """The value of the first branch whose condition is true, else the default; each seen only by its own rows."""

    def evaluate(frame: pa.RecordBatch) -> Datum:
        remaining = frame
        places = pa.array(range(frame.num_rows), pa.int64())
        found: list[tuple[pa.Array, pa.Array]] = []
        for condition, value in branches:
            if remaining.num_rows == 0:
                break
            hit = pc.fill_null(condition.array(remaining), False)
            taken = remaining.filter(hit)
            if taken.num_rows:
                found.append((places.filter(hit), value.array(taken)))
            miss = pc.invert(hit)
            remaining, places = remaining.filter(miss), places.filter(miss)
        if remaining.num_rows:
            found.append((places, default.array(remaining)))
        return _in_place(found)

    return folded(type, evaluate, [part for branch in branches for part in branch] + [default])


def _in_place(found: Sequence[tuple[pa.Array, pa.Array]]) -> pa.Array:
    """Values computed for some rows each, in the order of all rows."""
    if len(found) == 1:
        return found[0][1]
    places = pa.concat_arrays([places for places, _ in found])
    return pa.concat_arrays([values for _, values in found]).take(pc.array_sort_indices(places))
