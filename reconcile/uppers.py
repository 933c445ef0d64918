"""Uppers: how far each collection got, and what the other side has been told of it.

The controller believes at the start of every term that every frontier is at the minimum. What it is told since
then is a sequence of change batches whose sum is the truth: ``UpperTeller`` is the instance's side of it,
``UpperListener`` the controller's.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from reconcile.compute_protocol import FrontierChange, FrontierUppers
from reconcile.errors import InvariantBroken, ProtocolViolation, Violation
from reconcile.frontiers import CLOSED, MINIMUM, Antichain, ChangeBatch, CountedFrontier
from reconcile.ids import GlobalId


@dataclass(slots=True)
class _Progress:
    """The upper of one collection, and how much of it was told in this term, from ``as_of`` on."""

    as_of: Antichain
    upper: Antichain = MINIMUM
    told: Antichain = MINIMUM


class UpperTeller:
    """The uppers of what an instance runs. Knows all and only collections that are installed and not closed."""

    __slots__ = ("_progress",)

    def __init__(self) -> None:
        self._progress: dict[GlobalId, _Progress] = {}

    def __contains__(self, id: GlobalId) -> bool:
        return id in self._progress

    def __iter__(self) -> Iterator[GlobalId]:
        return iter(self._progress)

    def upper(self, id: GlobalId) -> Antichain:
        return self._progress[id].upper

    def install(self, id: GlobalId, as_of: Antichain = MINIMUM) -> None:
        self._progress[id] = _Progress(as_of)

    def remove(self, id: GlobalId) -> None:
        """Forgets ``id`` without a word."""
        self._progress.pop(id, None)

    def close(self, id: GlobalId) -> FrontierChange | None:
        """Forgets ``id``; returns the final word on it, unless that was said already."""
        progress = self._progress.pop(id)
        return _change(id, progress.told, CLOSED) if progress.told < CLOSED else None

    def begin_term(self, as_ofs: Mapping[GlobalId, Antichain]) -> None:
        """From now on nothing has been told; what is told of each id begins at its ``as_of``."""
        for id, progress in self._progress.items():
            progress.as_of = as_ofs.get(id, MINIMUM)
            progress.told = MINIMUM

    def rise(self, id: GlobalId, upper: Antichain) -> bool:
        """Takes in an upper from the runtime; whether it is news."""
        progress = self._progress.get(id)
        if progress is None or not upper > progress.upper:
            return False
        progress.upper = upper
        return True

    def untold(self, id: GlobalId) -> FrontierChange | None:
        """What there is to tell of ``id`` now; counts as told."""
        progress = self._progress[id]
        if progress.upper < progress.as_of or not progress.upper > progress.told:
            return None
        change = _change(id, progress.told, progress.upper)
        progress.told = progress.upper
        return change

    def check(self) -> None:
        for id, progress in self._progress.items():
            if progress.told > progress.upper:
                raise InvariantBroken(f"{id} was told to be at {progress.told} but is at {progress.upper}")
            if MINIMUM < progress.told < progress.as_of:
                raise InvariantBroken(f"{id} was told to be at {progress.told}, before as_of {progress.as_of}")


class UpperListener:
    """The uppers one session has told. Starts with every frontier at the minimum."""

    __slots__ = ("_frontiers",)

    def __init__(self) -> None:
        self._frontiers: dict[GlobalId, CountedFrontier] = {}

    def hear(self, response: FrontierUppers) -> Iterable[tuple[GlobalId, Antichain]]:
        """The uppers that ``response`` leads to; raises if its sums are wrong or go back."""
        heard = []
        for change in response.changes:
            frontier = self._frontiers.setdefault(change.id, CountedFrontier())
            before = frontier.frontier
            try:
                frontier.update(change.changes)
            except InvariantBroken as broken:
                raise ProtocolViolation(Violation.FRONTIER_MISMATCH, detail=str(broken)) from broken
            if frontier.frontier != change.upper or change.upper < before:
                detail = f"{change.id} went from {before} to {frontier.frontier}, said to be {change.upper}"
                raise ProtocolViolation(Violation.FRONTIER_MISMATCH, detail=detail)
            heard.append((change.id, change.upper))
        return heard

    def forget(self, id: GlobalId) -> None:
        self._frontiers.pop(id, None)


def _change(id: GlobalId, old: Antichain, new: Antichain) -> FrontierChange:
    return FrontierChange(id=id, changes=ChangeBatch.between(old, new), upper=new)
