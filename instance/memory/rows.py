"""Rows in process: tuples of plain values, and how they come from Arrow and go back.

A value is what Python compares and hashes as Spark SQL groups: dates are days and timestamps microseconds since
1970, every NaN is the same object and negative zero is zero. So two rows are the same row exactly when their tuples
are equal, whichever replica made them.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Any, TypeAlias

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types

from plainsong.types import DIFF, STEP, arrow_type, type_name
from reconcile.errors import InvalidRequest

#: bool, int, float, Decimal, str, bytes, a tuple of values, or None; which one, the column's type says.
Value: TypeAlias = Any
Row: TypeAlias = tuple[Value, ...]

NAN = math.nan
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _plain(array: pa.Array) -> list[Value]:
    return array.to_pylist()  # type: ignore[no-any-return]


def _floats(array: pa.Array) -> list[Value]:
    # Adding zero turns -0.0 into 0.0.
    return [None if value is None else NAN if value != value else value + 0.0 for value in array.to_pylist()]


def _days(array: pa.Array) -> list[Value]:
    return array.view(pa.int32()).to_pylist()  # type: ignore[no-any-return]


def _microseconds(array: pa.Array) -> list[Value]:
    return array.view(pa.int64()).to_pylist()  # type: ignore[no-any-return]


def _nested(type: pa.DataType) -> Callable[[pa.Array], list[Value]]:
    return lambda array: [_frozen(value, type) for value in array.to_pylist()]


def _frozen(value: Any, type: pa.DataType) -> Value:
    """A value inside another one: lists, structs and maps are tuples, so that rows can be compared and hashed."""
    if value is None:
        return None
    if pa.types.is_map(type):
        return tuple((_frozen(key, type.key_type), _frozen(each, type.item_type)) for key, each in value)
    if pa.types.is_struct(type):
        return tuple(_frozen(value[field.name], field.type) for field in type)
    if is_nested(type):
        return tuple(_frozen(each, type.value_type) for each in value)
    if pa.types.is_floating(type):
        return NAN if value != value else value + 0.0
    return value


def _thawed(value: Value, type: pa.DataType) -> Any:
    """The inverse of ``_frozen``, as Arrow takes it."""
    if value is None or not is_nested(type):
        return value
    if pa.types.is_map(type):
        return [(_thawed(key, type.key_type), _thawed(each, type.item_type)) for key, each in value]
    if pa.types.is_struct(type):
        return {field.name: _thawed(each, field.type) for field, each in zip(type, value, strict=True)}
    return [_thawed(each, type.value_type) for each in value]


def is_nested(type: pa.DataType) -> bool:
    return bool(pa.types.is_nested(type))


def decoder(type: pa.DataType) -> Callable[[pa.Array], list[Value]]:
    """Reads the values of an array of ``type``."""
    if pa.types.is_floating(type):
        return _floats
    if pa.types.is_date32(type):
        return _days
    if pa.types.is_timestamp(type):
        return _microseconds
    if is_nested(type):
        return _nested(type)
    return _plain


def values_of(array: pa.Array) -> list[Value]:
    return decoder(array.type)(array)


def to_array(values: Sequence[Value], type: pa.DataType) -> pa.Array:
    """The Arrow array of ``values``; the inverse of ``values_of``."""
    if pa.types.is_date32(type):
        return pa.array(values, pa.int32()).view(type)
    if pa.types.is_timestamp(type):
        return pa.array(values, pa.int64()).view(type)
    if is_nested(type):
        return pa.array([_thawed(value, type) for value in values], type)
    return pa.array(values, type)


class RowFormat:
    """The columns of a collection: names, types, and the way between tuples and Arrow. Same columns, same object."""

    __slots__ = ("_decoders", "empty", "names", "places", "schema", "types", "updates_schema")

    def __init__(self, names: tuple[str, ...], types: tuple[pa.DataType, ...]) -> None:
        for name in names:
            if names.count(name) > 1:
                raise InvalidRequest(f"column {name!r} is there twice", hint="give each column a name of its own")
            if name in (STEP, DIFF):
                raise InvalidRequest(f"column {name!r} has a reserved name", hint="give it another one")
        self.names = names
        self.types = types
        self.places = {name: place for place, name in enumerate(names)}
        fields = [pa.field(name, type) for name, type in zip(names, types, strict=True)]
        timing = [pa.field(STEP, pa.int64(), nullable=False), pa.field(DIFF, pa.int64(), nullable=False)]
        self.schema = pa.schema(fields)
        self.updates_schema = pa.schema([*fields, *timing])
        self.empty = pa.RecordBatch.from_arrays(
            [pa.array([], field.type) for field in self.updates_schema], schema=self.updates_schema
        )
        self._decoders = tuple(decoder(type) for type in types)

    def rows(self, columns: Sequence[pa.Array], count: int) -> list[Row]:
        """The rows whose columns these are."""
        if not columns:
            return [()] * count
        return list(zip(*[decode(column) for decode, column in zip(self._decoders, columns, strict=True)], strict=True))

    def arrays(self, rows: Sequence[Row]) -> list[pa.Array]:
        """The columns of ``rows``; the inverse of ``rows``."""
        return [to_array([row[place] for row in rows], type) for place, type in enumerate(self.types)]

    def __repr__(self) -> str:
        columns = (f"{name} {type_name(type)}" for name, type in zip(self.names, self.types, strict=True))
        return f"<RowFormat {', '.join(columns)}>"


@lru_cache(maxsize=4096)
def row_format(names: tuple[str, ...], types: tuple[pa.DataType, ...]) -> RowFormat:
    return RowFormat(names, types)


@lru_cache(maxsize=4096)
def declared_format(columns: tuple[tuple[str, str], ...]) -> RowFormat:
    """The format of columns given by name and Spark SQL type."""
    return row_format(tuple(name for name, _ in columns), tuple(arrow_type(type) for _, type in columns))


def order_key(type: pa.DataType) -> Callable[[Value], Any]:
    """What to sort non-null values of ``type`` by: their natural order, NaN above every number."""
    if pa.types.is_floating(type):
        return lambda value: (value != value, value if value == value else 0.0)
    return lambda value: value


def row_order(types: Iterable[pa.DataType]) -> Callable[[Row], Any]:
    """What to sort rows by: column after column, null first."""
    keys = [order_key(type) for type in types]
    return lambda row: [
        (False, None) if value is None else (True, key(value)) for key, value in zip(keys, row, strict=True)
    ]


def value_from_plan(value: object, type: pa.DataType) -> Value:
    """The value of ``type`` that a plan names: fractions, dates and timestamps stand in plans as text.

    Raises ``InvalidRequest`` if there is none.
    """
    if value is None:
        return None
    try:
        found = _value_from_plan(value, type)
    except (ValueError, InvalidOperation, OverflowError) as error:
        raise InvalidRequest(f"{value!r} is not a {type_name(type)}") from error
    if found is None:
        raise InvalidRequest(f"{value!r} is not a {type_name(type)}")
    return found


def _value_from_plan(value: object, type: pa.DataType) -> Value:
    match value:
        case bool():
            return value if pa.types.is_boolean(type) else None
        case int() if pa.types.is_integer(type):
            return value
        case int() | str() if pa.types.is_decimal(type):
            return Decimal(value)
        case int() | str() if pa.types.is_floating(type):
            return values_of(pa.array([float(value)], type))[0]
        case str() if pa.types.is_string(type):
            return value
        case bytes() if pa.types.is_binary(type):
            return value
        case str() if pa.types.is_date32(type):
            return (date.fromisoformat(value) - _EPOCH.date()).days
        case str() if pa.types.is_timestamp(type):
            return microseconds(datetime.fromisoformat(value))
        case int() if pa.types.is_date32(type) or pa.types.is_timestamp(type):
            return value
        case str() if pa.types.is_integer(type):
            return int(value)
        case _:
            return None


def microseconds(moment: datetime) -> int:
    """Microseconds since 1970; a moment without a zone is UTC."""
    since = (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)) - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
