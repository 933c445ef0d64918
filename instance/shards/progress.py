"""Empty progress of one handle, coalesced: told at once, durable from time to time."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from reconcile.errors import PlainsongError
from reconcile.frontiers import MINIMUM, Antichain
from reconcile.ids import GlobalId, WriterEpoch

_LOG = logging.getLogger(__name__)

#: How long empty progress may stay in memory.
PROGRESS_MS = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """Nothing happens before ``upper``, says the writer with ``writer_epoch``; not yet durable."""

    upper: Antichain
    writer_epoch: WriterEpoch | None


class Progress:
    """What was told of one shard by one handle, and the timer that makes it durable."""

    def __init__(self, id: GlobalId, flush: Callable[[], Awaitable[object]], progress_ms: int) -> None:
        self._id = id
        self._flush = flush
        self._seconds = progress_ms / 1000
        self._pending: Pending | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._flushing: asyncio.Task[None] | None = None

    @property
    def pending(self) -> Pending | None:
        return self._pending

    @property
    def upper(self) -> Antichain:
        return MINIMUM if self._pending is None else self._pending.upper

    def tell(self, pending: Pending) -> None:
        self._pending = pending
        if self._timer is None:
            # Nothing comes after ``[]``, so there is nothing to wait for.
            delay = 0 if pending.upper.is_closed else self._seconds
            self._timer = asyncio.get_running_loop().call_later(delay, self._due)

    def settle(self, upper: Antichain) -> None:
        """The shard stands at ``upper``, durably."""
        if self._pending is not None and upper >= self._pending.upper:
            self.forget()

    def forget(self) -> None:
        self._pending = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def close(self) -> None:
        """A last time; what cannot be made durable is recomputed, as after a crash."""
        if self._flushing is not None:
            await asyncio.gather(self._flushing, return_exceptions=True)
        if self._pending is not None:
            await self._try_to_flush()
        self.forget()

    def _due(self) -> None:
        self._timer = None
        self._flushing = asyncio.create_task(self._try_to_flush(), name=f"progress {self._id}")

    async def _try_to_flush(self) -> None:
        try:
            await self._flush()
        except PlainsongError as error:
            _LOG.warning("progress of shard %s stays in memory: %s", self._id, error)
