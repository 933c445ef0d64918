"""Blocking calls off the event loop: a small pool of threads, and turns for what must not run twice at once."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

#: Threads of one store; delta-rs brings its own beside them.
THREADS_MAX = 2


class BlockingPool:
    """Threads for blocking calls."""

    def __init__(self, threads: int = THREADS_MAX) -> None:
        self._threads = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="shards")

    async def run(self, call: Callable[[], T]) -> T:
        """The result of ``call``, made in a thread.

        A cancelled caller waits for the call all the same, so that whatever lock it holds outlasts the call.
        """
        future = asyncio.get_running_loop().run_in_executor(self._threads, call)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            while not future.done():
                try:
                    await asyncio.wait([future])
                except asyncio.CancelledError:
                    continue
            if not future.cancelled():
                future.exception()  # looked at, so that the loop does not complain
            raise

    async def close(self) -> None:
        """Waits for the calls under way."""
        await asyncio.get_running_loop().run_in_executor(None, self._threads.shutdown)
