"""Steps as the sources of one instance see them: how far they are opened, how far granted, and who is there."""

import asyncio
from collections.abc import Callable

from reconcile.ids import Step
from reconcile.storage_protocol import OpenStep


class Steps:
    """The newest word on steps. Level-triggered: whoever listens looks at all of it when something changes."""

    def __init__(self) -> None:
        self._opened: OpenStep | None = None
        self._unattended = False
        #: When a controller last said something of steps, or was last there.
        self.changed_at = asyncio.get_running_loop().time()
        self._listeners: list[Callable[[], None]] = []

    @property
    def opened(self) -> Step | None:
        """Every step through this one is open; ``None``: none was ever heard of."""
        return None if self._opened is None else self._opened.step

    @property
    def granted(self) -> Step | None:
        """While no controller is there, writers may open steps through this one."""
        return self._opened.granted if self._opened is not None and self._unattended else None

    @property
    def every_s(self) -> float:
        return 0.0 if self._opened is None else self._opened.every_ms / 1000

    def open(self, opened: OpenStep) -> None:
        self._opened = opened
        self._changed()

    def set_unattended(self, unattended: bool) -> None:
        if unattended != self._unattended:
            self._unattended = unattended
            self._changed()

    def listen(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    def leave(self, listener: Callable[[], None]) -> None:
        self._listeners.remove(listener)

    def _changed(self) -> None:
        self.changed_at = asyncio.get_running_loop().time()
        for listener in tuple(self._listeners):
            listener()
