"""Appends made in this process: who waits for a shard hears of them at once and need not poll."""

from collections.abc import Callable

from reconcile.ids import GlobalId


class LocalAppends:
    """Listeners by shard, called on the event loop after each local append to it is durable."""

    def __init__(self) -> None:
        self._listeners: dict[GlobalId, list[Callable[[], None]]] = {}

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
