"""ORDER BY with LIMIT inside a query: its first rows, in an order that tells all different rows apart."""

from collections.abc import Callable, Sequence

from sqlglot import exp

from controller.sql.binding import Compiled, sql_text
from controller.sql.expressions import binder, own_scope
from controller.sql.group_keys import ordinal
from controller.sql.names import column_reference
from controller.sql.refusals import SqlText
from controller.sql.relations import Column
from controller.sql.stages import alias, name_text, sql_stage
from controller.sql.windows import total
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
                tree = bind.bind(node).tree.copy()
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
    names = ", ".join(name_text(column.name) for column in visible)
    by = ", ".join(sql_text(part) for part in total(parts, rows.columns))
    text = f"SELECT {names} FROM {alias(1)} ORDER BY {by}"
    for name in ("limit", "offset"):
        if query.args.get(name) is not None:
            text += f" {name.upper()} {row_count(sql, query.args[name])}"
    return sql_stage([(rows, ())], text, visible, _WHY)


def row_count(sql: SqlText, clause: exp.Expr) -> int:
    """How many rows LIMIT or OFFSET says."""
    word = clause.key.upper()
    rows = clause.expression if isinstance(clause, exp.Limit | exp.Offset) else None
    if not isinstance(rows, exp.Literal) or rows.is_string or not rows.name.isdigit() or len(rows.name) > 10:
        raise sql.refusal(clause, f"{word} needs a whole number", hint=f"as in {word} 10")
    if int(rows.name) > _ROWS_MAX:
        raise sql.refusal(clause, f"{word} {rows.name} is too large", hint=f"use at most {_ROWS_MAX}, or no {word}")
    return int(rows.name)
