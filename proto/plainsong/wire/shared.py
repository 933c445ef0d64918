"""What the compute and the storage protocol share on the wire."""

from plainsong.v1 import common_pb2
from plainsong.wire.tables import PutTable, TakeTable, put_nothing
from plainsong.wire.values import (
    bounded,
    put_changes,
    put_frontier,
    put_id,
    put_ids,
    required,
    take_changes,
    take_frontier,
    take_id,
    take_ids,
)
from reconcile.compute_protocol import (
    AllowCompaction,
    Configuration,
    CreateInstance,
    FrontierChange,
    FrontierUppers,
    Heartbeat,
    Hello,
    InitializationComplete,
)
from reconcile.ids import Epoch, ReplicaId, SessionId

_PARAMETERS = ("result_bytes_max", "dataflows_concurrent_max", "heartbeat_ms", "spark_call_ms_max")


def put_hello(command: Hello, out: common_pb2.Hello) -> None:
    out.epoch = bounded(command.epoch)
    out.session = command.session
    out.deployment = command.deployment
    if command.replica is not None:
        out.replica = bounded(command.replica)
    out.protocol_version = command.protocol_version


def take_hello(message: common_pb2.Hello) -> Hello:
    return Hello(
        epoch=Epoch(bounded(message.epoch)),
        session=SessionId(message.session),
        deployment=message.deployment,
        replica=ReplicaId(bounded(message.replica)) if message.HasField("replica") else None,
        protocol_version=message.protocol_version,
    )


def put_configuration(configuration: Configuration, out: common_pb2.Configuration) -> None:
    out.SetInParent()
    for name in _PARAMETERS:
        value = getattr(configuration, name)
        if value is not None:
            setattr(out, name, bounded(value))


def take_configuration(message: common_pb2.Configuration) -> Configuration:
    return Configuration(
        **{name: bounded(getattr(message, name)) for name in _PARAMETERS if message.HasField(name)}  # type: ignore[arg-type]  # one of the names above
    )


def put_create_instance(command: CreateInstance, out: common_pb2.CreateInstance) -> None:
    put_ids(command.logging, out.logging)
    put_configuration(command.configuration, out.configuration)


def take_create_instance(message: common_pb2.CreateInstance) -> CreateInstance:
    return CreateInstance(
        logging=take_ids(message.logging), configuration=take_configuration(required(message, "configuration"))
    )


def put_allow_compaction(command: AllowCompaction, out: common_pb2.AllowCompaction) -> None:
    put_id(command.id, out.id)
    put_frontier(command.since, out.since)


def take_allow_compaction(message: common_pb2.AllowCompaction) -> AllowCompaction:
    return AllowCompaction(id=take_id(message.id), since=take_frontier(message, "since"))


def put_frontier_uppers(response: FrontierUppers, out: common_pb2.FrontierUppers) -> None:
    for change in response.changes:
        message = out.changes.add()
        put_id(change.id, message.id)
        put_changes(change.changes, message.changes)
        put_frontier(change.upper, message.upper)


def take_frontier_uppers(message: common_pb2.FrontierUppers) -> FrontierUppers:
    return FrontierUppers(changes=tuple([_take_change(change) for change in message.changes]))


def _take_change(message: common_pb2.FrontierChange) -> FrontierChange:
    return FrontierChange(
        id=take_id(message.id), changes=take_changes(message.changes), upper=take_frontier(message, "upper")
    )


def put_heartbeat(response: Heartbeat, out: common_pb2.Heartbeat) -> None:
    out.sent_ms = bounded(response.sent_ms)


def take_heartbeat(message: common_pb2.Heartbeat) -> Heartbeat:
    return Heartbeat(sent_ms=bounded(message.sent_ms))


PUT_SHARED_COMMAND: PutTable = {
    Hello: ("hello", put_hello),
    CreateInstance: ("create_instance", put_create_instance),
    AllowCompaction: ("allow_compaction", put_allow_compaction),
    InitializationComplete: ("initialization_complete", put_nothing),
}
TAKE_SHARED_COMMAND: TakeTable = {
    "hello": take_hello,
    "create_instance": take_create_instance,
    "allow_compaction": take_allow_compaction,
    "initialization_complete": lambda _: InitializationComplete(),
}
PUT_SHARED_RESPONSE: PutTable = {
    FrontierUppers: ("frontier_uppers", put_frontier_uppers),
    Heartbeat: ("heartbeat", put_heartbeat),
}
TAKE_SHARED_RESPONSE: TakeTable = {
    "frontier_uppers": take_frontier_uppers,
    "heartbeat": take_heartbeat,
}
