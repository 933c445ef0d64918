"""Script documents: the form of a script file, kept line by line so that it can be written back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

SEPARATOR = "----"
NOTHING = "(nothing)"


class ScriptError(Exception):
    """A file cannot be read as a script: at ``line`` (1-based; 0 is the whole file), because of ``reason``."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Input lines, and the output lines that are expected of them."""

    #: Line number and text of each input.
    inputs: tuple[tuple[int, str], ...]
    #: The line number of the separator.
    separator: int
    #: Line number and text of each expected output line.
    outputs: tuple[tuple[int, str], ...]

    def agrees_with(self, actual: Sequence[str]) -> bool:
        return [text for _, text in self.outputs] == list(actual)


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One script."""

    machine: str
    #: The line number at which the machine is named.
    machine_line: int
    blocks: tuple[Block, ...]
    lines: tuple[str, ...]

    def with_outputs(self, actual: Mapping[Block, Sequence[str]]) -> str:
        """The text of the file with each block's outputs replaced; comments and blank lines stay."""
        dropped = {number for block in self.blocks for number, _ in block.outputs}
        after = {block.separator: actual[block] for block in self.blocks}
        text: list[str] = []
        for number, line in enumerate(self.lines, start=1):
            if number not in dropped:
                text.append(line)
            text.extend(after.get(number, ()))
        return "".join(f"{line}\n" for line in text)


def parse(text: str) -> Document:
    """Reads a script; raises ``ScriptError`` where it has not the form of one."""
    lines = tuple(line.rstrip() for line in text.splitlines())
    content = [(number, line) for number, line in enumerate(lines, start=1) if not line.startswith("#")]
    named = next(((number, line) for number, line in content if line), None)
    if named is None:
        raise ScriptError(0, "the file names no machine; begin it with a line such as 'machine instance'")
    word, _, machine = named[1].partition(" ")
    if word != "machine" or not machine:
        raise ScriptError(named[0], f"expected 'machine NAME', found {named[1]!r}")
    blocks: list[Block] = []
    group: list[tuple[int, str]] = []
    for number, line in [*((n, t) for n, t in content if n > named[0]), (len(lines) + 1, "")]:
        if line:
            group.append((number, line))
        elif group:
            blocks.append(_block(group))
            group = []
    return Document(machine=machine.strip(), machine_line=named[0], blocks=tuple(blocks), lines=lines)


def _block(group: Sequence[tuple[int, str]]) -> Block:
    separators = [place for place, (_, line) in enumerate(group) if line == SEPARATOR]
    if not separators:
        raise ScriptError(group[0][0], f"this block has no '{SEPARATOR}' between its inputs and its outputs")
    if len(separators) > 1:
        raise ScriptError(group[separators[1]][0], f"a second '{SEPARATOR}' in one block; blocks end at a blank line")
    if separators[0] == 0:
        raise ScriptError(group[0][0], f"this block has no input line before '{SEPARATOR}'")
    place = separators[0]
    return Block(inputs=tuple(group[:place]), separator=group[place][0], outputs=tuple(group[place + 1 :]))
