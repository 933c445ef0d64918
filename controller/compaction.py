"""Compaction: how far the since of each collection may move."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from reconcile.errors import InvariantBroken
from reconcile.frontiers import Antichain
from reconcile.ids import GlobalId, Step


class Holds:
    """Steps at which somebody reads a collection: its since may not pass the least of them."""

    def __init__(self) -> None:
        #: No count is 0, no counter empty.
        self._held: dict[GlobalId, Counter[Step]] = {}

    def acquire(self, id: GlobalId, step: Step) -> None:
        self._held.setdefault(id, Counter())[step] += 1

    def release(self, id: GlobalId, step: Step) -> None:
        held = self._held.get(id)
        if held is None or not held[step]:
            raise InvariantBroken(f"a hold on {id} at {step} is released that was not acquired")
        held[step] -= 1
        if not held[step]:
            del held[step]
        if not held:
            del self._held[id]

    def least(self, id: GlobalId) -> Step | None:
        held = self._held.get(id)
        return min(held) if held else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Compactable:
    """One collection; what reads it is created after it."""

    id: GlobalId
    since: Antichain
    upper: Antichain
    #: What its dataflow reads: each must stay readable where this one is.
    imports: tuple[GlobalId, ...] = ()


def allowed_sinces(
    collections: Iterable[Compactable], *, retained: Step, holds: Holds, pinned: Mapping[GlobalId, Step] | None = None
) -> Iterator[tuple[GlobalId, Antichain]]:
    """The sinces that may rise, readers before what they read.

    Each stays at or before ``retained``, its last complete step, every hold on it, and the since of all its
    readers: a replica that joins renders those anew, from there. ``collections`` come in order of creation.
    """
    limits: dict[GlobalId, Step] = dict(pinned or {})
    for collection in reversed(tuple(collections)):
        if collection.since.is_closed:
            continue
        bounds = [retained, limits.get(collection.id), holds.least(collection.id)]
        if collection.upper.step is not None:
            bounds.append(Step(max(collection.upper.step - 1, 0)))
        since = max(collection.since, Antichain(min(bound for bound in bounds if bound is not None)))
        for id in collection.imports:
            if since.step is not None:
                limits[id] = min(limits.get(id, since.step), since.step)
        if since > collection.since:
            yield collection.id, since
