"""Changes: the closed sum of what a statement can do to the durable state."""

from dataclasses import dataclass
from enum import StrEnum

from reconcile.ids import CollectionKind, GlobalId, ReplicaId, Step, WriterEpoch


class Channel(StrEnum):
    """The two command streams that every cluster has."""

    COMPUTE = "compute"
    STORAGE = "storage"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogAppended:
    """One command, at the next place of the log."""

    cluster: str
    channel: Channel
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectPut:
    """``id`` lives under ``name``; replaces what was known of it. No two live objects share a name."""

    id: GlobalId
    name: str
    kind: str
    #: JSON text, never looked into by the store.
    definition: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectDropped:
    """``id`` is gone with its writer epoch; its name is free, the id itself is never used again."""

    id: GlobalId


@dataclass(frozen=True, slots=True, kw_only=True)
class IdsAllotted:
    """All ids of ``kind`` below ``next`` are taken for ever; never decreases."""

    kind: CollectionKind
    next: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionPut:
    """The function ``name`` is defined so; replaces its definition."""

    name: str
    #: JSON text, never looked into by the store.
    definition: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionDropped:
    """The function is gone, and its name is free."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPut:
    """The cluster ``name`` exists, with empty logs if it is new; replaces its definition."""

    name: str
    definition: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDropped:
    """The cluster is gone with its replicas and both its logs."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaPut:
    """``replica`` belongs to ``cluster``, for as long as it lives; replaces its definition."""

    cluster: str
    replica: ReplicaId
    definition: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaDropped:
    """``replica`` of ``cluster`` is gone; its id is never used again."""

    cluster: str
    replica: ReplicaId


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaIdsAllotted:
    """All replica ids below ``next`` are taken for ever; never decreases."""

    next: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterEpochAllotted:
    """``epoch`` may write ``id``'s shard; strictly increases, so that no two writers ever share one."""

    id: GlobalId
    epoch: WriterEpoch


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOpened:
    """``step`` is open; never decreases."""

    step: Step


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyRemembered:
    """The answer to the request ``key``, for whoever repeats it; the newest ``REPLIES_MAX`` are kept."""

    key: str
    request_digest: bytes
    reply: bytes


Change = (
    LogAppended
    | ObjectPut
    | ObjectDropped
    | IdsAllotted
    | FunctionPut
    | FunctionDropped
    | ClusterPut
    | ClusterDropped
    | ReplicaPut
    | ReplicaDropped
    | ReplicaIdsAllotted
    | WriterEpochAllotted
    | StepOpened
    | ReplyRemembered
)
