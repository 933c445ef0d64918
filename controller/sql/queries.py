"""Queries: WITH, set operations, ORDER BY with LIMIT and subqueries around SELECT, and what FROM may name."""

from collections.abc import Mapping, Sequence

from sqlglot import exp

from controller.sql import plans
from controller.sql.binding import Bound, Compiled, Scope, cast_to
from controller.sql.joins import Join
from controller.sql.names import column_reference, duplicate_name, same_name, shown, validate_column_name
from controller.sql.ordered import limited, ordering
from controller.sql.refusals import SqlText, did_you_mean
from controller.sql.relations import Catalog, Column, Relation
from controller.sql.selects import SelectCompiler
from controller.sql.sources import Source, check_aliases
from controller.sql.stages import alias, name_text, projected, sql_stage
from controller.sql.subqueries import Inner
from controller.sql.type_rules import common_type
from controller.sql.user_functions import UserFunction
from plainsong.logs import NAMESPACE
from reconcile.errors import InvariantBroken
from reconcile.plan_tree import Node

#: Queries that WITH gives a name, by that name in lower case.
Given = Mapping[str, Compiled]

_ORDERED = {"order", "limit", "offset"}
_SELECT_UNDERSTOOD = {
    *("expressions", "from_", "joins", "where", "group", "having", "distinct", "with_"),
    *("laterals", "qualify", "windows"),
}
_UNION_UNDERSTOOD = {"this", "expression", "distinct", "with_"}
_TABLE_UNDERSTOOD = {"this", "alias"}
_JOIN_UNDERSTOOD = {"this", "on", "kind", "side", "using", "method"}
#: What people call the clauses that are not understood, by the parser's names for them.
_CLAUSES = {
    "order": "ORDER BY",
    "sort": "SORT BY",
    "cluster": "CLUSTER BY",
    "distribute": "DISTRIBUTE BY",
    "pivots": "PIVOT",
    "sample": "TABLESAMPLE",
    "version": "AS OF",
    "when": "AS OF",
    "db": "a database before the name of a table",
    "catalog": "a catalog before the name of a table",
    "joins": "a join in parentheses",
    "by_name": "BY NAME",
}


_KINDS = {
    ("", ""): "inner",
    ("", "INNER"): "inner",
    ("", "CROSS"): "inner",
    **{(side, kind): side.lower() for side in ("LEFT", "RIGHT", "FULL") for kind in ("", "OUTER")},
    **{(side, kind): kind.lower() for side in ("", "LEFT") for kind in ("SEMI", "ANTI")},
}


