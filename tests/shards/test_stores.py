"""What every shard store promises."""

import asyncio
import datetime
from decimal import Decimal

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types
import pytest

from instance.inputs import NotReadable
from instance.shards.store import Appended, EpochFenced, Shard, ShardStore, TakenOver, UpperMoved
from plainsong.types import schema, updates_schema
from reconcile.errors import InvalidRequest, InvariantBroken
from reconcile.frontiers import CLOSED, MINIMUM, Antichain
from reconcile.ids import GlobalId, Step, WriterEpoch
from tests.shards.conftest import MakeStore
from tests.shards.rows import COLUMNS, UPDATES, listed, updates

S1 = GlobalId("s", 1)


def at(step: int) -> Antichain:
    return Antichain.at(step)


async def append(
    shard: Shard,
    lower: int,
    upper: int | None,
    table: pa.Table | None = None,
    *,
    epoch: int | None = None,
    token: str = "",
) -> Appended | UpperMoved | EpochFenced:
    return await shard.compare_and_append(
        expected=at(lower),
        upper=CLOSED if upper is None else at(upper),
        updates=table,
        writer_epoch=None if epoch is None else WriterEpoch(epoch),
        token=token,
    )


@pytest.mark.asyncio
async def test_a_new_shard_is_empty_and_stands_at_the_minimum(store: ShardStore) -> None:
    shard = await store.open(S1, COLUMNS)

    assert (shard.id, shard.schema, shard.upper, shard.since, shard.writer_epoch) == (S1, UPDATES, MINIMUM, MINIMUM, 0)
    assert listed(await shard.read(MINIMUM, MINIMUM)) == []


@pytest.mark.asyncio
async def test_what_was_appended_is_read_back_by_every_handle_and_after_a_restart(make_store: MakeStore) -> None:
    ours = await make_store().open(S1, COLUMNS)
    theirs = await make_store().open(S1, COLUMNS)

    outcome = await append(ours, 0, 3, updates(("a", 1, 0, 1), ("b", None, 2, 1)))
    assert theirs.upper == MINIMUM
    assert await theirs.refresh() == at(3)
    restarted = await make_store().open(S1, COLUMNS)

    assert outcome == Appended(upper=at(3))
    for shard in (ours, theirs, restarted):
        assert shard.upper == at(3)
        table = await shard.read(MINIMUM, at(3))
        assert table.schema.equals(UPDATES)
        assert listed(table) == [("a", 1, 0, 1), ("b", None, 2, 1)]


@pytest.mark.asyncio
async def test_an_append_that_expects_another_upper_writes_nothing(make_store: MakeStore) -> None:
    ours = await make_store().open(S1, COLUMNS)
    theirs = await make_store().open(S1, COLUMNS)
    await append(ours, 0, 2, updates(("a", 1, 0, 1)))

    late = await append(theirs, 0, 5, updates(("b", 1, 1, 1)))
    early = await append(theirs, 3, 5, updates(("b", 1, 3, 1)))

    assert (late, early) == (UpperMoved(upper=at(2)), UpperMoved(upper=at(2)))
    assert listed(await theirs.read(MINIMUM, at(2))) == [("a", 1, 0, 1)]


@pytest.mark.asyncio
async def test_of_two_appends_at_the_same_time_exactly_one_wins(make_store: MakeStore) -> None:
    shards = [await make_store().open(S1, COLUMNS) for _ in range(2)]

    outcomes = await asyncio.gather(
        *(append(shard, 0, 1 + place, updates((f"w{place}", 1, 0, 1))) for place, shard in enumerate(shards))
    )

    winners = [place for place, outcome in enumerate(outcomes) if isinstance(outcome, Appended)]
    assert len(winners) == 1
    assert outcomes[1 - winners[0]] == UpperMoved(upper=at(1 + winners[0]))
    assert listed(await shards[0].read(MINIMUM, shards[0].upper)) == [(f"w{winners[0]}", 1, 0, 1)]


@pytest.mark.asyncio
async def test_shards_opened_at_the_same_time_are_one_shard(make_store: MakeStore) -> None:
    shards = await asyncio.gather(*(make_store().open(S1, COLUMNS) for _ in range(4)))

    await append(shards[0], 0, 1, updates(("a", 1, 0, 1)))

    assert [await shard.refresh() for shard in shards] == [at(1)] * 4


