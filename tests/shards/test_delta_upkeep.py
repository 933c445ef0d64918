"""Upkeep of Delta shards: nothing that anybody needs is ever cleared away."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, write_deltalake

from instance.shards import delta_writing
from instance.shards.compaction import Compaction
from instance.shards.delta import DeltaShardStore
from instance.shards.delta_compaction import commit_rewritten, rewrite
from instance.shards.delta_log import checkpoint_name, commit_name
from instance.shards.delta_upkeep import Upkeep
from instance.shards.maintenance import maintain
from instance.shards.rules import UpkeepRules
from instance.shards.store import Appended, UpperMoved
from instance.storage.readers import ShardInputs
from reconcile.errors import StorageFailed
from reconcile.frontiers import MINIMUM, Antichain
from reconcile.ids import Step
from tests.shards.rows import COLUMNS, UPDATES, listed, updates
from tests.shards.test_delta import table_in
from tests.shards.writer import S1, append

#: Seconds after which nothing is spared any more, by the clock alone.
LATER = 1e12
EAGER = UpkeepRules(tier_files_max=2, history_rows_min=1, log_versions_min=5, reopen_after=5)


def at(step: int) -> Antichain:
    return Antichain.at(step)


def parquet(folder: Path) -> set[str]:
    return {file.name for file in (folder / "s1").iterdir() if ".parquet" in file.name}


@pytest.mark.asyncio
async def test_a_shard_that_is_maintained_keeps_few_files_and_a_short_log(tmp_path: Path) -> None:
    store = DeltaShardStore(tmp_path, rules=EAGER)
    shard = await store.open(S1, COLUMNS)

    for step in range(40):
        assert await append(shard, step, "a")
        await shard.advance_since(at(step))
        await maintain(shard, step * LATER)

    assert len(parquet(tmp_path)) < 10
    assert len(list((tmp_path / "s1" / "_delta_log").iterdir())) < 25
    again = await store.open(S1, COLUMNS)
    assert len(await again.snapshot(Step(39))) == 40
    assert len(DeltaTable(str(tmp_path / "s1")).file_uris()) < 10
    await store.close()


@pytest.mark.asyncio
async def test_a_handle_behind_the_logs_beginning_opens_anew_and_goes_on(tmp_path: Path) -> None:
    store, elsewhere = DeltaShardStore(tmp_path, rules=EAGER), DeltaShardStore(tmp_path, rules=EAGER)
    shard, behind = await store.open(S1, COLUMNS), await elsewhere.open(S1, COLUMNS)
    inputs = ShardInputs(elsewhere)
    follower = inputs.open(S1, COLUMNS)
    await append(shard, 0, "a")
    first = await follower.changes(MINIMUM)

    for step in range(1, 30):
        await append(shard, step, "a")
        await maintain(shard, LATER)

    assert not (tmp_path / "s1" / commit_name(2)).exists()
    await elsewhere.refresh_all([behind])
    assert behind.upper == at(30)
    changes = await follower.changes(first.upper)
    assert sorted(int(str(row[2])) for row in listed(changes.table)) == list(range(1, 30))
    assert await append(behind, 30, "b")
    await inputs.stop()
    await store.close()
    await elsewhere.close()


@pytest.mark.asyncio
async def test_the_log_is_not_cleaned_up_below_a_checkpoint_that_is_not_whole(tmp_path: Path) -> None:
    store = DeltaShardStore(tmp_path, rules=EAGER)
    shard = await store.open(S1, COLUMNS)
    for step in range(12):
        await append(shard, step, "a")
    older, newer = sorted((tmp_path / "s1" / "_delta_log").glob("*.checkpoint.parquet"))
    os.truncate(older, 100)

    damaged = await shard.tidy(LATER)
    for step in range(12, 16):
        await append(shard, step, "a")
    later = await shard.tidy(LATER)

    assert damaged.commits_cleaned == 0
    assert later.commits_cleaned == 10
    assert newer.exists()
    assert len(await (await store.open(S1, COLUMNS)).read(MINIMUM, at(16))) == 16
    await store.close()


def test_the_commit_that_says_the_position_outlives_however_many_compactions(tmp_path: Path) -> None:
    table = table_in(tmp_path, replace(EAGER, log_versions_min=0, reopen_after=2))
    table.open()
    for step in range(3):
        delta_writing.append(
            table, at(step), at(step + 1), updates(("a", step, step, 1)), None, "", position=f"after {step}"
        )
    upkeep = Upkeep(table)
    for _ in range(7):
        plan = Compaction(files=tuple(table.view.files), reason="")
        assert commit_rewritten(table, rewrite(table, table.view, plan))
        upkeep.tidy_log(table.view, LATER)

    again = table_in(tmp_path)
    again.open()

    assert not (tmp_path / "s1" / commit_name(0)).exists()
    assert (again.version, again.view.position) == (10, "after 2")


@pytest.mark.asyncio
async def test_a_torn_newest_checkpoint_is_set_aside_also_after_a_clean_up(tmp_path: Path) -> None:
    store = DeltaShardStore(tmp_path, rules=EAGER)
    shard = await store.open(S1, COLUMNS)
    for step in range(20):
        await append(shard, step, "a")
        await maintain(shard, LATER)
    newest = max((tmp_path / "s1" / "_delta_log").glob("*.checkpoint.parquet"))
    os.truncate(newest, 100)

    again = await store.open(S1, COLUMNS)

    assert not (tmp_path / "s1" / commit_name(0)).exists()
    assert not newest.exists()
    assert len(await again.read(MINIMUM, at(20))) == 20
    await store.close()


@pytest.mark.asyncio
async def test_tokens_outlive_compaction_and_clean_up_as_far_as_promised(tmp_path: Path) -> None:
    store = DeltaShardStore(tmp_path, rules=EAGER)
    shard = await store.open(S1, COLUMNS)
    for step in range(12):
        await append(shard, step, "a")
        await maintain(shard, LATER)

    again = await store.open(S1, COLUMNS)

    assert [await again.find_token(f"a-{step}") for step in (10, 11)] == [10, 11]
    await store.close()


def test_a_file_that_a_stalled_writer_is_about_to_commit_is_never_vacuumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, maintainer = table_in(tmp_path), table_in(tmp_path)
    writer.open()
    maintainer.open()
    upkeep, deleted = Upkeep(maintainer), list[int]()
    create = DeltaTable.create

    def vacuum(now: float) -> None:
        found = upkeep.list_files()
        maintainer.follow()
        deleted.append(upkeep.vacuum(found, maintainer.view, now))

    def stalled(handle: DeltaTable, *args: Any, **options: Any) -> None:
        # As if stopped between writing the file and committing it, for longer than any clock allows.
        other = tmp_path / "other"
        create(str(other), handle.schema())
        write_deltalake(str(other), *args, mode="append")
        [file] = other.glob("part-*")
        file.rename(tmp_path / "s1" / file.name)
        vacuum(0.0)
        vacuum(LATER)
        assert (tmp_path / "s1" / file.name).exists()
        (tmp_path / "s1" / file.name).unlink()
        write_deltalake(handle, *args, **options)

    monkeypatch.setattr(delta_writing, "write_deltalake", stalled)
    outcome = delta_writing.append(writer, MINIMUM, at(1), updates(("a", 1, 0, 1)), None, "")

    assert outcome == Appended(upper=at(1))
    assert deleted == [0, 0]


@pytest.mark.asyncio
async def test_what_killed_writers_left_is_deleted_once_nobody_can_commit_it(tmp_path: Path) -> None:
    store = DeltaShardStore(tmp_path)
    shard = await store.open(S1, COLUMNS)
    await append(shard, 0, "a")
    folder = tmp_path / "s1"
    orphans = ["part-00000-x.parquet", "part-00000-y.parquet#1", "compacted-1-z.parquet"]
    staged = [f"_delta_log/{version:020d}.json#1" for version in (1, 2)]
    for name in [*orphans, *staged, "mine.txt"]:
        (folder / name).write_text("")

    await shard.tidy(0.0)
    await shard.tidy(LATER)
    while_idle = {name for name in [*orphans, *staged, "mine.txt"] if (folder / name).exists()}
    await append(shard, 1, "a")
    await shard.tidy(2 * LATER)
    left = {name for name in [*orphans, *staged, "mine.txt"] if (folder / name).exists()}

    assert while_idle == {*orphans, staged[1], "mine.txt"}
    assert left == {"compacted-1-z.parquet", "mine.txt"}
    await store.close()


def test_a_compaction_that_finds_its_number_taken_leaves_nothing_behind(tmp_path: Path) -> None:
    ours, theirs = table_in(tmp_path), table_in(tmp_path)
    ours.open()
    theirs.open()
    for step in range(4):
        delta_writing.append(ours, at(step), at(step + 1), updates(("a", step, step, 1)), None, "")
    theirs.follow()
    plan = Compaction(files=tuple(ours.view.files), reason="")
    first, second = rewrite(ours, ours.view, plan), rewrite(theirs, theirs.view, plan)

    done = [commit_rewritten(ours, first), commit_rewritten(theirs, second)]

    assert done == [True, False]
    assert sum(name.startswith("compacted-") for name in parquet(tmp_path)) == 1
    assert len(theirs.read(theirs.view, MINIMUM, at(4))) == 4


def test_a_compaction_between_whose_reading_and_commit_rows_were_appended_loses_none(tmp_path: Path) -> None:
    writer, compactor = table_in(tmp_path), table_in(tmp_path)
    writer.open()
    for step in range(4):
        delta_writing.append(writer, at(step), at(step + 1), updates(("a", step, step, 1)), None, "")
    compactor.open()
    plan = Compaction(files=tuple(compactor.view.files), reason="")
    rewritten = rewrite(compactor, compactor.view, plan)

    late = delta_writing.append(writer, at(4), at(5), updates(("b", 4, 4, 1)), None, "")
    delta_writing.advance_since(writer, at(2))

    assert commit_rewritten(compactor, rewritten)
    assert delta_writing.append(writer, at(4), at(9), None, None, "") == UpperMoved(upper=at(5))
    assert late == Appended(upper=at(5))
    for table in (writer, compactor):
        table.follow()
        assert (table.view.upper, table.view.since, table.view.compaction) == (at(5), at(2), 1)
        assert len(table.read(table.view, MINIMUM, at(5))) == 5
        assert len(table.view.files) == 2


@pytest.mark.asyncio
async def test_a_file_that_is_missing_for_no_reason_is_a_failure_and_not_an_empty_answer(tmp_path: Path) -> None:
    store = DeltaShardStore(tmp_path)
    shard = await store.open(S1, COLUMNS)
    await append(shard, 0, "a")
    [name] = parquet(tmp_path)
    (tmp_path / "s1" / name).unlink()

    with pytest.raises(StorageFailed, match="lacks a file"):
        await shard.snapshot(Step(0))

    await store.close()


@pytest.mark.asyncio
async def test_maintenance_of_a_shard_where_nothing_happened_writes_nothing(tmp_path: Path) -> None:
    store = DeltaShardStore(tmp_path)
    shard = await store.open(S1, COLUMNS)
    await append(shard, 0, "a")
    await maintain(shard, 0.0)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}

    await maintain(shard, 1.0)

    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
    await store.close()


def test_the_names_of_the_log_are_deltas_own() -> None:
    assert commit_name(7) == "_delta_log/00000000000000000007.json"
    assert checkpoint_name(7) == "_delta_log/00000000000000000007.checkpoint.parquet"
    assert len(UPDATES) == 4
