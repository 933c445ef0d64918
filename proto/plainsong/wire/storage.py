"""Storage commands and responses on the wire."""

from collections.abc import Iterable
from typing import Any

from plainsong.v1 import storage_pb2
from plainsong.wire.plans import put_plan, take_plan
from plainsong.wire.shared import PUT_SHARED_COMMAND, PUT_SHARED_RESPONSE, TAKE_SHARED_COMMAND, TAKE_SHARED_RESPONSE
from plainsong.wire.tables import PutTable, TakeTable, put_nothing, put_one, take_one
from plainsong.wire.values import (
    bounded,
    malformed,
    put_frontier,
    put_id,
    put_updates,
    take_frontier,
    take_id,
    take_updates,
)
from reconcile.ids import GlobalId, Step, WriterEpoch
from reconcile.sources import SourceDescription
from reconcile.storage_protocol import (
    AlterSources,
    Append,
    AppendResult,
    AppendSnapshot,
    CreateSources,
    OpenStep,
    RunSinks,
    SealTables,
    SourceAltered,
    SourceFailed,
    SourceKept,
    SourceRefused,
    SourceRunning,
    SourceSealed,
    SourceStatus,
    StepReport,
    TableSeal,
)

Definition = tuple[tuple[str, str], ...]

# --- commands ---------------------------------------------------------------------------------------------


def _put_definition(definition: Definition, out: Any) -> None:
    for name, value in _distinct(definition):
        message = out.add()
        message.name = name
        message.value = value


def _take_definition(messages: Iterable[storage_pb2.DefinitionField]) -> Definition:
    return _distinct(tuple([(message.name, message.value) for message in messages]))


def _distinct(definition: Definition) -> Definition:
    if len({name for name, _ in definition}) < len(definition):
        raise malformed("a definition has a field twice")
    return definition


def _put_sources(
    command: CreateSources | AlterSources, out: storage_pb2.CreateSources | storage_pb2.AlterSources
) -> None:
    for source in command.sources:
        message = out.sources.add()
        put_id(source.id, message.id)
        _put_definition(source.definition, message.definition)
        message.alterable.extend(source.alterable)
        if source.writer_epoch is not None:
            message.writer_epoch = bounded(source.writer_epoch)


def _take_create_sources(message: storage_pb2.CreateSources) -> CreateSources:
    return CreateSources(sources=tuple([_take_source(source) for source in message.sources]))


def _take_alter_sources(message: storage_pb2.AlterSources) -> AlterSources:
    return AlterSources(sources=tuple([_take_source(source) for source in message.sources]))


def _take_source(message: storage_pb2.SourceDescription) -> SourceDescription:
    return SourceDescription(
        id=take_id(message.id),
        definition=_take_definition(message.definition),
        alterable=tuple(message.alterable),
        writer_epoch=WriterEpoch(bounded(message.writer_epoch)) if message.HasField("writer_epoch") else None,
    )


def _put_append(command: Append, out: storage_pb2.Append) -> None:
    put_id(command.id, out.id)
    put_frontier(command.upper, out.upper)
    put_updates(command.updates, out.updates)
    out.token = command.token


def _take_append(message: storage_pb2.Append) -> Append:
    return Append(
        id=take_id(message.id),
        upper=take_frontier(message, "upper"),
        updates=take_updates(message, "updates"),
        token=message.token,
    )


def _put_append_snapshot(command: AppendSnapshot, out: storage_pb2.AppendSnapshot) -> None:
    put_id(command.id, out.id)
    put_frontier(command.upper, out.upper)
    # The domain keeps rows opaque; ``put_plan`` refuses what is not made of plan values.
    rows: Any = command.rows
    put_plan(rows, out.rows)
    out.token = command.token


def _take_append_snapshot(message: storage_pb2.AppendSnapshot) -> AppendSnapshot:
    rows = take_plan(message.rows)
    if not isinstance(rows, tuple) or isinstance(rows, GlobalId):
        raise malformed("the rows of a snapshot are not a list")
    return AppendSnapshot(id=take_id(message.id), upper=take_frontier(message, "upper"), rows=rows, token=message.token)


def _put_run_sinks(command: RunSinks, out: storage_pb2.RunSinks) -> None:
    for id, definition in command.sinks:
        message = out.sinks.add()
        put_id(id, message.id)
        _put_definition(definition, message.definition)


def _take_run_sinks(message: storage_pb2.RunSinks) -> RunSinks:
    return RunSinks(sinks=tuple([(take_id(sink.id), _take_definition(sink.definition)) for sink in message.sinks]))


def _put_open_step(command: OpenStep, out: storage_pb2.OpenStep) -> None:
    out.step = bounded(command.step)
    out.granted = bounded(command.granted)
    out.every_ms = bounded(command.every_ms)
    out.checkpoint = command.checkpoint


def _take_open_step(message: storage_pb2.OpenStep) -> OpenStep:
    return OpenStep(
        step=Step(bounded(message.step)),
        granted=Step(bounded(message.granted)),
        every_ms=bounded(message.every_ms),
        checkpoint=message.checkpoint,
    )