@pytest.mark.asyncio
async def test_rows_keep_the_step_they_were_given_and_are_read_by_it(store: ShardStore) -> None:
    shard = await store.open(S1, COLUMNS)
    await append(shard, 0, 10, updates(("a", 1, 3, 1), ("b", 1, 7, 1)))
    await append(shard, 10, 20, updates(("c", 1, 12, 1), ("d", 1, 19, -2)))

    assert listed(await shard.read(at(4), at(13))) == [("b", 1, 7, 1), ("c", 1, 12, 1)]
    assert listed(await shard.read(at(7), at(8))) == [("b", 1, 7, 1)]
    assert listed(await shard.read(at(8), at(8))) == []
    assert listed(await shard.read(at(13), at(20))) == [("d", 1, 19, -2)]


@pytest.mark.asyncio
async def test_a_snapshot_sums_up_and_leaves_out_what_cancels(store: ShardStore) -> None:
    shard = await store.open(S1, COLUMNS)
    await append(shard, 0, 2, updates(("a", 1, 0, 1), ("a", 1, 0, 1), ("b", 2, 1, 1), (None, None, 1, 1)))
    await append(shard, 2, 5, updates(("b", 2, 3, -1), (None, None, 4, 1)))

    assert listed(await shard.snapshot(Step(1))) == [("a", 1, 2), ("b", 2, 1), (None, None, 1)]
    assert listed(await shard.snapshot(Step(4))) == [("a", 1, 2), (None, None, 2)]
    assert (await shard.snapshot(Step(4))).column_names == ["name", "amount", "_diff"]


@pytest.mark.asyncio
async def test_empty_progress_advances_the_upper_alone(store: ShardStore) -> None:
    shard = await store.open(S1, COLUMNS)

    assert await append(shard, 0, 4) == Appended(upper=at(4))
    assert await append(shard, 4, 5, UPDATES.empty_table()) == Appended(upper=at(5))
    assert listed(await shard.snapshot(Step(4))) == []


@pytest.mark.asyncio
async def test_a_closed_shard_takes_nothing_more_and_is_readable_for_ever(make_store: MakeStore) -> None:
    shard = await make_store().open(S1, COLUMNS)
    await append(shard, 0, None, updates(("a", 1, 5, 1)))

    again = await make_store().open(S1, COLUMNS)
    outcome = await append(again, 6, 7, updates(("b", 1, 6, 1)))

    assert again.upper == CLOSED
    assert outcome == UpperMoved(upper=CLOSED)
    assert listed(await again.read(MINIMUM, CLOSED)) == [("a", 1, 5, 1)]
    assert listed(await again.snapshot(Step(1_000))) == [("a", 1, 1)]


@pytest.mark.asyncio
async def test_a_fenced_writer_is_refused_whatever_it_knows(make_store: MakeStore) -> None:
    old = await make_store().open(S1, COLUMNS)
    await old.take_over(WriterEpoch(1))
    await append(old, 0, 1, updates(("a", 1, 0, 1)), epoch=1)
    new = await make_store().open(S1, COLUMNS)

    taken = await new.take_over(WriterEpoch(2))
    unaware = await append(old, 1, 2, updates(("b", 1, 1, 1)), epoch=1)
    await old.refresh()
    aware = await append(old, 1, 2, updates(("b", 1, 1, 1)), epoch=1)
    back = await old.take_over(WriterEpoch(1))

    assert taken == TakenOver(upper=at(1))
    assert [unaware, aware, back] == [EpochFenced(writer_epoch=WriterEpoch(2))] * 3
    assert old.writer_epoch == 2
    assert await append(new, 1, 2, updates(("c", 1, 1, 1)), epoch=2) == Appended(upper=at(2))
    assert listed(await new.snapshot(Step(1))) == [("a", 1, 1), ("c", 1, 1)]


@pytest.mark.asyncio
async def test_the_same_epoch_may_take_over_again(make_store: MakeStore) -> None:
    await (await make_store().open(S1, COLUMNS)).take_over(WriterEpoch(3))

    shard = await make_store().open(S1, COLUMNS)

    assert await shard.take_over(WriterEpoch(3)) == TakenOver(upper=MINIMUM)
    assert shard.writer_epoch == 3


