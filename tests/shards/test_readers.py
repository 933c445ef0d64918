"""What readers of shards are promised, wherever the writer is."""

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instance.inputs import Changes, NotReadable
from instance.shards.contents import between
from instance.shards.delta import DeltaShardStore
from instance.shards.simulated import SimulatedShard, SimulatedShardStore
from instance.shards.store import Shard, ShardStore
from instance.storage import readers, recent
from instance.storage.readers import ShardInputs, ShardOutputs
from instance.storage.recent import RecentUpdates
from instance.storage.seals import Seals
from reconcile.errors import InvariantBroken, StorageFailed
from reconcile.frontiers import CLOSED, MINIMUM, Antichain
from reconcile.ids import GlobalId, Step
from reconcile.storage_protocol import TableSeal
from tests.shards.conftest import MakeStore
from tests.shards.rows import COLUMNS, Row, listed, updates
from tests.shards.test_delta import finish, start

S1 = GlobalId("s", 1)


def at(step: int) -> Antichain:
    return Antichain.at(step)


def seal(durable: int, upper: int | None) -> TableSeal:
    return TableSeal(id=S1, durable=at(durable), upper=CLOSED if upper is None else at(upper))


async def append(shard: Shard, upper: int | None, *rows: Row) -> None:
    await shard.compare_and_append(
        expected=shard.upper,
        upper=CLOSED if upper is None else at(upper),
        updates=updates(*rows),
        writer_epoch=None,
        token="",
    )


def told(changes: Changes) -> tuple[Antichain, Antichain, list[tuple[object, ...]]]:
    return changes.lower, changes.upper, listed(changes.table)


async def soon(task: "asyncio.Task[Changes]") -> Changes:
    return await asyncio.wait_for(task, 10)


@pytest.mark.asyncio
async def test_a_reader_gets_every_update_once_piece_by_piece(store: ShardStore) -> None:
    shard = await store.open(S1, COLUMNS)
    inputs = ShardInputs(store)
    reader = inputs.open(S1, COLUMNS)
    await append(shard, 2, ("a", 1, 0, 1), ("b", 1, 1, 1))

    first = await reader.changes(MINIMUM)
    await append(shard, 3, ("c", 1, 2, 1))
    await append(shard, 9)
    second = await reader.changes(first.upper)
    await append(shard, None, ("d", 1, 40, 1))
    third = await reader.changes(second.upper)

    assert told(first) == (MINIMUM, at(2), [("a", 1, 0, 1), ("b", 1, 1, 1)])
    assert told(second) == (at(2), at(9), [("c", 1, 2, 1)])
    assert told(third) == (at(9), CLOSED, [("d", 1, 40, 1)])
    with pytest.raises(InvariantBroken):
        await reader.changes(third.upper)
    await inputs.stop()


@pytest.mark.parametrize("writer_is_here", [True, False])
@pytest.mark.asyncio
async def test_a_waiting_reader_is_woken_by_an_append_here_or_elsewhere(
    make_store: MakeStore, writer_is_here: bool
) -> None:
    store = make_store()
    shard = await (store if writer_is_here else make_store()).open(S1, COLUMNS)
    inputs = ShardInputs(store)
    reader = inputs.open(S1, COLUMNS)
    waiting = asyncio.create_task(reader.changes(MINIMUM))
    snapshot = asyncio.create_task(reader.snapshot(Step(0)))
    await asyncio.sleep(0)

    await append(shard, 1, ("a", 1, 0, 1))

    assert told(await soon(waiting)) == (MINIMUM, at(1), [("a", 1, 0, 1)])
    assert listed(await asyncio.wait_for(snapshot, 10)) == [("a", 1, 1)]
    await inputs.stop()


@pytest.mark.asyncio
async def test_a_reader_sees_what_another_process_appends(tmp_path: Path) -> None:
    store = DeltaShardStore(tmp_path)
    inputs = ShardInputs(store)
    reader = inputs.open(S1, COLUMNS)
    waiting = asyncio.create_task(reader.changes(MINIMUM))

    process = start(tmp_path, "append", "foreign")

    assert told(await soon(waiting)) == (MINIMUM, at(1), [("foreign", 0, 0, 1)])
    assert (await asyncio.to_thread(finish, process))[0] == 0
    await inputs.stop()
    await store.close()


@pytest.mark.asyncio
async def test_a_seal_counts_once_the_shard_is_there_and_wakes_at_once(make_store: MakeStore) -> None:
    store = make_store()
    shard = await store.open(S1, COLUMNS)
    inputs = ShardInputs(store)
    inputs.note_seals([seal(2, 20)])
    reader = inputs.open(S1, COLUMNS)
    await append(shard, 1, ("a", 1, 0, 1))

    before = await reader.changes(MINIMUM)
    waiting = asyncio.create_task(reader.changes(before.upper))
    await append(shard, 2, ("b", 1, 1, 1))
    after = await soon(waiting)
    sealed = asyncio.create_task(reader.changes(after.upper))
    await asyncio.sleep(0)
    inputs.note_seals([seal(2, 30), seal(1, 25)])

    assert told(before) == (MINIMUM, at(1), [("a", 1, 0, 1)])
    assert told(after) == (at(1), at(20), [("b", 1, 1, 1)])
    assert told(await soon(sealed)) == (at(20), at(30), [])
    assert listed(await reader.snapshot(Step(29))) == [("a", 1, 1), ("b", 1, 1)]
    await append(shard, 41, ("c", 1, 40, 1))
    assert told(await reader.changes(at(15))) in (
        (at(15), at(30), []),
        (at(15), at(41), [("c", 1, 40, 1)]),
    )
    assert told(await reader.changes(at(30))) == (at(30), at(41), [("c", 1, 40, 1)])
    await inputs.stop()


