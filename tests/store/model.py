"""A dumb model of the store: it remembers every call and works everything out anew from the beginning."""

from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from controller.store.bounds import REPLIES_MAX
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
from controller.store.interface import ChannelLog, Loaded, LogRecord
from reconcile.ids import CollectionKind, Epoch, GlobalId, ReplicaId, Seqno, Step, WriterEpoch


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compact:
    cluster: str
    channel: Channel
    through: Seqno
    reduced: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """The store is closed and the next controller opens it."""


Call = Commit | Compact | Restart


class Refused(Exception):
    """The model would not take this."""


class Model:
    """What a history of calls comes to."""

    def __init__(self, calls: Sequence[Call] = ()) -> None:
        self.epoch = 1
        self.objects: dict[GlobalId, ObjectPut] = {}
        self.functions: dict[str, str] = {}
        self.clusters: dict[str, str] = {}
        self.replicas: dict[ReplicaId, ReplicaPut] = {}
        self.counters: dict[str, int] = {}
        self.writer_epochs: dict[GlobalId, WriterEpoch] = {}
        self.step: Step | None = None
        self.replies: list[ReplyRemembered] = []
        self.records: list[tuple[str, Channel, LogRecord]] = []
        self.bases: dict[tuple[str, Channel], tuple[Seqno, tuple[bytes, ...]]] = {}
        self.next_seqno = 1
        for call in calls:
            self.call(call)

    def call(self, call: Call) -> None:
        match call:
            case Restart():
                self.epoch += 1
            case Compact(cluster=cluster, channel=channel, through=through, reduced=reduced):
                before = self.bases.get((cluster, channel), (0, ()))[0]
                _require(cluster in self.clusters and before <= through < self.next_seqno)
                self.bases[cluster, channel] = through, reduced
            case Commit(changes=changes):
                for change in changes:
                    self.change(change)
                for id in (change.id for change in changes if isinstance(change, ObjectPut)):
                    _require(id.number < self.counters.get(id.kind, 1))
                for replica in (change.replica for change in changes if isinstance(change, ReplicaPut)):
                    _require(replica < self.counters.get("replica", 1))

    def change(self, change: Change) -> None:
        if isinstance(change, LogAppended):
            _require(change.cluster in self.clusters)
            record = LogRecord(seqno=Seqno(self.next_seqno), epoch=Epoch(self.epoch), body=change.body)
            self.records.append((change.cluster, change.channel, record))
            self.next_seqno += 1
        elif isinstance(change, ObjectPut):
            _require(all(put.name != change.name or id == change.id for id, put in self.objects.items()))
            self.objects[change.id] = change
        elif isinstance(change, ObjectDropped):
            _require(change.id in self.objects)
            del self.objects[change.id]
            self.writer_epochs.pop(change.id, None)
        elif isinstance(change, IdsAllotted | ReplicaIdsAllotted):
            name = change.kind if isinstance(change, IdsAllotted) else "replica"
            _require(change.next >= self.counters.get(name, 1))
            self.counters[name] = change.next
        elif isinstance(change, FunctionPut):
            self.functions[change.name] = change.definition
        elif isinstance(change, FunctionDropped):
            _require(change.name in self.functions)
            del self.functions[change.name]
        elif isinstance(change, ClusterPut):
            self.clusters[change.name] = change.definition
        elif isinstance(change, ClusterDropped):
            self.drop_cluster(change.name)
        elif isinstance(change, ReplicaPut):
            _require(change.cluster in self.clusters)
            _require(self.replicas.get(change.replica, change).cluster == change.cluster)
            self.replicas[change.replica] = change
        elif isinstance(change, ReplicaDropped):
            _require(change.replica in self.replicas and self.replicas[change.replica].cluster == change.cluster)
            del self.replicas[change.replica]
        elif isinstance(change, WriterEpochAllotted):
            _require(change.epoch > self.writer_epochs.get(change.id, -1))
            self.writer_epochs[change.id] = change.epoch
        elif isinstance(change, StepOpened):
            _require(self.step is None or change.step >= self.step)
            self.step = change.step
        else:
            _require(change.key not in [reply.key for reply in self.replies[-REPLIES_MAX:]])
            self.replies.append(change)

    def drop_cluster(self, name: str) -> None:
        _require(name in self.clusters)
        del self.clusters[name]
        self.replicas = {id: put for id, put in self.replicas.items() if put.cluster != name}
        self.records = [entry for entry in self.records if entry[0] != name]
        self.bases = {key: base for key, base in self.bases.items() if key[0] != name}

    def loaded(self) -> Loaded:
        kinds: tuple[CollectionKind, ...] = ("s", "u", "t", "l")
        return Loaded(
            objects=self.objects,
            functions=self.functions,
            clusters=self.clusters,
            replicas=self.replicas,
            next_ids={kind: self.counters.get(kind, 1) for kind in kinds},
            next_replica=self.counters.get("replica", 1),
            writer_epochs=self.writer_epochs,
            step=self.step,
            replies=tuple(self.replies[-REPLIES_MAX:]),
            next_reply=len(self.replies),
            logs={(cluster, channel): self.log(cluster, channel) for cluster in self.clusters for channel in Channel},
            next_seqno=Seqno(self.next_seqno),
        )

    def log(self, cluster: str, channel: Channel) -> ChannelLog:
        through, base = self.bases.get((cluster, channel), (Seqno(0), ()))
        tail = (r for c, h, r in self.records if (c, h) == (cluster, channel) and r.seqno > through)
        return ChannelLog(base=base, through=through, tail=tuple(tail))


