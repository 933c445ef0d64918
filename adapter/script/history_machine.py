"""``machine history``: the reduced log."""

from typing import Literal

from adapter.script.compute_lines import read_command, write_command
from adapter.script.words import Line
from reconcile.compute_protocol import ComputeCommand
from reconcile.history import History

Given = ComputeCommand | Literal["show", "size"]


class HistoryMachine:
    def __init__(self) -> None:
        self._history = History()

    def read(self, text: str) -> Given:
        line = Line(text)
        given: Given
        match line.verb:
            case "show" | "size":
                given = line.verb
            case _:
                given = read_command(line) or line.unknown()
        line.done()
        return given

    def run(self, given: Given) -> list[str]:
        shown = [line for command in self._history.commands() for line in write_command(command)]
        if given == "show":
            return shown
        if given == "size":
            return [f"live={len(shown)}"]
        self._history.handle(given)
        self._history.check()
        return []
