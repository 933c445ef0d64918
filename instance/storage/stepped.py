"""Stepped sources: what cuts an upstream at steps, whatever the upstream is.

Records are received into a bounded buffer. At each opened step the writer cuts: all that is in the buffer belongs to
that step, and is appended together with the position after it in one commit. With nothing received there is no
commit, only a seal. A writer cuts only at steps that were opened after it had fenced its predecessors, so a step
that one of them told to be empty is never filled.

While no controller is there the writer opens granted steps by itself, if records wait: those are in the shard before
anybody hears of them, because nobody else knows that they are open.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types

from instance.shards.store import Appended, EpochFenced, Shard, ShardStore, UpperMoved
from instance.storage.feed import Batch, Feed, Note
from instance.storage.source import Report, SourceEnded
from instance.storage.steps import Steps
from instance.storage.tables import require_only_added, table_schema
from plainsong.failpoint import failpoint
from plainsong.types import STEP
from reconcile.compute_actions import UpperReported
from reconcile.errors import InvalidRequest, InvariantBroken, PlainsongError, StorageFailed
from reconcile.frontiers import CLOSED, Antichain
from reconcile.ids import GlobalId, Step, WriterEpoch
from reconcile.sources import SourceDescription, differing_fields
from reconcile.storage_actions import RecordsReceived, SourceFares, SourceStopped, StepsCut, Write
from reconcile.storage_protocol import TableSeal

_LOG = logging.getLogger(__name__)

#: What one source receives and has not cut; its upstream waits beyond it.
BUFFER_ROWS_MAX = 200_000
BUFFER_BYTES_MAX = 64 * 1024 * 1024
#: Between two tries to reach an upstream that has trouble.
RETRY_S_MIN = 0.1
RETRY_S_MAX = 30.0
#: How often a growing buffer is told of.
_TELL_S = 0.02

MakeFeed = Callable[[SourceDescription, Note], Feed]


class _Buffer:
    """Batches that wait for the next cut, bounded: whoever adds waits for room."""

    def __init__(self) -> None:
        self._batches: list[Batch] = []
        self._rows = 0
        self._bytes = 0
        self._room = asyncio.Event()
        #: The upstream has nothing more.
        self.ended = False

    @property
    def records(self) -> int:
        """What waits; a batch without rows and the end of the upstream count as well, for they wait too."""
        return max(self._rows, len(self._batches)) + int(self.ended)

    async def put(self, batch: Batch) -> None:
        while self._rows >= BUFFER_ROWS_MAX or self._bytes >= BUFFER_BYTES_MAX:
            self._room.clear()
            await self._room.wait()
        self._batches.append(batch)
        self._rows += batch.rows.num_rows
        self._bytes += batch.rows.nbytes

    def take(self) -> list[Batch]:
        taken, self._batches = self._batches, []
        self._rows = self._bytes = 0
        self._room.set()
        return taken


class SteppedSource:
    """The one writer of a source's shard, for as long as its epoch is not fenced."""

    def __init__(
        self, description: SourceDescription, store: ShardStore, report: Report, *, steps: Steps, make_feed: MakeFeed
    ) -> None:
        self._description = description
        self._store = store
        self._report = report
        self._steps = steps
        self._make_feed = make_feed
        self._note = ""
        self._troubled = False
        self._open_shard: Shard | None = None
        #: There is one exactly while it runs; what it received is in the buffer.
        self._feed: Feed | None = None
        self._buffer = _Buffer()
        self._stirred = asyncio.Event()
        #: Nothing is cut, because whoever asked for it may have been overtaken.
        self._paused = False
        #: Before this every step is cut.
        self._sealed = Antichain.at(0)
        #: When a step may be opened without a controller.
        self._opens_at = 0.0
        #: What runs: the two halves, or what brings them back after a disk failed.
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def _id(self) -> GlobalId:
        return self._description.id

    @property
    def _shard(self) -> Shard:
        if self._open_shard is None:
            raise InvariantBroken(f"source {self._id} was not started")
        return self._open_shard

    @property
    def _writer_epoch(self) -> WriterEpoch:
        if self._description.writer_epoch is None:
            raise InvalidRequest(f"source {self._id} carries no writer epoch", detail="without one it cannot write")
        return self._description.writer_epoch

    # --- life ---------------------------------------------------------------------------------------------

    async def start(self) -> None:
        try:
            self._open_shard = await self._store.open(self._id, table_schema(self._description))
            await self._begin()
        except StorageFailed as error:
            self._trouble(error)
            self._spawn("recovers", self._recover())

    async def _begin(self) -> None:
        """Fences all others, gives the shard the columns that it may lack, then goes on where it stands."""
        outcome = await self._shard.take_over(self._writer_epoch)
        if isinstance(outcome, EpochFenced):
            raise self._fenced(outcome)
        grown = await self._shard.grow(table_schema(self._description), writer_epoch=self._writer_epoch)
        if isinstance(grown, EpochFenced):
            raise self._fenced(grown)
        # Whatever was opened until now may have been told empty by somebody else, and stays empty.
        opened = self._steps.opened
        self._sealed = self._shard.upper if opened is None else max(self._shard.upper, Antichain.at(opened + 1))
        self._report(UpperReported(id=self._id, upper=self._shard.upper))
        self._tell_seal()
        self._report(SourceFares(id=self._id))
        if self._shard.upper.is_closed:
            return
        self._paused, self._troubled, self._buffer = False, False, _Buffer()
        self._feed = self._make_feed(self._description, self._noted)
        self._steps.listen(self._stirred.set)
        self._spawn("receives", self._receive(self._feed))
        self._spawn("cuts", self._cut_steps())

    def _spawn(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, name=f"source {self._id} {name}")
        task.add_done_callback(self._finished)
        self._tasks.append(task)

    async def _recover(self) -> None:
        """Begins anew after a disk failed: what a handle knew, and what was received, does not count any more."""
        wait_s = RETRY_S_MIN
        while True:
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, RETRY_S_MAX)
            try:
                await self._leave()
                self._open_shard = await self._store.open(self._id, table_schema(self._description))
                await self._begin()
                return
            except StorageFailed as error:
                self._trouble(error)

    async def alter(self, description: SourceDescription) -> None:
        """Columns may be added, and its writer epoch may rise.

        Somebody else may have written in between, so it begins anew where the shard stands now.
        """
        fields = [name for name in differing_fields(self._description, description) if name != "columns"]
        if fields:
            raise InvalidRequest(f"{', '.join(fields)} of source {self._id} cannot be altered")
        require_only_added(self._description, description)
        await self.stop()
        self._description = description
        await self.start()

    def pause(self) -> None:
        self._paused = True

    async def write(self, write: Write) -> None:
        raise InvalidRequest(f"source {self._id} fills itself", detail=f"an append with token {write.token!r} came")

    async def read_contents(self) -> None:
        raise InvalidRequest(f"source {self._id} fills itself", detail="its contents were asked for")

    async def compact(self, since: Antichain) -> None:
        if self._open_shard is not None:  # a disk that failed is not asked for more; the since moves again
            await self._open_shard.advance_since(since)

    async def stop(self) -> None:
        """A commit under way is finished; the shard stays as it is, and whoever writes next takes it over."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._leave()

    async def _leave(self) -> None:
        feed, self._feed = self._feed, None
        if feed is not None:
            self._steps.leave(self._stirred.set)
            await feed.close()

    def _finished(self, task: "asyncio.Task[None]") -> None:
        """A source of which one half ended must not look like one that has nothing to say."""
        if task.cancelled() or (error := task.exception()) is None:
            return
        for other in self._tasks:
            other.cancel()
        if isinstance(error, StorageFailed):
            self._trouble(error)
            self._spawn("recovers", self._recover())
            return
        if not isinstance(error, PlainsongError):
            _LOG.error("source %s ended", self._id, exc_info=error)
        self._report(SourceStopped(id=self._id, error=str(error) or type(error).__name__))

    def _fenced(self, fenced: EpochFenced) -> SourceEnded:
        return SourceEnded(
            f"source {self._id} has a newer writer",
            detail=f"ours has writer epoch {self._writer_epoch}, the shard {fenced.writer_epoch}",
        )

    # --- receiving ----------------------------------------------------------------------------------------

    async def _receive(self, feed: Feed) -> None:
        position, wait_s = self._shard.position, RETRY_S_MIN
        while True:
            try:
                await feed.open(position, self._writer_epoch)
                while True:
                    batch = await feed.receive()
                    self._recovered()
                    if batch is None:
                        self._buffer.ended = True
                        self._stirred.set()
                        return
                    await self._buffer.put(batch)
                    # What is in the buffer is not received again, whatever happens to the upstream.
                    position, wait_s = batch.position, RETRY_S_MIN
                    self._stirred.set()
            except (OSError, PlainsongError, pa.ArrowException) as error:
                self._trouble(error)
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, RETRY_S_MAX)

    def _trouble(self, error: Exception) -> None:
        self._troubled = True
        self._report(SourceFares(id=self._id, error=_sendable(str(error) or type(error).__name__)))

    def _noted(self, note: str) -> None:
        note = _sendable(note)
        if note != self._note:
            self._note = note
            if not self._troubled:
                self._report(SourceFares(id=self._id, note=note))

    def _recovered(self) -> None:
        if self._troubled:
            self._troubled = False
            self._report(SourceFares(id=self._id, note=self._note))

    # --- cutting ------------------------------------------------------------------------------------------

    async def _cut_steps(self) -> None:
        told, tell_at = 0, 0.0
        loop = asyncio.get_running_loop()
        while not self._sealed.is_closed:
            step = self._due()
            if step is not None:
                await self._cut(step)
                told, tell_at = 0, 0.0
                continue
            waits = self._buffer.records
            if waits > told and loop.time() >= tell_at:
                # Only between cuts: so there is one step at a time under way for each source.
                told, tell_at = waits, loop.time() + _TELL_S
                self._report(RecordsReceived(id=self._id, step=self._next, received=waits))
            await self._stir(tell_at if waits > told else None)

    @property
    def _next(self) -> Step:
        """The first step that is not cut."""
        if self._sealed.step is None:
            raise InvariantBroken(f"source {self._id} is finished and has no next step")
        return self._sealed.step

    def _due(self) -> Step | None:
        """The step to cut at now."""
        if self._paused:
            return None
        opened, granted = self._steps.opened, self._steps.granted
        if opened is not None and opened >= self._next:
            return opened
        if granted is None or self._next > granted or not self._buffer.records:
            return None
        return self._next if asyncio.get_running_loop().time() >= self._may_open_at() else None

    def _may_open_at(self) -> float:
        return max(self._opens_at, self._steps.changed_at + self._steps.every_s)

    async def _stir(self, until: float | None) -> None:
        """Waits until there may be something to do, at ``until`` at the latest."""
        granted = self._steps.granted
        deadlines = [] if until is None else [until]
        if granted is not None and self._next <= granted and self._buffer.records and not self._paused:
            deadlines.append(self._may_open_at())
        self._stirred.clear()
        try:
            async with asyncio.timeout_at(min(deadlines, default=None)):
                await self._stirred.wait()
        except TimeoutError:
            pass

    async def _cut(self, step: Step) -> None:
        batches, ended = self._buffer.take(), self._buffer.ended
        self._opens_at = asyncio.get_running_loop().time() + self._steps.every_s
        if not batches and not ended:
            self._sealed = Antichain.at(step + 1)
            self._tell_seal()
            return
        upper = CLOSED if ended else Antichain.at(step + 1)
        failpoint("source-before-append")
        outcome = await self._shard.compare_and_append(
            expected=self._shard.upper,
            upper=upper,
            updates=_stamped(batches, step),
            writer_epoch=self._writer_epoch,
            token="",
            position=batches[-1].position if batches else None,
        )
        failpoint("source-after-append")
        match outcome:
            case Appended():
                self._sealed = upper
                self._report(UpperReported(id=self._id, upper=upper))
                self._tell_seal()
            case EpochFenced():
                raise self._fenced(outcome)
            case UpperMoved(upper=moved):
                raise InvariantBroken(f"somebody else wrote to {self._id} up to {moved} under our writer epoch")

    def _tell_seal(self) -> None:
        self._report(StepsCut(seal=TableSeal(id=self._id, durable=self._shard.upper, upper=self._sealed)))


def _sendable(text: str) -> str:
    """What people are told may hold names of files, which need not be Unicode."""
    return text.encode("utf-8", errors="backslashreplace").decode()


def _stamped(batches: list[Batch], step: Step) -> pa.Table | None:
    """All rows of the batches, at ``step``; ``None`` if there are none."""
    tables = [batch.rows for batch in batches if batch.rows.num_rows]
    if not tables:
        return None
    rows = pa.concat_tables(tables)
    steps = pa.repeat(pa.scalar(step, pa.int64()), rows.num_rows)
    return rows.append_column(pa.field(STEP, pa.int64(), nullable=False), steps)
