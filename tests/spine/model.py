"""The dumb model of a spine: every row with all its changes."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types

from instance.spine.hashing import Hashes, Hashing, row_hashes
from instance.spine.merging import Merge
from instance.spine.sizes import Sizes
from instance.spine.spine import Spine
from plainsong.types import DIFF, STEP, updates_schema

Row: TypeAlias = tuple[Any, ...]
Update: TypeAlias = tuple[Row, int, int]

#: Everything that happens to large runs happens to these few rows.
SMALL = Sizes(at_once_rows=4, file_rows=6, piece_rows=3, part_rows=3, parts_max=4)


def frozen(value: Any) -> Any:
    """The value as Python compares it as Spark SQL groups."""
    match value:
        case float():
            return "NaN" if math.isnan(value) else value + 0.0
        case list() | tuple():
            return tuple(frozen(each) for each in value)
        case dict():
            return tuple((name, frozen(each)) for name, each in value.items())
        case _:
            return value


def table_of(schema: pa.Schema, updates: Sequence[Update]) -> pa.Table:
    columns = [[row[place] for row, _, _ in updates] for place in range(len(schema))]
    columns += [[step for _, step, _ in updates], [diff for _, _, diff in updates]]
    whole = updates_schema(schema)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, whole, strict=True)]
    return pa.Table.from_arrays(arrays, schema=whole)


def keys_of(schema: pa.Schema, key: Sequence[str], rows: Iterable[Row]) -> pa.Table:
    """The key columns of rows, as often as there are rows."""
    chosen = list(rows)
    places = [schema.get_field_index(name) for name in key or schema.names]
    arrays = [pa.array([row[place] for row in chosen], schema.field(place).type) for place in places]
    return pa.Table.from_arrays(arrays, schema=pa.schema([schema.field(place) for place in places]))


def counted(tables: pa.Table | Iterable[pa.Table]) -> dict[Row, int]:
    """Rows and their counts; fails if a row is there twice or not at all."""
    found: dict[Row, int] = {}
    for table in [tables] if isinstance(tables, pa.Table) else tables:
        assert DIFF in table.column_names
        for *row, diff in _rows(table):
            assert diff
            assert frozen(row) not in found
            found[frozen(row)] = diff
    return found


def stepped(table: pa.Table) -> dict[tuple[Row, int], int]:
    """Rows with steps and the changes there; fails if one is there twice or is none."""
    assert table.column_names[-2:] == [STEP, DIFF]
    found: dict[tuple[Row, int], int] = {}
    for *row, step, diff in _rows(table):
        assert diff
        assert (frozen(row), step) not in found
        found[frozen(row), step] = diff
    return found


def _rows(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    return zip(*[column.to_pylist() for column in table.columns], strict=True)


class Model:
    """Rows with their changes, never folded."""

    def __init__(self, places: Sequence[int]) -> None:
        #: Of the key columns.
        self.places = places
        self.updates: dict[Row, list[tuple[int, int]]] = defaultdict(list)

    def insert(self, updates: Iterable[Update]) -> None:
        for row, step, diff in updates:
            self.updates[frozen(row)].append((step, diff))

    def key(self, row: Row) -> Row:
        return tuple(frozen(row[place]) for place in self.places)

    def contents(self, at: int | None, keys: set[Row] | None = None) -> dict[Row, int]:
        found = {}
        for row, changes in self.updates.items():
            count = sum(diff for step, diff in changes if at is None or step <= at)
            if count and (keys is None or self.key(row) in keys):
                found[row] = count
        return found

    def history(self, lower: int, keys: set[Row] | None = None) -> dict[tuple[Row, int], int]:
        """Contents at ``lower`` and every change after it."""
        found: dict[tuple[Row, int], int] = defaultdict(int)
        for row, changes in self.updates.items():
            if keys is None or self.key(row) in keys:
                for step, diff in changes:
                    found[row, max(step, lower)] += diff
        return {place: diff for place, diff in found.items() if diff}


def merge_all(spine: Spine) -> None:
    """Merges whatever is due, one after the other."""
    while (merge := spine.merge_due()) is not None:
        spine.install(merge, merge.run())


def save(spine: Spine) -> list[Merge]:
    """Brings everything to files, as before a manifest."""
    merges = []
    while (merge := spine.saving()) is not None:
        spine.install(merge, merge.run())
        merges.append(merge)
    return merges


def _masked(mask: int, add: int = 0) -> Hashing:
    def hashing(columns: Sequence[pa.Array], start: Hashes | None) -> Hashes:
        return (row_hashes(columns, start) & np.uint64(mask)) | np.uint64(add)

    return hashing


#: Hash functions from good to useless, by name. The high bits come from the key, the low bits from the row.
HASHINGS: dict[str, Hashing] = {
    "good": row_hashes,
    "two bits": _masked((1 << 63) | 1),
    "keys collide": _masked((1 << 24) - 1),
    "rows collide": _masked(((1 << 40) - 1) << 24),
    "all are zero": _masked(0),
    "all are greatest": _masked(0, (1 << 64) - 1),
}
