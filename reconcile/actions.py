"""Actions that both reconcilers of an instance ask of their shell.

A shell performs the actions of one ``handle`` in order, and begins one only when those before it have taken
effect. That is why ``PersistEpoch`` stands before ``Accept``: what was acknowledged is durable.
"""

from dataclasses import dataclass
from typing import Generic, TypeVar

from reconcile.compute_protocol import Hello
from reconcile.errors import ProtocolViolation, Violation
from reconcile.ids import Epoch, SessionId
from reconcile.sessions import Refusal, Sessions

Response_co = TypeVar("Response_co", covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class PersistEpoch:
    """Make the highest epoch durable; it fences from now on, also after a crash."""

    epoch: Epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class Accept:
    """Tell the caller that its session is live; end the stream of any other."""

    session: SessionId
    epoch: Epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class Refuse:
    """Tell the caller why what it said has no effect."""

    session: SessionId
    epoch: Epoch | None
    refusal: Refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class EndSession:
    """Tell the peer how it broke the protocol and end its stream; ``None`` is one that never said hello."""

    session: SessionId | None
    violation: ProtocolViolation


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply(Generic[Response_co]):
    """Send ``response`` to the live session."""

    session: SessionId
    response: Response_co


def greeting(sessions: Sessions, hello: Hello) -> tuple[PersistEpoch | Accept | Refuse, ...]:
    """Lets a session in, after its epoch is durable, or refuses it."""
    before = sessions.epoch
    refusal = sessions.greet(hello)
    if refusal is not None:
        return (Refuse(session=hello.session, epoch=hello.epoch, refusal=refusal),)
    persist = (PersistEpoch(epoch=hello.epoch),) if hello.epoch > before else ()
    return (*persist, Accept(session=hello.session, epoch=hello.epoch))


def turned_away(sessions: Sessions, session: SessionId | None) -> EndSession | Refuse | None:
    """What to tell a caller whose commands have no effect; ``None`` if it is the live session."""
    if session is None:
        return EndSession(session=None, violation=ProtocolViolation(Violation.BEFORE_HELLO))
    refusal = sessions.refusal(session)
    return None if refusal is None else Refuse(session=session, epoch=None, refusal=refusal)
