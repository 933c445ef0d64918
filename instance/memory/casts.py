"""CAST as Spark SQL does it in ANSI mode: what does not fit is an error."""

import math
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from functools import partial

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types
import pyarrow.compute as pc  # type: ignore[import-untyped]

from instance.memory.expression import Expression, constant, elementwise, kernel
from instance.memory.rows import NAN, Value, microseconds
from instance.memory.type_rules import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGERS,
    NULL,
    STRING,
    TIMESTAMP,
    bounds,
    is_decimal,
    is_fractional,
    is_integer,
    is_number,
    name_of,
)
from reconcile.errors import InvalidRequest

#: Wide enough that no sum, product or quotient of decimals of 38 digits is rounded before we round it.
EXACT = Context(prec=200, rounding=ROUND_HALF_UP)
_DAY = 86_400_000_000
_EPOCH = date(1970, 1, 1)
_TRUE, _FALSE = {"t", "true", "y", "yes", "1"}, {"f", "false", "n", "no", "0"}
_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_DATE = re.compile(r"([0-9]{4})(?:-([0-9]{1,2})(?:-([0-9]{1,2})(?:[T ].*)?)?)?", re.DOTALL)
_TIMESTAMP = re.compile(
    r"([0-9]{4})(?:-([0-9]{1,2})(?:-([0-9]{1,2})"
    r"(?:[T ]([0-9]{1,2}):([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]{0,6})[0-9]*)?)?"
    r"\s*(Z|UTC|[+-][0-9]{1,2}:[0-9]{2})?)?)?)?"
)
_SPECIAL = {"nan": NAN, "infinity": math.inf, "inf": math.inf, "-infinity": -math.inf, "-inf": -math.inf}


def cast(expression: Expression, target: pa.DataType) -> Expression:
    """``expression`` as ``target``; raises ``InvalidRequest`` if their types have nothing to do with each other."""
    source = expression.type
    if source == target:
        return expression
    if source == NULL:
        return constant(None, target)
    if is_integer(source) and (is_integer(target) or is_fractional(target)):
        return _by_arrow(expression, target)
    if is_fractional(source) and is_fractional(target):
        return _by_arrow(expression, target)
    compute = _conversion(source, target)
    if compute is None:
        raise InvalidRequest(f"{name_of(source)} cannot be cast to {name_of(target)}")
    return elementwise(compute, target, expression, can_fail=_can_fail(source, target))


def _can_fail(source: pa.DataType, target: pa.DataType) -> bool:
    return not (target in (STRING, BINARY) or (is_decimal(source) and is_fractional(target)) or source == BOOLEAN)


def _by_arrow(expression: Expression, target: pa.DataType) -> Expression:
    """Between integers, checked; to fractions, rounded to the nearest."""
    whole = is_integer(target)
    options = pc.CastOptions.safe(target) if whole else pc.CastOptions.unsafe(target)
    narrowing = whole and INTEGERS[target] < INTEGERS[expression.type]
    return kernel("cast", target, expression, options=options, can_fail=narrowing)


def _conversion(source: pa.DataType, target: pa.DataType) -> Callable[[Value], Value] | None:
    if target == STRING:
        return _to_string(source)
    if source == STRING:
        return _from_string(target)
    if target == BOOLEAN and is_number(source):
        return bool
    if source == BOOLEAN and is_number(target):
        return Decimal if is_decimal(target) else float if is_fractional(target) else int
    if is_decimal(target) and is_number(source):
        return partial(_number_to_decimal, type=target)
    if is_integer(target) and is_number(source):
        return partial(_truncated, type=target)
    if is_fractional(target) and is_decimal(source):
        return float
    return _TIMES.get((source, target))


# --- numbers ----------------------------------------------------------------------------------------------


def to_decimal(value: Decimal, type: pa.DataType) -> Decimal:
    """``value`` rounded half up to the scale of ``type``; raises ``InvalidRequest`` if it has too many digits."""
    rounded = value.quantize(Decimal((0, (1,), -type.scale)), context=EXACT)
    if rounded.adjusted() - rounded.as_tuple().exponent >= type.precision and rounded:  # type: ignore[operator]  # finite
        raise InvalidRequest("overflow", detail=f"{value:f} does not fit {name_of(type)}")
    return rounded


def _number_to_decimal(value: Value, type: pa.DataType) -> Decimal:
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidRequest("overflow", detail=f"{value} does not fit {name_of(type)}")
        return to_decimal(Decimal(repr(value)), type)
    return to_decimal(Decimal(value), type)


def checked(value: int, type: pa.DataType) -> int:
    """``value`` if it fits the integer type; raises ``InvalidRequest`` otherwise."""
    least, greatest = bounds(type)
    if not least <= value <= greatest:
        raise InvalidRequest("overflow", detail=f"{value} does not fit {name_of(type)}")
    return value


