"""Where a writer stands upstream is in the shard with what it appended, and with nothing else."""

import asyncio

import pytest

from instance.shards.store import Appended, EpochFenced, Shard, UpperMoved
from reconcile.frontiers import CLOSED, MINIMUM, Antichain
from reconcile.ids import GlobalId, WriterEpoch
from tests.shards.conftest import MakeStore
from tests.shards.rows import COLUMNS, updates

S1 = GlobalId("s", 1)


def at(step: int) -> Antichain:
    return Antichain.at(step)


async def append(shard: Shard, lower: int, upper: int | None, position: str | None = None, *, epoch: int = 1) -> object:
    return await shard.compare_and_append(
        expected=at(lower),
        upper=CLOSED if upper is None else at(upper),
        updates=updates(("a", 1, lower, 1)),
        writer_epoch=WriterEpoch(epoch),
        token="",
        position=position,
    )


@pytest.mark.asyncio
async def test_a_new_shard_has_no_position(make_store: MakeStore) -> None:
    assert (await make_store().open(S1, COLUMNS)).position == ""


@pytest.mark.asyncio
async def test_a_position_is_there_for_other_handles_and_after_a_restart(make_store: MakeStore) -> None:
    ours, theirs = await make_store().open(S1, COLUMNS), await make_store().open(S1, COLUMNS)

    await append(ours, 0, 3, 'file "a" line 7')
    await theirs.refresh()

    assert ours.position == theirs.position == 'file "a" line 7'
    assert (await make_store().open(S1, COLUMNS)).position == 'file "a" line 7'


@pytest.mark.asyncio
async def test_what_says_nothing_of_the_position_leaves_it(make_store: MakeStore) -> None:
    shard = await make_store().open(S1, COLUMNS)
    await append(shard, 0, 1, "here")

    await append(shard, 1, 2)
    await shard.take_over(WriterEpoch(2))
    await shard.advance_since(at(1))
    shard.advance(at(9), writer_epoch=WriterEpoch(2))
    await shard.flush()

    assert shard.position == "here"
    assert (await make_store().open(S1, COLUMNS)).position == "here"


@pytest.mark.asyncio
async def test_a_refused_append_moves_no_position(make_store: MakeStore) -> None:
    shard = await make_store().open(S1, COLUMNS)
    await append(shard, 0, 1, "here")
    await shard.take_over(WriterEpoch(2))

    assert await append(shard, 1, 2, "there", epoch=1) == EpochFenced(writer_epoch=WriterEpoch(2))
    assert await append(shard, 5, 6, "there", epoch=2) == UpperMoved(upper=at(1))

    assert shard.position == "here"


@pytest.mark.asyncio
async def test_the_loser_of_a_race_learns_the_winners_position_with_its_refusal(make_store: MakeStore) -> None:
    shards = [await make_store().open(S1, COLUMNS) for _ in range(2)]

    outcomes = await asyncio.gather(
        *(append(shard, 0, 1 + place, f"writer {place}") for place, shard in enumerate(shards))
    )

    winner = outcomes.index(Appended(upper=max(shard.upper for shard in shards)))
    assert outcomes[1 - winner] == UpperMoved(upper=at(1 + winner))
    assert [shard.position for shard in shards] == [f"writer {winner}"] * 2
    # It goes on from there as if it had been the winner.
    assert await append(shards[1 - winner], 1 + winner, 5, "next") == Appended(upper=at(5))


@pytest.mark.asyncio
async def test_a_position_outlives_compaction_and_the_end_of_the_shard(make_store: MakeStore) -> None:
    shard = await make_store().open(S1, COLUMNS)
    for step in range(40):
        await append(shard, step, step + 1, f"after {step}")
    await shard.advance_since(at(39))

    assert await shard.compact()
    assert (await make_store().open(S1, COLUMNS)).position == "after 39"
    await append(shard, 40, None, "the end")
    while await shard.compact():
        pass

    reopened = await make_store().open(S1, COLUMNS)
    assert (reopened.position, reopened.upper) == ("the end", CLOSED)
    assert reopened.since > MINIMUM
