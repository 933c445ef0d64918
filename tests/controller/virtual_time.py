"""An event loop whose clock jumps: waiting costs nothing, and what happens when is exact."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Moves its clock to the next timer whenever nothing else is to be done."""

    def __init__(self) -> None:
        super().__init__(_Impatient(self))
        self._now = 1_000.0

    def time(self) -> float:
        return self._now

    def skip(self, seconds: float) -> None:
        self._now += seconds


class _Impatient(selectors.SelectSelector):
    def __init__(self, loop: VirtualTimeLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise AssertionError("everybody waits and nothing will ever happen")
        self._loop.skip(max(timeout, 0))
        return super().select(0)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Runs ``work`` to its end on a loop of its own."""
    loop = VirtualTimeLoop()
    try:
        return loop.run_until_complete(work)
    finally:
        loop.close()
