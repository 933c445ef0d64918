"""An index export: an arrangement that answers peeks, and that other dataflows follow."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence

from instance.memory.arranged import Arrange, Arranged
from instance.memory.batch import Batch, concat
from instance.memory.rows import RowFormat
from instance.runtime import Report
from reconcile.compute_actions import UpperReported
from reconcile.errors import InvalidRequest
from reconcile.frontiers import CLOSED, MINIMUM, Antichain
from reconcile.ids import GlobalId, PeekId, Step


class IndexExport:
    """Keeps the collection by key, readable at every step from since to upper."""

    def __init__(
        self,
        id: GlobalId,
        format: RowFormat,
        key: Sequence[str],
        as_of: Antichain,
        report: Report,
        ready: Callable[[PeekId], None],
        arrange: Arrange,
    ) -> None:
        for name in key:
            if name not in format.places:
                detail = f"it has {', '.join(format.names)}"
                raise InvalidRequest(f"cannot index {id} by {name!r}: it has no such column", detail=detail)
        self.id = id
        self.format = format
        #: The columns by which rows are found; all of them if none was named.
        self.key = tuple(key) or format.names
        self.upper = MINIMUM
        self.arranged = arrange(id, format, key)
        self._as_of = as_of
        self._since = MINIMUM
        self._stopped = False
        self._report = report
        self._ready = ready
        #: Peeks at steps that are not final yet.
        self._peeks: dict[PeekId, Step] = {}
        #: What the readers have not all read: each batch with its bounds, contiguous, the last ends at the upper.
        self._log: deque[tuple[Antichain, Antichain, Batch]] = deque()
        self._readers: dict[IndexReader, None] = {}
        #: The readers that have not yet read any changes, and so may still ask for contents at their beginning.
        self._unread: dict[IndexReader, None] = {}
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def since(self) -> Antichain:
        """As far as it was compacted."""
        return self._since

    async def start(self, contents: Batch, upper: Antichain) -> None:
        if upper.step:
            self.arranged.begin(upper.step - 1)
        await self.advance(contents, upper)

    async def advance(self, change: Batch, upper: Antichain) -> None:
        if len(change):
            await self.arranged.insert(change)
            if self._stopped:
                return
        lower, self.upper = self.upper, upper
        if self._readers:
            self._log.append((lower, upper, change))
            self._trim()
        if upper > self._as_of:
            self._report(UpperReported(id=self.id, upper=upper))
        for peek in [peek for peek, at in self._peeks.items() if not upper.is_open_at(at)]:
            del self._peeks[peek]
            self._ready(peek)
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def compact(self, since: Antichain) -> None:
        self._since = max(self._since, since)
        if since.is_closed:
            self.arranged.compact(since)
        else:
            self._compact_for_readers()

    def stop(self) -> asyncio.Task[None] | None:
        self._stopped = True
        self._peeks.clear()
        return self.arranged.stop()

    def await_step(self, at: Step, peek: PeekId) -> None:
        """Calls ``ready`` with ``peek`` once ``at`` is final."""
        if not self.upper.is_open_at(at):
            self._ready(peek)
        else:
            self._peeks[peek] = at

    def forget_peek(self, peek: PeekId) -> None:
        self._peeks.pop(peek, None)

    # --- readers ------------------------------------------------------------------------------------------

    def reader(self, begin: Step) -> "IndexReader":
        """A dataflow that needs the contents at ``begin``; they stay readable until it has read them."""
        reader = IndexReader(self, begin)
        self._readers[reader] = self._unread[reader] = None
        return reader

    def has_read(self, reader: "IndexReader") -> None:
        """The reader will not ask for contents any more."""
        if reader in self._unread:
            del self._unread[reader]
            self._compact_for_readers()

    def forget(self, reader: "IndexReader") -> None:
        self._readers.pop(reader, None)
        self.has_read(reader)
        if not self._readers:
            self._log.clear()

    def _trim(self) -> None:
        """Forgets the batches that every reader has. Once a batch, not once a read: there may be many readers."""
        least = min(reader.position for reader in self._readers)
        while self._log and self._log[0][1] <= least:
            self._log.popleft()

    def _compact_for_readers(self) -> None:
        since = min([self._since, *(Antichain(reader.begin) for reader in self._unread)])
        if MINIMUM < since < CLOSED:
            self.arranged.compact(since)

    async def until_final(self, step: Antichain) -> None:
        """Waits until the upper is beyond ``step``."""
        while not self.upper > step:
            future = asyncio.get_running_loop().create_future()
            self._waiting.append(future)
            await future

    def changes_from(self, lower: Antichain) -> Batch:
        """All updates from ``lower`` to the upper."""
        if self._log and self._log[0][0] <= lower:
            batches = [batch for _, upper, batch in self._log if upper > lower]
            return concat(self.format, batches).split(lower)[1]
        assert lower.step is not None
        # What is being inserted may show already.
        return self.arranged.changes_from(lower.step).split(self.upper)[0]


class IndexReader:
    """An index as one dataflow follows it."""

    def __init__(self, index: IndexExport, begin: Step) -> None:
        self._index = index
        self.begin = begin
        #: Everything before it was read.
        self.position = Antichain(begin)

    async def snapshot(self, at: Step) -> Batch:
        await self._index.until_final(Antichain(at))
        return concat(self._index.format, [piece async for piece in pieces(self._index.arranged, at)])

    async def changes(self, lower: Antichain) -> tuple[Antichain, Batch]:
        await self._index.until_final(lower)
        batch = self._index.changes_from(lower)
        self.position = self._index.upper
        self._index.has_read(self)
        return self._index.upper, batch

    def close(self) -> None:
        self._index.forget(self)


async def pieces(arranged: Arranged, at: Step) -> AsyncIterator[Batch]:
    """All rows piece by piece, while others on the loop have their turns."""
    found = arranged.contents(at)
    while True:
        piece = await asyncio.to_thread(next, found, None) if arranged.in_threads else next(found, None)
        if piece is None:
            return
        yield piece
        await asyncio.sleep(0)
