"""Stages: one step of a query over the rows of the one before, in the simplest node that computes it.

What every executor knows becomes filter and project nodes; what Spark alone knows becomes ``sql_linear`` where each
row is taken by itself, and ``sql`` where it is not.
"""

from collections.abc import Sequence

from sqlglot import exp

from controller.sql import plans
from controller.sql.binding import Bound, Compiled, is_simple, sql_text
from controller.sql.names import column_reference, unused_name
from controller.sql.relations import Column
from controller.sql.type_rules import INTERVAL, UNKNOWN, VOID

#: The rows that a node reads, with the keys by which it can be computed in parts.
Input = tuple[Compiled, Sequence[Bound]]

_ROWS = "each row by itself"


def name_text(name: str) -> str:
    """A name as it stands in a text."""
    return sql_text(column_reference(name))


def selected(items: Sequence[tuple[str, exp.Expr]], source: str) -> str:
    """The text of a SELECT of named expressions."""
    parts = []
    for name, tree in items:
        text, quoted = sql_text(tree), name_text(name)
        parts.append(text if text == quoted else f"{text} AS {quoted}")
    return f"SELECT {', '.join(parts)} FROM {source}"


def alias(place: int) -> str:
    """What the text of a node calls its inputs, from one."""
    return f"_{place}"


def sql_stage(inputs: Sequence[Input], text: str, columns: Sequence[Column], why: str) -> Compiled:
    """Rows that Spark computes from those of the inputs, by touched keys if they have keys.

    Keys are looked up where no Spark is: what Spark alone computes becomes a column before.
    """
    sides = list(zip(*(keys for _, keys in inputs), strict=True))
    chosen = [side for side in sides if all(is_simple(key.tree) or _is_known(key) for key in side)]
    if sides and not chosen:
        why = "the type of its key is not known; convert it, as in CAST(... AS STRING)"
    keyed = []
    for place, (input, _) in enumerate(inputs):
        others = [column for other, _ in inputs if other is not input for column in other.columns]
        keys = [side[place] for side in chosen]
        frame, names = extended(input, [key for key in keys if not is_simple(key.tree)], others)
        computed = iter(names)
        texts = [key.text if is_simple(key.tree) else name_text(next(computed)) for key in keys]
        keyed.append((alias(place + 1), frame.node, tuple(texts)))
    return Compiled(node=plans.sql(tuple(keyed), text, tuple(columns), why), columns=tuple(columns))


def _is_known(key: Bound) -> bool:
    return not any(word in key.type for word in (UNKNOWN, VOID, INTERVAL))


def linear_stage(input: Compiled, text: str, columns: Sequence[Column], why: str = _ROWS) -> Compiled:
    """Rows that Spark computes from single rows of the input, which its text calls ``_1``."""
    return Compiled(node=plans.sql_linear(alias(1), input.node, text, tuple(columns), why), columns=tuple(columns))


def filtered(frame: Compiled, condition: Bound) -> Compiled:
    """The rows for which a condition holds."""
    if is_simple(condition.tree):
        return Compiled(node=plans.filtered(frame.node, condition.text), columns=frame.columns)
    items = [(column.name, column_reference(column.name)) for column in frame.columns]
    text = f"{selected(items, alias(1))} WHERE {condition.text}"
    return linear_stage(frame, text, frame.columns)


def projected(frame: Compiled, items: Sequence[tuple[Column, exp.Expr]]) -> Compiled:
    """The rows under these names and computed so; the frame itself if it has exactly these columns already."""
    columns = tuple(column for column, _ in items)
    texts = tuple((column.name, sql_text(tree)) for column, tree in items)
    if texts == tuple((column.name, name_text(column.name)) for column in frame.columns):
        return Compiled(node=frame.node, columns=columns)
    if all(is_simple(tree) for _, tree in items):
        return Compiled(node=plans.project(frame.node, texts), columns=columns)
    return linear_stage(frame, selected([(column.name, tree) for column, tree in items], alias(1)), columns)


def extended(frame: Compiled, values: Sequence[Bound], beside: Sequence[Column] = ()) -> tuple[Compiled, list[str]]:
    """The rows with a column for each value behind their own, and the names of these; plain columns need none.

    No new name is that of a column ``beside``.
    """
    taken = {column.name.lower() for column in (*frame.columns, *beside)}
    names, added = [], []
    for value in values:
        if isinstance(value.tree, exp.Column):
            names.append(value.tree.name)
            continue
        names.append(unused_name(f"_k{len(names) + 1}", taken))
        added.append((Column(name=names[-1], type=value.type, nullable=value.nullable), value.tree))
    own = [(column, column_reference(column.name)) for column in frame.columns]
    return (projected(frame, [*own, *added]) if added else frame), names
