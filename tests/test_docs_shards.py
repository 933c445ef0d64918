"""The blocks of ``docs/shards.md``, run as their readers would; the one for Spark is run in ``tests/spark``."""

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types
import pytest

from instance.shards.delta import DeltaShardStore
from instance.shards.maintenance import maintain
from instance.shards.rules import UpkeepRules
from plainsong.types import schema
from reconcile.frontiers import Antichain
from reconcile.ids import GlobalId

GUIDE = Path(__file__).parents[1] / "docs" / "shards.md"
S1 = GlobalId("s", 1)
COLUMNS = schema([("customer", "string"), ("amount", "bigint")])
NOTED = schema([("customer", "string"), ("amount", "bigint"), ("note", "string")])
#: customer, amount, diff, by step: bob comes and goes, ann's amount changes twice, nobody is there twice.
STEPS: list[list[tuple[str | None, int, int]]] = [
    [("ann", 5, 1), ("bob", 7, 1)],
    [("ann", 5, -1), ("ann", 10, 1)],
    [("bob", 7, -1), (None, 3, 2)],
    [("ann", 10, -1), ("ann", 15, 1), ("cem", 1, 1)],
]


CONTENTS, CHANGES = "contents of a shard, with deltalake", "What changed at the last step"
DUCKDB, SPARK = "contents of a shard, with DuckDB", "contents of a shard, with Spark"
STORE = "from instance.shards.delta import DeltaShardStore"


def block(about: str) -> str:
    """The one program of the guide with this in its first line."""
    (program,) = [program for program in blocks() if about in program.splitlines()[0]]
    return program


def blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)


def test_there_is_no_block_that_is_not_run() -> None:
    assert sorted(blocks()) == sorted(block(about) for about in (CONTENTS, CHANGES, DUCKDB, SPARK, STORE))


async def write_shard(root: Path, *, since: int = 0, grown: bool = False) -> None:
    """The steps above, some of them compacted; if it is grown, by a column that only the last step knows."""
    store = DeltaShardStore(root / "data" / "shards", rules=UpkeepRules(tier_files_max=2, history_rows_min=1))
    shard = await store.open(S1, COLUMNS)
    for step, rows in enumerate(STEPS):
        table = [
            {"customer": customer, "amount": amount, "_step": step, "_diff": diff} for customer, amount, diff in rows
        ]
        if grown and step == len(STEPS) - 1:
            await shard.grow(NOTED, writer_epoch=None)
            table[-1]["note"] = "new"
        await shard.compare_and_append(
            expected=Antichain.at(step),
            upper=Antichain.at(step + 1),
            updates=pa.Table.from_pylist(table, schema=shard.schema),
            writer_epoch=None,
            token="",
        )
        if step == 2:
            await shard.advance_since(Antichain.at(1))
            assert (await maintain(shard, 0.0)).compacted
    await shard.advance_since(Antichain.at(since))
    await store.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    asyncio.run(write_shard(tmp_path))
    return tmp_path


def run(program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    (folder / "program.py").write_text(program)
    environment = {name: value for name, value in os.environ.items() if name != "PLAINSONG_FAILPOINT"}
    command = [sys.executable, "program.py"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, env=environment)


def test_deltalake_sums_up_the_contents(folder: Path) -> None:
    done = run(block(CONTENTS), folder)

    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "{'customer': 'ann', 'amount': 15, '_diff_sum': 1}",
        "{'customer': 'cem', 'amount': 1, '_diff_sum': 1}",
        "{'customer': None, 'amount': 3, '_diff_sum': 2}",
    ]


def test_a_shard_that_has_grown_is_read_by_the_same_programs(tmp_path: Path) -> None:
    asyncio.run(write_shard(tmp_path, grown=True))

    contents, changes = run(block(CONTENTS), tmp_path), run(block(CHANGES), tmp_path)

    assert (contents.stderr, changes.stderr) == ("", "")
    assert contents.stdout.splitlines() == [
        "{'customer': 'ann', 'amount': 15, 'note': None, '_diff_sum': 1}",
        "{'customer': 'cem', 'amount': 1, 'note': 'new', '_diff_sum': 1}",
        "{'customer': None, 'amount': 3, 'note': None, '_diff_sum': 2}",
    ]
    assert sorted(changes.stdout.splitlines()) == ["+ ann 15", "+ cem 1", "- ann 10"]


def test_duckdb_reads_a_shard_that_has_grown(tmp_path: Path) -> None:
    pytest.importorskip("duckdb")
    asyncio.run(write_shard(tmp_path, grown=True))

    done = run(block(DUCKDB), tmp_path)

    assert done.stderr == ""
    assert sorted(done.stdout.splitlines()) == [
        "('ann', 15, None, 1)",
        "('cem', 1, 'new', 1)",
        "(None, 3, None, 2)",
    ]


def test_deltalake_tells_the_changes(folder: Path) -> None:
    done = run(block(CHANGES), folder)

    assert done.stderr == ""
    assert sorted(done.stdout.splitlines()) == ["+ ann 15", "+ cem 1", "- ann 10"]


@pytest.mark.parametrize("about", [CONTENTS, CHANGES])
def test_the_programs_refuse_what_can_no_longer_be_read(tmp_path: Path, about: str) -> None:
    asyncio.run(write_shard(tmp_path, since=9))

    done = run(block(about), tmp_path)

    assert (done.returncode, done.stdout) == (1, "")
    assert "can no longer be" in done.stderr


def test_duckdb_sums_up_the_contents(folder: Path) -> None:
    pytest.importorskip("duckdb")

    done = run(block(DUCKDB), folder)

    assert done.stderr == ""
    assert done.stdout.splitlines() == ["('ann', 15, 1)", "('cem', 1, 1)", "(None, 3, 2)"]


def test_an_empty_shard_has_no_contents(tmp_path: Path) -> None:
    async def write() -> None:
        store = DeltaShardStore(tmp_path / "data" / "shards")
        shard = await store.open(S1, COLUMNS)
        shard.advance(Antichain.at(3))
        await store.close()

    asyncio.run(write())

    done = run(block(CONTENTS), tmp_path)

    assert (done.stderr, done.stdout) == ("", "")


def test_the_store_takes_a_url_and_options_as_the_guide_says() -> None:
    program = block(STORE)
    names: dict[str, object] = {}

    exec(program, names)

    store = names["store"]
    assert isinstance(store, DeltaShardStore)
    assert store.poll_seconds > DeltaShardStore("/nowhere").poll_seconds
