"""The compiler: the text of a query becomes a plan.

The pure function at the border between what users write and what instances run. Equal texts over an equal catalog
give equal plans, on every controller and at every time, since plans are compared to decide what keeps running. What
cannot be compiled is refused with its place in the text; sound SQL that is only beyond our operators so far is
refused as ``NotYet``, so that a later fallback has one thing to catch.
"""

from sqlglot import exp

from controller.sql import plans
from controller.sql.binding import Compiled, sql_text
from controller.sql.expressions import binder, own_scope
from controller.sql.names import column_reference
from controller.sql.parsing import guarded, parse_statement
from controller.sql.queries import QueryCompiler
from controller.sql.refusals import SqlText
from controller.sql.relations import Catalog, CompiledQuery, Ordering
from controller.sql.selects import ordinal
from controller.sql.steadiness import refuse_unsteady
from reconcile.errors import InvalidRequest

_ROWS_MAX = 2**31 - 1


def compile_query(sql: str, names: Catalog, *, allow_order: bool = True) -> CompiledQuery:
    """Compiles one query; ``allow_order`` lets it end with ORDER BY and LIMIT, as a view may not."""
    text = SqlText(text=sql)
    return guarded(lambda: _compile(text, names, allow_order=allow_order))


def _compile(sql: SqlText, names: Catalog, *, allow_order: bool) -> CompiledQuery:
    tree = parse_statement(sql)
    refuse_unsteady(sql, tree)
    while isinstance(tree, exp.Subquery) and not any(value for name, value in tree.args.items() if name != "this"):
        tree = tree.this
    canonical = tree.sql(dialect="spark", comments=False)
    order, limit = (tree.args.get("order"), tree.args.get("limit")) if allow_order else (None, None)
    for clause in (order, limit):
        if clause is not None:
            clause.pop()
    queries = QueryCompiler(sql, names)
    compiled = queries.query(tree, {})
    plans.check_size(compiled.node)
    return CompiledQuery(
        plan=compiled.node,
        columns=compiled.columns,
        reads=tuple(dict.fromkeys(plans.reads(compiled.node))),
        names=queries.names,
        order=_order(sql, order, compiled) if order is not None else None,
        limit=_limit(sql, limit) if limit is not None else None,
        text=canonical,
    )


def _order(sql: SqlText, order: exp.Expr, compiled: Compiled) -> tuple[Ordering, ...]:
    orderings = []
    for part in order.expressions:
        if not isinstance(part, exp.Ordered) or part.args.get("with_fill"):
            raise sql.not_yet(part, "this form of ORDER BY is")
        column = _ordered_by(sql, part.this, compiled)
        orderings.append(
            Ordering(
                expression=column,
                descending=bool(part.args.get("desc")),
                nulls_first=bool(part.args.get("nulls_first")),
            )
        )
    return tuple(orderings)


def _ordered_by(sql: SqlText, node: exp.Expr, compiled: Compiled) -> str:
    """What is ordered by, over the output columns: a place, an expression of them, or an item of the select list."""
    columns = compiled.columns
    if isinstance(node, exp.Literal) and not node.is_string:
        return sql_text(column_reference(columns[ordinal(sql, node, len(columns), "ORDER BY")].name))
    try:
        bind = binder(sql, own_scope(columns), aggregates_refused="put the aggregate in the select list")
        return bind.bind(node).text
    except InvalidRequest as error:
        repeated = binder(sql, compiled.scope).bind(node).text if compiled.scope is not None else None
        if repeated in compiled.texts:
            return sql_text(column_reference(columns[compiled.texts.index(repeated)].name))
        hint = "add it to the select list" if repeated else error.hint
        raise InvalidRequest(error.message, detail="ORDER BY sees the output columns", hint=hint) from error


def _limit(sql: SqlText, limit: exp.Expr) -> int:
    rows = limit.expression if isinstance(limit, exp.Limit) else None
    if not isinstance(rows, exp.Literal) or rows.is_string or not rows.name.isdigit() or len(rows.name) > 10:
        raise sql.refusal(limit, "LIMIT needs a whole number", hint="as in LIMIT 10")
    if int(rows.name) > _ROWS_MAX:
        raise sql.refusal(limit, f"LIMIT {rows.name} is too large", hint=f"use at most {_ROWS_MAX}, or no LIMIT")
    return int(rows.name)
