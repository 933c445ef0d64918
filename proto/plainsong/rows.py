"""Rows: results as Python values or Arrow, and Python values as rows to insert."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar, TypeAlias, overload

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types

from plainsong.errors import InvalidRequest
from plainsong.types import is_nested, type_name
from reconcile.errors import InvalidRequest as CoreInvalidRequest

#: What can be inserted: dictionaries by column name, tuples in the order of the columns, or Arrow.
Insertable: TypeAlias = "Sequence[Mapping[str, Any]] | Sequence[Sequence[Any]] | pa.Table | pa.RecordBatch"

#: As much as a repr shows: a result may be large, and a terminal is not.
SHOWN_ROWS_MAX, SHOWN_CHARACTERS_MAX = 20, 40


class Row(tuple[Any, ...]):
    """One row: a tuple whose values are also found by column, ``row["qty"]`` or ``row.qty``; ``dict(row)`` works.

    Where two columns have one name, the name means the first.
    """

    __slots__ = ()
    #: Set by ``row_type``, one subclass for each list of columns: a row itself is no larger than a tuple.
    _places: ClassVar[Mapping[str, int]] = {}
    _names: ClassVar[tuple[str, ...]] = ()

    def keys(self) -> tuple[str, ...]:
        return self._names

    def items(self) -> tuple[tuple[str, Any], ...]:
        return tuple(zip(self._names, self, strict=True))

    def as_dict(self) -> dict[str, Any]:
        return {name: self[place] for name, place in self._places.items()}

    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, str):
            return tuple.__getitem__(self, key)
        if (place := self._places.get(key)) is None:
            raise KeyError(f"there is no column {key!r}, only {', '.join(self._names)}")
        return tuple.__getitem__(self, place)

    def __getattr__(self, name: str) -> Any:
        if (place := self._places.get(name)) is None:
            raise AttributeError(f"there is no column {name!r}, only {', '.join(self._names)}")
        return tuple.__getitem__(self, place)

    def __repr__(self) -> str:
        return f"Row({', '.join(f'{name}={value!r}' for name, value in self.items())})"

    def __reduce__(self) -> tuple[Any, ...]:
        return make_row, (self._names, tuple(self))


@lru_cache(maxsize=256)
def row_type(names: tuple[str, ...]) -> type[Row]:
    """The type of rows with these columns."""
    places: dict[str, int] = {}
    for place, name in enumerate(names):
        places.setdefault(name, place)
    return type("Row", (Row,), {"__slots__": (), "_places": places, "_names": names})


def make_row(names: tuple[str, ...], values: tuple[Any, ...]) -> Row:
    return row_type(names)(values)


def python_rows(table: pa.Table) -> Iterator[Row]:
    """The rows of an Arrow table, as Python values."""
    if not table.num_columns:
        return
    make = row_type(tuple(table.column_names))
    for batch in table.to_batches():
        for values in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            yield make(values)


class Rows(Sequence[Row]):
    """What a read gave, and at which step it was true.

    Iterates over ``Row``\\ s; ``to_arrow()`` gives the same without a copy.
    """

    __slots__ = ("_rows", "_table", "step")

    def __init__(self, table: pa.Table, step: int) -> None:
        self._table = table
        self._rows: list[Row] | None = None
        #: Everything that happened through this step is in it, and nothing later.
        self.step = step

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self._table.column_names)

    def to_arrow(self) -> pa.Table:
        return self._table

    def one(self) -> Row:
        """The only row; raises ``InvalidRequest`` if there are more or none."""
        if len(self) != 1:
            raise InvalidRequest(f"there are {len(self)} rows, not one")
        return self[0]

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self._all())

    @overload
    def __getitem__(self, place: int) -> Row: ...
    @overload
    def __getitem__(self, place: slice) -> list[Row]: ...
    def __getitem__(self, place: int | slice) -> Row | list[Row]:
        return self._all()[place]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Rows):
            return NotImplemented
        return self.step == other.step and bool(self._table.equals(other._table))

    __hash__ = None  # type: ignore[assignment]  # compared by contents, which nobody should hash

    def __repr__(self) -> str:
        return _drawn(self.columns, self._table, self.step)

    def _all(self) -> list[Row]:
        if self._rows is None:
            self._rows = list(python_rows(self._table))
        return self._rows


def _drawn(names: tuple[str, ...], table: pa.Table, step: int) -> str:
    shown = [[_cell(value) for value in row] for row in python_rows(table.slice(0, SHOWN_ROWS_MAX))]
    widths = [max(len(_cell(name)), *(len(row[i]) for row in shown), 1) for i, name in enumerate(names)]
    rule = "-+-".join("-" * width for width in widths)
    lines = [" | ".join(_cell(name).ljust(width) for name, width in zip(names, widths, strict=True)).rstrip(), rule]
    lines += [" | ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in shown]
    count = int(table.num_rows)
    more = f", {count - len(shown)} not shown" if count > len(shown) else ""
    return "\n".join([*lines, f"({count} row{'s' if count != 1 else ''} at step {step}{more})"])


def _cell(value: object) -> str:
    text = "NULL" if value is None else value if isinstance(value, str) else str(value)
    text = "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)
    return text if len(text) <= SHOWN_CHARACTERS_MAX else text[: SHOWN_CHARACTERS_MAX - 3] + "..."


# --- rows to insert ---


def need_columns(rows: Insertable) -> bool:
    """Whether ``rows`` do not say themselves to which columns their values belong."""
    if isinstance(rows, pa.Table | pa.RecordBatch) or not rows:
        return False
    return not isinstance(rows[0], Mapping | Row) and not hasattr(rows[0], "_fields")


def insertable(rows: Insertable, columns: Sequence[str] | None = None) -> pa.Table:
    """``rows`` as an Arrow table; raises ``InvalidRequest`` that names the column at fault."""
    if isinstance(rows, pa.RecordBatch):
        return pa.Table.from_batches([rows])
    if isinstance(rows, pa.Table):
        return rows
    if not rows:
        raise InvalidRequest("there are no rows to insert", hint="give at least one")
    names = list(columns) if columns is not None else _names(rows)
    if len(set(names)) != len(names):
        raise InvalidRequest("a column is named twice", detail=", ".join(names))
    values = [_values(row, names, number) for number, row in enumerate(rows, start=1)]
    return pa.table({name: _array(name, [row[i] for row in values]) for i, name in enumerate(names)})


def _names(rows: Sequence[Any]) -> list[str]:
    """The columns that the rows themselves name; those of dictionaries in the order in which they first appear."""
    if need_columns(rows):
        raise InvalidRequest("tuples do not say to which columns they belong", hint="give columns=[...]")
    if hasattr(rows[0], "_fields"):
        return list(rows[0]._fields)
    return list(dict.fromkeys(name for row in rows if isinstance(row, Mapping | Row) for name in row.keys()))  # noqa: SIM118  # a Row iterates over its values


def _values(row: Any, names: Sequence[str], number: int) -> Sequence[Any]:
    if isinstance(row, Row):
        row = row.as_dict()
    if isinstance(row, Mapping):
        if stray := [str(name) for name in row if name not in names]:
            raise InvalidRequest(f"row {number} has unknown columns", detail=", ".join(stray))
        return [row.get(name) for name in names]
    if isinstance(row, str | bytes) or not isinstance(row, Sequence) or len(row) != len(names):
        raise InvalidRequest(
            f"row {number} does not fit the columns",
            detail=f"there are {len(names)} of them: {', '.join(names)}",
            hint="each row must be a dictionary, or a tuple with a value for each column",
        )
    return row


def _array(name: str, values: Iterable[Any]) -> pa.Array:
    try:
        array = pa.array(values)
        if pa.types.is_null(array.type):
            # No type crosses the wire that has no values; the table's own type replaces this one anyway.
            return array.cast(pa.string())
        if pa.types.is_timestamp(array.type):
            return array.cast(pa.timestamp("us", tz="UTC"))
        if is_nested(name_of := type_name(array.type)):
            raise CoreInvalidRequest(f"type {name_of} has no place in a table", hint="make a column of each part")
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise InvalidRequest(
            f"the values of column {name!r} have no common type",
            detail=(str(error).splitlines() or [""])[0],
            hint="a column holds values of one type, and None",
        ) from error
    except CoreInvalidRequest as error:
        raise InvalidRequest(f"column {name!r}: {error.message}", hint=error.hint) from error
    return array
