"""The merge of partitions: the parts of one copy speak as one.

Each part holds some of the keys, so all of them must get there: frontiers are met, an answer is complete when
every part has given its rows, and a tail advances with the part that lags most. (Whole copies are merged by
``merge``: there frontiers are joined.)
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import assert_never

from reconcile.compute_protocol import PeekFailed, PeekRows
from reconcile.errors import InvariantBroken
from reconcile.frontiers import MINIMUM, Antichain, ChangeBatch, CountedFrontier
from reconcile.ids import GlobalId, PeekId
from reconcile.merge import AnswerHeard, FrontierHeard, TailHeard
from reconcile.updates import Update, UpdateList


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSaid:
    """``said`` came from this part, numbered from 0. Tail updates are plain lists."""

    partition: int
    said: FrontierHeard | AnswerHeard | TailHeard


@dataclass(slots=True)
class _MetFrontier:
    counted: CountedFrontier
    uppers: list[Antichain]

    def advance(self, partition: int, upper: Antichain) -> bool:
        """Whether the meet of all parts rose."""
        before = self.uppers[partition]
        if not upper > before:
            return False
        self.uppers[partition] = upper
        return bool(self.counted.update(ChangeBatch.between(before, upper)))


@dataclass(slots=True)
class _PartialTail:
    progress: _MetFrontier
    told: Antichain
    #: Updates that not every part has passed yet, in order of arrival.
    updates: list[Update] = field(default_factory=list)


class PartitionMerge:
    """The unified state of the parts of one replica; what it says is what one replica says."""

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions
        self._uppers: dict[GlobalId, _MetFrontier] = {}
        self._tails: dict[GlobalId, _PartialTail] = {}
        #: The rows of each peek by partition, until all have come.
        self._peeks: dict[PeekId, dict[int, PeekRows]] = {}

    def handle(self, event: PartitionSaid) -> tuple[FrontierHeard | AnswerHeard | TailHeard, ...]:
        return tuple(self._merged(event.partition, event.said))

    def follow_tail(self, id: GlobalId, as_of: Antichain) -> None:
        """A reader follows ``id`` from ``as_of`` on."""
        self._tails[id] = _PartialTail(progress=self._met(as_of), told=as_of)

    def start_peek(self, peek: PeekId) -> None:
        """Every part was asked."""
        self._peeks[peek] = {}

    def cancel_peek(self, peek: PeekId) -> None:
        self._peeks.pop(peek, None)

    def drop(self, id: GlobalId) -> None:
        self._uppers.pop(id, None)
        self._tails.pop(id, None)

    def check(self) -> None:
        for tail in self._tails.values():
            tail.progress.counted.check()
            if tail.told != tail.progress.counted.frontier:
                raise InvariantBroken(f"a tail stands at {tail.progress.counted.frontier}, told was {tail.told}")
        for met in self._uppers.values():
            met.counted.check()
            if met.counted.frontier != min(met.uppers):
                raise InvariantBroken(f"the meet of {met.uppers} is not {met.counted.frontier}")
        if any(len(parts) >= self._partitions for parts in self._peeks.values()):
            raise InvariantBroken("a peek waits that every part has answered")

    def _merged(
        self, partition: int, said: FrontierHeard | AnswerHeard | TailHeard
    ) -> Iterator[FrontierHeard | AnswerHeard | TailHeard]:
        match said:
            case FrontierHeard(id=id, upper=upper):
                if id not in self._uppers:
                    self._uppers[id] = self._met(MINIMUM)
                met = self._uppers[id]
                if met.advance(partition, upper):
                    yield FrontierHeard(id=id, upper=met.counted.frontier)
            case AnswerHeard():
                yield from self._answer(partition, said)
            case TailHeard(id=id):
                if id in self._tails:
                    yield from self._tail(partition, said, self._tails[id])
            case _:
                assert_never(said)

    def _answer(self, partition: int, said: AnswerHeard) -> Iterator[AnswerHeard]:
        """The rows of all parts together; one failure fails the whole."""
        parts = self._peeks.get(said.peek)
        if parts is None:
            return
        if isinstance(said.outcome, PeekFailed):
            del self._peeks[said.peek]
            yield said
            return
        parts[partition] = said.outcome
        if len(parts) == self._partitions:
            del self._peeks[said.peek]
            yield AnswerHeard(peek=said.peek, outcome=PeekRows(rows=_united(parts)))

    def _tail(self, partition: int, said: TailHeard, tail: _PartialTail) -> Iterator[TailHeard]:
        fresh = said.updates.not_before(tail.progress.uppers[partition])
        if not isinstance(fresh, UpdateList):
            raise InvariantBroken(f"the updates of tail {said.id} are not a plain list: {type(fresh)}")
        tail.updates.extend(fresh.updates)
        if tail.progress.advance(partition, said.upper):
            lower, tail.told = tail.told, tail.progress.counted.frontier
            done = [update for update in tail.updates if not tail.told.is_open_at(update.step)]
            tail.updates = [update for update in tail.updates if tail.told.is_open_at(update.step)]
            done.sort(key=lambda update: update.step)
            yield TailHeard(id=said.id, lower=lower, upper=tail.told, updates=UpdateList(tuple(done)))

    def _met(self, start: Antichain) -> _MetFrontier:
        return _MetFrontier(CountedFrontier(start, self._partitions), [start] * self._partitions)


def _united(parts: dict[int, PeekRows]) -> tuple[object, ...]:
    """The rows of all parts, in order of partition."""
    rows: list[object] = []
    for partition in sorted(parts):
        part = parts[partition].rows
        rows.extend(part if isinstance(part, Sequence) and not isinstance(part, str | bytes) else [part])
    return tuple(rows)
