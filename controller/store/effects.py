"""Effects: what a group of admitted statements comes to in the end.

A group is written in one transaction, so only its outcome matters: a counter raised ten times is written once, and a
name that moved from one object to another on the way is in nobody's way, because the writer first deletes every touched
row and then inserts what is left.
"""

from typing import assert_never

from controller.store.changes import (
    Change,
    Channel,
    ClusterDropped,
    ClusterPut,
    FunctionDropped,
    FunctionPut,
    IdsAllotted,
    LogAppended,
    ObjectDropped,
    ObjectPut,
    ReplicaDropped,
    ReplicaIdsAllotted,
    ReplicaPut,
    ReplyRemembered,
    StepOpened,
    WriterEpochAllotted,
)
from controller.store.ledger import REPLICA_COUNTER, Admitted
from reconcile.errors import InvariantBroken
from reconcile.ids import Epoch, GlobalId, ReplicaId, Seqno, Step, WriterEpoch

#: seqno, cluster, channel, epoch, body
LogRow = tuple[int, str, str, int, bytes]


class Effects:
    """The net effect of a group; for each touched key what is there afterwards, None if nothing is."""

    def __init__(self, epoch: Epoch) -> None:
        self.epoch = epoch
        self.next_seqno: Seqno | None = None
        self.log: list[LogRow] = []
        #: Clusters whose earlier log and replicas go; done before anything of this group is inserted.
        self.dropped_clusters: dict[str, None] = {}
        self.objects: dict[GlobalId, ObjectPut | None] = {}
        self.functions: dict[str, str | None] = {}
        self.clusters: dict[str, str | None] = {}
        self.replicas: dict[ReplicaId, ReplicaPut | None] = {}
        self.counters: dict[str, int] = {}
        self.writer_epochs: dict[GlobalId, WriterEpoch | None] = {}
        self.step: Step | None = None
        #: By number, which increases.
        self.replies: list[tuple[int, ReplyRemembered]] = []

    def add(self, statement: Admitted) -> None:
        """Adds one statement; statements come in the order in which they were admitted."""
        seqno: int = statement.first_seqno
        reply = statement.first_reply
        log, epoch = self.log, self.epoch
        for change in statement.changes:
            # By type and first, without match, as in the ledger; an enum's value is too slow for this loop.
            if type(change) is LogAppended:
                channel = "compute" if change.channel is Channel.COMPUTE else "storage"
                log.append((seqno, change.cluster, channel, epoch, change.body))
                seqno += 1
            elif isinstance(change, ReplyRemembered):
                self.replies.append((reply, change))
                reply += 1
            else:
                self._add(change)
        if seqno != statement.next_seqno:
            raise InvariantBroken("a statement was not given one place for each of its commands")
        self.next_seqno = statement.next_seqno

    def _add(self, change: Change) -> None:
        match change:
            case ObjectPut(id=id):
                self.objects[id] = change
            case ObjectDropped(id=id):
                self.objects[id] = None
                self.writer_epochs[id] = None
            case IdsAllotted(kind=kind, next=next):
                self.counters[kind] = next
            case ReplicaIdsAllotted(next=next):
                self.counters[REPLICA_COUNTER] = next
            case FunctionPut(name=name, definition=definition):
                self.functions[name] = definition
            case FunctionDropped(name=name):
                self.functions[name] = None
            case ClusterPut(name=name, definition=definition):
                self.clusters[name] = definition
            case ClusterDropped(name=name):
                self._drop_cluster(name)
            case ReplicaPut(replica=replica):
                self.replicas[replica] = change
            case ReplicaDropped(replica=replica):
                self.replicas[replica] = None
            case WriterEpochAllotted(id=id, epoch=epoch):
                self.writer_epochs[id] = epoch
            case StepOpened(step=step):
                self.step = step
            case LogAppended() | ReplyRemembered():
                raise InvariantBroken("a change was added twice")
            case _:
                assert_never(change)

    def _drop_cluster(self, name: str) -> None:
        self.clusters[name] = None
        self.dropped_clusters[name] = None
        # In place, because ``add`` holds on to the list.
        self.log[:] = [row for row in self.log if row[1] != name]
        for replica, put in self.replicas.items():
            if put is not None and put.cluster == name:
                self.replicas[replica] = None
