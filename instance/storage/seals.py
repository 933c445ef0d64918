"""Seals: how far tables are complete beyond what their shards say."""

from dataclasses import dataclass, field

from reconcile.frontiers import MINIMUM, Antichain
from reconcile.storage_protocol import TableSeal

#: Seals of one table that wait for its shard; the furthest are kept, and each later one says more.
_WAITING_MAX = 16


@dataclass(slots=True)
class Seals:
    """What was said of one table. A seal is true for ever, so one that waits is no worse for a later one."""

    #: The furthest of the seals whose ``durable`` the shard has reached.
    reached: Antichain = MINIMUM
    #: Those whose ``durable`` it has not, ordered by it; later ones also have a later ``upper``.
    waiting: list[TableSeal] = field(default_factory=list)

    def note(self, seal: TableSeal) -> None:
        if not seal.upper > self.reached:
            return
        kept = [other for other in self.waiting if other.durable < seal.durable or other.upper > seal.upper]
        if not any(other.durable <= seal.durable and other.upper >= seal.upper for other in kept):
            kept.append(seal)
        self.waiting = sorted(kept, key=lambda one: (one.durable, one.upper))[-_WAITING_MAX:]

    def complete(self, upper: Antichain) -> Antichain:
        """How far the table is complete for whoever has its shard through ``upper``, which never goes back."""
        while self.waiting and self.waiting[0].durable <= upper:
            self.reached = max(self.reached, self.waiting.pop(0).upper)
        return max(upper, self.reached)
