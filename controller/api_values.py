"""The API's messages and the controller's values, each made from the other."""

from collections.abc import Iterable, Sequence

from controller.controller import Controller
from controller.objects import CatalogObject, ObjectKind
from controller.sql import Column, UserFunction
from plainsong.codec import to_pb_frontier, to_pb_id
from plainsong.v1 import controller_pb2 as pb
from reconcile.frontiers import MINIMUM
from reconcile.ids import GlobalId, ReplicaId
from reconcile.plan_tree import PlanValue

KINDS = {
    ObjectKind.TABLE: pb.OBJECT_KIND_TABLE,
    ObjectKind.SOURCE: pb.OBJECT_KIND_SOURCE,
    ObjectKind.VIEW: pb.OBJECT_KIND_VIEW,
    ObjectKind.MATERIALIZED_VIEW: pb.OBJECT_KIND_MATERIALIZED_VIEW,
    ObjectKind.INDEX: pb.OBJECT_KIND_INDEX,
}


def columns_of(columns: Iterable[pb.Column]) -> tuple[Column, ...]:
    return tuple(Column(name=column.name, type=column.type, nullable=not column.not_null) for column in columns)


def values_of(values: Sequence[pb.Value]) -> tuple[PlanValue, ...]:
    found: list[PlanValue] = []
    for value in values:
        kind = value.WhichOneof("value")
        found.append(None if kind is None else getattr(value, kind))
    return tuple(found)


def pb_object(controller: Controller, object: CatalogObject) -> pb.Object:
    catalog = controller.state.catalog
    cluster = controller.state.clusters.get(object.cluster)
    errors = [] if cluster is None else [view.failed.get(object.id, "") for view in cluster.machine.replicas.values()]
    on = catalog.get(object.on) if object.on is not None else None
    return pb.Object(
        name=object.name,
        id=to_pb_id(object.id),
        kind=KINDS[object.kind],
        cluster=object.cluster,
        columns=[pb.Column(name=c.name, type=c.type, not_null=c.not_null) for c in object.columns],
        sql=object.sql,
        on=on.name if on is not None else "",
        key=object.key,
        reads=names_of(controller, object.reads),
        error=next((error for error in errors if error), ""),
        status=_source_status(controller, object) if object.kind is ObjectKind.SOURCE else "",
        strict_incremental=object.strict_incremental,
        functions=[function.plan_name for function in object.functions],
    )


def pb_function(function: UserFunction) -> pb.Function:
    return pb.Function(
        name=function.name,
        version=function.version,
        args=[pb.Column(name=name, type=type) for name, type in function.args],
        returns="" if function.is_table else function.returns,
        columns=[pb.Column(name=name, type=type) for name, type in function.columns],
        source=function.source,
    )


def _source_status(controller: Controller, source: CatalogObject) -> str:
    """Whether a source runs, in one word; then what is to be known of it."""
    record = controller.state.clusters.get(source.cluster)
    if record is None:
        return ""
    if record.machine.sealed(source.id).is_closed:
        return "finished"
    host, _ = record.machine.hosts.get(source.id, (None, None))
    view = None if host is None else record.machine.replicas.get(host)
    if view is None:
        return "paused"
    if source.id in view.failed:
        return "failed"
    note = view.notes.get(source.id)
    return f"running: {note}" if note else "running"


def names_of(controller: Controller, ids: Iterable[GlobalId]) -> list[str]:
    found = (controller.state.catalog.get(id) for id in ids)
    return [object.name for object in found if object is not None]


def pb_replica(controller: Controller, cluster: str, id: ReplicaId) -> pb.Replica:
    record = controller.state.clusters[cluster]
    machine = record.machine
    view = machine.replicas.get(id)
    trouble, quarantined = controller.trouble(cluster, id)
    address = record.replicas[id].address or controller.orchestrator.listening(cluster, id) or ""
    message = pb.Replica(id=id, address=address, incarnation=controller.incarnation(id))
    if view is None:
        message.state = pb.REPLICA_STATE_QUARANTINED if quarantined else pb.REPLICA_STATE_CONNECTING
        message.detail = trouble
        return message
    total = sum(1 for dataflow in machine.history.dataflows if not dataflow.description.export_ids[0].is_transient)
    message.state = pb.REPLICA_STATE_ONLINE
    message.dataflows_total = total
    message.dataflows_hydrated = min(total, sum(not id.is_transient for id in view.uppers))
    message.dataflows_kept = view.kept
    message.dataflows_replaced = len(view.replaced)
    message.exports_found = view.found
    message.exports_unasked = view.unasked
    lags = [
        (unified.step or 0) - (upper.step or 0)
        for id, upper in view.uppers.items()
        if (unified := machine.merge.upper(id)) is not None and unified.step is not None
    ]
    message.lag_steps = max([0, *lags])
    return message


def pb_cluster(controller: Controller, name: str) -> pb.Cluster:
    replicas = controller.state.clusters[name].replicas
    return pb.Cluster(name=name, replicas=[pb_replica(controller, name, id) for id in sorted(replicas)])


def pb_frontier(controller: Controller, object: CatalogObject) -> pb.ObjectFrontier:
    engine = controller.engine
    message = pb.ObjectFrontier(
        name=object.name,
        id=to_pb_id(object.id),
        since=to_pb_frontier(engine.since(object.id)),
        upper=to_pb_frontier(engine.upper(object.id)),
    )
    cluster = controller.state.clusters.get(object.cluster)
    if cluster is not None and object.has_dataflow:
        for replica, view in sorted(cluster.machine.replicas.items()):
            upper = view.uppers.get(object.id, MINIMUM)
            message.replicas.append(pb.ReplicaUpper(replica=replica, upper=to_pb_frontier(upper)))
    return message
