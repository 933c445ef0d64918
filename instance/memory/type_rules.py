"""Spark SQL's type rules: which type two operands meet in, and which type an operation on decimals has."""

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types

from instance.memory.expression import Expression, constant_value
from plainsong.types import DECIMAL_PRECISION_MAX, type_name
from reconcile.errors import InvalidRequest

BOOLEAN, INT, BIGINT = pa.bool_(), pa.int32(), pa.int64()
FLOAT, DOUBLE, STRING, BINARY = pa.float32(), pa.float64(), pa.string(), pa.binary()
DATE, TIMESTAMP, NULL = pa.date32(), pa.timestamp("us", tz="UTC"), pa.null()

#: From narrow to wide, with the digits that a decimal needs to hold each.
INTEGERS: dict[pa.DataType, int] = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 20}
_WIDTHS = list(INTEGERS)
#: A decimal that must lose digits keeps at least this many after the point.
_SCALE_KEPT = 6


def is_integer(type: pa.DataType) -> bool:
    return type in INTEGERS


def is_decimal(type: pa.DataType) -> bool:
    return bool(pa.types.is_decimal128(type))


def is_fractional(type: pa.DataType) -> bool:
    return bool(pa.types.is_floating(type))


def is_number(type: pa.DataType) -> bool:
    return is_integer(type) or is_fractional(type) or is_decimal(type)


def name_of(type: pa.DataType) -> str:
    return "void" if type == NULL else type_name(type)


def bounds(type: pa.DataType) -> tuple[int, int]:
    """The least and the greatest number of an integer type."""
    half = 1 << (type.bit_width - 1)
    return -half, half - 1


def decimal_for(expression: Expression) -> pa.DataType:
    """The decimal that holds an integer or decimal expression; for a written number, just its digits."""
    if is_decimal(expression.type):
        return expression.type
    if expression.literal:
        return pa.decimal128(max(1, len(str(abs(constant_value(expression))))), 0)
    return pa.decimal128(INTEGERS[expression.type], 0)


def bounded(precision: int, scale: int) -> pa.DataType:
    """The decimal of that many digits, or the nearest that exists: whole digits are kept before fractional ones."""
    if precision <= DECIMAL_PRECISION_MAX:
        return pa.decimal128(precision, scale)
    kept = max(DECIMAL_PRECISION_MAX - (precision - scale), min(scale, _SCALE_KEPT))
    return pa.decimal128(DECIMAL_PRECISION_MAX, kept)


def sum_type(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    scale = max(left.scale, right.scale)
    return bounded(max(left.precision - left.scale, right.precision - right.scale) + scale + 1, scale)


def product_type(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    return bounded(left.precision + right.precision + 1, left.scale + right.scale)


def quotient_type(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    scale = max(6, left.scale + right.precision + 1)
    return bounded(left.precision - left.scale + right.scale + scale, scale)


def remainder_type(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    scale = max(left.scale, right.scale)
    return bounded(min(left.precision - left.scale, right.precision - right.scale) + scale, scale)


def common_number(left: Expression, right: Expression) -> pa.DataType:
    """The type in which two numbers meet."""
    if left.type == right.type:
        return left.type
    if is_integer(left.type) and is_integer(right.type):
        return max(left.type, right.type, key=_WIDTHS.index)
    if is_fractional(left.type) or is_fractional(right.type):
        return DOUBLE
    ours, theirs = decimal_for(left), decimal_for(right)
    scale = max(ours.scale, theirs.scale)
    return bounded(max(ours.precision - ours.scale, theirs.precision - theirs.scale) + scale, scale)


def common(left: Expression, right: Expression) -> pa.DataType:
    """The type in which two values are compared or brought together; raises ``InvalidRequest`` if there is none."""
    if left.type == right.type or right.type == NULL:
        return left.type
    if left.type == NULL:
        return right.type
    if is_number(left.type) and is_number(right.type):
        return common_number(left, right)
    types = {left.type, right.type}
    if types == {DATE, TIMESTAMP}:
        return TIMESTAMP
    if STRING in types:
        other = right.type if left.type == STRING else left.type
        if is_integer(other):
            return BIGINT
        if is_number(other):
            return DOUBLE
        if other in (DATE, TIMESTAMP, BOOLEAN):
            return other
    raise InvalidRequest(
        f"{name_of(left.type)} and {name_of(right.type)} do not go together",
        hint="cast one of them to the other's type",
    )
