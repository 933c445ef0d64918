"""Every script under tests/scripts agrees with what its machine does."""

from pathlib import Path

import pytest

from adapter.script.runner import run_text

SCRIPTS = Path(__file__).parent / "scripts"
CONFORMANCE = SCRIPTS / "conformance"
#: The conformance scripts as they are handed to the project, where that folder is at hand.
ORIGINALS = Path(__file__).parents[2] / "shared" / "scripts"


@pytest.mark.parametrize("path", sorted(SCRIPTS.rglob("*.txt")), ids=lambda path: path.stem)
def test_script(path: Path) -> None:
    text = path.read_text()

    outcome = run_text(text)

    assert outcome.differences == ()
    assert outcome.text == text
    assert outcome.blocks > 0


def test_every_script_states_its_promise_first() -> None:
    assert [path.name for path in SCRIPTS.rglob("*.txt") if not path.read_text().startswith("# ")] == []


def test_conformance_scripts_are_unchanged() -> None:
    originals = {path.name: path.read_text() for path in ORIGINALS.glob("*.txt")}

    ours = {path.name: path.read_text() for path in CONFORMANCE.glob("*.txt")}

    assert len(ours) == 8
    assert originals in ({}, ours)
