"""Spark SQL expression text becomes a compiled expression; parsed and compiled once for each text and format."""

from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import lru_cache

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from instance.memory import arithmetic, logic, strings
from instance.memory.casts import cast
from instance.memory.expression import Expression, column, constant
from instance.memory.rows import RowFormat
from instance.memory.type_rules import BIGINT, BOOLEAN, DOUBLE, INT, NULL, STRING, bounds
from plainsong.types import DECIMAL_PRECISION_MAX, arrow_type
from reconcile.errors import InvalidRequest

DIALECT = "spark"
#: Compiled expressions that are remembered; the least recently used go first.
COMPILED_MAX = 16_384
#: How deep an expression may nest: beyond it compiling would exhaust the stack.
DEPTH_MAX = 100
#: How much of an expression an error repeats.
QUOTED_CHARACTERS_MAX = 200


@lru_cache(maxsize=COMPILED_MAX)
def compile_expression(text: str, format: RowFormat) -> Expression:
    """The expression over the columns of ``format``; raises ``InvalidRequest`` that quotes what cannot be compiled."""
    try:
        tree = sqlglot.parse_one(text, dialect=DIALECT)
    except SqlglotError as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise InvalidRequest(f"cannot read the expression {_quoted(text)}", detail=reason) from error
    except RecursionError as error:
        raise InvalidRequest(f"cannot read the expression {_quoted(text)}", detail="it nests too deeply") from error
    try:
        return _Compiler(format).compile(tree)
    except InvalidRequest as error:
        raise InvalidRequest(f"cannot compile the expression {_quoted(text)}", detail=str(error)) from error


def compile_predicate(text: str, format: RowFormat) -> Expression:
    """The same for a condition, which must be a boolean."""
    compiled = compile_expression(text, format)
    try:
        return logic.truth(compiled, "a filter")
    except InvalidRequest as error:
        raise InvalidRequest(f"cannot filter by {_quoted(text)}", detail=str(error)) from error


def _quoted(text: str) -> str:
    return repr(text if len(text) <= QUOTED_CHARACTERS_MAX else f"{text[:QUOTED_CHARACTERS_MAX]}...")


class _Compiler:
    """Compiles the tree of one expression."""

    def __init__(self, format: RowFormat) -> None:
        self.format = format
        self._depth = 0

    def compile(self, tree: exp.Expr) -> Expression:
        rule = _RULES.get(type(tree))
        if rule is None:
            raise InvalidRequest(f"{tree.sql(dialect=DIALECT)} is not supported")
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise InvalidRequest(f"it nests more than {DEPTH_MAX} deep")
        try:
            return rule(self, tree)
        finally:
            self._depth -= 1

    def this(self, tree: exp.Expr) -> Expression:
        return self.compile(tree.this)

    def pair(self, tree: exp.Expr) -> tuple[Expression, Expression]:
        return self.compile(tree.this), self.compile(tree.expression)

    def optional(self, tree: exp.Expr, name: str) -> Expression | None:
        part = tree.args.get(name)
        return None if part is None else self.compile(part)

    def column(self, tree: exp.Expr) -> Expression:
        if tree.args.get("table") is not None:
            raise InvalidRequest(f"{tree.sql(dialect=DIALECT)} names a table", hint="use the column's name alone")
        place = self.format.places.get(tree.name)
        if place is None:
            lowered = tree.name.lower()
            alike = [at for at, name in enumerate(self.format.names) if name.lower() == lowered]
            if len(alike) != 1:
                what = "is ambiguous" if alike else "does not exist"
                raise InvalidRequest(f"column {tree.name!r} {what}", detail=f"there are {', '.join(self.format.names)}")
            place = alike[0]
        return column(place, self.format.types[place])


Rule = Callable[[_Compiler, exp.Expr], Expression]