def _require(condition: bool) -> None:
    if not condition:
        raise Refused


# Few of each, so that most calls meet one another.
_names = st.sampled_from(["a", "b", "c", "é'"])
_clusters = st.sampled_from(["main", "other"])
_channels = st.sampled_from(Channel)
_ids = st.builds(GlobalId, st.sampled_from(["s", "u"]), st.integers(0, 4))
_replicas = st.integers(0, 4).map(ReplicaId)
_bodies = st.binary(max_size=3)

_changes = st.one_of(
    st.builds(LogAppended, cluster=_clusters, channel=_channels, body=_bodies),
    st.builds(LogAppended, cluster=_clusters, channel=_channels, body=_bodies),
    st.builds(ObjectPut, id=_ids, name=_names, kind=st.just("view"), definition=_names),
    st.builds(ObjectDropped, id=_ids),
    st.builds(IdsAllotted, kind=st.sampled_from(["s", "u"]), next=st.integers(1, 6)),
    st.builds(FunctionPut, name=_names, definition=_names),
    st.builds(FunctionDropped, name=_names),
    st.builds(ClusterPut, name=_clusters, definition=_names),
    st.builds(ClusterDropped, name=_clusters),
    st.builds(ReplicaPut, cluster=_clusters, replica=_replicas, definition=_names),
    st.builds(ReplicaDropped, cluster=_clusters, replica=_replicas),
    st.builds(ReplicaIdsAllotted, next=st.integers(1, 6)),
    st.builds(WriterEpochAllotted, id=_ids, epoch=st.integers(0, 5).map(WriterEpoch)),
    st.builds(StepOpened, step=st.integers(0, 5).map(Step)),
    st.builds(ReplyRemembered, key=st.text("xyz", max_size=3), request_digest=_bodies, reply=_bodies),
)
_commits = st.builds(Commit, changes=st.lists(_changes, min_size=1, max_size=6).map(tuple))
_compactions = st.builds(
    Compact,
    cluster=_clusters,
    channel=_channels,
    through=st.integers(0, 12).map(Seqno),
    reduced=st.lists(_bodies, max_size=3).map(tuple),
)

#: Begins with both clusters and some ids, so that not all is refused.
BEGINNING = Commit(
    changes=(
        ClusterPut(name="main", definition=""),
        ClusterPut(name="other", definition=""),
        IdsAllotted(kind="u", next=4),
        IdsAllotted(kind="s", next=2),
        ReplicaIdsAllotted(next=3),
    )
)
HISTORIES = st.lists(st.one_of(_commits, _commits, _commits, _compactions, st.just(Restart())), max_size=14)
