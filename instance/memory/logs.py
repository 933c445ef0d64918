"""Logs: what a runtime tells of itself, read from its live state at the moment of the read."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from instance.memory.batch import Batch
from instance.memory.dataflow import Dataflow
from instance.memory.exports import Export
from instance.memory.index import IndexExport
from instance.memory.peeks import Peeks
from instance.memory.rendering import Read, Tree
from instance.memory.rows import Row, RowFormat, declared_format
from plainsong.logs import ARRANGEMENTS, DATAFLOWS, FRONTIERS, LOGGING, PEEKS, STEPS
from reconcile.dataflow import DataflowDescription
from reconcile.errors import InvalidRequest
from reconcile.frontiers import CLOSED, Antichain
from reconcile.ids import GlobalId, Step

#: Ranges of steps that are remembered, of all dataflows together; the oldest go first.
STEPS_MAX = 1_000

_FORMATS = {each.id: declared_format(each.columns) for each in LOGGING.values()}


@runtime_checkable
class KeepsRows(Protocol):
    """An operator that keeps rows between steps."""

    @property
    def rows_kept(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """One installed dataflow as its log shows it."""

    description: DataflowDescription
    dataflow: Dataflow | None
    error: str | None


class LogExport:
    """One logging collection, to be read."""

    def __init__(self, id: GlobalId, rows: Callable[[], Iterator[Row]]) -> None:
        self.id = id
        self.format = _FORMATS[id]
        self.rows = rows


class LogImport:
    """A logging collection as a dataflow reads it: once, and it never changes after that."""

    def __init__(self, export: LogExport) -> None:
        self._export = export

    async def snapshot(self, at: Step) -> Batch:
        return Batch.of(self._export.format, [(row, at, 1) for row in self._export.rows()])

    async def changes(self, lower: Antichain) -> tuple[Antichain, Batch]:  # noqa: ARG002
        return CLOSED, Batch.nothing(self._export.format)

    def close(self) -> None:
        pass


class Logs:
    """The logging collections of one runtime."""

    def __init__(
        self,
        installed: Callable[[], Iterator[Installed]],
        exports: Mapping[GlobalId, Export],
        peeks: Peeks,
    ) -> None:
        """``installed`` gives each dataflow once."""
        self._installed = installed
        self._exports = exports
        self._peeks = peeks
        #: The newest ranges of steps that dataflows computed.
        self._steps: deque[Row] = deque(maxlen=STEPS_MAX)
        #: The ids that this instance was told to offer.
        self.offered: tuple[GlobalId, ...] = ()
        self._rows: dict[GlobalId, Callable[[], Iterator[Row]]] = {
            FRONTIERS.id: self._frontiers,
            DATAFLOWS.id: self._dataflows,
            ARRANGEMENTS.id: self._arrangements,
            STEPS.id: lambda: iter(tuple(self._steps)),
            PEEKS.id: self._waiting_peeks,
        }

    def export(self, id: GlobalId) -> LogExport:
        if id not in self.offered or id not in self._rows:
            raise InvalidRequest(f"this replica has no logging collection {id}")
        return LogExport(id, self._rows[id])

    def format_of(self, id: GlobalId) -> RowFormat:
        return self.export(id).format

    def stepped(
        self, id: GlobalId, lower: Antichain, upper: Antichain, rows_in: int, rows_out: int, seconds: float
    ) -> None:
        """A dataflow computed a range of steps."""
        self._steps.append((str(id), lower.step, upper.step, rows_in, rows_out, round(seconds * 1_000_000)))

    def _frontiers(self) -> Iterator[Row]:
        for installed in self._installed():
            for export in installed.description.exports:
                running = self._exports.get(export.id)
                if running is not None:
                    since = installed.description.as_of
                    if isinstance(running, IndexExport):
                        since = max(since, running.since)
                    yield str(export.id), export.kind.value, since.step, running.upper.step

    def _dataflows(self) -> Iterator[Row]:
        for installed in self._installed():
            description, dataflow = installed.description, installed.dataflow
            state = "failed" if installed.error is not None else "hydrating"
            if installed.error is None and dataflow is not None and dataflow.is_hydrated:
                state = "running"
            yield (
                str(description.export_ids[0]),
                ",".join(map(str, description.export_ids)),
                ",".join(map(str, description.imports)),
                description.as_of.step,
                dataflow.upper.step if dataflow is not None else None,
                state,
                installed.error,
            )

    def _arrangements(self) -> Iterator[Row]:
        for installed in self._installed():
            if installed.dataflow is None or installed.error is not None:
                continue
            id = str(installed.description.export_ids[0])
            for export in installed.dataflow.exports.values():
                if isinstance(export, IndexExport):
                    yield id, str(export.id), "index", export.arranged.size
            for built in installed.dataflow.objects:
                for operator in _operators(built.tree):
                    if isinstance(operator, KeepsRows):
                        yield id, str(built.id), type(operator).__name__.lower(), operator.rows_kept

    def _waiting_peeks(self) -> Iterator[Row]:
        for peek, id, at in self._peeks.waiting():
            yield peek, str(id), at


def _operators(tree: Tree) -> Iterator[object]:
    if not isinstance(tree, Read):
        yield tree.operator
        for input in tree.inputs:
            yield from _operators(input)
