"""The memory runtime: renders dataflows, answers peeks, all on the instance's event loop."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import assert_never

from instance.inputs import Inputs, Outputs
from instance.memory.arranged import Arrange, InDicts
from instance.memory.dataflow import Dataflow, Voice, error_text
from instance.memory.exports import Export, TailExport
from instance.memory.imports import Import, SharedInputs
from instance.memory.index import IndexExport
from instance.memory.logs import Installed, LogImport, Logs
from instance.memory.peeks import Peeks
from instance.memory.rendering import BuiltObject, Rule, render
from instance.memory.rows import RowFormat
from instance.memory.view import ViewExport
from instance.runtime import Report, RuntimeAction
from reconcile.compute_actions import (
    Compact,
    Configure,
    DataflowFailed,
    Drop,
    Render,
    RuntimeEvent,
    SetLogging,
    SetWritable,
    StartPeek,
    StopPeek,
)
from reconcile.dataflow import DataflowDescription, ExportKind, Index, MaterializedView, Tail
from reconcile.dataflow import Export as ExportDescription
from reconcile.errors import InvalidRequest
from reconcile.frontiers import Antichain
from reconcile.ids import GlobalId


@dataclass(slots=True, kw_only=True)
class _Installed:
    """A dataflow with a Render and no Drop; without a ``dataflow`` if it could not be rendered."""

    description: DataflowDescription
    dataflow: Dataflow | None = None
    error: str | None = None


class MemoryRuntime:
    """Dataflows over Arrow in process. Reports nothing from inside ``perform``."""

    def __init__(
        self,
        inputs: Inputs,
        report: Report,
        outputs: Outputs,
        *,
        rules: Mapping[str, Rule] = MappingProxyType({}),
        arrange: Arrange = InDicts,
    ) -> None:
        """``rules`` are for operators beyond our own; ``arrange`` makes what indexes keep."""
        self._rules = rules
        self._arrange = arrange
        self._inputs = inputs
        self._outputs = outputs
        self._report = report
        self._closed = False
        self._shared = SharedInputs(inputs)
        self._peeks = Peeks(inputs, self._tell, _later)
        #: Every dataflow that is installed, by each id that it was created with.
        self._installed: dict[GlobalId, _Installed] = {}
        #: The exports that run: of a dataflow that has not failed, and not freed.
        self._exports: dict[GlobalId, Export] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._logs = Logs(self._each_installed, self._exports, self._peeks)

    def perform(self, action: RuntimeAction) -> None:
        match action:
            case Render(description=description):
                self._render(description)
            case Drop(exports=exports):
                self._drop(exports)
            case Compact(id=id, since=since):
                self._compact(id, since)
            case SetWritable(id=id, writable=writable):
                export = self._exports.get(id)
                if isinstance(export, ViewExport):
                    export.set_writable(writable)
            case StartPeek():
                self._start_peek(action)
            case StopPeek(peek=peek):
                self._peeks.stop(peek)
            case Configure(configuration=configuration):
                self._peeks.result_bytes_max = configuration.result_bytes_max
            case SetLogging(ids=ids):
                self._logs.offered = ids
            case _:
                assert_never(action)

    async def close(self) -> None:
        self._closed = True
        self._end(self._peeks.close())
        for id in tuple(self._installed):
            self._drop((id,))
        await asyncio.gather(*self._ending, return_exceptions=True)

    # --- dataflows ----------------------------------------------------------------------------------------

    def _render(self, description: DataflowDescription) -> None:
        voice = Voice(self._tell)
        installed = _Installed(description=description)
        self._installed.update(dict.fromkeys(description.export_ids, installed))
        try:
            installed.dataflow = self._rendered(description, voice)
        except Exception as error:  # a mistake of the user, or ours: it must cost this dataflow only
            installed.error = error_text(error)
            failed = DataflowFailed(id=description.export_ids[0], error=installed.error)
            _later(lambda: self._tell(failed) if self._installed.get(failed.id) is installed else None)
            return
        self._exports.update(installed.dataflow.exports)
        installed.dataflow.start()

    def _rendered(self, description: DataflowDescription, voice: Voice) -> Dataflow:
        objects = render(description, self._format_of, self._rules)
        dataflow = Dataflow(description, objects, voice, self._on_failed, self._logs.stepped)
        built = {each.id: each for each in objects}
        try:
            for export in description.exports:
                dataflow.exports[export.id] = self._export(export, built, dataflow, voice)
            for each in objects:
                for id, format in each.reads.items():
                    if id not in built and id not in dataflow.reads:
                        dataflow.connect(id, self._open(id, format, dataflow))
        except Exception:
            dataflow.stop()
            raise
        return dataflow

    def _format_of(self, id: GlobalId, declared: RowFormat) -> RowFormat:
        """The columns of an import: those of the index or log if it is one of ours, else as declared."""
        if id.is_logging:
            return self._logs.format_of(id)
        export = self._exports.get(id)
        if isinstance(export, IndexExport):
            return export.format
        installed = self._installed.get(id)
        if installed is not None and _kind(installed.description, id) is not ExportKind.VIEW:
            why = installed.error or "it cannot be read by dataflows"
            raise InvalidRequest(f"it reads {id}, which is not there", detail=why)
        return declared

    def _open(self, id: GlobalId, format: RowFormat, dataflow: Dataflow) -> Import:
        if id.is_logging:
            return LogImport(self._logs.export(id))
        export = self._exports.get(id)
        if isinstance(export, IndexExport):
            return export.reader(dataflow.reads_from)
        return self._shared.open(id, format)

    def _export(
        self, export: ExportDescription, built: dict[GlobalId, BuiltObject], dataflow: Dataflow, voice: Voice
    ) -> Export:
        if export.id not in built:
            raise InvalidRequest(f"{export.id} is exported but not built")
        format, as_of = built[export.id].tree.format, dataflow.description.as_of
        match export:
            case Index(id=id, key=key):
                return IndexExport(id, format, key, as_of, voice, self._peeks.ready, self._arrange)
            case MaterializedView(id=id):
                return ViewExport(id, format, self._outputs.open(id, format.schema), self._inputs, voice, dataflow.fail)
            case Tail(id=id, snapshot=snapshot):
                return TailExport(id, format, as_of, snapshot, voice)
            case _:
                assert_never(export)

    def _drop(self, exports: tuple[GlobalId, ...]) -> None:
        for id in exports:
            installed = self._installed.get(id)
            if installed is None:
                continue
            for each in installed.description.export_ids:
                self._installed.pop(each, None)
                self._exports.pop(each, None)
                self._peeks.stop_on(each, f"{each} was dropped")
            if installed.dataflow is not None:
                self._end(installed.dataflow.stop())

    def _compact(self, id: GlobalId, since: Antichain) -> None:
        export = self._exports.get(id)
        if export is None:
            return
        export.compact(since)
        if since.is_closed:
            del self._exports[id]
            self._peeks.stop_on(id, f"{id} was dropped")
            dataflow = self._installed[id].dataflow
            assert dataflow is not None, "its export runs"
            self._end(dataflow.free(id))

    def _on_failed(self, dataflow: Dataflow) -> None:
        """A dataflow has reported its failure and is about to stop."""
        for id in dataflow.description.export_ids:
            installed = self._installed.get(id)
            if installed is not None and installed.dataflow is dataflow:
                installed.error = dataflow.error
                self._exports.pop(id, None)
                self._peeks.stop_on(id, dataflow.error or "")

    def _each_installed(self) -> Iterator[Installed]:
        """Each dataflow once, by the first of its exports."""
        for id, one in tuple(self._installed.items()):
            if id == one.description.export_ids[0]:
                yield Installed(description=one.description, dataflow=one.dataflow, error=one.error)

    # --- peeks --------------------------------------------------------------------------------------------

    def _start_peek(self, peek: StartPeek) -> None:
        if peek.id in self._logs.offered:
            self._peeks.start(peek, self._logs.export(peek.id))
            return
        export = self._exports.get(peek.id)
        if isinstance(export, IndexExport | ViewExport):
            self._peeks.start(peek, export)
            return
        installed = self._installed.get(peek.id)
        error = installed.error if installed is not None else None
        self._peeks.refuse(peek.peek, error or f"{peek.id} is not kept here and cannot be read")

    # --- the loop -----------------------------------------------------------------------------------------

    def _tell(self, event: RuntimeEvent) -> None:
        if not self._closed:
            self._report(event)

    def _end(self, tasks: Iterable[asyncio.Task[None]]) -> None:
        """Keeps tasks that are ending until they have."""
        for task in tasks:
            if not task.done():
                self._ending.add(task)
                task.add_done_callback(self._ending.discard)


def _later(call: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_soon(call)


def _kind(description: DataflowDescription, id: GlobalId) -> ExportKind:
    return next(export.kind for export in description.exports if export.id == id)
