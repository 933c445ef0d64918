"""The storage reconciler: makes the sources of one instance match what the current controller asks for.

The same gate and window as the compute reconciler, with one difference in kind: a source is never replaced. Its
shard is durable and its position in the outside world is its own, so a definition that differs is refused alone.
"""

from dataclasses import dataclass, field
from typing import assert_never

from reconcile.actions import Accept, EndSession, Reply, greeting, turned_away
from reconcile.compute_actions import SessionClosed, SessionOpened, UpperReported
from reconcile.compute_protocol import AllowCompaction, CreateInstance, Hello, InitializationComplete
from reconcile.errors import InvariantBroken, ProtocolViolation, Violation
from reconcile.ids import Epoch, GlobalId, SessionId
from reconcile.ingesting import Ingesting, RequestedSource, StorageEffects
from reconcile.sessions import Identity, Sessions, Stage, Verb
from reconcile.storage_actions import (
    AppendDurable,
    ContentsRead,
    NoteSeals,
    OpenSteps,
    RecordsReceived,
    SetSinks,
    SetUnattended,
    SourceFares,
    SourceStopped,
    StepsCut,
    StorageAction,
    StorageCommandReceived,
    StorageEvent,
    StorageReport,
)
from reconcile.storage_protocol import (
    AlterSources,
    Append,
    AppendSnapshot,
    CreateSources,
    OpenStep,
    RunSinks,
    SealTables,
    StorageCommand,
    StorageResponse,
    TableSeal,
)

_VERBS: dict[type[StorageCommand], Verb] = {
    CreateInstance: Verb.CREATE_INSTANCE,
    InitializationComplete: Verb.INITIALIZATION_COMPLETE,
}


@dataclass(slots=True)
class _Window:
    """What was requested since ``CreateInstance``, not yet applied."""

    sources: dict[GlobalId, RequestedSource] = field(default_factory=dict)
    appends: list[Append | AppendSnapshot] = field(default_factory=list)
    sinks: RunSinks = field(default_factory=lambda: RunSinks(sinks=()))
    opened: OpenStep | None = None
    #: The last seal of each table.
    seals: dict[GlobalId, TableSeal] = field(default_factory=dict)


