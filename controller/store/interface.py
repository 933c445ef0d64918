"""The interface of the durable store, and the values that cross it.

Every statement is one list of ``Change``s: all of it becomes durable or nothing does, and it is written only while
the reign that asked for it still stands. The controller keeps all state in memory; what is loaded here at start-up is
exactly what was committed.

Order of a life: ``open_reign``, then ``load`` (so that nobody else writes between the two), then anything.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from controller.store.changes import Change, Channel, ObjectPut, ReplicaPut, ReplyRemembered
from reconcile.errors import Fenced
from reconcile.ids import CollectionKind, Epoch, GlobalId, ReplicaId, Seqno, Step, WriterEpoch


@dataclass(frozen=True, slots=True, kw_only=True)
class Reign:
    """One controller's reign over one deployment."""

    epoch: Epoch
    #: Made once, when the database is first reigned over; tells deployments apart for ever.
    deployment: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRecord:
    """One command at its place in the log, and the reign that put it there."""

    seqno: Seqno
    epoch: Epoch
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelLog:
    """The log of one channel: a reduced base that stands for all records through ``through``, then the tail.

    Every tail record's seqno is greater than ``through``; tail seqnos increase.
    """

    base: tuple[bytes, ...]
    #: 0 while nothing was compacted; the first record has seqno 1.
    through: Seqno
    tail: tuple[LogRecord, ...]


#: The log of a channel to which nothing was ever appended.
EMPTY_LOG = ChannelLog(base=(), through=Seqno(0), tail=())


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """Everything that is durable, at one instant."""

    objects: Mapping[GlobalId, ObjectPut]
    #: Definition by name.
    functions: Mapping[str, str]
    clusters: Mapping[str, str]
    replicas: Mapping[ReplicaId, ReplicaPut]
    #: The first id of each kind that was never allotted; 1 at first.
    next_ids: Mapping[CollectionKind, int]
    next_replica: int
    writer_epochs: Mapping[GlobalId, WriterEpoch]
    #: The newest opened step, if there is one.
    step: Step | None
    #: Oldest first, at most ``REPLIES_MAX``.
    replies: tuple[ReplyRemembered, ...]
    #: How many replies were ever remembered.
    next_reply: int
    #: Both channels of every live cluster, and nothing else.
    logs: Mapping[tuple[str, Channel], ChannelLog]
    #: The place that the next record will have; seqnos are dense over all clusters and channels.
    next_seqno: Seqno


class Store(Protocol):
    """Where the controller's state survives.

    Everything may raise ``StorageFailed``: then the disk or database failed, and the store is dead; every later call
    raises it again. Everything but ``open_reign`` raises ``Fenced`` once a newer reign has begun.
    """

    async def open_reign(self, holder: str) -> Reign:
        """Begins the next reign, which fences all earlier ones."""
        ...

    async def load(self) -> Loaded:
        """Everything committed, in one consistent read."""
        ...

    async def commit(self, changes: Sequence[Change]) -> tuple[Seqno, ...]:
        """Makes one statement durable; the seqnos of its ``LogAppended``s, in order.

        Statements take effect in the order of the calls. Raises ``InvariantBroken`` or ``InvalidRequest``, with
        nothing written and the store as usable as before, for changes that contradict what is durable or cannot be
        stored. A cancelled call may still become durable.
        """
        ...

    async def compact_log(self, cluster: str, channel: Channel, through: Seqno, reduced: Sequence[bytes]) -> None:
        """Lets ``reduced`` stand for all records of the channel through ``through``, in one transaction."""
        ...

    async def heartbeat(self) -> None:
        """Shows a standby that this reign lives."""
        ...

    async def close(self) -> None:
        """Finishes what waits, then lets go of the database. Closing twice is harmless."""
        ...


def fenced(ours: Epoch, newer: Epoch, holder: str) -> Fenced:
    """What a deposed controller is told."""
    return Fenced(
        "another controller has taken over",
        detail=f"epoch {newer} of {holder} began after our epoch {ours}",
        hint="this one must stop; connect to the other",
    )
