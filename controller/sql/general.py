"""What Spark alone computes: functions, fields, elements, lambdas, intervals.

A node that no other handler knows keeps its form; its parts are bound, and its type comes from the table of
functions. The bound tree is marked, so that whoever makes plans gives it to Spark.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from sqlglot import exp

from controller.sql.aggregates import bind_aggregate, bind_filtered, bind_within
from controller.sql.binding import GENERAL, Binder, Bound, Handler, cast_to, field_of, marked, sql_text
from controller.sql.names import column_reference, shown
from controller.sql.refusals import did_you_mean
from controller.sql.spark_functions import (
    AGGREGATE_NAMES,
    GENERATORS,
    KNOWN,
    ORDER_BOUND,
    WINDOW_ONLY,
    result_type,
)
from controller.sql.type_rules import INTERVAL, UNKNOWN, VOID, common_type
from controller.sql.user_functions import UserFunction
from controller.sql.windows import bind_window
from plainsong.types import array_of, arrow_type, element_type, is_nested, map_of, map_types, struct_of, type_name
from reconcile.errors import InvalidRequest

_CALL = re.compile(r"\s*([A-Za-z_]\w*)\s*\(", re.ASCII)
#: Parts of syntax that are not expressions.
_KEPT = (exp.Var, exp.DataType, exp.DataTypeParam, exp.JSONPath)


def beyond(binder: Binder, node: exp.Expr) -> Bound:
    """A node that the other handlers do not know."""
    if isinstance(node, exp.Identifier):
        return _variable(binder, node)
    handler = _HANDLERS.get(type(node))
    if handler is not None:
        return handler(binder, node)
    if isinstance(node, exp.Func):
        return _call(binder, node)
    raise binder.not_understood(node)


def _general(tree: exp.Expr, type: str) -> Bound:
    return Bound(tree=marked(tree, GENERAL), type=type, nullable=True)


def called(node: exp.Expr) -> str:
    """The name of a call as Spark is given it; empty if it is written in another way."""
    if isinstance(node, exp.Anonymous):
        return node.name.lower()
    match = _CALL.match(sql_text(node))
    return match[1].lower() if match else ""


# --- calls -------------------------------------------------------------------------------------------------


def _call(binder: Binder, node: exp.Expr) -> Bound:
    name = called(node)
    if (function := binder.functions.get(name)) is not None:
        if function.is_table:
            hint = f"it gives rows: put it in FROM, as in LATERAL VIEW {name}(...) or LATERAL {name}(...)"
            raise binder.sql.refusal(node, f"{name} cannot stand here", hint=hint)
        return user_call(binder, node, function)
    if name in AGGREGATE_NAMES or name in ORDER_BOUND:
        return bind_aggregate(binder, node, name)
    if name in GENERATORS:
        hint = "put it in a LATERAL VIEW, or alone in the select list of a query without groups"
        raise binder.sql.refusal(node, f"{name} cannot stand here", hint=hint)
    if name in WINDOW_ONLY:
        raise binder.sql.refusal(node, f"{name} needs a window", hint=f"as in {name}(...) OVER (PARTITION BY ...)")
    if name not in KNOWN:
        known = KNOWN | binder.functions.keys()
        raise binder.sql.refusal(node, f"unknown function {shown(name or node.key)}", hint=did_you_mean(name, known))
    tree, parts = bound_parts(binder, node, name)
    return _general(tree, _type(name, parts))


def user_call(binder: Binder, node: exp.Expr, function: UserFunction) -> Bound:
    """A call of a function that a user registered, of the version that there is now, with arguments of its types."""
    name, written = function.name, list(node.expressions)
    if len(written) != len(function.args):
        takes = ", ".join(f"{argument} {type}" for argument, type in function.args)
        raise binder.sql.refusal(
            node, f"{name} takes {len(function.args)} arguments, not {len(written)}", hint=f"it is {name}({takes})"
        )
    if binder.variables:
        raise binder.sql.refusal(
            node, f"{name} cannot be called in a lambda", hint="take the array apart with explode, and call it then"
        )
    trees = []
    for child, (argument, type) in zip(written, function.args, strict=True):
        bound = binder.bind(child)
        if bound.type not in (UNKNOWN, VOID) and common_type(bound.type, type) != type:
            raise binder.sql.refusal(
                child, f"{argument} of {name} is {type}, not {bound.type}", hint=f"use CAST(... AS {type.upper()})"
            )
        trees.append(cast_to(bound, type).tree.copy())
    return _general(exp.Anonymous(this=function.plan_name, expressions=trees), function.returns)


def _type(name: str, parts: Sequence[Bound]) -> str:
    types = [part.type for part in parts]
    try:
        match name:
            case "transform" | "zip_with":
                return array_of(types[-1])
            case "aggregate" | "reduce":
                return types[3] if len(types) > 3 else types[1]
            case "transform_keys" | "transform_values" | "map_zip_with":
                entry = map_types(types[0]) or (UNKNOWN, UNKNOWN)
                return map_of(types[-1], entry[1]) if name == "transform_keys" else map_of(entry[0], types[-1])
            case "from_json":
                return _schema(parts[1].tree)
            case "filter" | "array_sort" | "map_filter":
                return types[0]
            case _:
                return result_type(name, types)
    except IndexError:
        return UNKNOWN


def _schema(tree: exp.Expr) -> str:
    if not isinstance(tree, exp.Literal):
        return UNKNOWN
    text = tree.name.strip()
    try:
        return type_name(arrow_type(text if is_nested(text) else f"struct<{text}>"))
    except InvalidRequest:
        return UNKNOWN


def bound_parts(binder: Binder, node: exp.Expr, name: str = "") -> tuple[exp.Expr, list[Bound]]:
    """A copy of the node with its parts bound, and these in order; lambdas last, since they see the others' types."""
    parts: dict[int, Bound] = {}
    lambdas: list[exp.Lambda] = []
    children = [child for child in node.iter_expressions() if not isinstance(child, _KEPT)]
    for child in children:
        if isinstance(child, exp.Lambda):
            lambdas.append(child)
        elif isinstance(child, exp.Star):
            raise binder.not_understood(child)
        else:
            parts[id(child)] = binder.bind(child)
    known = [parts[id(child)] for child in children if id(child) in parts]
    for child in lambdas:
        parts[id(child)] = _lambda(binder, child, _parameters(name, [part.type for part in known]))
    copy = node.copy()
    copied = [child for child in copy.iter_expressions() if not isinstance(child, _KEPT)]
    for original, child in zip(children, copied, strict=True):
        child.replace(parts[id(original)].tree.copy())
    copy.meta.clear()
    return copy, [parts[id(child)] for child in children]


