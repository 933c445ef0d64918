"""A stepped source cuts its upstream at the steps that are open, and holds no more than it may."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types
import pytest

from instance.shards.simulated import SimulatedDisk, SimulatedShardStore
from instance.storage import stepped
from instance.storage.feed import Batch, Note
from instance.storage.stepped import SteppedSource
from instance.storage.steps import Steps
from plainsong.types import DIFF
from reconcile.errors import InvalidRequest, StorageFailed
from reconcile.frontiers import CLOSED, MINIMUM, Antichain
from reconcile.ids import GlobalId, Step, WriterEpoch
from reconcile.sources import SourceDescription
from reconcile.storage_actions import RecordsReceived, SourceFares, SourceStopped, StepsCut, StorageReport
from reconcile.storage_protocol import OpenStep

S1 = GlobalId("s", 1)


def described(epoch: int, *added: str, path: str = "/a") -> SourceDescription:
    columns = json.dumps([["id", "bigint", True], *([name, "string", False] for name in added)])
    definition = (("path", path), ("columns", columns))
    return SourceDescription(id=S1, definition=definition, writer_epoch=WriterEpoch(epoch))


class NumberFeed:
    """Numbers in a row, as many as it is allowed to give."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._next = 0

    async def open(self, position: str, _writer_epoch: WriterEpoch) -> None:
        self._next = int(position or 0)

    async def receive(self) -> Batch | None:
        world = self._world
        while self._next >= world.available:
            if world.ends:
                return None
            world.more.clear()
            await world.more.wait()
        first = self._next
        self._next = min(world.available, first + world.batch_rows)
        world.received += self._next - first
        ids = pa.array(range(first, self._next), pa.int64())
        rows = pa.table({"id": ids, DIFF: pa.repeat(pa.scalar(1, pa.int64()), len(ids))})
        return Batch(rows=rows, position=str(self._next))

    async def close(self) -> None: ...


