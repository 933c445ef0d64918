"""Random schemas and what happens to their tables: rows with nulls and duplicates that come, change and go."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types

from controller.sql import Column, Relation
from instance.memory.rows import Row, RowFormat, declared_format, values_of
from reconcile.ids import GlobalId
from tests.sql.tables import Tables

#: Few different values of each type, so that rows meet; values that are easy to get wrong among them. Sums of the
#: fractions are exact, so that Spark's own answer does not depend on the order in which it adds.
VALUES: Mapping[str, Sequence[Any]] = {
    "boolean": [True, False],
    "tinyint": [-2, 0, 1, 3, 7],
    "smallint": [-2, 0, 1, 3, 300],
    "int": [-2, 0, 1, 2, 3, 7],
    "bigint": [-2, 0, 1, 2, 3, 5_000_000_000],
    "float": [0.0, -0.0, 0.5, 1.5, -2.25],
    "double": [0.0, -0.0, 0.5, 1.5, -2.25, 1024.125, float("nan"), float("inf")],
    "decimal(10,2)": [Decimal("0.10"), Decimal("0.00"), Decimal("-3.25"), Decimal("99999.99")],
    "decimal(20,4)": [Decimal("0.1000"), Decimal("1.0000"), Decimal("-3.2501")],
    "decimal(38,10)": [Decimal("0.1000000000"), Decimal("7.0000000001")],
    "string": ["", "x", "y", "zz", "é", "X "],
    "binary": [b"", b"x", b"\x00\xff"],
    "date": [date(2026, 2, 28), date(1970, 1, 1), date(1969, 12, 31), date(2024, 2, 29)],
    "timestamp": [
        datetime(2026, 1, 1, tzinfo=UTC),
        datetime(1969, 12, 31, 23, 59, 59, 5, tzinfo=UTC),
        datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
    ],
    "array<int>": [[], [1], [3, None, 1], [1, 1]],
    "array<string>": [[], ["x", "y"], [None]],
    "struct<x:int,y:string>": [{"x": 1, "y": "a"}, {"x": None, "y": None}, {"x": 1, "y": "b"}],
    "struct<n:struct<v:decimal(10,2)>,w:double>": [
        {"n": {"v": Decimal("1.50")}, "w": 0.5},
        {"n": None, "w": -0.0},
        {"n": {"v": None}, "w": 0.0},
    ],
    "array<struct<x:int,y:string>>": [[], [{"x": 1, "y": None}, {"x": 2, "y": "b"}]],
    "map<string,int>": [[], [("a", 1)], [("b", None), ("a", 2)]],
}
#: Every table has a column of these, so that there is something to join, group and filter by.
_COMMON = ("int", "string")
_NULLS = 0.18


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomTable:
    """A table and what it may hold."""

    name: str
    id: GlobalId
    columns: tuple[Column, ...]

    @property
    def format(self) -> RowFormat:
        return declared_format(tuple((column.name, column.type) for column in self.columns))

    def row(self, random: Random, values: Mapping[str, Sequence[Any]] = VALUES) -> Row:
        found = []
        for column, type in zip(self.columns, self.format.types, strict=True):
            null = column.nullable and random.random() < _NULLS
            value = None if null else random.choice(values.get(column.type, VALUES[column.type]))
            found.append(values_of(pa.array([value], type))[0])
        return tuple(found)

    def changed(self, random: Random, row: Row, values: Mapping[str, Sequence[Any]] = VALUES) -> Row:
        """The same row with another value in one or two of its columns."""
        other = self.row(random, values)
        places = {random.randrange(len(row)) for _ in range(2)}
        return tuple(other[place] if place in places else value for place, value in enumerate(row))


def random_tables(random: Random) -> list[RandomTable]:
    """Two or three tables with some columns of any type; some of their names are the same."""
    found = []
    for place in range(random.choice([2, 2, 3])):
        types = [*_COMMON, *random.sample(sorted(VALUES), random.randint(2, 5))]
        columns = tuple(
            Column(name=f"c{number}" if random.random() < 0.5 else f"{'rst'[place]}{number}", type=type, nullable=nulls)
            for number, type in enumerate(types)
            for nulls in [random.random() < 0.75]
        )
        found.append(RandomTable(name="rst"[place], id=GlobalId("s", place + 1), columns=columns))
    return found


def catalog(tables: Sequence[RandomTable]) -> Tables:
    return Tables({table.name: Relation(id=table.id, columns=table.columns) for table in tables})


#: For each step, what is added and what is taken away.
Step = tuple[list[Row], list[Row]]


def random_history(
    random: Random, table: RandomTable, steps: int, values: Mapping[str, Sequence[Any]] = VALUES
) -> list[Step]:
    """Begins with some rows or none; then rows are inserted, some of them again, changed and deleted."""
    there: list[Row] = []
    found: list[Step] = []
    for step in range(steps):
        added: list[Row] = []
        gone: list[Row] = []
        if random.random() < 0.05:
            gone, there = there, []
        for _ in range(random.choice([0, 1, 2, 3]) if step else 0):
            if there and random.random() < 0.6:
                gone.append(there.pop(random.randrange(len(there))))
                if random.random() < 0.5:
                    added.append(table.changed(random, gone[-1], values))
        fresh = random.choice([0, 6, 9]) if step == 0 else random.choice([0, 0, 1, 2, 4])
        added += [table.row(random, values) for _ in range(fresh)]
        added += [random.choice([*there, *added]) for _ in range(random.choice([0, 0, 1, 3])) if there or added]
        there += added
        found.append((added, gone))
    return found


def contents(history: Sequence[Step], at: int) -> Counter[Row]:
    found: Counter[Row] = Counter()
    for added, gone in history[: at + 1]:
        found.update(added)
        found.subtract(gone)
    assert all(count >= 0 for count in found.values())
    return +found
