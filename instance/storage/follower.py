"""A follower: one shard as all readers of a process share it."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types

from instance.inputs import Changes, NotReadable
from instance.shards.contents import joined
from instance.shards.store import Shard, ShardStore
from instance.storage.recent import RecentUpdates
from instance.storage.seals import Seals
from reconcile.errors import InvariantBroken
from reconcile.frontiers import Antichain
from reconcile.ids import GlobalId, Step

#: Answers for the current upper that are kept for the next reader with the same question.
_ANSWERS_MAX = 64


class Follower:
    """Follows one shard for any number of readers.

    Complete is what the shard says or, beyond it, what a seal or a writer in this process says. It never goes back,
    and whoever waits is woken when it rises.
    """

    def __init__(
        self, store: ShardStore, id: GlobalId, schema: pa.Schema, seals: Seals, waits: Callable[[], None]
    ) -> None:
        self._store = store
        self._id = id
        self._schema = schema
        self._seals = seals
        #: Called when a reader begins to wait.
        self._waits = waits
        self._opening = asyncio.Lock()
        self._shard: Shard | None = None
        self._recent = RecentUpdates()
        self._reading = asyncio.Lock()
        #: What each waits to be complete beyond.
        self._waiters: dict[asyncio.Future[None], Antichain] = {}
        #: What was complete when waiters were last woken: there is none for less.
        self._woken_at: Antichain | None = None
        #: Reads under way, by what they read; whoever asks the same waits for the same.
        self._reads: dict[object, asyncio.Task[Any]] = {}
        #: Changes from each lower to one upper, the last that was asked for.
        self._answers: dict[Antichain, Changes] = {}
        self._looking: asyncio.Task[None] | None = None
        self._look_again = False
        store.appends.listen(id, self._appended)
        self._note_told()

    def close(self) -> list[asyncio.Task[Any]]:
        """Cancels what waits and reads; returns what may take a moment to end."""
        self._store.appends.leave(self._id, self._appended)
        tasks = [*self._reads.values(), *([self._looking] if self._looking else [])]
        for future in [*self._waiters, *tasks]:
            future.cancel()
        return tasks

    @property
    def has_waiters(self) -> bool:
        return bool(self._waiters)

    @property
    def shard(self) -> Shard:
        if self._shard is None:
            raise InvariantBroken(f"shard {self._id} is followed before it is open")
        return self._shard

    @property
    def complete(self) -> Antichain:
        return self._seals.complete(self.shard.upper)

    # --- reading ------------------------------------------------------------------------------------------

    async def snapshot(self, at: Step) -> pa.Table:
        await self._complete_beyond(Antichain.at(at))
        complete = self.complete
        return await self._shared(at, lambda: self.shard.snapshot(at, complete=complete))

    async def changes(self, lower: Antichain) -> Changes:
        if lower.is_closed:
            raise InvariantBroken(f"nothing can be read of {self._id} from [] on")
        await self._complete_beyond(lower)
        upper = self.complete
        answer = self._answers.get(lower)
        if answer is not None and answer.upper == upper:
            return answer
        table = await self._shared((lower, upper), lambda: self._updates(lower, upper))
        return self._remember(Changes(lower=lower, upper=upper, table=table))

    async def _updates(self, lower: Antichain, upper: Antichain) -> pa.Table:
        async with self._reading:
            missing = self._recent.missing(lower, upper)
            if missing is None:
                return self._recent.between(lower, upper)
            begin, end = missing
            before = [self._recent.between(lower, begin)] if lower < begin else []
            if begin >= self.shard.upper:
                rows = self.shard.schema.empty_table()  # sealed: nothing happened there
            else:
                rows = await self.shard.read(begin, end, complete=upper)
            self._recent.add(begin, end, rows)
            return joined([*before, rows])

    def _remember(self, answer: Changes) -> Changes:
        if any(other.upper != answer.upper for other in self._answers.values()) or len(self._answers) >= _ANSWERS_MAX:
            self._answers.clear()
        return self._answers.setdefault(answer.lower, answer)

    async def _shared(self, key: object, read: Callable[[], Coroutine[Any, Any, pa.Table]]) -> pa.Table:
        """The result of ``read``, begun once however many ask for it at the same time."""
        task = self._reads.get(key)
        if task is None:
            task = self._reads[key] = asyncio.create_task(read())
            task.add_done_callback(lambda done: self._read_done(key, done))
        # Shielded, because whoever is cancelled must not take the others' read with them.
        return await asyncio.shield(task)

    def _read_done(self, key: object, task: asyncio.Task[Any]) -> None:
        self._reads.pop(key, None)
        if not task.cancelled():
            task.exception()  # looked at, though all who asked may have gone

    # --- waiting ------------------------------------------------------------------------------------------

    async def _complete_beyond(self, frontier: Antichain) -> None:
        """Waits until the shard is complete beyond ``frontier``; raises ``NotReadable`` if it is compacted away."""
        if self._shard is None:
            async with self._opening:
                if self._shard is None:
                    self._shard = await self._store.open(self._id, self._schema)
        if frontier < self.shard.since:
            raise NotReadable(self.shard.since)
        if not self.complete > frontier:
            self._look()
        while not self.complete > frontier:
            waiter = asyncio.get_running_loop().create_future()
            self._waiters[waiter] = frontier
            self._waits()
            try:
                await waiter
            finally:
                del self._waiters[waiter]

    def advanced(self) -> None:
        """The shard or a seal may have risen: wakes those who wait for less than what is complete now."""
        if self._shard is None or self.complete == self._woken_at:
            return
        complete = self._woken_at = self.complete
        for waiter, frontier in self._waiters.items():
            if complete > frontier and not waiter.done():
                waiter.set_result(None)

    async def refresh(self) -> None:
        """Learns what is new; a failure, whatever it is, is told to whoever waits."""
        try:
            await self.shard.refresh()
        except Exception as error:
            for waiter in self._waiters:
                if not waiter.done():
                    waiter.set_exception(error)
        else:
            self.advanced()

    def _appended(self) -> None:
        """A local append, durable or told: whoever waits hears of it at once."""
        self._note_told()
        if self._waiters:
            self._look()

    def _note_told(self) -> None:
        """Progress that a writer here told is as good as a seal: complete for whoever has the shard as it had it."""
        told = self._store.appends.told(self._id)
        if told is not None:
            self._seals.note(told)
            self.advanced()

    def _look(self) -> None:
        """Refreshes once from now on, however many ask for it."""
        if self._looking is not None:
            self._look_again = True
        else:
            self._looking = asyncio.create_task(self._refresh_until_still(), name=f"refresh {self._id}")

    async def _refresh_until_still(self) -> None:
        try:
            self._look_again = True
            while self._look_again:
                self._look_again = False
                await self.refresh()
        finally:
            self._looking = None
