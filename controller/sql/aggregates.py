"""Aggregates that Spark alone computes, in a form whose answer does not depend on the order of rows.

Replicas must agree to the bit, in whatever order rows reach them. So collected lists are sorted, ties of ``max_by``
are decided by the value itself, and floating-point sums are folded over the sorted values.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

import sqlglot
from sqlglot import exp

from controller.sql.binding import (
    AGGREGATE,
    ARGUMENT,
    GENERAL,
    TYPE,
    Binder,
    Bound,
    cast_to,
    marked,
    outermost_aggregates,
)
from controller.sql.names import shown
from controller.sql.spark_functions import ORDER_BOUND, general_aggregate_type
from controller.sql.type_rules import is_fractional, is_integer, is_numeric

_INSIDE = "an aggregate of an aggregate needs a subquery in FROM"
_BASIC = ("count", "sum", "min", "max", "avg")
#: What folds a sorted list ``_l`` of doubles to each statistic; ``_n`` is its length, ``_m`` its mean.
_MEAN = "AGGREGATE(_l, CAST(0 AS DOUBLE), (_a, _e) -> _a + _e) / SIZE(_l)"
_SQUARES = f"AGGREGATE(_l, CAST(0 AS DOUBLE), (_a, _e) -> _a + POWER(_e - ({_MEAN}), 2))"
_SAMPLE = "CASE WHEN SIZE(_l) > 1 THEN {} END"
_FOLDS: Mapping[str, str] = {
    "sum": "CASE WHEN SIZE(_l) > 0 THEN AGGREGATE(_l, CAST(0 AS DOUBLE), (_a, _e) -> _a + _e) END",
    "avg": f"CASE WHEN SIZE(_l) > 0 THEN {_MEAN} END",
    "var_pop": f"CASE WHEN SIZE(_l) > 0 THEN {_SQUARES} / SIZE(_l) END",
    "stddev_pop": f"CASE WHEN SIZE(_l) > 0 THEN SQRT({_SQUARES} / SIZE(_l)) END",
    "var_samp": _SAMPLE.format(f"{_SQUARES} / (SIZE(_l) - 1)"),
    "stddev_samp": _SAMPLE.format(f"SQRT({_SQUARES} / (SIZE(_l) - 1))"),
}
_SAME_FOLD = {"mean": "avg", "try_sum": "sum", "std": "stddev_samp", "stddev": "stddev_samp", "variance": "var_samp"}
#: Pairs are rounded on the way, in an order that is not ours.
_PAIRS = frozenset(
    [
        "corr",
        "covar_pop",
        "covar_samp",
        "regr_avgx",
        "regr_avgy",
        "regr_intercept",
        "regr_r2",
        "regr_slope",
        "regr_sxx",
        "regr_sxy",
        "regr_syy",
        "kurtosis",
        "skewness",
        "try_avg",
    ]
)
_HINTS = {
    "mode": "use mode() WITHIN GROUP (ORDER BY x)",
    "approx_percentile": "use percentile",
    "percentile_approx": "use percentile",
    "listagg": "say the order, as in listagg(x, ',') WITHIN GROUP (ORDER BY x)",
    "string_agg": "say the order, as in listagg(x, ',') WITHIN GROUP (ORDER BY x)",
}


def bind_aggregate(binder: Binder, node: exp.Expr, name: str) -> Bound:
    """An aggregate over the rows of a group."""
    if binder.aggregates_refused:
        raise binder.sql.refusal(node, f"{name} cannot stand here", hint=binder.aggregates_refused)
    if isinstance(node, exp.GroupConcat) and isinstance(node.this, exp.Order):
        return _joined(binder, node)
    if name in ORDER_BOUND:
        hint = _HINTS.get(name, "use min or max, or max_by")
        raise binder.sql.refusal(node, f"{shown(name)} depends on the order of rows, which have none", hint=hint)
    if name in _PAIRS:
        hint = "compute it from sums of decimals, which are exact"
        raise binder.sql.refusal(node, f"{shown(name)} is rounded in the order in which rows come", hint=hint)
    inner = inside(binder)
    distinct = isinstance(node.this, exp.Distinct)
    written = node.this.expressions if distinct else list(node.iter_expressions())
    values = [inner.bind(argument) for argument in written]
    rewrite = _REWRITES.get(name)
    if rewrite is not None and not (name in ("max_by", "min_by") and distinct):
        return rewrite(binder, node, values, distinct)
    if distinct and name not in _BASIC:
        raise binder.sql.not_yet(node, f"{name} with DISTINCT is", hint="aggregate a subquery with SELECT DISTINCT")
    folded = _fold(name, values, distinct)
    return folded if folded is not None else _plain(node, name, values, distinct)


def inside(binder: Binder) -> Binder:
    """What binds the arguments of aggregates."""
    refused = "" if binder.over else _INSIDE
    return replace(binder, aggregates_refused=refused, over=False, windows_refused="compute it in a subquery in FROM")


def _plain(node: exp.Expr, name: str, values: list[Bound], distinct: bool) -> Bound:
    type = general_aggregate_type(name, [value.type for value in values])
    trees = [marked(value.tree.copy(), TYPE, value.type) for value in values]
    if distinct:
        tree: exp.Expr = node.__class__(this=exp.Distinct(expressions=trees))
    elif isinstance(node, exp.Count):
        tree = exp.Count(this=trees[0], expressions=trees[1:])
    else:
        tree = node.copy()
        tree.meta.clear()
        for child, new in zip(list(tree.iter_expressions()), trees, strict=True):
            child.replace(new)
    return _aggregate(tree, type, nullable=name != "count")


def _aggregate(tree: exp.Expr, type: str, *, nullable: bool = True) -> Bound:
    return Bound(tree=marked(marked(tree, AGGREGATE, type), GENERAL), type=type, nullable=nullable)


def _call(name: str, *arguments: exp.Expr, distinct: bool = False) -> exp.Expr:
    parts = [argument.copy() for argument in arguments]
    return exp.Anonymous(this=name.upper(), expressions=[exp.Distinct(expressions=parts)] if distinct else parts)


# --- forms that do not depend on the order -----------------------------------------------------------------


def _collected(binder: Binder, node: exp.Expr, values: list[Bound], distinct: bool) -> Bound:
    if values[0].type.startswith("map<"):
        raise binder.sql.refusal(node, "maps cannot be sorted", hint="collect their entries: map_entries(m)")
    as_set = distinct or isinstance(node, exp.ArrayUniqueAgg)
    collected = _aggregate(
        _call("collect_set" if as_set else "collect_list", values[0].tree), f"array<{values[0].type}>"
    )
    tree = marked(exp.Anonymous(this="ARRAY_SORT", expressions=[collected.tree]), GENERAL)
    return Bound(tree=tree, type=collected.type, nullable=False)


def _by(name: str) -> Callable[[Binder, exp.Expr, list[Bound], bool], Bound]:
    def bind(binder: Binder, node: exp.Expr, values: list[Bound], _: bool) -> Bound:
        if len(values) != 2:
            raise binder.sql.refusal(node, f"{name} takes two arguments", hint=f"as in {name}(value, order)")
        value, by = values
        if value.type.startswith("map<"):
            raise binder.sql.refusal(node, "maps have no order to decide ties by", hint="use map_entries(m)")
        pair = exp.Struct(
            expressions=[
                exp.PropertyEQ(this=exp.Identifier(this=field), expression=part.tree.copy())
                for field, part in (("o", by), ("v", value))
            ]
        )
        known = exp.Not(this=exp.Is(this=exp.Paren(this=by.tree.copy()), expression=exp.Null()))
        order = exp.Case(ifs=[exp.If(this=known, true=pair)])
        return _aggregate(_call(name, value.tree, order), value.type)

    return bind


_REWRITES: Mapping[str, Callable[[Binder, exp.Expr, list[Bound], bool], Bound]] = {
    "collect_list": _collected,
    "collect_set": _collected,
    "array_agg": _collected,
    "max_by": _by("max_by"),
    "min_by": _by("min_by"),
}


def _joined(binder: Binder, node: exp.Expr) -> Bound:
    """A joined text in the order that it says, and then in that of the texts themselves."""
    inner = inside(binder)
    value = inner.bind(node.this.this)
    separator = inner.bind(node.args["separator"]) if node.args.get("separator") is not None else None
    ordered = [
        exp.Ordered(
            this=inner.bind(part.this).tree.copy(), desc=part.args.get("desc"), nulls_first=part.args.get("nulls_first")
        )
        for part in node.this.expressions
    ]
    if value.text not in [part.this.sql(dialect="spark") for part in ordered]:
        ordered.append(exp.Ordered(this=value.tree.copy(), nulls_first=True))
    tree = exp.WithinGroup(
        this=_call("listagg", value.tree, *([separator.tree] if separator else [])),
        expression=exp.Order(expressions=ordered),
    )
    return _aggregate(tree, "string")


def _fold(name: str, values: list[Bound], distinct: bool) -> Bound | None:
    """A statistic of numbers as a fold over their sorted list, where adding them up would be rounded on the way."""
    name = _SAME_FOLD.get(name, name)
    rounded = name in ("var_pop", "stddev_pop", "var_samp", "stddev_samp")
    if name not in _FOLDS or len(values) != 1 or not is_numeric(values[0].type):
        return None
    if not rounded and not is_fractional(values[0].type):
        return None
    values = [cast_to(values[0], "double")]
    collected = _aggregate(_call("collect_list", values[0].tree, distinct=distinct), "array<double>")
    fold: exp.Expr = sqlglot.parse_one(f"ELEMENT_AT(TRANSFORM(ARRAY(_r), _r -> {_FOLDS[name]}), 1)", dialect="spark")
    # The list stands once, under a name of its own.
    lambda_ = next(iter(fold.find_all(exp.Lambda)))
    for part in list(lambda_.find_all(exp.Column, exp.Identifier)):
        if part.name in ("_l", "_r") and not isinstance(part.parent, exp.Column):
            part.replace(exp.Identifier(this="_l", quoted=False))
    array = next(iter(fold.find_all(exp.Array)))
    array.expressions[0].replace(exp.Anonymous(this="ARRAY_SORT", expressions=[collected.tree]))
    return Bound(tree=marked(fold, GENERAL), type="double", nullable=True)


def _exact_average(value: Bound, distinct: bool) -> Bound:
    """The average of whole numbers by their exact sum: Spark adds them as doubles, and rounds on the way."""
    wide = cast_to(value, "decimal(20,0)")
    summed, counted = (
        exp.Sum(this=exp.Distinct(expressions=[wide.tree.copy()]) if distinct else wide.tree.copy()),
        exp.Count(this=exp.Distinct(expressions=[value.tree.copy()]) if distinct else value.tree.copy()),
    )
    total = cast_to(_aggregate(summed, "decimal(30,0)"), "double")
    known = exp.Nullif(this=_aggregate(counted, "bigint").tree, expression=exp.Literal.number(0))
    tree = exp.Div(this=total.tree.copy(), expression=known, typed=False, safe=False)
    return Bound(tree=marked(tree, GENERAL), type="double", nullable=True)


def steady_basic(function: str, value: Bound, *, distinct: bool = False) -> Bound | None:
    """A plain sum or average in a form that no order of rows changes; none if it has that form already."""
    if function == "avg" and is_integer(value.type):
        return _exact_average(value, distinct)
    return _fold(function, [value], distinct)


# --- FILTER and WITHIN GROUP ------------------------------------------------------------------------------


def bind_filtered(binder: Binder, node: exp.Expr) -> Bound:
    """An aggregate over the rows for which a condition holds."""
    condition = inside(binder).condition(node.expression.this)
    bound = binder.bind(node.this)
    tree = bound.tree.copy()
    found = outermost_aggregates(tree)
    if not found:
        raise binder.sql.refusal(node, "FILTER stands behind an aggregate", hint="as in sum(x) FILTER (WHERE y > 0)")
    basic = (exp.Count, exp.Sum, exp.Min, exp.Max, exp.Avg)
    if len(found) == 1 and tree is found[0] and isinstance(tree, basic) and GENERAL not in tree.meta:
        # One form that all executors know: what the condition does not hold for is null, and nulls do not count.
        rows = isinstance(tree.this, exp.Star)
        value = exp.Literal.number(1) if rows else tree.this.copy()
        argument = "int" if rows else tree.meta[ARGUMENT]
        chosen = marked(exp.Case(ifs=[exp.If(this=condition.tree.copy(), true=value)]), TYPE, argument)
        call = marked(marked(tree.__class__(this=chosen), AGGREGATE, tree.meta[AGGREGATE]), ARGUMENT, argument)
        return Bound(tree=call, type=bound.type, nullable=bound.nullable)
    for part in found:
        type = part.meta.pop(AGGREGATE)
        filtered = exp.Filter(this=part.copy(), expression=exp.Where(this=condition.tree.copy()))
        marked(marked(filtered, AGGREGATE, type), GENERAL)
        if part is tree:
            tree = filtered
        else:
            part.replace(filtered)
    return Bound(tree=tree, type=bound.type, nullable=bound.nullable)


def bind_within(binder: Binder, node: exp.Expr) -> Bound:
    """Aggregates that are told an order."""
    if binder.aggregates_refused:
        raise binder.sql.refusal(node, "an aggregate cannot stand here", hint=binder.aggregates_refused)
    orders = node.expression.expressions if isinstance(node.expression, exp.Order) else []
    inner = inside(binder)
    if isinstance(node.this, exp.PercentileCont) and len(orders) == 1:
        value, part = inner.bind(orders[0].this), inner.bind(node.this.this)
        share = part.tree.copy()
        if orders[0].args.get("desc"):
            share = exp.Sub(this=exp.Literal.number(1), expression=exp.Paren(this=share))
        return _aggregate(_call("percentile", value.tree, share), "double")
    if isinstance(node.this, exp.Mode) and len(orders) == 1 and node.this.this is None:
        value = inner.bind(orders[0].this)
        tree = exp.WithinGroup(
            this=exp.Mode(),
            expression=exp.Order(
                expressions=[
                    exp.Ordered(
                        this=value.tree.copy(),
                        desc=orders[0].args.get("desc"),
                        nulls_first=orders[0].args.get("nulls_first"),
                    )
                ]
            ),
        )
        return _aggregate(tree, value.type)
    raise binder.sql.not_yet(node, "this aggregate WITHIN GROUP is", hint="percentile_cont, mode and listagg are")