def _truncated(value: Value, type: pa.DataType) -> int:
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidRequest("overflow", detail=f"{value} does not fit {name_of(type)}")
    return checked(int(value), type)


# --- text -------------------------------------------------------------------------------------------------


def _from_string(target: pa.DataType) -> Callable[[Value], Value] | None:
    if target == BINARY:
        return lambda text: text.encode()
    reader = _reader(target)
    if reader is None:
        return None

    def read(text: str) -> Value:
        try:
            found = reader(text.strip())
        except (ValueError, InvalidOperation, OverflowError):
            found = None
        if found is None:
            raise InvalidRequest(f"{text!r} is not a {name_of(target)}")
        return found

    return read


def _reader(target: pa.DataType) -> Callable[[str], Value] | None:
    if is_integer(target):
        return lambda text: checked(int(text), target) if _INTEGER.fullmatch(text) else None
    if is_decimal(target):
        return lambda text: to_decimal(Decimal(text), target) if _NUMBER.fullmatch(text) else None
    if is_fractional(target):
        return partial(_read_fraction, narrow=target == FLOAT)
    return {BOOLEAN: _read_boolean, DATE: _read_date, TIMESTAMP: _read_timestamp}.get(target)


def _read_fraction(text: str, narrow: bool) -> float | None:
    if text.lower() in _SPECIAL:
        return _SPECIAL[text.lower()]
    if not _NUMBER.fullmatch(text):
        return None
    return _narrowed(float(text)) if narrow else float(text)


def _narrowed(value: float) -> float:
    """The nearest number that a float holds."""
    return float(pa.scalar(value, DOUBLE).cast(FLOAT, safe=False).as_py())


def _read_boolean(text: str) -> bool | None:
    lowered = text.lower()
    return True if lowered in _TRUE else False if lowered in _FALSE else None


def _read_date(text: str) -> int | None:
    found = _DATE.fullmatch(text)
    return None if found is None else (date(int(found[1]), int(found[2] or 1), int(found[3] or 1)) - _EPOCH).days


def _read_timestamp(text: str) -> int | None:
    found = _TIMESTAMP.fullmatch(text)
    if found is None:
        return None
    year, month, day, hour, minute, second, fraction, zone = found.groups()
    moment = datetime(
        int(year), int(month or 1), int(day or 1), int(hour or 0), int(minute or 0), int(second or 0),
        int((fraction or "0").ljust(6, "0")), tzinfo=UTC,
    )  # fmt: skip
    if zone is None or zone in ("Z", "UTC"):
        return microseconds(moment)
    hours, minutes = zone[1:].split(":")
    ahead = timedelta(hours=int(hours), minutes=int(minutes))
    return microseconds(moment - ahead if zone[0] == "+" else moment + ahead)


def _to_string(source: pa.DataType) -> Callable[[Value], str] | None:
    if is_integer(source):
        return str
    if is_decimal(source):
        return lambda value: f"{value:f}"
    if is_fractional(source):
        return partial(_fraction_to_string, narrow=source == FLOAT)
    return {
        BOOLEAN: lambda value: "true" if value else "false",
        DATE: lambda value: (_EPOCH + timedelta(days=value)).isoformat(),
        TIMESTAMP: _timestamp_to_string,
        BINARY: lambda value: value.decode(errors="replace"),
    }.get(source)


def _fraction_to_string(value: float, narrow: bool) -> str:
    """As the JVM writes it: plain from a thousandth up to ten million, else with an exponent."""
    if value != value:
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    digits = Decimal(_shortest_narrow(value) if narrow else repr(value)).normalize(EXACT)
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        plain = f"{digits:f}"
        return plain if "." in plain else f"{plain}.0"
    mantissa = f"{digits.scaleb(-digits.adjusted(), EXACT):f}"
    return f"{mantissa if '.' in mantissa else f'{mantissa}.0'}E{digits.adjusted()}"


def _shortest_narrow(value: float) -> str:
    """The fewest digits from which the same 32-bit number is read back."""
    for digits in range(1, 9):
        text = f"{value:.{digits}g}"
        if _narrowed(float(text)) == value:
            return text
    return f"{value:.9g}"


def _timestamp_to_string(value: int) -> str:
    moment = datetime(1970, 1, 1) + timedelta(microseconds=value)
    text = moment.strftime("%Y-%m-%d %H:%M:%S").rjust(19, "0")
    return f"{text}.{moment.microsecond:06d}".rstrip("0") if moment.microsecond else text


# --- times ------------------------------------------------------------------------------------------------

_TIMES: dict[tuple[pa.DataType, pa.DataType], Callable[[Value], Value]] = {
    (DATE, TIMESTAMP): lambda days: days * _DAY,
    (TIMESTAMP, DATE): lambda moment: moment // _DAY,
    (TIMESTAMP, BIGINT): lambda moment: moment // 1_000_000,
    (BIGINT, TIMESTAMP): lambda seconds: checked(seconds * 1_000_000, BIGINT),
}
