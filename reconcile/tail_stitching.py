"""Tail stitching: makes one contiguous, disjoint stream of the batches that several copies send.

The told frontier F is where the reader stands. A batch [l, u) that reaches beyond F is passed on as [F, u) with
only the updates at or after F; one that begins after F waits until the gap is filled, whoever fills it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from reconcile.errors import InvariantBroken
from reconcile.frontiers import Antichain
from reconcile.updates import Updates


@dataclass(frozen=True, slots=True, kw_only=True)
class TailBatch:
    """All changes from ``lower`` up to ``upper``."""

    lower: Antichain
    upper: Antichain
    updates: Updates


@dataclass(slots=True)
class StitchedTail:
    """One tail as its reader sees it."""

    told: Antichain
    #: Batches that begin after ``told``, by lowest start, then arrival.
    held: list[TailBatch] = field(default_factory=list)

    def add(self, batch: TailBatch) -> Iterator[TailBatch]:
        """What can be passed on now, in order, each piece beginning where the last one ended."""
        if batch.lower > self.told:
            self._hold(batch)
            return
        yield from self._pass(batch)
        while self.held and self.held[0].lower <= self.told:
            yield from self._pass(self.held.pop(0))

    def _pass(self, batch: TailBatch) -> Iterator[TailBatch]:
        if batch.upper > self.told:
            lower, self.told = self.told, batch.upper
            yield TailBatch(lower=lower, upper=batch.upper, updates=batch.updates.not_before(lower))

    def _hold(self, batch: TailBatch) -> None:
        place = len(self.held)
        while place and self.held[place - 1].lower > batch.lower:
            place -= 1
        self.held.insert(place, batch)

    def check(self) -> None:
        if any(batch.lower <= self.told for batch in self.held):
            raise InvariantBroken(f"a batch is held that could be passed on at {self.told}")
        if any(after.lower < before.lower for before, after in zip(self.held, self.held[1:], strict=False)):
            raise InvariantBroken("held batches are not in order of their start")
