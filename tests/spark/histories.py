"""Random tables that change: rows with nulls and duplicates, inserted, changed and deleted step by step."""

from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types

from instance.memory.rows import Row, RowFormat, declared_format, values_of
from tests.sql.shapes import SHAPE_TABLES

#: Few different values of each type, so that rows meet; values that are easy to get wrong among them.
_VALUES: dict[str, list[Any]] = {
    "int": [-2, 0, 1, 2, 3, 7],
    "bigint": [-2, 0, 1, 2, 3, 7],
    "string": ["", "x", "y", "zz", "é"],
    "double": [0.0, -0.0, 0.1, 1.5, float("nan"), float("inf"), 1e17],
    "decimal(10,2)": [Decimal("0.10"), Decimal("-3.25"), Decimal("99999.99")],
    "timestamp": [datetime(2026, 1, 1, tzinfo=UTC), datetime(1969, 12, 31, 23, 59, 59, 5, tzinfo=UTC)],
    "date": [date(2026, 2, 28), date(1970, 1, 1)],
    "array<int>": [[], [1], [3, None, 1]],
    "struct<x:int,y:string>": [{"x": 1, "y": "a"}, {"x": None, "y": None}],
    "map<string,int>": [[], [("a", 1)], [("b", None), ("a", 2)]],
}


#: Shapes that refuse some of these values as Spark does, with those that they take: what overflows fails the view.
TAKEN: dict[str, dict[str, list[Any]]] = {
    "numbers": {"double": [0.0, -0.0, 0.1, 1.5, -7.25, 1e9]},
    "decimals": {"decimal(10,2)": [Decimal("0.10"), Decimal("-3.25"), Decimal("999.99")]},
}


def formats() -> dict[str, RowFormat]:
    """The columns of the tables of the shapes."""
    found = {}
    for name in SHAPE_TABLES.names():
        relation = SHAPE_TABLES.resolve(name)
        assert relation is not None
        found[name] = declared_format(tuple((column.name, column.type) for column in relation.columns))
    return found


def row(random: Random, table: str, taken: dict[str, list[Any]]) -> Row:
    relation = SHAPE_TABLES.resolve(table)
    assert relation is not None
    format = formats()[table]
    values = []
    for column, type in zip(relation.columns, format.types, strict=True):
        null = column.nullable and random.random() < 0.15
        value = None if null else random.choice(taken.get(column.type, _VALUES[column.type]))
        values.append(values_of(pa.array([value], type))[0])
    return tuple(values)


#: For each step, what is added and what is taken away.
Step = tuple[list[Row], list[Row]]


def history(random: Random, table: str, steps: int, shape: str) -> list[Step]:
    """Begins with some rows; later steps add a few, duplicates among them, and take a few away."""
    there: list[Row] = []
    found = list[Step]()
    for step in range(steps):
        gone = [there.pop(random.randrange(len(there))) for _ in range(random.choice([0, 1, 2])) if there]
        added = [row(random, table, TAKEN.get(shape, {})) for _ in range(8 if step == 0 else random.choice([0, 1, 2]))]
        added += [random.choice(there) for _ in range(random.choice([0, 0, 1])) if there]
        there += added
        found.append((added, gone))
    return found


def contents(history: list[Step], at: int) -> Counter[Row]:
    found: Counter[Row] = Counter()
    for added, gone in history[: at + 1]:
        found.update(added)
        found.subtract(gone)
    return +found
