"""Compute commands and responses as script lines."""

from typing import assert_never

from adapter.script import words
from adapter.script.words import BadLine, Line, comma, quoted
from reconcile.compute_protocol import (
    AllowCompaction,
    AllowWrites,
    CancelPeeks,
    ComputeCommand,
    ComputeResponse,
    CreateDataflows,
    CreateInstance,
    DataflowStatus,
    DropInstance,
    Failed,
    FrontierUppers,
    Heartbeat,
    Hello,
    Hydrating,
    InitializationComplete,
    Inventory,
    Kept,
    Peek,
    PeekCanceled,
    PeekFailed,
    PeekRefused,
    PeekResponse,
    PeekRows,
    Replaced,
    TailResponse,
    UpdateConfiguration,
)
from reconcile.dataflow import DataflowDescription, Export, ExportKind, Index, MaterializedView, ObjectToBuild, Tail
from reconcile.ids import GlobalId


def read_command(line: Line) -> ComputeCommand | None:
    """The command that a line states; ``None`` if it is none."""
    match line.verb:
        case "create-instance":
            return CreateInstance(logging=line.optional("logging", words.listed(words.collection), ()))
        case "create-dataflow":
            return CreateDataflows(dataflows=(_read_dataflow(line),))
        case "allow-compaction":
            id = line.next(words.collection, "a collection")
            return AllowCompaction(id=id, since=line.next(words.frontier, "a frontier"))
        case "allow-writes":
            return AllowWrites(id=line.next(words.collection, "a collection"))
        case "peek":
            peek, id = line.next(words.peek, "a peek"), line.next(words.collection, "a collection")
            return Peek(peek=peek, id=id, at=line.named("at", words.step))
        case "cancel-peeks":
            return CancelPeeks(peeks=line.next(words.listed(words.peek), "peeks"))
        case "initialization-complete":
            return InitializationComplete()
        case "drop-instance":
            return DropInstance()
        case _:
            return None


def _read_dataflow(line: Line) -> DataflowDescription:
    ids = line.named("exports", words.listed(words.collection))
    if not ids:
        raise BadLine("exports= must name at least one collection")
    plan = line.named("plan", words.text)
    kind = line.optional("kind", _read_kind, ExportKind.INDEX)
    # What the plan builds is internal, so that it compares by its text whatever the exports are.
    built = GlobalId("t", 1 + max(id.number for id in ids))
    return DataflowDescription(
        imports=line.named("imports", words.listed(words.collection)),
        objects=(ObjectToBuild(id=built, plan=plan),),
        exports=tuple(_export(kind, id) for id in ids),
        as_of=line.named("as_of", words.frontier),
    )


def _read_kind(word: str) -> ExportKind:
    if word not in list(ExportKind):
        raise BadLine(f"{word!r} is not a kind: it must be one of {', '.join(ExportKind)}")
    return ExportKind(word)


def _export(kind: ExportKind, id: GlobalId) -> Export:
    match kind:
        case ExportKind.INDEX:
            return Index(id=id)
        case ExportKind.VIEW:
            return MaterializedView(id=id)
        case ExportKind.TAIL:
            return Tail(id=id)
        case _:
            assert_never(kind)


def write_command(command: ComputeCommand) -> list[str]:
    match command:
        case CreateInstance(logging=logging):
            return ["create-instance" + (f" logging={comma(logging)}" if logging else "")]
        case CreateDataflows(dataflows=dataflows):
            return [_write_dataflow(description) for description in dataflows]
        case AllowCompaction(id=id, since=since):
            return [f"allow-compaction {id} {since}"]
        case AllowWrites(id=id):
            return [f"allow-writes {id}"]
        case Peek(peek=peek, id=id, at=at):
            return [f"peek p{peek} {id} at={at}"]
        case CancelPeeks(peeks=peeks):
            return [f"cancel-peeks {comma(f'p{peek}' for peek in peeks)}"]
        case InitializationComplete():
            return ["initialization-complete"]
        case DropInstance():
            return ["drop-instance"]
        case Hello(epoch=epoch, session=session):
            return [f"connect epoch={epoch} session={session}"]
        case UpdateConfiguration(configuration=configuration):
            return [f"update-configuration {quoted(str(configuration))}"]
        case _:
            assert_never(command)


def _write_dataflow(description: DataflowDescription) -> str:
    plan = description.objects[0].plan
    kind = description.exports[0].kind
    return (
        f"create-dataflow exports={comma(description.export_ids)} imports={comma(description.imports)}"
        f" plan={quoted(str(plan))} as_of={description.as_of}"
        + (f" kind={kind}" if kind is not ExportKind.INDEX else "")
    )


def write_response(response: ComputeResponse) -> list[str]:
    """What a controller hears; an inventory and a heartbeat are not shown."""
    match response:
        case FrontierUppers():
            return write_frontiers(response)
        case PeekResponse():
            return [write_answer(response)]
        case TailResponse(id=id, lower=lower, upper=upper, updates=updates):
            return [f"tail {id} {lower} {upper}{words.updates(updates)}"]
        case DataflowStatus():
            return [_write_status(response)]
        case Inventory() | Heartbeat():
            return []
        case _:
            assert_never(response)


def write_frontiers(response: FrontierUppers) -> list[str]:
    lines = []
    for change in response.changes:
        before = [str(step) for step, count in change.changes if count < 0]
        lines.append(f"frontier {change.id} {comma(before)} -> {change.upper}")
    return lines


def write_answer(response: PeekResponse) -> str:
    match response.outcome:
        case PeekRows(rows=rows):
            return f"answer p{response.peek} {quoted(str(rows))}"
        case PeekFailed(error=error):
            return f"answer-error p{response.peek} {quoted(error)}"
        case PeekRefused(refusal=refusal):
            return f"answer-error p{response.peek} {refusal}"
        case PeekCanceled():
            return f"canceled p{response.peek}"
        case _:
            assert_never(response.outcome)


def _write_status(response: DataflowStatus) -> str:
    exports = comma(response.exports)
    match response.status:
        case Kept():
            return f"keep {exports}"
        case Replaced(reasons=reasons):
            return f"replace {exports} because={comma(dict.fromkeys(reason.name for reason in reasons))}"
        case Failed(error=error):
            return f"failed {exports} {quoted(error)}"
        case Hydrating(done=done, total=total):
            return f"hydrating {exports} {done} of {total}"
        case _:
            assert_never(response.status)
