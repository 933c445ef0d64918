"""Shards as Delta tables on a disk that several processes share."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types

from instance.shards.blocking import BlockingPool
from instance.shards.contents import check_complete, check_readable, checked_updates, shard_schema, summed
from instance.shards.delta_log import DeltaLog
from instance.shards.delta_table import ShardTable
from instance.shards.local_appends import LocalAppends
from instance.shards.store import Appended, AppendOutcome, EpochFenced, Shard, TakenOver
from reconcile.errors import StorageFailed
from reconcile.frontiers import MINIMUM, Antichain
from reconcile.ids import GlobalId, Step, WriterEpoch

T = TypeVar("T")


class DeltaShardStore:
    """The shards in one folder, a Delta table each."""

    def __init__(self, root: Path) -> None:
        self._root = root.absolute()
        self._pool = BlockingPool()
        self.appends = LocalAppends()
        #: How far each shard was synced by this process; nobody here needs to sync it again.
        self._synced: dict[GlobalId, int] = {}

    async def open(self, id: GlobalId, schema: pa.Schema) -> Shard:
        table = ShardTable(id, shard_schema(schema), DeltaLog(self._root / str(id)), self._synced)
        await self._pool.run(lambda: _storage_failures_told(id, table.open))
        return DeltaShard(table, self._pool, self.appends)

    async def refresh_all(self, shards: Sequence[Shard]) -> None:
        ours = [shard for shard in shards if isinstance(shard, DeltaShard)]
        behind = await self._pool.run(lambda: [shard for shard in ours if shard.is_behind()])
        for shard in behind:
            await shard.refresh()

    async def close(self) -> None:
        await self._pool.close()


class DeltaShard:
    """A handle to one shard. Commits and refreshes take turns; reads run beside them."""

    def __init__(self, table: ShardTable, pool: BlockingPool, appends: LocalAppends) -> None:
        self._table = table
        self._pool = pool
        self._appends = appends
        self._turn = asyncio.Lock()

    @property
    def id(self) -> GlobalId:
        return self._table.id

    @property
    def schema(self) -> pa.Schema:
        return self._table.schema

    @property
    def upper(self) -> Antichain:
        return self._table.upper

    @property
    def since(self) -> Antichain:
        return self._table.since

    @property
    def writer_epoch(self) -> WriterEpoch:
        return self._table.writer_epoch

    async def compare_and_append(
        self,
        *,
        expected: Antichain,
        upper: Antichain,
        updates: pa.Table | None,
        writer_epoch: WriterEpoch | None,
        token: str,
    ) -> AppendOutcome:
        def append() -> AppendOutcome:
            stored = checked_updates(updates, self.schema, expected, upper)
            return self._table.append(expected, upper, stored, writer_epoch, token)

        outcome = await self._in_turn(append)
        if isinstance(outcome, Appended):
            self._appends.tell(self.id)
        return outcome

    async def take_over(self, writer_epoch: WriterEpoch) -> TakenOver | EpochFenced:
        return await self._in_turn(lambda: self._table.take_over(writer_epoch))

    async def refresh(self) -> Antichain:
        await self._in_turn(self._table.follow)
        return self.upper

    def is_behind(self) -> bool:
        """Whether there is a version that this handle has not seen; one ``stat``."""
        return self._table.is_behind()

    async def read(self, lower: Antichain, upper: Antichain, *, complete: Antichain = MINIMUM) -> pa.Table:
        check_readable(lower, self.since)
        check_complete(self.id, upper, max(self.upper, complete))
        return await self._in_thread(lambda: self._table.read(lower, upper))

    async def snapshot(self, at: Step, *, complete: Antichain = MINIMUM) -> pa.Table:
        end = Antichain.at(at + 1)
        check_readable(Antichain.at(at), self.since)
        check_complete(self.id, end, max(self.upper, complete))
        return await self._in_thread(lambda: summed(self._table.read(MINIMUM, end)))

    async def find_token(self, token: str) -> Step | None:
        return await self._in_turn(lambda: self._table.find_token(token))

    async def advance_since(self, since: Antichain) -> None:
        await self._in_turn(lambda: self._table.advance_since(since))

    async def _in_turn(self, call: Callable[[], T]) -> T:
        async with self._turn:
            return await self._in_thread(call)

    async def _in_thread(self, call: Callable[[], T]) -> T:
        return await self._pool.run(lambda: _storage_failures_told(self.id, call))


def _storage_failures_told(id: GlobalId, call: Callable[[], T]) -> T:
    try:
        return call()
    except OSError as error:
        raise StorageFailed(f"shard {id} failed", detail=str(error), hint="look at the disk it lives on") from error
