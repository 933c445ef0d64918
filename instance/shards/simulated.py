"""Shards in memory, for tests and simulation: the same promises as on disk, without threads.

A ``SimulatedDisk`` outlives the stores over it, as a disk outlives processes; several stores over one disk are
several processes, which do not hear of each other's appends.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types

from instance.shards.contents import (
    between,
    check_complete,
    check_readable,
    checked_updates,
    shard_schema,
    summed,
)
from instance.shards.local_appends import LocalAppends
from instance.shards.store import (
    NO_WRITER,
    TOKENS_REMEMBERED_MAX,
    Appended,
    AppendOutcome,
    EpochFenced,
    Shard,
    TakenOver,
    UpperMoved,
)
from reconcile.errors import InvalidRequest
from reconcile.frontiers import MINIMUM, Antichain
from reconcile.ids import GlobalId, Step, WriterEpoch


@dataclass(slots=True)
class _Contents:
    """One shard as it is; handles keep their own, older, view."""

    schema: pa.Schema
    upper: Antichain = MINIMUM
    since: Antichain = MINIMUM
    writer_epoch: WriterEpoch = NO_WRITER
    batches: list[pa.Table] = field(default_factory=list)
    #: Where each append began, oldest first.
    tokens: dict[str, Step] = field(default_factory=dict)


class SimulatedDisk:
    """What is durable."""

    def __init__(self) -> None:
        self.shards: dict[GlobalId, _Contents] = {}


class SimulatedShardStore:
    """One process's way to a simulated disk."""

    def __init__(self, disk: SimulatedDisk | None = None) -> None:
        self.disk = disk or SimulatedDisk()
        self.appends = LocalAppends()

    async def open(self, id: GlobalId, schema: pa.Schema) -> Shard:
        await asyncio.sleep(0)
        wanted = shard_schema(schema)
        contents = self.disk.shards.setdefault(id, _Contents(wanted))
        if not contents.schema.equals(wanted):
            raise InvalidRequest(f"shard {id} has other columns", detail=f"it has {contents.schema.names}")
        return SimulatedShard(id, contents, self.appends)

    async def refresh_all(self, shards: Sequence[Shard]) -> None:
        for shard in shards:
            await shard.refresh()

    async def close(self) -> None:
        await asyncio.sleep(0)


class SimulatedShard:
    """A handle to a simulated shard.

    Each call lets others run once, and is one step after that, as a commit is.
    """

    def __init__(self, id: GlobalId, contents: _Contents, appends: LocalAppends) -> None:
        self.id = id
        self._contents = contents
        self._appends = appends
        self._look()

    def _look(self) -> None:
        self.upper = self._contents.upper
        self.since = self._contents.since
        self.writer_epoch = self._contents.writer_epoch
        self._batches = len(self._contents.batches)

    @property
    def schema(self) -> pa.Schema:
        return self._contents.schema

    async def compare_and_append(
        self,
        *,
        expected: Antichain,
        upper: Antichain,
        updates: pa.Table | None,
        writer_epoch: WriterEpoch | None,
        token: str,
    ) -> AppendOutcome:
        stored = checked_updates(updates, self.schema, expected, upper)
        await asyncio.sleep(0)
        self._look()
        contents = self._contents
        if token and token in contents.tokens:
            return Appended(upper=self.upper)
        if writer_epoch is not None and writer_epoch < self.writer_epoch:
            return EpochFenced(writer_epoch=self.writer_epoch)
        if self.upper != expected or expected.step is None:
            return UpperMoved(upper=self.upper)
        if stored is not None:
            contents.batches.append(stored)
        if token:
            contents.tokens[token] = expected.step
            for old in list(islice(contents.tokens, max(0, len(contents.tokens) - TOKENS_REMEMBERED_MAX))):
                del contents.tokens[old]
        contents.upper = upper
        contents.writer_epoch = max(contents.writer_epoch, writer_epoch or NO_WRITER)
        self._look()
        self._appends.tell(self.id)
        return Appended(upper=upper)

    async def take_over(self, writer_epoch: WriterEpoch) -> TakenOver | EpochFenced:
        await asyncio.sleep(0)
        self._look()
        if writer_epoch < self.writer_epoch:
            return EpochFenced(writer_epoch=self.writer_epoch)
        self._contents.writer_epoch = self.writer_epoch = writer_epoch
        return TakenOver(upper=self.upper)

    async def refresh(self) -> Antichain:
        await asyncio.sleep(0)
        self._look()
        return self.upper

    async def read(self, lower: Antichain, upper: Antichain, *, complete: Antichain = MINIMUM) -> pa.Table:
        await asyncio.sleep(0)
        check_readable(lower, self.since)
        check_complete(self.id, upper, max(self.upper, complete))
        return between(self._all(), lower, upper)

    async def snapshot(self, at: Step, *, complete: Antichain = MINIMUM) -> pa.Table:
        await asyncio.sleep(0)
        check_readable(Antichain.at(at), self.since)
        check_complete(self.id, Antichain.at(at + 1), max(self.upper, complete))
        return summed(between(self._all(), MINIMUM, Antichain.at(at + 1)))

    async def find_token(self, token: str) -> Step | None:
        await asyncio.sleep(0)
        return self._contents.tokens.get(token)

    async def advance_since(self, since: Antichain) -> None:
        await asyncio.sleep(0)
        self._contents.since = max(self._contents.since, since)
        self._look()

    def _all(self) -> pa.Table:
        batches = self._contents.batches[: self._batches]
        return pa.concat_tables([self.schema.empty_table(), *batches])
