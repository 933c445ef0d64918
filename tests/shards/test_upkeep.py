"""What every shard store promises about compaction, holds and told progress."""

import asyncio
from typing import cast

import pytest

from instance.inputs import NotReadable
from instance.shards.compaction import COMPACTION_BYTES_MAX, compaction_due
from instance.shards.delta_log import AddedFile
from instance.shards.maintenance import maintain, maintained
from instance.shards.rules import DEFAULT_RULES, UpkeepRules
from instance.shards.store import Appended, EpochFenced, Shard, ShardStore, UpperMoved
from instance.storage.readers import ShardInputs
from reconcile.errors import InvariantBroken
from reconcile.frontiers import CLOSED, MINIMUM, Antichain
from reconcile.ids import GlobalId, Step, WriterEpoch
from tests.shards.conftest import MakeStore
from tests.shards.rows import COLUMNS, Row, contents, listed, updates

S1 = GlobalId("s", 1)
#: Seconds after which nothing is spared any more.
LATER = 10_000.0
EAGER = UpkeepRules(tier_files_max=2, history_rows_min=1)


def at(step: int) -> Antichain:
    return Antichain.at(step)


async def append(shard: Shard, upper: int | None, *rows: Row) -> object:
    return await shard.compare_and_append(
        expected=shard.told,
        upper=CLOSED if upper is None else at(upper),
        updates=updates(*rows),
        writer_epoch=None,
        token="",
    )


async def ten_steps(shard: Shard) -> list[Row]:
    """Step n adds n and takes n - 1 away."""
    rows = list[Row]()
    for step in range(10):
        batch: list[Row] = [("a", step, step, 1), *([("a", step - 1, step, -1)] if step else [])]
        await append(shard, step + 1, *batch)
        rows += batch
    return rows


@pytest.mark.asyncio
async def test_compaction_changes_nothing_that_may_be_read(make_store: MakeStore) -> None:
    shard = await make_store(rules=EAGER).open(S1, COLUMNS)
    rows = await ten_steps(shard)
    await shard.advance_since(at(6))

    done = await maintain(shard, 0.0)

    assert done.compacted
    for seen in (shard, await make_store(rules=EAGER).open(S1, COLUMNS)):
        for step in range(6, 10):
            assert listed(await seen.snapshot(Step(step))) == contents(rows, step)
            later = sorted((row for row in rows if row[2] >= step), key=repr)
            assert listed(await seen.read(at(step), at(10))) == later
        with pytest.raises(NotReadable):
            await seen.snapshot(Step(5))


@pytest.mark.asyncio
async def test_history_before_the_since_is_summed_up_and_what_cancels_vanishes(make_store: MakeStore) -> None:
    shard = await make_store(rules=EAGER).open(S1, COLUMNS)
    await ten_steps(shard)
    await shard.advance_since(at(10))

    await maintain(shard, 0.0)
    await append(shard, 12, ("b", 1, 11, 1))

    # Nothing before the since may be read, so what is there is seen by widening what may.
    table = await shard.read(at(10), at(12))
    assert listed(table) == [("b", 1, 11, 1)]
    assert listed(await shard.snapshot(Step(11))) == [("a", 9, 1), ("b", 1, 1)]


@pytest.mark.asyncio
async def test_a_since_beyond_the_upper_moves_no_row_beyond_it(make_store: MakeStore) -> None:
    shard = await make_store(rules=EAGER).open(S1, COLUMNS)
    rows = await ten_steps(shard)
    await shard.advance_since(at(50))

    assert (await maintain(shard, 0.0)).compacted
    more: list[Row] = [("b", 1, 10, 1), ("c", 1, 60, 1)]
    await append(shard, 70, *more)

    assert listed(await shard.snapshot(Step(50))) == contents([*rows, *more], 50)
    assert listed(await shard.read(at(50), at(70))) == [("c", 1, 60, 1)]


@pytest.mark.asyncio
async def test_a_handle_opened_before_a_compaction_stays_right_and_after_vacuum_says_what_is_gone(
    make_store: MakeStore,
) -> None:
    ours, stale = await make_store(rules=EAGER).open(S1, COLUMNS), await make_store(rules=EAGER).open(S1, COLUMNS)
    rows = await ten_steps(ours)
    await stale.refresh()

    await ours.advance_since(at(8))
    assert (await maintain(ours, 0.0)).compacted
    before_vacuum = listed(await stale.snapshot(Step(3)))
    await append(ours, 11)
    deleted = (await maintain(ours, LATER)).tidied.files_deleted

    assert before_vacuum == contents(rows, 3)
    assert deleted > 0
    with pytest.raises(NotReadable) as refusal:
        await stale.snapshot(Step(3))
    assert refusal.value.since == at(8)
    assert listed(await stale.snapshot(Step(9))) == contents(rows, 9)


