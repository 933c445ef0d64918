"""SELECT: its clauses one upon the other, each over the rows that the one below leaves.

FROM, generators, WHERE, GROUP BY, HAVING, windows, QUALIFY, the select list, DISTINCT.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from sqlglot import exp

from controller.sql import plans
from controller.sql.binding import (
    GENERAL,
    OUTER,
    Binder,
    Bound,
    Compiled,
    Scope,
    aggregates_in,
    all_of,
    conjuncts,
    has_mark,
)
from controller.sql.expressions import binder
from controller.sql.group_keys import GroupKeys
from controller.sql.grouping import Grouping, Item, Keys
from controller.sql.joins import From, Join
from controller.sql.laterals import Generated, generated, generator_name
from controller.sql.names import column_reference, duplicate_name, same_name, shown, unused_name, validate_column_name
from controller.sql.ordered import ordering
from controller.sql.refusals import SqlText, did_you_mean
from controller.sql.relations import Column
from controller.sql.sources import Source, columns_of
from controller.sql.stages import filtered, projected
from controller.sql.subqueries import Attachment, Inner, Subqueries
from controller.sql.type_rules import INTERVAL, UNKNOWN, VOID
from controller.sql.user_functions import UserFunction
from controller.sql.windows import windowed

_NO_AGGREGATES = {
    "ON": "aggregate in a subquery in FROM",
    "WHERE": "conditions on aggregates belong in HAVING",
    "GROUP BY": "group by what is aggregated over, or use a subquery in FROM",
    "LATERAL VIEW": "aggregate in a subquery in FROM",
}
_NO_WINDOWS = "compute it in a subquery in FROM, or use QUALIFY"


class SelectCompiler:
    """Compiles one SELECT whose sources are compiled.

    First everything is bound, then the rows are built. ``links`` are conditions that name columns of the query
    around this one; whoever asks for the rows of such a SELECT sees to them.
    """

    def __init__(
        self,
        sql: SqlText,
        select: exp.Select,
        first: Source,
        joins: Sequence[Join],
        inner: Inner,
        *,
        laterals: Sequence[exp.Expr] = (),
        outer: Scope | None = None,
        functions: Mapping[str, UserFunction] = MappingProxyType({}),
        order: Sequence[exp.Expr] = (),
        is_ordered: bool = False,
    ) -> None:
        """``order`` are the parts of an ORDER BY, which need not be in the select list."""
        self._sql = sql
        self._select = select
        self._functions = functions
        self._subqueries = Subqueries(sql, inner)
        self._windows = _named_windows(sql, select)
        self._from = From(sql, first, joins, lambda scope: self._binder(scope, "ON"), outer)
        self._scope = self._from.scope
        self._laterals = list(laterals)
        self._order = order
        self._prepared = False
        #: Whether LIMIT applies to the rows of this SELECT.
        self.is_ordered = is_ordered
        #: The columns that there will be; the last ``hidden`` of them only serve ``ordering``.
        self.items: list[Item] = []
        self.hidden = 0
        self.ordering: list[exp.Expr] = []
        self.links: list[Bound] = []
        self._where: list[Bound] = []
        self._existences: list[Attachment] = []
        self._generated: list[Generated] = []
        self._below: list[Attachment] = []
        self._beside: list[Attachment] = []
        self._keys: Keys | None = None
        self._having: Bound | None = None
        self._qualify: Bound | None = None

    # --- what is asked -------------------------------------------------------------------------------------

    @property
    def is_grouped(self) -> bool:
        return self._keys is not None

    @property
    def gives_one_row(self) -> bool:
        """Whether it aggregates all rows to one, always."""
        keys = self._keys
        plain = keys is not None and not keys.keys and keys.sets is None
        return (
            plain
            and self._having is None
            and self._qualify is None
            and not self.is_ordered
            and not any(item.bound.tree.find(exp.Window) for item in self.items)
        )

    def prepare(self) -> None:
        """Binds everything, once."""
        if self._prepared:
            return
        self._prepared = True
        written = self._without_generators(self._select.expressions)
        self._bind_laterals()
        self._bind_where()
        self._below += self._subqueries.taken()
        self.items = self._bound_items(written)
        self._check_items(self.items)
        keys = GroupKeys(self._sql, self._select, self.items, self._given_binder).keys()
        having, qualify = self._select.args.get("having"), self._select.args.get("qualify")
        if having is not None:
            self._having = self._given_binder("").condition(having.this)
        if qualify is not None:
            self._qualify = self._given_binder("", windows="").condition(qualify.this)
        self._bind_order()
        asked = [item.bound.tree for item in self.items] + self._trees_beside()
        if keys is None and any(True for tree in asked for _ in aggregates_in(tree)):
            keys = Keys(keys=())
        if having is not None and keys is None:
            raise self._sql.refusal(having, "HAVING without aggregates", hint="use WHERE")
        self._keys = keys
        attached = self._subqueries.taken()
        if keys is None:
            self._below += attached
        else:
            self._beside += attached
        for tree in (*asked, *(key.tree for key in (keys.keys if keys else ()))):
            if has_mark(tree, OUTER):
                hint = "name them only in the WHERE of the subquery, or join with it in FROM"
                raise self._sql.not_yet(tree, "columns of the query around, used in this place, are", hint=hint)

    def _trees_beside(self) -> list[exp.Expr]:
        return [bound.tree for bound in (self._having, self._qualify) if bound is not None]

    def _binder(self, scope: Scope, clause: str) -> Binder:
        bind = binder(self._sql, scope, aggregates_refused=_NO_AGGREGATES.get(clause, ""), general=True)
        subquery = None if clause in ("ON", "GROUP BY", "LATERAL VIEW") else self._subqueries.bind
        windows = "" if clause == "SELECT" else _NO_WINDOWS
        return replace(
            bind, functions=self._functions, windows=self._windows, subquery=subquery, windows_refused=windows
        )

    def _given_binder(self, clause: str, windows: str = _NO_WINDOWS) -> Binder:
        """Binds clauses that may repeat names of the select list."""
        given = {item.name.lower(): item.bound for item in self.items if isinstance(item.node, exp.Alias)}
        return replace(self._binder(replace(self._scope, given=given), clause), windows_refused=windows)

    # --- generators and WHERE ------------------------------------------------------------------------------

    def _without_generators(self, written: Sequence[exp.Expr]) -> list[exp.Expr]:
        """The select list, with the columns of a generator where that stands."""
        found = [node for node in written if generator_name(_unaliased(node))]
        if not found:
            return list(written)
        if len(found) > 1:
            raise self._sql.refusal(found[1], "a select list has one generator", hint="use LATERAL VIEW for more")
        if self._select.args.get("group") is not None:
            raise self._sql.not_yet(found[0], "a generator over groups is", hint="group in a subquery in FROM")
        [node] = found
        table = "_generated"
        names: list[exp.Identifier] = []
        if isinstance(node, exp.Alias):
            names = [exp.to_identifier(node.alias, quoted=True)]
        elif isinstance(node, exp.Aliases):
            names = [identifier.copy() for identifier in node.expressions]
        lateral = exp.Lateral(
            this=_unaliased(node).copy(),
            view=True,
            alias=exp.TableAlias(this=exp.to_identifier(table), columns=names),
        )
        self._laterals.append(lateral)
        star = exp.Column(this=exp.Star(), table=exp.to_identifier(table))
        return [star if item is node else item for item in written]

    def _bind_laterals(self) -> None:
        taken = {name.lower() for name in self._from.names}
        for lateral in self._laterals:
            made = generated(self._binder(self._scope, "LATERAL VIEW"), lateral, taken)
            self._generated.append(made)
            self._scope = replace(self._scope, bindings=(*self._scope.bindings, made.binding))

    def _bind_where(self) -> None:
        where = self._select.args.get("where")
        if where is None:
            return
        rows = self._binder(self._scope, "WHERE")
        kept: list[exp.Expr] = []
        for part in _written_conjuncts(where.this):
            existence = self._subqueries.existence(rows, part)
            if existence is None:
                kept.append(part)
            else:
                self._existences.append(existence)
        bound: list[Bound] = []
        if len(kept) == 1 or self._existences:
            for part in kept:
                bound += conjuncts(rows.condition(part))
        elif kept:
            bound = conjuncts(rows.condition(where.this))
        self.links = [condition for condition in bound if has_mark(condition.tree, OUTER)]
        self._where = [condition for condition in bound if not has_mark(condition.tree, OUTER)]

    # --- the select list -----------------------------------------------------------------------------------

    def _bound_items(self, written: Sequence[exp.Expr]) -> list[Item]:
        bind = self._binder(self._scope, "SELECT")
        items: list[Item] = []
        for node in written:
            star = node.this if isinstance(node, exp.Column) else node
            if isinstance(star, exp.Star):
                items.extend(self._starred(node, star))
                continue
            if isinstance(node, exp.Alias) and not isinstance(node.args.get("alias"), exp.Identifier):
                raise self._sql.refusal(node, f"{shown(node.alias)} is not a name", hint="put it in backticks")
            expression = node.this if isinstance(node, exp.Alias) else node
            given = {item.name.lower(): item.bound for item in items if isinstance(item.node, exp.Alias)}
            bound = replace(bind, scope=replace(self._scope, given=given)).bind(expression)
            items.append(Item(name=_output_name(node, expression), bound=bound, node=node))
        return items

    def _starred(self, node: exp.Expr, star: exp.Star) -> Iterator[Item]:
        if any(value for name, value in star.args.items() if name != "except_"):
            raise self._sql.not_yet(node, "* with replacements is", hint="list the columns")
        left_out = {part.name.lower() for part in star.args.get("except_") or []}
        table = node.table if isinstance(node, exp.Column) else ""
        aliases = [binding.alias or "" for binding in self._scope.bindings]
        if table and not any(same_name(alias, table) for alias in aliases):
            raise self._sql.refusal(
                node, f"unknown table {shown(table)}", hint=did_you_mean(table, filter(None, aliases))
            )
        seen: set[str] = set()
        for name, bound in self._all(table):
            seen.add(name.lower())
            if name.lower() not in left_out:
                yield Item(name=name, bound=_placed(bound, node), node=node)
        for name in left_out - seen:
            raise self._sql.refusal(node, f"unknown column {shown(name)}", hint=did_you_mean(name, seen))

    def _all(self, table: str) -> Iterator[tuple[str, Bound]]:
        """What a star stands for: columns that two tables share by USING come first, and once."""
        merged = self._scope.merged if not table else {}
        names = {c.name.lower(): c.name for binding in self._scope.bindings for c in binding.columns}
        for name, bound in merged.items():
            yield names[name], bound
        for binding in self._scope.bindings:
            if table and not same_name(binding.alias or "", table):
                continue
            for column in binding.columns:
                if column.name.lower() not in merged:
                    tree = column_reference(column.plan_name)
                    yield column.name, Bound(tree=tree, type=column.type, nullable=column.nullable)

    def _check_items(self, items: Sequence[Item]) -> None:
        for item in items:
            with self._sql.placing(
                item.node, hint="" if isinstance(item.node, exp.Alias) else "give it a name with AS"
            ):
                validate_column_name(item.name)
            if item.bound.type == VOID:
                hint = "give it one, as in CAST(NULL AS STRING)"
                raise self._sql.refusal(item.node, f"column {shown(item.name)} has no type", hint=hint)
            if any(word in item.bound.type for word in (UNKNOWN, VOID, INTERVAL)):
                raise self._sql.refusal(
                    item.node,
                    f"column {shown(item.name)} has no type that is known",
                    detail=f"it is {item.bound.type}",
                    hint="convert it, as in CAST(... AS STRING)",
                )
        twice = duplicate_name(item.name for item in items)
        if twice is not None:
            second = [item for item in items if same_name(item.name, twice)][1]
            hint = "give one of them another name with AS"
            raise self._sql.refusal(second.node, f"two columns are named {shown(twice)}", hint=hint)

    def _bind_order(self) -> None:
        """What is ordered by; what is in no column becomes one that is not seen."""
        columns = [Column(name=i.name, type=i.bound.type, nullable=i.bound.nullable) for i in self.items]
        taken = {item.name.lower() for item in self.items}
        hidden: list[Item] = []

        def hide(node: exp.Expr) -> str:
            bound = self._given_binder("", windows="").bind(node)
            if self._select.args.get("distinct") is not None:
                hint = "add it to the select list"
                raise self._sql.refusal(node, "ORDER BY names what DISTINCT leaves out", hint=hint)
            hidden.append(Item(name=unused_name("_order", taken), bound=bound, node=node))
            return hidden[-1].name

        self.ordering = ordering(self._sql, columns, self._order, hide)
        self.items += hidden
        self.hidden = len(hidden)

    # --- the rows ------------------------------------------------------------------------------------------

    def compile(self) -> Compiled:
        self.prepare()
        if self.links:
            hint = "name them only in EXISTS, IN and subqueries for one value, or join in FROM"
            raise self._sql.not_yet(self.links[0].tree, "columns of the query around, used here, are", hint=hint)
        frame = self.rows()
        trees = [item.bound.tree for item in self.items]
        qualify = self._qualify
        if self._keys is not None:
            frame, trees, qualify = self._grouped(frame)
        qualified = [qualify.tree] if qualify is not None else []
        frame, trees = windowed(frame, [*trees, *qualified])
        if qualify is not None:
            condition = Bound(tree=trees.pop(), type="boolean", nullable=qualify.nullable)
            frame = filtered(frame, condition)
        columns = [Column(name=item.name, type=item.bound.type, nullable=item.bound.nullable) for item in self.items]
        frame = projected(frame, list(zip(columns, trees, strict=True)))
        if self._select.args.get("distinct") is not None:
            frame = self._distinct(frame)
        texts = tuple(item.bound.text for item in self.items)
        return Compiled(node=frame.node, columns=tuple(columns), scope=self._scope, texts=texts)

    def _distinct(self, frame: Compiled) -> Compiled:
        for item in self.items:
            if "map<" in item.bound.type:
                raise self._sql.refusal(item.node, "maps cannot be compared", hint="use map_entries(m)")
        return Compiled(node=plans.distinct(frame.node), columns=frame.columns)

    def rows(self) -> Compiled:
        """What FROM and WHERE leave, without regard to links."""
        self.prepare()
        base = self._from.names
        early = [condition for condition in self._where if columns_of(condition.tree) <= base]
        late = [condition for condition in self._where if not columns_of(condition.tree) <= base]
        frame = self._from.build(early, self._read(late), narrow=self._narrow())
        for made in self._generated:
            frame = made.applied(frame)
        for attachment in (*self._existences, *self._below):
            frame = attachment.attached(frame, lambda tree: tree)
        return filtered(frame, all_of(late)) if late else frame

    def _narrow(self) -> bool:
        """Whether Spark will keep the rows by key, so that columns nobody reads had better go first."""
        trees = [*(item.bound.tree for item in self.items), *self._trees_beside()]
        aggregates = [part for tree in trees for part in aggregates_in(tree)]
        return (
            bool(self._existences or self._below or self._generated or self.links)
            or any(GENERAL in aggregate.meta for aggregate in aggregates)
            or any(tree.find(exp.Window) for tree in trees)
            or (self._keys is not None and self._keys.sets is not None)
        )

    def _read(self, late: Sequence[Bound]) -> set[str]:
        keys = [key.tree for key in self._keys.keys] if self._keys is not None else []
        trees = [*(item.bound.tree for item in self.items), *keys, *self._trees_beside()]
        trees += [bound.tree for bound in (*late, *self.links)]
        trees += [made.bound.tree for made in self._generated]
        attachments = (*self._existences, *self._below, *self._beside)
        trees += [condition.tree for attachment in attachments for condition in attachment.conditions]
        return {name for tree in trees for name in columns_of(tree)}

    def _grouped(self, frame: Compiled) -> tuple[Compiled, list[exp.Expr], Bound | None]:
        assert self._keys is not None
        asked = self._trees_beside()
        asked += [condition.tree for attachment in self._beside for condition in attachment.conditions]
        grouping = Grouping(self._sql, self._keys, self.items, asked)
        for attachment in self._beside:
            grouping.beside |= attachment.names
        frame = grouping.grouped(frame)
        for attachment in self._beside:
            frame = attachment.attached(frame, grouping.above)
        if self._having is not None:
            tree = grouping.above(self._having.tree)
            frame = filtered(frame, replace(self._having, tree=tree))
        qualify = self._qualify
        if qualify is not None:
            qualify = replace(qualify, tree=grouping.above(qualify.tree))
        return frame, [grouping.above(item.bound.tree) for item in self.items], qualify


def _named_windows(sql: SqlText, select: exp.Select) -> dict[str, exp.Expr]:
    windows = {}
    for window in select.args.get("windows") or []:
        if window.this is None or not isinstance(window.this, exp.Identifier):
            raise sql.refusal(window, "a window has no name", hint="as in WINDOW w AS (PARTITION BY a)")
        windows[window.this.name.lower()] = window
    return windows


def _unaliased(node: exp.Expr) -> exp.Expr:
    return node.this if isinstance(node, exp.Alias | exp.Aliases) else node


def _written_conjuncts(node: exp.Expr) -> list[exp.Expr]:
    """The conditions as they are written that must all hold."""
    if isinstance(node, exp.Paren):
        return _written_conjuncts(node.this)
    return list(node.flatten(unnest=False)) if isinstance(node, exp.And) else [node]


def _placed(bound: Bound, written: exp.Expr) -> Bound:
    tree = bound.tree.copy()
    where = written if "start" in written.meta else written.find(exp.Identifier)
    if where is not None:
        tree.update_positions(where)
    return replace(bound, tree=tree)


def _output_name(node: exp.Expr, written: exp.Expr) -> str:
    """The name of an output column: as given, that of the column itself, or the text of the expression."""
    if isinstance(node, exp.Alias):
        return node.alias
    if isinstance(written, exp.Column | exp.Dot):
        return written.name
    return written.sql(dialect="spark", comments=False, normalize_functions="lower")
