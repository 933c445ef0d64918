"""``machine storage``: the storage reconciler of one instance."""

from typing import assert_never

from adapter.script import words
from adapter.script.compute_lines import write_frontiers
from adapter.script.session_lines import Connect, Disconnect, Said, SessionReader, write_session_action
from adapter.script.words import BadLine, Line
from reconcile.actions import Accept, EndSession, PersistEpoch, Refuse, Reply
from reconcile.compute_actions import SessionClosed, SessionOpened, UpperReported
from reconcile.compute_protocol import (
    AllowCompaction,
    CreateInstance,
    FrontierUppers,
    Heartbeat,
    InitializationComplete,
)
from reconcile.ids import GlobalId, SessionId
from reconcile.sources import SourceDescription
from reconcile.storage_actions import (
    AlterSource,
    CompactShard,
    ContentsRead,
    NoteSeals,
    OpenSteps,
    ReadContents,
    RunSource,
    SetSinks,
    SetUnattended,
    StopSource,
    StorageAction,
    StorageCommandReceived,
    StorageEvent,
    Write,
)
from reconcile.storage_protocol import (
    AlterSources,
    Append,
    AppendResult,
    AppendSnapshot,
    CreateSources,
    SourceAltered,
    SourceFailed,
    SourceKept,
    SourceRefused,
    SourceRunning,
    SourceSealed,
    SourceStatus,
    Status,
    StepReport,
    StorageCommand,
    StorageResponse,
)
from reconcile.storage_reconciler import StorageReconciler
from reconcile.updates import UpdateList

Given = Connect | Disconnect | Said[StorageCommand] | UpperReported | ContentsRead


class StorageMachine:
    def __init__(self) -> None:
        self._reconciler = StorageReconciler()
        self._sessions = SessionReader()
        self._last_accepted: SessionId | None = None

    def read(self, text: str) -> Given:
        speaker, line = self._sessions.speaker(text)
        given: Given | None = self._sessions.read(speaker, line)
        if given is None:
            command = _read_command(line)
            if command is not None:
                given = Said(speaker, command)
            elif speaker is None:
                given = _read_report(line)
            else:
                line.unknown()
        line.done()
        return given

    def run(self, given: Given) -> list[str]:
        lines: list[str] = []
        event = self._event(given)
        if event is not None:
            for action in self._reconciler.handle(event):
                if isinstance(action, Accept):
                    self._last_accepted = action.session
                lines += _write(action)
        self._reconciler.check()
        return lines

    def _event(self, given: Given) -> StorageEvent | None:
        match given:
            case Connect(hello=hello):
                return SessionOpened(hello=hello)
            case Disconnect(session=session):
                ended = session or self._last_accepted
                return None if ended is None else SessionClosed(session=ended)
            case Said(session=session, command=command):
                return StorageCommandReceived(session=session or self._last_accepted, command=command)
            case _:
                return given


def _read_command(line: Line) -> StorageCommand | None:
    match line.verb:
        case "create-instance":
            return CreateInstance()
        case "create-source":
            return CreateSources(sources=(_source(line),))
        case "alter-source":
            return AlterSources(sources=(_source(line),))
        case "allow-compaction":
            id = line.next(words.collection, "a source")
            return AllowCompaction(id=id, since=line.next(words.frontier, "a frontier"))
        case "append":
            id, upper = line.next(words.collection, "a table"), line.named("upper", words.frontier)
            return Append(id=id, upper=upper, updates=UpdateList(line.rest(words.update)))
        case "append-snapshot":
            id, upper = line.next(words.collection, "a table"), line.named("upper", words.frontier)
            return AppendSnapshot(id=id, upper=upper, rows=line.rest(str))
        case "initialization-complete":
            return InitializationComplete()
        case _:
            return None


def _source(line: Line) -> SourceDescription:
    return SourceDescription(
        id=line.next(words.collection, "a source"),
        definition=_definition(line.named("def", words.text)),
        alterable=words.listed(str)(line.optional("alters", words.text, "")),
    )


def _read_report(line: Line) -> UpperReported | ContentsRead:
    match line.verb:
        case "upper":
            id = line.next(words.collection, "a source")
            return UpperReported(id=id, upper=line.next(words.frontier, "a frontier"))
        case "contents":
            return ContentsRead(id=line.next(words.collection, "a table"), rows=line.rest(str))
        case _:
            line.unknown()


def _definition(text: str) -> tuple[tuple[str, str], ...]:
    fields: dict[str, str] = {}
    for part in text.split(";") if text else []:
        name, equals, value = part.partition("=")
        if not equals or name in fields:
            raise BadLine(f"{part!r} is not a new name=value")
        fields[name] = value
    return tuple(fields.items())


def _write(action: StorageAction) -> list[str]:
    match action:
        case PersistEpoch() | Accept() | Refuse() | EndSession():
            return write_session_action(action)
        case Reply(response=response):
            return _write_response(response)
        case RunSource(source=source):
            return [f"run {source.id}"]
        case StopSource(id=id):
            return [f"stop {id}"]
        case CompactShard(id=id, since=since):
            return [f"compact {id} {since}"]
        case Write(id=id, upper=upper, updates=updates):
            return [f"write {id} upper={upper}{words.updates(updates)}"]
        case ReadContents(id=id):
            return [f"read-contents {id}"]
        case AlterSource() | OpenSteps() | SetUnattended() | SetSinks() | NoteSeals():
            return []
        case _:
            assert_never(action)


def _write_response(response: StorageResponse) -> list[str]:
    match response:
        case FrontierUppers():
            return write_frontiers(response)
        case SourceStatus(id=id, status=status):
            return [_write_status(id, status)]
        case AppendResult() | StepReport() | SourceSealed() | Heartbeat():
            return []
        case _:
            assert_never(response)


def _write_status(id: GlobalId, status: Status) -> str:
    match status:
        case SourceKept():
            return f"keep {id}"
        case SourceAltered():
            return f"alter {id}"
        case SourceRefused():
            return f"refuse {id} definition-differs"
        case SourceFailed(error=error):
            return f"failed {id} {words.quoted(error)}"
        case SourceRunning(note=note):
            return f"running {id} {words.quoted(note)}"
        case _:
            assert_never(status)
