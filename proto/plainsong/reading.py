"""Reading: the controller's messages as the plain values of ``plainsong.answers``.

Generated code goes no further than this. A server that is newer than we are may name kinds and states that we do not
know; they become ``UNKNOWN`` rather than an error.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types

from plainsong.answers import (
    Cluster,
    Column,
    Event,
    Explanation,
    Frontiers,
    FrontiersRose,
    Function,
    LogRecord,
    Object,
    ObjectAltered,
    ObjectCreated,
    ObjectDropped,
    ObjectFailed,
    ObjectFrontier,
    ObjectKind,
    Replica,
    ReplicaChanged,
    ReplicaState,
    Status,
    Written,
)
from plainsong.arrow_updates import from_ipc
from plainsong.errors import ProtocolViolation
from plainsong.rows import Rows
from plainsong.v1 import common_pb2, controller_pb2
from reconcile.errors import ProtocolViolation as CoreViolation
from reconcile.errors import Violation
from reconcile.frontiers import Antichain
from reconcile.ids import CollectionKind, GlobalId, Step

_KINDS: dict[int, CollectionKind] = {1: "s", 2: "u", 3: "t", 4: "l"}
_OBJECT_KINDS = {
    controller_pb2.OBJECT_KIND_TABLE: ObjectKind.TABLE,
    controller_pb2.OBJECT_KIND_SOURCE: ObjectKind.SOURCE,
    controller_pb2.OBJECT_KIND_VIEW: ObjectKind.VIEW,
    controller_pb2.OBJECT_KIND_MATERIALIZED_VIEW: ObjectKind.MATERIALIZED_VIEW,
    controller_pb2.OBJECT_KIND_INDEX: ObjectKind.INDEX,
}
KIND_NUMBERS = {kind: number for number, kind in _OBJECT_KINDS.items()}
_STATES = {
    controller_pb2.REPLICA_STATE_CONNECTING: ReplicaState.CONNECTING,
    controller_pb2.REPLICA_STATE_ONLINE: ReplicaState.ONLINE,
    controller_pb2.REPLICA_STATE_QUARANTINED: ReplicaState.QUARANTINED,
}


class Chunk(Protocol):
    """A part of a result: of a peek, a query or a lookup."""

    @property
    def step(self) -> int: ...
    @property
    def arrow(self) -> bytes: ...


def violation(detail: str) -> ProtocolViolation:
    """What the server said cannot be so."""
    return ProtocolViolation(
        "the server's answer makes no sense",
        why=Violation.MALFORMED,
        detail=detail,
        hint="is it of the same version as this client?",
    )


def table(ipc: bytes) -> pa.Table:
    try:
        return from_ipc(ipc)
    except CoreViolation as error:
        raise violation(error.detail) from error


def rows(chunks: Sequence[Chunk]) -> Rows:
    """A whole result from its chunks."""
    if not chunks:
        raise violation("a result without a single chunk")
    step = chunks[0].step
    if any(chunk.step != step for chunk in chunks):
        raise violation("the chunks of a result are of different steps")
    tables = [table(chunk.arrow) for chunk in chunks]
    if any(part.schema != tables[0].schema for part in tables):
        raise violation("the chunks of a result have different columns")
    return Rows(pa.concat_tables(tables), step)


def frontier(message: common_pb2.Frontier) -> Antichain:
    return Antichain(Step(message.step) if message.HasField("step") else None)


def global_id(message: common_pb2.GlobalId) -> GlobalId | None:
    kind = _KINDS.get(message.kind)
    return None if kind is None else GlobalId(kind, message.number)


def replica(message: controller_pb2.Replica) -> Replica:
    return Replica(
        id=message.id,
        address=message.address,
        state=_STATES.get(message.state, ReplicaState.UNKNOWN),
        incarnation=message.incarnation,
        detail=message.detail,
        dataflows_hydrated=message.dataflows_hydrated,
        dataflows_total=message.dataflows_total,
        dataflows_kept=message.dataflows_kept,
        dataflows_replaced=message.dataflows_replaced,
        lag_steps=message.lag_steps,
        exports_found=message.exports_found,
        exports_unasked=message.exports_unasked,
    )


def cluster(message: controller_pb2.Cluster) -> Cluster:
    return Cluster(name=message.name, replicas=tuple(replica(each) for each in message.replicas))


def columns(messages: Iterable[controller_pb2.Column]) -> tuple[Column, ...]:
    return tuple(Column(name=each.name, type=each.type, not_null=each.not_null) for each in messages)


def catalog_object(message: controller_pb2.Object) -> Object:
    return Object(
        name=message.name,
        id=global_id(message.id),
        kind=_OBJECT_KINDS.get(message.kind, ObjectKind.UNKNOWN),
        cluster=message.cluster,
        columns=columns(message.columns),
        sql=message.sql,
        on=message.on,
        key=tuple(message.key),
        reads=tuple(message.reads),
        error=message.error,
        status=message.status,
        strict_incremental=message.strict_incremental,
        functions=tuple(message.functions),
    )


def function(message: controller_pb2.Function) -> Function:
    return Function(
        name=message.name,
        version=message.version,
        args=columns(message.args),
        returns=message.returns,
        columns=columns(message.columns),
        source=message.source,
    )


def written(message: Any) -> Written:
    """Of ``InsertRowsResponse``, ``UpdateRowsResponse`` or ``DeleteRowsResponse``, which say the same."""
    return Written(step=message.step, rows=message.rows)


def explanation(message: controller_pb2.ExplainResponse) -> Explanation:
    return Explanation(
        plan=message.plan,
        reads=tuple(message.reads),
        columns=columns(message.columns),
        recomputed=tuple(message.recomputed),
    )


def object_frontier(message: controller_pb2.ObjectFrontier) -> ObjectFrontier:
    return ObjectFrontier(
        name=message.name,
        id=global_id(message.id),
        since=frontier(message.since),
        upper=frontier(message.upper),
        replicas=tuple((each.replica, frontier(each.upper)) for each in message.replicas),
    )


def frontiers(message: controller_pb2.GetFrontiersResponse) -> Frontiers:
    return Frontiers(
        objects=tuple(object_frontier(each) for each in message.frontiers),
        opened=message.opened,
        acknowledged=message.acknowledged,
    )


def status(message: controller_pb2.GetStatusResponse) -> Status:
    return Status(
        version=message.version,
        deployment=message.deployment,
        epoch=message.epoch,
        clusters=tuple(cluster(each) for each in message.clusters),
        objects=tuple(catalog_object(each) for each in message.objects),
        log_records=message.log_records,
        opened=message.opened,
        acknowledged=message.acknowledged,
    )


def log_records(message: controller_pb2.ReadLogResponse) -> tuple[LogRecord, ...]:
    return tuple(
        LogRecord(seqno=each.seqno, cluster=each.cluster, text=each.text, epoch=each.epoch) for each in message.records
    )


def event(message: controller_pb2.WatchResponse) -> Event | None:
    """The event; ``None`` for one that only a newer client knows."""
    match message.WhichOneof("event"):
        case "object_created":
            return ObjectCreated(object=catalog_object(message.object_created.object))
        case "object_altered":
            return ObjectAltered(object=catalog_object(message.object_altered.object))
        case "object_dropped":
            return ObjectDropped(name=message.object_dropped.name)
        case "replica_changed":
            changed = message.replica_changed
            return ReplicaChanged(cluster=changed.cluster, replica=replica(changed.replica))
        case "object_failed":
            failed = message.object_failed
            return ObjectFailed(name=failed.name, replica=failed.replica, error=failed.error)
        case "frontiers_rose":
            return FrontiersRose(frontiers=tuple(object_frontier(each) for each in message.frontiers_rose.frontiers))
        case None:
            return None
