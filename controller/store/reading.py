"""Reading: rows become what was committed, or an error that says which row cannot be."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

from sqlalchemy import Connection, select

from controller.store import tables
from controller.store.bounds import REPLIES_MAX
from controller.store.changes import Channel, ObjectPut, ReplicaPut, ReplyRemembered
from controller.store.interface import ChannelLog, Loaded, LogRecord, fenced
from controller.store.ledger import REPLICA_COUNTER
from reconcile.errors import StorageFailed
from reconcile.ids import CollectionKind, Epoch, GlobalId, ReplicaId, Seqno, Step, WriterEpoch

_KINDS: tuple[CollectionKind, ...] = ("s", "u", "t", "l")


def read(connection: Connection, epoch: Epoch | None, *, bodies: bool = True) -> Loaded:
    """Everything, as of this transaction; without ``bodies`` the logs tell only how far they are compacted.

    The shared lock on the reign keeps writers out until the transaction ends, so the many selects see one state.
    """
    reign = connection.execute(select(tables.reign).with_for_update(read=True)).one()
    if epoch is not None and reign.epoch != epoch:
        raise fenced(epoch, Epoch(reign.epoch), reign.holder)
    with _understood():
        counters = {row.name: row.next for row in connection.execute(select(tables.counters))}
        clusters = {row.name: row.definition for row in connection.execute(select(tables.clusters))}
        numbers, replies = _replies(connection)
        logs = _logs(connection, clusters, bodies)
        loaded = Loaded(
            objects=_objects(connection),
            functions={row.name: row.definition for row in connection.execute(select(tables.functions))},
            clusters=clusters,
            replicas=_replicas(connection),
            next_ids={kind: counters.get(kind, 1) for kind in _KINDS},
            next_replica=counters.get(REPLICA_COUNTER, 1),
            writer_epochs={
                GlobalId.parse(row.id): WriterEpoch(row.epoch)
                for row in connection.execute(select(tables.writer_epochs))
            },
            step=cast("Step | None", connection.execute(select(tables.steps.c.step)).scalar_one_or_none()),
            replies=replies,
            next_reply=numbers[-1] + 1 if numbers else 0,
            logs=logs,
            next_seqno=Seqno(reign.next_seqno),
        )
        _check(loaded)
    return loaded


def _objects(connection: Connection) -> dict[GlobalId, ObjectPut]:
    objects = {}
    for row in connection.execute(select(tables.catalog)):
        id = GlobalId.parse(row.id)
        objects[id] = ObjectPut(id=id, name=row.name, kind=row.kind, definition=row.definition)
    return dict(sorted(objects.items()))


def _replicas(connection: Connection) -> dict[ReplicaId, ReplicaPut]:
    rows = connection.execute(select(tables.replicas).order_by(tables.replicas.c.replica))
    return {
        ReplicaId(row.replica): ReplicaPut(
            cluster=row.cluster, replica=ReplicaId(row.replica), definition=row.definition
        )
        for row in rows
    }


def _replies(connection: Connection) -> tuple[list[int], tuple[ReplyRemembered, ...]]:
    rows = connection.execute(select(tables.replies).order_by(tables.replies.c.number)).all()
    replies = (ReplyRemembered(key=row.key, request_digest=row.request_digest, reply=row.reply) for row in rows)
    return [row.number for row in rows], tuple(replies)


def _logs(connection: Connection, clusters: dict[str, str], bodies: bool) -> dict[tuple[str, Channel], ChannelLog]:
    channels = {channel.value: channel for channel in Channel}
    keys = [(cluster, channel.value) for cluster in clusters for channel in Channel]
    through: dict[tuple[str, str], int] = dict.fromkeys(keys, 0)
    base: dict[tuple[str, str], list[bytes]] = {key: [] for key in keys}
    tail: dict[tuple[str, str], list[LogRecord]] = {key: [] for key in keys}
    table = tables.command_log_base
    query = select(table).order_by(table.c.cluster, table.c.channel, table.c.place)
    for row in connection.execute(query if bodies else query.where(table.c.place == 0)):
        key = (row.cluster, row.channel)
        through[key] = row.through
        if row.place:
            base[key].append(row.body)
    if bodies:
        # Plain tuples, unpacked: the longest loop of a start-up.
        log = tables.command_log
        rows = connection.execute(
            select(log.c.cluster, log.c.channel, log.c.seqno, log.c.epoch, log.c.body).order_by(log.c.seqno)
        )
        for cluster, channel, seqno, epoch, body in rows:
            tail[cluster, channel].append(LogRecord(seqno=seqno, epoch=epoch, body=body))
    return {
        (cluster, channels[channel]): ChannelLog(
            base=tuple(base[cluster, channel]),
            through=Seqno(through[cluster, channel]),
            tail=tuple(tail[cluster, channel]),
        )
        for cluster, channel in keys
    }


def _check(loaded: Loaded) -> None:
    """What the ledger promised before writing holds after reading."""
    for (cluster, channel), log in loaded.logs.items():
        seqnos = [log.through, *(record.seqno for record in log.tail)]
        if seqnos != sorted(set(seqnos)) or seqnos[-1] >= loaded.next_seqno:
            raise ValueError(f"the {channel} log of {cluster} is out of order")
    for id in loaded.objects:
        if id.number >= loaded.next_ids[id.kind]:
            raise ValueError(f"{id} was never allotted")
    for put in loaded.replicas.values():
        if put.cluster not in loaded.clusters or put.replica >= loaded.next_replica:
            raise ValueError(f"replica {put.replica} of {put.cluster} belongs nowhere")
    if len(loaded.replies) > REPLIES_MAX:
        raise ValueError(f"{len(loaded.replies)} replies are remembered")


@contextmanager
def _understood() -> Iterator[None]:
    """Rows that contradict each other are damage, whoever did it."""
    try:
        yield
    except (ValueError, KeyError) as error:
        raise StorageFailed(
            "the database contradicts itself", detail=str(error), hint="restore it from a backup"
        ) from error
