"""A store in memory: the same promises without a disk, for tests and simulation.

A ``MemoryDisk`` outlives the stores opened on it, as a database outlives its controllers.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from controller.store.bounds import REPLIES_MAX
from controller.store.changes import Change, Channel, ObjectPut, ReplicaPut, ReplyRemembered
from controller.store.effects import Effects
from controller.store.interface import EMPTY_LOG, ChannelLog, Loaded, LogRecord, Reign, fenced
from controller.store.ledger import REPLICA_COUNTER, Ledger
from reconcile.errors import InvariantBroken
from reconcile.ids import CollectionKind, Epoch, GlobalId, ReplicaId, Seqno, Step, WriterEpoch

K = TypeVar("K")
V = TypeVar("V")


class MemoryDisk:
    """What is durable."""

    def __init__(self, deployment: str | None = None) -> None:
        self.deployment = deployment or str(uuid.uuid4())
        self.epoch = Epoch(0)
        self.holder = ""
        self.beats = 0
        self.objects: dict[GlobalId, ObjectPut] = {}
        self.functions: dict[str, str] = {}
        self.clusters: dict[str, str] = {}
        self.replicas: dict[ReplicaId, ReplicaPut] = {}
        self.counters: dict[str, int] = {}
        self.writer_epochs: dict[GlobalId, WriterEpoch] = {}
        self.step: Step | None = None
        self.replies: dict[int, ReplyRemembered] = {}
        self.logs: dict[tuple[str, Channel], ChannelLog] = {}
        self.next_seqno = Seqno(1)

    def write(self, effects: Effects) -> None:
        """Makes the outcome of a group durable."""
        for cluster in effects.dropped_clusters:
            self.replicas = {id: put for id, put in self.replicas.items() if put.cluster != cluster}
            for channel in Channel:
                self.logs.pop((cluster, channel), None)
        _merge(self.objects, effects.objects)
        _merge(self.functions, effects.functions)
        _merge(self.clusters, effects.clusters)
        _merge(self.replicas, effects.replicas)
        _merge(self.writer_epochs, effects.writer_epochs)
        self.counters.update(effects.counters)
        self.step = self.step if effects.step is None else effects.step
        for number, reply in effects.replies:
            self.replies[number] = reply
            self.replies.pop(number - REPLIES_MAX, None)
        for cluster in self.clusters:
            for channel in Channel:
                self.logs.setdefault((cluster, channel), EMPTY_LOG)
        for seqno, cluster, channel_name, epoch, body in effects.log:
            key = (cluster, Channel(channel_name))
            record = LogRecord(seqno=Seqno(seqno), epoch=Epoch(epoch), body=body)
            self.logs[key] = replace(self.logs[key], tail=(*self.logs[key].tail, record))
        self.next_seqno = self.next_seqno if effects.next_seqno is None else effects.next_seqno

    def read(self) -> Loaded:
        """Everything, as of now."""
        kinds: tuple[CollectionKind, ...] = ("s", "u", "t", "l")
        return Loaded(
            objects=dict(self.objects),
            functions=dict(self.functions),
            clusters=dict(self.clusters),
            replicas=dict(self.replicas),
            next_ids={kind: self.counters.get(kind, 1) for kind in kinds},
            next_replica=self.counters.get(REPLICA_COUNTER, 1),
            writer_epochs=dict(self.writer_epochs),
            step=self.step,
            replies=tuple(self.replies.values()),
            next_reply=max(self.replies, default=-1) + 1,
            logs=dict(self.logs),
            next_seqno=self.next_seqno,
        )


class MemoryStore:
    """One controller's store on a ``MemoryDisk``."""

    def __init__(self, disk: MemoryDisk | None = None) -> None:
        self.disk = disk if disk is not None else MemoryDisk()
        self._reign: Reign | None = None
        self._ledger: Ledger | None = None
        self._closed = False

    async def open_reign(self, holder: str) -> Reign:
        self._require_open()
        self.disk.epoch = Epoch(self.disk.epoch + 1)
        self.disk.holder = holder
        self._reign = Reign(epoch=self.disk.epoch, deployment=self.disk.deployment)
        self._ledger = Ledger(self.disk.read())
        return self._reign

    async def load(self) -> Loaded:
        self._require_open()
        if self._reign is not None:
            self._require_reign()
        return self.disk.read()

    async def commit(self, changes: Sequence[Change]) -> tuple[Seqno, ...]:
        epoch, ledger = self._require_reign()
        admitted = ledger.admit(changes)
        effects = Effects(epoch)
        effects.add(admitted)
        self.disk.write(effects)
        return admitted.seqnos

    async def compact_log(self, cluster: str, channel: Channel, through: Seqno, reduced: Sequence[bytes]) -> None:
        _, ledger = self._require_reign()
        ledger.admit_compaction(cluster, channel, through, reduced)
        log = self.disk.logs[cluster, channel]
        tail = tuple(record for record in log.tail if record.seqno > through)
        self.disk.logs[cluster, channel] = ChannelLog(base=tuple(reduced), through=through, tail=tail)

    async def heartbeat(self) -> None:
        self._require_reign()
        self.disk.beats += 1

    async def close(self) -> None:
        self._closed = True

    def _require_open(self) -> None:
        if self._closed:
            raise InvariantBroken("the store was used after it was closed")

    def _require_reign(self) -> tuple[Epoch, Ledger]:
        self._require_open()
        if self._reign is None or self._ledger is None:
            raise InvariantBroken("the store was used before its reign was opened")
        if self.disk.epoch != self._reign.epoch:
            raise fenced(self._reign.epoch, self.disk.epoch, self.disk.holder)
        return self._reign.epoch, self._ledger


def _merge(durable: dict[K, V], touched: Mapping[K, V | None]) -> None:
    for key, value in touched.items():
        if value is None:
            durable.pop(key, None)
        else:
            durable[key] = value
