"""Shards that grow by columns: what every store promises, and a property against a dumb model."""

import asyncio
import tempfile
from collections import Counter
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from instance.shards.contents import seen_as
from instance.shards.delta import DeltaShardStore
from instance.shards.maintenance import maintain
from instance.shards.rules import UpkeepRules
from instance.shards.simulated import SimulatedDisk, SimulatedShardStore
from instance.shards.store import Appended, EpochFenced, Grown, Shard, ShardStore
from instance.storage.readers import ShardInputs
from plainsong.types import schema, updates_schema
from reconcile.errors import InvalidRequest
from reconcile.frontiers import MINIMUM, Antichain
from reconcile.ids import GlobalId, Step, WriterEpoch
from tests.shards.conftest import MakeStore
from tests.shards.rows import COLUMNS, UPDATES, listed, updates
from tests.shards.test_stores import append, at

S1 = GlobalId("s", 1)
WIDER = schema([("name", "string"), ("amount", "bigint"), ("note", "string"), ("price", "decimal(10,2)")])
EAGER = UpkeepRules(tier_files_max=2, history_rows_min=1, reopen_after=3)


def wide(*rows: tuple[object, ...]) -> pa.Table:
    """name, amount, note, step, diff"""
    return pa.Table.from_pylist(
        [dict(zip(("name", "amount", "note", "_step", "_diff"), row, strict=True)) for row in rows],
        schema=updates_schema(WIDER),
    )


@pytest.mark.asyncio
async def test_added_columns_are_null_in_rows_that_were_there(make_store: MakeStore) -> None:
    shard = await make_store().open(S1, COLUMNS)
    await append(shard, 0, 1, updates(("a", 1, 0, 1)))

    grown = await shard.grow(WIDER, writer_epoch=None)
    appended = await append(shard, 1, 2, wide(("b", 2, "new", 1, 1)))

    assert grown == Grown(schema=updates_schema(WIDER))
    assert appended == Appended(upper=at(2))
    for seen in (shard, await make_store().open(S1, COLUMNS), await make_store().open(S1, WIDER)):
        assert seen.schema.equals(updates_schema(WIDER))
        assert listed(await seen.snapshot(Step(1))) == [("a", 1, None, None, 1), ("b", 2, "new", None, 1)]
        assert listed(await seen.read(MINIMUM, at(2))) == [("a", 1, None, None, 0, 1), ("b", 2, "new", None, 1, 1)]


@pytest.mark.asyncio
async def test_growing_again_writes_nothing_and_changes_no_frontier(make_store: MakeStore) -> None:
    shard = await make_store().open(S1, COLUMNS)
    await shard.compare_and_append(
        expected=MINIMUM, upper=at(4), updates=None, writer_epoch=WriterEpoch(2), token="t", position="here"
    )

    first = await shard.grow(WIDER, writer_epoch=WriterEpoch(2))
    again = await shard.grow(WIDER, writer_epoch=WriterEpoch(2))

    assert first == again
    for seen in (shard, await make_store().open(S1, WIDER)):
        assert (seen.upper, seen.since, seen.writer_epoch, seen.position) == (at(4), MINIMUM, 2, "here")
        assert await seen.find_token("t") == 0


@pytest.mark.parametrize(
    "columns",
    [
        pytest.param([("name", "string")], id="dropped"),
        pytest.param([("name", "string"), ("sum", "bigint"), ("note", "string")], id="renamed"),
        pytest.param([("name", "string"), ("amount", "int"), ("note", "string")], id="another type"),
        pytest.param([("amount", "bigint"), ("name", "string"), ("note", "string")], id="another order"),
        pytest.param([("note", "string"), ("name", "string"), ("amount", "bigint")], id="added before"),
        pytest.param([("name", "string"), ("amount", "bigint"), ("Name", "string")], id="same but for case"),
    ],
)
@pytest.mark.asyncio
async def test_what_is_not_an_added_column_is_refused_and_changes_nothing(
    make_store: MakeStore, columns: list[tuple[str, str]]
) -> None:
    shard = await make_store().open(S1, COLUMNS)
    await append(shard, 0, 1, updates(("a", 1, 0, 1)))

    with pytest.raises(InvalidRequest):
        await shard.grow(schema(columns), writer_epoch=None)

    assert (await make_store().open(S1, COLUMNS)).schema.equals(UPDATES)
    assert await append(shard, 1, 2, updates(("b", 1, 1, 1))) == Appended(upper=at(2))


