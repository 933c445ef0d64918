"""A shard's process killed from outside after any system call that writes: afterwards all is there that was told.

The process runs under ``strace``, which tells of each such call and holds the process back for a moment; the test
counts those that touch the shard and kills the process in that moment. Where there is no ``strace`` the failure points
are left, at which the process kills itself.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import pytest

from instance.inputs import NotReadable
from instance.shards.contents import seen_as
from instance.shards.delta import DeltaShardStore
from instance.shards.maintenance import maintain
from reconcile.frontiers import Antichain
from reconcile.ids import Step
from tests.shards import victim
from tests.shards.rows import COLUMNS, Row, contents, listed
from tests.shards.test_delta import ROOT
from tests.shards.victim import EAGER, LATER, STEPS
from tests.shards.writer import S1

needs_strace = pytest.mark.skipif(
    shutil.which("strace") is None, reason="needs strace; without it processes are killed at failure points only"
)

#: Held back before and after for so many microseconds: time enough to be killed in. Opening and writing are not, as
#: most of it is no file of ours; a process killed after one of them gets as far as the next of these at most.
HELD = "rename,renameat,renameat2,link,linkat,fsync,fdatasync,unlink,unlinkat,ftruncate"
HELD_MICROSECONDS = 8_000
CALLS = f"openat,write,pwrite64,writev,{HELD}"
SCENARIOS = ("append", "compaction", "upkeep", "growth")
#: In the default suite, after every so many calls.
SAMPLED = 17
#: More calls than any scenario makes.
CALLS_MAX = 400
#: A line of strace: its thread, if it says so, and the call.
_PREFIX = re.compile(r"(?:\[pid +(\d+)\] )?(.*)", re.DOTALL)


class Victims:
    """Forks processes that are about to do something to a shard."""

    def __init__(self, failpoint: str = "") -> None:
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'proto'}", "PLAINSONG_FAILPOINT": failpoint}
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.shards.victim"],
            env=environment,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def fork(self, what: str, folder: Path) -> int:
        assert self._server.stdin is not None
        self._server.stdin.write(f"{what} {folder}\n")
        self._server.stdin.flush()
        return int(self._answer())

    def ended(self) -> int:
        """The exit code of the last one."""
        return int(self._answer())

    def _answer(self) -> str:
        assert self._server.stdout is not None
        return self._server.stdout.readline()

    def close(self) -> None:
        self._server.communicate(timeout=60)


@pytest.fixture(scope="module")
def victims() -> Iterator[Victims]:
    server = Victims()
    yield server
    server.close()


@pytest.fixture(scope="module")
def prepared(victims: Victims, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("prepared")
    (folder / "go").touch()
    victims.fork("prepare", folder)
    assert victims.ended() == 0
    (folder / "go").unlink()
    return folder


def run_until(victims: Victims, folder: Path, what: str, kill_after: int) -> int:
    """Runs the scenario, killed after so many writing calls to the shard; how many there were."""
    child = victims.fork(what, folder)
    held = f"inject={HELD}:delay_enter={HELD_MICROSECONDS}:delay_exit={HELD_MICROSECONDS}"
    tracer = subprocess.Popen(
        ["strace", "-f", "-y", "-qq", "-s", "0", "-p", str(child), "-e", f"trace={CALLS}", "-e", held],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert tracer.stderr is not None
    _wait_until_traced(child, tracer)
    (folder / "go").touch()
    calls = _count(tracer.stderr, folder / "s1", child, kill_after)
    tracer.communicate(timeout=60)
    assert victims.ended() in ((0,) if calls < kill_after else (0, -signal.SIGKILL))
    return calls


def _wait_until_traced(child: int, tracer: "subprocess.Popen[str]") -> None:
    status = Path(f"/proc/{child}/status")
    while "TracerPid:\t0" in status.read_text():
        if tracer.poll() is not None:
            os.kill(child, signal.SIGKILL)
            pytest.skip("needs the right to trace")


def _count(lines: IO[str], folder: Path, child: int, kill_after: int) -> int:
    calls, begun = 0, dict[str, str]()
    for line in lines:
        thread, call = _PREFIX.match(line).groups("")  # type: ignore[union-attr]  # matches anything
        if "<unfinished ...>" in call:
            begun[thread] = call
            continue
        if " resumed>" in call:
            call = begun.pop(thread, "") + call
        if str(folder) in call and _writes(call):
            calls += 1
            if calls == kill_after:
                os.kill(child, signal.SIGKILL)
    return calls


def _writes(call: str) -> bool:
    """Whether the call succeeded and was not only an opening to read."""
    if " = " not in call or " = -1 " in call:
        return False
    return not call.startswith("openat(") or "O_CREAT" in call


def rows_until(upper: int) -> list[Row]:
    rows = list[Row]()
    for step in range(upper):
        rows += [("a", step, step, 1), *([("a", step - 3, step, -1)] if step >= 3 else [])]
    return rows


async def is_right(folder: Path) -> None:
    """All that was acknowledged is there, the call under way is there or not, and everything still works."""
    said = (folder / "said").read_text().split("\n") if (folder / "said").exists() else []
    acknowledged = {line.split()[0]: int(line.split()[1]) for line in said if line}
    # By the same rules, so that what is checked goes through compaction and clean-up again.
    store = DeltaShardStore(folder, rules=EAGER)
    shard = await store.open(S1, COLUMNS)
    upper, since = shard.upper.step, shard.since.step

    assert upper is not None
    assert since is not None
    assert acknowledged.get("upper", STEPS) <= upper <= STEPS + 2
    assert since >= acknowledged.get("since", 2)
    assert acknowledged.get("width", 2) <= len(shard.schema) - 2 <= len(victim.WIDER)
    grown = "note" in shard.schema.names
    told = (await shard.snapshot(Step(upper - 1))).to_pylist()
    notes = {row["amount"]: row["note"] for row in told if row.get("note") is not None}
    assert notes == ({step: f"n{step}" for step in range(STEPS, upper)} if grown else {})
    # A successor repeats what it was not told of, and nothing is there twice.
    for step in range(acknowledged.get("upper", STEPS), upper):
        assert await victim.append(shard, step)
    for step in range(upper, upper + 2):
        assert await victim.append(shard, step)
        await maintain(shard, step * LATER)
    rows = rows_until(upper + 2)
    for seen in (shard, await store.open(S1, COLUMNS)):
        for step in (since, upper - 1, upper + 1):
            assert listed(seen_as(await seen.snapshot(Step(step)), COLUMNS)) == contents(rows, step)
        later = sorted((row for row in rows if row[2] >= since), key=repr)
        assert listed(seen_as(await seen.read(Antichain.at(since), seen.upper), COLUMNS)) == later
        with pytest.raises(NotReadable):
            await seen.snapshot(Step(since - 1))
    await store.close()


async def sweep(victims: Victims, prepared: Path, folder: Path, what: str, kills: Sequence[int]) -> int:
    """Kills the scenario after each so many calls, until it ends before; how often it was killed."""
    for done, kill_after in enumerate(kills):
        place = folder / f"{what}-{kill_after}"
        shutil.copytree(prepared, place)
        calls = run_until(victims, place, what, kill_after)
        await is_right(place)
        shutil.rmtree(place)
        if calls < kill_after:
            return done
    raise AssertionError(f"{what} makes more calls than expected")


@needs_strace
@pytest.mark.parametrize("what", SCENARIOS)
@pytest.mark.asyncio
async def test_killed_after_some_writing_calls_nothing_is_lost_or_doubled(
    victims: Victims, prepared: Path, tmp_path: Path, what: str
) -> None:
    first = 3 + 4 * SCENARIOS.index(what)

    assert await sweep(victims, prepared, tmp_path, what, range(first, CALLS_MAX, SAMPLED)) > 1


@pytest.mark.heavy
@needs_strace
@pytest.mark.parametrize("what", SCENARIOS)
@pytest.mark.asyncio
async def test_killed_after_every_writing_call_nothing_is_lost_or_doubled(
    victims: Victims, prepared: Path, tmp_path: Path, what: str
) -> None:
    assert await sweep(victims, prepared, tmp_path, what, range(1, CALLS_MAX)) > SAMPLED


@pytest.mark.parametrize(
    ("what", "point"),
    [
        ("append", "shard-before-commit"),
        ("append", "shard-after-commit:2"),
        ("growth", "shard-before-commit"),
        ("growth", "shard-after-commit"),
        ("growth", "shard-after-commit:2"),
        ("compaction", "shard-before-rewrite:2"),
        ("compaction", "shard-before-compaction"),
        ("compaction", "shard-after-compaction"),
        ("upkeep", "shard-before-clean-up"),
        ("upkeep", "shard-before-clean-up:3"),
        ("upkeep", "shard-before-vacuum"),
        ("upkeep", "shard-before-vacuum:3"),
    ],
)
@pytest.mark.asyncio
async def test_killed_at_a_failure_point_nothing_is_lost_or_doubled(
    prepared: Path, tmp_path: Path, what: str, point: str
) -> None:
    place = tmp_path / what
    shutil.copytree(prepared, place)
    (place / "go").touch()
    doomed = Victims(point)

    doomed.fork(what, place)

    assert doomed.ended() == -signal.SIGKILL
    doomed.close()
    await is_right(place)