def _literal(text: str) -> Expression:
    """A number as it is written: int, bigint or decimal, and double if it has an exponent."""
    if "e" in text.lower():
        return constant(float(text), DOUBLE)
    number = Decimal(text)
    if "." not in text:
        for type in (INT, BIGINT):
            if bounds(type)[0] <= int(text) <= bounds(type)[1]:
                return constant(int(text), type, literal=True)
    scale = max(0, -int(number.as_tuple().exponent))
    precision = max(len(number.as_tuple().digits), scale, 1)
    if precision > DECIMAL_PRECISION_MAX:
        raise InvalidRequest(f"{text} has more than {DECIMAL_PRECISION_MAX} digits")
    return constant(number, pa.decimal128(precision, scale))


def _on_literal(_: _Compiler, tree: exp.Expr) -> Expression:
    return constant(tree.this, STRING) if tree.is_string else _literal(tree.this)


def _on_negation(compiler: _Compiler, tree: exp.Expr) -> Expression:
    # The sign belongs to the number: the least bigint has no positive counterpart.
    if isinstance(tree.this, exp.Literal) and not tree.this.is_string:
        return _literal(f"-{tree.this.this}")
    return arithmetic.negated(compiler.this(tree))


def _on_cast(compiler: _Compiler, tree: exp.Expr) -> Expression:
    if tree.args.get("safe"):
        raise InvalidRequest("TRY_CAST is not supported", hint="use CAST")
    target = tree.args["to"].sql(dialect=DIALECT)
    # Numbers with a suffix, such as 1L, come as casts of their digits.
    return cast(compiler.this(tree), arrow_type(target))


def _on_case(compiler: _Compiler, tree: exp.Expr) -> Expression:
    operand = compiler.optional(tree, "this")
    branches = []
    for branch in tree.args["ifs"]:
        condition = compiler.this(branch)
        if operand is not None:
            condition = logic.compared("=", operand, condition)
        branches.append((condition, compiler.compile(branch.args["true"])))
    return logic.case(branches, compiler.optional(tree, "default"))


def _on_if(compiler: _Compiler, tree: exp.Expr) -> Expression:
    branch = compiler.this(tree), compiler.compile(tree.args["true"])
    return logic.case([branch], compiler.optional(tree, "false"))


def _on_nullif(compiler: _Compiler, tree: exp.Expr) -> Expression:
    left, right = compiler.pair(tree)
    return logic.case([(logic.compared("=", left, right), constant(None, NULL))], left)


def _on_is(compiler: _Compiler, tree: exp.Expr) -> Expression:
    operand = compiler.this(tree)
    if isinstance(tree.expression, exp.Null):
        return logic.is_null(operand)
    if isinstance(tree.expression, exp.Boolean):
        wanted = constant(bool(tree.expression.this), BOOLEAN)
        return logic.null_safe_equal(logic.truth(operand, "IS"), wanted)
    raise InvalidRequest(f"{tree.sql(dialect=DIALECT)} is not supported")


def _on_in(compiler: _Compiler, tree: exp.Expr) -> Expression:
    values = tree.args.get("expressions")
    if not values:
        raise InvalidRequest("IN is supported for a list of values only")
    return logic.contained(compiler.this(tree), [compiler.compile(value) for value in values])


def _on_like(compiler: _Compiler, tree: exp.Expr, escape: str = "\\") -> Expression:
    return logic.like(*compiler.pair(tree), escape)


def _on_escape(compiler: _Compiler, tree: exp.Expr) -> Expression:
    mark = tree.expression
    if not isinstance(tree.this, exp.Like) or not mark.is_string or len(mark.this) != 1:
        raise InvalidRequest("ESCAPE must follow LIKE and name one character")
    return _on_like(compiler, tree.this, mark.this)


def _on_round(compiler: _Compiler, tree: exp.Expr) -> Expression:
    return arithmetic.rounded(compiler.this(tree), compiler.optional(tree, "decimals"))


def _on_between(compiler: _Compiler, tree: exp.Expr) -> Expression:
    return logic.between(compiler.this(tree), compiler.compile(tree.args["low"]), compiler.compile(tree.args["high"]))


