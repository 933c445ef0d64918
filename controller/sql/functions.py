"""Handlers for CASE, CAST, functions and aggregates."""

from collections.abc import Mapping
from dataclasses import replace

from sqlglot import exp

from controller.sql.binding import AGGREGATE, ARGUMENT, TYPE, Binder, Bound, Handler, cast_to, marked
from controller.sql.type_rules import UNKNOWN, VOID, aggregate_type, castable, is_integer, is_numeric, rounded_type
from plainsong.types import arrow_type, is_nested, type_name

#: The aggregates that plans know, by their syntax.
AGGREGATES: Mapping[type[exp.Expr], str] = {
    exp.Count: "count",
    exp.Sum: "sum",
    exp.Min: "min",
    exp.Max: "max",
    exp.Avg: "avg",
}


def _case(binder: Binder, node: exp.Expr) -> Bound:
    branches = node.args["ifs"]
    default = node.args.get("default")
    values = [binder.bind(branch.args["true"]) for branch in branches]
    values.append(binder.bind(default) if default is not None else Bound(tree=exp.Null(), type=VOID, nullable=True))
    values, type = binder.aligned(node, values, exactly=True)
    if node.this is None:
        tests = [binder.condition(branch.this) for branch in branches]
        subject = None
    else:
        compared = [binder.bind(node.this), *(binder.bind(branch.this) for branch in branches)]
        (subject, *tests), _ = binder.aligned(node, compared, exactly=False)
    tree = exp.Case(
        this=subject.tree.copy() if subject is not None else None,
        ifs=[exp.If(this=test.tree.copy(), true=value.tree.copy()) for test, value in zip(tests, values, strict=False)],
        default=values[-1].tree.copy() if default is not None else None,
    )
    return Bound(tree=tree, type=type, nullable=any(value.nullable for value in values))


def _if(binder: Binder, node: exp.Expr) -> Bound:
    branch = exp.If(this=node.this.copy(), true=node.args["true"].copy())
    other = node.args.get("false")
    return _case(binder, exp.Case(ifs=[branch], default=other.copy() if other is not None else None))


def _cast(binder: Binder, node: exp.Expr) -> Bound:
    if node.args.get("safe"):
        return binder.general(node, "TRY_CAST is", hint="CAST is; it fails on values that do not fit")
    if node.args.get("format") is not None:
        return binder.general(node, "CAST with a format is")
    value = binder.bind(node.this)
    written = node.args["to"].sql(dialect="spark")
    with binder.sql.placing(node):
        target = type_name(arrow_type(written))
    if not castable(value.type, target):
        raise binder.sql.refusal(node, f"{value.type} cannot be converted to {target}", hint="convert to string first")
    return cast_to(value, target)


def _argument(binder: Binder, node: exp.Expr, argument: exp.Expr, wanted: str) -> Bound:
    """An argument that must be text, a number or a whole number."""
    value = binder.bind(argument)
    fits = {
        "text": value.type == "string",
        "a number": is_numeric(value.type),
        "a whole number": is_integer(value.type),
    }
    if not fits[wanted] and value.type != VOID:
        hint = "convert it, as in CAST(... AS STRING)" if wanted == "text" else "convert it, as in CAST(... AS INT)"
        raise binder.sql.refusal(
            node, f"{_called(node)} does not apply to {value.type}", detail=f"it needs {wanted}", hint=hint
        )
    return value


def _called(node: exp.Expr) -> str:
    return node.sql_name().lower() if isinstance(node, exp.Func) else node.key


def _is_beyond(binder: Binder, *arguments: exp.Expr) -> bool:
    """Whether Spark must compute a call because of the types of its arguments."""
    if binder.beyond is None:
        return False
    types = [binder.bind(argument).type for argument in arguments]
    return any(is_nested(type) or type in ("binary", UNKNOWN) for type in types)


def _string_function(binder: Binder, node: exp.Expr) -> Bound:
    if _is_beyond(binder, node.this):
        return binder.general(node, "it is")
    value = _argument(binder, node, node.this, "text")
    type = "int" if isinstance(node, exp.Length) else "string"
    return Bound(tree=node.__class__(this=value.tree.copy()), type=type, nullable=value.nullable)


def _trim(binder: Binder, node: exp.Expr) -> Bound:
    if node.args.get("position") or node.expression is not None:
        return binder.general(node, "trimming one side or given characters is", hint="trim(text) is")
    return _string_function(binder, node)


def _substring(binder: Binder, node: exp.Expr) -> Bound:
    start = node.args.get("start")
    if start is None:
        raise binder.sql.refusal(node, "substring needs a start", hint="as in substring(text, 1, 3)")
    if _is_beyond(binder, node.this):
        return binder.general(node, "it is")
    value = _argument(binder, node, node.this, "text")
    wanted = {"start": start, "length": node.args.get("length")}
    places = {
        name: _argument(binder, node, argument, "a whole number") for name, argument in wanted.items() if argument
    }
    tree = exp.Substring(this=value.tree.copy(), **{name: place.tree.copy() for name, place in places.items()})
    nullable = value.nullable or any(place.nullable for place in places.values())
    return Bound(tree=tree, type="string", nullable=nullable)