class World:
    """One disk, and the processes that write to it one after the other."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk()
        self.steps = Steps()
        self.available = 0
        self.received = 0
        self.ends = False
        self.batch_rows = 10
        self.more = asyncio.Event()
        self.reports: list[StorageReport] = []
        self._reported = asyncio.Event()

    def give(self, rows: int) -> None:
        self.available += rows
        self.more.set()

    def open(self, step: int, granted: int = 0, every_ms: int = 10) -> None:
        self.steps.open(OpenStep(step=Step(step), granted=Step(max(step, granted)), every_ms=every_ms))

    def report(self, report: StorageReport) -> None:
        self.reports.append(report)
        self._reported.set()

    @asynccontextmanager
    async def writer(self, epoch: int = 1, store: SimulatedShardStore | None = None) -> AsyncIterator[SteppedSource]:
        def feed(_description: SourceDescription, _note: Note) -> NumberFeed:
            return NumberFeed(self)

        used = store or SimulatedShardStore(self.disk)
        source = SteppedSource(described(epoch), used, self.report, steps=self.steps, make_feed=feed)
        await source.start()
        try:
            yield source
        finally:
            await source.stop()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not condition():
                self._reported.clear()
                await self._reported.wait()

    async def sealed(self, upper: Antichain) -> None:
        await self.until(lambda: any(isinstance(r, StepsCut) and r.seal.upper >= upper for r in self.reports))

    async def waits(self, records: int) -> None:
        await self.until(lambda: any(isinstance(r, RecordsReceived) and r.received >= records for r in self.reports))

    async def contents(self) -> list[tuple[int, int]]:
        """Each number with its step."""
        shard = await SimulatedShardStore(self.disk).open(S1, pa.schema([pa.field("id", pa.int64(), nullable=False)]))
        rows = await shard.read(MINIMUM, await shard.refresh())
        return sorted((row["id"], row["_step"]) for row in rows.to_pylist())

    @property
    def commits(self) -> int:
        return len(self.disk.shards[S1].batches)


@pytest.mark.asyncio
async def test_what_was_received_is_cut_at_the_step_and_the_rest_at_the_next() -> None:
    world = World()
    world.open(3)
    async with world.writer():
        await world.sealed(Antichain.at(4))
        world.give(5)
        await world.waits(5)

        world.open(4)
        await world.sealed(Antichain.at(5))
        world.give(2)
        await world.waits(2)
        world.open(9)
        await world.sealed(Antichain.at(10))

        assert await world.contents() == [(n, 4) for n in range(5)] + [(5, 9), (6, 9)]


@pytest.mark.asyncio
async def test_steps_at_which_nothing_came_are_told_and_not_written() -> None:
    world = World()
    async with world.writer():
        for step in range(1, 20):
            world.open(step)
            await world.sealed(Antichain.at(step + 1))

        assert world.commits == 0


@pytest.mark.asyncio
async def test_the_end_of_the_upstream_closes_the_shard_with_the_last_rows() -> None:
    world = World()
    world.ends = True
    async with world.writer():
        world.give(25)
        await world.waits(26)  # the end counts too, so that somebody opens a step for it
        world.open(1)
        await world.sealed(CLOSED)

        assert await world.contents() == [(n, 1) for n in range(25)]
    async with world.writer(epoch=2):
        await world.sealed(CLOSED)


@pytest.mark.asyncio
async def test_however_fast_the_upstream_is_no_more_is_held_than_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stepped, "BUFFER_ROWS_MAX", 100)
    world = World()
    world.give(10_000)
    async with world.writer():
        for step in range(1, 6):
            await world.until(lambda: world.received - len(_numbers(world)) >= 100)
            # The one that waits for room is the last that was asked for.
            for _ in range(50):
                await asyncio.sleep(0)
            assert world.received - len(_numbers(world)) <= 100 + world.batch_rows

            world.open(step)
            await world.sealed(Antichain.at(step + 1))

        numbers = _numbers(world)
        assert numbers == list(range(len(numbers)))
        assert len(numbers) >= 500


def _numbers(world: World) -> list[int]:
    shard = world.disk.shards.get(S1)
    return [] if shard is None else [n for batch in shard.batches for n in batch["id"].to_pylist()]


@pytest.mark.asyncio
async def test_a_source_that_is_held_up_takes_all_steps_that_were_opened_meanwhile_at_once() -> None:
    world = World()
    world.give(5)
    async with world.writer() as source:
        await world.waits(5)
        source.pause()
        for step in range(1, 50):
            world.open(step)
        assert world.commits == 0
        await source.alter(described(2))
        await world.waits(5)
        world.open(50)
        await world.sealed(Antichain.at(51))

        assert await world.contents() == [(n, 50) for n in range(5)]
        assert world.commits == 1


@pytest.mark.asyncio
async def test_a_source_altered_by_a_column_goes_on_where_it_stood() -> None:
    world = World()
    world.open(1)
    world.give(5)
    async with world.writer() as source:
        await world.waits(5)
        world.open(2)
        await world.sealed(Antichain.at(3))
        source.pause()

        await source.alter(described(1, "note"))
        world.give(3)
        await world.waits(3)
        world.open(3)
        await world.sealed(Antichain.at(4))

        assert await world.contents() == [*((n, 2) for n in range(5)), *((n, 3) for n in range(5, 8))]
        assert world.disk.shards[S1].schema.names == ["id", "note", "_step", "_diff"]


@pytest.mark.asyncio
async def test_a_source_is_altered_in_nothing_but_added_columns() -> None:
    world = World()
    async with world.writer() as source:
        with pytest.raises(InvalidRequest, match="path of source s1 cannot be altered"):
            await source.alter(described(1, path="/b"))
        await source.alter(described(1, "note"))
        with pytest.raises(InvalidRequest, match="'note' would be gone"):
            await source.alter(described(1, "remark"))

        assert world.disk.shards[S1].schema.names == ["id", "note", "_step", "_diff"]


@pytest.mark.asyncio
async def test_without_a_controller_granted_steps_are_opened_one_after_the_other_and_no_further() -> None:
    world = World()
    world.batch_rows = 1
    world.open(5, granted=8, every_ms=1)
    async with world.writer():
        await world.sealed(Antichain.at(6))
        world.steps.set_unattended(True)
        for number in range(3):
            world.give(1)
            await world.sealed(Antichain.at(7 + number))
        world.give(4)
        for _ in range(200):
            await asyncio.sleep(0)

        assert await world.contents() == [(0, 6), (1, 7), (2, 8)]
        world.steps.set_unattended(False)
        world.open(9)
        await world.sealed(Antichain.at(10))
        assert [number for number, _ in await world.contents()] == list(range(7))


@pytest.mark.asyncio
async def test_without_a_controller_and_without_records_no_step_is_used() -> None:
    world = World()
    world.open(5, granted=50, every_ms=0)
    async with world.writer():
        await world.sealed(Antichain.at(6))
        world.steps.set_unattended(True)
        for _ in range(200):
            await asyncio.sleep(0)

        assert all(r.seal.upper <= Antichain.at(6) for r in world.reports if isinstance(r, StepsCut))


@pytest.mark.asyncio
async def test_a_writer_leaves_alone_every_step_that_was_open_before_it_began() -> None:
    world = World()
    world.give(3)
    world.open(7)
    async with world.writer(epoch=4):
        # Whoever wrote before may have told that nothing happens there.
        await world.sealed(Antichain.at(8))
        await world.waits(3)
        world.open(8)
        await world.sealed(Antichain.at(9))

        assert await world.contents() == [(n, 8) for n in range(3)]


@pytest.mark.asyncio
async def test_a_fenced_writer_ends_and_its_successor_goes_on_after_the_last_commit() -> None:
    world = World()
    world.give(5)
    async with world.writer(epoch=1):
        await world.waits(5)
        world.open(1)
        await world.sealed(Antichain.at(2))
        world.give(5)
        await world.waits(5)
        async with world.writer(epoch=2):
            world.open(2)
            await world.until(lambda: any(isinstance(r, SourceStopped) for r in world.reports))
            await world.sealed(Antichain.at(3))
            world.reports.clear()
            world.open(3)
            await world.sealed(Antichain.at(4))

            assert [number for number, _ in await world.contents()] == list(range(10))


class FailingStore(SimulatedShardStore):
    """A disk that fails now and then, as a full one does."""

    failures = 0

    async def open(self, id: GlobalId, schema: pa.Schema):  # type: ignore[no-untyped-def]  # wraps what it opens
        self._fail()
        shard = await super().open(id, schema)
        append = shard.compare_and_append

        async def compare_and_append(**about):  # type: ignore[no-untyped-def]
            self._fail()
            return await append(**about)

        shard.compare_and_append = compare_and_append  # type: ignore[method-assign]
        return shard

    def _fail(self) -> None:
        if self.failures:
            self.failures -= 1
            raise StorageFailed("the disk is full")


@pytest.mark.asyncio
async def test_a_source_whose_disk_failed_begins_anew_where_its_shard_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stepped, "RETRY_S_MIN", 0.001)
    world = World()
    store = FailingStore(world.disk)
    store.failures = 2
    world.give(5)
    async with world.writer(store=store):
        await world.waits(5)
        store.failures = 3
        world.open(1)
        await world.until(lambda: world.reports.count(SourceFares(id=S1, error="the disk is full")) == 5)
        world.reports.clear()
        await world.waits(5)
        world.open(2)
        await world.sealed(Antichain.at(3))

        assert await world.contents() == [(n, 2) for n in range(5)]
