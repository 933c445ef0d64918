"""The machines that scripts can run, each behind the same small face."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from adapter.script.history_machine import HistoryMachine
from adapter.script.instance_machine import InstanceMachine
from adapter.script.merge_machine import MergeMachine
from adapter.script.schedule_machine import ScheduleMachine
from adapter.script.storage_machine import StorageMachine


class Machine(Protocol):
    """A pure machine that understands script lines."""

    def read(self, text: str) -> Any:
        """The input that a line states; raises ``BadLine``. Called for all lines before the first is run."""
        ...

    def run(self, given: Any) -> list[str]:
        """Takes in an input; what the machine did, as output lines. Checks the machine's invariants."""
        ...


MACHINES: Mapping[str, Callable[[], Machine]] = {
    "instance": InstanceMachine,
    "history": HistoryMachine,
    "merge": MergeMachine,
    "storage": StorageMachine,
    "schedule": ScheduleMachine,
}
