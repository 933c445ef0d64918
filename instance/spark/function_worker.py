"""A user's function where it runs: in a Python worker of Spark, which may have nothing of ours.

Shipped as text and run there; so it imports the standard library only, and is whole by itself.
"""

import linecache
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}


def loaded(name: str, source: str, returns: str, columns: Iterable[tuple[str, str]]) -> Callable[..., Any]:
    """The function, which gives only what it was declared to give."""
    place = f"<function {name}>"
    # A traceback shows the lines.
    linecache.cache[place] = (len(source), None, source.splitlines(keepends=True), place)
    space: dict[str, Any] = {"__name__": f"plainsong_function_{name}"}
    exec(compile(source, place, "exec"), space)  # this is what it is for; only an operator registers
    function = space[name]
    listed = tuple(columns)
    if not listed:
        return lambda *args: _checked(name, function(*args), returns)
    return lambda *args: [_row(name, row, listed) for row in function(*args) or ()]


def _row(name: str, row: Any, columns: tuple[tuple[str, str], ...]) -> tuple[Any, ...]:
    if isinstance(row, Mapping):
        unknown = set(row) - {column for column, _ in columns}
        if unknown:
            raise TypeError(f"{name} gave a row with {min(map(str, unknown))!r}, which is none of its columns")
        values = [row.get(column) for column, _ in columns]
    elif isinstance(row, tuple | list):
        values = list(row)
    else:
        values = [row]
    if len(values) != len(columns):
        raise TypeError(f"{name} gave a row of {len(values)} values, and has {len(columns)} columns")
    return tuple(
        _checked(f"{name}, column {column},", value, type)
        for value, (column, type) in zip(values, columns, strict=True)
    )


def _checked(name: str, value: Any, type: str) -> Any:
    """The value as Spark takes it for ``type``; raises ``TypeError`` or ``ValueError`` if it is none."""
    if value is None:
        return None
    if type.startswith("array<"):
        if not isinstance(value, list | tuple):
            raise _wrong(name, value, type)
        return [_checked(name, each, type[6:-1]) for each in value]
    if type in _BITS:
        if not isinstance(value, int) or isinstance(value, bool):
            raise _wrong(name, value, type)
        if not -(2 ** (_BITS[type] - 1)) <= value < 2 ** (_BITS[type] - 1):
            raise ValueError(f"{name} gave {value}, which is no {type}")
        return value
    if type in ("float", "double"):
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise _wrong(name, value, type)
        return float(value)
    if type.startswith("decimal"):
        return _decimal(name, value, type)
    wanted: dict[str, Any] = {"boolean": bool, "string": str, "binary": bytes | bytearray, "date": date}
    if not isinstance(value, wanted[type]) or isinstance(value, datetime):
        raise _wrong(name, value, type)
    return value


def _decimal(name: str, value: Any, type: str) -> Decimal:
    if not isinstance(value, int | Decimal) or isinstance(value, bool):
        raise _wrong(name, value, type)
    precision, scale = map(int, type[8:-1].split(","))
    if Decimal(value).is_finite() and abs(value) < 10 ** (precision - scale):
        # The context of this thread may hold fewer digits.
        import decimal

        with decimal.localcontext(prec=precision + 2):
            rounded = Decimal(value).quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP)
        if abs(rounded) < 10 ** (precision - scale):
            return rounded
    raise ValueError(f"{name} gave {value}, which is no {type}")


def _wrong(name: str, value: Any, wanted: str) -> TypeError:
    return TypeError(f"{name} gave {value!r:.100} of type {type(value).__name__}, which is no {wanted}")
