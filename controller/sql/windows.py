"""Windows: binding OVER, and the nodes that compute windows over the rows of a SELECT.

The rows of one partition decide its answers. So windows are computed for touched partitions alone, those that share
a part of their PARTITION BY in one node. Functions that take rows by place get an order in which no two different
rows are equal, so that every replica takes the same.
"""

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from controller.sql.aggregates import steady_basic
from controller.sql.binding import (
    AGGREGATE,
    ARGUMENT,
    GENERAL,
    OVER,
    TYPE,
    Binder,
    Bound,
    Compiled,
    marked,
    outermost_aggregates,
    sql_text,
)
from controller.sql.names import column_reference, shown, unused_name
from controller.sql.refusals import did_you_mean
from controller.sql.relations import Column
from controller.sql.spark_functions import PLACED, WINDOW_ONLY
from controller.sql.stages import selected, sql_stage
from controller.sql.type_rules import UNKNOWN

#: A mark on windows whose order must be total; it holds nothing.
PLACES = "places"
_RANGE_BOUND = frozenset({"last_value", "last", "nth_value"})


# --- binding -----------------------------------------------------------------------------------------------


def bind_window(binder: Binder, node: exp.Expr) -> Bound:
    if binder.windows_refused:
        raise binder.sql.refusal(node, "a window cannot stand here", hint=binder.windows_refused)
    spec = _spec(binder, node)
    inner = replace(binder, windows_refused="compute the inner one in a subquery in FROM")
    bound, placed = _function(inner, node.this, spec)
    partition = [inner.bind(part) for part in spec.args.get("partition_by") or []]
    order = [_ordered(inner, part) for part in (spec.args["order"].expressions if spec.args.get("order") else [])]
    frame = spec.args.get("spec")
    rows = frame is not None and frame.args.get("kind") == "ROWS"
    tree = bound.tree.copy()
    functions = [part for part in tree.walk() if OVER in part.meta]
    for function in functions:
        window = exp.Window(
            this=function.copy(),
            partition_by=[marked(part.tree.copy(), TYPE, part.type) for part in partition],
            order=exp.Order(expressions=[part.copy() for part in order]) if order else None,
            spec=frame.copy() if frame is not None else None,
            over="OVER",
        )
        marked(marked(window, GENERAL), TYPE, function.meta[OVER])
        if placed or rows:
            marked(window, PLACES)
        tree = window if function is tree else tree
        if function is not tree and function.parent is not None:
            function.replace(window)
    return Bound(tree=tree, type=bound.type, nullable=True)


def _spec(binder: Binder, node: exp.Expr) -> exp.Expr:
    """The window itself, or the one of the WINDOW clause that it names, with what it adds."""
    alias = node.args.get("alias")
    if alias is None:
        return node
    known = binder.windows.get(alias.name.lower())
    if known is None:
        raise binder.sql.refusal(
            alias, f"unknown window {shown(alias.name)}", hint=did_you_mean(alias.name, binder.windows) or "define it"
        )
    spec = known.copy()
    for name in ("order", "spec", "partition_by"):
        if node.args.get(name):
            spec.set(name, node.args[name].copy() if isinstance(node.args[name], exp.Expr) else node.args[name])
    return spec


def _function(binder: Binder, node: exp.Expr, spec: exp.Expr) -> tuple[Bound, bool]:
    """The function of a window, marked as such, and whether it takes rows by their place."""
    wrapped = node.this if isinstance(node, exp.IgnoreNulls | exp.RespectNulls) else node
    name = function_name(wrapped)
    if name not in WINDOW_ONLY:
        bound = _steady(replace(binder, aggregates_refused="", over=True).bind(node))
        for part in outermost_aggregates(bound.tree):
            marked(part, OVER, part.meta.pop(AGGREGATE))
        if not any(OVER in part.meta for part in bound.tree.walk()):
            raise binder.sql.refusal(node, f"{shown(name)} is no function of a window", hint="as in sum(x) OVER (...)")
        return bound, False
    frame, ordered = spec.args.get("spec"), spec.args.get("order")
    ranged = ordered is not None and (frame is None or frame.args.get("kind") != "ROWS")
    if name in _RANGE_BOUND and ranged:
        hint = "say ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING, or other ROWS"
        raise binder.sql.refusal(node, f"{shown(name)} over a range of equal rows has several answers", hint=hint)
    parts = [binder.bind(child) for child in wrapped.iter_expressions()]
    tree: exp.Expr = wrapped.copy()
    tree.meta.clear()
    for child, argument in zip(list(tree.iter_expressions()), parts, strict=True):
        child.replace(argument.tree.copy())
    type = WINDOW_ONLY[name]
    if type == "first":
        if not parts:
            raise binder.sql.refusal(node, f"{shown(name)} needs an argument", hint=f"as in {name}(x)")
        type = parts[0].type
    if wrapped is not node:
        tree = node.__class__(this=tree)
    return Bound(tree=marked(marked(tree, OVER, type), GENERAL), type=type, nullable=True), name in PLACED