@pytest.mark.asyncio
async def test_a_fenced_writer_does_not_grow_a_shard(make_store: MakeStore) -> None:
    old = await make_store().open(S1, COLUMNS)
    new = await make_store().open(S1, COLUMNS)
    await old.take_over(WriterEpoch(1))
    await new.take_over(WriterEpoch(2))

    assert await old.grow(WIDER, writer_epoch=WriterEpoch(1)) == EpochFenced(writer_epoch=WriterEpoch(2))
    assert (await make_store().open(S1, COLUMNS)).schema.equals(UPDATES)


@pytest.mark.asyncio
async def test_a_writer_that_knows_fewer_columns_leaves_the_others_null(make_store: MakeStore) -> None:
    behind = await make_store().open(S1, COLUMNS)
    ahead = await make_store().open(S1, COLUMNS)
    await ahead.grow(WIDER, writer_epoch=None)

    assert await append(behind, 0, 1, updates(("a", 1, 0, 1))) == Appended(upper=at(1))
    await ahead.refresh()

    assert listed(await ahead.snapshot(Step(0))) == [("a", 1, None, None, 1)]


@pytest.mark.asyncio
async def test_a_column_that_a_shard_has_not_cannot_be_written(store: ShardStore) -> None:
    shard = await store.open(S1, WIDER)
    narrow = await store.open(GlobalId("s", 2), COLUMNS)

    assert await append(shard, 0, 1, wide(("a", 1, "x", 0, 1))) == Appended(upper=at(1))
    with pytest.raises(InvalidRequest, match="other columns"):
        await append(narrow, 0, 1, wide(("a", 1, "x", 0, 1)))


@pytest.mark.asyncio
async def test_compaction_by_a_handle_that_knew_fewer_columns_loses_none(make_store: MakeStore) -> None:
    narrow = await make_store(rules=EAGER).open(S1, COLUMNS)
    await append(narrow, 0, 1, updates(("a", 1, 0, 1)))
    writer = await make_store(rules=EAGER).open(S1, COLUMNS)
    await writer.grow(WIDER, writer_epoch=None)
    for step in range(1, 6):
        await append(writer, step, step + 1, wide(("b", step, f"n{step}", step, 1)))

    await narrow.refresh()
    await narrow.advance_since(at(5))
    done = await maintain(narrow, 0.0)

    assert done.compacted
    expected = [("a", 1, None, None, 1), *(("b", step, f"n{step}", None, 1) for step in range(1, 6))]
    for seen in (narrow, await make_store(rules=EAGER).open(S1, COLUMNS)):
        assert listed(await seen.snapshot(Step(5))) == expected


@pytest.mark.asyncio
async def test_readers_see_the_columns_they_know_whatever_is_added(make_store: MakeStore) -> None:
    store = make_store()
    shard = await store.open(S1, COLUMNS)
    await append(shard, 0, 1, updates(("a", 1, 0, 1)))
    inputs = ShardInputs(store)
    knows_two, knows_four = inputs.open(S1, COLUMNS), inputs.open(S1, WIDER)
    before = await knows_four.snapshot(Step(0))  # nobody has grown it yet

    await shard.grow(WIDER, writer_epoch=None)
    await append(shard, 1, 2, wide(("a", 1, None, 1, -1), ("a", 1, "x", 1, 1), ("b", 2, "y", 1, 1)))

    assert listed(before) == [("a", 1, None, None, 1)]
    assert listed(await knows_two.snapshot(Step(1))) == [("a", 1, 1), ("b", 2, 1)]
    assert listed(await knows_four.snapshot(Step(1))) == [("a", 1, "x", None, 1), ("b", 2, "y", None, 1)]
    # To one who does not know the note, that of ``a`` did not change.
    assert listed((await knows_two.changes(at(1))).table) == [("b", 2, 1, 1)]
    assert listed((await knows_two.changes(MINIMUM)).table) == [("a", 1, 0, 1), ("b", 2, 1, 1)]
    assert listed((await knows_four.changes(at(1))).table) == [
        ("a", 1, "x", None, 1, 1),
        ("a", 1, None, None, 1, -1),
        ("b", 2, "y", None, 1, 1),
    ]
    await inputs.stop()


