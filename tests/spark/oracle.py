"""The oracle of V1: maintained views beside what Spark itself answers over the contents of every step."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types
from pyspark.sql import SparkSession

from controller.sql import CompiledQuery
from controller.sql.strategies import nodes
from instance.memory.rows import Row, RowFormat, declared_format
from instance.spark.rendering import spark_rules
from instance.spark.session import SparkHost
from plainsong.types import type_name
from reconcile.dataflow import Index
from reconcile.ids import GlobalId
from tests.memory.collections import Collections
from tests.memory.harness import Running, running
from tests.spark.random_tables import RandomTable, Step, contents

#: Contents of a view, by step.
Answers = dict[int, Counter[Row]]

_numbers = count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What happens to some tables in ``steps`` steps; views begin at ``begin``."""

    tables: Sequence[RandomTable]
    changes: Mapping[str, Sequence[Step]]
    steps: int
    begin: int

    def contents(self, name: str, at: int) -> Counter[Row]:
        return contents(self.changes[name], at)


def output_format(compiled: CompiledQuery) -> RowFormat:
    return declared_format(tuple((column.name, column.type) for column in compiled.columns))


def needs_spark(compiled: CompiledQuery) -> bool:
    return any(node.op in ("sql", "sql_linear") for node in nodes(compiled.plan))


# --- what Spark answers ------------------------------------------------------------------------------------


def answers_of_spark(
    session: SparkSession, history: History, queries: Mapping[str, tuple[str, RowFormat]]
) -> dict[str, Answers | str]:
    """For each query its answer at each step, or the error with which Spark refuses it at one of them."""
    prefix = f"oracle_{next(_numbers)}"
    views = list[str]()
    for table in history.tables:
        for at in range(history.begin, history.steps):
            rows = list(history.contents(table.name, at).elements())
            frame = pa.table(table.format.arrays(rows), schema=table.format.schema)
            views.append(f"{prefix}_{table.name}_{at}")
            session.createDataFrame(frame).coalesce(1).createOrReplaceTempView(views[-1])
    try:
        return {name: _answers(session, history, prefix, sql, format) for name, (sql, format) in queries.items()}
    finally:
        for view in views:
            session.catalog.dropTempView(view)


def _answers(session: SparkSession, history: History, prefix: str, sql: str, format: RowFormat) -> Answers | str:
    """In one query for all steps: each costs as much as its rows. The tables are common table expressions."""
    parts = []
    for at in range(history.begin, history.steps):
        given = ", ".join(f"{table.name} AS (SELECT * FROM {prefix}_{table.name}_{at})" for table in history.tables)
        parts.append(f"(WITH {given} SELECT CAST({at} AS BIGINT) AS _at, * FROM ({sql}))")
    try:
        frame = session.sql(" UNION ALL ".join(parts))
        found = frame.coalesce(1).toArrow()
    except Exception as error:  # what it says is compared, not handled
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"
    types = [field.dataType.simpleString() for field in frame.schema][1:]
    declared = [type_name(type) for type in format.types]
    if types != declared:
        return f"other types: Spark has {types}, declared are {declared}"
    steps = found.column(0).to_pylist()
    plain = found.select(range(1, found.num_columns)).rename_columns(list(format.names)).cast(format.schema)
    answers: Answers = {at: Counter() for at in range(history.begin, history.steps)}
    columns = [column.combine_chunks() for column in plain.columns]
    for at, row in zip(steps, format.rows(columns, plain.num_rows), strict=True):
        answers[at][row] += 1
    return answers


def rounded(rows: Counter[Row]) -> Counter[Row]:
    """Spark's own averages and deviations depend on the order in which it adds; the last digits do not count."""
    found: Counter[Row] = Counter()
    for row, times in rows.items():
        found[tuple(map(_rounded, row))] += times
    return found


def _rounded(value: Any) -> Any:
    """The NaN of rows stays the same object: no other equals it."""
    if isinstance(value, tuple):
        return tuple(map(_rounded, value))
    return float(f"{value:.11g}") if isinstance(value, float) and value == value else value


# --- what is maintained ------------------------------------------------------------------------------------


async def maintained(
    history: History, views: Mapping[str, CompiledQuery], random: Random, spark: SparkHost | None, scratch: Path
) -> dict[str, Answers | str]:
    """For each view its contents at each step, or the error with which it failed.

    Steps become due in batches of any size, on some tables earlier than on others; rows come in any order.
    """
    collections = Collections()
    for table in history.tables:
        columns = [(column.name, column.type) for column in table.columns]
        collection = collections.create(str(table.id), columns)
        for step, (added, gone) in enumerate(history.changes[table.name]):
            updates = [(row, 1) for row in added] + [(row, -1) for row in gone]
            random.shuffle(updates)
            for row, diff in updates:
                collection.append(step, row, diff=diff)
        collection.advance(random.randint(0, history.begin + 1))
    async with running(collections, spark_rules(spark, scratch, scratch) if spark is not None else {}) as it:
        ids = {name: f"u{100 + place}" for place, name in enumerate(views)}
        for name, compiled in views.items():
            imports = tuple(str(id) for id in compiled.reads)
            it.render(
                Index(id=GlobalId.parse(ids[name])),
                objects={ids[name]: compiled.plan},
                imports=imports,
                as_of=history.begin,
            )
        while any(collections[str(table.id)].upper.step != history.steps for table in history.tables):
            _advance(history, collections, random)
            await _caught_up(it, history, collections, views, ids)
        return {name: await _contents(it, history, ids[name]) for name in views}


def _advance(history: History, collections: Collections, random: Random) -> None:
    for table in history.tables:
        collection = collections[str(table.id)]
        reached = collection.upper.step
        if reached is not None and reached < history.steps and random.random() < 0.7:
            collection.advance(random.randint(reached + 1, history.steps))


async def _caught_up(
    it: Running, history: History, collections: Collections, views: Mapping[str, CompiledQuery], ids: Mapping[str, str]
) -> None:
    """Until each view has done what it can."""
    for name, compiled in views.items():
        uppers = [collections[str(id)].upper.step or 0 for id in compiled.reads]
        upper = min([*uppers, history.steps])
        if upper > history.begin:
            await it.until(partial(_reached, it, GlobalId.parse(ids[name]), upper))


def _reached(it: Running, id: GlobalId, wanted: int) -> bool:
    upper = it.uppers.get(id)
    return id in it.errors or (upper is not None and (upper.step is None or upper.step >= wanted))


async def _contents(it: Running, history: History, id: str) -> Answers | str:
    if GlobalId.parse(id) in it.errors:
        return it.errors[GlobalId.parse(id)]
    return {at: await it.peek(id, at) for at in range(history.begin, history.steps)}


def difference(ours: Answers, theirs: Answers) -> str:
    """Where two views differ first; empty if they are the same."""
    for at in theirs:
        mine, spark = rounded(ours[at]), rounded(theirs[at])
        if mine != spark:
            return f"at step {at} only ours: {dict(mine - spark)}; only Spark's: {dict(spark - mine)}"
    return ""
