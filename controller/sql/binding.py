"""Binding: an expression as the user wrote it becomes one over the columns of a plan, with its type.

A bound expression is a new tree. It names columns by their plan names, has parentheses only where they are needed,
says every conversion of types that Spark would make by itself where executors could differ, and therefore has one
text for one meaning. Which syntax is understood is a table from class to handler: more is added there.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from sqlglot import exp

from controller.sql.names import column_reference, same_name, shown
from controller.sql.refusals import SqlText, did_you_mean
from controller.sql.relations import Column
from controller.sql.type_rules import UNKNOWN, VOID, common_type
from controller.sql.user_functions import UserFunction
from controller.sql.writing import spark_text
from plainsong.types import array_of, element_type, is_nested, struct_fields
from reconcile.errors import InvalidRequest
from reconcile.plan_tree import Node

#: Marks on parts of bound trees. What only Spark computes, such as most functions.
GENERAL = "general"
#: An aggregate over the rows of a group; the mark holds its type.
AGGREGATE = "aggregate"
#: The type of what an aggregate aggregates, on the aggregate.
ARGUMENT = "argument"
#: The type of a part that may become a column of its own.
TYPE = "type"
#: The function of a window, which is no aggregate over a group whatever its name.
OVER = "over"
#: A comparison of two sides that were converted to one type, which the mark holds.
COMPARED = "compared"
#: A column of the query around a subquery.
OUTER = "outer"


def marked(tree: exp.Expr, mark: str, value: str = "yes") -> exp.Expr:
    """The same tree, marked; copies keep marks."""
    tree.meta[mark] = value
    return tree


def has_mark(tree: exp.Expr, mark: str) -> bool:
    """Whether any part of a bound tree bears a mark."""
    return any(mark in part.meta for part in tree.walk())


def is_simple(tree: exp.Expr) -> bool:
    """Whether every executor understands a bound tree, not Spark alone."""
    return not has_mark(tree, GENERAL)


def aggregates_in(tree: exp.Expr) -> Iterator[exp.Expr]:
    """The aggregates over groups in a bound tree, first to last."""
    return (part for part in tree.walk(bfs=False) if AGGREGATE in part.meta)


def outermost_aggregates(tree: exp.Expr) -> list[exp.Expr]:
    """The aggregates in a bound tree that are in no other."""
    return [part for part in tree.walk(prune=lambda part: AGGREGATE in part.meta) if AGGREGATE in part.meta]


def sql_text(tree: exp.Expr) -> str:
    """The text of an expression as plans carry it."""
    return spark_text(tree)


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
    #: Columns that USING or NATURAL made one of two, by their names in lower case.
    merged: Mapping[str, Bound] = field(default_factory=dict)
    #: What the query around a subquery can name.
    outer: "Scope | None" = None

    def first(self, count: int) -> "Scope":
        """The scope of an ON, which sees what is to its left."""
        return Scope(bindings=self.bindings[:count], outer=self.outer)

    def find(self, sql: SqlText, column: exp.Column) -> Bound:
        """What a column as written means, or why it means nothing."""
        parts = [part for part in column.parts if isinstance(part, exp.Identifier)]
        try:
            found = self._found(sql, column, parts)
        except InvalidRequest as unknown:
            outside = self._outside(sql, column)
            if outside is None:
                raise unknown
            return outside
        if not isinstance(found, tuple):
            return found
        bound, fields = found
        for name in fields:
            bound = field_of(sql, column, bound, name.name)
        return bound

    def _outside(self, sql: SqlText, column: exp.Column) -> Bound | None:
        """What a column means to the query around this one, if anything; its parts are marked."""
        if self.outer is None:
            return None
        try:
            bound = self.outer.find(sql, column)
        except InvalidRequest:
            return None
        tree = bound.tree.copy()
        for part in tree.find_all(exp.Column):
            marked(part, OUTER)
        return Bound(tree=tree, type=bound.type, nullable=bound.nullable)

    def _found(
        self, sql: SqlText, column: exp.Column, parts: list[exp.Identifier]
    ) -> Bound | tuple[Bound, list[exp.Identifier]]:
        """A column, with the names of fields in it that follow: ``table.column.field`` or ``column.field``."""
        first, rest = parts[0].name, parts[1:]
        inside = [binding for binding in self.bindings if rest and same_name(binding.alias or "", first)]
        if inside and any(same_name(c.name, rest[0].name) for binding in inside for c in binding.columns):
            return self._column(sql, column, rest[0].name, inside), rest[1:]
        struct = rest and any(same_name(c.name, first) for binding in self.bindings for c in binding.columns)
        if rest and not struct and not inside:
            aliases = [binding.alias for binding in self.bindings if binding.alias]
            raise sql.refusal(column, f"unknown table {shown(first)}", hint=did_you_mean(first, aliases))
        if inside and not struct:
            return self._column(sql, column, rest[0].name, inside)
        if (one := self.merged.get(first.lower())) is not None:
            return one, rest
        return self._column(sql, column, first, list(self.bindings), given=not rest), rest

    def _column(self, sql: SqlText, at: exp.Column, name: str, inside: list[Binding], *, given: bool = False) -> Bound:
        found = [
            (binding, candidate)
            for binding in inside
            for candidate in binding.columns
            if same_name(candidate.name, name)
        ]
        if len(found) > 1:
            choices = [f"{binding.alias}.{candidate.name}" for binding, candidate in found if binding.alias]
            hint = f"say which: {' or '.join(choices)}" if choices else "rename one of them"
            raise sql.refusal(at, f"ambiguous column {shown(name)}", hint=hint)
        if found:
            column = found[0][1]
            tree = column_reference(column.plan_name)
            # Later checks of the bound expression still can say where the column was written.
            tree.update_positions(at.this)
            return Bound(tree=tree, type=column.type, nullable=column.nullable)
        if given and (repeated := self.given.get(name.lower())) is not None:
            return repeated
        known = [candidate.name for binding in inside for candidate in binding.columns]
        raise sql.refusal(at, f"unknown column {shown(name)}", hint=did_you_mean(name, known))


def field_of(sql: SqlText, at: exp.Expr, bound: Bound, name: str) -> Bound:
    """A field of a struct, or that field of each struct of an array."""
    element = element_type(bound.type)
    fields = struct_fields(element if element is not None else bound.type)
    if fields is None:
        raise sql.refusal(
            at,
            f"{shown(bound.text)} has no fields",
            detail=f"it has type {bound.type}",
            hint="only structs have fields",
        )
    known = [(field, type) for field, type in fields if same_name(field, name)]
    if not known:
        raise sql.refusal(at, f"unknown field {shown(name)}", hint=did_you_mean(name, [field for field, _ in fields]))
    field, type = known[0]
    this = bound.tree.copy()
    tree = exp.Dot(
        this=this if isinstance(this, exp.Column | exp.Dot | exp.Bracket | exp.Identifier) else exp.Paren(this=this),
        expression=column_reference(field).this,
    )
    return Bound(tree=marked(tree, GENERAL), type=array_of(type) if element is not None else type, nullable=True)


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
    #: Why windows may not stand here, if so.
    windows_refused: str = "use a subquery in FROM"
    #: Whether the function of a window is bound, whose arguments may be aggregates over groups.
    over: bool = False
    #: Binds what the handlers do not know, for Spark to compute; none where other executors compute.
    beyond: "Handler | None" = None
    #: Makes a column of a query in an expression; none where there can be none.
    subquery: "Handler | None" = None
    #: What the names of lambda parameters stand for.
    variables: Mapping[str, Bound] = field(default_factory=dict)
    #: Functions that users registered.
    functions: "Mapping[str, UserFunction]" = field(default_factory=dict)
    #: Windows that the SELECT gives names to.
    windows: Mapping[str, exp.Expr] = field(default_factory=dict)

    def bind(self, node: exp.Expr) -> Bound:
        handler = self.handlers.get(type(node))
        if handler is not None:
            bound = handler(self, node)
        elif self.beyond is not None:
            bound = self.beyond(self, node)
        else:
            raise self.not_understood(node)
        if is_nested(bound.type) and not isinstance(bound.tree, exp.Column):
            marked(bound.tree, GENERAL)
        return bound

    def bind_column(self, node: exp.Column) -> Bound:
        return self.scope.find(self.sql, node)

    def general(self, node: exp.Expr, what: str, *, hint: str = "") -> Bound:
        """What only Spark computes; refused as not supported where Spark does not."""
        if self.beyond is None:
            raise self.sql.not_yet(node, what, hint=hint)
        return self.beyond(self, node)

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
        convert = convert and type != UNKNOWN
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
    if is_nested(bound.type) or is_nested(type) or bound.type == UNKNOWN:
        marked(tree, GENERAL)
    return Bound(tree=tree, type=type, nullable=bound.nullable)


def marked_if_nested(tree: exp.Expr, parts: list[Bound]) -> exp.Expr:
    """The tree, marked as beyond the other executors if it compares arrays, maps or structs."""
    nested = any(is_nested(part.type) or part.type == UNKNOWN for part in parts)
    return marked(tree, GENERAL) if nested else tree


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
    if isinstance(bound.tree, exp.Or):
        return _factored(bound)
    if not isinstance(bound.tree, exp.And):
        return [bound]
    parts = [part.unnest() if isinstance(part, exp.Paren) else part for part in bound.tree.flatten(unnest=True)]
    found = [Bound(tree=part, type="boolean", nullable=bound.nullable) for part in parts]
    return [inner for part in found for inner in (_factored(part) if isinstance(part.tree, exp.Or) else [part])]


def _factored(bound: Bound) -> list[Bound]:
    """What every branch of an OR demands, by itself, and the OR of the rest: a join needs to see its equality."""
    branches = []
    for branch in bound.tree.flatten(unnest=True):
        tree = branch.unnest() if isinstance(branch, exp.Paren) else branch
        parts = conjuncts(Bound(tree=tree, type="boolean", nullable=bound.nullable))
        branches.append({sql_text(part.tree): part for part in parts})
    common = [text for text in branches[0] if all(text in branch for branch in branches[1:])]
    if not common:
        return [bound]
    found = [branches[0][text] for text in common]
    rests = [[part for text, part in branch.items() if text not in common] for branch in branches]
    if all(rests):
        sides = [all_of(rest) for rest in rests]
        tree = operand(sides[0], exp.Or, first=True)
        for side in sides[1:]:
            tree = exp.Or(this=tree, expression=operand(side, exp.Or))
        found.append(Bound(tree=tree, type="boolean", nullable=bound.nullable))
    return found


def all_of(conditions: list[Bound]) -> Bound:
    """One condition that holds when all of these do; there is at least one."""
    tree = conditions[0].tree if len(conditions) == 1 else operand(conditions[0], exp.And, first=True)
    for condition in conditions[1:]:
        tree = exp.And(this=tree, expression=operand(condition, exp.And))
    return Bound(tree=tree, type="boolean", nullable=any(condition.nullable for condition in conditions))
