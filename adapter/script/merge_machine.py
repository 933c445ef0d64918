"""``machine merge``: replicas look like one."""

from dataclasses import dataclass
from typing import assert_never

from adapter.script import words
from adapter.script.compute_lines import write_answer
from adapter.script.words import BadLine, Line, comma
from reconcile.compute_protocol import PeekFailed, PeekResponse, PeekRows, TailResponse
from reconcile.ids import Incarnation, ReplicaId
from reconcile.merge import (
    AnswerHeard,
    CancelOn,
    CollectionCreated,
    CollectionDropped,
    FrontierHeard,
    FrontierTold,
    MergeAction,
    MergeEvent,
    Mistrust,
    PeekCancelRequested,
    PeekRequested,
    ReplicaJoined,
    ReplicaLeft,
    ReplicaMerge,
    ReplicaRestarted,
    ReplicaSaid,
    TailHeard,
    TailRequested,
)
from reconcile.updates import UpdateList


@dataclass(frozen=True, slots=True)
class CurrentSaid:
    """What the current incarnation of a replica said, whichever that is when the line is run."""

    replica: ReplicaId
    said: FrontierHeard | AnswerHeard | TailHeard


Given = MergeEvent | CurrentSaid


class MergeMachine:
    def __init__(self) -> None:
        self._merge = ReplicaMerge()

    def read(self, text: str) -> Given:
        speaker, colon, rest = text.partition(": ")
        if colon and speaker.startswith("r") and " " not in speaker:
            given, line = _read_said(speaker, Line(rest))
        else:
            line = Line(text)
            given = _read_request(line)
        line.done()
        return given

    def run(self, given: Given) -> list[str]:
        event: MergeEvent
        if isinstance(given, CurrentSaid):
            incarnation = self._merge.incarnation(given.replica)
            if incarnation is None:
                return []
            event = ReplicaSaid(replica=given.replica, incarnation=incarnation, said=given.said)
        else:
            event = given
        lines = [line for action in self._merge.handle(event) for line in _write(action)]
        self._merge.check()
        return lines


def _read_request(line: Line) -> MergeEvent:
    match line.verb:
        case "add-replica":
            return ReplicaJoined(replica=line.next(words.replica, "a replica"))
        case "remove-replica":
            return ReplicaLeft(replica=line.next(words.replica, "a replica"))
        case "restart-replica":
            return ReplicaRestarted(replica=line.next(words.replica, "a replica"))
        case "create":
            id = line.next(words.collection, "a collection")
            return CollectionCreated(id=id, as_of=line.named("as_of", words.frontier))
        case "drop":
            return CollectionDropped(id=line.next(words.collection, "a collection"))
        case "peek":
            peek = line.next(words.peek, "a peek")
            line.next(words.collection, "a collection")
            line.named("at", words.step)
            return PeekRequested(peek=peek, target=line.optional("target", words.replica, None))
        case "cancel":
            return PeekCancelRequested(peek=line.next(words.peek, "a peek"))
        case "tail":
            id = line.next(words.collection, "a tail")
            return TailRequested(id=id, as_of=line.named("as_of", words.frontier))
        case _:
            line.unknown()


def _read_said(speaker: str, line: Line) -> tuple[Given, Line]:
    name, mark, ordinal = speaker.partition("#")
    replica, said = words.replica(name), _read_response(line)
    if not mark:
        return CurrentSaid(replica, said), line
    return ReplicaSaid(replica=replica, incarnation=Incarnation(words.number(ordinal)), said=said), line


def _read_response(line: Line) -> FrontierHeard | AnswerHeard | TailHeard:
    match line.verb:
        case "frontier":
            id = line.next(words.collection, "a collection")
            return FrontierHeard(id=id, upper=line.next(words.frontier, "a frontier"))
        case "answer":
            peek = line.next(words.peek, "a peek")
            return AnswerHeard(peek=peek, outcome=PeekRows(rows=line.next(words.text, "a text")))
        case "answer-error":
            peek = line.next(words.peek, "a peek")
            return AnswerHeard(peek=peek, outcome=PeekFailed(error=line.next(words.text, "a text")))
        case "tail":
            return TailHeard(
                id=line.next(words.collection, "a tail"),
                lower=line.next(words.frontier, "a lower frontier"),
                upper=line.next(words.frontier, "an upper frontier"),
                updates=UpdateList(line.rest(words.update)),
            )
        case _:
            raise BadLine(f"a replica does not say {line.verb!r}")


def _write(action: MergeAction) -> list[str]:
    match action:
        case FrontierTold(id=id, before=before, upper=upper):
            return [f"frontier {id} {before} -> {upper}"]
        case PeekResponse():
            return [write_answer(action)]
        case CancelOn(peek=peek, replicas=replicas):
            return [f"cancel p{peek} on {comma(f'r{replica}' for replica in replicas)}"]
        case TailResponse(id=id, lower=lower, upper=upper, updates=updates):
            return [f"tail {id} {lower} {upper}{words.updates(updates)}"]
        case Mistrust(replica=replica, why=why):
            return [f"mistrust r{replica} {words.quoted(why)}"]
        case _:
            assert_never(action)
