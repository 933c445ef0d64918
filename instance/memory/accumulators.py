"""Accumulators: what a group remembers of the values it aggregates, so that rows can be taken out again.

All are exact and do not depend on the order of the rows: integers and decimals are summed as integers, doubles as
integer multiples of the smallest double there is. So replicas agree to the bit, and nothing drifts.
"""

import heapq
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Protocol

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types

from instance.memory.casts import EXACT, checked, to_decimal
from instance.memory.rows import NAN, Value, order_key
from instance.memory.type_rules import BIGINT, DOUBLE, is_decimal, is_fractional, is_integer, is_number, name_of
from plainsong.types import DECIMAL_PRECISION_MAX
from reconcile.errors import InvalidRequest

#: Every double is an integer multiple of two to the power of minus this.
_FRACTION_BITS = 1074


class Accumulator(Protocol):
    """What one aggregate of one group has seen; it sees no nulls."""

    def add(self, value: Value, diff: int) -> None:
        """Counts ``value`` ``diff`` times more."""
        ...

    def result(self) -> Value:
        """The aggregate now; raises ``InvalidRequest`` if its type cannot hold it."""
        ...


class Count:
    """``count(expression)``: how many are not null."""

    __slots__ = ("_count",)

    def __init__(self) -> None:
        self._count = 0

    def add(self, value: Value, diff: int) -> None:  # noqa: ARG002
        self._count += diff

    def result(self) -> Value:
        return self._count


class ExactSum:
    """Sum and average of integers and decimals, which are counted in units of ``10 ** -scale``."""

    __slots__ = ("_count", "_finish", "_scale", "_sum")

    def __init__(self, scale: int, finish: Callable[[int, int], Value]) -> None:
        self._scale = scale
        self._finish = finish
        self._sum = 0
        self._count = 0

    def add(self, value: Value, diff: int) -> None:
        self._sum += (int(value.scaleb(self._scale, EXACT)) if self._scale else int(value)) * diff
        self._count += diff

    def result(self) -> Value:
        return self._finish(self._sum, self._count) if self._count else None


class FractionSum:
    """Sum and average of floats and doubles."""

    __slots__ = ("_average", "_count", "_nans", "_negatives", "_positives", "_sum")

    def __init__(self, average: bool) -> None:
        self._average = average
        #: In units of the smallest double, of the finite values.
        self._sum = 0
        self._count = self._nans = self._positives = self._negatives = 0

    def add(self, value: Value, diff: int) -> None:
        self._count += diff
        if math.isfinite(value):
            numerator, denominator = value.as_integer_ratio()
            self._sum += (numerator << (_FRACTION_BITS + 1 - denominator.bit_length())) * diff
        elif value != value:
            self._nans += diff
        elif value > 0:
            self._positives += diff
        else:
            self._negatives += diff

    def result(self) -> Value:
        if not self._count:
            return None
        total = self._total()
        # Arithmetic would make another NaN, which is not the one that rows are compared by.
        if not self._average or total != total:
            return total
        # Adding zero: an average that vanishes has no sign.
        return total / self._count + 0.0

    def _total(self) -> float:
        if self._nans or (self._positives and self._negatives):
            return NAN
        if self._positives or self._negatives:
            return math.inf if self._positives else -math.inf
        try:
            return self._sum / (1 << _FRACTION_BITS)
        except OverflowError:
            return math.inf if self._sum > 0 else -math.inf


class _Descending:
    """Orders values the other way round."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __lt__(self, other: "_Descending") -> bool:
        return bool(other.value < self.value)


class Extreme:
    """Least or greatest value: a multiset, and a heap that may still hold values that are gone."""

    __slots__ = ("_counts", "_heap", "_key")

    def __init__(self, key: Callable[[Value], Any]) -> None:
        self._key = key
        #: How often each value occurs; none zero.
        self._counts: dict[Value, int] = {}
        #: At least every value that occurs, by its key.
        self._heap: list[tuple[Any, int, Value]] = []

    def add(self, value: Value, diff: int) -> None:
        count = self._counts.get(value, 0)
        if count + diff:
            self._counts[value] = count + diff
        else:
            self._counts.pop(value, None)
        if not count:
            # The second part keeps equal keys from comparing values.
            heapq.heappush(self._heap, (self._key(value), len(self._heap), value))
            if len(self._heap) > 2 * len(self._counts) + 16:
                self._heap = [(self._key(each), place, each) for place, each in enumerate(self._counts)]
                heapq.heapify(self._heap)

    def result(self) -> Value:
        while self._heap and self._heap[0][2] not in self._counts:
            heapq.heappop(self._heap)
        return self._heap[0][2] if self._heap else None


def accumulator(function: str, type: pa.DataType) -> tuple[pa.DataType, Callable[[], Accumulator]]:
    """The type of ``function`` over values of ``type``, and what makes its accumulators."""
    match function:
        case "count":
            return BIGINT, Count
        case "min" | "max":
            ascending = order_key(type)
            if function == "min":
                return type, lambda: Extreme(ascending)
            return type, lambda: Extreme(lambda value: _Descending(ascending(value)))
        case "sum" | "avg" if is_number(type):
            return _summing(function == "avg", type)
        case "sum" | "avg":
            raise InvalidRequest(f"{function} is not defined for {name_of(type)}", hint="cast it to a number")
        case _:
            raise InvalidRequest(f"aggregate {function!r} is not supported", hint="use count, sum, min, max or avg")


def _summing(average: bool, type: pa.DataType) -> tuple[pa.DataType, Callable[[], Accumulator]]:
    if is_fractional(type):
        return DOUBLE, lambda: FractionSum(average)
    if is_integer(type):
        if average:
            return DOUBLE, lambda: ExactSum(0, lambda total, count: total / count)
        return BIGINT, lambda: ExactSum(0, lambda total, _: checked(total, BIGINT))
    if not is_decimal(type):
        raise InvalidRequest(f"{name_of(type)} cannot be summed")
    scale = type.scale
    if average:
        result = _capped(type.precision + 4, scale + 4)
        return result, lambda: ExactSum(scale, lambda total, count: exact_decimal(total, count, scale, result))
    result = _capped(type.precision + 10, scale)
    return result, lambda: ExactSum(scale, lambda total, _: exact_decimal(total, 1, scale, result))


def _capped(precision: int, scale: int) -> pa.DataType:
    return pa.decimal128(min(precision, DECIMAL_PRECISION_MAX), min(scale, DECIMAL_PRECISION_MAX))


def exact_decimal(total: int, count: int, scale: int, type: pa.DataType) -> Decimal:
    """``total`` units of ``10 ** -scale`` by ``count``; raises ``InvalidRequest`` if ``type`` has too few digits."""
    return to_decimal(EXACT.divide(Decimal(total).scaleb(-scale, EXACT), Decimal(count)), type)
