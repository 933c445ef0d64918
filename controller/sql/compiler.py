"""The compiler: the text of a query becomes a plan.

The pure function at the border between what users write and what instances run. Equal texts over an equal catalog
give equal plans, on every controller and at every time, since plans are compared to decide what keeps running. What
cannot be compiled is refused with its place in the text; sound SQL that is only beyond us so far is refused as
``NotYet``.

A query becomes as many small steps as it has clauses. What every executor knows is a node of its own kind; the rest is
text that Spark runs: for single rows (``sql_linear``), for the rows of touched keys, or for all rows (``sql``). The
answer never depends on the order in which rows come: see ``aggregates`` and ``windows``.
"""

from collections.abc import Mapping
from types import MappingProxyType

from sqlglot import exp

from controller.sql import plans
from controller.sql.binding import Compiled, sql_text
from controller.sql.expressions import binder, own_scope
from controller.sql.group_keys import ordinal
from controller.sql.names import column_reference
from controller.sql.ordered import row_count
from controller.sql.parsing import guarded, parse_statement
from controller.sql.queries import QueryCompiler
from controller.sql.refusals import SqlText
from controller.sql.relations import Catalog, CompiledQuery, Ordering
from controller.sql.steadiness import refuse_unsteady
from controller.sql.strategies import refuse_recomputed
from controller.sql.user_functions import UserFunction, with_functions
from controller.sql.writing import spark_text
from reconcile.errors import InvalidRequest


def compile_query(
    sql: str,
    names: Catalog,
    *,
    allow_order: bool = True,
    strict: bool = False,
    functions: Mapping[str, UserFunction] = MappingProxyType({}),
) -> CompiledQuery:
    """Compiles one query.

    ``allow_order`` lets it end with an ORDER BY and LIMIT that are not part of the plan; in a view, LIMIT is part of
    the plan. ``strict`` refuses what would be computed anew with each change. ``functions`` are those that users
    registered, by name.
    """
    text = SqlText(text=sql)
    return guarded(lambda: _compile(text, names, allow_order=allow_order, strict=strict, functions=functions))


def _compile(
    sql: SqlText, names: Catalog, *, allow_order: bool, strict: bool, functions: Mapping[str, UserFunction]
) -> CompiledQuery:
    tree = parse_statement(sql)
    refuse_unsteady(sql, tree)
    while isinstance(tree, exp.Subquery) and not any(value for name, value in tree.args.items() if name != "this"):
        tree = tree.this
    canonical = spark_text(tree)
    order, limit = (tree.args.get("order"), tree.args.get("limit")) if allow_order else (None, None)
    for clause in (order, limit):
        if clause is not None:
            clause.pop()
    offset = tree.args.get("offset") if allow_order else None
    if offset is not None:
        hint = "use it in a view or a subquery, or put a LIMIT at the end"
        raise sql.refusal(offset, "OFFSET is not possible here", hint=hint)
    queries = QueryCompiler(sql, names, functions)
    compiled = queries.query(tree, {})
    plans.check_size(compiled.node)
    if strict:
        refuse_recomputed(compiled.node)
    plan, used = with_functions(compiled.node, functions)
    if used:
        plans.check_size(plan)
    return CompiledQuery(
        plan=plan,
        columns=compiled.columns,
        reads=tuple(dict.fromkeys(plans.reads(compiled.node))),
        names=queries.names,
        order=_order(sql, order, compiled) if order is not None else None,
        limit=row_count(sql, limit) if limit is not None else None,
        text=canonical,
        functions=used,
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