@pytest.mark.asyncio
async def test_a_sealed_table_is_readable_where_its_since_is_beyond_its_shard(store: ShardStore) -> None:
    shard = await store.open(S1, COLUMNS)
    await append(shard, 1, ("a", 1, 0, 1))
    await shard.advance_since(at(15))
    inputs = ShardInputs(store)
    inputs.note_seals([seal(1, 20)])
    reader = inputs.open(S1, COLUMNS)

    assert listed(await reader.snapshot(Step(15))) == [("a", 1, 1)]
    assert told(await reader.changes(at(16))) == (at(16), at(20), [])
    with pytest.raises(NotReadable) as refusal:
        await reader.snapshot(Step(14))
    assert refusal.value.since == at(15)
    with pytest.raises(NotReadable):
        await reader.changes(at(14))
    await inputs.stop()


@pytest.mark.asyncio
async def test_a_thousand_readers_cost_one_read() -> None:
    store = SimulatedShardStore()
    shard = await store.open(S1, COLUMNS)
    inputs = ShardInputs(store)
    thousand = [inputs.open(S1, COLUMNS) for _ in range(1_000)]
    waiting = [asyncio.create_task(reader.changes(MINIMUM)) for reader in thousand]
    await asyncio.sleep(0)

    await append(shard, 1, ("a", 1, 0, 1))
    answers = await asyncio.wait_for(asyncio.gather(*waiting), 10)

    assert len({id(answer.table) for answer in answers}) == 1
    for _ in thousand:
        inputs.close(S1)
    await inputs.stop()


@pytest.mark.asyncio
async def test_a_cancelled_reader_does_not_take_the_others_with_it(store: ShardStore) -> None:
    shard = await store.open(S1, COLUMNS)
    inputs = ShardInputs(store)
    three = [inputs.open(S1, COLUMNS) for _ in range(3)]
    waiting = [asyncio.create_task(reader.changes(MINIMUM)) for reader in three]
    await asyncio.sleep(0)

    waiting[0].cancel()
    await append(shard, 1, ("a", 1, 0, 1))
    waiting[1].cancel()

    assert told(await soon(waiting[2])) == (MINIMUM, at(1), [("a", 1, 0, 1)])
    await inputs.stop()


@pytest.mark.asyncio
async def test_readers_at_different_places_share_what_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    store = SimulatedShardStore()
    shard = await store.open(S1, COLUMNS)
    inputs, reads = ShardInputs(store), list[tuple[Antichain, Antichain]]()
    ahead, behind = inputs.open(S1, COLUMNS), inputs.open(S1, COLUMNS)
    read = SimulatedShard.read

    async def counted(
        self: SimulatedShard, lower: Antichain, upper: Antichain, *, complete: Antichain = MINIMUM
    ) -> object:
        reads.append((lower, upper))
        return await read(self, lower, upper, complete=complete)

    monkeypatch.setattr(SimulatedShard, "read", counted)
    for step in range(2):
        await append(shard, step + 1, ("a", 1, step, 1))
    await ahead.changes(MINIMUM)
    await behind.changes(at(1))
    await append(shard, 3, ("a", 1, 2, 1))
    await ahead.changes(at(2))
    late = await behind.changes(at(1))

    assert told(late) == (at(1), at(3), [("a", 1, 1, 1), ("a", 1, 2, 1)])
    assert reads == [(MINIMUM, at(2)), (at(2), at(3))]
    await inputs.stop()


@pytest.mark.asyncio
async def test_a_reader_cancelled_in_a_shared_read_leaves_it_to_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    store = SimulatedShardStore()
    await append(await store.open(S1, COLUMNS), 1, ("a", 1, 0, 1))
    inputs, reading, go_on = ShardInputs(store), asyncio.Event(), asyncio.Event()
    two = [inputs.open(S1, COLUMNS) for _ in range(2)]
    snapshot = SimulatedShard.snapshot

    async def slow(self: SimulatedShard, at: Step, *, complete: Antichain = MINIMUM) -> object:
        reading.set()
        await go_on.wait()
        return await snapshot(self, at, complete=complete)

    monkeypatch.setattr(SimulatedShard, "snapshot", slow)
    tasks = [asyncio.create_task(reader.snapshot(Step(0))) for reader in two]
    await asyncio.wait_for(reading.wait(), 10)
    tasks[0].cancel()
    await asyncio.wait({tasks[0]})
    go_on.set()

    assert listed(await asyncio.wait_for(tasks[1], 10)) == [("a", 1, 1)]
    await inputs.stop()


