"""Frontiers: the times still open, and the arithmetic of their changes.

Steps are totally ordered, so a frontier has at most one element. ``Antichain.at(7)`` says that 7 and everything
after it is open; ``CLOSED`` (written ``[]``) says that nothing is. Frontiers are ordered by how far they got, so
``CLOSED`` is the greatest: *join* is the one that is further, *meet* the one that lags.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Self

from reconcile.errors import InvariantBroken
from reconcile.ids import Step


@dataclass(frozen=True, slots=True)
class Antichain:
    """The set of times still open. ``step`` is its least element; ``None`` if it has none."""

    step: Step | None

    @classmethod
    def at(cls, step: int) -> Self:
        return cls(Step(step))

    @property
    def is_closed(self) -> bool:
        return self.step is None

    def is_open_at(self, step: Step) -> bool:
        """Whether ``step`` may still change (for an upper) or may be read (for a since)."""
        return self.step is not None and self.step <= step

    def elements(self) -> tuple[Step, ...]:
        return () if self.step is None else (self.step,)

    def __lt__(self, other: "Antichain") -> bool:
        return self.step is not None and (other.step is None or self.step < other.step)

    def __le__(self, other: "Antichain") -> bool:
        return other.step is None or (self.step is not None and self.step <= other.step)

    def __gt__(self, other: "Antichain") -> bool:
        return other.step is not None and (self.step is None or self.step > other.step)

    def __ge__(self, other: "Antichain") -> bool:
        return self.step is None or (other.step is not None and self.step >= other.step)

    def __str__(self) -> str:
        return "[]" if self.step is None else str(self.step)


MINIMUM = Antichain.at(0)
CLOSED = Antichain(None)


def join(frontiers: Iterable[Antichain]) -> Antichain:
    """The furthest of them: any one copy speaks for all. Of none: ``MINIMUM``."""
    return max(frontiers, default=MINIMUM)


def meet(frontiers: Iterable[Antichain]) -> Antichain:
    """The one that lags most: all parts must get there. Of none: ``CLOSED``."""
    return min(frontiers, default=CLOSED)


@dataclass(frozen=True, slots=True)
class ChangeBatch:
    """Changes of how often each time occurs in a frontier: ordered by time, none twice, none zero."""

    changes: tuple[tuple[Step, int], ...] = ()

    @classmethod
    def of(cls, changes: Iterable[tuple[Step, int]]) -> Self:
        """Sums the changes of each time and leaves out what cancels."""
        counts: dict[Step, int] = {}
        for step, change in changes:
            counts[step] = counts.get(step, 0) + change
        return cls(tuple((step, counts[step]) for step in sorted(counts) if counts[step] != 0))

    @classmethod
    def between(cls, old: Antichain, new: Antichain) -> Self:
        """The batch that takes a frontier counted once from ``old`` to ``new``."""
        if old == new:
            return cls()
        return cls.of([(step, -1) for step in old.elements()] + [(step, +1) for step in new.elements()])

    def __iter__(self) -> Iterator[tuple[Step, int]]:
        return iter(self.changes)

    def __bool__(self) -> bool:
        return bool(self.changes)


class CountedFrontier:
    """A frontier kept as a multiset of times: what several parts together have still open.

    Each part contributes its own element, so the least time with a count is the meet of the parts. Used for the
    partitions of one copy, and with a single part to sum the change batches of a session.
    """

    __slots__ = ("_counts", "_frontier")

    def __init__(self, start: Antichain = MINIMUM, parts: int = 1) -> None:
        #: Times with how many parts stand there; never zero or negative.
        self._counts: dict[Step, int] = {step: parts for step in start.elements() if parts}
        self._frontier = start if parts else CLOSED

    @property
    def frontier(self) -> Antichain:
        return self._frontier

    def update(self, batch: ChangeBatch) -> ChangeBatch:
        """Applies ``batch`` and returns the effective change of the frontier, empty if it stands still.

        Raises ``InvariantBroken``, with nothing changed, if a time would occur less than never.
        """
        counts = dict(self._counts)
        for step, change in batch:
            count = counts.get(step, 0) + change
            if count < 0:
                raise InvariantBroken(f"frontier at step {step} would be counted {count} times")
            if count:
                counts[step] = count
            else:
                counts.pop(step, None)
        old, new = self._frontier, Antichain(min(counts, default=None))
        self._counts, self._frontier = counts, new
        return ChangeBatch.between(old, new)

    def check(self) -> None:
        if any(count <= 0 for count in self._counts.values()):
            raise InvariantBroken(f"a count is not positive: {self._counts}")
        if self._frontier != Antichain(min(self._counts, default=None)):
            raise InvariantBroken(f"frontier {self._frontier} is not the least of {self._counts}")
