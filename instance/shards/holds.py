"""Holds: the promises of this process's readers, which no since of its shards passes."""

import asyncio

from reconcile.errors import InvariantBroken
from reconcile.frontiers import MINIMUM, Antichain, meet
from reconcile.ids import GlobalId


class Hold:
    """One reader's hold on one shard; it may only rise, and ends with ``release``."""

    def __init__(self, holds: "Holds", id: GlobalId, at: Antichain) -> None:
        self._holds = holds
        self._at = at
        self.id = id

    @property
    def at(self) -> Antichain:
        return self._at

    def advance(self, to: Antichain) -> None:
        if to < self._at:
            raise InvariantBroken(f"a hold on {self.id} would go back from {self._at} to {to}")
        self._at = to

    def release(self) -> None:
        """Once or more often."""
        self._holds.forget(self)


class Holds:
    """All holds of a store, and what sinces are wanted meanwhile."""

    def __init__(self) -> None:
        self._held: dict[GlobalId, set[Hold]] = {}
        self._wanted: dict[GlobalId, Antichain] = {}
        self._turns: dict[GlobalId, asyncio.Lock] = {}

    def turn(self, id: GlobalId) -> asyncio.Lock:
        """For whoever moves the since, and for whoever begins to hold: neither may come between the other's steps."""
        return self._turns.setdefault(id, asyncio.Lock())

    def begin(self, id: GlobalId, at: Antichain) -> Hold:
        """In its turn; whoever begins looks at the since afterwards."""
        hold = Hold(self, id, at)
        self._held.setdefault(id, set()).add(hold)
        return hold

    def forget(self, hold: Hold) -> None:
        held = self._held.get(hold.id, set())
        held.discard(hold)
        if not held:
            self._held.pop(hold.id, None)

    def want(self, id: GlobalId, since: Antichain) -> None:
        """Remembered until the holds let it come true."""
        self._wanted[id] = max(since, self.wanted(id))

    def wanted(self, id: GlobalId) -> Antichain:
        return self._wanted.get(id, MINIMUM)

    def allowed(self, id: GlobalId) -> Antichain:
        """As far as the since may go now: what is wanted, up to the least hold."""
        return min(self.wanted(id), meet(hold.at for hold in self._held.get(id, ())))