# --- lambdas -----------------------------------------------------------------------------------------------


def _parameters(name: str, types: Sequence[str]) -> list[str]:
    """The types with which a function calls its lambda."""
    elements = [element_type(type) or UNKNOWN for type in types]
    entry = map_types(types[0]) if types else None
    match name:
        case "aggregate" | "reduce":
            return [types[1] if len(types) > 1 else UNKNOWN, elements[0] if elements else UNKNOWN]
        case "zip_with":
            return elements[:2]
        case "map_zip_with":
            values = [(map_types(type) or (UNKNOWN, UNKNOWN))[1] for type in types[:2]]
            return [entry[0] if entry else UNKNOWN, *values]
        case "array_sort":
            return elements[:1] * 2
        case _ if entry is not None:
            return list(entry)
        case _:
            return [*elements[:1], "int"]


def _lambda(binder: Binder, node: exp.Lambda, types: Sequence[str]) -> Bound:
    names = [identifier.name for identifier in node.expressions]
    # One name for one place, whatever the user called it: no column can be meant by accident.
    fresh = [f"_x{len(binder.variables) + place}" for place in range(len(names))]
    variables = {
        name.lower(): Bound(tree=exp.Identifier(this=new, quoted=False), type=type, nullable=True)
        for name, new, type in zip(names, fresh, [*types, *[UNKNOWN] * len(names)], strict=False)
    }
    body = replace(binder, variables={**binder.variables, **variables}).bind(node.this)
    tree = exp.Lambda(this=body.tree.copy(), expressions=[exp.Identifier(this=new, quoted=False) for new in fresh])
    return Bound(tree=tree, type=body.type, nullable=True)


def _variable(binder: Binder, node: exp.Identifier) -> Bound:
    if (known := binder.variables.get(node.name.lower())) is not None:
        return Bound(tree=marked(known.tree.copy(), GENERAL), type=known.type, nullable=True)
    raise binder.sql.refusal(node, f"unknown column {shown(node.name)}", hint=did_you_mean(node.name, binder.variables))


# --- other syntax ------------------------------------------------------------------------------------------


def _dot(binder: Binder, node: exp.Expr) -> Bound:
    if not isinstance(node.expression, exp.Identifier):
        raise binder.not_understood(node.expression)
    return field_of(binder.sql, node, binder.bind(node.this), node.expression.name)


