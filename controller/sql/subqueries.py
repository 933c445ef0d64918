"""Subqueries in expressions: each becomes a join, so that it is maintained like any other.

EXISTS and IN that must hold are semi and anti joins. Elsewhere a subquery becomes a column that is joined to the
rows: of one row if it reads nothing of the query around it, by equality if it does. NOT IN needs to know whether
there is a null; that is one row as well, which hardly ever changes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from controller.sql import plans
from controller.sql.binding import (
    AGGREGATE,
    COMPARED,
    GENERAL,
    OUTER,
    Binder,
    Bound,
    Compiled,
    Scope,
    aggregates_in,
    all_of,
    marked,
    operand,
    sql_text,
)
from controller.sql.grouping import Grouping, Item, Keys
from controller.sql.joins import joined
from controller.sql.names import column_reference, unused_name
from controller.sql.refusals import SqlText
from controller.sql.relations import Column
from controller.sql.stages import alias, name_text, projected, selected, sql_stage

if TYPE_CHECKING:
    from controller.sql.selects import SelectCompiler

_TRUE = exp.Boolean(this=True)
_JOIN = "join with the subquery in FROM"
#: Compiles a query that may name columns of the scope around it: its compiler if it is one SELECT, else its rows.
Inner = Callable[[exp.Expr, Scope], "SelectCompiler | Compiled"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """Rows that are joined to those of the query, for the columns of one subquery."""

    kind: str
    right: Compiled
    conditions: tuple[Bound, ...] = ()

    @property
    def names(self) -> set[str]:
        return {column.name for column in self.right.columns}

    def attached(self, frame: Compiled, above: Callable[[exp.Expr], exp.Expr]) -> Compiled:
        """``above`` tells the conditions in terms of the frame."""
        conditions = [
            Bound(tree=_remarked(condition.tree, above(condition.tree)), type="boolean", nullable=True)
            for condition in self.conditions
        ]
        match self.kind:
            case "cross":
                columns = (*frame.columns, *self.right.columns)
                return Compiled(node=plans.join(frame.node, self.right.node, ()), columns=columns)
            case "scalar":
                [value] = self.right.columns
                own = selected([(c.name, column_reference(c.name)) for c in frame.columns], alias(1))
                inner = f"(SELECT {name_text(value.name)} FROM {alias(2)}) AS {name_text(value.name)}"
                text = own.replace(f" FROM {alias(1)}", f", {inner} FROM {alias(1)}")
                why = "a subquery of one value that is no aggregate is asked anew; use max, or a join"
                return sql_stage([(frame, ()), (self.right, ())], text, (*frame.columns, value), why)
            case _:
                return joined(self.kind, frame, self.right, conditions)


def _remarked(old: exp.Expr, new: exp.Expr) -> exp.Expr:
    return marked(new, COMPARED, old.meta[COMPARED]) if COMPARED in old.meta else new


class Subqueries:
    """The subqueries of one SELECT; ``attachments`` are to be joined before what names their columns."""

    def __init__(self, sql: SqlText, inner: Inner) -> None:
        self._sql = sql
        self._compile = inner
        #: Subqueries that were looked at already, by their trees: one is tried in several forms.
        self._known: dict[int, SelectCompiler | Compiled] = {}
        self._names: set[str] = set()
        self.attachments: list[Attachment] = []

    def taken(self) -> list[Attachment]:
        """What was attached since the last time."""
        attachments, self.attachments = self.attachments, []
        return attachments

    def _inner(self, tree: exp.Expr, scope: Scope) -> "SelectCompiler | Compiled":
        if id(tree) not in self._known:
            self._known[id(tree)] = self._compile(tree, scope)
        return self._known[id(tree)]

    def _fresh(self, what: str) -> str:
        return unused_name(f"_{what}", self._names)

    # --- where it must hold --------------------------------------------------------------------------------

    def existence(self, binder: Binder, node: exp.Expr) -> Attachment | None:
        """EXISTS or IN, perhaps negated, as a condition that must hold by itself; none if it is something else."""
        negated = False
        while isinstance(node, exp.Paren | exp.Not):
            negated ^= isinstance(node, exp.Not)
            node = node.this
        kind = "anti" if negated else "semi"
        if isinstance(node, exp.Exists) and not isinstance(node.args.get("expression"), exp.Lambda):
            link = self._linked(node, node.this, binder.scope)
            return None if link is None else Attachment(kind=kind, right=link.rows, conditions=tuple(link.conditions))
        if isinstance(node, exp.In) and node.args.get("query") is not None:
            return self._membership(binder, node, kind)
        return None

    def _membership(self, binder: Binder, node: exp.Expr, kind: str) -> Attachment | None:
        values = [binder.bind(item) for item in _tuple(node.this)]
        compiler = self._inner(node.args["query"], binder.scope)
        link = self._link(node, compiler, with_items=True)
        pairs = self._paired(binder, node, values, link.items)
        maybe = any(value.nullable for value in values) or any(column.nullable for column in link.items)
        if kind == "anti" and maybe:
            if not link.conditions and len(values) == 1:
                return None
            unless = all_of(pairs).tree.copy()
            # A row that may be equal, since one of the two is null, is as good as an equal one.
            tree = exp.Coalesce(this=unless, expressions=[_TRUE.copy()])
            pairs = [Bound(tree=tree, type="boolean", nullable=False)]
        return Attachment(kind=kind, right=link.rows, conditions=(*link.conditions, *pairs))

    def _paired(self, binder: Binder, at: exp.Expr, values: Sequence[Bound], items: Sequence[Column]) -> list[Bound]:
        if len(values) != len(items):
            raise self._sql.refusal(
                at, f"IN compares {len(values)} values with {len(items)} columns", hint="select as many"
            )
        pairs = []
        for value, item in zip(values, items, strict=True):
            other = Bound(tree=column_reference(item.name), type=item.type, nullable=item.nullable)
            pairs.append(_equal(binder, at, value, other))
        return pairs

    # --- as a value ----------------------------------------------------------------------------------------

    def bind(self, binder: Binder, node: exp.Expr) -> Bound:
        """A subquery anywhere in an expression."""
        if isinstance(node, exp.Exists):
            return self._exists(binder, node)
        if isinstance(node, exp.In):
            return self._in(binder, node)
        return self._scalar(binder, node)

    def _exists(self, binder: Binder, node: exp.Expr) -> Bound:
        link = self._linked(node, node.this, binder.scope)
        if link is None:
            inner = self._inner(node.this, binder.scope)
            rows = inner if isinstance(inner, Compiled) else inner.compile()
            name = self._fresh("exists")
            self._attach_flags(rows, {name: exp.GT(this=column_reference("n"), expression=exp.Literal.number(0))}, None)
            return Bound(tree=column_reference(name), type="boolean", nullable=False)
        if link.residual:
            raise self._sql.not_yet(node, "EXISTS with other conditions than equality here is", hint=_JOIN)
        name = self._fresh("exists")
        self._attach_marked(link.rows, name, link.conditions)
        return _present(name)

    def _in(self, binder: Binder, node: exp.Expr) -> Bound:
        [*values] = [binder.bind(item) for item in _tuple(node.this)]
        link = self._link(node, self._inner(node.args["query"], binder.scope), with_items=True)
        if link.conditions or len(values) != 1:
            raise self._sql.not_yet(node, "IN with such a subquery here is", hint=_JOIN)
        [pair] = self._paired(binder, node, values, link.items)
        [item] = link.items
        name, none, known = self._fresh("in"), self._fresh("none"), self._fresh("known")
        count = {"n": None, "m": column_reference(item.name)}
        zero = exp.Literal.number(0)
        self._attach_flags(
            link.rows,
            {
                none: exp.EQ(this=column_reference("n"), expression=zero),
                known: exp.EQ(this=column_reference("n"), expression=column_reference("m")),
            },
            count["m"],
        )
        self._attach_marked(link.rows, name, [pair])
        branches = [
            (_present(name).tree, exp.Boolean(this=True)),
            (column_reference(none), exp.Boolean(this=False)),
            (exp.Is(this=operand(values[0], exp.Is), expression=exp.Null()), _null_boolean()),
            (column_reference(known), exp.Boolean(this=False)),
        ]
        tree = exp.Case(ifs=[exp.If(this=test, true=value) for test, value in branches], default=_null_boolean())
        return Bound(tree=tree, type="boolean", nullable=True)

    def _attach_flags(self, rows: Compiled, flags: Mapping[str, exp.Expr], value: exp.Expr | None) -> None:
        """One row of conditions on how many rows, ``n``, and values, ``m``, there are."""
        aggregates: list[tuple[str, str, str | None]] = [("n", "count", None)]
        if value is not None:
            aggregates.append(("m", "count", sql_text(value)))
        counted = Compiled(
            node=plans.group(rows.node, (), tuple(aggregates)),
            columns=tuple(Column(name=name, type="bigint", nullable=False) for name, _, _ in aggregates),
        )
        items = [(Column(name=name, type="boolean", nullable=False), tree) for name, tree in flags.items()]
        self.attachments.append(Attachment(kind="cross", right=projected(counted, items)))

    def _attach_marked(self, rows: Compiled, name: str, conditions: Sequence[Bound]) -> None:
        """The different rows, which bear a mark that is null where none is met."""
        distinct = Compiled(node=plans.distinct(rows.node), columns=rows.columns)
        own = [(column, column_reference(column.name)) for column in rows.columns]
        mark = (Column(name=name, type="boolean", nullable=False), _TRUE.copy())
        right = projected(distinct, [*own, mark])
        self.attachments.append(Attachment(kind="left", right=right, conditions=tuple(conditions)))

    def _scalar(self, binder: Binder, node: exp.Expr) -> Bound:
        tree = node.this if isinstance(node, exp.Subquery) else node
        inner = self._inner(tree, binder.scope)
        if not isinstance(inner, Compiled):
            inner.prepare()
            if inner.links:
                return self._correlated(node, inner)
        rows = inner if isinstance(inner, Compiled) else inner.compile()
        if len(rows.columns) != 1:
            raise self._sql.refusal(node, "a subquery for one value has several columns", hint="select one")
        name, [column] = self._fresh("value"), rows.columns
        given = projected(rows, [(Column(name=name, type=column.type), column_reference(column.name))])
        single = not isinstance(inner, Compiled) and inner.gives_one_row
        self.attachments.append(Attachment(kind="cross" if single else "scalar", right=given))
        return Bound(tree=column_reference(name), type=column.type, nullable=True)

    def _correlated(self, node: exp.Expr, inner: "SelectCompiler") -> Bound:
        """An aggregate of the rows that equal something of the query around: grouped by that, and joined."""
        if not inner.gives_one_row or len(inner.items) != 1:
            hint = f"aggregate it, as in max(...), or {_JOIN}"
            raise self._sql.not_yet(node, "a subquery for one value that is no aggregate is", hint=hint)
        pairs, residual = _separated(inner.links)
        if residual:
            raise self._sql.not_yet(node, "a subquery for one value with other conditions than equality is", hint=_JOIN)
        [item] = inner.items
        keys = tuple(own for _, own in pairs)
        grouping = Grouping(self._sql, Keys(keys=keys), [item], [])
        grouped = grouping.grouped(inner.rows())
        found, value = self._fresh("found"), self._fresh("value")
        columns = [(Column(name=value, type=item.bound.type), grouping.above(item.bound.tree))]
        columns.append((Column(name=found, type="boolean", nullable=False), _TRUE.copy()))
        conditions = []
        for (outer, own), place in zip(pairs, range(len(pairs)), strict=True):
            name = self._fresh(f"key{place + 1}")
            columns.append((Column(name=name, type=own.type, nullable=own.nullable), grouping.above(own.tree)))
            conditions.append(_equality(outer, column_reference(name), own.type))
        right = projected(grouped, columns)
        self.attachments.append(Attachment(kind="left", right=right, conditions=tuple(conditions)))
        empty = _of_nothing(item)
        if empty is None:
            return Bound(tree=column_reference(value), type=item.bound.type, nullable=True)
        tree: exp.Expr = exp.Case(ifs=[exp.If(this=_present(found).tree, true=column_reference(value))], default=empty)
        return Bound(tree=tree, type=item.bound.type, nullable=True)

    # --- links to the query around -------------------------------------------------------------------------

    def _linked(self, at: exp.Expr, tree: exp.Expr, scope: Scope) -> "_Link | None":
        """The rows of a query that names columns of the one around it; none if it does not."""
        inner = self._inner(tree, scope)
        if isinstance(inner, Compiled):
            return None
        inner.prepare()
        return self._link(at, inner, with_items=False) if inner.links else None

    def _link(self, at: exp.Expr, inner: "SelectCompiler | Compiled", *, with_items: bool) -> "_Link":
        items: list[tuple[Column, exp.Expr]] = []
        if not isinstance(inner, Compiled):
            inner.prepare()
        if isinstance(inner, Compiled) or not inner.links:
            rows = inner if isinstance(inner, Compiled) else inner.compile()
            items = [
                (Column(name=self._fresh("item"), type=c.type, nullable=c.nullable), column_reference(c.name))
                for c in rows.columns
            ]
            return _Link(rows=projected(rows, items), items=tuple(column for column, _ in items))
        if inner.is_grouped or inner.is_ordered:
            raise self._sql.not_yet(at, "a subquery that groups or limits rows of equal keys is", hint=_JOIN)
        rows = inner.rows()
        pairs, residual = _separated(inner.links)
        shown = []
        if with_items:
            for item in inner.items:
                column = Column(name=self._fresh("item"), type=item.bound.type, nullable=item.bound.nullable)
                shown.append(column)
                items.append((column, item.bound.tree))
        conditions = []
        for outer, own in pairs:
            name = self._fresh("key")
            items.append((Column(name=name, type=own.type, nullable=own.nullable), own.tree))
            conditions.append(_equality(outer, column_reference(name), own.type))
        names: dict[str, str] = {}
        conditions += [self._renamed(condition, rows, names, items) for condition in residual]
        right = projected(rows, items)
        return _Link(rows=right, items=tuple(shown), conditions=tuple(conditions), residual=bool(residual))

    def _renamed(
        self, condition: Bound, rows: Compiled, names: dict[str, str], items: list[tuple[Column, exp.Expr]]
    ) -> Bound:
        """A condition over columns of both queries, the inner ones under names that the outer one has not."""
        types = {column.name: column for column in rows.columns}

        def rename(node: exp.Expr) -> exp.Expr:
            if not isinstance(node, exp.Column) or OUTER in node.meta:
                return node
            if node.name not in names:
                names[node.name] = self._fresh("column")
                own = types[node.name]
                column = Column(name=names[node.name], type=own.type, nullable=own.nullable)
                items.append((column, column_reference(node.name)))
            return column_reference(names[node.name])

        return Bound(tree=condition.tree.copy().transform(rename), type="boolean", nullable=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Link:
    """Rows of a subquery under names of their own, and the conditions on which they meet those of the query around."""

    rows: Compiled
    items: tuple[Column, ...] = ()
    conditions: tuple[Bound, ...] = ()
    residual: bool = False


def _separated(links: Sequence[Bound]) -> tuple[list[tuple[exp.Expr, Bound]], list[Bound]]:
    """Equalities of something outside with something inside, and the other conditions."""
    pairs, residual = [], []
    for link in links:
        pair = _pair(link)
        if pair is None:
            residual.append(link)
        else:
            pairs.append(pair)
    return pairs, residual


def _pair(link: Bound) -> tuple[exp.Expr, Bound] | None:
    if not isinstance(link.tree, exp.EQ):
        return None
    sides = (link.tree.this.unnest(), link.tree.expression.unnest())
    for outer, own in (sides, sides[::-1]):
        theirs, ours = list(outer.find_all(exp.Column)), list(own.find_all(exp.Column))
        if theirs and ours and all(OUTER in c.meta for c in theirs) and not any(OUTER in c.meta for c in ours):
            type = str(link.tree.meta.get(COMPARED, "unknown"))
            return outer, Bound(tree=own, type=type, nullable=True)
    return None


def _tuple(node: exp.Expr) -> list[exp.Expr]:
    return list(node.expressions) if isinstance(node, exp.Tuple) else [node]


def _equality(outer: exp.Expr, own: exp.Expr, type: str) -> Bound:
    tree = exp.EQ(this=operand(Bound(tree=outer, type=type, nullable=True), exp.EQ), expression=own)
    return Bound(tree=marked(tree, COMPARED, type), type="boolean", nullable=True)


def _equal(binder: Binder, at: exp.Expr, value: Bound, other: Bound) -> Bound:
    (ours, theirs), type = binder.aligned(at, [value, other], exactly=True)
    tree = exp.EQ(this=operand(ours, exp.EQ), expression=operand(theirs, exp.EQ))
    nullable = value.nullable or other.nullable
    return Bound(tree=marked(tree, COMPARED, type), type="boolean", nullable=nullable)


def _present(name: str) -> Bound:
    tree = exp.Not(this=exp.Is(this=column_reference(name), expression=exp.Null()))
    return Bound(tree=tree, type="boolean", nullable=False)


def _null_boolean() -> exp.Expr:
    return exp.Cast(this=exp.Null(), to=exp.DataType.build("boolean", dialect="spark"))


def _of_nothing(item: Item) -> exp.Expr | None:
    """What a select list of aggregates gives over no rows; none if that is null."""
    tree = item.bound.tree.copy()
    if tree.meta.get(AGGREGATE) and not _counts(tree):
        return None

    def empty(node: exp.Expr) -> exp.Expr:
        if AGGREGATE not in node.meta:
            return node
        if _counts(node):
            return exp.Cast(this=exp.Literal.number(0), to=exp.DataType.build("bigint", dialect="spark"))
        type = exp.DataType.build(str(node.meta[AGGREGATE]), dialect="spark")
        inner: exp.Expr = exp.Null()
        if isinstance(node, exp.Anonymous) and node.name.lower().startswith("collect"):
            inner = marked(exp.Array(expressions=[]), GENERAL)
        return exp.Cast(this=inner, to=type)

    return tree.transform(empty) if any(aggregates_in(tree)) else tree


def _counts(node: exp.Expr) -> bool:
    name = node.name.lower() if isinstance(node, exp.Anonymous) else node.key
    return isinstance(node, exp.Count | exp.CountIf | exp.ApproxDistinct) or name in ("count_if", "regr_count")
