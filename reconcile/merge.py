"""The merge of replicas: many copies answer, one voice is heard.

Frontiers are joined, because a copy that is ahead speaks for all. The first rows win a peek, and an error counts
only when every live replica has failed it. Tails are stitched. What an earlier incarnation of a replica says has
no effect. (Partitions of *one* copy are merged by ``partitions``: there frontiers are met.)
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import assert_never

from reconcile.compute_protocol import (
    PeekCanceled,
    PeekFailed,
    PeekOutcome,
    PeekRefusal,
    PeekRefused,
    PeekResponse,
    PeekRows,
    TailResponse,
)
from reconcile.errors import InvariantBroken
from reconcile.frontiers import MINIMUM, Antichain
from reconcile.ids import GlobalId, Incarnation, PeekId, ReplicaId
from reconcile.limits import TAIL_HELD_BATCHES_MAX
from reconcile.tail_stitching import StitchedTail, TailBatch
from reconcile.updates import Updates

# --- events -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaJoined:
    """A replica was added; it is in its next incarnation."""

    replica: ReplicaId


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaLeft:
    """A replica was removed."""

    replica: ReplicaId


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaRestarted:
    """A replica is in its next incarnation, its state unknown."""

    replica: ReplicaId


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectionCreated:
    """A collection is maintained from ``as_of`` on."""

    id: GlobalId
    as_of: Antichain


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectionDropped:
    """A collection or tail is no longer of interest; peeks that run on it are."""

    id: GlobalId


@dataclass(frozen=True, slots=True, kw_only=True)
class PeekRequested:
    """A peek was sent to all replicas, or to ``target`` alone."""

    peek: PeekId
    target: ReplicaId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PeekCancelRequested:
    """The answer to a peek is no longer wanted."""

    peek: PeekId


@dataclass(frozen=True, slots=True, kw_only=True)
class TailRequested:
    """A reader follows ``id`` from ``as_of`` on."""

    id: GlobalId
    as_of: Antichain


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontierHeard:
    """A replica has made ``id`` final below ``upper``."""

    id: GlobalId
    upper: Antichain


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerHeard:
    """A replica answered a peek."""

    peek: PeekId
    outcome: PeekRows | PeekFailed


@dataclass(frozen=True, slots=True, kw_only=True)
class TailHeard:
    """A replica sent a batch of a tail."""

    id: GlobalId
    lower: Antichain
    upper: Antichain
    updates: Updates


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSaid:
    """``said`` came from this incarnation of ``replica``."""

    replica: ReplicaId
    incarnation: Incarnation
    said: FrontierHeard | AnswerHeard | TailHeard


MergeEvent = (
    ReplicaSaid
    | ReplicaJoined
    | ReplicaLeft
    | ReplicaRestarted
    | CollectionCreated
    | CollectionDropped
    | PeekRequested
    | PeekCancelRequested
    | TailRequested
)

# --- actions ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontierTold:
    """The unified upper of ``id`` rose."""

    id: GlobalId
    before: Antichain
    upper: Antichain


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelOn:
    """These replicas still work on a peek that has been answered or cancelled."""

    peek: PeekId
    replicas: tuple[ReplicaId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistrust:
    """End the session of a replica that sends what no right replica sends; reconciliation starts it afresh."""

    replica: ReplicaId
    why: str


MergeAction = FrontierTold | PeekResponse | CancelOn | TailResponse | Mistrust
Merged = Iterator[MergeAction]


@dataclass(slots=True)
class _Collection:
    as_of: Antichain
    told: Antichain = MINIMUM


@dataclass(slots=True)
class _RunningPeek:
    target: ReplicaId | None
    #: Live replicas that have failed it in their current incarnation.
    failed: set[ReplicaId] = field(default_factory=set)
    last_failure: PeekFailed | None = None


class ReplicaMerge:
    """The unified state of one cluster's replicas."""

    def __init__(self) -> None:
        #: The current incarnation of each live replica.
        self._live: dict[ReplicaId, Incarnation] = {}
        #: The last incarnation of each replica that ever was.
        self._incarnations: dict[ReplicaId, Incarnation] = {}
        self._collections: dict[GlobalId, _Collection] = {}
        self._tails: dict[GlobalId, StitchedTail] = {}
        #: Peeks without an answer, in order.
        self._peeks: dict[PeekId, _RunningPeek] = {}

    def handle(self, event: MergeEvent) -> tuple[MergeAction, ...]:
        return tuple(self._merged(event))

    def incarnation(self, replica: ReplicaId) -> Incarnation | None:
        """The current incarnation of a live replica."""
        return self._live.get(replica)

    def upper(self, id: GlobalId) -> Antichain | None:
        """The unified upper of a collection, as told."""
        collection = self._collections.get(id)
        return None if collection is None else collection.told

    def check(self) -> None:
        for id, collection in self._collections.items():
            if MINIMUM < collection.told < collection.as_of:
                raise InvariantBroken(f"{id} was told at {collection.told}, before as_of {collection.as_of}")
        for tail in self._tails.values():
            tail.check()
        for peek, running in self._peeks.items():
            if not running.failed <= self._live.keys():
                raise InvariantBroken(f"peek {peek} was failed by replicas that are gone: {running.failed}")
            if self._live and not self._working(running):
                raise InvariantBroken(f"peek {peek} waits and nobody works on it")
        if any(self._incarnations[replica] != incarnation for replica, incarnation in self._live.items()):
            raise InvariantBroken("a live replica is not in its last incarnation")

    def _merged(self, event: MergeEvent) -> Merged:
        match event:
            case ReplicaSaid(replica=replica, incarnation=incarnation, said=said):
                if self._live.get(replica) == incarnation:
                    yield from self._hear(replica, said)
            case ReplicaJoined(replica=replica):
                if replica not in self._live:
                    self._begin_incarnation(replica)
            case ReplicaLeft(replica=replica):
                if self._live.pop(replica, None) is not None:
                    yield from self._lose(replica)
            case ReplicaRestarted(replica=replica):
                if replica in self._live:
                    self._begin_incarnation(replica)
                    yield from self._lose(replica)
            case CollectionCreated(id=id, as_of=as_of):
                self._collections.setdefault(id, _Collection(as_of))
            case CollectionDropped(id=id):
                self._collections.pop(id, None)
                self._tails.pop(id, None)
            case PeekRequested(peek=peek, target=target):
                if target is not None and target not in self._live:
                    yield _refused(peek)
                else:
                    self._peeks.setdefault(peek, _RunningPeek(target))
            case PeekCancelRequested(peek=peek):
                yield from self._finish(peek, PeekCanceled())
            case TailRequested(id=id, as_of=as_of):
                self._tails.setdefault(id, StitchedTail(as_of))
            case _:
                assert_never(event)

    def _hear(self, replica: ReplicaId, said: FrontierHeard | AnswerHeard | TailHeard) -> Merged:
        match said:
            case FrontierHeard(id=id, upper=upper):
                collection = self._collections.get(id)
                if collection is not None and upper > collection.told and upper >= collection.as_of:
                    before, collection.told = collection.told, upper
                    yield FrontierTold(id=id, before=before, upper=upper)
            case AnswerHeard(peek=peek, outcome=outcome):
                yield from self._answer(replica, peek, outcome)
            case TailHeard(id=id, lower=lower, upper=upper, updates=updates):
                tail = self._tails.get(id)
                if tail is None:
                    return
                if len(tail.held) >= TAIL_HELD_BATCHES_MAX and lower > tail.told:
                    yield Mistrust(replica=replica, why=f"tail {id} waits for a gap at {tail.told}")
                    return
                for piece in tail.add(TailBatch(lower=lower, upper=upper, updates=updates)):
                    yield TailResponse(id=id, lower=piece.lower, upper=piece.upper, updates=piece.updates)
            case _:
                assert_never(said)

    # --- peeks --------------------------------------------------------------------------------------------

    def _answer(self, replica: ReplicaId, id: PeekId, outcome: PeekRows | PeekFailed) -> Merged:
        peek = self._peeks.get(id)
        if peek is None or replica not in self._working(peek):
            return
        peek.failed.add(replica)  # either way it no longer works on it
        if isinstance(outcome, PeekRows):
            yield from self._finish(id, outcome)
        else:
            peek.last_failure = outcome
            yield from self._give_up(id, peek)

    def _give_up(self, id: PeekId, peek: _RunningPeek) -> Merged:
        """Passes the last error on if nobody is left who could do better."""
        if self._live and not self._working(peek) and peek.last_failure is not None:
            yield from self._finish(id, peek.last_failure)

    def _finish(self, id: PeekId, outcome: PeekOutcome) -> Merged:
        peek = self._peeks.pop(id, None)
        if peek is not None:
            yield PeekResponse(peek=id, outcome=outcome)
            working = self._working(peek)
            if working:
                yield CancelOn(peek=id, replicas=tuple(sorted(working)))

    def _working(self, peek: _RunningPeek) -> list[ReplicaId]:
        """The live replicas from which an answer can still come."""
        if peek.target is not None:
            return [] if peek.target in peek.failed else [peek.target]
        return [replica for replica in self._live if replica not in peek.failed]

    # --- replicas -----------------------------------------------------------------------------------------

    def _begin_incarnation(self, replica: ReplicaId) -> None:
        self._incarnations[replica] = Incarnation(self._incarnations.get(replica, 0) + 1)
        self._live[replica] = self._incarnations[replica]

    def _lose(self, replica: ReplicaId) -> Merged:
        """The incarnation that was is gone, and its answers with it."""
        for id, peek in tuple(self._peeks.items()):
            peek.failed.discard(replica)
            if peek.target == replica:
                del self._peeks[id]
                yield _refused(id)
            elif peek.target is None:
                yield from self._give_up(id, peek)


def _refused(peek: PeekId) -> PeekResponse:
    return PeekResponse(peek=peek, outcome=PeekRefused(refusal=PeekRefusal.TARGET_GONE))
