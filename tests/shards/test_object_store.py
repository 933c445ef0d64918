"""Shards in an object store: a real S3 server on loopback, whose conditional puts are tried first."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from instance.inputs import NotReadable
from instance.shards.delta import DeltaShardStore
from instance.shards.maintenance import maintain
from instance.shards.rules import UpkeepRules
from instance.shards.store import Appended, UpperMoved
from instance.storage.readers import ShardInputs
from reconcile.frontiers import MINIMUM, Antichain
from reconcile.ids import Step, WriterEpoch
from tests.object_store import request
from tests.shards.rows import COLUMNS, listed
from tests.shards.writer import S1, append


def test_of_conditional_puts_at_the_same_time_exactly_one_wins(s3_endpoint: str, s3_bucket: str) -> None:
    """What everything else here stands on."""
    with ThreadPoolExecutor(8) as threads:
        for number in range(10):
            url = f"{s3_endpoint}/{s3_bucket}/{number}"
            answers = list(
                threads.map(lambda _, url=url: request("PUT", url, b"x", **{"If-None-Match": "*"}), range(8))
            )
            assert sorted(answers) == [200, *([412] * 7)]


@pytest.mark.asyncio
async def test_a_shard_is_written_read_and_fenced_as_on_a_disk(s3_place: tuple[str, dict[str, str]]) -> None:
    stores = [DeltaShardStore(s3_place[0], options=s3_place[1]) for _ in range(2)]
    ours, theirs = [await store.open(S1, COLUMNS) for store in stores]

    outcomes = await asyncio.gather(append(ours, 0, "ours"), append(theirs, 0, "theirs"))
    assert sorted(outcomes) == [False, True]
    winner = "ours" if outcomes[0] else "theirs"
    await theirs.take_over(WriterEpoch(2))
    fenced = await append(ours, 1, "old", epoch=WriterEpoch(1))
    theirs.advance(Antichain.at(5))
    flushed = await theirs.flush()
    late = await theirs.compare_and_append(
        expected=MINIMUM, upper=Antichain.at(1), updates=None, writer_epoch=None, token=""
    )

    assert not fenced
    assert flushed == Appended(upper=Antichain.at(5))
    assert late == UpperMoved(upper=Antichain.at(5))
    assert await ours.refresh() == Antichain.at(5)
    assert listed(await ours.snapshot(Step(4))) == [(winner, 0, 1)]
    assert await ours.find_token(f"{winner}-0") == 0
    for store in stores:
        await store.close()


@pytest.mark.asyncio
async def test_a_shard_is_compacted_cleaned_up_and_vacuumed(s3_place: tuple[str, dict[str, str]]) -> None:
    rules = UpkeepRules(tier_files_max=3, log_versions_min=4, reopen_after=4)
    stores = [DeltaShardStore(s3_place[0], options=s3_place[1], rules=rules) for _ in range(2)]
    shard, behind = [await store.open(S1, COLUMNS) for store in stores]
    cleaned = deleted = 0

    for step in range(16):
        assert await append(shard, step, "a")
        await shard.advance_since(Antichain.at(step // 2))
        done = (await maintain(shard, (1 + step) * 1e12)).tidied
        cleaned, deleted = cleaned + done.commits_cleaned, deleted + done.files_deleted

    assert cleaned > 0
    assert deleted > 0
    assert await behind.refresh() == Antichain.at(16)
    for seen in (shard, behind, await stores[0].open(S1, COLUMNS)):
        assert listed(await seen.snapshot(Step(15))) == sorted([("a", step, 1) for step in range(16)], key=repr)
        with pytest.raises(NotReadable):
            await seen.snapshot(Step(3))
    for store in stores:
        await store.close()


@pytest.mark.asyncio
async def test_a_reader_finds_what_another_process_appends(
    s3_place: tuple[str, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = [DeltaShardStore(s3_place[0], options=s3_place[1]) for _ in range(2)]
    monkeypatch.setattr("instance.shards.delta.REMOTE_POLL_SECONDS", 0.05)
    shard = await theirs.open(S1, COLUMNS)
    inputs = ShardInputs(ours)
    waiting = asyncio.create_task(inputs.open(S1, COLUMNS).changes(MINIMUM))
    await asyncio.sleep(0)

    await append(shard, 0, "a")

    assert listed((await asyncio.wait_for(waiting, 20)).table) == [("a", 0, 0, 1)]
    await inputs.stop()
    await ours.close()
    await theirs.close()
