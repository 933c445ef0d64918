"""Scheduling: which replica runs which source.

A source runs on every replica, or, when its state lives at the upstream, on exactly one. A singleton is sticky,
and moves only with a new writer epoch, which fences the writer it was taken from at the shard: so it has one
effective writer at every instant, also while its old host is merely unreachable.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import assert_never

from reconcile.errors import InvariantBroken
from reconcile.ids import GlobalId, ReplicaId, WriterEpoch

# --- events -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaAdded:
    """A replica joined, healthy and running nothing."""

    replica: ReplicaId


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaRemoved:
    """A replica is gone for good; it needs to be told nothing."""

    replica: ReplicaId


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaFailed:
    """A replica missed its deadline; it may be dead, slow, or cut off."""

    replica: ReplicaId


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaRecovered:
    """A failed replica can be reached again."""

    replica: ReplicaId


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceCreated:
    """A source wants to run: on one replica if ``singleton``, else on each."""

    id: GlobalId
    singleton: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceDropped:
    """A source shall run nowhere."""

    id: GlobalId


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementForgotten:
    """The controller restarted: it knows sources, replicas, health and writer epochs, not what ran where."""


ScheduleEvent = (
    ReplicaAdded
    | ReplicaRemoved
    | ReplicaFailed
    | ReplicaRecovered
    | SourceCreated
    | SourceDropped
    | PlacementForgotten
)

# --- actions ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOn:
    """Have ``replica`` run the source; a singleton only once its writer epoch is durable."""

    id: GlobalId
    replica: ReplicaId
    writer_epoch: WriterEpoch | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StopOn:
    """Have ``replica`` stop the source; best effort when it has failed, told again when it recovers."""

    id: GlobalId
    replica: ReplicaId


ScheduleAction = RunOn | StopOn
Moves = Iterator[ScheduleAction]


@dataclass(slots=True, kw_only=True)
class _Source:
    id: GlobalId
    singleton: bool
    #: Its place in order of creation.
    place: int
    #: Where a singleton runs; ``None`` while it waits.
    host: ReplicaId | None = None


@dataclass(slots=True, kw_only=True)
class _Replica:
    healthy: bool = True
    #: For a failed replica: what it ran when it failed, with its place in order of creation.
    ran: dict[GlobalId, int] = field(default_factory=dict)


class Scheduler:
    """The placement of all sources of one cluster."""

    def __init__(self, writer_epochs: Mapping[GlobalId, WriterEpoch] | None = None) -> None:
        self._replicas: dict[ReplicaId, _Replica] = {}
        #: In order of creation.
        self._sources: dict[GlobalId, _Source] = {}
        #: The last writer epoch of each source that ever was; survives everything, for it fences.
        self._writer_epochs: dict[GlobalId, WriterEpoch] = dict(writer_epochs or {})
        self._created = 0

    def handle(self, event: ScheduleEvent) -> tuple[ScheduleAction, ...]:
        return tuple(self._moves(event))

    def placement(self) -> tuple[tuple[GlobalId, tuple[ReplicaId, ...]], ...]:
        """For each source in order of creation the healthy replicas that run it, by number."""
        return tuple((source.id, tuple(self._hosts(source))) for source in self._sources.values())

    def check(self) -> None:
        healthy = self._healthy()
        for source in self._sources.values():
            if source.singleton and healthy and source.host not in healthy:
                raise InvariantBroken(f"{source.id} is on {source.host}, healthy are {healthy}")
            if not healthy and source.host is not None:
                raise InvariantBroken(f"{source.id} is on {source.host} and none is healthy")
            if source.host is not None and not (source.singleton and source.id in self._writer_epochs):
                raise InvariantBroken(f"{source.id} is on {source.host} without a writer epoch")
        if any(replica.healthy and replica.ran for replica in self._replicas.values()):
            raise InvariantBroken("a stop is owed to a healthy replica")

    def _moves(self, event: ScheduleEvent) -> Moves:
        match event:
            case ReplicaAdded(replica=replica):
                if replica not in self._replicas:
                    self._replicas[replica] = _Replica()
                    yield from self._fill(replica)
            case ReplicaRemoved(replica=replica):
                if self._replicas.pop(replica, None) is not None:
                    for source in self._singletons_on(replica):
                        yield from self._place(source)
            case ReplicaFailed(replica=replica):
                yield from self._fail(replica)
            case ReplicaRecovered(replica=replica):
                yield from self._recover(replica)
            case SourceCreated(id=id, singleton=singleton):
                if id not in self._sources:
                    source = _Source(id=id, singleton=singleton, place=self._created)
                    self._created += 1
                    self._sources[id] = source
                    yield from self._place(source)
            case SourceDropped(id=id):
                dropped = self._sources.pop(id, None)
                if dropped is not None:
                    yield from (StopOn(id=id, replica=replica) for replica in self._hosts(dropped))
            case PlacementForgotten():
                for known in self._replicas.values():
                    known.ran.clear()
                for source in self._sources.values():
                    yield from self._place(source)
            case _:
                assert_never(event)

    def _fail(self, id: ReplicaId) -> Moves:
        replica = self._replicas.get(id)
        if replica is None or not replica.healthy:
            return
        replica.ran = {source.id: source.place for source in self._sources.values() if id in self._hosts(source)}
        replica.healthy = False
        for source in self._singletons_on(id):
            yield StopOn(id=source.id, replica=id)
            yield from self._place(source)

    def _recover(self, id: ReplicaId) -> Moves:
        replica = self._replicas.get(id)
        if replica is None or replica.healthy:
            return
        replica.healthy = True
        runs = tuple(self._fill(id))
        runs_here = {run.id for run in runs if isinstance(run, RunOn)}
        for source in sorted(replica.ran, key=replica.ran.__getitem__):
            if source not in runs_here:
                yield StopOn(id=source, replica=id)
        replica.ran = {}
        yield from runs

    def _fill(self, replica: ReplicaId) -> Moves:
        """All that a replica which runs nothing should run: what waits, and what runs everywhere."""
        for source in self._sources.values():
            if not source.singleton:
                yield RunOn(id=source.id, replica=replica, writer_epoch=None)
            elif source.host is None:
                yield from self._place(source)

    def _place(self, source: _Source) -> Moves:
        """Runs a source where it should run, wherever it ran before."""
        healthy = self._healthy()
        if source.singleton:
            source.host = healthy[0] if healthy else None
            if source.host is not None:
                epoch = WriterEpoch(self._writer_epochs.get(source.id, 0) + 1)
                self._writer_epochs[source.id] = epoch
                yield RunOn(id=source.id, replica=source.host, writer_epoch=epoch)
        else:
            for replica in healthy:
                yield RunOn(id=source.id, replica=replica, writer_epoch=None)

    def _healthy(self) -> list[ReplicaId]:
        return sorted(id for id, replica in self._replicas.items() if replica.healthy)

    def _hosts(self, source: _Source) -> list[ReplicaId]:
        if not source.singleton:
            return self._healthy()
        return [] if source.host is None else [source.host]

    def _singletons_on(self, replica: ReplicaId) -> list[_Source]:
        return [source for source in self._sources.values() if source.host == replica]