@pytest.mark.asyncio
async def test_an_append_with_a_higher_epoch_fences_the_lower_one(store: ShardStore) -> None:
    shard = await store.open(S1, COLUMNS)
    await append(shard, 0, 1, epoch=5)

    assert await append(shard, 1, 2, epoch=4) == EpochFenced(writer_epoch=WriterEpoch(5))


@pytest.mark.asyncio
async def test_a_repeated_append_is_recognised_by_its_token_and_writes_nothing(make_store: MakeStore) -> None:
    shard = await make_store().open(S1, COLUMNS)
    await append(shard, 0, 1, updates(("a", 1, 0, 1)), token="first")
    await append(shard, 1, 4, updates(("b", 1, 2, 1)), token="second")

    again = await make_store().open(S1, COLUMNS)
    outcome = await append(again, 0, 1, updates(("a", 1, 0, 1)), token="first")

    assert outcome == Appended(upper=at(4))
    assert [await again.find_token(token) for token in ("first", "second", "third", "")] == [0, 1, None, None]
    assert listed(await again.snapshot(Step(3))) == [("a", 1, 1), ("b", 1, 1)]


@pytest.mark.asyncio
async def test_a_token_that_another_process_committed_is_found(make_store: MakeStore) -> None:
    ours, theirs = await make_store().open(S1, COLUMNS), await make_store().open(S1, COLUMNS)
    assert await ours.find_token("it") is None

    await append(theirs, 0, 1, token="it")

    assert await ours.find_token("it") == 0


@pytest.mark.asyncio
async def test_reading_before_the_since_fails_also_after_a_restart(make_store: MakeStore) -> None:
    shard = await make_store().open(S1, COLUMNS)
    await append(shard, 0, 9, updates(("a", 1, 0, 1), ("b", 1, 5, 1)))
    await shard.advance_since(at(5))
    await shard.advance_since(at(3))

    again = await make_store().open(S1, COLUMNS)

    assert (shard.since, again.since) == (at(5), at(5))
    for too_early in (again.read(at(4), at(9)), again.snapshot(Step(4))):
        with pytest.raises(NotReadable) as refusal:
            await too_early
        assert refusal.value.since == at(5)
    assert listed(await again.read(at(5), at(9))) == [("b", 1, 5, 1)]
    assert listed(await again.snapshot(Step(5))) == [("a", 1, 1), ("b", 1, 1)]


@pytest.mark.asyncio
async def test_reading_beyond_what_is_complete_fails_instead_of_answering_wrongly(store: ShardStore) -> None:
    shard = await store.open(S1, COLUMNS)
    await append(shard, 0, 2, updates(("a", 1, 0, 1)))

    with pytest.raises(InvariantBroken):
        await shard.read(MINIMUM, at(3))
    with pytest.raises(InvariantBroken):
        await shard.snapshot(Step(2))

    assert listed(await shard.read(MINIMUM, at(8), complete=at(8))) == [("a", 1, 0, 1)]
    assert listed(await shard.snapshot(Step(7), complete=at(8))) == [("a", 1, 1)]


@pytest.mark.parametrize(
    ("lower", "upper", "rows"),
    [
        (0, 1, updates(("a", 1, 1, 1))),
        (0, 0, updates()),
        (0, None, updates(("a", 1, -1, 1))),
    ],
    ids=["beyond the upper", "no progress", "before the beginning"],
)
@pytest.mark.asyncio
async def test_an_append_that_makes_no_sense_is_refused_whole(
    store: ShardStore, lower: int, upper: int | None, rows: pa.Table
) -> None:
    shard = await store.open(S1, COLUMNS)

    with pytest.raises(InvariantBroken):
        await append(shard, lower, upper, rows)

    assert await shard.refresh() == MINIMUM


