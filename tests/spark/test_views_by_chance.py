"""V1 by chance: random schemas, histories, batches and queries; a view is Spark's own answer at every step.

Each example is one seed: random tables with a random history, and some random queries over them, all maintained at
once. ``PLAINSONG_SEEDS=from:to`` runs others than the usual ones. The message of a failure holds everything to run
that example alone.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from random import Random

import pytest

from controller.sql import CompiledQuery, compile_query
from instance.spark.session import SparkHost
from reconcile.errors import InvalidRequest
from tests.spark.oracle import (
    Answers,
    History,
    answers_of_spark,
    difference,
    maintained,
    needs_spark,
    output_format,
)
from tests.spark.random_queries import Maker
from tests.spark.random_tables import catalog, random_history, random_tables
from tests.spark.shape_tables import shape_history
from tests.sql.shapes import SHAPE_TABLES, SHAPES

QUERIES = 5
#: In the default suite, and in the full one.
_FEW, _MANY = 1, 120
#: So many groups the shapes are taken in; the full suite takes each group twice, the default one has its own test.
_PARTS = 20
_SHAPE_SEEDS = 2 * _PARTS


def _seeds(few: int, many: int) -> list[object]:
    if given := os.environ.get("PLAINSONG_SEEDS"):
        first, _, last = given.partition(":")
        return list(range(int(first), int(last)))
    return [pytest.param(seed, marks=() if seed < few else pytest.mark.heavy) for seed in range(many)]


#: The text and plan of each view, by name.
Views = Mapping[str, tuple[str, CompiledQuery]]


def random_example(random: Random) -> tuple[History, Views]:
    """A history, and queries that are not refused."""
    tables = random_tables(random)
    steps = random.randint(3, 6)
    changes = {table.name: random_history(random, table, steps) for table in tables}
    history = History(tables=tables, changes=changes, steps=steps, begin=random.randint(0, 2))
    views: dict[str, tuple[str, CompiledQuery]] = {}
    while len(views) < QUERIES:
        query = Maker(random, tables).query()
        try:
            views[query.sql] = (query.sql, compile_query(query.sql, catalog(tables), allow_order=False))
        except InvalidRequest as refused:
            # Lists of numbers of two sizes are not made one by themselves; nothing else that is made here is refused.
            if "do not go together" not in refused.message:
                raise
    return history, views


def compared(history: History, ours: Mapping[str, Answers | str], spark: Mapping[str, Answers | str]) -> list[str]:
    """What is wrong, view by view."""
    wrong = []
    for sql, theirs in spark.items():
        mine = ours[sql]
        if isinstance(theirs, str):
            # Both may fail: whether a value that overflows is computed at all is for each to decide.
            if not isinstance(mine, str):
                wrong.append(f"Spark refuses what is maintained: {theirs}\n{sql}")
        elif isinstance(mine, str):
            wrong.append(f"the view failed: {mine}\n{sql}")
        elif found := difference(mine, theirs):
            wrong.append(f"{found}\n{sql}")
    if wrong:
        wrong += [f"{table.name}: {table.columns}: {history.changes[table.name]}" for table in history.tables]
    return wrong


async def checked(spark: SparkHost, scratch: Path, history: History, views: Views, random: Random) -> list[str]:
    """What is wrong with these views, on Spark and, where they need none, without it."""
    queries = {name: (sql, output_format(compiled)) for name, (sql, compiled) in views.items()}
    plans = {name: compiled for name, (_, compiled) in views.items()}
    in_process = {name: compiled for name, compiled in plans.items() if not needs_spark(compiled)}

    theirs = await spark.run(lambda session: answers_of_spark(session, history, queries))
    ours = await maintained(history, plans, random, spark, scratch)
    arrow = await maintained(history, in_process, random, None, scratch)

    wrong = compared(history, ours, theirs)
    return wrong + compared(history, arrow, {name: theirs[name] for name in in_process})


@pytest.mark.parametrize("seed", _seeds(_FEW, _MANY))
@pytest.mark.asyncio
async def test_any_view_is_what_spark_answers_at_every_step(spark: SparkHost, tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    history, views = random_example(random)

    wrong = await checked(spark, tmp_path, history, views, random)

    assert not wrong, "\n\n".join(wrong)


@pytest.mark.parametrize("seed", _seeds(0, _SHAPE_SEEDS))
@pytest.mark.asyncio
async def test_each_shape_is_what_spark_answers_whatever_happens(spark: SparkHost, tmp_path: Path, seed: int) -> None:
    """Some shapes at a time; as many seeds as there are parts have them all."""
    random = Random(seed)
    shapes = [shape for place, shape in enumerate(SHAPES) if place % _PARTS == seed % _PARTS]
    views = {name: (SHAPES[name], compile_query(SHAPES[name], SHAPE_TABLES, allow_order=False)) for name in shapes}

    wrong = await checked(spark, tmp_path, shape_history(random, shapes), views, random)

    assert not wrong, "\n\n".join(wrong)
