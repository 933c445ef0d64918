"""FROM: the relations that a SELECT reads, joined on every equality that its conditions offer.

All joins are inner, so the conditions of every ON and of WHERE are one set that must hold. Each is applied as early
as it can be: on one relation before it is joined, as an equality of a join, or as a filter above one. Relations are
joined from left to right, except that one without an equality waits for the others; joined on nothing, each row of
one side meets each of the other.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from controller.sql import plans
from controller.sql.binding import Binding, Bound, Compiled, Scope, ScopeColumn, all_of, sql_text
from controller.sql.names import column_reference, duplicate_name, shown, unused_name
from controller.sql.refusals import SqlText
from reconcile.plan_tree import Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One element of FROM."""

    alias: str | None
    compiled: Compiled


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
    """Builds the plan of one FROM."""

    def __init__(self, sources: Sequence[Source], scope: Scope, conditions: Sequence[Bound], read: set[str]) -> None:
        """``read`` are the plan names that the rest of the query needs."""
        self._sources = sources
        self._scope = scope
        self._owner = {
            column.plan_name: place for place, binding in enumerate(scope.bindings) for column in binding.columns
        }
        #: Conditions not yet applied, in the order in which they were written.
        self._pending = list(conditions)
        self._read = set(read)

    def build(self) -> Node:
        if len(self._sources) == 1:
            return self._filtered(self._sources[0].compiled.node, {0})
        own = [self._taken(place) for place in range(len(self._sources))]
        for condition in self._pending:
            self._read |= columns_of(condition.tree)
        sides = [self._side(place, conditions) for place, conditions in enumerate(own)]
        joined, node = {0}, sides[0]
        waiting = list(range(1, len(sides)))
        while waiting:
            place = next((place for place in waiting if self._equalities(joined, place)), waiting[0])
            waiting.remove(place)
            equalities = self._equalities(joined, place)
            self._pending = [condition for condition in self._pending if id(condition) not in equalities]
            node = plans.join(node, sides[place], tuple(equalities.values()))
            joined.add(place)
            node = self._filtered(node, joined)
        return node

    def _sources_of(self, tree: exp.Expr) -> set[int]:
        return {self._owner[name] for name in columns_of(tree)}

    def _taken(self, place: int) -> list[Bound]:
        """The conditions on one source alone, no longer pending."""
        own = [condition for condition in self._pending if self._sources_of(condition.tree) == {place}]
        self._pending = [condition for condition in self._pending if self._sources_of(condition.tree) != {place}]
        return own

    def _side(self, place: int, conditions: list[Bound]) -> Node:
        """One source as a side of a join: its own conditions applied, and only what is read above, by plan names."""
        node = self._sources[place].compiled.node
        columns = self._scope.bindings[place].columns
        if conditions:
            names = {column.plan_name: column.name for column in columns}
            node = plans.filtered(node, sql_text(_renamed(all_of(conditions).tree, names)))
        # A collection has columns: one that only multiplies the others keeps its first.
        kept = [column for column in columns if column.plan_name in self._read] or [columns[0]]
        if [column.plan_name for column in kept] == [column.name for column in columns]:
            return node
        return plans.project(
            node, tuple((column.plan_name, sql_text(column_reference(column.name))) for column in kept)
        )

    def _equalities(self, joined: set[int], place: int) -> dict[int, tuple[str, str]]:
        """The pending equalities between what is joined and one more source, left side first, by their condition."""
        found = {}
        for condition in self._pending:
            if not isinstance(condition.tree, exp.EQ):
                continue
            sides = [condition.tree.this.unnest(), condition.tree.expression.unnest()]
            for left, right in (sides, sides[::-1]):
                known = self._sources_of(left)
                if known and known <= joined and self._sources_of(right) == {place}:
                    found[id(condition)] = (sql_text(left), sql_text(right))
        return found

    def _filtered(self, node: Node, joined: set[int]) -> Node:
        """The node with every pending condition applied that reads nothing else."""
        due = [condition for condition in self._pending if self._sources_of(condition.tree) <= joined]
        self._pending = [condition for condition in self._pending if not self._sources_of(condition.tree) <= joined]
        return plans.filtered(node, all_of(due).text) if due else node
