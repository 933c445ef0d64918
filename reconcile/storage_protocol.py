"""The storage protocol: everything a controller and a storage instance can say to each other.

``Hello``, ``CreateInstance``, ``AllowCompaction``, ``InitializationComplete``, ``FrontierUppers`` and
``Heartbeat`` mean here what they mean for compute, with sources in the place of dataflows.
"""

from collections.abc import Hashable
from dataclasses import dataclass

from reconcile.compute_protocol import (
    AllowCompaction,
    CreateInstance,
    FrontierUppers,
    Heartbeat,
    Hello,
    InitializationComplete,
)
from reconcile.frontiers import Antichain
from reconcile.ids import GlobalId, Step
from reconcile.sources import SourceDescription
from reconcile.updates import Updates


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateSources:
    """Adds sources. The controller promises that none is requested already in this term.

    An installed one with the same definition is kept, one that differs only in alterable fields is altered, any
    other is refused by itself with a status.
    """

    sources: tuple[SourceDescription, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterSources:
    """Gives requested sources another definition; the verdict on each is as at the start of a term.

    The controller promises that it differs from the one before only in alterable fields. A source that is not
    requested is not begun.
    """

    sources: tuple[SourceDescription, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Append:
    """Writes ``updates`` to the table ``id`` and makes it complete below ``upper``.

    The only thing that advances a table. What lies below the accepted upper is left out and *reported*; the
    controller appends it again at a later step, unless it finds ``token`` in the shard.
    """

    id: GlobalId
    upper: Antichain
    updates: Updates
    token: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendSnapshot:
    """Makes ``rows`` the whole contents of the table ``id``, complete below ``upper``.

    They are compared with what the shard holds, so that sending them twice is harmless.
    """

    id: GlobalId
    upper: Antichain
    rows: tuple[Hashable, ...]
    token: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSinks:
    """Runs exactly these sinks; each copies the collection ``id`` outward. Level-triggered: the last one counts."""

    sinks: tuple[tuple[GlobalId, tuple[tuple[str, str], ...]], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenStep:
    """Opens every step through ``step``; durable before it is told, idempotent, the greatest counts.

    While no controller is connected a source's writer may open steps through ``granted`` by itself, one per
    ``every_ms``. ``checkpoint`` asks for a snapshot of private state after ``step``.
    """

    step: Step
    granted: Step
    every_ms: int
    checkpoint: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSeal:
    """The table or other source ``id`` is complete below ``upper`` for whoever has its shard through ``durable``."""

    id: GlobalId
    durable: Antichain
    upper: Antichain


@dataclass(frozen=True, slots=True, kw_only=True)
class SealTables:
    """Nothing but what is in their shards happened to these tables below their uppers.

    Only the controller writes to a table, so its word spares a commit per table and step. It is given after the
    writer's epoch has fenced all others, and goes to every replica. Of any other source the controller passes on
    what its writer said (``SourceSealed``). Level-triggered: of each the furthest counts.
    """

    tables: tuple[TableSeal, ...]


StorageCommand = (
    Hello
    | CreateInstance
    | CreateSources
    | AlterSources
    | AllowCompaction
    | Append
    | AppendSnapshot
    | RunSinks
    | OpenStep
    | SealTables
    | InitializationComplete
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendResult:
    """What became of an append: ``left_out`` updates came too late and were not written.

    Sent when the rest is durable; at once when nothing was left to write.
    """

    id: GlobalId
    token: str
    upper: Antichain
    left_out: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceKept:
    """The installed source goes on unchanged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceAltered:
    """The installed source goes on with these fields changed."""

    fields: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRefused:
    """The installed source differs in these fields and goes on as it is; the requested one does not run."""

    fields: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFailed:
    """The source stopped with an error from outside."""

    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRunning:
    """The source runs, also if it failed before; ``note`` is what its owner should know, if anything."""

    note: str = ""


Status = SourceKept | SourceAltered | SourceRefused | SourceFailed | SourceRunning


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceStatus:
    """How one source fares."""

    id: GlobalId
    status: Status


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """How many records arrived for ``step`` so far; cumulative, so repeats do not add."""

    id: GlobalId
    step: Step
    received: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSealed:
    """The writer of a source cut it at every step before the seal's upper.

    True for ever: a later writer cuts only at steps that were opened after it had fenced this one. Told again in
    every term.
    """

    seal: TableSeal


StorageResponse = FrontierUppers | AppendResult | SourceStatus | StepReport | SourceSealed | Heartbeat
