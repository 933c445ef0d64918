"""The runtime of an instance: what computes its dataflows, as the loop that owns them sees it.

An implementation is constructed as ``Implementation(inputs, report, outputs)``: ``report`` takes each
``RuntimeEvent``, and is never called from inside ``perform``, so that whoever performs actions is not interrupted.
"""

from collections.abc import Callable
from typing import Protocol

from reconcile.compute_actions import (
    Compact,
    Configure,
    Drop,
    Render,
    RuntimeEvent,
    SetLogging,
    SetWritable,
    StartPeek,
    StopPeek,
)

RuntimeAction = Render | Drop | Compact | SetWritable | StartPeek | StopPeek | Configure | SetLogging

Report = Callable[[RuntimeEvent], None]


class Runtime(Protocol):
    """Computes dataflows. Called only from the instance's event loop, and reports on it."""

    def perform(self, action: RuntimeAction) -> None:
        """Takes on ``action``; never blocks, and never raises for a user's mistake (that is ``DataflowFailed``)."""
        ...

    async def close(self) -> None:
        """Stops everything; nothing is reported afterwards."""
        ...
