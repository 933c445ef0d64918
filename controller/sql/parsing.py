"""Reading SQL text: one statement or one expression becomes a syntax tree, or a refusal that says where."""

import re
from collections.abc import Callable, Sequence
from typing import NoReturn, TypeVar

from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from controller.sql.names import SPARK, shown
from controller.sql.refusals import SqlText
from reconcile.errors import InvalidRequest
from reconcile.limits import NAME_CHARACTERS_MAX, PLAN_BYTES_MAX

Value = TypeVar("Value")

_TOO_DEEP = "nested too deeply"
_SURROGATE = re.compile("[\ud800-\udfff]")
_OPENING = re.compile(r"['\"`]|/\*")
#: Marks that may open what is not closed, looked at from the end of a text.
_OPENINGS_TRIED = 16
#: Tokens with which a query can begin; anything else is another kind of statement.
_QUERY = {TokenType.SELECT, TokenType.WITH, TokenType.L_PAREN, TokenType.VALUES, TokenType.FROM}


def parse_statement(sql: SqlText) -> exp.Expr:
    """The one query in a text."""
    tokens = _tokens(sql)
    first, statement = tokens[0], [token.token_type for token in tokens]
    if TokenType.SEMICOLON in statement:
        end = statement.index(TokenType.SEMICOLON)
        rest = [token for token in tokens[end:] if token.token_type is not TokenType.SEMICOLON]
        if rest:
            raise sql.refusal(rest[0].start, "a second statement begins", hint="give one statement at a time")
    if first.token_type not in _QUERY:
        raise sql.refusal(
            first.start,
            f"{shown(first.text.upper())} does not begin a query",
            hint="a query begins with SELECT or WITH",
        )
    return _parsed(sql, lambda: SPARK.parse(sql.text))


def parse_expression(sql: SqlText) -> exp.Expr:
    """The one expression in a text."""
    tokens = _tokens(sql)
    for token in tokens:
        if token.token_type is TokenType.SEMICOLON:
            raise sql.refusal(token.start, "an expression has no semicolon", hint="give one expression")
    return _parsed(sql, lambda: SPARK.parse_into(exp.Condition, sql.text))


def guarded(compile: Callable[[], Value]) -> Value:
    """What ``compile`` gives, or a refusal when the text is nested beyond what can be walked."""
    try:
        return compile()
    except RecursionError as error:
        raise InvalidRequest(f"the query is {_TOO_DEEP}", hint="split it into views") from error


def _tokens(sql: SqlText) -> Sequence[Token]:
    """The tokens of a text that can be stored and sent; at least one."""
    if (nul := sql.text.find("\0")) >= 0:
        raise sql.refusal(nul, "the text contains a NUL character", hint="remove it")
    if (half := _SURROGATE.search(sql.text)) is not None:
        raise sql.refusal(half.start(), "the text contains half of a surrogate pair", hint="send valid Unicode")
    if len(sql.text) > PLAN_BYTES_MAX:
        raise InvalidRequest(
            "the text is too long", detail=f"it has {len(sql.text)} characters", hint=f"use at most {PLAN_BYTES_MAX}"
        )
    try:
        tokens = SPARK.tokenize(sql.text)
    except TokenError as error:
        hint = "a quote, a backtick or a comment is opened and not closed"
        raise sql.refusal(_opening(sql.text), "the text breaks off", hint=hint) from error
    if not any(token.token_type is not TokenType.SEMICOLON for token in tokens):
        raise InvalidRequest("the text is empty", hint="write a query such as SELECT * FROM t")
    return tokens


def _opening(text: str) -> int:
    """Where a text whose last token is not closed opens it: the last mark before which all is well."""
    for mark in list(_OPENING.finditer(text))[: -_OPENINGS_TRIED - 1 : -1]:
        try:
            SPARK.tokenize(text[: mark.start()])
        except TokenError:
            continue
        return mark.start()
    return max(len(text) - 1, 0)


def _parsed(sql: SqlText, parse: Callable[[], Sequence[exp.Expr | None]]) -> exp.Expr:
    try:
        trees = [tree for tree in parse() if tree is not None]
    except ParseError as error:
        _refuse_syntax(error)
    except RecursionError as error:
        raise InvalidRequest(f"the query is {_TOO_DEEP}", hint="split it into views") from error
    except (SqlglotError, ValueError, TypeError, AttributeError, LookupError, ArithmeticError) as error:
        # The parser is not ours and not total: on some broken texts it trips over itself instead of refusing.
        raise InvalidRequest("syntax error", detail=str(error), hint="check the spelling") from error
    if len(trees) != 1:
        raise InvalidRequest("syntax error", hint="give one statement at a time")
    _check_names(sql, trees[0])
    return trees[0]


def _refuse_syntax(error: ParseError) -> NoReturn:
    first = error.errors[0] if error.errors else {}
    line, end, found = first.get("line"), first.get("col"), str(first.get("highlight") or "")
    place = ""
    if isinstance(line, int) and isinstance(end, int):
        place = f" at {line}:{max(1, end - len(found) + 1)}"
    near = f" near {shown(found)}" if found else ""
    raise InvalidRequest(
        f"syntax error{near}{place}", hint="check what stands before it; names that are words of SQL need backticks"
    )


def _check_names(sql: SqlText, tree: exp.Expr) -> None:
    """Refuses names that could name nothing, before they are looked up, compared or shown."""
    for identifier in tree.find_all(exp.Identifier):
        if len(identifier.name) > NAME_CHARACTERS_MAX:
            raise sql.refusal(
                identifier,
                f"name {shown(identifier.name)} is too long",
                hint=f"use at most {NAME_CHARACTERS_MAX} characters",
            )
