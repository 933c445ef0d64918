"""Rows of a shard as Arrow: what may be written, which updates lie where, and what they sum up to."""

from collections.abc import Sequence

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types
import pyarrow.compute as pc  # type: ignore[import-untyped]

from instance.inputs import NotReadable
from plainsong.types import DIFF, STEP, updates_schema
from reconcile.errors import InvalidRequest, InvariantBroken
from reconcile.frontiers import CLOSED, MINIMUM, Antichain
from reconcile.ids import Step


def shard_schema(schema: pa.Schema) -> pa.Schema:
    """The user's columns, then ``_step`` and ``_diff``; a schema that has them already, at its end, is taken as is.

    Every user's column may be null here: whoever knows its declaration refuses nulls, and readers that do not know
    it open the same shard.
    """
    columns = pa.schema([field.with_nullable(True) for field in schema if field.name not in (STEP, DIFF)])
    names = [name.lower() for name in columns.names]
    for name in columns.names:
        if names.count(name.lower()) > 1:
            raise InvalidRequest(f"column {name!r} is there twice", hint="names must differ in more than their case")
    whole = updates_schema(columns)
    if len(schema) != len(columns) and schema.names != whole.names:
        raise InvariantBroken(f"not the schema of a shard: {schema}")
    return whole


def check_extends(id: object, fewer: pa.Schema, more: pa.Schema) -> None:
    """Columns are only ever added, at the end: raises ``InvalidRequest`` if ``more`` does not begin with ``fewer``."""
    wanted = [field for field in more if field.name not in (STEP, DIFF)]
    for place, field in enumerate(one for one in fewer if one.name not in (STEP, DIFF)):
        if place >= len(wanted):
            raise other_columns(id, f"column {field.name!r} is missing")
        other = wanted[place]
        if other.name != field.name:
            raise other_columns(id, f"column {place + 1} is {field.name!r}, asked for was {other.name!r}")
        if not other.type.equals(field.type):
            raise other_columns(id, f"column {field.name!r} is {field.type}, asked for was {other.type}")


def other_columns(id: object, detail: str) -> InvalidRequest:
    return InvalidRequest(f"shard {id} has other columns", detail=detail, hint="columns can only be added, at the end")


