"""Column types: Spark SQL's names for them, and the Arrow types that carry their values."""

import re
from collections.abc import Iterable

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types

from reconcile.errors import InvalidRequest

#: Every update carries these two beside the user's columns: when it happens, and how many rows more it makes.
STEP, DIFF = "_step", "_diff"

DECIMAL_PRECISION_MAX = 38

#: Each type that has no parameters, by the one name that we write.
_ARROW: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}
_NAMES: dict[pa.DataType, str] = {type: name for name, type in _ARROW.items()}

#: Other names that Spark SQL reads for the same types.
_ALIASES = {
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "real": "float",
}
_DECIMAL = re.compile(r"(?:decimal|dec|numeric)(?:\(\s*(\d{1,9})\s*(?:,\s*(\d{1,9})\s*)?\))?", re.ASCII)

_HINT = f"use one of {', '.join(_ARROW)} or decimal(p,s)"


def arrow_type(name: str) -> pa.DataType:
    """The Arrow type of the Spark SQL type ``name``, in any case of letters and under any name Spark has for it."""
    wanted = name.strip().lower()
    if (type := _ARROW.get(_ALIASES.get(wanted, wanted))) is not None:
        return type
    if (decimal := _DECIMAL.fullmatch(wanted)) is not None:
        # Spark's own defaults: DECIMAL is DECIMAL(10), DECIMAL(p) is DECIMAL(p, 0).
        precision, scale = int(decimal[1] or 10), int(decimal[2] or 0)
        if not (1 <= precision <= DECIMAL_PRECISION_MAX and scale <= precision):
            raise InvalidRequest(
                f"type {name!r} is not possible",
                detail=f"a decimal has 1 to {DECIMAL_PRECISION_MAX} digits, and at most that many after the point",
                hint=_HINT,
            )
        return pa.decimal128(precision, scale)
    raise InvalidRequest(f"type {name!r} is unknown", hint=_HINT)


def type_name(type: pa.DataType) -> str:
    """The name of an Arrow type that ``arrow_type`` gives; ``arrow_type(type_name(t)) == t``."""
    if (name := _NAMES.get(type)) is not None:
        return name
    if pa.types.is_decimal128(type) and 0 <= type.scale <= type.precision:
        return f"decimal({type.precision},{type.scale})"
    raise InvalidRequest(f"Arrow type {type} has no place in a table", hint=f"cast it: {_HINT}")


def schema(columns: Iterable[tuple[str, str] | tuple[str, str, bool]]) -> pa.Schema:
    """The schema of columns given by name and type, with whether null is forbidden if it is."""
    fields = [pa.field(name, arrow_type(type), nullable=not any(not_null)) for name, type, *not_null in columns]
    names = [field.name for field in fields]
    for name in names:
        if names.count(name) > 1:
            raise InvalidRequest(f"column {name!r} is there twice", hint="give each column a name of its own")
    return pa.schema(fields)


def updates_schema(columns: pa.Schema) -> pa.Schema:
    """The schema of updates to a collection with these columns."""
    for name in (STEP, DIFF):
        if name in columns.names:
            raise InvalidRequest(f"column {name!r} has a reserved name", hint="give it another one")
    return columns.append(pa.field(STEP, pa.int64(), nullable=False)).append(pa.field(DIFF, pa.int64(), nullable=False))
