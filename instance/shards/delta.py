"""Shards as Delta tables, in a folder that several processes share or in an object store."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar
from weakref import WeakSet

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types

from instance.shards import delta_writing
from instance.shards.blocking import BlockingPool
from instance.shards.compaction import compaction_due
from instance.shards.contents import check_complete, check_readable, checked_updates, shard_schema, summed
from instance.shards.delta_compaction import commit_rewritten, rewrite
from instance.shards.delta_table import FilesGone, ShardTable
from instance.shards.delta_upkeep import Upkeep
from instance.shards.durability import place_in
from instance.shards.holds import Hold, Holds
from instance.shards.local_appends import LocalAppends
from instance.shards.progress import PROGRESS_MS, Pending, Progress
from instance.shards.reasons import reason
from instance.shards.rules import DEFAULT_RULES, UpkeepRules
from instance.shards.store import Appended, AppendOutcome, EpochFenced, Grown, Shard, TakenOver, Tidied
from reconcile.errors import StorageFailed
from reconcile.frontiers import MINIMUM, Antichain
from reconcile.ids import GlobalId, Step, WriterEpoch

T = TypeVar("T")

#: Between two looks at a shard that somebody waits for: a ``stat`` costs nothing, a request to an object store does.
LOCAL_POLL_SECONDS = 0.025
REMOTE_POLL_SECONDS = 1.0
#: Times that a read begins anew because its files were vacuumed; each time needs a grace period to pass.
READ_TRIES_MAX = 5


class DeltaShardStore:
    """The shards under one root, a Delta table each.

    ``root`` is a folder, or any URL that deltalake accepts with the ``options`` it needs.
    """

    def __init__(
        self,
        root: Path | str,
        *,
        options: Mapping[str, str] | None = None,
        progress_ms: int = PROGRESS_MS,
        rules: UpkeepRules = DEFAULT_RULES,
    ) -> None:
        self._root = _as_root(root)
        self._options = None if options is None else dict(options)
        self._progress_ms = progress_ms
        self._rules = rules
        self._pool = BlockingPool()
        #: A long compaction must not keep appends waiting.
        self._upkeep_pool = BlockingPool(threads=1)
        self.appends = LocalAppends()
        self.holds = Holds()
        #: How far each shard was synced by this process; nobody here needs to sync it again.
        self._synced: dict[GlobalId, int] = {}
        self._open: WeakSet[DeltaShard] = WeakSet()

    @property
    def poll_seconds(self) -> float:
        return LOCAL_POLL_SECONDS if isinstance(self._root, Path) else REMOTE_POLL_SECONDS

    async def open(self, id: GlobalId, schema: pa.Schema) -> Shard:
        whole = shard_schema(schema)

        def opened() -> ShardTable:
            table = ShardTable(id, whole, *place_in(self._root, str(id), self._options), self._synced, self._rules)
            table.open()
            return table

        table = await self._pool.run(lambda: _storage_failures_told(id, opened))
        shard = DeltaShard(
            table, self._pool, self._upkeep_pool, appends=self.appends, holds=self.holds, progress_ms=self._progress_ms
        )
        self._open.add(shard)
        return shard

    async def refresh_all(self, shards: Sequence[Shard]) -> None:
        ours = [shard for shard in shards if isinstance(shard, DeltaShard)]
        behind = await self._pool.run(lambda: [shard for shard in ours if shard.is_behind()])
        for shard in behind:
            await shard.refresh()

    def written(self) -> Sequence[Shard]:
        return tuple({shard.id: shard for shard in tuple(self._open) if shard.has_written}.values())

    async def close(self) -> None:
        for shard in tuple(self._open):
            await shard.close()
        await self._upkeep_pool.close()
        await self._pool.close()


def _as_root(root: Path | str) -> Path | str:
    if isinstance(root, str) and "://" in root and not root.startswith("file://"):
        return root
    return Path(str(root).removeprefix("file://")).absolute()


class DeltaShard:
    """A handle to one shard. Commits and refreshes take turns; reads and rewriting run beside them."""

    def __init__(
        self,
        table: ShardTable,
        pool: BlockingPool,
        upkeep_pool: BlockingPool,
        *,
        appends: LocalAppends,
        holds: Holds,
        progress_ms: int,
    ) -> None:
        self._table = table
        self._pool = pool
        self._upkeep_pool = upkeep_pool
        self._appends = appends
        self._holds = holds
        self._progress = Progress(table.id, self.flush, progress_ms)
        self._upkeep = Upkeep(table)
        self._turn = asyncio.Lock()
        self._upkeep_turn = asyncio.Lock()
        self.has_written = False

    @property
    def id(self) -> GlobalId:
        return self._table.id

    @property
    def schema(self) -> pa.Schema:
        return self._table.schema

    @property
    def upper(self) -> Antichain:
        return self._table.view.upper

    @property
    def since(self) -> Antichain:
        return self._table.view.since

    @property
    def writer_epoch(self) -> WriterEpoch:
        return self._table.view.writer_epoch

    @property
    def position(self) -> str:
        return self._table.view.position

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
        def append() -> AppendOutcome:
            stored = checked_updates(updates, self.schema, expected, upper)
            told = None if self._progress.pending is None else self._progress.upper
            return delta_writing.append(
                self._table, expected, upper, stored, writer_epoch, token, told=told, position=position
            )

        return self._settled(await self._in_turn(append))

    @property
    def told(self) -> Antichain:
        return max(self.upper, self._progress.upper)

    def advance(self, upper: Antichain, *, writer_epoch: WriterEpoch | None = None) -> None:
        if not upper > self.told:
            return
        self._progress.tell(Pending(upper=upper, writer_epoch=writer_epoch))
        self._appends.tell_progress(self.id, durable=self.upper, upper=upper)

    async def flush(self) -> AppendOutcome:
        pending = self._progress.pending
        if pending is None:
            return Appended(upper=self.upper)
        return self._settled(
            await self._in_turn(lambda: delta_writing.progress(self._table, pending.upper, pending.writer_epoch)),
        )

    def _settled(self, outcome: AppendOutcome) -> AppendOutcome:
        self._progress.settle(self.upper)
        if isinstance(outcome, EpochFenced):
            self._progress.forget()
        if isinstance(outcome, Appended):
            self.has_written = True
            self._appends.tell(self.id)
        return outcome

    async def grow(self, schema: pa.Schema, *, writer_epoch: WriterEpoch | None) -> Grown | EpochFenced:
        wanted = shard_schema(schema)
        outcome = await self._in_turn(lambda: delta_writing.grow(self._table, wanted, writer_epoch))
        self.has_written |= isinstance(outcome, Grown)
        return outcome

    async def take_over(self, writer_epoch: WriterEpoch) -> TakenOver | EpochFenced:
        outcome = await self._in_turn(lambda: delta_writing.take_over(self._table, writer_epoch))
        self.has_written |= isinstance(outcome, TakenOver)
        return outcome

    # --- reading --------------------------------------------------------------------------------------------

    async def refresh(self) -> Antichain:
        await self._in_turn(self._table.follow)
        return self.upper

    def is_behind(self) -> bool:
        """Whether there is a version that this handle has not seen; two ``stat``s."""
        return self._table.is_behind()

    async def read(self, lower: Antichain, upper: Antichain, *, complete: Antichain = MINIMUM) -> pa.Table:
        return await self._read(lower, lower, upper, complete)

    async def snapshot(self, at: Step, *, complete: Antichain = MINIMUM) -> pa.Table:
        table = await self._read(Antichain.at(at), MINIMUM, Antichain.at(at + 1), complete)
        return await self._in_thread(lambda: summed(table))

    async def _read(self, readable: Antichain, lower: Antichain, upper: Antichain, complete: Antichain) -> pa.Table:
        """The updates in [``lower``, ``upper``), if ``readable`` is; as of one view."""
        for _ in range(READ_TRIES_MAX):
            view = self._table.view
            check_readable(readable, view.since)
            check_complete(self.id, upper, max(view.upper, complete))
            try:
                return await self._in_thread(partial(self._table.read, view, lower, upper))
            except FilesGone as gone:
                await self.refresh()
                if self._table.view.version == view.version:
                    raise StorageFailed(f"shard {self.id} lacks a file", detail=str(gone)) from gone
        raise StorageFailed(f"shard {self.id} cannot be read", detail="its files go faster than they can be read")

    async def find_token(self, token: str) -> Step | None:
        return await self._in_turn(lambda: self._table.find_token(token))

    # --- since and upkeep -----------------------------------------------------------------------------------

    async def advance_since(self, since: Antichain) -> None:
        async with self._holds.turn(self.id):
            self._holds.want(self.id, since)
            allowed = self._holds.allowed(self.id)
            if allowed > self.since:
                await self._in_turn(lambda: delta_writing.advance_since(self._table, allowed))
                self.has_written = True

    async def hold(self, at: Antichain) -> Hold:
        async with self._holds.turn(self.id):
            hold = self._holds.begin(self.id, at)
            try:
                await self.refresh()
                check_readable(at, self.since)
            except BaseException:
                hold.release()
                raise
            return hold

    async def compact(self) -> bool:
        async with self._upkeep_turn:
            view = self._table.view
            due = compaction_due(view.files, view.since, view.upper, self._table.rules)
            if due is None:
                return False
            try:
                rewritten = await self._in_upkeep(lambda: rewrite(self._table, view, due))
            except FileNotFoundError:
                await self.refresh()  # somebody else compacted them away
                return False
            return await self._in_turn(lambda: commit_rewritten(self._table, rewritten))

    async def tidy(self, now: float) -> Tidied:
        async with self._upkeep_turn:
            await self.refresh()
            view = self._table.view
            tidied = await self._in_upkeep(lambda: self._upkeep.tidy_log(view, now))
            deleted = 0
            if self._upkeep.is_vacuum_due(now):
                listed = await self._in_upkeep(self._upkeep.list_files)
                await self.refresh()
                newest = self._table.view
                deleted = await self._in_upkeep(lambda: self._upkeep.vacuum(listed, newest, now))
            return Tidied(checkpoint=tidied.checkpoint, commits_cleaned=tidied.commits_cleaned, files_deleted=deleted)

    async def _in_turn(self, call: Callable[[], T]) -> T:
        async with self._turn:
            return await self._in_thread(call)

    async def _in_thread(self, call: Callable[[], T]) -> T:
        return await self._pool.run(lambda: _storage_failures_told(self.id, call))

    async def _in_upkeep(self, call: Callable[[], T]) -> T:
        try:
            return await self._upkeep_pool.run(call)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise _failed(self.id, error) from error


def _storage_failures_told(id: GlobalId, call: Callable[[], T]) -> T:
    try:
        return call()
    except OSError as error:
        raise _failed(id, error) from error


def _failed(id: GlobalId, error: OSError) -> StorageFailed:
    return StorageFailed(f"shard {id} failed", detail=reason(error), hint="look at where it lives")
