"""Spark's rules, in ANSI mode, for the types of expressions.

Types are their Spark SQL names; ``void`` is the type of NULL alone, and ``unknown`` goes with every other. Where
Spark would silently read a string as a number we refuse instead: the text says then what is computed, and every
executor agrees on it.
"""

import re

from plainsong.types import is_nested

VOID = "void"
#: The type of what the compiler does not know the type of; it must be converted before it can be a column.
UNKNOWN = "unknown"
#: Types of intervals begin with this word; the unit follows. They can be computed with, and not stored.
INTERVAL = "interval"
_INTEGERS = ("tinyint", "smallint", "int", "bigint")
_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}
_PRECISION_MAX = 38
#: Digits after the point that a decimal keeps at least when its precision would grow over the maximum.
_SCALE_KEPT = 6
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)", re.ASCII)


def decimal(precision: int, scale: int) -> str:
    return f"decimal({precision},{scale})"


def decimal_parts(type: str) -> tuple[int, int] | None:
    """Precision and scale of a decimal."""
    match = _DECIMAL.fullmatch(type)
    return (int(match[1]), int(match[2])) if match else None


def is_integer(type: str) -> bool:
    return type in _INTEGERS


def is_fractional(type: str) -> bool:
    return type in ("float", "double")


def is_numeric(type: str) -> bool:
    return is_integer(type) or is_fractional(type) or decimal_parts(type) is not None


def _as_decimal(type: str) -> tuple[int, int]:
    """The decimal that holds every value of an exact numeric type."""
    return decimal_parts(type) or (_DIGITS[type], 0)


def _bounded(precision: int, scale: int) -> str:
    return decimal(min(precision, _PRECISION_MAX), min(scale, _PRECISION_MAX))


def _adjusted(precision: int, scale: int) -> str:
    """A decimal that must not lose digits before the point, and if it is too wide loses some after it."""
    if precision <= _PRECISION_MAX:
        return decimal(precision, scale)
    whole = precision - scale
    return decimal(_PRECISION_MAX, max(_PRECISION_MAX - whole, min(scale, _SCALE_KEPT)))


def common_type(left: str, right: str) -> str | None:
    """The least type that holds the values of both, if they have one."""
    if left == right or right == VOID:
        return left
    if left == VOID:
        return right
    if UNKNOWN in (left, right):
        return UNKNOWN
    if is_numeric(left) and is_numeric(right):
        return _common_numeric(left, right)
    pair = {left, right}
    if pair <= {"date", "timestamp", "string"}:
        return "timestamp" if "timestamp" in pair else "date"
    return None


def _common_numeric(left: str, right: str) -> str:
    if is_fractional(left) or is_fractional(right):
        # Spark widens a whole number and a float to double, which loses less.
        return "double"
    if is_integer(left) and is_integer(right):
        return max(left, right, key=_INTEGERS.index)
    (p1, s1), (p2, s2) = _as_decimal(left), _as_decimal(right)
    scale = max(s1, s2)
    return _bounded(max(p1 - s1, p2 - s2) + scale, scale)


def arithmetic_type(operator: str, left: str, right: str) -> str | None:
    """The type of ``left operator right`` for one of ``+ - * / %``, if there is one."""
    if left == VOID and right == VOID:
        return None
    left, right = (right if left == VOID else left), (left if right == VOID else right)
    if not (is_numeric(left) and is_numeric(right)):
        return None
    exact = decimal_parts(left) is not None or decimal_parts(right) is not None
    if exact and not is_fractional(left) and not is_fractional(right):
        return _decimal_arithmetic(operator, _as_decimal(left), _as_decimal(right))
    return "double" if operator == "/" else common_type(left, right)


def _decimal_arithmetic(operator: str, left: tuple[int, int], right: tuple[int, int]) -> str:
    (p1, s1), (p2, s2) = left, right
    match operator:
        case "+" | "-":
            scale = max(s1, s2)
            return _adjusted(max(p1 - s1, p2 - s2) + scale + 1, scale)
        case "*":
            return _adjusted(p1 + p2 + 1, s1 + s2)
        case "/":
            scale = max(_SCALE_KEPT, s1 + p2 + 1)
            return _adjusted(p1 - s1 + s2 + scale, scale)
        case _:
            scale = max(s1, s2)
            return _adjusted(min(p1 - s1, p2 - s2) + scale, scale)


def literal_decimal(whole: int) -> str:
    """The decimal that a whole number literal becomes beside a decimal: as narrow as its digits."""
    return decimal(len(str(abs(whole))), 0)


def aggregate_type(function: str, type: str) -> str | None:
    """The type of an aggregate over values of ``type``, if there is one."""
    match function:
        case "count":
            return "bigint"
        case "min" | "max":
            return type if type not in (VOID, UNKNOWN) and not type.startswith("map<") else None
        case _ if not is_numeric(type):
            return None
    parts = decimal_parts(type)
    if function == "sum":
        if parts is not None:
            return _bounded(parts[0] + 10, parts[1])
        return "bigint" if is_integer(type) else "double"
    return "double" if parts is None else _bounded(parts[0] + 4, parts[1] + 4)


def rounded_type(type: str, places: int) -> str:
    """The type of ``round(value of type, places)``."""
    parts = decimal_parts(type)
    if parts is None:
        return type
    whole = parts[0] - parts[1] + 1
    if places < 0:
        return _bounded(max(whole, 1 - places), 0)
    scale = min(parts[1], places)
    return _bounded(whole + scale, scale)


def castable(source: str, target: str) -> bool:
    """Whether CAST takes values of ``source`` to ``target``."""
    if source in (target, VOID):
        return True
    if source == UNKNOWN:
        return True
    pair = {source, target}
    if is_nested(source) or is_nested(target):
        # Whether what is inside fits, Spark says.
        return target == "string" or source.partition("<")[0] == target.partition("<")[0]
    if is_numeric(source) and is_numeric(target):
        return True
    if "string" in pair:
        return True
    if "boolean" in pair:
        return is_numeric(source) or is_numeric(target)
    return pair == {"date", "timestamp"}
