"""What the storage reconciler is told, and what it asks of its shell beyond the actions common to all."""

from collections.abc import Hashable
from dataclasses import dataclass

from reconcile.actions import Accept, EndSession, PersistEpoch, Refuse, Reply
from reconcile.compute_actions import SessionClosed, SessionOpened, UpperReported
from reconcile.frontiers import Antichain
from reconcile.ids import GlobalId, SessionId, Step
from reconcile.sources import SourceDescription
from reconcile.storage_protocol import OpenStep, RunSinks, StorageCommand, StorageResponse, TableSeal
from reconcile.updates import Updates

# --- events -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageCommandReceived:
    """A controller sent a command; ``None`` is a stream that has not said hello."""

    session: SessionId | None
    command: StorageCommand


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentsRead:
    """The answer to ``ReadContents``: every row that ``id`` holds, as often as it holds it."""

    id: GlobalId
    rows: tuple[Hashable, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendDurable:
    """The ``Write`` with this token is durable."""

    id: GlobalId
    token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceStopped:
    """The source ended by itself with an error from outside."""

    id: GlobalId
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsReceived:
    """So many records arrived for ``step`` so far."""

    id: GlobalId
    step: Step
    received: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepsCut:
    """The source is cut at every step before the seal's upper; its rows are durable as the seal says."""

    seal: TableSeal


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFares:
    """The source runs with a note, or has trouble and tries again by itself: then there is an error."""

    id: GlobalId
    error: str = ""
    note: str = ""


StorageReport = UpperReported | ContentsRead | AppendDurable | SourceStopped | RecordsReceived | StepsCut | SourceFares
StorageEvent = SessionOpened | SessionClosed | StorageCommandReceived | StorageReport

# --- actions ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSource:
    """Start the source where its shard stands."""

    source: SourceDescription


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterSource:
    """Go on with this definition."""

    source: SourceDescription


@dataclass(frozen=True, slots=True, kw_only=True)
class StopSource:
    """Stop the source."""

    id: GlobalId


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactShard:
    """History of ``id`` before ``since`` may go."""

    id: GlobalId
    since: Antichain


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """Append to the table, complete below ``upper``; answered by ``AppendDurable`` with the same token."""

    id: GlobalId
    upper: Antichain
    updates: Updates
    token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadContents:
    """Read all rows of ``id`` after every ``Write`` so far; answered by ``ContentsRead``."""

    id: GlobalId


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSteps:
    """Steps are opened, and granted, as this says."""

    opened: OpenStep


@dataclass(frozen=True, slots=True, kw_only=True)
class SetUnattended:
    """Whether no controller is connected: then writers may open granted steps by themselves."""

    unattended: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SetSinks:
    """Run exactly these sinks."""

    sinks: RunSinks


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteSeals:
    """Readers of these tables may go on as far as their seals say."""

    seals: tuple[TableSeal, ...]


StorageEffect = (
    RunSource
    | AlterSource
    | StopSource
    | CompactShard
    | Write
    | ReadContents
    | OpenSteps
    | SetUnattended
    | SetSinks
    | NoteSeals
    | StorageResponse
)
StorageAction = (
    PersistEpoch
    | Accept
    | Refuse
    | EndSession
    | Reply[StorageResponse]
    | RunSource
    | AlterSource
    | StopSource
    | CompactShard
    | Write
    | ReadContents
    | OpenSteps
    | SetUnattended
    | SetSinks
    | NoteSeals
)
