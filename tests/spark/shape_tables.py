"""The tables of the shapes with random histories, and which values each shape takes."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from random import Random
from typing import Any

from tests.spark.oracle import History
from tests.spark.random_tables import VALUES, RandomTable, random_history
from tests.sql.shapes import IDS, SHAPE_TABLES

#: Shapes that refuse some values as Spark does, with those that they take: what overflows fails the view.
TAKEN: Mapping[str, Mapping[str, Sequence[Any]]] = {
    "numbers": {"double": [0.0, -0.0, 0.5, 1.5, -7.25, 1e9]},
    "decimals": {"decimal(10,2)": [Decimal("0.10"), Decimal("-3.25"), Decimal("999.99")]},
}


def shape_tables() -> list[RandomTable]:
    found = []
    for name in SHAPE_TABLES.names():
        relation = SHAPE_TABLES.resolve(name)
        assert relation is not None
        found.append(RandomTable(name=name, id=IDS[name], columns=relation.columns))
    return found


def shape_history(random: Random, shapes: Sequence[str], values: Mapping[str, Sequence[Any]] = VALUES) -> History:
    """A history whose values all of these shapes take."""
    tables, steps = shape_tables(), random.randint(3, 6)
    taken = dict(values)
    for shape in shapes:
        taken.update(TAKEN.get(shape, {}))
    changes = {table.name: random_history(random, table, steps, taken) for table in tables}
    return History(tables=tables, changes=changes, steps=steps, begin=random.randint(0, 2))
