"""Rows of a shard as Arrow: what may be written, which updates lie where, and what they sum up to."""

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


def checked_updates(updates: pa.Table | None, schema: pa.Schema, lower: Antichain, upper: Antichain) -> pa.Table | None:
    """The updates as they are to be stored; None if there are none. Raises for anything that does not belong."""
    if not upper > lower:
        raise InvariantBroken(f"an append must advance the upper: from {lower} to {upper}")
    if updates is None or updates.num_rows == 0:
        return None
    if sorted(updates.column_names) != sorted(schema.names):
        raise InvalidRequest(
            "the rows have other columns than their shard",
            detail=f"they have {', '.join(updates.column_names)}; the shard has {', '.join(schema.names)}",
        )
    try:
        stored = updates.select(schema.names).cast(schema)
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


def summed(table: pa.Table) -> pa.Table:
    """Each distinct row once with the sum of its ``_diff``, rows that sum up to nothing left out; without ``_step``.

    Null equals null, and floating-point numbers are told apart by their bits.
    """
    keys = [name for name in table.column_names if name not in (STEP, DIFF)]
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
