"""Comparisons and three-valued logic, with NaN equal to itself and above every number, as in Spark SQL."""

import re
from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types
import pyarrow.compute as pc  # type: ignore[import-untyped]

from instance.memory.casts import cast
from instance.memory.expression import (
    Datum,
    Expression,
    chosen,
    constant,
    constant_value,
    elementwise,
    folded,
    function,
    kernel,
)
from instance.memory.rows import Value
from instance.memory.type_rules import BOOLEAN, NULL, STRING, common, is_decimal, is_fractional, name_of
from reconcile.errors import InvalidRequest

#: Each comparison by its sign: whether it is "equal" rather than "less", the sides swapped, the answer inverted.
_COMPARISONS = {
    "=": (True, False, False),
    "<>": (True, False, True),
    "<": (False, False, False),
    ">": (False, True, False),
    "<=": (False, True, True),
    ">=": (False, False, True),
}
#: How many written values are compared one by one; more are looked up together.
_IN_COMPARED_MAX = 3


def together(expressions: Sequence[Expression]) -> tuple[pa.DataType, list[Expression]]:
    """All of them cast to the one type in which they meet."""
    type = reduce(lambda left, right: common(_typed(left), _typed(right.type)), expressions, NULL)
    return type, [cast(expression, type) for expression in expressions]


def _typed(type: pa.DataType) -> Expression:
    """Any expression of that type."""
    return Expression(type=type, evaluate=lambda _: None)


def compared(sign: str, left: Expression, right: Expression) -> Expression:
    """``left sign right``; null if either is."""
    type = common(left, right)
    # Decimals are compared as they are: the type in which they meet may have too few digits for both.
    if not is_decimal(type) or NULL in (left.type, right.type):
        left, right = cast(left, type), cast(right, type)
    equal, swapped, inverted = _COMPARISONS[sign]
    if swapped:
        left, right = right, left
    if type == NULL:
        return constant(None, BOOLEAN)
    if is_decimal(type):
        compute: Callable[[Value, Value], Value] = (lambda a, b: a == b) if equal else (lambda a, b: a < b)
        found = elementwise(compute, BOOLEAN, left, right)
    elif is_fractional(left.type):
        found = _fractions_compared(equal, left, right)
    else:
        found = kernel("equal" if equal else "less", BOOLEAN, left, right)
    return kernel("invert", BOOLEAN, found) if inverted else found


def _fractions_compared(equal: bool, left: Expression, right: Expression) -> Expression:
    both = function("and"), function("or"), function("is_nan"), function("equal" if equal else "less")
    conjunction, disjunction, is_nan, plain = both

    def evaluate(frame: pa.RecordBatch) -> Datum:
        ours, theirs = left.evaluate(frame), right.evaluate(frame)
        our_nan, their_nan = is_nan.call([ours]), is_nan.call([theirs])
        special = conjunction.call([our_nan if equal else pc.invert(our_nan), their_nan])
        return disjunction.call([plain.call([ours, theirs]), special])

    return folded(BOOLEAN, evaluate, [left, right])


def null_safe_equal(left: Expression, right: Expression) -> Expression:
    """``left <=> right``: two nulls are equal, and the answer is never null."""
    equal = compared("=", left, right)
    both_null = conjunction(is_null(left), is_null(right))
    return chosen(BOOLEAN, [(is_null(equal), both_null)], equal)


def is_null(operand: Expression) -> Expression:
    return kernel("is_null", BOOLEAN, operand)


def negation(operand: Expression) -> Expression:
    return kernel("invert", BOOLEAN, truth(operand, "NOT"))


def truth(operand: Expression, where: str) -> Expression:
    """``operand``, which must be a boolean."""
    if operand.type == NULL:
        return constant(None, BOOLEAN)
    if operand.type != BOOLEAN:
        raise InvalidRequest(f"{where} needs a boolean, not {name_of(operand.type)}", hint="compare it with something")
    return operand


