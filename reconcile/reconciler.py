"""The compute reconciler: makes one instance match what the current controller asks for.

It owns what is installed; it is not a proxy in front of another owner. From ``CreateInstance`` to
``InitializationComplete`` commands are only collected, in a window that vanishes without a trace if the session
ends; then the two states are compared, and what can be kept is kept.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import assert_never

from reconcile.actions import Accept, EndSession, Reply, greeting, turned_away
from reconcile.admission import require_creatable, require_readable
from reconcile.compute_actions import (
    CommandReceived,
    ComputeAction,
    ComputeEvent,
    DataflowFailed,
    DataflowHydrating,
    PeekFinished,
    RuntimeEvent,
    SessionClosed,
    SessionOpened,
    TailAdvanced,
    UpperReported,
)
from reconcile.compute_protocol import (
    AllowCompaction,
    AllowWrites,
    CancelPeeks,
    ComputeCommand,
    ComputeResponse,
    CreateDataflows,
    CreateInstance,
    DropInstance,
    Hello,
    InitializationComplete,
    Peek,
    UpdateConfiguration,
)
from reconcile.errors import InvariantBroken, ProtocolViolation, Violation
from reconcile.history import History
from reconcile.ids import Epoch, SessionId
from reconcile.installed import Effects, Installed, InstalledDataflow
from reconcile.live import LivePeeks
from reconcile.sessions import Identity, Sessions, Stage, Verb

_VERBS: dict[type[ComputeCommand], Verb] = {
    CreateInstance: Verb.CREATE_INSTANCE,
    InitializationComplete: Verb.INITIALIZATION_COMPLETE,
    DropInstance: Verb.DROP_INSTANCE,
}


@dataclass(slots=True)
class _Window:
    """What was requested since ``CreateInstance``, not yet applied."""

    requested: History = field(default_factory=History)
    #: Kept apart from the history, which forgets a peek on a dropped export: here each one gets an answer.
    peeks: LivePeeks = field(default_factory=LivePeeks)


class Reconciler:
    """The state machine of one compute instance."""

    def __init__(
        self,
        *,
        identity: Identity | None = None,
        epoch: Epoch = Epoch(0),
        restored: Iterable[InstalledDataflow] = (),
    ) -> None:
        self.sessions = Sessions(identity=identity, epoch=epoch)
        #: In stage RUNNING all its peeks are of this term, and it was told what this session was told.
        self.installed = Installed(restored)
        #: There is one exactly in stage INITIALIZING.
        self._window: _Window | None = None

    def check(self) -> None:
        """Restates the invariants; raises ``InvariantBroken`` if one does not hold."""
        self.sessions.check()
        self.installed.check()
        if (self._window is not None) != (self.sessions.stage is Stage.INITIALIZING):
            raise InvariantBroken(f"stage is {self.sessions.stage} and the window is {self._window}")
        if self._window is not None:
            self._window.requested.check()
            self._window.peeks.check()

    def handle(self, event: ComputeEvent) -> tuple[ComputeAction, ...]:
        """Takes in one event; the shell performs the actions in order."""
        match event:
            case CommandReceived(session=session, command=command):
                return self._on_command(session, command)
            case SessionOpened(hello=hello):
                return self._on_hello(hello)
            case SessionClosed(session=session):
                if session == self.sessions.live:
                    self._end_session()
                return ()
            case _:
                return self._actions(self._report(event))

    # --- sessions -----------------------------------------------------------------------------------------

    def _on_hello(self, hello: Hello) -> tuple[ComputeAction, ...]:
        actions = greeting(self.sessions, hello)
        if not isinstance(actions[-1], Accept):
            return actions
        self._window = None
        return (*actions, Reply(session=hello.session, response=self.installed.inventory()))

    def _on_command(self, session: SessionId | None, command: ComputeCommand) -> tuple[ComputeAction, ...]:
        away = turned_away(self.sessions, session)
        if away is not None:
            return (away,)
        try:
            window = self._window
            self.sessions.move(_VERBS.get(type(command), Verb.COMMAND))
            # Admission raises before anything has changed.
            return self._actions(self._perform(command) if window is None else self._collect(window, command))
        except ProtocolViolation as violation:
            self._end_session()
            return (EndSession(session=session, violation=violation),)

    def _end_session(self) -> None:
        self.sessions.move(Verb.END)
        self._window = None

    def _actions(self, effects: Effects) -> tuple[ComputeAction, ...]:
        """Turns responses into replies to the session of this term; without one, nobody hears them."""
        listener = self.sessions.live if self.sessions.stage is Stage.RUNNING else None
        actions: list[ComputeAction] = []
        for effect in effects:
            if not isinstance(effect, ComputeResponse):
                actions.append(effect)
            elif listener is not None:
                actions.append(Reply(session=listener, response=effect))
        return tuple(actions)

    # --- commands -----------------------------------------------------------------------------------------

    def _collect(self, window: _Window, command: ComputeCommand) -> Effects:
        """Adds a command to the window, judged against the window alone."""
        requested = window.requested
        match command:
            case InitializationComplete():
                yield from self._initialize(window)
            case CreateInstance() | DropInstance() | Hello():
                yield from self._perform(command)
            case Peek():
                if command.peek in window.peeks:
                    raise ProtocolViolation(Violation.DUPLICATE_PEEK, detail=f"peek {command.peek}")
                window.peeks.add(command)
            case CancelPeeks(peeks=peeks):
                for peek in peeks:
                    window.peeks.pop(peek)
            case AllowCompaction(id=id, since=since):
                if since.is_closed and requested.dataflows.since(id) is not None:
                    window.peeks.pop_on(id)
                requested.handle(command)
            case CreateDataflows(dataflows=dataflows):
                require_creatable(dataflows, requested.dataflows)
                requested.handle(command)
            case AllowWrites() | UpdateConfiguration():
                requested.handle(command)
            case _:
                assert_never(command)

    def _initialize(self, window: _Window) -> Effects:
        requested = window.requested
        require_readable((dataflow.reduced() for dataflow in requested.dataflows), requested.dataflows)
        self._window = None
        logging = requested.logging or ()
        yield from self.installed.reconcile(requested.dataflows, window.peeks, logging, requested.configuration)

    def _perform(self, command: ComputeCommand) -> Effects:
        """Carries out a command in a running term; the stages that lead there and away included."""
        installed = self.installed
        match command:
            case AllowCompaction(id=id, since=since):
                yield from installed.compact(id, since)
            case Peek():
                if command.peek in installed.peeks:
                    raise ProtocolViolation(Violation.DUPLICATE_PEEK, detail=f"peek {command.peek}")
                yield from installed.start_peek(command)
            case CancelPeeks(peeks=peeks):
                yield from installed.cancel_peeks(peeks)
            case CreateDataflows(dataflows=dataflows):
                require_creatable(dataflows, installed.dataflows)
                require_readable(dataflows, installed.dataflows)
                for description in dataflows:
                    yield from installed.render(description)
            case AllowWrites(id=id):
                yield from installed.set_writable(id, True)
            case UpdateConfiguration(configuration=configuration):
                yield from installed.configure(installed.configuration.merged(configuration))
            case CreateInstance():
                self._window = _Window()
                self._window.requested.handle(command)
            case DropInstance():
                self._window = None
                yield from installed.drop_all()
            case InitializationComplete():
                pass
            case Hello():
                raise ProtocolViolation(Violation.REPEATED_HELLO)
            case _:
                assert_never(command)

    # --- what the runtime reports -------------------------------------------------------------------------

    def _report(self, event: RuntimeEvent) -> Effects:
        match event:
            case UpperReported(id=id, upper=upper):
                return self.installed.upper_rose(id, upper)
            case PeekFinished(peek=peek, outcome=outcome):
                return self.installed.peek_finished(peek, outcome)
            case TailAdvanced(id=id, lower=lower, upper=upper, updates=updates):
                return self.installed.tail_advanced(id, lower, upper, updates)
            case DataflowFailed(id=id, error=error):
                return self.installed.failed(id, error)
            case DataflowHydrating(id=id, done=done, total=total):
                return self.installed.hydrating(id, done, total)
            case _:
                assert_never(event)
