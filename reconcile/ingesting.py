"""What a storage instance runs: its sources, with their sinces, uppers and appends under way.

Knows nothing of sessions, as ``installed`` does not. Each operation changes the state and yields its effects.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from reconcile.compute_protocol import FrontierUppers
from reconcile.errors import InvariantBroken
from reconcile.frontiers import MINIMUM, Antichain
from reconcile.ids import GlobalId, Step
from reconcile.sources import SourceDescription, differing_fields
from reconcile.storage_actions import (
    AlterSource,
    CompactShard,
    NoteSeals,
    ReadContents,
    RunSource,
    StopSource,
    StorageEffect,
    Write,
)
from reconcile.storage_protocol import (
    Append,
    AppendResult,
    AppendSnapshot,
    SourceAltered,
    SourceFailed,
    SourceKept,
    SourceRefused,
    SourceRunning,
    SourceSealed,
    SourceStatus,
    StepReport,
    TableSeal,
)
from reconcile.updates import UpdateList, Updates, snapshot_changes
from reconcile.uppers import UpperTeller

StorageEffects = Iterator[StorageEffect]


@dataclass(slots=True, kw_only=True)
class RequestedSource:
    """One source as a term asks for it."""

    description: SourceDescription
    since: Antichain = MINIMUM


@dataclass(slots=True, kw_only=True)
class _RunningSource:
    """One source with a RunSource and no StopSource."""

    description: SourceDescription
    since: Antichain = MINIMUM
    #: The greatest of reported uppers and uppers of appends already written; what lies below is not accepted.
    accepted: Antichain = MINIMUM
    #: Appends that wait, in order, each with the term that sent it; the first is a snapshot whose contents are
    #: being read.
    waiting: list[tuple[int, Append | AppendSnapshot]] = field(default_factory=list)
    #: The writes under way with each token, in order: one of an earlier term may still come before ours. Each has
    #: its term and the result to send when it is durable. No list is empty.
    writing: dict[str, list[tuple[int, AppendResult]]] = field(default_factory=dict)
    #: Whether it ended by itself; the next term that asks for it starts it again.
    ended: bool = False
    #: What was last said of it, said again in every term: how far it is cut, what waits to be, and how it fares.
    seal: TableSeal | None = None
    received: StepReport | None = None
    fares: SourceFailed | SourceRunning | None = None


class Ingesting:
    """The running state of one storage instance."""

    def __init__(self) -> None:
        #: In order of their start; keeping or altering one does not change its place.
        self._sources: dict[GlobalId, _RunningSource] = {}
        #: Sources that the current term asked for with another definition; they run on as if unasked for.
        self._refused: set[GlobalId] = set()
        #: Counts reconciliations: what an earlier term asked for is done and not answered.
        self._term = 0
        self._uppers = UpperTeller()

    def __contains__(self, id: GlobalId) -> bool:
        return id in self._sources

    def snapshot(self) -> tuple[tuple[SourceDescription, Antichain, Antichain], ...]:
        """Description, since and upper of each source, oldest first."""
        return tuple((s.description, s.since, self._uppers.upper(id)) for id, s in self._sources.items())

    def check(self) -> None:
        self._uppers.check()
        if sorted(self._uppers) != sorted(self._sources):
            raise InvariantBroken(f"uppers are kept of {sorted(self._uppers)}, running are {sorted(self._sources)}")
        if not self._refused <= self._sources.keys():
            raise InvariantBroken(f"a source is refused that does not run: {sorted(self._refused)}")
        for id, source in self._sources.items():
            if source.accepted < self._uppers.upper(id):
                raise InvariantBroken(f"{id} accepts appends from {source.accepted}, below its upper")
            if source.waiting and not isinstance(source.waiting[0][1], AppendSnapshot):
                raise InvariantBroken(f"an append to {id} waits for nothing")
            if not all(source.writing.values()):
                raise InvariantBroken(f"a token of {id} is remembered of which nothing is written")

    # --- sources ------------------------------------------------------------------------------------------

    def run(self, description: SourceDescription, since: Antichain = MINIMUM) -> StorageEffects:
        self._sources[description.id] = _RunningSource(description=description)
        self._uppers.install(description.id)
        yield RunSource(source=description)
        yield from self.compact(description.id, since)

    def compact(self, id: GlobalId, since: Antichain) -> StorageEffects:
        """Moves a since up; ``[]`` stops the source and says the final word on it."""
        source = self._answerable(id)
        if source is None or not since > source.since:
            return
        if not since.is_closed:
            source.since = since
            yield CompactShard(id=id, since=since)
            return
        del self._sources[id]
        yield StopSource(id=id)
        change = self._uppers.close(id)
        if change is not None:
            yield FrontierUppers(changes=(change,))

    def reconcile(
        self, requested: Mapping[GlobalId, RequestedSource], appends: Iterable[Append | AppendSnapshot]
    ) -> StorageEffects:
        """Makes this state the requested one, at the start of a term in which nothing has been told."""
        self._term += 1
        self._refused.clear()
        yield from self._verdicts(requested)
        for id in [id for id in reversed(self._sources) if id not in requested]:
            del self._sources[id]
            self._uppers.remove(id)
            yield StopSource(id=id)
        kept = [id for id in requested if self._answerable(id) is not None]
        for id in kept:
            yield from _running(self._sources[id])
            yield from self.compact(id, requested[id].since)
        for id, wanted in requested.items():
            if id not in self._sources:
                yield from self.run(wanted.description, wanted.since)
        self._uppers.begin_term({})
        for append in appends:
            yield from self.append(append)
        changes = [change for id in kept if (change := self._uppers.untold(id)) is not None]
        if changes:
            yield FrontierUppers(changes=tuple(changes))
        for id in kept:
            yield from _said_before(self._sources[id])

    def _verdicts(self, requested: Mapping[GlobalId, RequestedSource]) -> StorageEffects:
        for id, wanted in requested.items():
            source = self._sources.get(id)
            if source is not None:
                yield from self._verdict(source, wanted.description)

    def alter(self, wanted: SourceDescription) -> StorageEffects:
        """Gives a running source another definition, within its term."""
        source = self._answerable(wanted.id)
        if source is not None:
            yield from self._verdict(source, wanted)

    def _verdict(self, source: _RunningSource, wanted: SourceDescription) -> StorageEffects:
        fields = differing_fields(source.description, wanted)
        if not fields:
            yield SourceStatus(id=wanted.id, status=SourceKept())
            if wanted.writer_epoch != source.description.writer_epoch:
                source.description = wanted
                yield AlterSource(source=wanted)
        elif all(name in wanted.alterable for name in fields):
            source.description = wanted
            yield SourceStatus(id=wanted.id, status=SourceAltered(fields=fields))
            yield AlterSource(source=wanted)
        else:
            self._refused.add(wanted.id)
            yield SourceStatus(id=wanted.id, status=SourceRefused(fields=fields))

    # --- appends ------------------------------------------------------------------------------------------

    def append(self, append: Append | AppendSnapshot) -> StorageEffects:
        """Writes what is not below the accepted upper, after the appends before it."""
        source = self._answerable(append.id)
        if source is not None:
            yield from self._append(source, append, self._term)

    def _append(self, source: _RunningSource, append: Append | AppendSnapshot, term: int) -> StorageEffects:
        if source.waiting:
            source.waiting.append((term, append))
        elif isinstance(append, AppendSnapshot) and append.upper > source.accepted:
            source.waiting.append((term, append))
            yield ReadContents(id=append.id)
        else:
            updates: Updates = append.updates if isinstance(append, Append) else UpdateList()
            yield from self._write(source, append, updates, term)

    def contents_read(self, id: GlobalId, rows: tuple[object, ...]) -> StorageEffects:
        """Writes the difference that a waiting snapshot makes, then what waited behind it."""
        source = self._sources.get(id)
        if source is None or not source.waiting:
            return
        (term, first), *rest = source.waiting
        source.waiting = []
        if isinstance(first, AppendSnapshot):
            changes = snapshot_changes(wanted=first.rows, held=rows, step=_last_step(first.upper, source.accepted))
            yield from self._write(source, first, changes, term)
        for term, append in rest:
            yield from self._append(source, append, term)

    def append_durable(self, id: GlobalId, token: str) -> StorageEffects:
        source = self._sources.get(id)
        if source is None or token not in source.writing:
            return
        (term, result), *later = source.writing.pop(token)
        if later:
            source.writing[token] = later
        yield from self._answer(result, term)

    def _write(
        self, source: _RunningSource, append: Append | AppendSnapshot, updates: Updates, term: int
    ) -> StorageEffects:
        if not append.upper > source.accepted:
            left_out = len(updates)
            late = AppendResult(id=append.id, token=append.token, upper=source.accepted, left_out=left_out)
            yield from self._answer(late, term)
            return
        accepted = updates.not_before(source.accepted)
        source.accepted = append.upper
        result = AppendResult(
            id=append.id, token=append.token, upper=append.upper, left_out=len(updates) - len(accepted)
        )
        source.writing.setdefault(append.token, []).append((term, result))
        yield Write(id=append.id, upper=append.upper, updates=accepted, token=append.token)

    def _answer(self, result: AppendResult, term: int) -> StorageEffects:
        if term == self._term:
            yield result

    # --- what the runtime reports -------------------------------------------------------------------------

    def upper_rose(self, id: GlobalId, upper: Antichain) -> StorageEffects:
        if not self._uppers.rise(id, upper):
            return
        source = self._sources[id]
        source.accepted = max(source.accepted, upper)
        change = self._uppers.untold(id) if id not in self._refused else None
        if change is not None:
            yield FrontierUppers(changes=(change,))

    def stopped(self, id: GlobalId, error: str) -> StorageEffects:
        if id in self._sources:
            self._sources[id].ended = True
        if self._answerable(id) is not None:
            yield SourceStatus(id=id, status=SourceFailed(error=error))

    def received(self, id: GlobalId, step: Step, records: int) -> StorageEffects:
        if id not in self._sources:
            return
        report = self._sources[id].received = StepReport(id=id, step=step, received=records)
        if self._answerable(id) is not None:
            yield report

    def cut(self, seal: TableSeal) -> StorageEffects:
        """Readers here need not wait for the controller: a seal is true for ever."""
        source = self._sources.get(seal.id)
        if source is None or (source.seal is not None and not seal.upper > source.seal.upper):
            return
        source.seal = seal
        yield NoteSeals(seals=(seal,))
        if self._answerable(seal.id) is not None:
            yield SourceSealed(seal=seal)

    def fares(self, id: GlobalId, error: str, note: str) -> StorageEffects:
        if id not in self._sources:
            return
        fares = self._sources[id].fares = SourceFailed(error=error) if error else SourceRunning(note=note)
        if self._answerable(id) is not None:
            yield SourceStatus(id=id, status=fares)

    def _answerable(self, id: GlobalId) -> _RunningSource | None:
        """The source, if it runs as this term asked; a refused one is none of its business."""
        return None if id in self._refused else self._sources.get(id)


def _running(source: _RunningSource) -> StorageEffects:
    """Starts a source again that ended; what was under way ended with it."""
    if source.ended:
        source.ended, source.waiting, source.writing = False, [], {}
        source.received = source.fares = None
        yield RunSource(source=source.description)


def _said_before(source: _RunningSource) -> StorageEffects:
    if source.seal is not None:
        yield SourceSealed(seal=source.seal)
    if source.received is not None:
        yield source.received
    if source.fares is not None:
        yield SourceStatus(id=source.description.id, status=source.fares)


def _last_step(upper: Antichain, accepted: Antichain) -> Step:
    """The step at which a snapshot that is complete below ``upper`` happens."""
    if upper.step is not None:
        return Step(upper.step - 1)
    return accepted.step or Step(0)
