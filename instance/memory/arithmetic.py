"""Arithmetic as Spark SQL does it in ANSI mode: overflow and division by zero are errors."""

import math
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal

from instance.memory.casts import EXACT, cast, checked, to_decimal
from instance.memory.expression import Expression, constant_value, elementwise, kernel
from instance.memory.rows import Value
from instance.memory.type_rules import (
    BIGINT,
    DOUBLE,
    NULL,
    bounded,
    common_number,
    decimal_for,
    is_decimal,
    is_fractional,
    is_integer,
    is_number,
    name_of,
    product_type,
    quotient_type,
    remainder_type,
    sum_type,
)
from reconcile.errors import InvalidRequest

_KERNELS = {"+": "add_checked", "-": "subtract_checked", "*": "multiply_checked"}
_DECIMAL_TYPES = {
    "+": sum_type,
    "-": sum_type,
    "*": product_type,
    "/": quotient_type,
    "%": remainder_type,
}


def arithmetic(sign: str, left: Expression, right: Expression) -> Expression:
    """``left sign right`` for one of ``+ - * / %``."""
    left, right = _numbers(sign, left, right)
    types = (left.type, right.type)
    if any(map(is_decimal, types)) and not any(map(is_fractional, types)):
        return _decimal_arithmetic(sign, left, right)
    if sign == "/":
        return kernel("divide_checked", DOUBLE, cast(left, DOUBLE), cast(right, DOUBLE), can_fail=True)
    type = common_number(left, right)
    left, right = cast(left, type), cast(right, type)
    if sign != "%":
        return kernel(_KERNELS[sign], type, left, right, can_fail=is_integer(type))
    if is_integer(type):
        return elementwise(_remainder, type, left, right, can_fail=True)
    return kernel("remainder_checked", type, left, right, can_fail=True)


def integral_division(left: Expression, right: Expression) -> Expression:
    """``left DIV right``."""
    left, right = _numbers("DIV", left, right)
    if is_fractional(left.type) or is_fractional(right.type):
        raise InvalidRequest("DIV is for integers and decimals", hint="use / or cast to bigint")
    return elementwise(lambda a, b: checked(_quotient(a, b), BIGINT), BIGINT, left, right, can_fail=True)


def negated(operand: Expression) -> Expression:
    operand = _number("-", operand)
    if is_decimal(operand.type):
        return elementwise(lambda value: value.copy_negate(), operand.type, operand)
    return kernel("negate_checked", operand.type, operand, can_fail=is_integer(operand.type))


def absolute(operand: Expression) -> Expression:
    operand = _number("abs", operand)
    if is_decimal(operand.type):
        return elementwise(lambda value: value.copy_abs(), operand.type, operand)
    return kernel("abs_checked", operand.type, operand, can_fail=is_integer(operand.type))


def rounded(operand: Expression, places: Expression | None) -> Expression:
    """``round(operand, places)``: half away from zero."""
    operand = _number("round", operand)
    if places is not None and (places.constant is None or not is_integer(places.type)):
        raise InvalidRequest("the number of places to round to must be a whole number as written")
    kept = 0 if places is None else constant_value(places)
    if kept is None or abs(kept) > 400:
        raise InvalidRequest("the number of places to round to is out of bounds")
    unit = Decimal((0, (1,), -kept))
    if is_decimal(operand.type):
        scale = max(0, min(operand.type.scale, kept))
        type = bounded(operand.type.precision - operand.type.scale + scale + 1, scale)
        if kept >= operand.type.scale:
            return cast(operand, type)
        return elementwise(
            lambda value: to_decimal(value.quantize(unit, context=EXACT), type), type, operand, can_fail=True
        )
    if is_integer(operand.type):
        type = operand.type
        if kept >= 0:
            return operand
        return elementwise(lambda value: checked(_round_integer(value, unit), type), type, operand, can_fail=True)
    return elementwise(lambda value: _round_fraction(value, unit), operand.type, operand)


def _round_integer(value: int, unit: Decimal) -> int:
    return int(Decimal(value).quantize(unit, rounding=ROUND_HALF_UP, context=EXACT))


def _round_fraction(value: float, unit: Decimal) -> float:
    if not math.isfinite(value):
        return value
    # A double has at most 324 places, and none that matter once its unit is beyond them.
    exact = Decimal(repr(value))
    if exact.as_tuple().exponent >= unit.as_tuple().exponent:  # type: ignore[operator]  # both are finite
        return value
    return float(exact.quantize(unit, rounding=ROUND_HALF_UP, context=EXACT))


def _numbers(sign: str, left: Expression, right: Expression) -> tuple[Expression, Expression]:
    """Both operands as numbers; an unknown one takes the type of the other."""
    if left.type == NULL:
        left = cast(left, right.type if is_number(right.type) else DOUBLE)
    if right.type == NULL:
        right = cast(right, left.type)
    return _number(sign, left), _number(sign, right)


def _number(sign: str, operand: Expression) -> Expression:
    if operand.type == NULL:
        return cast(operand, DOUBLE)
    if not is_number(operand.type):
        raise InvalidRequest(f"{sign} is not defined for {name_of(operand.type)}", hint="cast it to a number")
    return operand


def _decimal_arithmetic(sign: str, left: Expression, right: Expression) -> Expression:
    type = _DECIMAL_TYPES[sign](decimal_for(left), decimal_for(right))
    compute = _DECIMAL[sign]

    def bounded_compute(a: Value, b: Value) -> Decimal:
        return to_decimal(compute(Decimal(a), Decimal(b)), type)

    return elementwise(bounded_compute, type, left, right, can_fail=True)


def _quotient(a: Value, b: Value) -> int:
    """The quotient without its fraction: towards zero."""
    if b == 0:
        raise InvalidRequest("division by zero")
    if isinstance(a, int) and isinstance(b, int):
        return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    return int(EXACT.divide_int(Decimal(a), Decimal(b)))


def _remainder(a: int, b: int) -> int:
    """The remainder with the sign of the dividend."""
    return a - b * _quotient(a, b)


def _decimal_quotient(a: Decimal, b: Decimal) -> Decimal:
    if b == 0:
        raise InvalidRequest("division by zero")
    return EXACT.divide(a, b)


def _decimal_remainder(a: Decimal, b: Decimal) -> Decimal:
    if b == 0:
        raise InvalidRequest("division by zero")
    return EXACT.remainder(a, b)


_DECIMAL: dict[str, Callable[[Decimal, Decimal], Decimal]] = {
    "+": EXACT.add,
    "-": EXACT.subtract,
    "*": EXACT.multiply,
    "/": _decimal_quotient,
    "%": _decimal_remainder,
}