def _bracket(binder: Binder, node: exp.Expr) -> Bound:
    value = binder.bind(node.this)
    if len(node.expressions) != 1:
        raise binder.sql.refusal(node, "one element is taken at a time", hint="as in items[0]")
    place = binder.bind(node.expressions[0])
    entry = map_types(value.type)
    type = entry[1] if entry is not None else element_type(value.type)
    if type is None and value.type != UNKNOWN:
        raise binder.sql.refusal(node, f"{value.type} has no elements", hint="only arrays and maps have")
    this = value.tree.copy()
    plain = isinstance(this, exp.Column | exp.Dot | exp.Bracket | exp.Identifier | exp.Func)
    tree = exp.Bracket(this=this if plain else exp.Paren(this=this), expressions=[place.tree.copy()])
    return _general(tree, type or UNKNOWN)


def _struct(binder: Binder, node: exp.Expr) -> Bound:
    fields, trees = [], []
    for place, item in enumerate(node.expressions, start=1):
        if isinstance(item, exp.PropertyEQ):
            name, value = item.this.name, binder.bind(item.expression)
        elif isinstance(item, exp.Alias):
            name, value = item.alias, binder.bind(item.this)
        else:
            name = item.name if isinstance(item, exp.Column) else f"col{place}"
            value = binder.bind(item)
        fields.append((name, value.type))
        trees.append(exp.PropertyEQ(this=column_reference(name).this, expression=value.tree.copy()))
    return _general(exp.Struct(expressions=trees), struct_of(fields))


def _map(binder: Binder, node: exp.Expr) -> Bound:
    keys, values = binder.bind(node.args["keys"]), binder.bind(node.args["values"])
    sides = [keys.tree.copy(), values.tree.copy()]
    tree: exp.Expr = exp.VarMap(keys=sides[0], values=sides[1])
    if not all(isinstance(side, exp.Array) for side in sides):
        tree = exp.Anonymous(this="MAP_FROM_ARRAYS", expressions=sides)
    return _general(tree, map_of(element_type(keys.type) or UNKNOWN, element_type(values.type) or UNKNOWN))


def _interval(binder: Binder, node: exp.Expr) -> Bound:
    unit = node.args.get("unit")
    if not isinstance(node.this, exp.Literal) or unit is None:
        raise binder.sql.refusal(node, "this interval cannot be read", hint="as in INTERVAL 1 DAY")
    word = re.sub(r"s$", "", unit.name.lower())
    kind = "day" if word in ("day", "week") else "month" if word in ("month", "year", "quarter") else "time"
    copy = node.copy()
    copy.meta.clear()
    return _general(copy, f"{INTERVAL} {kind}")


def _interval_arithmetic(binder: Binder, node: exp.Expr) -> Bound:
    tree, (left, right) = bound_parts(binder, node)
    sides = {left.type, right.type}
    intervals = {side for side in sides if side.startswith(INTERVAL)}
    if "timestamp" in sides:
        type = "timestamp"
    elif "date" in sides:
        type = "timestamp" if f"{INTERVAL} time" in intervals else "date"
    elif UNKNOWN in sides:
        type = UNKNOWN
    elif len(sides) == 1 or isinstance(node, exp.Mul | exp.Div):
        [type] = intervals if len(intervals) == 1 else [UNKNOWN]
    else:
        sign = node.sql(dialect="spark").replace(left.text, "").replace(right.text, "").strip()[:1]
        raise binder.sql.refusal(
            node,
            f"{sign} does not apply to {left.type} and {right.type}",
            hint="dates and timestamps go with intervals",
        )
    return _general(tree, type)


def _extract(binder: Binder, node: exp.Expr) -> Bound:
    value = binder.bind(node.expression)
    part = node.this.name.lower()
    tree = exp.Extract(this=exp.Var(this=part.upper()), expression=value.tree.copy())
    return _general(tree, "decimal(8,6)" if part.startswith("second") else "int")


def _in_zone(binder: Binder, node: exp.Expr) -> Bound:
    value, zone = binder.bind(node.this), binder.bind(node.args["zone"])
    return _general(node.__class__(this=value.tree.copy(), zone=zone.tree.copy()), "timestamp")


def _try_cast(binder: Binder, node: exp.Expr) -> Bound:
    if node.args.get("format") is not None:
        raise binder.sql.not_yet(node, "CAST with a format is", hint="use to_date or to_timestamp")
    value = binder.bind(node.this)
    with binder.sql.placing(node):
        target = type_name(arrow_type(node.args["to"].sql(dialect="spark")))
    to = exp.DataType.build(target, dialect="spark")
    return _general(exp.TryCast(this=value.tree.copy(), to=to, safe=True), target)


