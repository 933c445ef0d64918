"""History: the command log of one instance, kept in its reduced form.

What was said long ago and no longer matters is gone: cost per command O(1), size O(live objects), whatever the
length of the log. ``commands()`` is a history that leads to the same state; the controller replays it to a
replica that joins.
"""

from collections.abc import Iterable, Iterator
from typing import assert_never

from reconcile.compute_protocol import (
    AllowCompaction,
    AllowWrites,
    CancelPeeks,
    ComputeCommand,
    Configuration,
    CreateDataflows,
    CreateInstance,
    DropInstance,
    Hello,
    InitializationComplete,
    Peek,
    UpdateConfiguration,
)
from reconcile.dataflow import DataflowDescription
from reconcile.errors import InvariantBroken
from reconcile.ids import GlobalId
from reconcile.live import LiveDataflows, LivePeeks


class History:
    """A machine that only remembers: it has no actions.

    Total, so that it can stand behind any log: what an instance would refuse as a repeat (an export or a peek
    that is alive already) leaves no trace, nor does anything before the first ``CreateInstance``.
    """

    __slots__ = ("complete", "configuration", "dataflows", "logging", "peeks")

    def __init__(self) -> None:
        #: The logging ids of the current instance; ``None`` before ``CreateInstance``.
        self.logging: tuple[GlobalId, ...] | None = None
        self.configuration = Configuration()
        self.dataflows = LiveDataflows()
        #: None of them reads a dropped export of a dataflow that lives on.
        self.peeks = LivePeeks()
        self.complete = False

    def handle(self, command: ComputeCommand) -> None:
        if self.logging is None and not isinstance(command, CreateInstance):
            return
        match command:
            case AllowCompaction(id=id, since=since):
                if self.dataflows.advance(id, since) is not None and since.is_closed:
                    self.peeks.pop_on(id)
            case Peek():
                self._peek(command)
            case CancelPeeks(peeks=peeks):
                for peek in peeks:
                    self.peeks.pop(peek)
            case CreateDataflows(dataflows=dataflows):
                for description in dataflows:
                    self._create(description)
            case AllowWrites(id=id):
                dataflow = self.dataflows.get(id)
                if dataflow is not None and self.dataflows.since(id) is not None:
                    dataflow.writable[id] = None
            case UpdateConfiguration(configuration=configuration):
                self.configuration = self.configuration.merged(configuration)
            case CreateInstance(logging=logging, configuration=configuration):
                self._clear()
                self.logging, self.configuration = logging, configuration
            case DropInstance():
                self._clear()
            case InitializationComplete():
                self.complete = True
            case Hello():
                pass
            case _:
                assert_never(command)

    def commands(self) -> Iterator[ComputeCommand]:
        """The reduced history: peeks before compactions, so that none is compacted away before it began."""
        if self.logging is None:
            return
        yield CreateInstance(logging=self.logging)
        if self.configuration != Configuration():
            yield UpdateConfiguration(configuration=self.configuration)
        for dataflow in self.dataflows:
            yield CreateDataflows(dataflows=(dataflow.reduced(),))
        for dataflow in self.dataflows:
            for id in dataflow.writable:
                yield AllowWrites(id=id)
        yield from self.peeks
        for dataflow in self.dataflows:
            as_of = dataflow.as_of
            for id, since in dataflow.sinces.items():
                if since > as_of:
                    yield AllowCompaction(id=id, since=since)
        if self.complete:
            yield InitializationComplete()

    def check(self) -> None:
        self.dataflows.check()
        self.peeks.check()
        if self.logging is None and (self.complete or len(self.dataflows) or len(self.peeks)):
            raise InvariantBroken("something is alive before CreateInstance")
        for peek in self.peeks:
            if self.dataflows.get(peek.id) is not None and self.dataflows.since(peek.id) is None:
                raise InvariantBroken(f"peek {peek.peek} reads {peek.id}, which was dropped")

    def _clear(self) -> None:
        self.__init__()  # type: ignore[misc]  # a new instance begins with a blank page

    def _create(self, description: DataflowDescription) -> None:
        if all(self.dataflows.get(id) is None for id in description.export_ids):
            self.dataflows.create(description)

    def _peek(self, peek: Peek) -> None:
        dropped = self.dataflows.get(peek.id) is not None and self.dataflows.since(peek.id) is None
        if not dropped and peek.peek not in self.peeks:
            self.peeks.add(peek)


def reduce(history: Iterable[ComputeCommand]) -> tuple[ComputeCommand, ...]:
    """The shortest history that leads to the same state."""
    reduced = History()
    for command in history:
        reduced.handle(command)
    return tuple(reduced.commands())
