"""The suite catches every planted bug."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.mutants.apply import VARIABLE
from tests.mutants.catalogue import MUTANTS, Mutant

ROOT = Path(__file__).parents[2]
#: The suite on trial: scripts first, because they are quick; then the laws.
SUITE = ("tests/test_scripts.py", "tests/test_core.py", "tests/test_refusals.py", "tests/laws")
#: Where no script reaches, the laws of the module first.
LAWS_FIRST = {
    "reconcile.steps": "tests/laws/test_step_laws.py",
    "reconcile.table_writes": "tests/laws/test_table_write_laws.py",
}
#: One in so many is tried in the default suite, all in the full one.
SAMPLE = 5


def run_suite(mutant: Mutant, scratch: Path) -> subprocess.CompletedProcess[str]:
    """The last run: the first that failed, or that of the whole suite."""
    # Of arguments that overlap pytest makes one: what is to come first needs a run of its own.
    first = LAWS_FIRST.get(mutant.module)
    if first is not None and (caught := _run(mutant, scratch, [first])).returncode:
        return caught
    return _run(mutant, scratch, SUITE)


def _run(mutant: Mutant, scratch: Path, suite: Sequence[str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "tests.mutants.apply", "-p", "no:cacheprovider"]
    environment = {**os.environ, VARIABLE: mutant.name, "HYPOTHESIS_STORAGE_DIRECTORY": str(scratch)}
    return subprocess.run([*command, *suite], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


TRIED = [
    pytest.param(mutant, id=mutant.name, marks=() if place % SAMPLE == 2 else pytest.mark.heavy)
    for place, mutant in enumerate(MUTANTS)
]


@pytest.mark.parametrize("mutant", TRIED)
def test_the_suite_catches(mutant: Mutant, tmp_path: Path) -> None:
    result = run_suite(mutant, tmp_path)

    assert result.returncode == pytest.ExitCode.TESTS_FAILED, result.stdout[-3000:]
    assert " failed" in result.stdout


def test_mutants_have_names_of_their_own() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 20
