"""Joins of every kind: a FROM as a sequence of inner joins, with the others between them.

Inner joins next to each other are joined together, on any equality. Outer, semi and anti joins take what is left of
them as one and are computed by Spark: for touched keys if their ON has an equality between the sides, anew if not.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from controller.sql.binding import (
    COMPARED,
    Binder,
    Binding,
    Bound,
    Compiled,
    Scope,
    all_of,
    conjuncts,
    marked,
    operand,
)
from controller.sql.names import same_name, shown
from controller.sql.refusals import SqlText, did_you_mean
from controller.sql.sources import Joiner, Part, Source, columns_of, part_of, scope_of
from controller.sql.stages import alias, filtered, name_text, sql_stage
from controller.sql.type_rules import UNKNOWN

#: How the text of a node writes each kind.
KINDS: Mapping[str, str] = {
    "inner": "JOIN",
    "left": "LEFT JOIN",
    "right": "RIGHT JOIN",
    "full": "FULL JOIN",
    "semi": "LEFT SEMI JOIN",
    "anti": "LEFT ANTI JOIN",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """One element of FROM behind the first, and how it is joined."""

    kind: str
    source: Source
    node: exp.Expr
    on: exp.Expr | None = None
    using: tuple[str, ...] = ()
    natural: bool = False


def joined(kind: str, left: Compiled, right: Compiled, conditions: Sequence[Bound]) -> Compiled:
    """A join of two sides whose columns have different names, with these conditions on which rows meet."""
    ours, theirs = ({column.name for column in side.columns} for side in (left, right))
    # What concerns only the side whose rows may go unmet decides which of its rows are there to be met.
    if kind in ("left", "semi", "anti"):
        right, conditions = _pushed(right, theirs, conditions)
    elif kind == "right":
        left, conditions = _pushed(left, ours, conditions)
    keys = [pair for condition in conditions if (pair := _key(condition, ours, theirs)) is not None]
    columns = left.columns
    if kind not in ("semi", "anti"):
        nulled = (kind in ("right", "full"), kind in ("left", "full"))
        sides = zip((left, right), nulled, strict=True)
        columns = tuple(
            replace(column, nullable=True) if null else column for side, null in sides for column in side.columns
        )
    names = ", ".join(name_text(column.name) for column in columns)
    on = all_of(list(conditions)).text if conditions else "TRUE"
    text = f"SELECT {names} FROM {alias(1)} {KINDS[kind]} {alias(2)} ON {on}"
    if keys:
        why = f"rows meet only where {' and '.join(f'{ours.text} = {theirs.text}' for ours, theirs in keys)}"
    else:
        why = "the join has no equality between its sides; add one to ON"
    return sql_stage([(left, [ours for ours, _ in keys]), (right, [theirs for _, theirs in keys])], text, columns, why)


def _pushed(side: Compiled, names: set[str], conditions: Sequence[Bound]) -> tuple[Compiled, list[Bound]]:
    own = [condition for condition in conditions if (read := columns_of(condition.tree)) and read <= names]
    rest = [condition for condition in conditions if condition not in own]
    return (filtered(side, all_of(own)) if own else side), rest


def _key(condition: Bound, ours: set[str], theirs: set[str]) -> tuple[Bound, Bound] | None:
    """The two sides of an equality between left and right, nulls being equal or not."""
    if not isinstance(condition.tree, exp.EQ | exp.NullSafeEQ):
        return None
    sides = (condition.tree.this.unnest(), condition.tree.expression.unnest())
    for left, right in (sides, sides[::-1]):
        reads = columns_of(left), columns_of(right)
        if all(reads) and reads[0] <= ours and reads[1] <= theirs:
            type = str(condition.tree.meta.get(COMPARED, UNKNOWN))
            return Bound(tree=left, type=type, nullable=True), Bound(tree=right, type=type, nullable=True)
    return None


class From:
    """One FROM: what expressions can name over it, and its rows."""

    def __init__(
        self, sql: SqlText, first: Source, joins: Sequence[Join], bind: Callable[[Scope], Binder], outer: Scope | None
    ) -> None:
        self._sql = sql
        self._joins = joins
        self._bind = bind
        sources = [first, *(join.source for join in joins)]
        bindings = scope_of(sources).bindings
        self._parts = [
            Part(rows=source.compiled, columns=binding.columns)
            for source, binding in zip(sources, bindings, strict=True)
        ]
        self._visible: list[Binding] = [bindings[0]]
        self._merged: dict[str, Bound] = {}
        self._outer = outer
        #: The conditions of each join.
        self._ons = [self._bound(join, binding) for join, binding in zip(joins, bindings[1:], strict=True)]
        self.scope = Scope(bindings=tuple(self._visible), merged=self._merged, outer=outer)

    def _bound(self, join: Join, right: Binding) -> list[Bound]:
        """The conditions of a join; what it leaves to be seen is noted."""
        left = Scope(bindings=tuple(self._visible), merged=dict(self._merged))
        names = list(join.using)
        if join.natural:
            ours = [column.name for binding in left.bindings for column in binding.columns]
            names = [column.name for column in right.columns if any(same_name(column.name, name) for name in ours)]
        conditions = [self._equal(join, left, right, name) for name in dict.fromkeys(names)]
        if join.on is not None:
            scope = replace(left, bindings=(*left.bindings, right))
            conditions += conjuncts(self._bind(scope).condition(join.on))
        if join.kind in ("semi", "anti"):
            return conditions
        if join.kind in ("right", "full"):
            self._visible = [_nullable(binding) for binding in self._visible]
        self._visible.append(_nullable(right) if join.kind in ("left", "full") else right)
        return conditions

    def _equal(self, join: Join, left: Scope, right: Binding, name: str) -> Bound:
        column = exp.Column(this=exp.Identifier(this=name))
        sides = []
        for scope in (left, Scope(bindings=(right,))):
            known = [c.name for binding in scope.bindings for c in binding.columns]
            if not any(same_name(name, other) for other in known):
                raise self._sql.refusal(
                    join.node, f"unknown column {shown(name)} in USING", hint=did_you_mean(name, known)
                )
            with self._sql.placing(join.node):
                sides.append(scope.find(self._sql, column))
        (ours, theirs), type = self._bind(left).aligned(join.node, sides, exactly=True)
        if join.kind == "full":
            both = exp.Coalesce(this=ours.tree.copy(), expressions=[theirs.tree.copy()])
            merged = Bound(tree=both, type=type, nullable=ours.nullable or theirs.nullable)
        else:
            merged = sides[1] if join.kind == "right" else sides[0]
        if join.kind not in ("semi", "anti"):
            self._merged[name.lower()] = merged
        tree = exp.EQ(this=operand(ours, exp.EQ), expression=operand(theirs, exp.EQ))
        return Bound(tree=marked(tree, COMPARED, type), type="boolean", nullable=True)

    @property
    def names(self) -> set[str]:
        """The plan names of all columns."""
        return {column.plan_name for part in self._parts for column in part.columns}

    def build(self, where: Sequence[Bound], read: set[str], *, narrow: bool = False) -> Compiled:
        """The rows for which the conditions hold, with at least the columns that are ``read``."""
        segment, conditions = [self._parts[0]], []
        later = [columns_of(bound.tree) for bounds in (*self._ons, where) for bound in bounds]
        wanted = read.union(*later)
        for join, part, ons in zip(self._joins, self._parts[1:], self._ons, strict=True):
            if join.kind == "inner" and not _null_safe_only(ons):
                segment.append(part)
                conditions += ons
                continue
            left = Joiner(segment, conditions, wanted, narrow=True).build()
            right = Joiner([part], [], wanted, narrow=True).build()
            segment, conditions = [part_of(joined(join.kind, left, right, ons))], []
        return Joiner(segment, [*conditions, *where], read, narrow=narrow).build()


def _null_safe_only(ons: Sequence[Bound]) -> bool:
    kinds = [type(on.tree) for on in ons]
    return exp.NullSafeEQ in kinds and exp.EQ not in kinds


def _nullable(binding: Binding) -> Binding:
    return Binding(alias=binding.alias, columns=tuple(replace(column, nullable=True) for column in binding.columns))