def conjunction(left: Expression, right: Expression) -> Expression:
    """``left AND right``; the right is not computed where the left is false."""
    left, right = truth(left, "AND"), truth(right, "AND")
    plain = kernel("and_kleene", BOOLEAN, left, right)
    if not right.can_fail:
        return plain
    return chosen(BOOLEAN, [(kernel("invert", BOOLEAN, left), constant(False, BOOLEAN))], plain)


def disjunction(left: Expression, right: Expression) -> Expression:
    """``left OR right``; the right is not computed where the left is true."""
    left, right = truth(left, "OR"), truth(right, "OR")
    plain = kernel("or_kleene", BOOLEAN, left, right)
    if not right.can_fail:
        return plain
    return chosen(BOOLEAN, [(left, constant(True, BOOLEAN))], plain)


def between(operand: Expression, low: Expression, high: Expression) -> Expression:
    return conjunction(compared(">=", operand, low), compared("<=", operand, high))


def contained(operand: Expression, values: Sequence[Expression]) -> Expression:
    """``operand IN (values)``: null if it is not found among them while it or one of them is null."""
    type, (operand, *values) = together([operand, *values])
    written = all(value.constant is not None for value in values)
    if not written or len(values) <= _IN_COMPARED_MAX or is_fractional(type) or is_decimal(type):
        return reduce(disjunction, [compared("=", operand, value) for value in values])
    scalars: list[Any] = [value.constant for value in values]
    known = pa.concat_arrays([pa.repeat(scalar, 1) for scalar in scalars if scalar.is_valid])
    found = kernel("is_in", BOOLEAN, operand, options=pc.SetLookupOptions(known, skip_nulls=True))
    unknown = constant(None, BOOLEAN)
    doubtful = [(found, constant(True, BOOLEAN))] if len(known) < len(scalars) else [(is_null(operand), unknown)]
    return chosen(BOOLEAN, doubtful, unknown if len(known) < len(scalars) else found)


def like(operand: Expression, pattern: Expression, escape: str) -> Expression:
    """``operand LIKE pattern ESCAPE escape``."""
    for part in (operand, pattern):
        if part.type not in (STRING, NULL):
            raise InvalidRequest(f"LIKE needs strings, not {name_of(part.type)}")
    operand, pattern = cast(operand, STRING), cast(pattern, STRING)
    if pattern.constant is not None and pattern.constant.is_valid:
        matches = like_pattern(constant_value(pattern), escape).fullmatch
        return elementwise(lambda text: matches(text) is not None, BOOLEAN, operand)
    compute = partial(_matches, escape=escape)
    return elementwise(compute, BOOLEAN, operand, pattern, can_fail=True)


def _matches(text: str, pattern: str, escape: str) -> bool:
    return like_pattern(pattern, escape).fullmatch(text) is not None


def like_pattern(pattern: str, escape: str) -> re.Pattern[str]:
    """The regular expression that means what the LIKE pattern means."""
    parts: list[str] = []
    letters = iter(pattern)
    for letter in letters:
        if letter == escape:
            escaped = next(letters, None)
            if escaped is None or escaped not in ("%", "_", escape):
                raise InvalidRequest(f"LIKE pattern {pattern!r} has an escape before nothing that needs one")
            parts.append(re.escape(escaped))
        else:
            parts.append({"%": ".*", "_": "."}.get(letter) or re.escape(letter))
    return re.compile("".join(parts), re.DOTALL)


def coalesced(expressions: Sequence[Expression]) -> Expression:
    """The first that is not null."""
    type, values = together(expressions)
    *earlier, last = values
    return chosen(type, [(negation(is_null(value)), value) for value in earlier], last)


def case(branches: Sequence[tuple[Expression, Expression]], default: Expression | None) -> Expression:
    """The value of the first branch whose condition is true."""
    conditions = [truth(condition, "WHEN") for condition, _ in branches]
    outcomes = [value for _, value in branches]
    type, values = together([*outcomes, constant(None, NULL) if default is None else default])
    return chosen(type, list(zip(conditions, values[:-1], strict=True)), values[-1])
