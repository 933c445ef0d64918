"""Delta shards under crashes and real processes."""

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types
import pytest
from deltalake import DeltaTable, write_deltalake

from instance.shards import delta_writing, places
from instance.shards.delta import DeltaShardStore
from instance.shards.delta_log import DeltaLog, Torn, commit_name
from instance.shards.delta_table import ShardTable
from instance.shards.durability import LocalDurability
from instance.shards.places import LocalPlace
from instance.shards.rules import DEFAULT_RULES, UpkeepRules
from instance.shards.store import Appended, UpperMoved
from reconcile.errors import InvariantBroken, StorageFailed
from reconcile.frontiers import MINIMUM, Antichain
from reconcile.ids import GlobalId, Step, WriterEpoch
from tests.shards.rows import COLUMNS, UPDATES, listed, updates
from tests.shards.writer import S1, append

ROOT = Path(__file__).parents[2]


def log_in(folder: Path, name: str = "s1") -> DeltaLog:
    return DeltaLog(LocalPlace(folder / name))


def commit_file(folder: Path, version: int) -> Path:
    return folder / "s1" / commit_name(version)


def table_in(folder: Path, rules: UpkeepRules = DEFAULT_RULES) -> ShardTable:
    place = LocalPlace(folder / "s1")
    return ShardTable(S1, UPDATES, place, LocalDurability(place), {}, rules)


