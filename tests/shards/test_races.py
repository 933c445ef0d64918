"""Writers, compactors and readers of one shard in processes of their own."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from instance.shards.delta import DeltaShardStore
from instance.shards.delta_log import commit_name
from reconcile.frontiers import Antichain
from reconcile.ids import Step
from tests.shards.racer import TRAILS, check_changes, check_contents
from tests.shards.rows import COLUMNS
from tests.shards.test_delta import ROOT
from tests.shards.writer import S1

Answers = dict[str, tuple[int, int]]


def race(folder: Path, seconds: int, *racers: str) -> Answers:
    """Runs ``ROLE NAME`` each in a process; what each did and how often it tried, by name."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'proto'}", "PLAINSONG_FAILPOINT": ""}
    running = {
        racer.split()[1]: subprocess.Popen(
            [sys.executable, "-m", "tests.shards.racer", str(folder), *racer.split(), str(seconds)],
            env=environment,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        for racer in racers
    }
    answers: Answers = {}
    for name, process in running.items():
        said, _ = process.communicate(timeout=seconds + 60)
        assert process.returncode == 0, name
        done, tried = said.split()
        answers[name] = (int(done), int(tried))
    return answers


async def is_dense_and_exactly_once(folder: Path, won: dict[str, int]) -> None:
    store = DeltaShardStore(folder)
    shard = await store.open(S1, COLUMNS)
    upper, since = shard.upper.step, shard.since.step
    assert upper == sum(won.values())
    assert since is not None
    contents = await shard.snapshot(Step(upper - 1))
    check_contents(contents, upper - 1)
    check_changes(await shard.read(Antichain.at(since), shard.upper), since, upper)
    names = Counter(row["name"] for row in contents.to_pylist() if row["name"] != "x")
    assert names == won
    await store.close()


async def everything_at_once(folder: Path, seconds: int) -> None:
    racers = ["write left", "write right", "compact c", "read r"]

    answers = race(folder, seconds, *racers)

    await is_dense_and_exactly_once(folder, {name: answers[name][0] for name in ("left", "right")})
    assert min(answers[name][0] for name in ("left", "right", "c", "r")) > 0
    assert answers["left"][0] + answers["right"][0] > 2 * TRAILS
    assert not (folder / "s1" / commit_name(1)).exists()


@pytest.mark.asyncio
async def test_two_writers_a_compactor_and_a_reader_never_see_a_wrong_row(tmp_path: Path) -> None:
    await everything_at_once(tmp_path, 4)


@pytest.mark.heavy
@pytest.mark.asyncio
async def test_two_writers_a_compactor_and_a_reader_never_see_a_wrong_row_in_a_minute(tmp_path: Path) -> None:
    await everything_at_once(tmp_path, 60)


@pytest.mark.asyncio
async def test_two_compactors_that_race_double_no_row(tmp_path: Path) -> None:
    answers = race(tmp_path, 3, "write w", "compact left", "compact right")

    await is_dense_and_exactly_once(tmp_path, {"w": answers["w"][0]})
    assert answers["left"][0] + answers["right"][0] > 1
