"""Handlers for columns, literals and operators."""

import math
import re
from collections.abc import Mapping
from decimal import Decimal

from sqlglot import exp

from controller.sql.binding import COMPARED, Binder, Bound, Handler, marked, marked_if_nested, operand
from controller.sql.names import shown
from controller.sql.type_rules import (
    INTERVAL,
    VOID,
    arithmetic_type,
    decimal,
    decimal_parts,
    is_integer,
    is_numeric,
    literal_decimal,
)

_SIGNS: Mapping[type[exp.Expr], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%"}
_INT_MAX, _BIGINT_MAX = 2**31 - 1, 2**63 - 1
_DECIMAL_DIGITS_MAX = 38
#: Neither ``1.`` nor ``1e``: what Spark makes of them is a surprise.
_NUMBER = re.compile(r"(\d+|\d*\.\d+)(e[+-]?\d+)?", re.ASCII)


def _column(binder: Binder, node: exp.Expr) -> Bound:
    assert isinstance(node, exp.Column)
    if isinstance(node.this, exp.Star):
        raise binder.not_understood(node.this)
    return binder.bind_column(node)


def _paren(binder: Binder, node: exp.Expr) -> Bound:
    return binder.bind(node.this)


def _null(_: Binder, __: exp.Expr) -> Bound:
    return Bound(tree=exp.Null(), type=VOID, nullable=True)


def _boolean(_: Binder, node: exp.Expr) -> Bound:
    return Bound(tree=exp.Boolean(this=bool(node.this)), type="boolean", nullable=False)


def _string(_: Binder, node: exp.Expr) -> Bound:
    return Bound(tree=exp.Literal.string(node.name), type="string", nullable=False)


def _literal(binder: Binder, node: exp.Expr) -> Bound:
    if node.is_string:
        return _string(binder, node)
    return _number(binder, node, negative=False)


def _number(binder: Binder, node: exp.Expr, *, negative: bool) -> Bound:
    """A number as written, with its sign: the sign decides whether the least whole number of a type is in it."""
    written = node.name.lower()
    if _NUMBER.fullmatch(written) is None:
        raise binder.sql.refusal(node, f"{shown(node.name)} is not a number", hint="as in 1, 1.5 or 1e9")
    text, type = written, ""
    if "e" in written:
        type = "double" if math.isfinite(float(written)) else ""
    elif "." in written:
        digits = Decimal(written).as_tuple()
        places = -int(digits.exponent)
        precision = max(len(digits.digits), places)
        if precision <= _DECIMAL_DIGITS_MAX:
            text, type = f"{Decimal(written):f}", decimal(precision, places)
    elif len(written) <= 2 * _DECIMAL_DIGITS_MAX:
        text, type = str(int(written)), _whole_type(-int(written) if negative else int(written))
    if not type:
        raise binder.sql.refusal(node, f"number {shown(node.name)} is out of range", hint="use at most 38 digits")
    literal = exp.Literal.number(text)
    return Bound(tree=exp.Neg(this=literal) if negative else literal, type=type, nullable=False)


def _whole_type(value: int) -> str:
    if -_INT_MAX - 1 <= value <= _INT_MAX:
        return "int"
    if -_BIGINT_MAX - 1 <= value <= _BIGINT_MAX:
        return "bigint"
    return literal_decimal(value) if len(str(abs(value))) <= _DECIMAL_DIGITS_MAX else ""


def _negation(binder: Binder, node: exp.Expr) -> Bound:
    if isinstance(node.this, exp.Literal) and not node.this.is_string:
        return _number(binder, node.this, negative=True)
    value = binder.bind(node.this)
    if not is_numeric(value.type):
        raise binder.sql.refusal(node, f"- does not apply to {value.type}", hint="only numbers can be negated")
    return Bound(tree=exp.Neg(this=operand(value, exp.Neg)), type=value.type, nullable=value.nullable)


def _is_literal(tree: exp.Expr) -> bool:
    return isinstance(tree.this if isinstance(tree, exp.Neg) else tree, exp.Literal | exp.Null)


def _beside(value: Bound, other: Bound) -> str:
    """The type with which a value enters arithmetic: a whole literal beside a decimal is as narrow as its digits."""
    literal = value.tree.this if isinstance(value.tree, exp.Neg) else value.tree
    if isinstance(literal, exp.Literal) and is_integer(value.type) and decimal_parts(other.type) is not None:
        return literal_decimal(int(literal.name))
    return value.type


def _arithmetic(binder: Binder, node: exp.Expr) -> Bound:
    kind = type(node)
    left, right = binder.bind(node.this), binder.bind(node.expression)
    if any(side.type.startswith(INTERVAL) for side in (left, right)):
        return binder.general(node, "computing with intervals is")
    result = arithmetic_type(_SIGNS[kind], _beside(left, right), _beside(right, left))
    if result is None:
        culprit = next((side.type for side in (left, right) if not is_numeric(side.type)), VOID)
        hint = (
            "convert it, as in CAST(... AS BIGINT)" if culprit in ("string", VOID) else "only numbers are computed with"
        )
        raise binder.sql.refusal(node, f"{_SIGNS[kind]} does not apply to {left.type} and {right.type}", hint=hint)
    tree = kind(this=operand(left, kind, first=True), expression=operand(right, kind))
    return Bound(tree=tree, type=result, nullable=left.nullable or right.nullable)


def _comparison(binder: Binder, node: exp.Expr) -> Bound:
    kind = type(node)
    if isinstance(node.expression, exp.Any | exp.All):
        return binder.general(node, "ANY and ALL are", hint="use IN")
    sides = [binder.bind(node.this), binder.bind(node.expression)]
    # Converted, the two sides of an equality can be the keys of a join; a literal stays as it was written.
    exactly = not any(_is_literal(side.tree) for side in sides)
    (left, right), compared = binder.aligned(node, sides, exactly=exactly)
    tree = marked(kind(this=operand(left, kind), expression=operand(right, kind)), COMPARED, compared)
    return Bound(tree=marked_if_nested(tree, [left, right]), type="boolean", nullable=left.nullable or right.nullable)


def _connector(binder: Binder, node: exp.Expr) -> Bound:
    kind = type(node)
    # Not by recursion: generated conditions have thousands of parts.
    parts = [binder.condition(part) for part in node.flatten(unnest=False)]
    tree = operand(parts[0], kind, first=True)
    for part in parts[1:]:
        tree = kind(this=tree, expression=operand(part, kind))
    return Bound(tree=tree, type="boolean", nullable=any(part.nullable for part in parts))


def _negated(bound: Bound) -> Bound:
    return Bound(tree=exp.Not(this=operand(bound, exp.Not)), type="boolean", nullable=bound.nullable)


def _not(binder: Binder, node: exp.Expr) -> Bound:
    return _negated(binder.condition(node.this))


def _is(binder: Binder, node: exp.Expr) -> Bound:
    if not isinstance(node.expression, exp.Null):
        return binder.general(node, f"IS {node.expression.sql('spark')} is", hint="IS NULL and IS NOT NULL are")
    value = binder.bind(node.this)
    tree = exp.Is(this=operand(value, exp.Is), expression=exp.Null())
    return Bound(tree=marked_if_nested(tree, [value]), type="boolean", nullable=False)


def _in(binder: Binder, node: exp.Expr) -> Bound:
    if not node.expressions:
        return binder.general(node, "IN with a subquery is", hint="join with SELECT DISTINCT of the subquery")
    bound = [binder.bind(item) for item in (node.this, *node.expressions)]
    (value, *items), _ = binder.aligned(node, bound, exactly=False)
    tree = exp.In(this=operand(value, exp.In), expressions=[item.tree.copy() for item in items])
    return Bound(tree=marked_if_nested(tree, bound), type="boolean", nullable=any(item.nullable for item in bound))


def _between(binder: Binder, node: exp.Expr) -> Bound:
    if node.args.get("symmetric"):
        raise binder.sql.not_yet(node, "BETWEEN SYMMETRIC is")
    bound = [binder.bind(node.args[part]) for part in ("this", "low", "high")]
    (value, low, high), _ = binder.aligned(node, bound, exactly=False)
    parts = {"this": value, "low": low, "high": high}
    tree = exp.Between(**{name: operand(part, exp.Between) for name, part in parts.items()})
    return Bound(tree=tree, type="boolean", nullable=any(part.nullable for part in bound))


def _like(binder: Binder, node: exp.Expr) -> Bound:
    if isinstance(node.expression, exp.Any | exp.All):
        return binder.general(node, "LIKE ANY and LIKE ALL are", hint="use OR or AND")
    sides = [binder.bind(node.this), binder.bind(node.expression)]
    for side in sides:
        if side.type not in ("string", VOID):
            raise binder.sql.refusal(node, f"LIKE does not apply to {side.type}", hint="only text can be matched")
    tree = exp.Like(this=operand(sides[0], exp.Like), expression=operand(sides[1], exp.Like))
    like = Bound(tree=tree, type="boolean", nullable=any(side.nullable for side in sides))
    # NOT outside rather than NOT LIKE: one text for one meaning.
    return _negated(like) if node.args.get("negate") else like


OPERATORS: Mapping[type[exp.Expr], Handler] = {
    exp.Column: _column,
    exp.Paren: _paren,
    exp.Null: _null,
    exp.Boolean: _boolean,
    exp.Literal: _literal,
    exp.RawString: _string,
    exp.Neg: _negation,
    **dict.fromkeys(_SIGNS, _arithmetic),
    **dict.fromkeys((exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE), _comparison),
    exp.And: _connector,
    exp.Or: _connector,
    exp.Not: _not,
    exp.Is: _is,
    exp.In: _in,
    exp.Between: _between,
    exp.Like: _like,
}
