"""Shards in memory, for tests and simulation: the same promises as on disk, without threads.

A ``SimulatedDisk`` outlives the stores over it, as a disk outlives processes; several stores over one disk are
several processes, which do not hear of each other's appends.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from weakref import WeakSet

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types

from instance.shards.contents import (
    between,
    check_complete,
    check_extends,
    check_not_told,
    check_readable,
    checked_updates,
    consolidated,
    shard_schema,
    summed,
    widened,
)
from instance.shards.holds import Hold, Holds
from instance.shards.local_appends import LocalAppends
from instance.shards.progress import PROGRESS_MS, Pending, Progress
from instance.shards.rules import DEFAULT_RULES, TOKENS_REMEMBERED_MAX, UpkeepRules
from instance.shards.store import (
    NO_WRITER,
    Appended,
    AppendOutcome,
    EpochFenced,
    Grown,
    Shard,
    TakenOver,
    Tidied,
    UpperMoved,
)
from reconcile.frontiers import MINIMUM, Antichain
from reconcile.ids import GlobalId, Step, WriterEpoch


@dataclass(slots=True)
class _Contents:
    """One shard as it is; handles keep their own, older, view."""

    schema: pa.Schema
    upper: Antichain = MINIMUM
    since: Antichain = MINIMUM
    writer_epoch: WriterEpoch = NO_WRITER
    position: str = ""
    #: Only ever appended to; a compaction replaces it, and handles keep the one they have.
    batches: list[pa.Table] = field(default_factory=list)
    #: How often it was compacted, and which of the lists before that nobody can read any more.
    compactions: int = 0
    vacuumed: int = 0
    #: When each list that a compaction replaced was seen unused.
    replaced: dict[int, float] = field(default_factory=dict)
    #: Where each append began, oldest first.
    tokens: dict[str, Step] = field(default_factory=dict)


class SimulatedDisk:
    """What is durable."""

    def __init__(self) -> None:
        self.shards: dict[GlobalId, _Contents] = {}


class SimulatedShardStore:
    """One process's way to a simulated disk."""

    def __init__(
        self,
        disk: SimulatedDisk | None = None,
        *,
        progress_ms: int = PROGRESS_MS,
        rules: UpkeepRules = DEFAULT_RULES,
    ) -> None:
        self.disk = disk or SimulatedDisk()
        self._rules = rules
        self.appends = LocalAppends()
        self.holds = Holds()
        self.poll_seconds = 0.025
        self._progress_ms = progress_ms
        self._open: WeakSet[SimulatedShard] = WeakSet()

    async def open(self, id: GlobalId, schema: pa.Schema) -> Shard:
        await asyncio.sleep(0)
        wanted = shard_schema(schema)
        contents = self.disk.shards.setdefault(id, _Contents(wanted))
        fewer, more = sorted((contents.schema, wanted), key=len)
        check_extends(id, fewer, more)
        shard = SimulatedShard(id, contents, self.appends, self.holds, self._progress_ms, self._rules)
        self._open.add(shard)
        return shard

    async def refresh_all(self, shards: Sequence[Shard]) -> None:
        for shard in shards:
            await shard.refresh()

    def written(self) -> Sequence[Shard]:
        return tuple({shard.id: shard for shard in tuple(self._open) if shard.has_written}.values())

    async def close(self) -> None:
        for shard in tuple(self._open):
            await shard.close()