@pytest.mark.asyncio
async def test_rows_of_other_columns_are_refused(store: ShardStore) -> None:
    shard = await store.open(S1, schema([("n", "int", True)]))
    steps = {"_step": pa.array([0]), "_diff": pa.array([1])}

    for columns in ({"m": [1]}, {"n": ["x"]}, {"n": [2**40]}):
        with pytest.raises(InvalidRequest):
            await append(shard, 0, 1, pa.table({**columns, **steps}))

    assert await append(shard, 0, 1, pa.table({**steps, "n": pa.array([1])})) == Appended(upper=at(1))


@pytest.mark.asyncio
async def test_a_shard_is_not_opened_with_other_columns_than_it_has(store: ShardStore) -> None:
    await store.open(S1, COLUMNS)

    with pytest.raises(InvalidRequest):
        await store.open(S1, schema([("name", "string"), ("sum", "bigint")]))
    with pytest.raises(InvalidRequest):
        await store.open(S1, schema([("name", "string"), ("amount", "int")]))
    with pytest.raises(InvalidRequest):
        await store.open(GlobalId("s", 2), schema([("name", "string"), ("Name", "string")]))


@pytest.mark.asyncio
async def test_a_reader_need_not_know_which_columns_may_be_null(store: ShardStore) -> None:
    shard = await store.open(S1, schema([("n", "int", True)]))
    await append(shard, 0, 1, pa.table({"n": [1], "_step": [0], "_diff": [1]}))

    reader = await store.open(S1, schema([("n", "int")]))

    assert listed(await reader.snapshot(Step(0))) == [(1, 1)]


@pytest.mark.asyncio
async def test_every_type_of_column_comes_back_to_the_bit(store: ShardStore) -> None:
    types = ["boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "decimal(38,10)", "string", "binary"]
    columns = schema([(f"c {type}", type) for type in [*types, "date", "timestamp"]])
    day, instant = datetime.date(1583, 1, 1), datetime.datetime(1960, 2, 3, 4, 5, 6, 7, tzinfo=datetime.UTC)
    values = [True, -128, 2**15 - 1, -(2**31), 2**63 - 1, 0.1, -0.0, Decimal("-1.5"), "é\0", b"\0\xff", day, instant]
    whole = updates_schema(columns)
    rows = [dict(zip(whole.names, [*row, 0, 1], strict=True)) for row in (values, [None] * 12)]
    table = pa.Table.from_pylist(rows, schema=whole)
    shard = await store.open(S1, columns)

    await append(shard, 0, 1, table)

    assert (await shard.read(MINIMUM, at(1))).equals(table)
    assert len(await shard.snapshot(Step(0))) == 2


@pytest.mark.asyncio
async def test_a_table_without_columns_counts_its_rows(store: ShardStore) -> None:
    shard = await store.open(S1, pa.schema([]))

    await append(shard, 0, 2, pa.table({"_step": [0, 1], "_diff": [3, -1]}))

    assert listed(await shard.snapshot(Step(1))) == [(2,)]


@pytest.mark.asyncio
async def test_many_handles_are_refreshed_at_once(make_store: MakeStore) -> None:
    ours, theirs = make_store(), make_store()
    shards = [await ours.open(GlobalId("s", number), COLUMNS) for number in range(5)]
    await append(await theirs.open(GlobalId("s", 3), COLUMNS), 0, 7)

    await ours.refresh_all(shards)

    assert [shard.upper.step for shard in shards] == [0, 0, 0, 7, 0]


@pytest.mark.asyncio
async def test_listeners_hear_of_appends_through_their_store_until_they_leave(store: ShardStore) -> None:
    shard, heard = await store.open(S1, COLUMNS), list[str]()

    def listener() -> None:
        heard.append("append")

    store.appends.listen(S1, listener)
    await append(shard, 0, 1)
    await append(shard, 0, 1)
    store.appends.leave(S1, listener)
    await append(shard, 1, 2)

    assert heard == ["append"]


@pytest.mark.asyncio
async def test_a_cancelled_append_leaves_the_handle_usable(store: ShardStore) -> None:
    shard = await store.open(S1, COLUMNS)

    task = asyncio.create_task(append(shard, 0, 1, updates(("a", 1, 0, 1)), token="cancelled"))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await append(shard, 0, 1, updates(("a", 1, 0, 1)), token="cancelled")

    assert listed(await shard.snapshot(Step(0))) == [("a", 1, 1)]
