"""Ordering: ORDER BY and LIMIT of an ad-hoc query.

What is ordered by travels as extra columns behind those that were asked for; the answer is sorted by them and loses
them again.
"""

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types
import pyarrow.compute as pc  # type: ignore[import-untyped]

from controller.sql import CompiledQuery
from controller.sql.binding import sql_text
from controller.sql.names import column_reference, unused_name
from plainsong.arrow_updates import from_ipc, to_ipc
from reconcile.plan_tree import Node


def column_text(name: str) -> str:
    """An expression that is just this column."""
    return sql_text(column_reference(name))


def ordered_plan(compiled: CompiledQuery) -> Node:
    """The plan of a query with what it is ordered by behind its columns."""
    if not compiled.order:
        return compiled.plan
    columns = [(column.name, column_text(column.name)) for column in compiled.columns]
    taken = {column.name for column in compiled.columns}
    for part in compiled.order:
        name = unused_name("order", taken)
        taken.add(name)
        columns.append((name, part.expression))
    return Node(op="project", fields=(("input", compiled.plan), ("columns", tuple(columns))))


def finished(rows: bytes, compiled: CompiledQuery) -> bytes:
    """The rows in order, at most as many as asked for.

    Ties are broken by all columns, so that the same rows come back however replicas ordered theirs.
    """
    if not compiled.order and compiled.limit is None:
        return rows
    table: pa.Table = from_ipc(rows)
    shown = len(compiled.columns)
    marks = [(part.descending, part.nulls_first) for part in compiled.order or ()]
    keys = [*table.columns[shown:], *table.columns[:shown]]
    columns: dict[str, pa.ChunkedArray] = {}
    directions: list[tuple[str, str]] = []
    for place, key in enumerate(keys):
        descending, nulls_first = marks[place] if place < len(marks) else (False, True)
        # Nulls first or last is a key of its own: one call sorts all columns with one rule for nulls.
        columns[f"null {place}"], columns[f"key {place}"] = pc.is_null(key), key
        directions.append((f"null {place}", "descending" if nulls_first else "ascending"))
        directions.append((f"key {place}", "descending" if descending else "ascending"))
    ordered = table.take(pc.sort_indices(pa.table(columns), sort_keys=directions))
    answer = ordered.select(list(range(shown)))
    return to_ipc(answer if compiled.limit is None else answer.slice(0, compiled.limit))
