"""The owner: one loop's two machines, their runtimes, and the sessions that speak to them.

Events come in from streams and runtimes, always on the event loop; the actions of each are performed in order before
the next event is looked at. Nothing here decides anything.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar, assert_never

from instance.epoch_file import EpochFile
from instance.outbox import Outbox
from instance.runtime import Runtime
from instance.storage.runtime import StorageRuntime
from plainsong.failpoint import failpoint
from reconcile.actions import Accept, EndSession, PersistEpoch, Refuse, Reply
from reconcile.compute_actions import (
    CommandReceived,
    ComputeAction,
    ComputeEvent,
    RuntimeEvent,
    SessionClosed,
    SessionOpened,
)
from reconcile.compute_protocol import ComputeCommand, ComputeResponse, Hello
from reconcile.errors import Fenced, PlainsongError, ProtocolViolation, Violation
from reconcile.ids import SessionId
from reconcile.reconciler import Reconciler
from reconcile.sessions import FencedBy, Identity, Refusal, SessionEnded, Stranger, SupersededBy
from reconcile.storage_actions import StorageAction, StorageCommandReceived, StorageEvent, StorageReport
from reconcile.storage_protocol import StorageCommand, StorageResponse
from reconcile.storage_reconciler import StorageReconciler

Response = TypeVar("Response")


class NotWelcome(PlainsongError):
    """The caller is not the one that this instance listens to."""

    code = "FAILED_PRECONDITION"


@dataclass(slots=True)
class Conversation(Generic[Response]):
    """One stream: who speaks on it, once that is known, and what it is told."""

    session: SessionId | None = None
    outbox: Outbox[Response] = field(default_factory=Outbox)


class Owner:
    """Owns the state of one instance."""

    def __init__(
        self,
        *,
        identity: Identity,
        epochs: EpochFile,
        runtime: Callable[[Callable[[RuntimeEvent], None]], Runtime],
        storage: Callable[[Callable[[StorageReport], None]], StorageRuntime],
        on_sessions: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._epochs = epochs
        self._compute = Reconciler(identity=identity, epoch=epochs.highest)
        self._storage = StorageReconciler(identity=identity, epoch=epochs.highest)
        self._compute_live: Conversation[ComputeResponse] | None = None
        self._storage_live: Conversation[StorageResponse] | None = None
        self._runtime = runtime(self.runtime_reported)
        self._storage_runtime = storage(self.storage_reported)
        #: Told how many sessions are live, whenever that changes.
        self._on_sessions = on_sessions

    async def close(self) -> None:
        await self._runtime.close()
        await self._storage_runtime.close()

    # --- compute ------------------------------------------------------------------------------------------

    def compute_said(self, conversation: Conversation[ComputeResponse], commands: Iterable[ComputeCommand]) -> None:
        handle = self._compute.handle
        for command in commands:
            event: ComputeEvent
            if isinstance(command, Hello) and conversation.session is None:
                conversation.session = command.session
                event = SessionOpened(hello=command)
            else:
                event = CommandReceived(session=conversation.session, command=command)
            actions = handle(event)
            if actions:
                self._perform_compute(actions, conversation)

    def compute_closed(self, conversation: Conversation[ComputeResponse]) -> None:
        if conversation is self._compute_live and conversation.session is not None:
            self._compute_live = None
            self._perform_compute(self._compute.handle(SessionClosed(session=conversation.session)), None)
            self._sessions_changed()

    def runtime_reported(self, event: RuntimeEvent) -> None:
        self._perform_compute(self._compute.handle(event), None)

    def _perform_compute(self, actions: Iterable[ComputeAction], speaker: Conversation[ComputeResponse] | None) -> None:
        for action in actions:
            match action:
                case Reply(response=response):
                    if self._compute_live is not None:
                        self._compute_live.outbox.put(response)
                case PersistEpoch() | Accept() | Refuse() | EndSession():
                    live = self._perform_session(action, speaker, self._compute_live)
                    if live is not self._compute_live:
                        self._compute_live = live
                        self._sessions_changed()
                case _:
                    self._runtime.perform(action)

    # --- storage ------------------------------------------------------------------------------------------

    def storage_said(self, conversation: Conversation[StorageResponse], commands: Iterable[StorageCommand]) -> None:
        for command in commands:
            event: StorageEvent
            if isinstance(command, Hello) and conversation.session is None:
                conversation.session = command.session
                event = SessionOpened(hello=command)
            else:
                event = StorageCommandReceived(session=conversation.session, command=command)
            self._perform_storage(self._storage.handle(event), conversation)

    def storage_closed(self, conversation: Conversation[StorageResponse]) -> None:
        if conversation is self._storage_live and conversation.session is not None:
            self._storage_live = None
            self._perform_storage(self._storage.handle(SessionClosed(session=conversation.session)), None)
            self._sessions_changed()

    def storage_reported(self, event: StorageReport) -> None:
        self._perform_storage(self._storage.handle(event), None)

    def _perform_storage(self, actions: Iterable[StorageAction], speaker: Conversation[StorageResponse] | None) -> None:
        for action in actions:
            match action:
                case Reply(response=response):
                    if self._storage_live is not None:
                        self._storage_live.outbox.put(response)
                case PersistEpoch() | Accept() | Refuse() | EndSession():
                    live = self._perform_session(action, speaker, self._storage_live)
                    if live is not self._storage_live:
                        self._storage_live = live
                        self._sessions_changed()
                case _:
                    self._storage_runtime.perform(action)

    # --- sessions -----------------------------------------------------------------------------------------

    def _perform_session(
        self,
        action: PersistEpoch | Accept | Refuse | EndSession,
        speaker: Conversation[Response] | None,
        live: Conversation[Response] | None,
    ) -> Conversation[Response] | None:
        """Performs an action of the gate; returns the conversation that is live after it."""
        match action:
            case PersistEpoch(epoch=epoch):
                failpoint("instance-before-epoch")
                self._epochs.persist(epoch)
                failpoint("instance-after-epoch")
                return live
            case Accept(session=session, epoch=epoch):
                if live is not None and live is not speaker:
                    live.outbox.end(refusal_error(SupersededBy(session=session)))
                if speaker is not None:
                    speaker.outbox.accept(epoch)
                return speaker
            case Refuse(refusal=refusal):
                if speaker is not None:
                    speaker.outbox.end(refusal_error(refusal))
                return live
            case EndSession(violation=violation):
                if speaker is not None:
                    speaker.outbox.end(violation)
                return None if speaker is live else live
            case _:
                assert_never(action)

    def _sessions_changed(self) -> None:
        self._on_sessions(sum(one is not None for one in (self._compute_live, self._storage_live)))


def refusal_error(refusal: Refusal) -> PlainsongError:
    """A refusal as the error that ends a stream."""
    match refusal:
        case FencedBy(epoch=epoch):
            return Fenced(f"a newer reign has begun: {epoch}", hint="this controller must stop")
        case SupersededBy():
            return NotWelcome("a later session with this instance has begun")
        case SessionEnded():
            return ProtocolViolation(Violation.BEFORE_HELLO, detail="the session has ended")
        case Stranger(field=field, ours=ours, theirs=theirs):
            return NotWelcome(
                f"this instance has another {field}",
                detail=f"it is {ours}, you mean {theirs}",
                hint="is this the address of another deployment or replica?",
            )
        case _:
            assert_never(refusal)
