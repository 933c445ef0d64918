"""``machine instance``: the compute reconciler of one instance."""

from typing import assert_never

from adapter.script import words
from adapter.script.compute_lines import read_command, write_response
from adapter.script.session_lines import Connect, Disconnect, Said, SessionReader, write_session_action
from adapter.script.words import Line, TextUpdates, comma
from reconcile.actions import Accept, EndSession, PersistEpoch, Refuse, Reply
from reconcile.compute_actions import (
    CommandReceived,
    Compact,
    ComputeAction,
    ComputeEvent,
    Configure,
    DataflowFailed,
    Drop,
    PeekFinished,
    Render,
    RuntimeEvent,
    SessionClosed,
    SessionOpened,
    SetLogging,
    SetWritable,
    StartPeek,
    StopPeek,
    TailAdvanced,
    UpperReported,
)
from reconcile.compute_protocol import ComputeCommand, PeekFailed, PeekRows
from reconcile.ids import SessionId
from reconcile.reconciler import Reconciler

Given = Connect | Disconnect | Said[ComputeCommand] | RuntimeEvent


class InstanceMachine:
    def __init__(self) -> None:
        self._reconciler = Reconciler()
        self._sessions = SessionReader()
        self._last_accepted: SessionId | None = None

    def read(self, text: str) -> Given:
        speaker, line = self._sessions.speaker(text)
        given: Given | None = self._sessions.read(speaker, line)
        if given is None:
            command = read_command(line)
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

    def _event(self, given: Given) -> ComputeEvent | None:
        match given:
            case Connect(hello=hello):
                return SessionOpened(hello=hello)
            case Disconnect(session=session):
                ended = session or self._last_accepted
                return None if ended is None else SessionClosed(session=ended)
            case Said(session=session, command=command):
                return CommandReceived(session=session or self._last_accepted, command=command)
            case _:
                return given


def _read_report(line: Line) -> RuntimeEvent:
    match line.verb:
        case "upper":
            id = line.next(words.collection, "a collection")
            return UpperReported(id=id, upper=line.next(words.frontier, "a frontier"))
        case "rows":
            peek = line.next(words.peek, "a peek")
            return PeekFinished(peek=peek, outcome=PeekRows(rows=line.next(words.text, "a text")))
        case "rows-error":
            peek = line.next(words.peek, "a peek")
            return PeekFinished(peek=peek, outcome=PeekFailed(error=line.next(words.text, "a text")))
        case "batch":
            return TailAdvanced(
                id=line.next(words.collection, "a tail"),
                lower=line.next(words.frontier, "a lower frontier"),
                upper=line.next(words.frontier, "an upper frontier"),
                updates=TextUpdates(line.next(words.text, "a text")),
            )
        case "failed":
            id = line.next(words.collection, "a collection")
            return DataflowFailed(id=id, error=line.next(words.text, "a text"))
        case _:
            line.unknown()


def _write(action: ComputeAction) -> list[str]:
    match action:
        case PersistEpoch() | Accept() | Refuse() | EndSession():
            return write_session_action(action)
        case Reply(response=response):
            return write_response(response)
        case Render(description=description):
            return [f"render {comma(description.export_ids)} as_of={description.as_of}"]
        case Drop(exports=exports):
            return [f"drop {comma(exports)}"]
        case Compact(id=id, since=since):
            return [f"compact {id} {since}"]
        case SetWritable(id=id, writable=writable):
            return [f"{'allow' if writable else 'stop'}-writes {id}"]
        case StartPeek(peek=peek, id=id, at=at):
            return [f"start-peek p{peek} {id} at={at}"]
        case StopPeek(peek=peek):
            return [f"stop-peek p{peek}"]
        case Configure() | SetLogging():
            return []
        case _:
            assert_never(action)