def _condition(binder: Binder, node: exp.Expr) -> Bound:
    """Operators that give true or false."""
    if isinstance(node, exp.Like | exp.ILike) and isinstance(node.expression, exp.Any | exp.All):
        return _like_many(binder, node)
    tree, parts = bound_parts(binder, node)
    for side in tree.iter_expressions():
        if isinstance(side, exp.Binary | exp.Not | exp.Between | exp.In) and not isinstance(side, exp.Dot):
            side.replace(exp.Paren(this=side.copy()))
    if isinstance(node, exp.NullSafeEQ | exp.NullSafeNEQ) and len(parts) == 2:
        sides, _ = binder.aligned(node, parts, exactly=True)
        tree = type(node)(this=_wrapped(sides[0]), expression=_wrapped(sides[1]))
    return Bound(tree=marked(tree, GENERAL), type="boolean", nullable=not isinstance(node, exp.NullSafeEQ))


def _like_many(binder: Binder, node: exp.Expr) -> Bound:
    """LIKE ANY and LIKE ALL."""
    patterns = node.expression.this
    items = [binder.bind(item) for item in patterns.expressions or [patterns.unnest()]]
    tree = node.copy()
    tree.meta.clear()
    tree.this.replace(binder.bind(node.this).tree.copy())
    tree.expression.this.replace(exp.Tuple(expressions=[item.tree.copy() for item in items]))
    return _general(tree, "boolean")


def _wrapped(bound: Bound) -> exp.Expr:
    tree = bound.tree.copy()
    return exp.Paren(this=tree) if isinstance(tree, exp.Binary) and not isinstance(tree, exp.Dot) else tree


def _bits(binder: Binder, node: exp.Expr) -> Bound:
    sides = [binder.bind(child) for child in node.iter_expressions()]
    type = sides[0].type
    for side in sides[1:]:
        type = common_type(type, side.type) or UNKNOWN
    if isinstance(node, exp.IntDiv):
        type = "bigint"
    if isinstance(node, exp.BitwiseLeftShift | exp.BitwiseRightShift):
        type = sides[0].type
    args = {name: _wrapped(side) for name, side in zip(("this", "expression"), sides, strict=False)}
    return _general(node.__class__(**args), type)


def _mod_like(binder: Binder, node: exp.Expr) -> Bound:
    if isinstance(node, exp.Add | exp.Sub | exp.Mul | exp.Div):
        return _interval_arithmetic(binder, node)
    raise binder.not_understood(node)


def _any_as_aggregate(binder: Binder, node: exp.Expr) -> Bound:
    """``any(x)`` that stands alone is the aggregate."""
    call = exp.Anonymous(this="bool_or", expressions=[node.this.unnest().copy()])
    return bind_aggregate(binder, call, "bool_or")


def _quantified(binder: Binder, node: exp.Expr) -> Bound:
    raise binder.sql.not_yet(node, "ANY and ALL are", hint="use IN, EXISTS, min or max")


def _query(binder: Binder, node: exp.Expr) -> Bound:
    if isinstance(node, exp.Exists) and isinstance(node.args.get("expression"), exp.Lambda):
        tree, _ = bound_parts(binder, node, "exists")
        return _general(tree, "boolean")
    if isinstance(node, exp.In) and node.args.get("query") is None:
        raise binder.sql.refusal(node, "IN needs a list or a subquery", hint="as in x IN (1, 2)")
    if binder.subquery is None:
        raise binder.sql.refusal(
            node, "a subquery cannot stand here", hint="join with it in FROM, or use it in WHERE, HAVING or SELECT"
        )
    return binder.subquery(binder, node)


_HANDLERS: Mapping[type[exp.Expr], Handler] = {
    exp.Dot: _dot,
    exp.Bracket: _bracket,
    exp.Struct: _struct,
    exp.VarMap: _map,
    exp.Map: _map,
    exp.Interval: _interval,
    exp.Extract: _extract,
    exp.AtTimeZone: _in_zone,
    exp.FromTimeZone: _in_zone,
    exp.TryCast: _try_cast,
    **dict.fromkeys((exp.Add, exp.Sub, exp.Mul, exp.Div), _mod_like),
    **dict.fromkeys(
        (exp.NullSafeEQ, exp.NullSafeNEQ, exp.RegexpLike, exp.ILike, exp.Like, exp.Is, exp.Escape), _condition
    ),
    **dict.fromkeys(
        (
            *(exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseXor, exp.BitwiseNot, exp.IntDiv),
            *(exp.BitwiseLeftShift, exp.BitwiseRightShift),
        ),
        _bits,
    ),
    **dict.fromkeys((exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.All), _quantified),
    exp.Any: _any_as_aggregate,
    exp.Window: bind_window,
    exp.Filter: bind_filtered,
    exp.WithinGroup: bind_within,
    exp.Subquery: _query,
    exp.Select: _query,
    exp.Exists: _query,
    exp.In: _query,
}