def widened(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """``table`` with exactly ``schema``; a column that it lacks was added later, and is null."""
    if table.column_names == schema.names:
        return table.cast(schema)
    there = set(table.column_names)
    columns = [
        table[field.name].cast(field.type)
        if field.name in there
        else pa.chunked_array([pa.nulls(table.num_rows, field.type)])
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def joined(tables: Sequence[pa.Table]) -> pa.Table:
    """All rows of tables of one shard, which may have grown from one to the next; at least one table."""
    widest = max(tables, key=lambda table: table.num_columns).schema
    same = widest.names
    return pa.concat_tables([table if table.column_names == same else widened(table, widest) for table in tables])


def seen_as(table: pa.Table, columns: pa.Schema) -> pa.Table:
    """Contents or updates as somebody sees them who knows only ``columns``.

    What they do not know is left out, and rows that differed in nothing else are one; what is not there yet is null.
    """
    known = [name for name in table.column_names if name not in (STEP, DIFF)]
    if known == columns.names:
        return table
    beside = [table.schema.field(name) for name in (STEP, DIFF) if name in table.column_names]
    seen = widened(table, pa.schema([*columns, *beside]))
    if set(known) <= set(columns.names):
        return seen
    return summed(seen, by_step=STEP in seen.column_names)


def checked_updates(updates: pa.Table | None, schema: pa.Schema, lower: Antichain, upper: Antichain) -> pa.Table | None:
    """The updates as they are to be stored; None if there are none. Raises for anything that does not belong.

    A user's column that they lack was added since they were made, and is null.
    """
    if not upper > lower:
        raise InvariantBroken(f"an append must advance the upper: from {lower} to {upper}")
    if updates is None or updates.num_rows == 0:
        return None
    names = updates.column_names
    if len(set(names)) < len(names) or not set(names) <= set(schema.names) or not {STEP, DIFF} <= set(names):
        raise InvalidRequest(
            "the rows have other columns than their shard",
            detail=f"they have {', '.join(updates.column_names)}; the shard has {', '.join(schema.names)}",
        )
    try:
        stored = widened(updates, schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
        raise InvalidRequest("the rows do not fit the columns of their shard", detail=str(error)) from error
    for field in schema:
        if not field.nullable and stored[field.name].null_count:
            raise InvalidRequest(f"column {field.name} must not be null", hint="give each row a value for it")
    steps = pc.min_max(stored[STEP]).as_py()
    if not lower.is_open_at(Step(steps["min"])) or upper.is_open_at(Step(steps["max"])):
        raise InvariantBroken(f"updates at {steps['min']} to {steps['max']} do not lie in [{lower}, {upper})")
    return stored


def check_not_told(stored: pa.Table | None, told: Antichain | None) -> None:
    """Guards against rows where the same writer said that nothing happens."""
    if stored is None or told is None:
        return
    first = pc.min(stored[STEP]).as_py()
    if not told.is_open_at(Step(first)):
        raise InvariantBroken(f"updates at {first} come after it was told that nothing happens before {told}")


def between(table: pa.Table, lower: Antichain, upper: Antichain) -> pa.Table:
    """The updates of ``table`` in [``lower``, ``upper``), in the same order."""
    if lower.step is None:
        return table.slice(0, 0)
    mask = pc.greater_equal(table[STEP], lower.step)
    if upper.step is not None:
        mask = pc.and_(mask, pc.less(table[STEP], upper.step))
    return table.filter(mask)


def summed(table: pa.Table, *, by_step: bool = False) -> pa.Table:
    """Each distinct row once with the sum of its ``_diff``, rows that sum up to nothing left out.

    Without ``_step``, or for each step by itself. Null equals null, and floating-point numbers are told apart by their
    bits.
    """
    keys = [name for name in table.column_names if name != DIFF and (by_step or name != STEP)]
    schema = pa.schema([table.schema.field(name) for name in [*keys, DIFF]])
    if table.num_rows == 0:
        return schema.empty_table()
    if not keys:
        sums = pa.Table.from_arrays([pa.array([pc.sum(table[DIFF]).as_py()], pa.int64())], schema=schema)
    else:
        # By place rather than by name: Arrow takes a name that begins with a dot for a path.
        places = [str(place) for place in range(len(keys))]
        placed = pa.Table.from_arrays([*(table[name] for name in keys), table[DIFF]], names=[*places, DIFF])
        columns = placed.group_by(places, use_threads=False).aggregate([(DIFF, "sum")]).columns
        sums = pa.Table.from_arrays(columns, schema=schema)
    return sums.filter(pc.not_equal(sums[DIFF], 0))


def consolidated(table: pa.Table, since: Antichain, upper: Antichain) -> tuple[pa.Table, pa.Table]:
    """The history before ``since``, summed up, as of its last step; and the updates that must keep their step.

    Whoever reads changes from ``since`` on, or contents at ``since`` or later, cannot tell the difference. It holds
    for any part of a shard's updates, as sums do. Nothing is placed at or after ``upper``, which may be before
    ``since``. Of a shard that nobody may read any more (``[]``) nothing is left.
    """
    if since.step is None:
        return table.slice(0, 0), table.slice(0, 0)
    end = min(since, upper)
    history = summed(between(table, MINIMUM, end))
    step = pa.array([(end.step or 0) - 1] * history.num_rows, pa.int64())
    placed = pa.Table.from_arrays([*history.columns[:-1], step, history.columns[-1]], schema=table.schema)
    return placed, between(table, end, CLOSED)


def check_readable(lower: Antichain, since: Antichain) -> None:
    if lower < since:
        raise NotReadable(since)


def check_complete(id: object, wanted: Antichain, known: Antichain) -> None:
    """Guards against an answer that looks whole and is not."""
    if wanted > known:
        raise InvariantBroken(f"{id} was read up to {wanted}, but is known to be complete only below {known}")
