"""Expressions on their own: predicates and values over given columns.

They are computed where no Spark is, so that they have only the syntax that every executor knows.
"""

from collections.abc import Mapping, Sequence

from sqlglot import exp

from controller.sql.binding import Binder, Binding, Handler, Scope, ScopeColumn
from controller.sql.functions import FUNCTIONS
from controller.sql.general import beyond
from controller.sql.names import shown
from controller.sql.operators import OPERATORS
from controller.sql.parsing import guarded, parse_expression
from controller.sql.refusals import SqlText
from controller.sql.relations import Column
from controller.sql.steadiness import refuse_unsteady
from controller.sql.type_rules import VOID
from reconcile.errors import InvalidRequest

#: The syntax that every executor knows.
HANDLERS: Mapping[type[exp.Expr], Handler] = {**OPERATORS, **FUNCTIONS}


def binder(sql: SqlText, scope: Scope, *, aggregates_refused: str = "", general: bool = False) -> Binder:
    """A binder that understands all of it; with ``general`` also what Spark alone computes."""
    return Binder(
        sql=sql,
        scope=scope,
        handlers=HANDLERS,
        aggregates_refused=aggregates_refused,
        beyond=beyond if general else None,
    )


def own_scope(columns: Sequence[Column], table: str | None = None) -> Scope:
    """A scope of these columns, which are called in the plan what they are called."""
    known = tuple(
        ScopeColumn(name=column.name, type=column.type, nullable=column.nullable, plan_name=column.name)
        for column in columns
    )
    return Scope(bindings=(Binding(alias=table, columns=known),))


def compile_predicate(text: str, columns: Sequence[Column], *, table: str | None = None) -> str:
    """The canonical text of a condition over ``columns``, which may be qualified by ``table``."""
    sql = SqlText(text=text)
    bind = binder(sql, own_scope(columns, table), aggregates_refused="a condition on rows has no aggregates")
    return guarded(lambda: bind.condition(_parsed(sql)).text)


def compile_expression(text: str, columns: Sequence[Column], *, table: str | None = None) -> tuple[str, str]:
    """The canonical text of an expression over ``columns`` and its type."""
    sql = SqlText(text=text)
    bind = binder(sql, own_scope(columns, table), aggregates_refused="a value of a row has no aggregates")
    bound = guarded(lambda: bind.bind(_parsed(sql)))
    canonical = guarded(lambda: bound.text)
    if bound.type == VOID:
        raise InvalidRequest(f"{shown(canonical)} has no type", hint="give it one, as in CAST(NULL AS STRING)")
    return canonical, bound.type


def _parsed(sql: SqlText) -> exp.Expr:
    tree = parse_expression(sql)
    refuse_unsteady(sql, tree)
    return tree