def _put_seal_tables(command: SealTables, out: storage_pb2.SealTables) -> None:
    for seal in command.tables:
        _put_seal(seal, out.tables.add())


def _put_seal(seal: TableSeal, out: storage_pb2.TableSeal) -> None:
    put_id(seal.id, out.id)
    put_frontier(seal.durable, out.durable)
    put_frontier(seal.upper, out.upper)


def _take_seal_tables(message: storage_pb2.SealTables) -> SealTables:
    return SealTables(tables=tuple([_take_seal(seal) for seal in message.tables]))


def _take_seal(message: storage_pb2.TableSeal) -> TableSeal:
    return TableSeal(
        id=take_id(message.id), durable=take_frontier(message, "durable"), upper=take_frontier(message, "upper")
    )


PUT_COMMAND: PutTable = {
    **PUT_SHARED_COMMAND,
    CreateSources: ("create_sources", _put_sources),
    AlterSources: ("alter_sources", _put_sources),
    Append: ("append", _put_append),
    AppendSnapshot: ("append_snapshot", _put_append_snapshot),
    RunSinks: ("run_sinks", _put_run_sinks),
    OpenStep: ("open_step", _put_open_step),
    SealTables: ("seal_tables", _put_seal_tables),
}
TAKE_COMMAND: TakeTable = {
    **TAKE_SHARED_COMMAND,
    "create_sources": _take_create_sources,
    "alter_sources": _take_alter_sources,
    "append": _take_append,
    "append_snapshot": _take_append_snapshot,
    "run_sinks": _take_run_sinks,
    "open_step": _take_open_step,
    "seal_tables": _take_seal_tables,
}

# --- responses --------------------------------------------------------------------------------------------


def _put_append_result(response: AppendResult, out: storage_pb2.AppendResult) -> None:
    put_id(response.id, out.id)
    out.token = response.token
    put_frontier(response.upper, out.upper)
    out.left_out = bounded(response.left_out)


def _take_append_result(message: storage_pb2.AppendResult) -> AppendResult:
    return AppendResult(
        id=take_id(message.id),
        token=message.token,
        upper=take_frontier(message, "upper"),
        left_out=bounded(message.left_out),
    )


def _put_source_status(response: SourceStatus, out: storage_pb2.SourceStatus) -> None:
    put_id(response.id, out.id)
    put_one(_PUT_STATUS, response.status, out)


def _take_source_status(message: storage_pb2.SourceStatus) -> SourceStatus:
    return SourceStatus(id=take_id(message.id), status=take_one(_TAKE_STATUS, message, "status"))


def _put_fields(status: SourceAltered | SourceRefused, out: Any) -> None:
    out.fields.extend(status.fields)


def _put_source_failed(status: SourceFailed, out: storage_pb2.SourceFailed) -> None:
    out.error = status.error


def _put_step_report(response: StepReport, out: storage_pb2.StepReport) -> None:
    put_id(response.id, out.id)
    out.step = bounded(response.step)
    out.received = bounded(response.received)


def _take_step_report(message: storage_pb2.StepReport) -> StepReport:
    return StepReport(id=take_id(message.id), step=Step(bounded(message.step)), received=bounded(message.received))


def _put_source_running(status: SourceRunning, out: storage_pb2.SourceRunning) -> None:
    out.note = status.note


def _put_source_sealed(response: SourceSealed, out: storage_pb2.SourceSealed) -> None:
    _put_seal(response.seal, out.seal)


def _take_source_sealed(message: storage_pb2.SourceSealed) -> SourceSealed:
    return SourceSealed(seal=_take_seal(message.seal))


_PUT_STATUS: PutTable = {
    SourceKept: ("kept", put_nothing),
    SourceAltered: ("altered", _put_fields),
    SourceRefused: ("refused", _put_fields),
    SourceFailed: ("failed", _put_source_failed),
    SourceRunning: ("running", _put_source_running),
}
_TAKE_STATUS: TakeTable = {
    "kept": lambda _: SourceKept(),
    "altered": lambda message: SourceAltered(fields=tuple(message.fields)),
    "refused": lambda message: SourceRefused(fields=tuple(message.fields)),
    "failed": lambda message: SourceFailed(error=message.error),
    "running": lambda message: SourceRunning(note=message.note),
}
PUT_RESPONSE: PutTable = {
    **PUT_SHARED_RESPONSE,
    AppendResult: ("append_result", _put_append_result),
    SourceStatus: ("source_status", _put_source_status),
    StepReport: ("step_report", _put_step_report),
    SourceSealed: ("source_sealed", _put_source_sealed),
}
TAKE_RESPONSE: TakeTable = {
    **TAKE_SHARED_RESPONSE,
    "append_result": _take_append_result,
    "source_status": _take_source_status,
    "step_report": _take_step_report,
    "source_sealed": _take_source_sealed,
}
