"""Answers: what the controller tells a client about itself, as plain values."""

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types

from plainsong.rows import Row
from reconcile.frontiers import Antichain
from reconcile.ids import GlobalId


class ReplicaState(StrEnum):
    """How a replica stands to the controller."""

    UNKNOWN = "unknown"
    CONNECTING = "connecting"
    ONLINE = "online"
    QUARANTINED = "quarantined"


class ObjectKind(StrEnum):
    """What a name in the catalog means."""

    UNKNOWN = "unknown"
    TABLE = "table"
    SOURCE = "source"
    VIEW = "view"
    MATERIALIZED_VIEW = "materialized view"
    INDEX = "index"


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One copy of a cluster's work."""

    id: int
    address: str
    state: ReplicaState
    #: How many sessions it has had in this reign.
    incarnation: int
    #: Why it is not online.
    detail: str
    dataflows_hydrated: int
    dataflows_total: int
    dataflows_kept: int
    dataflows_replaced: int
    #: How many steps it is behind the furthest replica.
    lag_steps: int
    #: What it had installed when its session began, and how much of that nobody asked for any more.
    exports_found: int
    exports_unasked: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A set of identical replicas."""

    name: str
    replicas: tuple[Replica, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column by name and Spark SQL type."""

    name: str
    type: str
    not_null: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Object:
    """A name in the catalog and what it means."""

    name: str
    #: ``None`` for a view, which is only a name for a query.
    id: GlobalId | None
    kind: ObjectKind
    cluster: str
    columns: tuple[Column, ...]
    sql: str
    #: Of an index: what it indexes, and by what.
    on: str
    key: tuple[str, ...]
    #: Names of what it reads.
    reads: tuple[str, ...]
    #: What went wrong with it, if anything did.
    error: str
    #: Of a source: running, paused, failed or finished, and what is to be known of it.
    status: str = ""
    #: It was created so that nothing of it is ever computed anew.
    strict_incremental: bool = False
    #: Functions of users that its text calls, each by name, an underline and version; it keeps these versions.
    functions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A function in Python; with ``columns`` it gives rows, else a value of the type ``returns``."""

    name: str
    #: Of its content: source and signature.
    version: str
    args: tuple[Column, ...]
    returns: str
    columns: tuple[Column, ...]
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A write that is durable: ``rows`` of them, at ``step``."""

    step: int
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """How a query is or would be computed."""

    #: One operator a line, with its strategy and why.
    plan: str
    reads: tuple[str, ...]
    columns: tuple[Column, ...]
    #: The parts that are computed anew with each change, and why; none: it is incremental.
    recomputed: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.plan


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectFrontier:
    """How far one object is: readable from ``since``, final before ``upper``."""

    name: str
    id: GlobalId | None
    since: Antichain
    upper: Antichain
    replicas: tuple[tuple[int, Antichain], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Frontiers:
    """How far everything is."""

    objects: tuple[ObjectFrontier, ...]
    #: The newest step that was opened, and the newest that was acknowledged to somebody.
    opened: int
    acknowledged: int

    def __getitem__(self, name: str) -> ObjectFrontier:
        for found in self.objects:
            if found.name == name:
                return found
        raise KeyError(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """How the whole deployment stands."""

    version: str
    deployment: str
    epoch: int
    clusters: tuple[Cluster, ...]
    objects: tuple[Object, ...]
    log_records: int
    opened: int
    acknowledged: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRecord:
    """One command of the durable log; ``seqno`` 0 for what compaction left of the records before the first."""

    seqno: int
    cluster: str
    text: str
    epoch: int


# --- tails ---


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """At ``step`` there came to be ``diff`` more rows like ``row`` (fewer, if it is negative)."""

    row: Row
    step: int
    diff: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """All changes before ``upper`` have been told. Go on from here later: ``tail(..., resume=upper.step)``."""

    upper: Antichain


@dataclass(frozen=True, slots=True, kw_only=True)
class TailBatch:
    """All changes from ``lower`` up to ``upper``: rows with ``_step`` and ``_diff``; ``None`` if there are none."""

    lower: Antichain
    upper: Antichain
    updates: pa.Table | None


# --- events ---


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectCreated:
    object: Object


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectAltered:
    object: Object


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectDropped:
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaChanged:
    cluster: str
    replica: Replica


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectFailed:
    name: str
    replica: int
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontiersRose:
    frontiers: tuple[ObjectFrontier, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Interrupted:
    """The connection was lost and is there again; what happened in between was not seen. Ask for the status."""


Event: TypeAlias = (
    ObjectCreated | ObjectAltered | ObjectDropped | ReplicaChanged | ObjectFailed | FrontiersRose | Interrupted
)
