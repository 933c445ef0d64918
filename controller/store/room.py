"""Room: how much may wait, handed out in the order of asking.

``asyncio.Semaphore`` promises the same; this one can also be taken without a coroutine when there is room, which is
nearly always, at a quarter of the cost.
"""

import asyncio
from collections import deque


class Room:
    """Places of which at most ``places_max`` are taken; nobody overtakes one who waits."""

    def __init__(self, places_max: int) -> None:
        self._free = places_max
        #: Who waits, first come first; the first may already be woken, and stays until it has run.
        self._waiters: deque[asyncio.Future[None]] = deque()

    def try_take(self) -> bool:
        """Takes a place if one is free and nobody waits for it."""
        if self._free > 0 and not self._waiters:
            self._free -= 1
            return True
        return False

    async def take(self) -> None:
        """Takes a place, waiting for it if need be."""
        if self.try_take():
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
            self._free -= 1
        finally:
            self._waiters.remove(waiter)
            self._wake()

    def give_back(self, places: int = 1) -> None:
        self._free += places
        if self._waiters:
            self._wake()

    def _wake(self) -> None:
        """Wakes the first who waits, if there is a place for it; it wakes the next when it has taken its own."""
        if self._free > 0 and self._waiters and not self._waiters[0].done():
            self._waiters[0].set_result(None)
