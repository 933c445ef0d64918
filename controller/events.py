"""Events: what watchers are told, and their queues."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from controller.objects import CatalogObject
from reconcile.errors import PlainsongError
from reconcile.frontiers import Antichain
from reconcile.ids import GlobalId, ReplicaId

#: Events that wait for one watcher; beyond it the watcher is told that it is too slow.
WATCHER_EVENTS_MAX = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectWasCreated:
    object: CatalogObject


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectWasAltered:
    object: CatalogObject


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectWasDropped:
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaHasChanged:
    cluster: str
    replica: ReplicaId


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectHasFailed:
    id: GlobalId
    name: str
    replica: ReplicaId
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UppersHaveRisen:
    uppers: tuple[tuple[GlobalId, Antichain], ...]


Event = ObjectWasCreated | ObjectWasAltered | ObjectWasDropped | ReplicaHasChanged | ObjectHasFailed | UppersHaveRisen


class TooSlow(PlainsongError):
    """A reader does not take what it asked for."""

    code = "RESOURCE_EXHAUSTED"


class Events:
    """Tells every watcher everything, in order."""

    def __init__(self) -> None:
        self._watchers: list[asyncio.Queue[Event | None]] = []
        self._risen: dict[GlobalId, Antichain] = {}
        self._stirred: dict[tuple[str, ReplicaId], None] = {}

    def tell(self, event: Event) -> None:
        for watcher in tuple(self._watchers):
            if watcher.qsize() < WATCHER_EVENTS_MAX:
                watcher.put_nowait(event)
            else:
                watcher.put_nowait(None)
                self._watchers.remove(watcher)

    def risen(self, id: GlobalId, upper: Antichain) -> None:
        """Notes an upper; watchers are told of all together, at the next turn of the loop."""
        if self._watchers:
            if not self._risen:
                asyncio.get_running_loop().call_soon(self._tell_risen)
            self._risen[id] = upper

    def stirred(self, cluster: str, replica: ReplicaId) -> None:
        """Notes that something about a replica is different; told as uppers are."""
        if self._watchers:
            if not self._stirred:
                asyncio.get_running_loop().call_soon(self._tell_stirred)
            self._stirred[cluster, replica] = None

    def _tell_stirred(self) -> None:
        stirred, self._stirred = tuple(self._stirred), {}
        for cluster, replica in stirred:
            self.tell(ReplicaHasChanged(cluster=cluster, replica=replica))

    def _tell_risen(self) -> None:
        uppers, self._risen = tuple(self._risen.items()), {}
        self.tell(UppersHaveRisen(uppers=uppers))

    @contextmanager
    def watch(self) -> Iterator[AsyncIterator[Event]]:
        """All events from here on; gathered until the end of the ``with`` statement, read or not."""
        queue: asyncio.Queue[Event | None] = asyncio.Queue()
        self._watchers.append(queue)
        try:
            yield _watched(queue)
        finally:
            if queue in self._watchers:
                self._watchers.remove(queue)


async def _watched(queue: "asyncio.Queue[Event | None]") -> AsyncIterator[Event]:
    while True:
        event = await queue.get()
        if event is None:
            raise TooSlow("this watcher is too slow", hint="watch again, and read the status first")
        yield event
