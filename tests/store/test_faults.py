"""Faults from outside, at the system calls of SQLite: killed in the middle of a write, or refused by the disk."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.store.places import SqlitePlace, seen_by_the_next
from tests.store.programs import environment
from tests.store.test_kills import STATES, summary

pytestmark = [
    pytest.mark.asyncio,
    pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace"),
]

#: With SQLite 3.40 these fall into the migration, the first statement, the second, the compaction, the third, the end;
#: what is promised holds wherever they fall.
KILLED_WRITES = (60, 78, 88, 98, 106, 115)
FAILED_SYNCS = (5, 9, 10, 11, 12, 13)


def _run(folder: Path, fault: str) -> list[str]:
    """What the program said before the fault ended it."""
    calls = fault.partition(":")[0]
    traced = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={calls}", "-e", f"inject={fault}"]
    done = subprocess.run(
        [*traced, sys.executable, "-m", "tests.store.programs", "statements", str(folder)],
        env=environment({}),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if "ptrace" in done.stderr and not done.stdout:
        pytest.skip("needs the right to trace")
    assert done.returncode == 0 or "StorageFailed: the database failed" in done.stderr or not done.stderr
    return done.stdout.splitlines()


async def _is_whole(folder: Path, said: list[str]) -> None:
    """All that was acknowledged is there; of the call under way all or nothing; of later ones nothing."""
    acknowledged = len(set(said) & {"first", "second", "compacted", "third"})
    found = summary(await seen_by_the_next(SqlitePlace(folder)))
    assert found in STATES[acknowledged : acknowledged + 2]


@pytest.mark.parametrize("write", KILLED_WRITES)
async def test_killed_in_the_middle_of_a_write_each_call_is_all_there_or_not(tmp_path: Path, write: int) -> None:
    said = _run(tmp_path, f"pwrite64:signal=SIGKILL:when={write}")

    await _is_whole(tmp_path, said)


@pytest.mark.parametrize("sync", FAILED_SYNCS)
async def test_a_sync_that_fails_is_not_acknowledged(tmp_path: Path, sync: int) -> None:
    said = _run(tmp_path, f"fdatasync,fsync:error=EIO:when={sync}")

    await _is_whole(tmp_path, said)


async def test_nothing_is_acknowledged_before_it_is_synced(tmp_path: Path, template: Path) -> None:
    """The one sync that is let through is that of the write-ahead log's header."""
    place = SqlitePlace(tmp_path / "folder", template)

    said = _run(place.folder, "fdatasync,fsync:error=EIO:when=2+")

    assert said == []
    await _is_whole(place.folder, said)