class SimulatedShard:
    """A handle to a simulated shard.

    Each call lets others run once, and is one step after that, as a commit is.
    """

    def __init__(
        self,
        id: GlobalId,
        contents: _Contents,
        appends: LocalAppends,
        holds: Holds,
        progress_ms: int,
        rules: UpkeepRules,
    ) -> None:
        self.id = id
        self._contents = contents
        self._appends = appends
        self._holds = holds
        self._rules = rules
        self._progress = Progress(id, self.flush, progress_ms)
        self.has_written = False
        self._look()

    def _look(self) -> None:
        self.upper = self._contents.upper
        self.since = self._contents.since
        self.writer_epoch = self._contents.writer_epoch
        self.position = self._contents.position
        self.schema = self._contents.schema
        self._compactions = self._contents.compactions
        self._batches = self._contents.batches
        self._count = len(self._batches)

    async def close(self) -> None:
        await self._progress.close()

    # --- writing --------------------------------------------------------------------------------------------

    async def compare_and_append(
        self,
        *,
        expected: Antichain,
        upper: Antichain,
        updates: pa.Table | None,
        writer_epoch: WriterEpoch | None,
        token: str,
        position: str | None = None,
    ) -> AppendOutcome:
        stored = checked_updates(updates, self.schema, expected, upper)
        await asyncio.sleep(0)
        self._look()
        stored = None if stored is None else widened(stored, self.schema)
        contents, told = self._contents, self._progress.upper
        if token and token in contents.tokens:
            return self._settled(Appended(upper=self.upper))
        if writer_epoch is not None and writer_epoch < self.writer_epoch:
            return self._settled(EpochFenced(writer_epoch=self.writer_epoch))
        there = self.upper == expected or (self._progress.pending and told == expected and self.upper < expected)
        if not there or expected.step is None:
            return self._settled(UpperMoved(upper=self.upper))
        check_not_told(stored, None if self._progress.pending is None else told)
        if stored is not None:
            contents.batches.append(stored)
        if token:
            contents.tokens[token] = expected.step
            for old in list(islice(contents.tokens, max(0, len(contents.tokens) - TOKENS_REMEMBERED_MAX))):
                del contents.tokens[old]
        contents.position = contents.position if position is None else position
        return self._advanced(upper, writer_epoch)

    def _advanced(self, upper: Antichain, writer_epoch: WriterEpoch | None) -> AppendOutcome:
        self._contents.upper = upper
        self._contents.writer_epoch = max(self._contents.writer_epoch, writer_epoch or NO_WRITER)
        self._look()
        return self._settled(Appended(upper=upper))

    def _settled(self, outcome: AppendOutcome) -> AppendOutcome:
        self._progress.settle(self.upper)
        if isinstance(outcome, EpochFenced):
            self._progress.forget()
        if isinstance(outcome, Appended):
            self.has_written = True
            self._appends.tell(self.id)
        return outcome

    @property
    def told(self) -> Antichain:
        return max(self.upper, self._progress.upper)

    def advance(self, upper: Antichain, *, writer_epoch: WriterEpoch | None = None) -> None:
        if not upper > self.told:
            return
        self._progress.tell(Pending(upper=upper, writer_epoch=writer_epoch))
        self._appends.tell_progress(self.id, durable=self.upper, upper=upper)

    async def flush(self) -> AppendOutcome:
        await asyncio.sleep(0)
        pending = self._progress.pending
        if pending is None:
            return Appended(upper=self.upper)
        self._look()
        if pending.writer_epoch is not None and pending.writer_epoch < self.writer_epoch:
            return self._settled(EpochFenced(writer_epoch=self.writer_epoch))
        if not pending.upper > self.upper:
            return self._settled(Appended(upper=self.upper))
        return self._advanced(pending.upper, pending.writer_epoch)

    async def take_over(self, writer_epoch: WriterEpoch) -> TakenOver | EpochFenced:
        await asyncio.sleep(0)
        self._look()
        if writer_epoch < self.writer_epoch:
            return EpochFenced(writer_epoch=self.writer_epoch)
        self._contents.writer_epoch = self.writer_epoch = writer_epoch
        self.has_written = True
        return TakenOver(upper=self.upper)

    async def grow(self, schema: pa.Schema, *, writer_epoch: WriterEpoch | None) -> Grown | EpochFenced:
        wanted = shard_schema(schema)
        await asyncio.sleep(0)
        self._look()
        if writer_epoch is not None and writer_epoch < self.writer_epoch:
            return EpochFenced(writer_epoch=self.writer_epoch)
        check_extends(self.id, self.schema, wanted)
        if len(wanted) > len(self.schema):
            self._contents.schema = wanted
            self._contents.writer_epoch = max(self._contents.writer_epoch, writer_epoch or NO_WRITER)
            self.has_written = True
            self._look()
        return Grown(schema=self.schema)

    # --- reading --------------------------------------------------------------------------------------------

    async def refresh(self) -> Antichain:
        await asyncio.sleep(0)
        self._look()
        return self.upper

    async def read(self, lower: Antichain, upper: Antichain, *, complete: Antichain = MINIMUM) -> pa.Table:
        await asyncio.sleep(0)
        return self._read(lower, lower, upper, complete)

    async def snapshot(self, at: Step, *, complete: Antichain = MINIMUM) -> pa.Table:
        await asyncio.sleep(0)
        return summed(self._read(Antichain.at(at), MINIMUM, Antichain.at(at + 1), complete))

    def _read(self, readable: Antichain, lower: Antichain, upper: Antichain, complete: Antichain) -> pa.Table:
        if self._compactions < self._contents.vacuumed:
            self._look()
        check_readable(readable, self.since)
        check_complete(self.id, upper, max(self.upper, complete))
        return between(self._whole(self._batches[: self._count]), lower, upper)

    def _whole(self, batches: list[pa.Table]) -> pa.Table:
        return pa.concat_tables([self.schema.empty_table(), *(widened(batch, self.schema) for batch in batches)])

    async def find_token(self, token: str) -> Step | None:
        await asyncio.sleep(0)
        return self._contents.tokens.get(token)

    # --- since and upkeep -----------------------------------------------------------------------------------

    async def advance_since(self, since: Antichain) -> None:
        async with self._holds.turn(self.id):
            await asyncio.sleep(0)
            self._holds.want(self.id, since)
            self.has_written |= self._holds.allowed(self.id) > self._contents.since
            self._contents.since = max(self._contents.since, self._holds.allowed(self.id))
            self._look()

    async def hold(self, at: Antichain) -> Hold:
        async with self._holds.turn(self.id):
            await asyncio.sleep(0)
            self._look()
            check_readable(at, self.since)
            return self._holds.begin(self.id, at)

    async def compact(self) -> bool:
        await asyncio.sleep(0)
        self._look()
        contents, batches = self._contents, self._batches[: self._count]
        if not batches or (len(batches) < self._rules.tier_files_max and not contents.since.is_closed):
            return False
        parts = consolidated(self._whole(batches), self.since, self.upper)
        contents.batches = [part for part in parts if part.num_rows]
        contents.compactions += 1
        self._look()
        return True

    async def tidy(self, now: float) -> Tidied:
        await asyncio.sleep(0)
        self._look()
        contents = self._contents
        for number in range(contents.vacuumed, contents.compactions):
            contents.replaced.setdefault(number, now)
        gone = [number for number, seconds in contents.replaced.items() if now - seconds >= self._rules.grace_seconds]
        for number in gone:
            del contents.replaced[number]
            contents.vacuumed = max(contents.vacuumed, number + 1)
        return Tidied(files_deleted=len(gone))
