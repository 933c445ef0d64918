"""``machine schedule``: which replica runs which source."""

from typing import Literal, assert_never

from adapter.script import words
from adapter.script.words import BadLine, Line
from reconcile.scheduling import (
    PlacementForgotten,
    ReplicaAdded,
    ReplicaFailed,
    ReplicaRecovered,
    ReplicaRemoved,
    RunOn,
    ScheduleAction,
    ScheduleEvent,
    Scheduler,
    SourceCreated,
    SourceDropped,
    StopOn,
)

Given = ScheduleEvent | Literal["show"]


class ScheduleMachine:
    def __init__(self) -> None:
        self._scheduler = Scheduler()

    def read(self, text: str) -> Given:
        line = Line(text)
        given = _read(line)
        line.done()
        return given

    def run(self, given: Given) -> list[str]:
        if given == "show":
            return self._show()
        lines = [_write(action) for action in self._scheduler.handle(given)]
        self._scheduler.check()
        return lines

    def _show(self) -> list[str]:
        lines = []
        for source, replicas in self._scheduler.placement():
            lines += [f"{source} on r{replica}" for replica in replicas] or [f"{source} waits"]
        return lines


def _read(line: Line) -> Given:
    match line.verb:
        case "add-replica":
            return ReplicaAdded(replica=line.next(words.replica, "a replica"))
        case "remove-replica":
            return ReplicaRemoved(replica=line.next(words.replica, "a replica"))
        case "fail-replica":
            return ReplicaFailed(replica=line.next(words.replica, "a replica"))
        case "recover-replica":
            return ReplicaRecovered(replica=line.next(words.replica, "a replica"))
        case "create-source":
            id = line.next(words.collection, "a source")
            return SourceCreated(id=id, singleton=line.next(_is_singleton, "'singleton' or 'everywhere'"))
        case "drop-source":
            return SourceDropped(id=line.next(words.collection, "a source"))
        case "forget":
            return PlacementForgotten()
        case "show":
            return "show"
        case _:
            line.unknown()


def _is_singleton(word: str) -> bool:
    if word not in ("singleton", "everywhere"):
        raise BadLine(f"{word!r} is neither 'singleton' nor 'everywhere'")
    return word == "singleton"


def _write(action: ScheduleAction) -> str:
    match action:
        case RunOn(id=id, replica=replica, writer_epoch=epoch):
            return f"run {id} on r{replica}" + (f" writer-epoch={epoch}" if epoch is not None else "")
        case StopOn(id=id, replica=replica):
            return f"stop {id} on r{replica}"
        case _:
            assert_never(action)
