"""Dataflow descriptions on the wire, and the reasons why one could not be kept."""

from typing import assert_never

from google.protobuf.message import Message

from plainsong.v1 import compute_pb2
from plainsong.wire.plans import put_plan, take_plan
from plainsong.wire.tables import PutTable, TakeTable, put_nothing, put_one, take_one
from plainsong.wire.values import malformed, put_frontier, put_id, put_ids, take_frontier, take_id, take_ids, too_large
from reconcile.compatibility import (
    DependencyReplaced,
    ExportsDiffer,
    ImportsDiffer,
    KindDiffers,
    PlanDiffers,
    Reason,
    SincePastAsOf,
    TailNeverKept,
)
from reconcile.dataflow import DataflowDescription, Export, ExportKind, Index, MaterializedView, ObjectToBuild, Tail
from reconcile.limits import PLAN_BYTES_MAX, PLAN_DIFFERENCES_MAX


def check_plan_bytes(message: Message, what: str) -> None:
    size = message.ByteSize()
    if size > PLAN_BYTES_MAX:
        raise too_large(f"{what} takes {size} bytes; at most {PLAN_BYTES_MAX} are allowed")


def put_dataflow(dataflow: DataflowDescription, out: compute_pb2.DataflowDescription) -> None:
    if not dataflow.exports:
        raise malformed("a dataflow exports nothing")
    put_ids(dataflow.imports, out.imports)
    for built in dataflow.objects:
        message = out.objects.add()
        put_id(built.id, message.id)
        put_plan(built.plan, message.plan)
    for export in dataflow.exports:
        _put_export(export, out.exports.add())
    put_frontier(dataflow.as_of, out.as_of)
    put_frontier(dataflow.until, out.until)
    check_plan_bytes(out, "a dataflow")


def take_dataflow(message: compute_pb2.DataflowDescription) -> DataflowDescription:
    check_plan_bytes(message, "a dataflow")
    if not message.exports:
        raise malformed("a dataflow exports nothing")
    return DataflowDescription(
        imports=take_ids(message.imports),
        objects=tuple([ObjectToBuild(id=take_id(built.id), plan=take_plan(built.plan)) for built in message.objects]),
        exports=tuple([_take_export(export) for export in message.exports]),
        as_of=take_frontier(message, "as_of"),
        until=take_frontier(message, "until"),
    )


def _put_export(export: Export, out: compute_pb2.Export) -> None:
    match export:
        case Index(id=id, key=key):
            put_id(id, out.index.id)
            out.index.key.extend(key)
        case MaterializedView(id=id):
            put_id(id, out.materialized_view.id)
        case Tail(id=id, snapshot=snapshot):
            put_id(id, out.tail.id)
            out.tail.snapshot = snapshot
        case _:
            assert_never(export)


def _take_export(message: compute_pb2.Export) -> Export:
    kind = message.WhichOneof("export")
    match kind:
        case "index":
            return Index(id=take_id(message.index.id), key=tuple(message.index.key))
        case "materialized_view":
            return MaterializedView(id=take_id(message.materialized_view.id))
        case "tail":
            return Tail(id=take_id(message.tail.id), snapshot=message.tail.snapshot)
        case None:
            raise malformed("an export is of an unknown kind")


# --- reasons ----------------------------------------------------------------------------------------------

_KIND_TO_WIRE = {
    ExportKind.INDEX: compute_pb2.EXPORT_KIND_INDEX,
    ExportKind.VIEW: compute_pb2.EXPORT_KIND_VIEW,
    ExportKind.TAIL: compute_pb2.EXPORT_KIND_TAIL,
}
_KIND_FROM_WIRE = {wire: kind for kind, wire in _KIND_TO_WIRE.items()}


def put_reason(reason: Reason, out: compute_pb2.ReplaceReason) -> None:
    put_one(_PUT_REASON, reason, out)


def take_reason(message: compute_pb2.ReplaceReason) -> Reason:
    reason: Reason = take_one(_TAKE_REASON, message, "reason")
    return reason


