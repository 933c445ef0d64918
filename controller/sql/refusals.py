"""Refusals: why a text cannot be compiled, where in it that is, and what to do instead."""

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sqlglot import exp

from reconcile.errors import InvalidRequest

#: Names that a hint lists when none is close to the one that was asked for.
_LISTED_MAX = 8


class NotYet(InvalidRequest):
    """Sound SQL that we do not compile yet; every other refusal stands whatever runs the query."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlText:
    """The text that is being compiled, which knows where in it a part of its syntax tree stands."""

    text: str

    def place(self, offset: int) -> str:
        """Line and column of a character, both from one."""
        line = self.text.count("\n", 0, offset) + 1
        return f"{line}:{offset - self.text.rfind(chr(10), 0, offset)}"

    def refusal(self, at: exp.Expr | int, message: str, *, detail: str = "", hint: str = "") -> InvalidRequest:
        """The text is wrong at this part, or at this character."""
        return InvalidRequest(self._placed(at, message), detail=detail, hint=hint)

    def not_yet(self, at: exp.Expr | int, what: str, *, detail: str = "", hint: str = "") -> NotYet:
        """The text is sound, but this part of it is beyond us."""
        return NotYet(self._placed(at, f"{what} not supported yet"), detail=detail, hint=hint)

    @contextmanager
    def placing(self, at: exp.Expr, *, hint: str = "") -> Iterator[None]:
        """Gives a place in the text, and another hint if there is one, to refusals that know none."""
        try:
            yield
        except InvalidRequest as error:
            raise self.refusal(at, error.message, detail=error.detail, hint=hint or error.hint) from error

    def _placed(self, at: exp.Expr | int, message: str) -> str:
        offset = at if isinstance(at, int) else self._offset(at)
        return f"{message} at {self.place(offset)}"

    def _offset(self, node: exp.Expr) -> int:
        # The parser marks names, literals and most calls. Any other part begins where the first of its marked parts
        # does; one that has none, such as NULL, is placed with what surrounds it.
        around: exp.Expr | None = node
        while around is not None:
            starts = [start for part in around.walk() if isinstance(start := part.meta.get("start"), int)]
            if starts:
                return min(starts)
            around = around.parent
        return 0


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint at the names closest to one that is unknown, or at what there is when none is close."""
    candidates = sorted(set(known))
    spelled = {candidate.lower(): candidate for candidate in candidates}
    close = difflib.get_close_matches(name.lower(), spelled, n=3)
    if close:
        return f"did you mean {' or '.join(repr(spelled[match]) for match in close)}?"
    if not candidates:
        return ""
    more = "" if len(candidates) <= _LISTED_MAX else f" and {len(candidates) - _LISTED_MAX} more"
    return f"there are {', '.join(map(repr, candidates[:_LISTED_MAX]))}{more}"
