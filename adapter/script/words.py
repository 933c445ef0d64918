"""Words of a script line: how its arguments are read, and how values are written."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NoReturn, TypeVar

from reconcile.frontiers import CLOSED, Antichain
from reconcile.ids import GlobalId, PeekId, ReplicaId, SessionId, Step
from reconcile.updates import Update, UpdateList, Updates

T = TypeVar("T")

#: A word, its parts quoted or bare; a quoted part ends at the first quote that no backslash escapes.
_WORD = re.compile(r'(?:[^\s"]|"(?:[^"\\]|\\["\\])*")+')
_TEXT = re.compile(r'"((?:[^"\\]|\\["\\])*)"')


class BadLine(Exception):
    """An input line that the machine does not understand, and why."""


@dataclass(frozen=True, slots=True)
class TextUpdates:
    """The opaque contents of one batch of a tail."""

    text: str

    def __len__(self) -> int:
        return 1

    def not_before(self, frontier: Antichain) -> "TextUpdates":  # noqa: ARG002  # opaque: it cannot be cut
        return self


class Line:
    """The words of one input line, taken one after the other; what is left over at the end is an error."""

    def __init__(self, text: str) -> None:
        self.text = text
        words = _WORD.findall(text)
        if _WORD.sub("", text).strip():
            raise BadLine('a text is not closed, or has a backslash before something other than " or \\')
        self._plain = [word for word in words if not re.match(r"[a-z_]+=", word)]
        pairs = [word.partition("=") for word in words if re.match(r"[a-z_]+=", word)]
        self._named = {name: value for name, _, value in pairs}
        if len(self._named) < len(pairs):
            raise BadLine("an argument is given twice")
        self.verb = self._plain.pop(0) if self._plain else ""

    def next(self, read: Callable[[str], T], what: str) -> T:
        """The next plain word."""
        if not self._plain:
            raise BadLine(f"{self.verb} needs {what}")
        return read(self._plain.pop(0))

    def rest(self, read: Callable[[str], T]) -> tuple[T, ...]:
        """All plain words that are left."""
        words, self._plain = self._plain, []
        return tuple(read(word) for word in words)

    def named(self, name: str, read: Callable[[str], T]) -> T:
        """The word ``name=...``."""
        if name not in self._named:
            raise BadLine(f"{self.verb} needs {name}=")
        return read(self._named.pop(name))

    def optional(self, name: str, read: Callable[[str], T], default: T) -> T:
        return self.named(name, read) if name in self._named else default

    def done(self) -> None:
        left = [*self._plain, *(f"{name}={value}" for name, value in self._named.items())]
        if left:
            raise BadLine(f"{self.verb} does not take {' '.join(left)!r}")

    def unknown(self) -> NoReturn:
        raise BadLine(f"unknown verb {self.verb!r}")


# --- reading ----------------------------------------------------------------------------------------------


def number(word: str) -> int:
    if not (word.isascii() and word.isdigit()):
        raise BadLine(f"{word!r} is not a number")
    return int(word)


def step(word: str) -> Step:
    return Step(number(word))


def frontier(word: str) -> Antichain:
    return CLOSED if word == "[]" else Antichain.at(number(word))


def collection(word: str) -> GlobalId:
    try:
        return GlobalId.parse(word)
    except ValueError as error:
        raise BadLine(str(error)) from error


def replica(word: str) -> ReplicaId:
    return ReplicaId(_numbered("r", word, "replica"))


def peek(word: str) -> PeekId:
    return PeekId(_numbered("p", word, "peek"))


def session(word: str) -> SessionId:
    if not re.fullmatch(r"\w+", word):
        raise BadLine(f"{word!r} is not a session: it must be a word")
    return SessionId(word)


def text(word: str) -> str:
    match = _TEXT.fullmatch(word)
    if match is None:
        raise BadLine(f"{word!r} is not a text in double quotes")
    return re.sub(r'\\(["\\])', r"\1", match[1])


def listed(read: Callable[[str], T]) -> Callable[[str], tuple[T, ...]]:
    """Reads a comma-separated list, which may be empty."""
    return lambda word: tuple(read(item) for item in word.split(",")) if word else ()


def update(word: str) -> Update:
    time, colon, row = word.partition(":")
    if not colon:
        raise BadLine(f"{word!r} is not an update: it must be time:text")
    return Update(step=step(time), row=row)


def _numbered(letter: str, word: str, what: str) -> int:
    if word[:1] != letter or not (word[1:].isascii() and word[1:].isdigit()):
        raise BadLine(f"{word!r} is not a {what}: it must be {letter!r} and a number")
    return int(word[1:])


# --- writing ----------------------------------------------------------------------------------------------


def quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def comma(values: Iterable[object]) -> str:
    return ",".join(str(value) for value in values)


def updates(value: Updates) -> str:
    """A blank and ``time:text`` for each update; retractions as ``time:-text``; an opaque batch as a text."""
    if isinstance(value, TextUpdates):
        return f" {quoted(value.text)}"
    if not isinstance(value, UpdateList):
        raise TypeError(f"scripts write plain updates, not {type(value).__name__}")
    signs = {1: "", -1: "-"}
    return "".join(f" {u.step}:{signs[sign]}{u.row}" for u in value.updates for sign in _units(u.diff))


def _units(diff: int) -> Iterable[int]:
    return [1 if diff > 0 else -1] * abs(diff)
