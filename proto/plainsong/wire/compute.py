"""Compute commands and responses on the wire."""

from typing import assert_never

from plainsong.v1 import compute_pb2
from plainsong.wire.dataflows import check_plan_bytes, put_dataflow, put_reason, take_dataflow, take_reason
from plainsong.wire.plans import put_plan, take_plan
from plainsong.wire.shared import (
    PUT_SHARED_COMMAND,
    PUT_SHARED_RESPONSE,
    TAKE_SHARED_COMMAND,
    TAKE_SHARED_RESPONSE,
    put_configuration,
    take_configuration,
)
from plainsong.wire.tables import PutTable, TakeTable, put_nothing, put_one, take_one
from plainsong.wire.values import (
    bounded,
    malformed,
    put_frontier,
    put_id,
    put_ids,
    put_updates,
    required,
    take_frontier,
    take_id,
    take_ids,
    take_updates,
)
from reconcile.compute_protocol import (
    AllowWrites,
    CancelPeeks,
    CreateDataflows,
    DataflowStatus,
    DropInstance,
    Failed,
    Hydrating,
    InstalledExport,
    Inventory,
    Kept,
    Peek,
    PeekCanceled,
    PeekFailed,
    PeekOutcome,
    PeekRefusal,
    PeekRefused,
    PeekResponse,
    PeekRows,
    Replaced,
    TailResponse,
    UpdateConfiguration,
)
from reconcile.errors import InvariantBroken
from reconcile.ids import PeekId, Step

# --- commands ---------------------------------------------------------------------------------------------


def _put_update_configuration(command: UpdateConfiguration, out: compute_pb2.UpdateConfiguration) -> None:
    put_configuration(command.configuration, out.configuration)


def _take_update_configuration(message: compute_pb2.UpdateConfiguration) -> UpdateConfiguration:
    return UpdateConfiguration(configuration=take_configuration(required(message, "configuration")))


def _put_create_dataflows(command: CreateDataflows, out: compute_pb2.CreateDataflows) -> None:
    for dataflow in command.dataflows:
        put_dataflow(dataflow, out.dataflows.add())


def _take_create_dataflows(message: compute_pb2.CreateDataflows) -> CreateDataflows:
    return CreateDataflows(dataflows=tuple([take_dataflow(dataflow) for dataflow in message.dataflows]))


def _put_allow_writes(command: AllowWrites, out: compute_pb2.AllowWrites) -> None:
    put_id(command.id, out.id)


def _take_allow_writes(message: compute_pb2.AllowWrites) -> AllowWrites:
    return AllowWrites(id=take_id(message.id))


def _put_peek(command: Peek, out: compute_pb2.Peek) -> None:
    out.peek = bounded(command.peek)
    put_id(command.id, out.id)
    out.at = bounded(command.at)
    if command.finishing is not None:
        put_plan(command.finishing, out.finishing)
        check_plan_bytes(out, "a peek")


def _take_peek(message: compute_pb2.Peek) -> Peek:
    finishing = None
    if message.finishing:
        check_plan_bytes(message, "a peek")
        finishing = take_plan(message.finishing)
    return Peek(
        peek=PeekId(bounded(message.peek)),
        id=take_id(message.id),
        at=Step(bounded(message.at)),
        finishing=finishing,
    )


def _put_cancel_peeks(command: CancelPeeks, out: compute_pb2.CancelPeeks) -> None:
    out.peeks.extend([bounded(peek) for peek in command.peeks])


def _take_cancel_peeks(message: compute_pb2.CancelPeeks) -> CancelPeeks:
    return CancelPeeks(peeks=tuple([PeekId(bounded(peek)) for peek in message.peeks]))


PUT_COMMAND: PutTable = {
    **PUT_SHARED_COMMAND,
    DropInstance: ("drop_instance", put_nothing),
    UpdateConfiguration: ("update_configuration", _put_update_configuration),
    CreateDataflows: ("create_dataflows", _put_create_dataflows),
    AllowWrites: ("allow_writes", _put_allow_writes),
    Peek: ("peek", _put_peek),
    CancelPeeks: ("cancel_peeks", _put_cancel_peeks),
}
TAKE_COMMAND: TakeTable = {
    **TAKE_SHARED_COMMAND,
    "drop_instance": lambda _: DropInstance(),
    "update_configuration": _take_update_configuration,
    "create_dataflows": _take_create_dataflows,
    "allow_writes": _take_allow_writes,
    "peek": _take_peek,
    "cancel_peeks": _take_cancel_peeks,
}

# --- responses --------------------------------------------------------------------------------------------


def _put_inventory(response: Inventory, out: compute_pb2.Inventory) -> None:
    for export in response.exports:
        message = out.exports.add()
        put_id(export.id, message.id)
        put_frontier(export.since, message.since)
        put_frontier(export.upper, message.upper)


def _take_inventory(message: compute_pb2.Inventory) -> Inventory:
    return Inventory(
        exports=tuple(
            [
                InstalledExport(
                    id=take_id(export.id), since=take_frontier(export, "since"), upper=take_frontier(export, "upper")
                )
                for export in message.exports
            ]
        )
    )


