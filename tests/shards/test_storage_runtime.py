"""What the storage runtime promises the storage reconciler."""

import asyncio
import json
from typing import Any, cast

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types
import pytest
import pytest_asyncio

from instance.shards.store import Appended, AppendOutcome, Shard, ShardStore
from instance.storage import runtime as runtime_module
from instance.storage.runtime import StorageRuntime
from plainsong.arrow_updates import ArrowUpdates
from reconcile.compute_actions import UpperReported
from reconcile.errors import StorageFailed
from reconcile.frontiers import CLOSED, MINIMUM, Antichain
from reconcile.ids import GlobalId, Step, WriterEpoch
from reconcile.sources import SourceDescription
from reconcile.storage_actions import (
    AlterSource,
    AppendDurable,
    CompactShard,
    ContentsRead,
    NoteSeals,
    OpenSteps,
    ReadContents,
    RunSource,
    SetSinks,
    SourceFares,
    SourceStopped,
    StopSource,
    StorageReport,
    Write,
)
from reconcile.storage_protocol import OpenStep, RunSinks, TableSeal
from reconcile.updates import Update, UpdateList
from tests.shards.conftest import MakeStore
from tests.shards.rows import COLUMNS, Row, listed, updates

S1 = GlobalId("s", 1)


def at(step: int) -> Antichain:
    return Antichain.at(step)


def table(
    epoch: int | None = 1, *, id: GlobalId = S1, columns: object = None, type: str = "table"
) -> SourceDescription:
    wanted = columns or [["name", "string", False], ["amount", "bigint", False]]
    return SourceDescription(
        id=id,
        definition=(("type", type), ("columns", json.dumps(wanted))),
        writer_epoch=None if epoch is None else WriterEpoch(epoch),
    )


def write(upper: int | None, *rows: Row, token: str, id: GlobalId = S1) -> Write:
    frontier = CLOSED if upper is None else at(upper)
    return Write(id=id, upper=frontier, updates=ArrowUpdates.of(updates(*rows)), token=token)