# --- against a model --------------------------------------------------------------------------------------


operations = st.one_of(
    st.tuples(st.just("append"), st.integers(0, 1), st.sampled_from(["a", "b"]), st.sampled_from([None, "x", "y"])),
    st.tuples(st.just("grow"), st.integers(0, 1)),
    st.tuples(st.just("since"), st.integers(0, 1)),
    st.tuples(st.just("maintain"), st.integers(0, 1)),
    st.tuples(st.just("reopen"), st.integers(0, 1)),
)


async def follows_the_model(make: list[ShardStore], history: list[tuple[object, ...]]) -> None:
    """Two handles in two processes, each with the columns of its choice; no row and no note is ever lost."""
    shards: list[Shard] = [await store.open(S1, COLUMNS) for store in make]
    rows: list[tuple[str, str | None]] = []
    is_wide = False
    for operation, place, *about in history:
        assert isinstance(place, int)
        shard = shards[place]
        upper = await shard.refresh()
        step = upper.step or 0
        match operation:
            case "append":
                name, note = str(about[0]), None if about[1] is None or not is_wide else str(about[1])
                table = wide((name, 0, note, step, 1)) if is_wide else updates((name, 0, step, 1))
                assert isinstance(await append(shard, step, step + 1, table), Appended)
                rows.append((name, note))
            case "grow":
                assert isinstance(await shard.grow(WIDER, writer_epoch=None), Grown)
                is_wide = True
            case "since":
                await shard.advance_since(upper)
            case "maintain":
                await maintain(shard, 0.0)
            case "reopen":
                shards[place] = await make[place].open(S1, WIDER if is_wide else COLUMNS)
    for shard in shards:
        last = (await shard.refresh()).step or 0
        if last and not shard.since > Antichain.at(last):
            held = await shard.snapshot(Step(max(last, shard.since.step or 0)), complete=at(last + 1))
            assert shard.schema.equals(updates_schema(WIDER) if is_wide else UPDATES)
            noted = seen_as(held, WIDER).to_pylist()
            assert Counter({(row["name"], row["note"]): row["_diff"] for row in noted}) == Counter(rows)
            known = seen_as(held, COLUMNS).to_pylist()
            assert Counter({row["name"]: row["_diff"] for row in known}) == Counter(name for name, _ in rows)


@given(st.lists(operations, min_size=3, max_size=14))
@settings(max_examples=60, deadline=None)
def test_a_simulated_shard_grows_as_the_model_does(history: list[tuple[object, ...]]) -> None:
    disk = SimulatedDisk()
    stores: list[ShardStore] = [SimulatedShardStore(disk, rules=EAGER) for _ in range(2)]

    asyncio.run(follows_the_model(stores, history))


@given(st.lists(operations, min_size=3, max_size=14))
@settings(max_examples=12, deadline=None)
def test_a_shard_on_disk_grows_as_the_model_does(history: list[tuple[object, ...]]) -> None:
    async def run(folder: str) -> None:
        stores: list[ShardStore] = [DeltaShardStore(Path(folder), rules=EAGER) for _ in range(2)]
        await follows_the_model(stores, history)
        for store in stores:
            await store.close()

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(folder))
