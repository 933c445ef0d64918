"""The script runner: performs a document on a fresh machine and says where the two differ."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adapter.script.document import NOTHING, Block, Document, ScriptError, parse
from adapter.script.machines import MACHINES, Machine
from adapter.script.words import BadLine


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A block whose outputs are not what the machine did."""

    line: int
    expected: tuple[str, ...]
    actual: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one script."""

    #: The file with the actual outputs.
    text: str
    differences: tuple[Difference, ...]
    blocks: int

    @property
    def agrees(self) -> bool:
        return not self.differences


def run_text(text: str) -> Outcome:
    """Runs a script; raises ``ScriptError`` if it cannot be read as one, before anything is run."""
    document = parse(text)
    factory = MACHINES.get(document.machine)
    if factory is None:
        known = ", ".join(MACHINES)
        raise ScriptError(document.machine_line, f"unknown machine {document.machine!r}; there are {known}")
    machine = factory()
    inputs = {block: _read_inputs(machine, block) for block in document.blocks}
    actual: dict[Block, Sequence[str]] = {}
    for block, given in inputs.items():
        lines = [line for one in given for line in machine.run(one)]
        actual[block] = lines or [NOTHING]
    return _compare(document, actual)


def _read_inputs(machine: Machine, block: Block) -> list[Any]:
    given = []
    for number, line in block.inputs:
        try:
            given.append(machine.read(line))
        except BadLine as error:
            raise ScriptError(number, str(error)) from error
    return given


def _compare(document: Document, actual: dict[Block, Sequence[str]]) -> Outcome:
    differences = tuple(
        Difference(line=block.separator, expected=tuple(text for _, text in block.outputs), actual=tuple(actual[block]))
        for block in document.blocks
        if not block.agrees_with(actual[block])
    )
    return Outcome(text=document.with_outputs(actual), differences=differences, blocks=len(document.blocks))


def read_script(path: Path) -> str:
    """The text of a file; raises ``ScriptError`` if there is none."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ScriptError(0, f"the file is not UTF-8 text (byte {error.start})") from error
    except OSError as error:
        raise ScriptError(0, f"the file cannot be read: {error.strerror}") from error


def find_scripts(paths: Iterable[Path]) -> list[Path]:
    """The files meant: a folder stands for all ``*.txt`` below it."""
    return [file for path in paths for file in (sorted(path.rglob("*.txt")) if path.is_dir() else [path])]