class StorageReconciler:
    """The state machine of one storage instance."""

    def __init__(self, *, identity: Identity | None = None, epoch: Epoch = Epoch(0)) -> None:
        self.sessions = Sessions(identity=identity, epoch=epoch)
        self.ingesting = Ingesting()
        #: There is one exactly in stage INITIALIZING.
        self._window: _Window | None = None
        self._sinks = RunSinks(sinks=())
        #: The greatest step opened so far.
        self._opened: OpenStep | None = None

    def check(self) -> None:
        """Restates the invariants; raises ``InvariantBroken`` if one does not hold."""
        self.sessions.check()
        self.ingesting.check()
        if (self._window is not None) != (self.sessions.stage is Stage.INITIALIZING):
            raise InvariantBroken(f"stage is {self.sessions.stage} and the window is {self._window}")

    def handle(self, event: StorageEvent) -> tuple[StorageAction, ...]:
        """Takes in one event; the shell performs the actions in order."""
        match event:
            case StorageCommandReceived(session=session, command=command):
                return self._on_command(session, command)
            case SessionOpened(hello=hello):
                actions = greeting(self.sessions, hello)
                if isinstance(actions[-1], Accept):
                    self._window = None
                return actions
            case SessionClosed(session=session):
                return self._end_session() if session == self.sessions.live else ()
            case _:
                return self._actions(self._report(event))

    def _on_command(self, session: SessionId | None, command: StorageCommand) -> tuple[StorageAction, ...]:
        away = turned_away(self.sessions, session)
        if away is not None:
            return (away,)
        try:
            window = self._window
            self.sessions.move(_VERBS.get(type(command), Verb.COMMAND))
            # Raises, if it does, before anything has changed.
            return self._actions(self._perform(command) if window is None else self._collect(window, command))
        except ProtocolViolation as violation:
            return (EndSession(session=session, violation=violation), *self._end_session())

    def _end_session(self) -> tuple[SetUnattended, ...]:
        self.sessions.move(Verb.END)
        self._window = None
        return (SetUnattended(unattended=True),)

    def _actions(self, effects: StorageEffects) -> tuple[StorageAction, ...]:
        """Turns responses into replies to the session of this term; without one, nobody hears them."""
        listener = self.sessions.live if self.sessions.stage is Stage.RUNNING else None
        actions: list[StorageAction] = []
        for effect in effects:
            if not isinstance(effect, StorageResponse):
                actions.append(effect)
            elif listener is not None:
                actions.append(Reply(session=listener, response=effect))
        return tuple(actions)

    # --- commands -----------------------------------------------------------------------------------------

    def _collect(self, window: _Window, command: StorageCommand) -> StorageEffects:
        """Adds a command to the window, judged against the window alone."""
        match command:
            case InitializationComplete():
                self._window = None
                yield from self.ingesting.reconcile(window.sources, window.appends)
                yield from self._run_sinks(window.sinks)
                if window.opened is not None:
                    yield from self._open(window.opened)
                if window.seals:
                    yield NoteSeals(seals=tuple(window.seals.values()))
                yield SetUnattended(unattended=False)
            case CreateInstance() | Hello():
                yield from self._perform(command)
            case CreateSources():
                _require_new(command, window.sources)
                for source in command.sources:
                    window.sources[source.id] = RequestedSource(description=source)
            case AlterSources():
                for source in command.sources:
                    if source.id in window.sources:
                        window.sources[source.id].description = source
            case AllowCompaction(id=id, since=since):
                if since.is_closed:
                    window.sources.pop(id, None)
                    window.appends = [append for append in window.appends if append.id != id]
                elif id in window.sources:
                    window.sources[id].since = max(window.sources[id].since, since)
            case Append() | AppendSnapshot():
                window.appends.append(command)
            case RunSinks():
                window.sinks = command
            case OpenStep():
                window.opened = command
            case SealTables(tables=seals):
                window.seals.update((seal.id, seal) for seal in seals)
            case _:
                assert_never(command)

    def _perform(self, command: StorageCommand) -> StorageEffects:
        """Carries out a command in a running term; the stages that lead there included."""
        match command:
            case Append() | AppendSnapshot():
                yield from self.ingesting.append(command)
            case AllowCompaction(id=id, since=since):
                yield from self.ingesting.compact(id, since)
            case CreateSources():
                _require_new(command, self.ingesting)
                for source in command.sources:
                    yield from self.ingesting.run(source)
            case AlterSources():
                for source in command.sources:
                    yield from self.ingesting.alter(source)
            case RunSinks():
                yield from self._run_sinks(command)
            case OpenStep():
                yield from self._open(command)
            case SealTables(tables=seals):
                yield NoteSeals(seals=seals)
            case CreateInstance():
                self._window = _Window()
            case InitializationComplete():
                pass
            case Hello():
                raise ProtocolViolation(Violation.REPEATED_HELLO)
            case _:
                assert_never(command)

    def _run_sinks(self, sinks: RunSinks) -> StorageEffects:
        if sinks != self._sinks:
            self._sinks = sinks
            yield SetSinks(sinks=sinks)

    def _open(self, opened: OpenStep) -> StorageEffects:
        if self._opened is None or (opened.step, opened.granted) > (self._opened.step, self._opened.granted):
            self._opened = opened
            yield OpenSteps(opened=opened)

    # --- what the runtime reports -------------------------------------------------------------------------

    def _report(self, event: StorageReport) -> StorageEffects:
        match event:
            case UpperReported(id=id, upper=upper):
                return self.ingesting.upper_rose(id, upper)
            case ContentsRead(id=id, rows=rows):
                return self.ingesting.contents_read(id, rows)
            case AppendDurable(id=id, token=token):
                return self.ingesting.append_durable(id, token)
            case SourceStopped(id=id, error=error):
                return self.ingesting.stopped(id, error)
            case RecordsReceived(id=id, step=step, received=received):
                return self.ingesting.received(id, step, received)
            case StepsCut(seal=seal):
                return self.ingesting.cut(seal)
            case SourceFares(id=id, error=error, note=note):
                return self.ingesting.fares(id, error, note)
            case _:
                assert_never(event)


def _require_new(command: CreateSources, beside: "dict[GlobalId, RequestedSource] | Ingesting") -> None:
    ids = [source.id for source in command.sources]
    for place, id in enumerate(ids):
        if id in ids[:place] or id in beside:
            raise ProtocolViolation(Violation.DUPLICATE_SOURCE, detail=f"{id} exists already")
