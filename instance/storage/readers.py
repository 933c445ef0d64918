"""Readers and writers of shards for dataflows: any number of them, at the cost of one follower per shard.

Shards are read on every replica, also where another one writes them. A local append wakes its readers at once, and
so does a seal; appends of other processes are found by looking for their commit, and only while somebody waits.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types

from instance.inputs import Changes, Input, Output, Written
from instance.shards.contents import seen_as
from instance.shards.store import Appended, EpochFenced, Shard, ShardStore, UpperMoved
from instance.storage.follower import Follower
from instance.storage.seals import Seals
from plainsong.types import DIFF, STEP
from reconcile.errors import InvariantBroken
from reconcile.frontiers import Antichain
from reconcile.ids import GlobalId, Step
from reconcile.storage_protocol import TableSeal

#: How long an append of another process may go unnoticed by somebody who waits for it; longer where looking is dear.
POLL_SECONDS = 0.025


class ShardInputs:
    """The shards that this instance's dataflows read."""

    def __init__(self, store: ShardStore) -> None:
        self._store = store
        self._followers: dict[GlobalId, Follower] = {}
        #: How often each is open; the same keys as ``_followers``.
        self._opens: Counter[GlobalId] = Counter()
        #: Of every table a controller sealed, read here or not: a seal is said once.
        self._seals: dict[GlobalId, Seals] = {}
        self._poller: asyncio.Task[None] | None = None

    def open(self, id: GlobalId, schema: pa.Schema) -> Input:
        follower = self._followers.get(id)
        if follower is None:
            seals = self._seals.setdefault(id, Seals())
            follower = self._followers[id] = Follower(self._store, id, schema, seals, self._waits)
        self._opens[id] += 1
        return _ShardInput(follower, schema)

    def close(self, id: GlobalId) -> None:
        self._opens[id] -= 1
        if self._opens[id] == 0:
            del self._opens[id]
            self._followers.pop(id).close()

    def note_seals(self, seals: Iterable[TableSeal]) -> None:
        for seal in seals:
            self._seals.setdefault(seal.id, Seals()).note(seal)
            if (follower := self._followers.get(seal.id)) is not None:
                follower.advanced()

    async def stop(self) -> None:
        """Cancels every read."""
        tasks = [task for follower in self._followers.values() for task in follower.close()]
        self._followers.clear()
        self._opens.clear()
        if self._poller is not None:
            self._poller.cancel()
            tasks.append(self._poller)
        await asyncio.gather(*tasks, return_exceptions=True)

    def _waits(self) -> None:
        """Somebody waits: keeps looking until nobody does."""
        if self._poller is None or self._poller.done():
            self._poller = asyncio.create_task(self._poll(), name="shard poller")

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(max(POLL_SECONDS, self._store.poll_seconds))
            waiting = [follower for follower in self._followers.values() if follower.has_waiters]
            if not waiting:
                return
            try:
                await self._store.refresh_all([follower.shard for follower in waiting])
            except Exception:
                # One of them failed; each is asked by itself and tells its own readers.
                for follower in waiting:
                    await follower.refresh()
            for follower in waiting:
                follower.advanced()


class _ShardInput:
    """One reader's view of a follower: the columns that this reader knows, whatever was added since."""

    def __init__(self, follower: Follower, schema: pa.Schema) -> None:
        self._follower = follower
        self._columns = pa.schema([field for field in schema if field.name not in (STEP, DIFF)])

    async def snapshot(self, at: Step) -> pa.Table:
        return seen_as(await self._follower.snapshot(at), self._columns)

    async def changes(self, lower: Antichain) -> Changes:
        found = await self._follower.changes(lower)
        table = seen_as(found.table, self._columns)
        return found if table is found.table else replace(found, table=table)


class ShardOutputs:
    """The shards that this instance's materialized views write."""

    def __init__(self, store: ShardStore) -> None:
        self._store = store

    def open(self, id: GlobalId, schema: pa.Schema) -> Output:
        return _ShardOutput(self._store, id, schema)


class _ShardOutput:
    """The shard of one view. Any replica may write it; it is told whether it was the one."""

    def __init__(self, store: ShardStore, id: GlobalId, schema: pa.Schema) -> None:
        self._store = store
        self._id = id
        self._schema = schema
        self._opening = asyncio.Lock()
        self._shard: Shard | None = None

    async def _opened(self) -> Shard:
        async with self._opening:
            if self._shard is None:
                self._shard = await self._store.open(self._id, self._schema)
            return self._shard

    async def upper(self) -> Antichain:
        return await (await self._opened()).refresh()

    async def append(self, lower: Antichain, upper: Antichain, updates: pa.Table) -> Written:
        shard = await self._opened()
        outcome = await shard.compare_and_append(
            expected=lower, upper=upper, updates=updates, writer_epoch=None, token=""
        )
        match outcome:
            case Appended(upper=now):
                return Written(upper=now, by_us=True)
            case UpperMoved(upper=now):
                return Written(upper=now, by_us=False)
            case EpochFenced(writer_epoch=epoch):
                raise InvariantBroken(f"view {self._id} was fenced by writer epoch {epoch}, though it has none")