@pytest.mark.asyncio
async def test_of_compactors_that_race_each_row_is_left_once(make_store: MakeStore) -> None:
    shards = [await make_store(rules=EAGER).open(S1, COLUMNS) for _ in range(3)]
    rows = await ten_steps(shards[0])
    for shard in shards:
        await shard.refresh()

    done = await asyncio.gather(*(shard.compact() for shard in shards))

    assert done.count(True) >= 1
    for shard in shards:
        await shard.refresh()
        assert listed(await shard.read(MINIMUM, at(10))) == sorted(rows, key=repr)


@pytest.mark.asyncio
async def test_appends_and_compactions_at_the_same_time_all_happen(make_store: MakeStore) -> None:
    writer, compactor = await make_store(rules=EAGER).open(S1, COLUMNS), await make_store(rules=EAGER).open(S1, COLUMNS)
    rows, compacted = list[Row](), 0

    async def write() -> None:
        for step in range(30):
            rows.append(("a", step % 3, step, 1))
            assert await append(writer, step + 1, rows[-1]) == Appended(upper=at(step + 1))

    writing = asyncio.create_task(write())
    while not writing.done():
        await compactor.refresh()
        await compactor.advance_since(at(max(0, (compactor.upper.step or 0) - 5)))
        compacted += await compactor.compact()
    await writing

    await compactor.refresh()
    assert compacted > 0
    assert listed(await compactor.snapshot(Step(29))) == contents(rows, 29)
    assert listed(await compactor.read(at(25), at(30))) == sorted(rows[25:], key=repr)


@pytest.mark.asyncio
async def test_of_a_shard_that_nobody_may_read_nothing_is_left(make_store: MakeStore) -> None:
    shard = await make_store(rules=EAGER).open(S1, COLUMNS)
    await append(shard, None, ("a", 1, 0, 1))

    await shard.advance_since(CLOSED)
    done = await maintain(shard, 0.0)

    again = await make_store(rules=EAGER).open(S1, COLUMNS)
    assert done.compacted
    assert (again.upper, again.since) == (CLOSED, CLOSED)
    with pytest.raises(NotReadable):
        await again.snapshot(Step(1_000))


# --- maintenance --------------------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_a_store_maintains_what_it_has_written_once_each_and_leaves_the_rest_to_others(
    make_store: MakeStore,
) -> None:
    ours, theirs = make_store(), make_store()
    ids = [GlobalId("s", number) for number in range(5)]
    appended, told, fenced, ended, read = [await ours.open(id, COLUMNS) for id in ids]
    again = await ours.open(ids[0], COLUMNS)
    elsewhere = await theirs.open(ids[4], COLUMNS)

    await append(appended, 1)
    await append(again, 1)
    told.advance(at(3))
    await told.flush()
    await fenced.take_over(WriterEpoch(1))
    await ended.advance_since(CLOSED)
    await append(elsewhere, 1)
    await read.refresh()

    assert sorted(shard.id for shard in ours.written()) == ids[:4]
    assert list(theirs.written()) == [elsewhere]


class _Failing:
    """A shard that cannot be maintained, for a reason that nobody thought of."""

    id = GlobalId("s", 7)

    async def refresh(self) -> Antichain:
        raise RuntimeError("not thought of")