def _concat(binder: Binder, node: exp.Expr) -> Bound:
    arguments = [node.this, node.expression] if isinstance(node, exp.DPipe) else node.expressions
    if isinstance(node, exp.Concat) and "start" not in node.meta:
        hint = r"write 'it\'s' for a quote in a text, and concat(a, b) to join two texts"
        raise binder.sql.refusal(node, "two texts stand side by side", hint=hint)
    if _is_beyond(binder, *arguments):
        return binder.general(node, "it is")
    values = [_argument(binder, node, argument, "text") for argument in arguments]
    if not values:
        raise binder.sql.refusal(node, "concat needs an argument", hint="as in concat(a, b)")
    # One CONCAT for a || b || c, so that it reads the same however it was grouped.
    parts = [
        part.copy()
        for value in values
        for part in (value.tree.expressions if isinstance(value.tree, exp.Concat) else [value.tree])
    ]
    tree = exp.Concat(expressions=parts, safe=True)
    return Bound(tree=tree, type="string", nullable=any(value.nullable for value in values))


def _coalesce(binder: Binder, node: exp.Expr) -> Bound:
    values, type = binder.aligned(
        node, [binder.bind(argument) for argument in (node.this, *node.expressions)], exactly=True
    )
    tree = exp.Coalesce(this=values[0].tree.copy(), expressions=[value.tree.copy() for value in values[1:]])
    return Bound(tree=tree, type=type, nullable=all(value.nullable for value in values))


def _abs(binder: Binder, node: exp.Expr) -> Bound:
    value = _argument(binder, node, node.this, "a number")
    return Bound(tree=exp.Abs(this=value.tree.copy()), type=value.type, nullable=value.nullable)


def _round(binder: Binder, node: exp.Expr) -> Bound:
    value = _argument(binder, node, node.this, "a number")
    decimals = node.args.get("decimals")
    if decimals is None:
        return Bound(tree=exp.Round(this=value.tree.copy()), type=rounded_type(value.type, 0), nullable=value.nullable)
    places = binder.bind(decimals)
    text = places.text
    if places.type != "int" or not text.lstrip("-").isdigit():
        raise binder.sql.refusal(decimals, "round needs a fixed number of places", hint="as in round(x, 2)")
    tree = exp.Round(this=value.tree.copy(), decimals=places.tree.copy())
    return Bound(tree=tree, type=rounded_type(value.type, int(text)), nullable=value.nullable)


def _aggregate(binder: Binder, node: exp.Expr) -> Bound:
    function = AGGREGATES[type(node)]
    if binder.aggregates_refused:
        raise binder.sql.refusal(node, f"{function} cannot stand here", hint=binder.aggregates_refused)
    if isinstance(node.this, exp.Distinct):
        hint = "aggregate a subquery with SELECT DISTINCT"
        return binder.general(node, f"{function} with DISTINCT is", hint=hint)
    if node.expressions or node.this is None:
        if function == "count" and node.expressions:
            return binder.general(node, "count of several is", hint="count(*) is")
        raise binder.sql.refusal(node, f"{function} takes one argument", hint=f"as in {function}(x)")
    if isinstance(node.this, exp.Star):
        if function != "count":
            raise binder.sql.refusal(node, f"{function}(*) means nothing", hint=f"name a column, as in {function}(x)")
        return _counted()
    inner = replace(
        binder,
        aggregates_refused="" if binder.over else "an aggregate of an aggregate needs a subquery in FROM",
        over=False,
        windows_refused="compute it in a subquery in FROM",
    )
    value = inner.bind(node.this)
    result = aggregate_type(function, value.type)
    if result is None:
        hint = "convert it, as in CAST(... AS DOUBLE)"
        raise binder.sql.refusal(node, f"{function} does not apply to {value.type}", hint=hint)
    if function == "count" and not value.nullable and isinstance(value.tree, exp.Literal | exp.Boolean):
        # count(1) counts rows, which has one text.
        return _counted()
    argument = marked(value.tree.copy(), TYPE, value.type)
    tree = marked(marked(type(node)(this=argument), AGGREGATE, result), ARGUMENT, value.type)
    return Bound(tree=tree, type=result, nullable=function != "count")


def _counted() -> Bound:
    return Bound(tree=marked(exp.Count(this=exp.Star()), AGGREGATE, "bigint"), type="bigint", nullable=False)


FUNCTIONS: Mapping[type[exp.Expr], Handler] = {
    exp.Case: _case,
    exp.If: _if,
    exp.Cast: _cast,
    exp.TryCast: _cast,
    **dict.fromkeys((exp.Upper, exp.Lower, exp.Length), _string_function),
    exp.Trim: _trim,
    exp.Substring: _substring,
    exp.Concat: _concat,
    exp.DPipe: _concat,
    exp.Coalesce: _coalesce,
    exp.Abs: _abs,
    exp.Round: _round,
    **dict.fromkeys(AGGREGATES, _aggregate),
}