_REFUSAL_TO_WIRE = {
    PeekRefusal.UNKNOWN_COLLECTION: compute_pb2.PEEK_REFUSAL_UNKNOWN_COLLECTION,
    PeekRefusal.NOT_READABLE: compute_pb2.PEEK_REFUSAL_NOT_READABLE,
    PeekRefusal.DROPPED: compute_pb2.PEEK_REFUSAL_DROPPED,
    PeekRefusal.TARGET_GONE: compute_pb2.PEEK_REFUSAL_TARGET_GONE,
}
_REFUSAL_FROM_WIRE = {wire: refusal for refusal, wire in _REFUSAL_TO_WIRE.items()}


def _put_peek_response(response: PeekResponse, out: compute_pb2.PeekResponse) -> None:
    out.peek = bounded(response.peek)
    match response.outcome:
        case PeekRows(rows=bytes() as rows):
            out.rows = rows
        case PeekRows(rows=rows):
            raise InvariantBroken(f"a peek's rows are a {type(rows).__name__}", detail="only an Arrow stream is sent")
        case PeekFailed(error=error):
            out.failed = error
        case PeekRefused(refusal=refusal):
            out.refused = _REFUSAL_TO_WIRE[refusal]
        case PeekCanceled():
            out.canceled.SetInParent()
        case _:
            assert_never(response.outcome)


def _take_peek_response(message: compute_pb2.PeekResponse) -> PeekResponse:
    return PeekResponse(peek=PeekId(bounded(message.peek)), outcome=_take_outcome(message))


def _take_outcome(message: compute_pb2.PeekResponse) -> PeekOutcome:
    kind = message.WhichOneof("outcome")
    match kind:
        case "rows":
            return PeekRows(rows=message.rows)
        case "failed":
            return PeekFailed(error=message.failed)
        case "refused":
            refusal = _REFUSAL_FROM_WIRE.get(message.refused)
            if refusal is None:
                raise malformed(f"peek refusal {message.refused} is unknown")
            return PeekRefused(refusal=refusal)
        case "canceled":
            return PeekCanceled()
        case None:
            raise malformed("the outcome of a peek is of an unknown kind")


def _put_tail_response(response: TailResponse, out: compute_pb2.TailResponse) -> None:
    put_id(response.id, out.id)
    put_frontier(response.lower, out.lower)
    put_frontier(response.upper, out.upper)
    put_updates(response.updates, out.updates)


def _take_tail_response(message: compute_pb2.TailResponse) -> TailResponse:
    return TailResponse(
        id=take_id(message.id),
        lower=take_frontier(message, "lower"),
        upper=take_frontier(message, "upper"),
        updates=take_updates(message, "updates"),
    )


def _put_dataflow_status(response: DataflowStatus, out: compute_pb2.DataflowStatus) -> None:
    put_ids(response.exports, out.exports)
    put_one(_PUT_STATUS, response.status, out)


def _take_dataflow_status(message: compute_pb2.DataflowStatus) -> DataflowStatus:
    return DataflowStatus(exports=take_ids(message.exports), status=take_one(_TAKE_STATUS, message, "status"))


def _put_replaced(status: Replaced, out: compute_pb2.Replaced) -> None:
    for reason in status.reasons:
        put_reason(reason, out.reasons.add())


def _take_replaced(message: compute_pb2.Replaced) -> Replaced:
    return Replaced(reasons=tuple([take_reason(reason) for reason in message.reasons]))


def _put_hydrating(status: Hydrating, out: compute_pb2.Hydrating) -> None:
    out.done = bounded(status.done)
    out.total = bounded(status.total)


def _take_hydrating(message: compute_pb2.Hydrating) -> Hydrating:
    return Hydrating(done=bounded(message.done), total=bounded(message.total))


def _put_failed(status: Failed, out: compute_pb2.Failed) -> None:
    out.error = status.error


def _take_failed(message: compute_pb2.Failed) -> Failed:
    return Failed(error=message.error)


_PUT_STATUS: PutTable = {
    Kept: ("kept", put_nothing),
    Replaced: ("replaced", _put_replaced),
    Hydrating: ("hydrating", _put_hydrating),
    Failed: ("failed", _put_failed),
}
_TAKE_STATUS: TakeTable = {
    "kept": lambda _: Kept(),
    "replaced": _take_replaced,
    "hydrating": _take_hydrating,
    "failed": _take_failed,
}
PUT_RESPONSE: PutTable = {
    **PUT_SHARED_RESPONSE,
    Inventory: ("inventory", _put_inventory),
    PeekResponse: ("peek_response", _put_peek_response),
    TailResponse: ("tail_response", _put_tail_response),
    DataflowStatus: ("dataflow_status", _put_dataflow_status),
}
TAKE_RESPONSE: TakeTable = {
    **TAKE_SHARED_RESPONSE,
    "inventory": _take_inventory,
    "peek_response": _take_peek_response,
    "tail_response": _take_tail_response,
    "dataflow_status": _take_dataflow_status,
}