@pytest.mark.asyncio
async def test_a_reader_that_comes_after_an_append_does_not_wait_for_the_next_look(
    make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "POLL_SECONDS", 1_000)
    store = make_store()
    shard = await make_store().open(S1, COLUMNS)
    inputs = ShardInputs(store)
    reader = inputs.open(S1, COLUMNS)
    await append(shard, 1)
    assert (await reader.changes(MINIMUM)).upper == at(1)
    await append(shard, 2)

    waiting = asyncio.create_task(reader.changes(at(1)))

    assert (await soon(waiting)).upper == at(2)
    await inputs.stop()


@pytest.mark.asyncio
async def test_closing_the_last_reader_of_a_shard_cancels_what_still_waits(store: ShardStore) -> None:
    inputs = ShardInputs(store)
    reader, other = inputs.open(S1, COLUMNS), inputs.open(S1, COLUMNS)
    waiting = [asyncio.create_task(one.changes(MINIMUM)) for one in (reader, other)]
    opened = asyncio.create_task(reader.snapshot(Step(0)))
    await asyncio.wait({opened}, timeout=0.1)

    inputs.close(S1)
    assert not any(task.done() for task in waiting)
    inputs.close(S1)

    for task in [*waiting, opened]:
        with pytest.raises(asyncio.CancelledError):
            await task
    await inputs.stop()


@pytest.mark.asyncio
async def test_a_failing_disk_is_told_to_whoever_waits(store: ShardStore, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = ShardInputs(store)
    reader = inputs.open(S1, COLUMNS)
    waiting = asyncio.create_task(reader.changes(MINIMUM))
    await asyncio.wait({waiting}, timeout=0.1)

    async def fail(*_: object) -> None:
        raise StorageFailed("the disk is gone")

    follower = inputs._followers[S1]
    monkeypatch.setattr(store, "refresh_all", fail)
    monkeypatch.setattr(type(follower.shard), "refresh", fail)

    with pytest.raises(StorageFailed, match="the disk is gone"):
        await soon(waiting)
    await inputs.stop()


@pytest.mark.asyncio
async def test_of_two_views_that_write_one_shard_one_wins_and_both_learn_the_upper(make_store: MakeStore) -> None:
    outputs = [ShardOutputs(make_store()).open(GlobalId("u", 1), COLUMNS) for _ in range(2)]

    uppers = [await output.upper() for output in outputs]
    results = await asyncio.gather(
        outputs[0].append(MINIMUM, at(1), updates(("a", 1, 0, 1))),
        outputs[1].append(MINIMUM, at(3), updates(("a", 1, 0, 1))),
    )

    assert uppers == [MINIMUM, MINIMUM]
    assert sorted(result.by_us for result in results) == [False, True]
    assert {result.upper for result in results} in ({at(1)}, {at(3)})
    assert await outputs[0].upper() == results[0].upper


one_seal = st.tuples(st.integers(0, 9), st.integers(0, 9)).map(lambda pair: seal(pair[0], sum(pair)))


@given(noted=st.lists(one_seal, max_size=12), uppers=st.lists(st.integers(0, 12), min_size=1, max_size=12).map(sorted))
def test_seals_say_as_much_as_all_that_were_ever_noted(noted: list[TableSeal], uppers: list[int]) -> None:
    ours, so_far = Seals(), list[TableSeal]()
    for place, upper in enumerate(uppers):
        for one in noted[place :: len(uppers)]:
            ours.note(one)
            so_far.append(one)

        reached = [one.upper for one in so_far if one.durable <= at(upper)]
        assert ours.complete(at(upper)) == max([at(upper), *reached])


@given(
    steps=st.lists(st.integers(0, 3), min_size=1, max_size=10),
    questions=st.lists(st.tuples(st.integers(0, 25), st.integers(1, 25)), max_size=10),
    pieces=st.integers(1, 4),
)
def test_recent_updates_and_what_they_say_is_missing_make_the_whole(
    steps: list[int], questions: list[tuple[int, int]], pieces: int
) -> None:
    rows = updates(*((None, place, place, 1) for place in range(0, 50, 2)))
    ours = RecentUpdates()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(recent, "RECENT_PIECES_MAX", pieces)
        for lower, length in [*((5, 1 + step) for step in steps), *questions]:
            upper = lower + length
            missing = ours.missing(at(lower), at(upper))
            parts = []
            if missing is None:
                parts.append(ours.between(at(lower), at(upper)))
            else:
                if at(lower) < missing[0]:
                    parts.append(ours.between(at(lower), missing[0]))
                parts.append(between(rows, *missing))
                ours.add(*missing, parts[-1])

            whole = [row for part in parts for row in listed(part)]
            assert sorted(whole, key=repr) == listed(between(rows, at(lower), at(upper)))
            assert len(ours._pieces) <= pieces
