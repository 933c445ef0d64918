"""Failure points kill where they are told to, and nowhere else."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PASSES = """
from plainsong.failpoint import failpoint

for name in ("log.append", "log.synced", "log.append", "log.synced"):
    print(name, flush=True)
    failpoint(name)
print("done", flush=True)
"""


def run(setting: str | None) -> tuple[int, list[str], str]:
    """Runs a process that passes two points twice: its status, what it said and what it complained of."""
    environment = {name: value for name, value in os.environ.items() if name != "PLAINSONG_FAILPOINT"}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "proto")])
    if setting is not None:
        environment["PLAINSONG_FAILPOINT"] = setting
    process = subprocess.run(
        [sys.executable, "-c", PASSES], env=environment, capture_output=True, text=True, check=False
    )
    return process.returncode, process.stdout.split(), process.stderr


@pytest.mark.parametrize("setting", [None, "", "log.other", "log", "log.append:3"])
def test_a_process_lives_where_no_point_is_meant(setting: str | None) -> None:
    status, said, _ = run(setting)

    assert (status, said[-1]) == (0, "done")


@pytest.mark.parametrize(
    ("setting", "passed"), [("log.append", 1), ("log.append:1", 1), ("log.synced", 2), ("log.synced:2", 4)]
)
def test_a_process_is_killed_at_the_passage_meant(setting: str, passed: int) -> None:
    status, said, _ = run(setting)

    assert status == -signal.SIGKILL
    assert said == ["log.append", "log.synced", "log.append", "log.synced"][:passed]


@pytest.mark.parametrize("setting", ["log.append:", "log.append:0", "log.append:x", ":2", "log.append:-1"])
def test_a_setting_that_means_nothing_is_refused_rather_than_ignored(setting: str) -> None:
    status, said, complaint = run(setting)

    assert (status, said) == (1, [])
    assert "is not a failure point" in complaint
    assert "hint: write NAME or NAME:N" in complaint
