"""Appends made in this process: who waits for a shard hears of them at once and need not poll."""

from collections.abc import Callable

from reconcile.frontiers import Antichain
from reconcile.ids import GlobalId
from reconcile.storage_protocol import TableSeal


class LocalAppends:
    """Listeners by shard, called on the event loop after each local append to it is durable, or progress was told."""

    def __init__(self) -> None:
        self._listeners: dict[GlobalId, list[Callable[[], None]]] = {}
        self._told: dict[GlobalId, TableSeal] = {}

    def listen(self, id: GlobalId, listener: Callable[[], None]) -> None:
        self._listeners.setdefault(id, []).append(listener)

    def leave(self, id: GlobalId, listener: Callable[[], None]) -> None:
        """Never calls ``listener`` again for ``id``; it must have been listening."""
        listeners = self._listeners[id]
        listeners.remove(listener)
        if not listeners:
            del self._listeners[id]

    def tell(self, id: GlobalId) -> None:
        for listener in tuple(self._listeners.get(id, ())):
            listener()

    def tell_progress(self, id: GlobalId, *, durable: Antichain, upper: Antichain) -> None:
        """Empty progress that is not durable yet."""
        self._told[id] = TableSeal(id=id, durable=durable, upper=upper)
        self.tell(id)

    def told(self, id: GlobalId) -> TableSeal | None:
        """The last progress that was told: the shard is complete below its upper for whoever has it so far."""
        return self._told.get(id)
