"""Links: what waits to be sent to one replica in its current session, bounded."""

from collections import deque
from collections.abc import Callable

from reconcile.compute_protocol import ComputeCommand
from reconcile.limits import SESSION_QUEUE_MAX
from reconcile.storage_protocol import StorageCommand


class Link:
    """Two queues that a session empties.

    A replica too slow to follow ends its own session and nobody else's: reconciliation brings it up to date when
    it is back. ``on_put`` wakes the session; ``on_overflow`` ends it, once.
    """

    def __init__(self, *, on_put: Callable[[], None], on_overflow: Callable[[], None]) -> None:
        self._on_put = on_put
        self._on_overflow = on_overflow
        self._overflown = False
        #: The replayed state may be larger than what may wait behind it.
        self._waiting_max = SESSION_QUEUE_MAX
        self.compute: deque[ComputeCommand] = deque()
        self.storage: deque[StorageCommand] = deque()

    def put_compute(self, command: ComputeCommand) -> None:
        self.compute.append(command)
        self._noticed(len(self.compute))

    def put_storage(self, command: StorageCommand) -> None:
        self.storage.append(command)
        self._noticed(len(self.storage))

    def replay(self, compute: list[ComputeCommand], storage: list[StorageCommand]) -> None:
        """Queues the whole requested state, which is bounded by itself."""
        self.compute.extend(compute)
        self.storage.extend(storage)
        self._waiting_max = SESSION_QUEUE_MAX + max(len(compute), len(storage))
        self._on_put()

    def _noticed(self, waiting: int) -> None:
        if waiting > self._waiting_max and not self._overflown:
            self._overflown = True
            self._on_overflow()
        self._on_put()