class Reports:
    """What a runtime reported, in order, to be awaited."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[StorageReport] = asyncio.Queue()

    def __call__(self, report: StorageReport) -> None:
        self._queue.put_nowait(report)

    async def next(self, count: int) -> list[StorageReport]:
        return [await asyncio.wait_for(self._queue.get(), 10) for _ in range(count)]

    def nothing_more(self) -> bool:
        return self._queue.empty()


@pytest_asyncio.fixture
async def reports() -> Reports:
    return Reports()


async def shard_of(store: ShardStore) -> Shard:
    return await store.open(S1, COLUMNS)


@pytest.mark.asyncio
async def test_a_table_starts_where_its_shard_stands(make_store: MakeStore, reports: Reports) -> None:
    before = await shard_of(make_store())
    await before.compare_and_append(expected=MINIMUM, upper=at(7), updates=None, writer_epoch=None, token="")
    runtime = StorageRuntime(make_store(), reports)

    runtime.perform(RunSource(source=table()))

    assert await reports.next(1) == [UpperReported(id=S1, upper=at(7))]
    assert await before.refresh() == at(7)
    assert before.writer_epoch == 1
    await runtime.close()


@pytest.mark.asyncio
async def test_a_write_is_acknowledged_when_it_is_in_the_shard(make_store: MakeStore, reports: Reports) -> None:
    runtime = StorageRuntime(make_store(), reports)

    runtime.perform(RunSource(source=table()))
    runtime.perform(write(3, ("a", 1, 0, 1), ("b", 2, 2, 1), token="x"))
    runtime.perform(write(9, ("a", 1, 8, -1), token="y"))

    assert await reports.next(5) == [
        UpperReported(id=S1, upper=MINIMUM),
        UpperReported(id=S1, upper=at(3)),
        AppendDurable(id=S1, token="x"),
        UpperReported(id=S1, upper=at(9)),
        AppendDurable(id=S1, token="y"),
    ]
    shard = await shard_of(make_store())
    assert listed(await shard.read(MINIMUM, at(9))) == [("a", 1, 0, 1), ("a", 1, 8, -1), ("b", 2, 2, 1)]
    await runtime.close()


@pytest.mark.asyncio
async def test_a_write_whose_reply_was_lost_is_acknowledged_again_and_written_once(
    make_store: MakeStore, reports: Reports
) -> None:
    first = StorageRuntime(make_store(), reports)
    first.perform(RunSource(source=table()))
    first.perform(write(1, ("a", 1, 0, 1), token="x"))
    first.perform(write(5, ("b", 1, 4, 1), token="y"))
    await reports.next(5)
    await first.close()

    again = StorageRuntime(make_store(), reports)
    again.perform(RunSource(source=table(2)))
    again.perform(write(1, ("a", 1, 0, 1), token="x"))

    assert await reports.next(3) == [
        UpperReported(id=S1, upper=at(5)),
        UpperReported(id=S1, upper=at(5)),
        AppendDurable(id=S1, token="x"),
    ]
    assert listed(await (await shard_of(make_store())).snapshot(Step(4))) == [("a", 1, 1), ("b", 1, 1)]
    await again.close()


@pytest.mark.asyncio
async def test_a_write_repeated_at_a_later_step_is_written_once_and_completes_the_shard(
    make_store: MakeStore, reports: Reports
) -> None:
    runtime = StorageRuntime(make_store(), reports)
    runtime.perform(RunSource(source=table()))
    runtime.perform(write(1, ("a", 1, 0, 1), token="x"))

    runtime.perform(write(6, ("a", 1, 5, 1), token="x"))

    assert (await reports.next(5))[3:] == [UpperReported(id=S1, upper=at(6)), AppendDurable(id=S1, token="x")]
    shard = await shard_of(make_store())
    assert shard.upper == at(6)
    assert listed(await shard.read(MINIMUM, at(6))) == [("a", 1, 0, 1)]
    await runtime.close()


@pytest.mark.asyncio
async def test_empty_progress_that_was_made_already_is_acknowledged(make_store: MakeStore, reports: Reports) -> None:
    before = await shard_of(make_store())
    await before.compare_and_append(expected=MINIMUM, upper=at(7), updates=None, writer_epoch=None, token="")
    runtime = StorageRuntime(make_store(), reports)

    runtime.perform(RunSource(source=table()))
    runtime.perform(write(7, token="x"))
    runtime.perform(write(3, token="y"))

    assert [report for report in await reports.next(5) if isinstance(report, AppendDurable)] == [
        AppendDurable(id=S1, token="x"),
        AppendDurable(id=S1, token="y"),
    ]
    await runtime.close()


@pytest.mark.asyncio
async def test_a_fenced_writer_stops_and_writes_nothing(make_store: MakeStore, reports: Reports) -> None:
    old, new_reports = StorageRuntime(make_store(), reports), Reports()
    old.perform(RunSource(source=table(1)))
    old.perform(write(1, ("a", 1, 0, 1), token="x"))
    await reports.next(3)
    new = StorageRuntime(make_store(), new_reports)
    new.perform(RunSource(source=table(2)))
    await new_reports.next(1)

    old.perform(write(2, ("b", 1, 1, 1), token="y"))
    old.perform(write(3, ("c", 1, 2, 1), token="z"))
    [stopped] = await reports.next(1)
    new.perform(write(2, ("d", 1, 1, 1), token="w"))
    await new_reports.next(2)
    late = StorageRuntime(make_store(), reports)
    late.perform(RunSource(source=table(1)))

    assert isinstance(stopped, SourceStopped)
    assert "newer writer" in stopped.error
    assert [type(report) for report in await reports.next(1)] == [SourceStopped]
    assert listed(await (await shard_of(make_store())).snapshot(Step(1))) == [("a", 1, 1), ("d", 1, 1)]
    for runtime in (old, new, late):
        await runtime.close()
    assert reports.nothing_more()


NOTED = [["name", "string", False], ["amount", "bigint", False], ["note", "string", False]]


@pytest.mark.asyncio
async def test_a_table_altered_by_a_column_goes_on_and_takes_rows_with_and_without_it(
    make_store: MakeStore, reports: Reports
) -> None:
    runtime = StorageRuntime(make_store(), reports)
    runtime.perform(RunSource(source=table()))
    runtime.perform(write(1, ("a", 1, 0, 1), token="x"))

    runtime.perform(AlterSource(source=table(columns=NOTED)))
    runtime.perform(write(2, ("b", 2, 1, 1), token="y"))  # on its way before anybody knew of the column
    noted = updates(("c", 3, 2, 1)).append_column("note", pa.array(["new"]))
    runtime.perform(Write(id=S1, upper=at(3), updates=ArrowUpdates.of(noted), token="z"))

    assert [r for r in await reports.next(7) if not isinstance(r, UpperReported)] == [
        AppendDurable(id=S1, token=token) for token in "xyz"
    ]
    shard = await shard_of(make_store())
    assert listed(await shard.snapshot(Step(2))) == [("a", 1, None, 1), ("b", 2, None, 1), ("c", 3, "new", 1)]
    await runtime.close()


@pytest.mark.asyncio
async def test_a_table_that_starts_with_more_columns_than_its_shard_gives_it_them(
    make_store: MakeStore, reports: Reports
) -> None:
    await shard_of(make_store())
    runtime = StorageRuntime(make_store(), reports)

    runtime.perform(RunSource(source=table(columns=NOTED)))

    await reports.next(1)
    assert (await shard_of(make_store())).schema.names == ["name", "amount", "note", "_step", "_diff"]
    await runtime.close()


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ([["name", "string", False]], "'amount' would be gone"),
        ([["name", "string", False], ["sum", "bigint", False]], "'amount' would be gone or have another name"),
        ([["name", "string", False], ["amount", "int", False]], "'amount' would change its type"),
        ([["name", "string", True], ["amount", "bigint", False]], "'name' would change its type, or whether"),
        ([*NOTED[:2], ["note", "string", True]], "'note' is added as not null"),
    ],
)
@pytest.mark.asyncio
async def test_a_table_altered_otherwise_ends_with_the_reason_and_its_shard_stays(
    make_store: MakeStore, reports: Reports, columns: object, why: str
) -> None:
    runtime = StorageRuntime(make_store(), reports)
    runtime.perform(RunSource(source=table()))
    await reports.next(1)

    runtime.perform(AlterSource(source=table(columns=columns)))

    (stopped,) = await reports.next(1)
    assert isinstance(stopped, SourceStopped)
    assert stopped.error.startswith("the columns of s1 cannot be altered")
    assert why in stopped.error
    assert (await shard_of(make_store())).schema.names == ["name", "amount", "_step", "_diff"]
    await runtime.close()


@pytest.mark.asyncio
async def test_a_table_altered_to_a_higher_epoch_writes_with_it(make_store: MakeStore, reports: Reports) -> None:
    runtime = StorageRuntime(make_store(), reports)
    runtime.perform(RunSource(source=table(1)))
    runtime.perform(AlterSource(source=table(4)))
    runtime.perform(write(1, token="x"))

    assert (await reports.next(3))[-1] == AppendDurable(id=S1, token="x")
    assert (await shard_of(make_store())).writer_epoch == 4
    await runtime.close()


@pytest.mark.asyncio
async def test_a_write_accepted_too_early_is_refused_whole_and_later_ones_go_on(
    make_store: MakeStore, reports: Reports
) -> None:
    before = await shard_of(make_store())
    await before.compare_and_append(expected=MINIMUM, upper=at(7), updates=None, writer_epoch=None, token="")
    runtime = StorageRuntime(make_store(), reports)

    runtime.perform(RunSource(source=table()))
    runtime.perform(write(5, ("late", 1, 4, 1), token="x"))
    runtime.perform(write(8, ("late", 1, 6, 1), ("early", 1, 7, 1), token="y"))
    runtime.perform(write(9, ("fine", 1, 8, 1), token="z"))
    told = await reports.next(7)

    assert [report for report in told if isinstance(report, AppendDurable)] == [AppendDurable(id=S1, token="z")]
    assert [type(report) for report in told].count(SourceStopped) == 2
    await before.refresh()
    assert listed(await before.snapshot(Step(8))) == [("fine", 1, 1)]
    await runtime.close()


@pytest.mark.asyncio
async def test_nulls_are_refused_where_the_table_forbids_them(store: ShardStore, reports: Reports) -> None:
    runtime = StorageRuntime(store, reports)
    runtime.perform(RunSource(source=table(columns=[["name", "string", True], ["amount", "bigint", False]])))
    runtime.perform(write(1, ("a", 1, 0, 1), (None, 1, 0, 1), token="x"))
    runtime.perform(write(2, ("b", None, 1, 1), token="y"))

    told = await reports.next(4)

    assert told[1] == SourceStopped(id=S1, error="an append to s1 up to 1 was refused; column name must not be null")
    assert told[3] == AppendDurable(id=S1, token="y")
    assert listed(await (await shard_of(store)).snapshot(Step(1))) == [("b", None, 1)]
    await runtime.close()


@pytest.mark.asyncio
async def test_contents_are_read_after_the_writes_before_them(make_store: MakeStore, reports: Reports) -> None:
    runtime = StorageRuntime(make_store(), reports)
    runtime.perform(RunSource(source=table()))
    runtime.perform(ReadContents(id=S1))
    runtime.perform(write(2, ("a", 1, 0, 2), ("b", None, 1, 1), token="x"))
    runtime.perform(ReadContents(id=S1))
    runtime.perform(CompactShard(id=S1, since=at(30)))  # sealed far beyond its shard
    runtime.perform(ReadContents(id=S1))

    contents = [report for report in await reports.next(6) if isinstance(report, ContentsRead)]
    assert [sorted(read.rows, key=repr) for read in contents] == [
        [],
        [("a", 1), ("a", 1), ("b", None)],
        [("a", 1), ("a", 1), ("b", None)],
    ]
    await runtime.close()


@pytest.mark.asyncio
async def test_the_changes_of_a_snapshot_are_written_like_any_other(make_store: MakeStore, reports: Reports) -> None:
    changes = UpdateList((Update(step=Step(0), row=("a", 1)), Update(step=Step(0), row=(None, None), diff=2)))
    runtime = StorageRuntime(make_store(), reports)
    runtime.perform(RunSource(source=table()))
    runtime.perform(Write(id=S1, upper=at(1), updates=changes, token="x"))
    runtime.perform(Write(id=S1, upper=at(2), updates=UpdateList(), token="y"))

    assert (await reports.next(5))[-1] == AppendDurable(id=S1, token="y")
    assert listed(await (await shard_of(make_store())).snapshot(Step(1))) == [("a", 1, 1), (None, None, 2)]
    await runtime.close()


@pytest.mark.asyncio
async def test_a_closed_table_takes_no_more_and_keeps_its_contents(make_store: MakeStore, reports: Reports) -> None:
    runtime = StorageRuntime(make_store(), reports)
    runtime.perform(RunSource(source=table()))
    runtime.perform(write(None, ("a", 1, 3, 1), token="x"))
    runtime.perform(write(9, ("b", 1, 8, 1), token="y"))
    runtime.perform(ReadContents(id=S1))

    told = await reports.next(6)
    assert told[1] == UpperReported(id=S1, upper=CLOSED)
    assert told[-1] == ContentsRead(id=S1, rows=(("a", 1),))
    assert AppendDurable(id=S1, token="y") not in told
    await runtime.close()


@pytest.mark.asyncio
async def test_a_since_is_durable_and_a_stopped_source_can_run_again(make_store: MakeStore, reports: Reports) -> None:
    runtime = StorageRuntime(make_store(), reports)
    runtime.perform(RunSource(source=table(1)))
    runtime.perform(write(9, token="x"))
    runtime.perform(CompactShard(id=S1, since=at(4)))
    runtime.perform(StopSource(id=S1))
    runtime.perform(write(10, token="ignored"))
    runtime.perform(RunSource(source=table(2)))
    runtime.perform(write(11, token="y"))

    told = await reports.next(6)
    assert told[3:] == [
        UpperReported(id=S1, upper=at(9)),
        UpperReported(id=S1, upper=at(11)),
        AppendDurable(id=S1, token="y"),
    ]
    assert (await shard_of(make_store())).since == at(4)
    await runtime.close()


@pytest.mark.parametrize(
    ("source", "error"),
    [
        (table(type="carrier-pigeon"), "unknown type 'carrier-pigeon'"),
        (table(None), "carries no writer epoch"),
        (table(columns=[["a", "blob", False]]), "type 'blob' is unknown"),
        (table(columns="nothing"), "cannot be read"),
    ],
    ids=["type", "epoch", "column", "columns"],
)
@pytest.mark.asyncio
async def test_a_source_that_cannot_run_says_why(
    store: ShardStore, reports: Reports, source: SourceDescription, error: str
) -> None:
    runtime = StorageRuntime(store, reports)

    runtime.perform(RunSource(source=source))
    [stopped] = await reports.next(1)

    assert isinstance(stopped, SourceStopped)
    assert error in stopped.error
    await runtime.close()


@pytest.mark.asyncio
async def test_one_table_that_fails_leaves_the_others_alone(store: ShardStore, reports: Reports) -> None:
    runtime = StorageRuntime(store, reports)
    others = [GlobalId("s", number) for number in range(2, 6)]
    runtime.perform(RunSource(source=table(type="carrier-pigeon")))
    for id in others:
        runtime.perform(RunSource(source=table(id=id)))
        runtime.perform(write(1, ("a", 1, 0, 1), token=str(id), id=id))

    told = await reports.next(1 + 3 * len(others))

    durable = {report.id for report in told if isinstance(report, AppendDurable)}
    assert durable == set(others)
    await runtime.close()


@pytest.mark.asyncio
async def test_seals_are_passed_on_and_steps_and_sinks_do_nothing_to_tables(
    store: ShardStore, reports: Reports
) -> None:
    noted = list[TableSeal]()
    runtime = StorageRuntime(store, reports, note_seals=noted.extend)
    seal = TableSeal(id=S1, durable=at(1), upper=at(2))

    runtime.perform(OpenSteps(opened=OpenStep(step=Step(1), granted=Step(1), every_ms=1)))
    runtime.perform(SetSinks(sinks=RunSinks(sinks=())))
    runtime.perform(NoteSeals(seals=(seal,)))

    assert noted == [seal]
    await runtime.close()


@pytest.mark.asyncio
async def test_closing_finishes_the_commit_under_way(make_store: MakeStore, reports: Reports) -> None:
    runtime = StorageRuntime(make_store(), reports)
    runtime.perform(RunSource(source=table()))
    await reports.next(1)
    runtime.perform(write(1, ("a", 1, 0, 1), token="x"))
    await asyncio.sleep(0)

    await runtime.close()

    shard = await shard_of(make_store())
    outcome = await shard.compare_and_append(
        expected=shard.upper, upper=at(5), updates=None, writer_epoch=WriterEpoch(1), token="z"
    )
    assert outcome == Appended(upper=at(5))


class FailingStore:
    """A store whose disk fails as often as it is told to, at opening and at writing by turns."""

    def __init__(self, inner: ShardStore, failures: int) -> None:
        self._inner = inner
        self.failures = failures
        self.tried = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def fail(self) -> None:
        if self.failures:
            self.failures -= 1
            self.tried += 1
            raise StorageFailed("shard s1 failed", detail="no space left on device")

    async def open(self, id: GlobalId, schema: pa.Schema) -> Shard:
        if self.tried % 2:
            self.fail()
        return cast(Shard, FailingShard(await self._inner.open(id, schema), self))


class FailingShard:
    def __init__(self, inner: Shard, store: FailingStore) -> None:
        self._inner = inner
        self._store = store

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    async def compare_and_append(self, **append: Any) -> AppendOutcome:
        self._store.fail()
        return await self._inner.compare_and_append(**append)


@pytest.mark.asyncio
async def test_a_write_that_a_disk_refused_is_durable_once_the_disk_is_well(
    make_store: MakeStore, reports: Reports, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime_module, "RETRY_S_MIN", 0.001)
    store = FailingStore(make_store(), failures=5)
    runtime = StorageRuntime(cast(ShardStore, store), reports)
    runtime.perform(RunSource(source=table()))
    runtime.perform(write(3, ("a", 1, 0, 1), token="x"))
    runtime.perform(write(4, ("b", 1, 3, 1), token="y"))

    heard: list[StorageReport] = []
    while AppendDurable(id=S1, token="y") not in heard:
        heard += await reports.next(1)

    fares = [report for report in heard if isinstance(report, SourceFares)]
    assert [bool(report.error) for report in fares] == [True] * 5 + [False]
    assert all("no space left on device" in report.error for report in fares[:5])
    assert not any(isinstance(report, SourceStopped) for report in heard)
    durable = [report for report in heard if isinstance(report, AppendDurable)]
    assert durable == [AppendDurable(id=S1, token="x"), AppendDurable(id=S1, token="y")]
    shard = await shard_of(make_store())
    assert listed(await shard.read(MINIMUM, at(4))) == [("a", 1, 0, 1), ("b", 1, 3, 1)]
    await runtime.close()


@pytest.mark.parametrize("begins_anew", [True, False])
@pytest.mark.asyncio
async def test_a_table_on_a_bad_disk_can_be_stopped_and_run_anew(
    make_store: MakeStore, reports: Reports, begins_anew: bool
) -> None:
    store = FailingStore(make_store(), failures=10**6)
    runtime = StorageRuntime(cast(ShardStore, store), reports)
    runtime.perform(RunSource(source=table()))
    runtime.perform(write(3, ("a", 1, 0, 1), token="x"))
    heard = await reports.next(2)
    assert isinstance(heard[-1], SourceFares)

    runtime.perform(StopSource(id=S1))
    if begins_anew:
        store.failures = 0
        runtime.perform(RunSource(source=table(2)))
        runtime.perform(write(3, ("b", 1, 0, 1), token="y"))
        while AppendDurable(id=S1, token="y") not in heard:
            heard += await reports.next(1)

    await runtime.close()
    held = await shard_of(make_store())
    assert held.upper == (at(3) if begins_anew else MINIMUM)
