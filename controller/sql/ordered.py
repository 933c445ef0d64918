"""ORDER BY with LIMIT inside a query: its first rows, in an order that tells all different rows apart."""

from collections.abc import Callable, Sequence

from sqlglot import exp

from controller.sql import plans
from controller.sql.binding import TYPE, Bound, Compiled, marked, sql_text
from controller.sql.expressions import binder, own_scope
from controller.sql.group_keys import ordinal
from controller.sql.names import column_reference
from controller.sql.refusals import SqlText
from controller.sql.relations import Column
from controller.sql.stages import alias, extended, name_text, sql_stage
from controller.sql.type_rules import UNKNOWN, VOID
from controller.sql.windows import total
from plainsong.types import is_nested
from reconcile.errors import InvalidRequest

_ROWS_MAX = 2**31 - 1
_WHY = "which rows are the first depends on all of them; ties are decided by all columns in their order"


def ordering(
    sql: SqlText,
    columns: Sequence[Column],
    written: Sequence[exp.Expr],
    hidden: Callable[[exp.Expr], str] | None = None,
) -> list[exp.Expr]:
    """What is ordered by, over the output columns; ``hidden`` makes a column of what is none of them."""
    bind = binder(sql, own_scope(columns), aggregates_refused="put it in the select list", general=True)
    parts: list[exp.Expr] = []
    for part in written:
        if not isinstance(part, exp.Ordered) or part.args.get("with_fill"):
            raise sql.not_yet(part, "this form of ORDER BY is")
        node = part.this
        if isinstance(node, exp.Literal) and not node.is_string:
            tree: exp.Expr = column_reference(columns[ordinal(sql, node, len(columns), "ORDER BY")].name)
        else:
            try:
                bound = bind.bind(node)
                tree = marked(bound.tree.copy(), TYPE, bound.type)
            except InvalidRequest:
                if hidden is None:
                    raise
                tree = column_reference(hidden(node))
        parts.append(exp.Ordered(this=tree, desc=part.args.get("desc"), nulls_first=part.args.get("nulls_first")))
    return parts


def limited(
    sql: SqlText, rows: Compiled, visible: Sequence[Column], parts: Sequence[exp.Expr], query: exp.Expr
) -> Compiled:
    """The first of the rows, as LIMIT and OFFSET of the query say; only visible columns are kept."""
    limit, offset = (
        row_count(sql, query.args[name]) if query.args.get(name) is not None else None for name in ("limit", "offset")
    )
    kept = _in_order(rows, visible, parts, limit, offset or 0) if limit is not None else None
    if kept is not None:
        return kept
    names = ", ".join(name_text(column.name) for column in visible)
    by = ", ".join(sql_text(part) for part in total(parts, rows.columns))
    text = f"SELECT {names} FROM {alias(1)} ORDER BY {by}"
    for word, count in (("LIMIT", limit), ("OFFSET", offset)):
        if count is not None:
            text += f" {word} {count}"
    return sql_stage([(rows, ())], text, visible, _WHY)


def _in_order(
    rows: Compiled, visible: Sequence[Column], parts: Sequence[exp.Expr], limit: int, offset: int
) -> Compiled | None:
    """Rows that are kept in order; none if only Spark can compare some of them."""
    values = [Bound(tree=part.this, type=str(part.this.meta.get(TYPE, UNKNOWN)), nullable=True) for part in parts]
    known = {column.name: column.type for column in rows.columns}
    types = [known.get(value.tree.name, value.type) for value in values if isinstance(value.tree, exp.Column)]
    types += [value.type for value in values if not isinstance(value.tree, exp.Column)]
    if any(is_nested(type) or type in (UNKNOWN, VOID) for type in (*known.values(), *types)):
        return None
    frame, names = extended(rows, values)
    order = {
        name: (name, "desc" if part.args.get("desc") else "asc", "first" if part.args.get("nulls_first") else "last")
        # What is named twice is ordered by the first time.
        for name, part in reversed(list(zip(names, parts, strict=True)))
    }
    ordered = [order[name] for name in dict.fromkeys(names)]
    ordered += [(column.name, "asc", "first") for column in frame.columns if column.name not in order]
    return Compiled(node=plans.top(frame.node, tuple(ordered), limit, offset, visible), columns=tuple(visible))


def row_count(sql: SqlText, clause: exp.Expr) -> int:
    """How many rows LIMIT or OFFSET says."""
    word = clause.key.upper()
    rows = clause.expression if isinstance(clause, exp.Limit | exp.Offset) else None
    if not isinstance(rows, exp.Literal) or rows.is_string or not rows.name.isdigit() or len(rows.name) > 10:
        raise sql.refusal(clause, f"{word} needs a whole number", hint=f"as in {word} 10")
    if int(rows.name) > _ROWS_MAX:
        raise sql.refusal(clause, f"{word} {rows.name} is too large", hint=f"use at most {_ROWS_MAX}, or no {word}")
    return int(rows.name)
