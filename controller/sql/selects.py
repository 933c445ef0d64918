"""SELECT: one select list over what FROM, WHERE, GROUP BY and HAVING leave."""

from collections.abc import Iterator, Sequence

from sqlglot import exp

from controller.sql import plans
from controller.sql.binding import Bound, Compiled, Scope, ScopeColumn, conjuncts, sql_text
from controller.sql.expressions import binder
from controller.sql.functions import AGGREGATES
from controller.sql.grouping import Grouping, Item
from controller.sql.names import column_reference, duplicate_name, same_name, shown, validate_column_name
from controller.sql.refusals import SqlText, did_you_mean
from controller.sql.relations import Column
from controller.sql.sources import Joiner, Source, columns_of, scope_of
from controller.sql.type_rules import VOID
from reconcile.plan_tree import Node

_NO_AGGREGATES = {
    "ON": "aggregate in a subquery in FROM",
    "WHERE": "conditions on aggregates belong in HAVING",
    "GROUP BY": "group by what is aggregated over, or use a subquery in FROM",
}


class SelectCompiler:
    """Compiles one SELECT whose sources are compiled; ``ons`` are conditions with how many sources each can see."""

    def __init__(
        self, sql: SqlText, select: exp.Select, sources: Sequence[Source], ons: Sequence[tuple[int, exp.Expr]]
    ) -> None:
        self._sql = sql
        self._select = select
        self._sources = sources
        self._scope = scope_of(sources)
        self._ons = ons

    def compile(self) -> Compiled:
        items = self._items()
        self._check_items(items)
        conditions = self._conditions()
        keys = self._keys(items)
        having = self._having(items)
        asked = [*(item.bound for item in items), *([having] if having else [])]
        grouped = keys is not None or any(bound.tree.find(*AGGREGATES) for bound in asked)
        if having is not None and not grouped:
            raise self._sql.refusal(self._select.args["having"], "HAVING without aggregates", hint="use WHERE")
        read = {name for bound in [*asked, *(keys or [])] for name in columns_of(bound.tree)}
        node = Joiner(self._sources, self._scope, conditions, read).build()
        if grouped:
            node = self._grouped(node, Grouping(self._sql, keys or [], items, having), items, having)
        else:
            node = _projected(node, self._joined_names(read), [(item.name, item.bound.text) for item in items])
        if self._select.args.get("distinct") is not None:
            node = plans.distinct(node)
        columns = (Column(name=item.name, type=item.bound.type, nullable=item.bound.nullable) for item in items)
        texts = tuple(item.bound.text for item in items)
        return Compiled(node=node, columns=tuple(columns), scope=self._scope, texts=texts)

    def _conditions(self) -> list[Bound]:
        bound = []
        for visible, on in self._ons:
            scope = self._scope.first(visible)
            bound.append(binder(self._sql, scope, aggregates_refused=_NO_AGGREGATES["ON"]).condition(on))
        where = self._select.args.get("where")
        if where is not None:
            rows = binder(self._sql, self._scope, aggregates_refused=_NO_AGGREGATES["WHERE"])
            bound.append(rows.condition(where.this))
        return [part for condition in bound for part in conjuncts(condition)]

    # --- the select list -----------------------------------------------------------------------------------

    def _items(self) -> list[Item]:
        bind = binder(self._sql, self._scope)
        items: list[Item] = []
        for node in self._select.expressions:
            star = node.this if isinstance(node, exp.Column) else node
            if isinstance(star, exp.Star):
                items.extend(self._starred(node, star))
                continue
            if isinstance(node, exp.Alias) and not isinstance(node.args.get("alias"), exp.Identifier):
                raise self._sql.refusal(node, f"{shown(node.alias)} is not a name", hint="put it in backticks")
            written = node.this if isinstance(node, exp.Alias) else node
            bound = bind.bind(written)
            items.append(Item(name=_output_name(node, written), bound=bound, node=node))
        return items

    def _starred(self, node: exp.Expr, star: exp.Star) -> Iterator[Item]:
        if any(star.args.values()):
            raise self._sql.not_yet(node, "* with exceptions is", hint="list the columns")
        table = node.table if isinstance(node, exp.Column) else ""
        aliases = [binding.alias or "" for binding in self._scope.bindings]
        if table and not any(same_name(alias, table) for alias in aliases):
            raise self._sql.refusal(
                node, f"unknown table {shown(table)}", hint=did_you_mean(table, filter(None, aliases))
            )
        for binding in self._scope.bindings:
            if not table or same_name(binding.alias or "", table):
                for column in binding.columns:
                    yield Item(name=column.name, bound=_bound_column(column, node), node=node)

    def _check_items(self, items: Sequence[Item]) -> None:
        for item in items:
            with self._sql.placing(
                item.node, hint="" if isinstance(item.node, exp.Alias) else "give it a name with AS"
            ):
                validate_column_name(item.name)
            if item.bound.type == VOID:
                hint = "give it one, as in CAST(NULL AS STRING)"
                raise self._sql.refusal(item.node, f"column {shown(item.name)} has no type", hint=hint)
        twice = duplicate_name(item.name for item in items)
        if twice is not None:
            second = [item for item in items if same_name(item.name, twice)][1]
            hint = "give one of them another name with AS"
            raise self._sql.refusal(second.node, f"two columns are named {shown(twice)}", hint=hint)

    # --- grouping ------------------------------------------------------------------------------------------

    def _keys(self, items: Sequence[Item]) -> list[Bound] | None:
        """What is grouped by; none without a GROUP BY."""
        group = self._select.args.get("group")
        if group is None:
            return None
        kinds = (exp.Rollup, exp.Cube, exp.GroupingSets)
        more = any(value for name, value in group.args.items() if name != "expressions")
        if more or any(isinstance(node, kinds) for node in group.expressions):
            raise self._sql.not_yet(group, "GROUP BY ALL, ROLLUP, CUBE and GROUPING SETS are", hint="list the columns")
        bind = binder(self._sql, self._with_given(items), aggregates_refused=_NO_AGGREGATES["GROUP BY"])
        keys = []
        for node in group.expressions:
            key = self._ordinal(node, items) if _is_number(node) else bind.bind(node)
            if key.tree.find(*AGGREGATES):
                raise self._sql.refusal(node, "an aggregate cannot be grouped by", hint=_NO_AGGREGATES["GROUP BY"])
            if key.type == VOID:
                raise self._sql.refusal(node, "NULL cannot be grouped by", hint="group by a column")
            keys.append(key)
        return keys

    def _ordinal(self, node: exp.Expr, items: Sequence[Item]) -> Bound:
        place = ordinal(self._sql, node, len(items), "GROUP BY")
        return items[place].bound

    def _with_given(self, items: Sequence[Item]) -> Scope:
        given = {item.name.lower(): item.bound for item in items if isinstance(item.node, exp.Alias)}
        return Scope(bindings=self._scope.bindings, given=given)

    def _having(self, items: Sequence[Item]) -> Bound | None:
        having = self._select.args.get("having")
        if having is None:
            return None
        return binder(self._sql, self._with_given(items)).condition(having.this)

    def _grouped(self, input: Node, grouping: Grouping, items: Sequence[Item], having: Bound | None) -> Node:
        node = grouping.node(input)
        if having is not None:
            node = plans.filtered(node, grouping.above(having.tree))
        return _projected(node, grouping.names, [(item.name, grouping.above(item.bound.tree)) for item in items])

    def _joined_names(self, read: set[str]) -> list[str] | None:
        """The columns that FROM leaves, in order, where they are all that is read."""
        names = [column.plan_name for binding in self._scope.bindings for column in binding.columns]
        return names if set(names) <= read else None


