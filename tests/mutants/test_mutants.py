"""The suite catches every planted bug."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants.apply import VARIABLE
from tests.mutants.catalogue import MUTANTS, Mutant

ROOT = Path(__file__).parents[2]
#: The suite on trial: scripts first, because they are quick; then the laws.
SUITE = ("tests/test_scripts.py", "tests/test_core.py", "tests/test_refusals.py", "tests/laws")


def run_suite(mutant: str, scratch: Path) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "-p",
        "tests.mutants.apply",
        "-p",
        "no:cacheprovider",
        *SUITE,
    ]
    environment = {**os.environ, VARIABLE: mutant, "HYPOTHESIS_STORAGE_DIRECTORY": str(scratch)}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_suite_catches(mutant: Mutant, tmp_path: Path) -> None:
    result = run_suite(mutant.name, tmp_path)

    assert result.returncode == pytest.ExitCode.TESTS_FAILED, result.stdout[-3000:]
    assert " failed" in result.stdout


def test_mutants_have_names_of_their_own() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 20
