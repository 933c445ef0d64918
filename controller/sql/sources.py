"""FROM: the relations that a SELECT reads, joined on every equality that its conditions offer.

Where joins are inner, the conditions of every ON and of WHERE are one set that must hold. Each is applied as early
as it can be: on one relation before it is joined, as an equality of a join, or as a filter above one. Relations are
joined from left to right, except that one without an equality waits for the others; joined on nothing, each row of
one side meets each of the other.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from controller.sql import plans
from controller.sql.binding import COMPARED, Binding, Bound, Compiled, Scope, ScopeColumn, all_of, is_simple
from controller.sql.names import column_reference, duplicate_name, shown, unused_name
from controller.sql.refusals import SqlText
from controller.sql.relations import Column
from controller.sql.stages import extended, filtered, projected
from controller.sql.type_rules import UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One element of FROM."""

    alias: str | None
    compiled: Compiled


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Rows to be joined; ``columns`` are what they are called in the plan, in the order of the rows' own."""

    rows: Compiled
    columns: tuple[ScopeColumn, ...]

    @property
    def is_plain(self) -> bool:
        """Whether the plan calls every column by its own name."""
        return all(column.plan_name == own.name for column, own in zip(self.columns, self.rows.columns, strict=True))


def part_of(rows: Compiled) -> Part:
    """Rows that bear the names of the plan already."""
    columns = (
        ScopeColumn(name=column.name, type=column.type, nullable=column.nullable, plan_name=column.name)
        for column in rows.columns
    )
    return Part(rows=rows, columns=tuple(columns))


def scope_of(sources: Sequence[Source]) -> Scope:
    """What expressions over these sources can name; columns that share a name get plan names of their own."""
    names = Counter(column.name.lower() for source in sources for column in source.compiled.columns)
    # Those that keep their names first, so that no made-up name displaces one.
    taken = {name for name, count in names.items() if count == 1}
    bindings = []
    for source in sources:
        columns = []
        for column in source.compiled.columns:
            plan_name = column.name
            if names[column.name.lower()] > 1:
                plan_name = unused_name(f"{source.alias or 'from'}.{column.name}", taken)
            columns.append(
                ScopeColumn(name=column.name, type=column.type, nullable=column.nullable, plan_name=plan_name)
            )
        bindings.append(Binding(alias=source.alias, columns=tuple(columns)))
    return Scope(bindings=tuple(bindings))


def check_aliases(sql: SqlText, at: exp.Expr, sources: Sequence[Source]) -> None:
    twice = duplicate_name(source.alias for source in sources if source.alias)
    if twice is not None:
        raise sql.refusal(at, f"table {shown(twice)} is there twice", hint="give one of them another name with AS")


def columns_of(tree: exp.Expr) -> set[str]:
    """The plan names that a bound expression reads."""
    return {column.name for column in tree.find_all(exp.Column)}


def _renamed(tree: exp.Expr, names: Mapping[str, str]) -> exp.Expr:
    def rename(node: exp.Expr) -> exp.Expr:
        return column_reference(names[node.name]) if isinstance(node, exp.Column) else node

    return tree.transform(rename)