def start(folder: Path, what: str, name: str, *, failpoint: str = "") -> subprocess.Popen[str]:
    environment = {**os.environ, "PLAINSONG_FAILPOINT": failpoint, "PYTHONPATH": f"{ROOT}:{ROOT / 'proto'}"}
    command = [sys.executable, "-m", "tests.shards.writer", str(folder), what, name]
    return subprocess.Popen(command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    said, _ = process.communicate(timeout=60)
    return process.returncode, said


@pytest.mark.asyncio
async def test_two_processes_that_race_leave_a_dense_shard_with_every_step_once(tmp_path: Path) -> None:
    writers = [start(tmp_path, "race", name) for name in ("left", "right")]

    answers = [finish(writer) for writer in writers]

    store = DeltaShardStore(tmp_path)
    shard = await store.open(S1, COLUMNS)
    won = [int(said.split()[0]) for code, said in answers if code == 0]
    rows = listed(await shard.read(MINIMUM, shard.upper))
    assert len(won) == 2
    assert min(won) > 0
    assert shard.upper.step == sum(won)
    assert sorted(int(str(row[2])) for row in rows) == list(range(sum(won)))
    assert Counter(row[0] for row in rows) == {"left": won[0], "right": won[1]}
    await store.close()


@pytest.mark.parametrize("point", ["shard-before-commit", "shard-after-commit"])
@pytest.mark.asyncio
async def test_a_writer_killed_around_its_commit_leaves_all_or_nothing(tmp_path: Path, point: str) -> None:
    assert finish(start(tmp_path, "append", "first")) == (0, "")

    code, _ = finish(start(tmp_path, "append", "killed", failpoint=point))

    store = DeltaShardStore(tmp_path)
    shard = await store.open(S1, COLUMNS)
    committed = point == "shard-after-commit"
    assert code == -signal.SIGKILL
    assert shard.upper == Antichain.at(2 if committed else 1)
    assert await shard.find_token("killed-1") == (1 if committed else None)
    # The writer's successor repeats the append with the same token, whatever became of it.
    assert await append(shard, 1, "killed")
    assert listed(await shard.read(MINIMUM, shard.upper)) == [("first", 0, 0, 1), ("killed", 1, 1, 1)]
    await store.close()


@pytest.mark.parametrize("point", ["shard-before-commit", "shard-after-commit"])
@pytest.mark.asyncio
async def test_a_take_over_killed_around_its_commit_fences_or_does_not(tmp_path: Path, point: str) -> None:
    finish(start(tmp_path, "append", "first"))

    code, _ = finish(start(tmp_path, "take-over", "", failpoint=point))
    finish(start(tmp_path, "since", ""))

    store = DeltaShardStore(tmp_path)
    shard = await store.open(S1, COLUMNS)
    committed = point == "shard-after-commit"
    assert code == -signal.SIGKILL
    assert (shard.writer_epoch, shard.upper, shard.since) == (2 if committed else 0, Antichain.at(1), Antichain.at(1))
    assert await append(shard, 1, "old", epoch=WriterEpoch(1)) is not committed
    await store.close()


async def three_steps(folder: Path, rules: UpkeepRules = DEFAULT_RULES) -> None:
    store = DeltaShardStore(folder, rules=rules)
    shard = await store.open(S1, COLUMNS)
    for step in range(3):
        await append(shard, step, "a")
    await store.close()


@pytest.mark.parametrize("cut", [0.0, 0.2, 0.5, 0.99])
@pytest.mark.asyncio
async def test_a_newest_commit_torn_by_a_power_failure_is_set_aside(tmp_path: Path, cut: float) -> None:
    await three_steps(tmp_path)
    newest = commit_file(tmp_path, 3)
    newest.write_bytes(newest.read_bytes()[: int(newest.stat().st_size * cut)])

    store = DeltaShardStore(tmp_path)
    shard = await store.open(S1, COLUMNS)

    assert shard.upper == Antichain.at(2)
    assert len(list((tmp_path / "s1" / "_torn").iterdir())) == 1
    assert await append(shard, 2, "again")
    assert listed(await shard.read(at(2), at(3))) == [("again", 2, 2, 1)]
    await store.close()


@pytest.mark.asyncio
async def test_a_commit_cut_off_between_two_lines_is_torn_at_each_of_them(tmp_path: Path) -> None:
    await three_steps(tmp_path)
    log = log_in(tmp_path)
    lines = commit_file(tmp_path, 3).read_text().splitlines(keepends=True)

    for kept in range(len(lines)):
        commit_file(tmp_path, 3).write_text("".join(lines[:kept]))
        with pytest.raises(Torn):
            log.read(3)

    commit_file(tmp_path, 3).write_text("".join(lines))
    assert log.read(3).upper == Antichain.at(3)


@pytest.mark.parametrize("size", [0, 100, None])
@pytest.mark.asyncio
async def test_a_newest_commit_whose_rows_were_lost_is_set_aside(tmp_path: Path, size: int | None) -> None:
    await three_steps(tmp_path)
    file = tmp_path / "s1" / log_in(tmp_path).read(3).added[0].name
    if size is None:
        file.unlink()
    else:
        os.truncate(file, size)

    store = DeltaShardStore(tmp_path)
    shard = await store.open(S1, COLUMNS)

    assert shard.upper == Antichain.at(2)
    assert listed(await shard.snapshot(Step(1))) == [("a", 0, 1), ("a", 1, 1)]
    await store.close()


@pytest.mark.asyncio
async def test_a_shard_whose_creation_was_torn_is_created_again(tmp_path: Path) -> None:
    store = DeltaShardStore(tmp_path)
    await store.open(S1, COLUMNS)
    commit_file(tmp_path, 0).write_text("")

    shard = await store.open(S1, COLUMNS)

    assert shard.upper == MINIMUM
    assert await append(shard, 0, "a")
    await store.close()


@pytest.mark.asyncio
async def test_a_torn_log_checkpoint_is_set_aside(tmp_path: Path) -> None:
    await three_steps(tmp_path, UpkeepRules(reopen_after=2))
    checkpoint = tmp_path / "s1" / "_delta_log" / f"{2:020d}.checkpoint.parquet"
    os.truncate(checkpoint, 1_000)

    store = DeltaShardStore(tmp_path)
    shard = await store.open(S1, COLUMNS)

    assert shard.upper == Antichain.at(3)
    assert not checkpoint.exists()
    assert len(await shard.read(MINIMUM, shard.upper)) == 3
    await store.close()


def test_a_commit_that_comes_between_the_check_and_ours_is_a_race_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = (table_in(tmp_path) for _ in range(2))
    ours.open()
    theirs.open()
    get_ready = ours._handle_here

    def lose_the_race() -> DeltaTable:
        delta_writing.append(theirs, MINIMUM, at(2), updates(("theirs", 1, 0, 1)), None, "")
        return get_ready()

    monkeypatch.setattr(ours, "_handle_here", lose_the_race)
    outcome = delta_writing.append(ours, MINIMUM, at(1), updates(("ours", 1, 0, 1)), None, "")

    assert outcome == UpperMoved(upper=at(2))
    assert listed(ours.read(ours.view, MINIMUM, at(2))) == [("theirs", 1, 0, 1)]


def test_an_append_overtaken_by_a_commit_that_does_not_concern_it_is_written_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = (table_in(tmp_path) for _ in range(2))
    ours.open()
    theirs.open()

    def overtaken(*args: Any, **options: Any) -> None:
        monkeypatch.setattr(delta_writing, "write_deltalake", write_deltalake)
        delta_writing.advance_since(theirs, at(1))
        write_deltalake(*args, **options)

    monkeypatch.setattr(delta_writing, "write_deltalake", overtaken)
    outcome = delta_writing.append(ours, MINIMUM, at(1), updates(("ours", 1, 0, 1)), None, "")

    assert outcome == Appended(upper=at(1))
    assert (ours.version, ours.view.since) == (2, at(1))
    assert listed(ours.read(ours.view, MINIMUM, at(1))) == [("ours", 1, 0, 1)]


def test_a_handle_that_has_seen_many_commits_is_opened_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, opened = table_in(tmp_path, UpkeepRules(reopen_after=2)), list[int]()
    open_handle = table._handle.open

    def counted() -> DeltaTable:
        opened.append(table.version)
        return open_handle()

    monkeypatch.setattr(table._handle, "open", counted)
    table.open()
    for step in range(5):
        delta_writing.append(table, at(step), at(step + 1), None, None, "")

    assert opened == [-1, 2, 4]


@pytest.mark.asyncio
async def test_a_lost_reply_is_recognised_by_the_attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = DeltaShardStore(tmp_path)
    shard = await store.open(S1, COLUMNS)

    def lose_the_reply(*args: Any, **options: Any) -> None:
        write_deltalake(*args, **options)
        raise OSError("connection reset")

    with monkeypatch.context() as patched:
        patched.setattr(delta_writing, "write_deltalake", lose_the_reply)
        assert await append(shard, 0, "lost")

    assert await append(shard, 1, "next")
    assert listed(await shard.snapshot(Step(1))) == [("lost", 0, 1), ("next", 1, 1)]
    await store.close()


@pytest.mark.asyncio
async def test_a_commit_that_cannot_be_written_fails_and_can_be_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = DeltaShardStore(tmp_path)
    shard = await store.open(S1, COLUMNS)

    def disk_full(*_: object, **__: object) -> None:
        raise OSError("no space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(delta_writing, "write_deltalake", disk_full)
        with pytest.raises(StorageFailed, match="no space left"):
            await append(shard, 0, "a")

    assert await append(shard, 0, "a")
    await store.close()


@pytest.mark.asyncio
async def test_everything_a_commit_consists_of_is_synced_before_it_is_acknowledged_or_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, elsewhere = DeltaShardStore(tmp_path), DeltaShardStore(tmp_path)
    shard, reader = await store.open(S1, COLUMNS), await elsewhere.open(S1, COLUMNS)
    synced = list[Path]()
    monkeypatch.setattr(places, "sync", synced.append)

    await append(shard, 0, "a")
    by_the_writer = synced.copy()
    await reader.refresh()

    log = log_in(tmp_path)
    [added] = log.read(1).added
    folder = tmp_path / "s1"
    assert by_the_writer == [folder / added.name, folder, commit_file(tmp_path, 1), folder / "_delta_log"]
    assert synced == by_the_writer * 2
    await store.close()
    await elsewhere.close()


@pytest.mark.asyncio
async def test_after_a_failed_fsync_the_handle_neither_acknowledges_nor_tries_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = DeltaShardStore(tmp_path)
    shard = await store.open(S1, COLUMNS)

    def fail(*_: object) -> None:
        raise OSError("input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(LocalDurability, "sync", fail)
        with pytest.raises(StorageFailed):
            await append(shard, 0, "a")

    assert shard.upper == MINIMUM
    with pytest.raises(StorageFailed):
        await shard.refresh()
    with pytest.raises(StorageFailed):
        await append(shard, 0, "b")
    await store.close()


@pytest.mark.asyncio
async def test_a_shard_that_goes_back_is_noticed(tmp_path: Path) -> None:
    store = DeltaShardStore(tmp_path)
    shard = await store.open(S1, COLUMNS)
    await append(shard, 0, "a")
    await append(shard, 1, "b")
    commit_file(tmp_path, 3).write_bytes(commit_file(tmp_path, 1).read_bytes())

    with pytest.raises(InvariantBroken, match="moves the upper back"):
        await shard.refresh()

    await store.close()


@pytest.mark.asyncio
async def test_any_reader_of_delta_tables_can_read_a_shard(tmp_path: Path) -> None:
    await three_steps(tmp_path)

    files = DeltaTable(str(tmp_path / "s1")).file_uris()

    assert len(files) == 3


@pytest.mark.asyncio
async def test_the_statistics_of_steps_are_there_however_many_columns(tmp_path: Path) -> None:
    columns = pa.schema([pa.field(f"c{place}", pa.int64()) for place in range(40)])
    store = DeltaShardStore(tmp_path)
    shard = await store.open(GlobalId("s", 2), columns)
    cells = {name: [1] for name in columns.names}

    outcome = await shard.compare_and_append(
        expected=MINIMUM,
        upper=at(9),
        updates=pa.table({**cells, "_step": [7], "_diff": [1]}),
        writer_epoch=None,
        token="",
    )

    added = log_in(tmp_path, "s2").read(1).added[0]
    assert outcome == Appended(upper=at(9))
    assert (added.first, added.last) == (7, 7)
    await store.close()


@pytest.mark.asyncio
async def test_appends_to_many_shards_at_once_all_happen(tmp_path: Path) -> None:
    store = DeltaShardStore(tmp_path)
    shards = [await store.open(GlobalId("s", number), COLUMNS) for number in range(6)]

    await asyncio.gather(
        *(
            shard.compare_and_append(
                expected=MINIMUM, upper=at(1), updates=updates(("a", 1, 0, 1)), writer_epoch=None, token=""
            )
            for shard in shards
        )
    )

    assert [len(await shard.snapshot(Step(0))) for shard in shards] == [1] * 6
    await store.close()


@pytest.mark.asyncio
async def test_a_url_of_a_local_folder_is_that_folder(tmp_path: Path) -> None:
    by_url, by_path = DeltaShardStore(f"file://{tmp_path}"), DeltaShardStore(tmp_path)

    await append(await by_url.open(S1, COLUMNS), 0, "a")

    assert (await by_path.open(S1, COLUMNS)).upper == Antichain.at(1)
    assert by_url.poll_seconds == by_path.poll_seconds
    await by_url.close()
    await by_path.close()


def at(step: int) -> Antichain:
    return Antichain.at(step)
