"""Names that users give: which are accepted, and how one is written in an expression."""

import functools
import re
import unicodedata
from collections.abc import Iterable

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import TokenType

from controller.sql.relations import Column
from plainsong.types import DIFF, STEP, arrow_type, is_nested, type_name
from reconcile.errors import InvalidRequest
from reconcile.limits import NAME_CHARACTERS_MAX

SPARK = Dialect.get_or_raise("spark")

#: Unicode categories that a name may not contain, and what to call them.
_REFUSED = {
    "Cc": "a control character",
    "Cs": "half of a surrogate pair",
    "Zl": "a line separator",
    "Zp": "a paragraph separator",
}
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
#: Plain words that Spark reads as a call when they stand alone.
_CALLS = {"current_time", "current_user", "session_user", "user", "localtimestamp", "current_catalog", "current_schema"}


def shown(name: str) -> str:
    """A name as a message shows it: quoted, escaped and cut short."""
    return repr(name if len(name) <= 64 else f"{name[:61]}...")


def validate_name(name: str) -> str:
    """The name itself, if it may name something; quotes, slashes, blanks and emoji are as good as letters."""
    if not name:
        raise InvalidRequest("a name is empty", hint="give it at least one character")
    if len(name) > NAME_CHARACTERS_MAX:
        raise InvalidRequest(
            f"name {shown(name)} is too long",
            detail=f"it has {len(name)} characters",
            hint=f"use at most {NAME_CHARACTERS_MAX}",
        )
    for place, character in enumerate(name, start=1):
        if (why := _REFUSED.get(unicodedata.category(character))) is not None:
            raise InvalidRequest(
                f"name {shown(name)} cannot be used",
                detail=f"its character {place} is {why} (U+{ord(character):04X})",
                hint="use printable characters",
            )
    return name


def validate_column_name(name: str) -> str:
    """The name itself, if a column may bear it."""
    validate_name(name)
    if name.lower().startswith((STEP, DIFF)):
        raise InvalidRequest(
            f"column name {shown(name)} is reserved",
            detail=f"names that begin with {STEP} or {DIFF} belong to the system",
            hint="give the column another name",
        )
    return name


def same_name(left: str, right: str) -> bool:
    """Whether Spark takes two names for one."""
    return left.lower() == right.lower()


def duplicate_name(names: Iterable[str]) -> str | None:
    """The first name that repeats an earlier one, be it in another case of letters."""
    seen: set[str] = set()
    for name in names:
        if name.lower() in seen:
            return name
        seen.add(name.lower())
    return None


def unused_name(wanted: str, taken: set[str]) -> str:
    """``wanted``, or a numbered form of it that is not taken; ``taken``, in lower case, then has it."""
    name, number = wanted, 1
    while name.lower() in taken:
        number += 1
        name = f"{wanted}#{number}"
    taken.add(name.lower())
    return name


def compile_columns(columns: Iterable[Column]) -> tuple[Column, ...]:
    """The columns of a table with their types in the one spelling that we write, or why there can be no such table."""
    compiled = tuple(
        Column(
            name=validate_column_name(column.name),
            type=type_name(arrow_type(column.type)),
            nullable=column.nullable,
        )
        for column in columns
    )
    for column in compiled:
        if is_nested(column.type):
            # Rows are written, compared and stored by executors that know flat types; views have no such bounds.
            raise InvalidRequest(
                f"column {shown(column.name)} of a table cannot be {column.type}",
                hint="use several columns, or text as JSON that a view takes apart with from_json",
            )
    if not compiled:
        raise InvalidRequest("a table has no columns", hint="give it at least one")
    if (name := duplicate_name(column.name for column in compiled)) is not None:
        raise InvalidRequest(
            f"column {shown(name)} is there twice",
            detail="upper and lower case do not make a difference",
            hint="give each column a name of its own",
        )
    return compiled


@functools.lru_cache(maxsize=4096)
def _needs_quotes(name: str) -> bool:
    if _PLAIN.fullmatch(name) is None or name.lower() in _CALLS:
        return True
    try:
        tokens = SPARK.tokenize(name)
    except TokenError:
        return True
    return [token.token_type for token in tokens] != [TokenType.VAR]


def column_reference(name: str) -> exp.Column:
    """A column by its name alone, in backticks when it could be read as anything else."""
    return exp.Column(this=exp.Identifier(this=name, quoted=_needs_quotes(name)))