class Joiner:
    """Joins rows by inner joins; what it gives bears the names of the plan."""

    def __init__(self, parts: Sequence[Part], conditions: Sequence[Bound], read: set[str], *, narrow: bool) -> None:
        """``read`` are the plan names that the rest of the query needs; others go, unless a sole part may be wide."""
        self._parts = parts
        self._owner = {column.plan_name: place for place, part in enumerate(parts) for column in part.columns}
        #: Conditions not yet applied, in the order in which they were written.
        self._pending = list(conditions)
        self._read = set(read)
        self._narrow = narrow

    def build(self) -> Compiled:
        if len(self._parts) == 1 and self._parts[0].is_plain and not self._narrow:
            return self._filtered(self._parts[0].rows, {0})
        own = [self._taken(place) for place in range(len(self._parts))]
        for condition in self._pending:
            self._read |= columns_of(condition.tree)
        sides = [self._side(place, conditions) for place, conditions in enumerate(own)]
        joined, frame = {0}, self._filtered(sides[0], {0})
        waiting = list(range(1, len(sides)))
        while waiting:
            place = next((place for place in waiting if self._equalities(joined, place)), waiting[0])
            waiting.remove(place)
            equalities = self._equalities(joined, place)
            self._pending = [condition for condition in self._pending if id(condition) not in equalities]
            frame = _joined(frame, sides[place], list(equalities.values()))
            joined.add(place)
            frame = self._filtered(frame, joined)
        return frame

    def _sources_of(self, tree: exp.Expr) -> set[int]:
        return {self._owner[name] for name in columns_of(tree)}

    def _taken(self, place: int) -> list[Bound]:
        """The conditions on one source alone, no longer pending."""
        own = [condition for condition in self._pending if self._sources_of(condition.tree) == {place}]
        self._pending = [condition for condition in self._pending if self._sources_of(condition.tree) != {place}]
        return own

    def _side(self, place: int, conditions: list[Bound]) -> Compiled:
        """One source as a side of a join: its own conditions applied, and only what is read above, by plan names."""
        part = self._parts[place]
        rows = part.rows
        pairs = list(zip(part.columns, rows.columns, strict=True))
        if conditions:
            names = {column.plan_name: own.name for column, own in pairs}
            condition = all_of(conditions)
            tree = _renamed(condition.tree, names)
            rows = filtered(rows, Bound(tree=tree, type="boolean", nullable=condition.nullable))
        # A collection has columns: one that only multiplies the others keeps its first.
        kept = [pair for pair in pairs if pair[0].plan_name in self._read] or pairs[:1]
        if [column.plan_name for column, _ in kept] == [own.name for _, own in pairs]:
            return rows
        return projected(rows, [(_column(column), column_reference(own.name)) for column, own in kept])

    def _equalities(self, joined: set[int], place: int) -> dict[int, tuple[Bound, Bound]]:
        """The pending equalities between what is joined and one more source, left side first, by their condition."""
        found = {}
        for condition in self._pending:
            sides = equated(condition)
            for left, right in (sides, sides[::-1]) if sides else ():
                known = self._sources_of(left.tree)
                if known and known <= joined and self._sources_of(right.tree) == {place}:
                    found[id(condition)] = (left, right)
        return found

    def _filtered(self, frame: Compiled, joined: set[int]) -> Compiled:
        """The rows with every pending condition applied that reads nothing else."""
        due = [condition for condition in self._pending if self._sources_of(condition.tree) <= joined]
        self._pending = [condition for condition in self._pending if not self._sources_of(condition.tree) <= joined]
        return filtered(frame, all_of(due)) if due else frame


def equated(condition: Bound) -> list[Bound]:
    """The two sides of an equality; they have one type, since binding converted them."""
    if not isinstance(condition.tree, exp.EQ):
        return []
    sides = (condition.tree.this.unnest(), condition.tree.expression.unnest())
    type = condition.tree.meta.get(COMPARED, UNKNOWN)
    return [Bound(tree=side, type=type, nullable=True) for side in sides]


def _column(column: ScopeColumn) -> Column:
    return Column(name=column.plan_name, type=column.type, nullable=column.nullable)


def _joined(left: Compiled, right: Compiled, on: list[tuple[Bound, Bound]]) -> Compiled:
    """An inner join; keys that only Spark computes become columns first."""
    texts = []
    for ours, theirs in on:
        left, our_text = _as_key(left, ours, right)
        right, their_text = _as_key(right, theirs, left)
        texts.append((our_text, their_text))
    columns = (*left.columns, *right.columns)
    return Compiled(node=plans.join(left.node, right.node, tuple(texts)), columns=columns)


def _as_key(frame: Compiled, key: Bound, other: Compiled) -> tuple[Compiled, str]:
    if is_simple(key.tree):
        return frame, key.text
    frame, [name] = extended(frame, [key], beside=other.columns)
    return frame, column_reference(name).sql(dialect="spark")
