"""Binding: an expression as the user wrote it becomes one over the columns of a plan, with its type.

A bound expression is a new tree. It names columns by their plan names, has parentheses only where they are needed,
says every conversion of types that Spark would make by itself where executors could differ, and therefore has one
text for one meaning. Which syntax is understood is a table from class to handler: more is added there.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from sqlglot import exp

from controller.sql.names import column_reference, same_name, shown
from controller.sql.refusals import SqlText, did_you_mean
from controller.sql.relations import Column
from controller.sql.type_rules import VOID, common_type
from reconcile.errors import InvalidRequest
from reconcile.plan_tree import Node


def sql_text(tree: exp.Expr) -> str:
    """The text of an expression as plans carry it."""
    return tree.sql(dialect="spark", comments=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A bound expression; ``tree`` is never changed once bound."""

    tree: exp.Expr
    type: str
    nullable: bool

    @property
    def text(self) -> str:
        return sql_text(self.tree)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeColumn:
    """A column that an expression can name; in the plan it is called ``plan_name``."""

    name: str
    type: str
    nullable: bool
    plan_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """The columns of one element of FROM, under the name by which expressions can qualify them."""

    alias: str | None
    columns: tuple[ScopeColumn, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What expressions can name: the elements of FROM, then names given in the select list where SQL allows them.

    No two columns of one scope have the same plan name.
    """

    bindings: tuple[Binding, ...]
    given: Mapping[str, Bound] = field(default_factory=dict)

    def first(self, count: int) -> "Scope":
        """The scope of an ON, which sees what is to its left."""
        return Scope(bindings=self.bindings[:count])

    def find(self, sql: SqlText, column: exp.Column) -> ScopeColumn | Bound:
        """What a column as written means, or why it means nothing."""
        if column.args.get("db") is not None:
            raise sql.not_yet(column, f"fields of a column, as in {shown(column.sql('spark'))}, are")
        table = column.table
        inside = [binding for binding in self.bindings if not table or same_name(binding.alias or "", table)]
        if table and not inside:
            aliases = [binding.alias for binding in self.bindings if binding.alias]
            raise sql.refusal(column, f"unknown table {shown(table)}", hint=did_you_mean(table, aliases))
        found = [
            (binding, candidate)
            for binding in inside
            for candidate in binding.columns
            if same_name(candidate.name, column.name)
        ]
        if len(found) > 1:
            choices = [f"{binding.alias}.{candidate.name}" for binding, candidate in found if binding.alias]
            hint = f"say which: {' or '.join(choices)}" if choices else "rename one of them"
            raise sql.refusal(column, f"ambiguous column {shown(column.name)}", hint=hint)
        if found:
            return found[0][1]
        if not table and (given := self.given.get(column.name.lower())) is not None:
            return given
        known = [candidate.name for binding in inside for candidate in binding.columns]
        raise sql.refusal(column, f"unknown column {shown(column.name)}", hint=did_you_mean(column.name, known))


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """A part of a query as a plan with the columns of its output.

    Of a SELECT, ``scope`` and the ``texts`` of its columns in it are kept, since ORDER BY may repeat what they say.
    """

    node: Node
    columns: tuple[Column, ...]
    scope: Scope | None = None
    texts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Binder:
    """Binds expressions in one scope; ``aggregates_refused`` says why aggregates may not stand here, if so."""

    sql: SqlText
    scope: Scope
    handlers: Mapping[type[exp.Expr], "Handler"]
    aggregates_refused: str = ""

    def bind(self, node: exp.Expr) -> Bound:
        handler = self.handlers.get(type(node))
        if handler is None:
            raise self.not_understood(node)
        return handler(self, node)

    def bind_column(self, node: exp.Column) -> Bound:
        found = self.scope.find(self.sql, node)
        if isinstance(found, Bound):
            return found
        tree = column_reference(found.plan_name)
        # Later checks of the bound expression still can say where the column was written.
        tree.update_positions(node.this)
        return Bound(tree=tree, type=found.type, nullable=found.nullable)

    def condition(self, node: exp.Expr) -> Bound:
        """A bound expression that must be true, false or null."""
        bound = self.bind(node)
        if bound.type not in ("boolean", VOID):
            raise self.sql.refusal(
                node,
                f"{shown(bound.text)} is not a condition",
                detail=f"it has type {bound.type}",
                hint="compare it with something",
            )
        return bound

    def aligned(self, at: exp.Expr, items: list[Bound], *, exactly: bool) -> tuple[list[Bound], str]:
        """The items brought to their common type, and that type.

        Numbers of different types compare as they are; with ``exactly`` they are converted too.
        """
        type = VOID
        for item in items:
            wider = common_type(type, item.type)
            if wider is None:
                hint = f"convert one of them, as in CAST({items[0].text} AS {item.type.upper()})"
                raise self.sql.refusal(at, f"types {type} and {item.type} do not go together", hint=hint)
            type = wider
        convert = exactly or type in ("date", "timestamp")
        return [cast_to(item, type) if convert else item for item in items], type

    def not_understood(self, node: exp.Expr) -> InvalidRequest:
        if isinstance(node, exp.Window):
            return self.sql.not_yet(node, "window functions are", hint="use GROUP BY, and join with its result")
        if isinstance(node, exp.Subquery | exp.Exists | exp.Select):
            return self.sql.not_yet(node, "subqueries in expressions are", hint="join with the subquery in FROM")
        if isinstance(node, exp.Anonymous):
            return self.sql.not_yet(node, f"function {shown(node.name)} is")
        if isinstance(node, exp.Star):
            return self.sql.refusal(node, "* stands where one value is needed", hint="name a column")
        if isinstance(node, exp.Placeholder | exp.Parameter):
            return self.sql.refusal(node, "parameters are not possible here", hint="write the value into the text")
        what = node.sql_name().lower() if isinstance(node, exp.Func) else node.key
        return self.sql.not_yet(node, f"{what!r} is")


Handler: TypeAlias = Callable[[Binder, exp.Expr], Bound]


def cast_to(bound: Bound, type: str) -> Bound:
    """``bound`` itself if it is of this type, else converted to it."""
    if bound.type == type:
        return bound
    tree = exp.Cast(this=bound.tree.copy(), to=exp.DataType.build(type, dialect="spark"))
    return Bound(tree=tree, type=type, nullable=bound.nullable)


#: How tightly an operator binds; what is not here is never torn apart.
_TIGHTNESS: Mapping[type[exp.Expr], int] = {
    exp.Or: 1,
    exp.And: 2,
    exp.Not: 3,
    **dict.fromkeys((exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE), 4),
    **dict.fromkeys((exp.Is, exp.In, exp.Between, exp.Like), 4),
    **dict.fromkeys((exp.Add, exp.Sub), 5),
    **dict.fromkeys((exp.Mul, exp.Div, exp.Mod), 6),
    exp.Neg: 7,
}


def operand(bound: Bound, parent: type[exp.Expr], *, first: bool = False) -> exp.Expr:
    """The tree of an operand of ``parent``, in parentheses if it would be torn apart otherwise.

    Arithmetic, AND and OR group from the left, so that their first operand may be of the same tightness.
    """
    tree = bound.tree.copy()
    ours, theirs = _TIGHTNESS[parent], _TIGHTNESS.get(type(tree))
    if theirs is None or theirs > ours:
        return tree
    if theirs == ours and first and ours not in (3, 4, 7):
        return tree
    return exp.Paren(this=tree)


def conjuncts(bound: Bound) -> list[Bound]:
    """The conditions that must all hold for ``bound`` to hold."""
    if not isinstance(bound.tree, exp.And):
        return [bound]
    parts = [part.unnest() if isinstance(part, exp.Paren) else part for part in bound.tree.flatten(unnest=True)]
    return [Bound(tree=part, type="boolean", nullable=bound.nullable) for part in parts]


def all_of(conditions: list[Bound]) -> Bound:
    """One condition that holds when all of these do; there is at least one."""
    tree = conditions[0].tree if len(conditions) == 1 else operand(conditions[0], exp.And, first=True)
    for condition in conditions[1:]:
        tree = exp.And(this=tree, expression=operand(condition, exp.And))
    return Bound(tree=tree, type="boolean", nullable=any(condition.nullable for condition in conditions))