class QueryCompiler:
    """Compiles the queries of one text; ``names`` are the relations that it reads, in order of first appearance."""

    def __init__(self, sql: SqlText, catalog: Catalog, functions: Mapping[str, UserFunction]) -> None:
        self._sql = sql
        self._catalog = catalog
        self._functions = functions
        self._read: dict[str, Relation] = {}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._read)

    def query(self, tree: exp.Expr, given: Given) -> Compiled:
        """A query that is part of another, or the body of one."""
        given = self._with(tree, given)
        if any(tree.args.get(name) for name in ("limit", "offset")):
            return self._limited(tree, given)
        if isinstance(tree, exp.Subquery) and tree.args.get("alias") is None:
            self._check_clauses(tree, {"this", "with_"})
            return self.query(tree.this, given)
        if isinstance(tree, exp.SetOperation):
            return self._set_operation(tree, given)
        if isinstance(tree, exp.Select):
            self._check_clauses(tree, _SELECT_UNDERSTOOD)
            return self._select(tree, given).compile()
        raise self._sql.not_yet(tree, f"{tree.key.upper()} is", hint="a query begins with SELECT or WITH")

    def inner(self, given: Given) -> Inner:
        """How the subqueries of a SELECT that sees these names are compiled."""

        def compile(tree: exp.Expr, scope: Scope) -> SelectCompiler | Compiled:
            while isinstance(tree, exp.Subquery) and not any(v for k, v in tree.args.items() if k != "this"):
                tree = tree.this
            limited = any(tree.args.get(name) for name in _ORDERED)
            if not isinstance(tree, exp.Select) or limited:
                return self.query(tree, given)
            known = self._with(tree, given)
            self._check_clauses(tree, _SELECT_UNDERSTOOD)
            return self._select(tree, known, outer=scope)

        return compile

    # --- ORDER BY and LIMIT --------------------------------------------------------------------------------

    def _limited(self, tree: exp.Expr, given: Given) -> Compiled:
        """The first rows of a query in an order that tells all different rows apart."""
        written = tree.args["order"].expressions if tree.args.get("order") is not None else []
        if isinstance(tree, exp.Select):
            self._check_clauses(tree, _SELECT_UNDERSTOOD | _ORDERED)
            compiler = self._select(tree, given, order=written, is_ordered=True)
            rows = compiler.compile()
            visible = rows.columns[: len(rows.columns) - compiler.hidden]
            return limited(self._sql, rows, visible, compiler.ordering, tree)
        self._check_clauses(tree, _UNION_UNDERSTOOD | _ORDERED)
        bare = tree.copy()
        for name in (*_ORDERED, "with_"):
            bare.set(name, None)
        rows = self.query(bare, given)
        return limited(self._sql, rows, rows.columns, ordering(self._sql, rows.columns, written), tree)

    def _check_clauses(self, tree: exp.Expr, understood: set[str]) -> None:
        for name, value in tree.args.items():
            if not value or name in understood:
                continue
            at = value[0] if isinstance(value, list) else value
            place = at if isinstance(at, exp.Expr) else tree
            if name in ("order", "limit", "offset"):
                hint = "the rows of a view have no order; put it at the end of the query that reads them"
                raise self._sql.refusal(place, f"{_CLAUSES.get(name, name.upper())} is not possible here", hint=hint)
            raise self._sql.not_yet(place, f"{_CLAUSES.get(name, name.upper())} is")

    # --- WITH ----------------------------------------------------------------------------------------------

    def _with(self, tree: exp.Expr, given: Given) -> Given:
        clause = tree.args.get("with_")
        if clause is None:
            return given
        if clause.args.get("recursive"):
            raise self._sql.not_yet(clause, "WITH RECURSIVE is")
        twice = duplicate_name(cte.alias for cte in clause.expressions)
        if twice is not None:
            raise self._sql.refusal(clause, f"WITH gives the name {shown(twice)} twice", hint="use another name")
        known = dict(given)
        for cte in clause.expressions:
            known[cte.alias.lower()] = self._renamed(cte, self.query(cte.this, known))
        return known

    def _renamed(self, named: exp.Expr, compiled: Compiled) -> Compiled:
        """The query with the column names that its alias gives, as in ``AS t(a, b)``."""
        alias: exp.Expr | None = named.args.get("alias")
        wanted = [identifier.name for identifier in alias.args.get("columns") or []] if alias is not None else []
        if alias is None or not wanted:
            return compiled
        if len(wanted) != len(compiled.columns):
            raise self._sql.refusal(
                alias, f"{len(wanted)} names are given to {len(compiled.columns)} columns", hint="name each of them"
            )
        if (twice := duplicate_name(wanted)) is not None:
            raise self._sql.refusal(alias, f"two columns are named {shown(twice)}", hint="use another name")
        with self._sql.placing(alias):
            for name in wanted:
                validate_column_name(name)
        columns = tuple(
            Column(name=name, type=column.type, nullable=column.nullable)
            for name, column in zip(wanted, compiled.columns, strict=True)
        )
        return _converted(compiled, columns)

    # --- set operations ------------------------------------------------------------------------------------

    def _set_operation(self, tree: exp.SetOperation, given: Given) -> Compiled:
        if isinstance(tree, exp.Union):
            return self._union(tree, given)
        self._check_clauses(tree, _UNION_UNDERSTOOD)
        branches = [tree.this, tree.expression]
        inputs = [self.query(branch, given) for branch in branches]
        columns = self._common_columns(branches, inputs)
        for column in columns:
            if "map<" in column.type:
                raise self._sql.refusal(tree, "maps cannot be compared", hint="use map_entries(m)")
        sides = [_converted(input, columns) for input in inputs]
        names = [name_text(column.name) for column in columns]
        word = "INTERSECT" if isinstance(tree, exp.Intersect) else "EXCEPT"
        every = "" if tree.args.get("distinct") else " ALL"
        text = f"SELECT {', '.join(names)} FROM {alias(1)} {word}{every} SELECT {', '.join(names)} FROM {alias(2)}"
        why = "only equal rows of the two sides concern one another"
        keys = [Bound(tree=column_reference(c.name), type=c.type, nullable=c.nullable) for c in columns]
        return sql_stage([(side, keys) for side in sides], text, columns, why)

    def _union(self, tree: exp.Union, given: Given) -> Compiled:
        distinct = bool(tree.args.get("distinct"))
        branches: list[exp.Expr] = []
        body: exp.Expr = tree
        # Chains lean to the left and can be long. A distinct above makes any distinct below it idle.
        while isinstance(body, exp.Union) and (distinct or not body.args.get("distinct")):
            if body is not tree:
                given = self._with(body, given)
            self._check_clauses(body, _UNION_UNDERSTOOD)
            branches.append(body.expression)
            body = body.this
        branches.append(body)
        branches.reverse()
        node, columns = self._united(branches, [self.query(branch, given) for branch in branches])
        return Compiled(node=plans.distinct(node) if distinct else node, columns=columns)

    def _united(self, branches: Sequence[exp.Expr], inputs: Sequence[Compiled]) -> tuple[Node, tuple[Column, ...]]:
        columns = self._common_columns(branches, inputs)
        return plans.union([_converted(input, columns).node for input in inputs]), columns

    def _common_columns(self, branches: Sequence[exp.Expr], inputs: Sequence[Compiled]) -> tuple[Column, ...]:
        columns = list(inputs[0].columns)
        for branch, input in zip(branches, inputs, strict=True):
            if len(input.columns) != len(columns):
                message = f"one part of the UNION has {len(columns)} columns, this one {len(input.columns)}"
                raise self._sql.refusal(branch, message, hint="select as many in each")
            for place, (column, other) in enumerate(zip(columns, input.columns, strict=True)):
                type = common_type(column.type, other.type)
                if type is None:
                    message = f"column {shown(column.name)} is {column.type}, in this part of the UNION {other.type}"
                    raise self._sql.refusal(branch, message, hint="convert one of them with CAST")
                columns[place] = Column(name=column.name, type=type, nullable=column.nullable or other.nullable)
        return tuple(columns)

    # --- FROM ----------------------------------------------------------------------------------------------

    def _select(
        self,
        select: exp.Select,
        given: Given,
        *,
        outer: Scope | None = None,
        order: Sequence[exp.Expr] = (),
        is_ordered: bool = False,
    ) -> SelectCompiler:
        if (distinct := select.args.get("distinct")) is not None and distinct.args.get("on") is not None:
            raise self._sql.not_yet(distinct, "DISTINCT ON is")
        clause = select.args.get("from_")
        if clause is None:
            raise self._sql.not_yet(select, "SELECT without FROM is", hint="read from a table, as in SELECT 1 FROM t")
        first = self._source(clause.this, given)
        joins: list[Join] = []
        laterals = list(select.args.get("laterals") or [])
        for join in select.args.get("joins") or []:
            if isinstance(join.this, exp.Lateral):
                laterals.append(self._lateral(join))
            else:
                joins.append(self._join(join, given))
        check_aliases(self._sql, clause, [first, *(join.source for join in joins)])
        return SelectCompiler(
            self._sql,
            select,
            first,
            joins,
            self.inner(given),
            laterals=laterals,
            outer=outer,
            functions=self._functions,
            order=order,
            is_ordered=is_ordered,
        )

    def _lateral(self, join: exp.Join) -> exp.Expr:
        lateral: exp.Expr = join.this
        if not isinstance(lateral.this, exp.Func) or join.args.get("on") is not None:
            raise self._sql.not_yet(join, "LATERAL with a subquery is", hint="join with the subquery in FROM")
        if join.side.upper() == "LEFT":
            lateral = lateral.copy()
            lateral.set("outer", True)
        return lateral

    def _join(self, join: exp.Join, given: Given) -> Join:
        self._check_clauses(join, _JOIN_UNDERSTOOD)
        kind, side, method = join.kind.upper(), join.side.upper(), join.method.upper()
        if method not in ("", "NATURAL"):
            raise self._sql.not_yet(join, f"{method} JOIN is", hint="use JOIN ... ON")
        name = _KINDS.get((side, kind))
        if name is None:
            what = " ".join(filter(None, (side, kind, "JOIN")))
            raise self._sql.not_yet(join, f"{what} is", hint="inner, outer, semi, anti and cross joins are")
        using = tuple(identifier.name for identifier in join.args.get("using") or [])
        return Join(
            kind=name,
            source=self._source(join.this, given),
            node=join,
            on=join.args.get("on"),
            using=using,
            natural=method == "NATURAL",
        )

    def _source(self, node: exp.Expr, given: Given) -> Source:
        if isinstance(node, exp.Subquery) and isinstance(node.this, exp.Query):
            self._check_clauses(node, {"this", "alias"})
            return Source(alias=node.alias or None, compiled=self._renamed(node, self.query(node.this, given)))
        if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier):
            of_system = same_name(node.db, NAMESPACE) and not node.catalog
            self._check_clauses(node, _TABLE_UNDERSTOOD | {"db"} if of_system else _TABLE_UNDERSTOOD)
            return Source(alias=node.alias or node.name, compiled=self._renamed(node, self._table(node, given)))
        raise self._sql.not_yet(node, f"{node.sql('spark')[:40]!r} in FROM is", hint="tables, views and subqueries are")

    def _table(self, node: exp.Table, given: Given) -> Compiled:
        if not node.db and (compiled := given.get(node.name.lower())) is not None:
            return compiled
        name, relation = self._relation(node)
        self._read.setdefault(name, relation)
        if relation.id is not None:
            return Compiled(node=plans.get(relation.id, relation.columns), columns=relation.columns)
        if not isinstance(relation.plan, Node):
            raise InvariantBroken(f"view {name!r} has no plan")
        return Compiled(node=relation.plan, columns=relation.columns)

    def _relation(self, node: exp.Table) -> tuple[str, Relation]:
        asked = f"{node.db}.{node.name}" if node.db else node.name
        if (known := self._read.get(asked)) is not None:
            return asked, known
        if (relation := self._catalog.resolve(asked)) is not None:
            return asked, relation
        names = list(self._catalog.names())
        alike = [name for name in names if same_name(name, asked)]
        if len(alike) == 1 and (relation := self._read.get(alike[0]) or self._catalog.resolve(alike[0])) is not None:
            return alike[0], relation
        raise self._sql.refusal(node, f"unknown table {shown(asked)}", hint=did_you_mean(asked, names))


def _converted(compiled: Compiled, columns: tuple[Column, ...]) -> Compiled:
    """The query under these names and types, itself where they are its own."""
    if [(column.name, column.type) for column in columns] == [(own.name, own.type) for own in compiled.columns]:
        return Compiled(node=compiled.node, columns=columns)
    items = []
    for column, own in zip(columns, compiled.columns, strict=True):
        value = Bound(tree=column_reference(own.name), type=own.type, nullable=own.nullable)
        items.append((column, cast_to(value, column.type).tree))
    return projected(compiled, items)