def _projected(input: Node, names: list[str] | None, texts: list[tuple[str, str]]) -> Node:
    """The input under these names, itself if it has exactly these columns already."""
    if names is not None and texts == [(name, sql_text(column_reference(name))) for name in names]:
        return input
    return plans.project(input, tuple(texts))


def _bound_column(column: ScopeColumn, written: exp.Expr) -> Bound:
    tree = column_reference(column.plan_name)
    tree.update_positions(written if "start" in written.meta else written.find(exp.Identifier))
    return Bound(tree=tree, type=column.type, nullable=column.nullable)


def _is_number(node: exp.Expr) -> bool:
    return isinstance(node, exp.Literal) and not node.is_string


def ordinal(sql: SqlText, node: exp.Expr, count: int, clause: str) -> int:
    """The place in the select list that a number in GROUP BY or ORDER BY means, from zero."""
    if not (node.name.isdigit() and len(node.name) <= 9 and 1 <= int(node.name) <= count):
        raise sql.refusal(node, f"{clause} {node.name} means no column", hint=f"there are columns 1 to {count}")
    return int(node.name) - 1


def _output_name(node: exp.Expr, written: exp.Expr) -> str:
    """The name of an output column: as given, that of the column itself, or the text of the expression."""
    if isinstance(node, exp.Alias):
        return node.alias
    if isinstance(written, exp.Column):
        return written.name
    return written.sql(dialect="spark", comments=False, normalize_functions="lower")
