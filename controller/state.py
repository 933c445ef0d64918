"""The controller's state in memory, which is what the store holds and nothing else.

A statement is planned against it, committed, and only then applied to it: what anybody sees is durable.
"""

import json
from dataclasses import dataclass, field

from controller.catalog import Catalog
from controller.cluster import Cluster
from controller.objects import stored_object
from controller.sql import UserFunction, stored_function
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
from controller.store.interface import ChannelLog, Loaded
from plainsong.codec import decode_command
from reconcile.compute_protocol import AllowCompaction, ComputeCommand, InitializationComplete
from reconcile.errors import InvalidRequest, InvariantBroken
from reconcile.ids import GlobalId, ReplicaId, Step, WriterEpoch
from reconcile.storage_protocol import AlterSources, CreateSources


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaRecord:
    """One replica of a cluster; with an address it runs already, else the orchestrator runs it."""

    id: ReplicaId
    address: str = ""

    def definition(self) -> str:
        return json.dumps({"address": self.address})


@dataclass(slots=True, kw_only=True)
class ClusterRecord:
    """One cluster: its machine, and its replicas by id."""

    machine: Cluster
    replicas: dict[ReplicaId, ReplicaRecord] = field(default_factory=dict)


class State:
    """Everything durable, in memory."""

    def __init__(self) -> None:
        self.catalog = Catalog()
        #: Functions that users registered, by name.
        self.functions: dict[str, UserFunction] = {}
        self.clusters: dict[str, ClusterRecord] = {}
        self.next_replica = 1
        self.writer_epochs: dict[GlobalId, WriterEpoch] = {}
        #: The newest step that is open.
        self.opened = Step(0)
        #: The newest step that is durably opened or granted to sources, so that the next reign goes on after it; at
        #: least ``opened``.
        self.reserved = Step(0)
        self.replies: dict[str, ReplyRemembered] = {}

    def cluster(self, name: str) -> ClusterRecord:
        record = self.clusters.get(name)
        if record is None:
            known = ", ".join(self.clusters) or "none yet"
            raise InvalidRequest(f"there is no cluster named {name!r}", hint=f"clusters are: {known}")
        return record

    def apply(self, change: Change) -> None:
        """Follows a durable change, but for log records: their commands are performed by who logged them."""
        match change:
            case ObjectPut(id=id, name=name, kind=kind, definition=definition):
                object = stored_object(id, name, kind, definition)
                if self.catalog.get(id) is None:
                    self.catalog.put(object)
                else:
                    self.catalog.alter(object)
            case ObjectDropped(id=id):
                self.catalog.drop(id)
            case IdsAllotted(kind=kind, next=next):
                self.catalog.allot(kind, next)
            case FunctionPut(name=name, definition=definition):
                self.functions[name] = stored_function(definition)
            case FunctionDropped(name=name):
                del self.functions[name]
            case ClusterPut(name=name):
                if name not in self.clusters:
                    self.clusters[name] = ClusterRecord(machine=Cluster(name, self.writer_epochs))
            case ClusterDropped(name=name):
                del self.clusters[name]
            case ReplicaPut(cluster=cluster, replica=replica, definition=definition):
                record = ReplicaRecord(id=replica, address=json.loads(definition)["address"])
                self.clusters[cluster].replicas[replica] = record
            case ReplicaDropped(cluster=cluster, replica=replica):
                del self.clusters[cluster].replicas[replica]
            case ReplicaIdsAllotted(next=next):
                self.next_replica = next
            case WriterEpochAllotted(id=id, epoch=epoch):
                self.writer_epochs[id] = epoch
            case StepOpened(step=step):
                self.reserved = step
            case ReplyRemembered(key=key):
                self.replies[key] = change
            case LogAppended():
                pass


def restored(loaded: Loaded) -> State:
    """The state as the store holds it."""
    state = State()
    state.writer_epochs.update(loaded.writer_epochs)
    # What an earlier reign granted may have been used: all of it counts as opened.
    state.opened = state.reserved = loaded.step or Step(0)
    state.next_replica = loaded.next_replica
    state.replies.update((reply.key, reply) for reply in loaded.replies)
    for kind, next in loaded.next_ids.items():
        state.catalog.allot(kind, next)
    for put in sorted(loaded.objects.values(), key=lambda put: put.id.number):
        state.catalog.put(stored_object(put.id, put.name, put.kind, put.definition))
    for name, definition in sorted(loaded.functions.items()):
        state.apply(FunctionPut(name=name, definition=definition))
    for name, definition in loaded.clusters.items():
        state.apply(ClusterPut(name=name, definition=definition))
    for replica in loaded.replicas.values():
        state.apply(replica)
    for (cluster, channel), log in loaded.logs.items():
        _replay(state.clusters[cluster].machine, channel, log)
    return state


def _replay(cluster: Cluster, channel: Channel, log: ChannelLog) -> None:
    bodies = [*log.base, *(record.body for record in log.tail)]
    if channel is Channel.COMPUTE:
        for body in bodies:
            logged = decode_command(body)
            if not isinstance(logged, ComputeCommand):
                raise InvariantBroken(f"a compute log holds {type(logged).__name__}")
            cluster.history.handle(logged)
        cluster.history.handle(InitializationComplete())
        for dataflow in cluster.history.dataflows:
            for id, since in dataflow.sinces.items():
                if not since.is_closed:
                    cluster.create_collection(id, dataflow.as_of)
        return
    for body in bodies:
        command = decode_command(body)
        if not isinstance(command, CreateSources | AlterSources | AllowCompaction):
            raise InvariantBroken(f"a storage log holds {type(command).__name__}")
        cluster.sources.handle(command)
    for source in cluster.sources:
        for _ in cluster.schedule_source(source.id):
            raise InvariantBroken("a source moved before any replica was there")