def _on_coalesce(compiler: _Compiler, tree: exp.Expr) -> Expression:
    return logic.coalesced([compiler.this(tree), *map(compiler.compile, tree.expressions)])


def _on_substring(compiler: _Compiler, tree: exp.Expr) -> Expression:
    start = compiler.optional(tree, "start") or constant(1, INT)
    return strings.substring(compiler.this(tree), start, compiler.optional(tree, "length"))


def _on_trim(compiler: _Compiler, tree: exp.Expr) -> Expression:
    side = str(tree.args.get("position") or "BOTH").upper()
    return strings.trimmed(compiler.this(tree), side, compiler.optional(tree, "expression"))


def _on_concat(compiler: _Compiler, tree: exp.Expr) -> Expression:
    return strings.concatenated([compiler.compile(part) for part in tree.expressions])


def _signed(sign: str) -> Rule:
    return lambda compiler, tree: arithmetic.arithmetic(sign, *compiler.pair(tree))


def _compared(sign: str) -> Rule:
    return lambda compiler, tree: logic.compared(sign, *compiler.pair(tree))


def _unary(build: Callable[[Expression], Expression]) -> Rule:
    return lambda compiler, tree: build(compiler.this(tree))


def _binary(build: Callable[[Expression, Expression], Expression]) -> Rule:
    return lambda compiler, tree: build(*compiler.pair(tree))


def _chained(build: Callable[[Expression, Expression], Expression]) -> Rule:
    """A chain of the same connective, in halves of halves: a long one does not nest deeply."""

    def half(parts: Sequence[Expression]) -> Expression:
        middle = len(parts) // 2
        return parts[0] if middle == 0 else build(half(parts[:middle]), half(parts[middle:]))

    return lambda compiler, tree: half([compiler.compile(part) for part in tree.flatten()])


_RULES: dict[type[exp.Expr], Rule] = {
    exp.Column: _Compiler.column,
    exp.Literal: _on_literal,
    exp.HexString: lambda _, tree: strings.binary_literal(tree.this),
    exp.RawString: lambda _, tree: constant(tree.this, STRING),
    exp.Boolean: lambda _, tree: constant(bool(tree.this), BOOLEAN),
    exp.Null: lambda *_: constant(None, NULL),
    exp.Paren: lambda compiler, tree: compiler.this(tree),
    exp.Neg: _on_negation,
    exp.Add: _signed("+"),
    exp.Sub: _signed("-"),
    exp.Mul: _signed("*"),
    exp.Div: _signed("/"),
    exp.Mod: _signed("%"),
    exp.IntDiv: _binary(arithmetic.integral_division),
    exp.Abs: _unary(arithmetic.absolute),
    exp.Round: _on_round,
    exp.EQ: _compared("="),
    exp.NEQ: _compared("<>"),
    exp.LT: _compared("<"),
    exp.LTE: _compared("<="),
    exp.GT: _compared(">"),
    exp.GTE: _compared(">="),
    exp.NullSafeEQ: _binary(logic.null_safe_equal),
    exp.And: _chained(logic.conjunction),
    exp.Or: _chained(logic.disjunction),
    exp.Not: _unary(logic.negation),
    exp.Is: _on_is,
    exp.In: _on_in,
    exp.Between: _on_between,
    exp.Like: _on_like,
    exp.Escape: _on_escape,
    exp.Case: _on_case,
    exp.If: _on_if,
    exp.Nullif: _on_nullif,
    exp.Coalesce: _on_coalesce,
    exp.Cast: _on_cast,
    exp.TryCast: _on_cast,
    exp.Upper: _unary(strings.upper),
    exp.Lower: _unary(strings.lower),
    exp.Length: _unary(strings.length),
    exp.Substring: _on_substring,
    exp.Concat: _on_concat,
    exp.DPipe: lambda compiler, tree: strings.concatenated(compiler.pair(tree)),
    exp.Trim: _on_trim,
}
