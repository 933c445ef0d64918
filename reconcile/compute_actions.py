"""What the compute reconciler is told, and what it asks of its shell beyond the actions common to all."""

from dataclasses import dataclass

from reconcile.actions import Accept, EndSession, PersistEpoch, Refuse, Reply
from reconcile.compute_protocol import (
    ComputeCommand,
    ComputeResponse,
    Configuration,
    Hello,
    PeekFailed,
    PeekRows,
)
from reconcile.dataflow import DataflowDescription
from reconcile.frontiers import Antichain
from reconcile.ids import GlobalId, PeekId, SessionId, Step
from reconcile.plan_tree import PlanValue
from reconcile.updates import Updates

# --- events -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOpened:
    """A controller said hello."""

    hello: Hello


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionClosed:
    """The stream of a session ended."""

    session: SessionId


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandReceived:
    """A controller sent a command; ``None`` is a stream that has not said hello."""

    session: SessionId | None
    command: ComputeCommand


@dataclass(frozen=True, slots=True, kw_only=True)
class UpperReported:
    """The runtime has made ``id`` final below ``upper``."""

    id: GlobalId
    upper: Antichain


@dataclass(frozen=True, slots=True, kw_only=True)
class PeekFinished:
    """The runtime has an answer; never after the peek's ``StopPeek``."""

    peek: PeekId
    outcome: PeekRows | PeekFailed


@dataclass(frozen=True, slots=True, kw_only=True)
class TailAdvanced:
    """The runtime has all changes of tail ``id`` from ``lower`` up to ``upper``."""

    id: GlobalId
    lower: Antichain
    upper: Antichain
    updates: Updates


@dataclass(frozen=True, slots=True, kw_only=True)
class DataflowFailed:
    """The dataflow with export ``id`` cannot go on: a function raised, a cast overflowed."""

    id: GlobalId
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DataflowHydrating:
    """``done`` of ``total`` parts of the dataflow with export ``id`` are up to date."""

    id: GlobalId
    done: int
    total: int


RuntimeEvent = UpperReported | PeekFinished | TailAdvanced | DataflowFailed | DataflowHydrating
ComputeEvent = SessionOpened | SessionClosed | CommandReceived | RuntimeEvent

# --- actions ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Render:
    """Start the dataflow; its outputs must be right from ``description.as_of`` on."""

    description: DataflowDescription


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop:
    """Stop the dataflow that was created with these exports and free what it holds."""

    exports: tuple[GlobalId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compact:
    """History of ``id`` before ``since`` may go; ``[]`` frees the export while its dataflow runs on."""

    id: GlobalId
    since: Antichain


@dataclass(frozen=True, slots=True, kw_only=True)
class SetWritable:
    """The materialized view ``id`` may, or may no longer, write to its shard."""

    id: GlobalId
    writable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StartPeek:
    """Read ``id`` at step ``at`` once that is final."""

    peek: PeekId
    id: GlobalId
    at: Step
    finishing: PlanValue = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StopPeek:
    """The answer is no longer wanted."""

    peek: PeekId


@dataclass(frozen=True, slots=True, kw_only=True)
class Configure:
    """These parameters hold from now on."""

    configuration: Configuration


@dataclass(frozen=True, slots=True, kw_only=True)
class SetLogging:
    """Offer this instance's own logs under exactly these ids."""

    ids: tuple[GlobalId, ...]


ComputeAction = (
    PersistEpoch
    | Accept
    | Refuse
    | EndSession
    | Reply[ComputeResponse]
    | Render
    | Drop
    | Compact
    | SetWritable
    | StartPeek
    | StopPeek
    | Configure
    | SetLogging
)
