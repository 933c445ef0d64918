"""Sessions: who may speak to an instance, and what may be said when.

One session is live at a time. A newer one supersedes it, a lower epoch than the highest ever seen is refused, and
what is said in the wrong stage is a violation that ends the session. Both the compute and the storage reconciler
of an instance stand behind such a gate.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

from reconcile.compute_protocol import Hello
from reconcile.errors import InvariantBroken, ProtocolViolation, Violation
from reconcile.ids import Epoch, ReplicaId, SessionId
from reconcile.limits import SESSIONS_REMEMBERED_MAX

PROTOCOL_VERSION = 1


class Stage(Enum):
    """How far the live session got; ``ENDED`` when there is none."""

    ENDED = auto()
    GREETED = auto()
    INITIALIZING = auto()
    RUNNING = auto()


class Verb(Enum):
    """What moves a session from stage to stage; every other command is ``COMMAND``."""

    HELLO = auto()
    CREATE_INSTANCE = auto()
    COMMAND = auto()
    INITIALIZATION_COMPLETE = auto()
    DROP_INSTANCE = auto()
    END = auto()


#: All moves there are. What is not here is said before ``CreateInstance``, and is a violation.
MOVES: Mapping[tuple[Stage, Verb], Stage] = {
    (Stage.ENDED, Verb.HELLO): Stage.GREETED,
    (Stage.GREETED, Verb.HELLO): Stage.GREETED,
    (Stage.INITIALIZING, Verb.HELLO): Stage.GREETED,
    (Stage.RUNNING, Verb.HELLO): Stage.GREETED,
    (Stage.GREETED, Verb.CREATE_INSTANCE): Stage.INITIALIZING,
    (Stage.INITIALIZING, Verb.CREATE_INSTANCE): Stage.INITIALIZING,
    (Stage.RUNNING, Verb.CREATE_INSTANCE): Stage.INITIALIZING,
    (Stage.INITIALIZING, Verb.COMMAND): Stage.INITIALIZING,
    (Stage.RUNNING, Verb.COMMAND): Stage.RUNNING,
    (Stage.INITIALIZING, Verb.INITIALIZATION_COMPLETE): Stage.RUNNING,
    (Stage.RUNNING, Verb.INITIALIZATION_COMPLETE): Stage.RUNNING,
    (Stage.INITIALIZING, Verb.DROP_INSTANCE): Stage.GREETED,
    (Stage.RUNNING, Verb.DROP_INSTANCE): Stage.GREETED,
    (Stage.ENDED, Verb.END): Stage.ENDED,
    (Stage.GREETED, Verb.END): Stage.ENDED,
    (Stage.INITIALIZING, Verb.END): Stage.ENDED,
    (Stage.RUNNING, Verb.END): Stage.ENDED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FencedBy:
    """A higher epoch was seen."""

    epoch: Epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class SupersededBy:
    """A later session was accepted."""

    session: SessionId


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionEnded:
    """The session is over, or never was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stranger:
    """The caller means another deployment or replica, or speaks another version of the protocol."""

    field: str
    ours: str
    theirs: str


Refusal = FencedBy | SupersededBy | SessionEnded | Stranger


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who this instance is; an empty field is not compared."""

    deployment: str = ""
    replica: ReplicaId | None = None


class Sessions:
    """The gate of one reconciler."""

    def __init__(self, *, identity: Identity | None = None, epoch: Epoch = Epoch(0)) -> None:
        self._identity = identity or Identity()
        #: The highest epoch ever seen; never decreases.
        self._epoch = epoch
        #: Sessions that were accepted, oldest first; the newest SESSIONS_REMEMBERED_MAX of them.
        self._accepted: dict[SessionId, None] = {}
        #: The session accepted last, live or not.
        self._last: SessionId | None = None
        self._stage = Stage.ENDED

    @property
    def epoch(self) -> Epoch:
        return self._epoch

    @property
    def stage(self) -> Stage:
        return self._stage

    @property
    def live(self) -> SessionId | None:
        return None if self._stage is Stage.ENDED else self._last

    def greet(self, hello: Hello) -> Refusal | None:
        """Accepts the session of ``hello``, which supersedes any other; or says why not, with nothing changed."""
        stranger = self._stranger(hello)
        if stranger is not None:
            return stranger
        if hello.epoch < self._epoch:
            return FencedBy(epoch=self._epoch)
        self._epoch = hello.epoch
        self._last = hello.session
        self._accepted.pop(hello.session, None)  # a peer that uses a nonce twice comes last
        self._accepted[hello.session] = None
        if len(self._accepted) > SESSIONS_REMEMBERED_MAX:
            del self._accepted[next(iter(self._accepted))]
        self._stage = MOVES[self._stage, Verb.HELLO]
        return None

    def refusal(self, session: SessionId) -> Refusal | None:
        """Why what ``session`` says has no effect; ``None`` if it is live."""
        if session == self.live:
            return None
        if self._last is None or session == self._last or session not in self._accepted:
            return SessionEnded()
        return SupersededBy(session=self._last)

    def move(self, verb: Verb) -> None:
        """Moves the live session on; raises, with nothing changed, if it must not say ``verb`` now."""
        self.require(verb)
        self._stage = MOVES[self._stage, verb]

    def require(self, verb: Verb) -> None:
        """Raises unless the live session may say ``verb`` now."""
        if (self._stage, verb) not in MOVES:
            raise ProtocolViolation(Violation.BEFORE_CREATE_INSTANCE)

    def check(self) -> None:
        if self._last is not None and next(reversed(self._accepted), None) != self._last:
            raise InvariantBroken("the last session is not the newest that was accepted")
        if self._stage is not Stage.ENDED and self._last is None:
            raise InvariantBroken("a session is live that was never accepted")
        if self._epoch < 0:
            raise InvariantBroken(f"the highest epoch is negative: {self._epoch}")

    def _stranger(self, hello: Hello) -> Stranger | None:
        ours = self._identity
        if ours.deployment and hello.deployment != ours.deployment:
            return Stranger(field="deployment", ours=ours.deployment, theirs=hello.deployment)
        if ours.replica is not None and hello.replica != ours.replica:
            return Stranger(field="replica", ours=str(ours.replica), theirs=str(hello.replica))
        if hello.protocol_version != PROTOCOL_VERSION:
            theirs = str(hello.protocol_version)
            return Stranger(field="protocol version", ours=str(PROTOCOL_VERSION), theirs=theirs)
        return None