def _put_exports_differ(reason: ExportsDiffer, out: compute_pb2.ExportsDiffer) -> None:
    put_ids(reason.installed, out.installed)
    put_ids(reason.requested, out.requested)


def _take_exports_differ(message: compute_pb2.ExportsDiffer) -> ExportsDiffer:
    return ExportsDiffer(installed=take_ids(message.installed), requested=take_ids(message.requested))


def _put_kind_differs(reason: KindDiffers, out: compute_pb2.KindDiffers) -> None:
    put_id(reason.export, out.export)
    out.installed = _KIND_TO_WIRE[reason.installed]
    out.requested = _KIND_TO_WIRE[reason.requested]


def _take_kind_differs(message: compute_pb2.KindDiffers) -> KindDiffers:
    return KindDiffers(
        export=take_id(message.export),
        installed=_take_kind(message.installed),
        requested=_take_kind(message.requested),
    )


def _take_kind(wire: compute_pb2.ExportKind.ValueType) -> ExportKind:
    kind = _KIND_FROM_WIRE.get(wire)
    if kind is None:
        raise malformed(f"export kind {wire} is unknown")
    return kind


def _put_imports_differ(reason: ImportsDiffer, out: compute_pb2.ImportsDiffer) -> None:
    put_ids(reason.only_installed, out.only_installed)
    put_ids(reason.only_requested, out.only_requested)


def _take_imports_differ(message: compute_pb2.ImportsDiffer) -> ImportsDiffer:
    return ImportsDiffer(
        only_installed=take_ids(message.only_installed), only_requested=take_ids(message.only_requested)
    )


def _put_plan_differs(reason: PlanDiffers, out: compute_pb2.PlanDiffers) -> None:
    out.fields.extend(_few(reason.fields))


def _take_plan_differs(message: compute_pb2.PlanDiffers) -> PlanDiffers:
    return PlanDiffers(fields=_few(tuple(message.fields)))


def _few(fields: tuple[str, ...]) -> tuple[str, ...]:
    if len(fields) > PLAN_DIFFERENCES_MAX:
        raise too_large(f"{len(fields)} differing fields are named; at most {PLAN_DIFFERENCES_MAX} are")
    return fields


def _put_since_past_as_of(reason: SincePastAsOf, out: compute_pb2.SincePastAsOf) -> None:
    put_id(reason.export, out.export)
    put_frontier(reason.installed_since, out.installed_since)
    put_frontier(reason.requested_since, out.requested_since)


def _take_since_past_as_of(message: compute_pb2.SincePastAsOf) -> SincePastAsOf:
    return SincePastAsOf(
        export=take_id(message.export),
        installed_since=take_frontier(message, "installed_since"),
        requested_since=take_frontier(message, "requested_since"),
    )


def _put_dependency_replaced(reason: DependencyReplaced, out: compute_pb2.DependencyReplaced) -> None:
    put_ids(reason.imports, out.imports)


def _take_dependency_replaced(message: compute_pb2.DependencyReplaced) -> DependencyReplaced:
    return DependencyReplaced(imports=take_ids(message.imports))


_PUT_REASON: PutTable = {
    ExportsDiffer: ("exports_differ", _put_exports_differ),
    KindDiffers: ("kind_differs", _put_kind_differs),
    ImportsDiffer: ("imports_differ", _put_imports_differ),
    PlanDiffers: ("plan_differs", _put_plan_differs),
    SincePastAsOf: ("since_past_as_of", _put_since_past_as_of),
    DependencyReplaced: ("dependency_replaced", _put_dependency_replaced),
    TailNeverKept: ("tail_never_kept", put_nothing),
}
_TAKE_REASON: TakeTable = {
    "exports_differ": _take_exports_differ,
    "kind_differs": _take_kind_differs,
    "imports_differ": _take_imports_differ,
    "plan_differs": _take_plan_differs,
    "since_past_as_of": _take_since_past_as_of,
    "dependency_replaced": _take_dependency_replaced,
    "tail_never_kept": lambda _: TailNeverKept(),
}
