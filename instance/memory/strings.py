"""Functions on strings, as Spark SQL counts and cuts them: by characters, from one."""

from collections.abc import Sequence

from instance.memory.casts import cast
from instance.memory.expression import Expression, constant, elementwise, kernel
from instance.memory.type_rules import BINARY, INT, NULL, STRING, is_integer, name_of
from reconcile.errors import InvalidRequest


def _text(function: str, operand: Expression) -> Expression:
    if operand.type == BINARY:
        raise InvalidRequest(f"{function} is not defined for binary", hint="cast it to string")
    return cast(operand, STRING)


def upper(operand: Expression) -> Expression:
    return elementwise(str.upper, STRING, _text("upper", operand))


def lower(operand: Expression) -> Expression:
    return elementwise(str.lower, STRING, _text("lower", operand))


def length(operand: Expression) -> Expression:
    """Characters of a string, bytes of a binary."""
    if operand.type == BINARY:
        return kernel("binary_length", INT, operand)
    return kernel("utf8_length", INT, _text("length", operand))


def substring(operand: Expression, start: Expression, count: Expression | None) -> Expression:
    """From the ``start``-th character on, or from the end if that is negative; nought is the first too."""
    for number in (start, count):
        if number is not None and not (is_integer(number.type) or number.type == NULL):
            raise InvalidRequest(f"substring needs whole numbers, not {name_of(number.type)}")
    if operand.type != BINARY:
        operand = _text("substring", operand)
    start = cast(start, INT)
    if count is None:
        count = constant((1 << 31) - 1, INT)
    return elementwise(_substring, operand.type, operand, start, cast(count, INT))


def _substring(text: str | bytes, start: int, count: int) -> str | bytes:
    first = start - 1 if start > 0 else len(text) + start if start < 0 else 0
    return text[max(0, first) : max(0, first + count)]


def concatenated(parts: Sequence[Expression]) -> Expression:
    """All parts one after the other; null if one is."""
    if not parts:
        return constant("", STRING)
    if all(part.type == BINARY for part in parts):
        return elementwise(lambda *values: b"".join(values), BINARY, *parts)
    texts = [_text("concat", part) for part in parts]
    return elementwise(lambda *values: "".join(values), STRING, *texts)


def trimmed(operand: Expression, side: str, letters: Expression | None) -> Expression:
    """Without the ``letters``, or else spaces, at its ends."""
    strip = {"BOTH": str.strip, "LEADING": str.lstrip, "TRAILING": str.rstrip}[side]
    wanted = constant(" ", STRING) if letters is None else _text("trim", letters)
    return elementwise(lambda text, ends: strip(text, ends) if ends else text, STRING, _text("trim", operand), wanted)


def binary_literal(digits: str) -> Expression:
    """``X'1F'``."""
    try:
        return constant(bytes.fromhex(digits if len(digits) % 2 == 0 else f"0{digits}"), BINARY)
    except ValueError as error:
        raise InvalidRequest(f"X'{digits}' is not a binary") from error