@pytest.mark.asyncio
async def test_maintenance_goes_on_whatever_happens_to_one_shard_and_ends_with_its_store(
    make_store: MakeStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("instance.shards.maintenance.MAINTAIN_SECONDS", 0.001)
    store = make_store(rules=EAGER)
    shard, failing = await store.open(S1, COLUMNS), cast("Shard", _Failing())
    await ten_steps(shard)
    await shard.advance_since(at(9))
    monkeypatch.setattr(store, "written", lambda: [failing, shard])
    compacted = asyncio.Event()
    compact = shard.compact

    async def compact_and_say() -> bool:
        done = await compact()
        if done:
            compacted.set()
        return done

    monkeypatch.setattr(shard, "compact", compact_and_say)

    async with maintained(store, lambda: 0.0):
        await asyncio.wait_for(compacted.wait(), 10)
    tasks = [task.get_name() for task in asyncio.all_tasks()]

    assert "maintenance of shards" not in tasks
    assert "not thought of" in caplog.text


# --- holds ----------------------------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_the_since_waits_at_the_least_hold_and_goes_on_when_it_is_released(store: ShardStore) -> None:
    shard, other = await store.open(S1, COLUMNS), await store.open(S1, COLUMNS)
    await append(shard, 20)
    low, high = await shard.hold(at(3)), await other.hold(at(5))

    await shard.advance_since(at(9))
    assert shard.since == at(3)
    low.release()
    await maintain(shard, 0.0)
    assert shard.since == at(5)
    high.advance(at(7))
    await maintain(shard, 0.0)
    assert shard.since == at(7)
    high.release()
    high.release()
    await maintain(shard, 0.0)

    assert shard.since == at(9)
    with pytest.raises(InvariantBroken):
        high.advance(at(2))


@pytest.mark.asyncio
async def test_a_hold_that_comes_too_late_is_refused_and_holds_nothing(make_store: MakeStore) -> None:
    shard, elsewhere = await make_store().open(S1, COLUMNS), await make_store().open(S1, COLUMNS)
    await elsewhere.advance_since(at(4))

    with pytest.raises(NotReadable):
        await shard.hold(at(3))
    await shard.advance_since(at(6))

    assert shard.since == at(6)


@pytest.mark.asyncio
async def test_a_hold_and_a_since_that_race_agree_on_who_came_first(store: ShardStore) -> None:
    for number in range(10):
        shard = await store.open(GlobalId("s", number), COLUMNS)
        other = await store.open(GlobalId("s", number), COLUMNS)

        _, held = await asyncio.gather(shard.advance_since(at(5)), other.hold(at(2)), return_exceptions=True)

        await shard.refresh()
        assert shard.since == (at(5) if isinstance(held, NotReadable) else at(2))


# --- told progress --------------------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_progress_is_told_at_once_and_durable_when_flushed(make_store: MakeStore) -> None:
    shard, elsewhere = await make_store().open(S1, COLUMNS), await make_store().open(S1, COLUMNS)
    await append(shard, 2, ("a", 1, 0, 1))

    shard.advance(at(5))
    shard.advance(at(9))
    shard.advance(at(3))

    assert (shard.told, shard.upper) == (at(9), at(2))
    assert await elsewhere.refresh() == at(2)
    assert await shard.flush() == Appended(upper=at(9))
    assert await elsewhere.refresh() == at(9)
    assert await shard.flush() == Appended(upper=at(9))


@pytest.mark.asyncio
async def test_an_append_takes_told_progress_along_in_one_commit(store: ShardStore) -> None:
    shard = await store.open(S1, COLUMNS)
    shard.advance(at(7))

    outcome = await append(shard, 8, ("a", 1, 7, 1))

    assert outcome == Appended(upper=at(8))
    assert (shard.told, shard.upper) == (at(8), at(8))
    assert listed(await shard.read(MINIMUM, at(8))) == [("a", 1, 7, 1)]


@pytest.mark.asyncio
async def test_nothing_is_appended_where_it_was_told_that_nothing_happens(store: ShardStore) -> None:
    shard = await store.open(S1, COLUMNS)
    shard.advance(at(7))

    with pytest.raises(InvariantBroken):
        await shard.compare_and_append(
            expected=MINIMUM, upper=at(8), updates=updates(("a", 1, 3, 1)), writer_epoch=None, token=""
        )

    assert await shard.refresh() == MINIMUM


@pytest.mark.asyncio
async def test_told_progress_of_a_fenced_writer_is_dropped(make_store: MakeStore) -> None:
    old, new = await make_store().open(S1, COLUMNS), await make_store().open(S1, COLUMNS)
    old.advance(at(7), writer_epoch=WriterEpoch(1))
    await new.take_over(WriterEpoch(2))

    assert await old.flush() == EpochFenced(writer_epoch=WriterEpoch(2))
    assert (old.told, await new.refresh()) == (MINIMUM, MINIMUM)


@pytest.mark.asyncio
async def test_told_progress_goes_on_from_wherever_another_writer_got(make_store: MakeStore) -> None:
    ours, theirs = await make_store().open(S1, COLUMNS), await make_store().open(S1, COLUMNS)
    ours.advance(at(7))
    await append(theirs, 4)

    assert await ours.flush() == Appended(upper=at(7))
    assert await append(theirs, 9) == UpperMoved(upper=at(7))


@pytest.mark.asyncio
async def test_told_progress_becomes_durable_by_itself_and_when_the_store_closes(make_store: MakeStore) -> None:
    quick, slow, elsewhere = make_store(progress_ms=1), make_store(), make_store()
    ours, theirs = await quick.open(S1, COLUMNS), await slow.open(GlobalId("s", 2), COLUMNS)
    heard = asyncio.Event()
    ours.advance(at(3))
    quick.appends.listen(S1, heard.set)

    await asyncio.wait_for(heard.wait(), 10)
    theirs.advance(CLOSED)
    await slow.close()

    assert (await elsewhere.open(S1, COLUMNS)).upper == at(3)
    assert (await elsewhere.open(GlobalId("s", 2), COLUMNS)).upper == CLOSED


@pytest.mark.asyncio
async def test_readers_in_the_same_process_hear_told_progress_at_once(make_store: MakeStore) -> None:
    store = make_store()
    shard = await store.open(S1, COLUMNS)
    await append(shard, 1, ("a", 1, 0, 1))
    inputs = ShardInputs(store)
    reader = inputs.open(S1, COLUMNS)
    first = await reader.changes(MINIMUM)
    waiting = asyncio.create_task(reader.changes(first.upper))
    await asyncio.sleep(0)

    shard.advance(at(6))
    second = await asyncio.wait_for(waiting, 10)

    assert (second.lower, second.upper, listed(second.table)) == (at(1), at(6), [])
    assert listed(await reader.snapshot(Step(5))) == [("a", 1, 1)]
    late = inputs.open(S1, COLUMNS)
    assert listed(await late.snapshot(Step(5))) == [("a", 1, 1)]
    await inputs.stop()


# --- when it is worth it ----------------------------------------------------------------------------------------


def file(name: int, *, size: int = 1_000, rows: int = 1, first: int = 0, last: int | None = None) -> AddedFile:
    return AddedFile(
        name=f"part-{name:03}", size=size, rows=rows, first=Step(first), last=Step(first if last is None else last)
    )


def due(files: list[AddedFile], since: Antichain = MINIMUM) -> list[str] | None:
    found = compaction_due(files, since, at(1_000), DEFAULT_RULES)
    return None if found is None else sorted(file.name for file in found.files)


def test_few_files_are_left_alone() -> None:
    assert due([]) is None
    assert due([file(n, first=n) for n in range(DEFAULT_RULES.tier_files_max - 1)]) is None


def test_many_small_files_are_merged_and_large_ones_left_alone() -> None:
    small = [file(n, first=n) for n in range(DEFAULT_RULES.tier_files_max)]
    large = [file(900 + n, size=50_000_000) for n in range(3)]

    assert due([*large, *small]) == [one.name for one in small]


def test_files_of_a_higher_tier_are_merged_once_there_are_many_together_with_the_lower() -> None:
    middle = [file(n, size=300_000) for n in range(DEFAULT_RULES.tier_files_max)]
    small = [file(500 + n) for n in range(4)]

    assert due([*middle, *small]) == [one.name for one in [*middle, *small]]


def test_history_is_summed_up_when_as_much_came_together_as_was_summed_up() -> None:
    settled = file(1, rows=5_000, first=9)
    loose = [file(10 + n, rows=1_000, first=10 + n) for n in range(5)]
    later = file(100, rows=9_000, first=50)

    assert due([settled, *loose[:4], later], at(20)) is None
    assert due([settled, *loose, later], at(20)) == [one.name for one in [settled, *loose]]
    assert due([settled, *loose, later], at(5)) is None


def test_one_compaction_reads_no_more_than_it_may() -> None:
    half = COMPACTION_BYTES_MAX // 2
    files = [file(n, size=half, rows=5_000) for n in range(3)]

    assert due(files, at(10)) == ["part-000", "part-001"]


def test_a_shard_that_nobody_may_read_is_emptied() -> None:
    assert due([file(1)], CLOSED) == ["part-001"]
    assert due([], CLOSED) is None
