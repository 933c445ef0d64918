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

#: How deep arrays, maps and structs may stand in one another.
NESTING_MAX = 16
_NESTED = re.compile(r"(array|map|struct)\s*<(.*)>", re.ASCII | re.DOTALL | re.IGNORECASE)
_PLAIN_FIELD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_FIELD = re.compile(r"(?:`((?:[^`]|``)+)`|([^\s:`<>,()]+))(?:\s*:\s*|\s+)(\S.*)", re.DOTALL)


def is_nested(name: str) -> bool:
    """Whether a type has types in it."""
    return _NESTED.fullmatch(name.strip()) is not None


def arrow_type(name: str) -> pa.DataType:
    """The Arrow type of the Spark SQL type ``name``, in any case of letters and under any name Spark has for it.

    What is in an array, a map or a struct may be null, except the keys of a map.
    """
    return _arrow_type(name, NESTING_MAX)


def array_of(element: str) -> str:
    return f"array<{element}>"


def map_of(key: str, value: str) -> str:
    return f"map<{key},{value}>"


def struct_of(fields: Iterable[tuple[str, str]]) -> str:
    """The name of a struct; names of fields that are not plain words stand in backticks."""
    return f"struct<{','.join(f'{_field_name(name)}:{type}' for name, type in fields)}>"


def element_type(name: str) -> str | None:
    """What an array holds, if the type is one."""
    kind, parts = nested_parts(name)
    return parts[0][1] if kind == "array" else None


def map_types(name: str) -> tuple[str, str] | None:
    """Key and value of a map, if the type is one."""
    kind, parts = nested_parts(name)
    return (parts[0][1], parts[1][1]) if kind == "map" else None


def struct_fields(name: str) -> tuple[tuple[str, str], ...] | None:
    """The fields of a struct with their types, if the type is one."""
    kind, parts = nested_parts(name)
    return parts if kind == "struct" else None


def nested_parts(name: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """``array``, ``map`` or ``struct`` with the types inside by their names; an empty kind if there are none."""
    if (nested := _NESTED.fullmatch(name.strip())) is None:
        return "", ()
    kind, inside = nested[1].lower(), _split(nested[2])
    if kind == "struct":
        fields = [_FIELD.fullmatch(part.strip()) for part in inside if part.strip() or len(inside) > 1]
        if not all(fields):
            return "", ()
        return kind, tuple(
            ((field[1].replace("``", "`") if field[1] else field[2]), field[3].strip()) for field in fields if field
        )
    wanted = ("element",) if kind == "array" else ("key", "value")
    if len(inside) != len(wanted) or not all(part.strip() for part in inside):
        return "", ()
    return kind, tuple(zip(wanted, (part.strip() for part in inside), strict=True))


def _field_name(name: str) -> str:
    return name if _PLAIN_FIELD.fullmatch(name) else "`" + name.replace("`", "``") + "`"


def _split(text: str) -> list[str]:
    """The parts between the commas that stand in no brackets and no backticks."""
    parts, depth, quoted = [""], 0, False
    for character in text:
        quoted ^= character == "`"
        if not quoted:
            depth += (character in "<(") - (character in ">)")
        if character == "," and depth == 0 and not quoted:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def _arrow_type(name: str, depth: int) -> pa.DataType:
    if is_nested(name):
        return _nested_arrow_type(name, depth)
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


def _nested_arrow_type(name: str, depth: int) -> pa.DataType:
    kind, parts = nested_parts(name)
    if not kind:
        raise InvalidRequest(f"type {name!r} is unknown", hint="as in array<int>, map<string,int> or struct<a:int>")
    if depth == 0:
        raise InvalidRequest(f"type {name!r} is nested too deeply", hint=f"at most {NESTING_MAX} deep")
    inner = [(field, _arrow_type(type, depth - 1)) for field, type in parts]
    match kind:
        case "array":
            return pa.list_(pa.field("element", inner[0][1]))
        case "map":
            return pa.map_(inner[0][1], inner[1][1])
        case _:
            return pa.struct(inner)


def type_name(type: pa.DataType) -> str:
    """The name of an Arrow type that ``arrow_type`` gives; ``arrow_type(type_name(t)) == t``.

    Nested types have the names that Spark prints; whether what is in them may be null is not part of a name.
    """
    if (name := _NAMES.get(type)) is not None:
        return name
    if pa.types.is_decimal128(type) and 0 <= type.scale <= type.precision:
        return f"decimal({type.precision},{type.scale})"
    if pa.types.is_list(type):
        return array_of(type_name(type.value_type))
    if pa.types.is_map(type):
        return map_of(type_name(type.key_type), type_name(type.item_type))
    if pa.types.is_struct(type):
        return struct_of((type.field(place).name, type_name(type.field(place).type)) for place in range(len(type)))
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
