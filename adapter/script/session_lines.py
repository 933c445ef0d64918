"""Sessions as script lines: who speaks, and how the gate answers."""

from dataclasses import dataclass
from typing import Generic, TypeVar, assert_never

from adapter.script import words
from adapter.script.words import BadLine, Line
from reconcile.actions import Accept, EndSession, PersistEpoch, Refuse
from reconcile.compute_protocol import Hello
from reconcile.ids import Epoch, SessionId
from reconcile.sessions import FencedBy, Refusal, SessionEnded, Stranger, SupersededBy

Command = TypeVar("Command")


@dataclass(frozen=True, slots=True)
class Connect:
    """``connect``."""

    hello: Hello


@dataclass(frozen=True, slots=True)
class Disconnect:
    """``disconnect`` of a named session, or of the last accepted one."""

    session: SessionId | None


@dataclass(frozen=True, slots=True)
class Said(Generic[Command]):
    """A command of a named session, or of the last accepted one."""

    session: SessionId | None
    command: Command


class SessionReader:
    """Reads the part of a line that concerns sessions."""

    def __init__(self) -> None:
        self._used: set[SessionId] = set()

    def speaker(self, text: str) -> tuple[SessionId | None, Line]:
        """Takes a leading ``@NAME`` off the line."""
        if not text.startswith("@"):
            return None, Line(text)
        name, _, rest = text[1:].partition(" ")
        return words.session(name), Line(rest)

    def read(self, speaker: SessionId | None, line: Line) -> Connect | Disconnect | None:
        """``connect`` or ``disconnect``; ``None`` if the line is something else."""
        if line.verb == "disconnect":
            return Disconnect(speaker)
        if line.verb != "connect":
            return None
        if speaker is not None:
            raise BadLine("connect names its session itself; leave out the @NAME")
        session = line.named("session", words.session)
        if session in self._used:
            raise BadLine(f"session {session} was used before; each connect needs a name of its own")
        self._used.add(session)
        return Connect(Hello(epoch=Epoch(line.named("epoch", words.number)), session=session))


def write_session_action(action: PersistEpoch | Accept | Refuse | EndSession) -> list[str]:
    match action:
        case PersistEpoch():
            return []
        case Accept(session=session, epoch=epoch):
            return [f"accepted session={session} epoch={epoch}"]
        case Refuse(session=session, epoch=epoch, refusal=refusal):
            return [_write_refusal(session, epoch, refusal)]
        case EndSession(session=session, violation=violation):
            return [f"violation session={session or '-'} {violation.why}"]
        case _:
            assert_never(action)


def _write_refusal(session: SessionId, epoch: Epoch | None, refusal: Refusal) -> str:
    match refusal:
        case FencedBy(epoch=fence):
            return f"refused session={session} epoch={epoch} fenced-by={fence}"
        case SupersededBy(session=newer):
            return f"refused session={session} superseded-by={newer}"
        case SessionEnded():
            return f"refused session={session} ended"
        case Stranger(field=field):
            return f"refused session={session} stranger={field}"
        case _:
            assert_never(refusal)
