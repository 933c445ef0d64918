"""The compute protocol: everything a controller and a compute instance can say to each other.

A session runs through stages: ``Hello``, then ``CreateInstance``, then the *whole* requested state, then
``InitializationComplete``, then anything. ``sessions.MOVES`` is the table of what may follow what.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum

from reconcile.compatibility import Reason
from reconcile.dataflow import DataflowDescription
from reconcile.frontiers import Antichain, ChangeBatch
from reconcile.ids import Epoch, GlobalId, PeekId, ReplicaId, SessionId, Step
from reconcile.plan_tree import PlanValue
from reconcile.updates import Updates

# --- what the controller says -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """Opens a session. First on every stream, and only there.

    An epoch below the highest ever seen is refused; so is another deployment, another replica's address or an
    unknown protocol version, because a stranger with a high epoch must not wipe an instance. Accepted only after
    the epoch is durable. Supersedes every earlier session.
    """

    epoch: Epoch
    session: SessionId
    deployment: str = ""
    replica: ReplicaId | None = None
    protocol_version: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """Runtime parameters for everything, present and future; ``None`` leaves a field as it is.

    Never part of compatibility: no parameter may change a result.
    """

    result_bytes_max: int | None = None
    dataflows_concurrent_max: int | None = None
    heartbeat_ms: int | None = None
    spark_call_ms_max: int | None = None

    def merged(self, newer: "Configuration") -> "Configuration":
        """This one, with every field that ``newer`` sets."""
        set_fields = {f.name: getattr(newer, f.name) for f in fields(newer) if getattr(newer, f.name) is not None}
        return replace(self, **set_fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateInstance:
    """Begins a term: truncates the log and restarts it. From here commands are only collected.

    ``logging`` are the ids under which this instance offers its own logs.
    """

    logging: tuple[GlobalId, ...] = ()
    configuration: Configuration = field(default_factory=Configuration)


@dataclass(frozen=True, slots=True, kw_only=True)
class DropInstance:
    """Ends everything that is installed; the epoch is kept. Next must be ``CreateInstance``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateConfiguration:
    """Merges ``configuration`` field by field into what is set."""

    configuration: Configuration


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateDataflows:
    """Adds dataflows, readers after what they read.

    The controller promises: no export is installed already, no ``as_of`` is empty or below the since of an
    imported export, every import is a source, a logging id or a live export; and that it never drops what a live
    dataflow imports. One broken promise refuses the whole command.
    """

    dataflows: tuple[DataflowDescription, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowCompaction:
    """The controller will never again read ``id`` at times before ``since``. ``[]`` is the drop.

    Durable before it is sent. Never passes a hold, hence never a running peek.
    """

    id: GlobalId
    since: Antichain


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowWrites:
    """The materialized view ``id`` may write to its shard from now on."""

    id: GlobalId


@dataclass(frozen=True, slots=True, kw_only=True)
class Peek:
    """Asks for the contents of ``id`` at step ``at``; answered at most once, when ``at`` is final.

    ``finishing`` says what to do with the rows (look up, filter, project, limit); it is opaque here.
    """

    peek: PeekId
    id: GlobalId
    at: Step
    finishing: PlanValue = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelPeeks:
    """The answers of these peeks are no longer wanted."""

    peeks: tuple[PeekId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class InitializationComplete:
    """The requested state is complete: reconcile now. A repeat says nothing."""


ComputeCommand = (
    Hello
    | CreateInstance
    | DropInstance
    | UpdateConfiguration
    | CreateDataflows
    | AllowCompaction
    | AllowWrites
    | Peek
    | CancelPeeks
    | InitializationComplete
)

# --- what the instance says -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledExport:
    """One export as the instance has it."""

    id: GlobalId
    since: Antichain
    upper: Antichain


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """What is installed; sent once after ``Hello`` was accepted. For cross-checks, status and explanations."""

    exports: tuple[InstalledExport, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontierChange:
    """How the upper of ``id`` changed since this session was last told; ``upper`` is the sum, as a cross-check."""

    id: GlobalId
    changes: ChangeBatch
    upper: Antichain


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontierUppers:
    """Uppers that rose. Each session starts with every frontier told as the minimum.

    The first word on an id is at or beyond the ``as_of`` requested in this term; uppers never go back, and after
    ``[]`` there is silence.
    """

    changes: tuple[FrontierChange, ...]


class PeekRefusal(StrEnum):
    """Why an instance cannot answer a peek."""

    UNKNOWN_COLLECTION = "unknown-collection"
    NOT_READABLE = "not-readable"
    DROPPED = "dropped"
    TARGET_GONE = "target-gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class PeekRows:
    """The rows, in whatever form the runtime made them."""

    rows: Hashable


@dataclass(frozen=True, slots=True, kw_only=True)
class PeekFailed:
    """Computing the answer failed with the user's error."""

    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PeekRefused:
    """The peek cannot be answered here."""

    refusal: PeekRefusal


@dataclass(frozen=True, slots=True, kw_only=True)
class PeekCanceled:
    """The peek was cancelled before it was answered."""


PeekOutcome = PeekRows | PeekFailed | PeekRefused | PeekCanceled


@dataclass(frozen=True, slots=True, kw_only=True)
class PeekResponse:
    """The one answer to a peek, in the session and term that sent it."""

    peek: PeekId
    outcome: PeekOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class TailResponse:
    """All changes of tail ``id`` from ``lower`` up to ``upper``; contiguous within a session."""

    id: GlobalId
    lower: Antichain
    upper: Antichain
    updates: Updates


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """An installed dataflow goes on as the requested one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replaced:
    """An installed dataflow was dropped for the requested one, for all these reasons."""

    reasons: tuple[Reason, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hydrating:
    """``done`` of ``total`` parts are up to date."""

    done: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The dataflow failed with the user's error and stays installed as failed."""

    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DataflowStatus:
    """How the dataflow with these exports fares."""

    exports: tuple[GlobalId, ...]
    status: Kept | Replaced | Hydrating | Failed


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """I am alive; ``sent_ms`` is the sender's own clock, returned unread."""

    sent_ms: int


ComputeResponse = Inventory | FrontierUppers | PeekResponse | TailResponse | DataflowStatus | Heartbeat
