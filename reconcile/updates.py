"""Timed updates: rows with the step and the difference they make."""

from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Protocol, Self

from reconcile.frontiers import Antichain
from reconcile.ids import Step


class Updates(Protocol):
    """A batch of updates of which the core asks only when they happen.

    The rows stay opaque, so that a batch of Arrow data passes through the same machines as a short list.
    """

    def __len__(self) -> int: ...

    def not_before(self, frontier: Antichain) -> Self:
        """Those at or after ``frontier``, in the same order; the batch itself if that is all of it."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """``row`` occurs ``diff`` times more from ``step`` on."""

    step: Step
    row: Hashable
    diff: int = 1


@dataclass(frozen=True, slots=True)
class UpdateList:
    """The plain batch of updates."""

    updates: tuple[Update, ...] = ()

    def __len__(self) -> int:
        return len(self.updates)

    def not_before(self, frontier: Antichain) -> "UpdateList":
        if all(frontier.is_open_at(update.step) for update in self.updates):
            return self
        return UpdateList(tuple(update for update in self.updates if frontier.is_open_at(update.step)))


def snapshot_changes(*, wanted: Iterable[Hashable], held: Iterable[Hashable], step: Step) -> UpdateList:
    """What must happen at ``step`` so that a collection that holds ``held`` holds ``wanted``.

    Both are multisets. Applying the result and asking again gives no change, which is what makes sending a
    snapshot twice harmless. Retractions come first; each part is in order of first appearance.
    """
    surplus = Counter(held)
    surplus.subtract(Counter(wanted))
    changes = [Update(step=step, row=row, diff=-count) for row, count in surplus.items() if count]
    return UpdateList(tuple(sorted(changes, key=lambda change: change.diff > 0)))
