"""Small tables of updates, and the dumb model of what a shard holds."""

from collections import Counter

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types

from plainsong.types import schema, updates_schema

COLUMNS = schema([("name", "string"), ("amount", "bigint")])
UPDATES = updates_schema(COLUMNS)

#: name, amount, step, diff
Row = tuple[str | None, int | None, int, int]


def updates(*rows: Row) -> pa.Table:
    return pa.Table.from_arrays(
        [pa.array([row[place] for row in rows], UPDATES.field(place).type) for place in range(4)], schema=UPDATES
    )


def listed(table: pa.Table) -> list[tuple[object, ...]]:
    """Rows in an order of their own: a shard promises none."""
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)


def contents(rows: list[Row], at: int) -> list[tuple[object, ...]]:
    """What a shard with these updates holds at a step, the slow way."""
    counts: Counter[tuple[str | None, int | None]] = Counter()
    for name, amount, step, diff in rows:
        if step <= at:
            counts[name, amount] += diff
    return sorted(((*row, diff) for row, diff in counts.items() if diff), key=repr)