def function_name(node: exp.Expr) -> str:
    """The name of a call as Spark has it; empty if it is none."""
    if isinstance(node, exp.Anonymous):
        return node.name.lower()
    return node.sql_name().lower() if isinstance(node, exp.Func) else ""


def _steady(bound: Bound) -> Bound:
    """A sum or average in a form that no order of rows changes."""
    if isinstance(bound.tree, exp.Sum | exp.Avg) and ARGUMENT in bound.tree.meta:
        value = Bound(tree=bound.tree.this, type=str(bound.tree.meta[ARGUMENT]), nullable=True)
        return steady_basic("sum" if isinstance(bound.tree, exp.Sum) else "avg", value) or bound
    return bound


def _ordered(binder: Binder, part: exp.Expr) -> exp.Ordered:
    tree = binder.bind(part.this).tree.copy()
    return exp.Ordered(this=tree, desc=part.args.get("desc"), nulls_first=part.args.get("nulls_first"))


# --- computing ---------------------------------------------------------------------------------------------


def orderable(column: Column) -> exp.Expr:
    """A column as something that rows can be ordered by."""
    tree: exp.Expr = column_reference(column.name)
    if column.type.startswith("map<"):
        entries = exp.Anonymous(this="MAP_ENTRIES", expressions=[tree])
        tree = exp.Anonymous(this="ARRAY_SORT", expressions=[entries])
    return tree


def total(order: Sequence[exp.Expr], columns: Sequence[Column]) -> list[exp.Expr]:
    """An order that begins with ``order`` and tells all different rows apart."""
    known = {sql_text(part.this) for part in order}
    rest = [orderable(column) for column in columns]
    return [*order, *(exp.Ordered(this=tree, nulls_first=True) for tree in rest if sql_text(tree) not in known)]


def windowed(frame: Compiled, trees: Sequence[exp.Expr]) -> tuple[Compiled, list[exp.Expr]]:
    """The rows with a column for each window in the trees, and the trees over these columns."""
    found: dict[str, exp.Window] = {}
    for tree in trees:
        for window in tree.find_all(exp.Window, bfs=False):
            found.setdefault(sql_text(window), window)
    if not found:
        return frame, list(trees)
    taken = {column.name.lower() for column in frame.columns}
    names = {text: unused_name(f"_w{place}", taken) for place, text in enumerate(found, start=1)}
    rows = frame.columns
    for texts, key in _clusters(found):
        items: list[tuple[str, exp.Expr]] = [(c.name, column_reference(c.name)) for c in frame.columns]
        items += [(names[text], _totally_ordered(found[text], rows)) for text in texts]
        added = tuple(Column(name=names[text], type=found[text].meta[TYPE]) for text in texts)
        if key:
            why = f"the rows of one partition decide its windows: {', '.join(map(sql_text, key))}"
        else:
            why = "a window without PARTITION BY sees all rows; add one"
        keys = [_partition_key(part, frame.columns) for part in key]
        frame = sql_stage([(frame, keys)], selected(items, "_1"), (*frame.columns, *added), why)

    def replaced(node: exp.Expr) -> exp.Expr:
        return column_reference(names[sql_text(node)]) if isinstance(node, exp.Window) else node

    return frame, [tree.copy().transform(replaced) for tree in trees]


def _partition_key(tree: exp.Expr, columns: Sequence[Column]) -> Bound:
    types = {column.name: column.type for column in columns}
    type = types.get(tree.name) if isinstance(tree, exp.Column) else None
    return Bound(tree=tree, type=type or str(tree.meta.get(TYPE, UNKNOWN)), nullable=True)


def _clusters(found: dict[str, exp.Window]) -> list[tuple[list[str], tuple[exp.Expr, ...]]]:
    """Windows that can be computed together, with what their partitions have in common."""
    clusters: list[tuple[list[str], tuple[exp.Expr, ...]]] = []
    for text, window in found.items():
        parts = {sql_text(part): part for part in window.args.get("partition_by") or []}
        key = tuple(parts.values())
        for place, (texts, common) in enumerate(clusters):
            shared = tuple(part for part in common if sql_text(part) in parts)
            if shared or not (common or key):
                clusters[place] = ([*texts, text], shared)
                break
        else:
            clusters.append(([text], key))
    return clusters


def _totally_ordered(window: exp.Window, rows: Sequence[Column]) -> exp.Expr:
    if PLACES not in window.meta:
        return window
    copy = window.copy()
    given = window.args.get("order")
    copy.set("order", exp.Order(expressions=[part.copy() for part in total(given.expressions if given else [], rows)]))
    function = copy.this.this if isinstance(copy.this, exp.IgnoreNulls | exp.RespectNulls) else copy.this
    frameless = isinstance(function, exp.RowNumber | exp.Lag | exp.Lead | exp.Ntile)
    if copy.args.get("spec") is None and not frameless:
        # Without an order the frame was the whole partition, and stays so.
        end = "CURRENT ROW" if given is not None else "UNBOUNDED"
        copy.set(
            "spec",
            exp.WindowSpec(
                kind="ROWS",
                start="UNBOUNDED",
                start_side="PRECEDING",
                end=end,
                end_side=None if given is not None else "FOLLOWING",
            ),
        )
    return copy
