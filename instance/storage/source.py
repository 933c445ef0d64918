"""What the storage runtime asks of a source, whatever its type."""

from collections.abc import Callable
from typing import Protocol

from instance.shards.store import ShardStore
from reconcile.errors import PlainsongError
from reconcile.frontiers import Antichain
from reconcile.sources import SourceDescription
from reconcile.storage_actions import StorageReport, Write

Report = Callable[[StorageReport], None]


class SourceEnded(PlainsongError):
    """The source cannot go on; nothing is written until it is run again."""

    code = "UNAVAILABLE"


class Source(Protocol):
    """One running source. Its calls are made one after the other; whatever one raises ends it."""

    async def start(self) -> None:
        """Opens the shard and reports how far it is."""
        ...

    async def alter(self, description: SourceDescription) -> None: ...

    async def write(self, write: Write) -> None: ...

    async def read_contents(self) -> None: ...

    async def compact(self, since: Antichain) -> None: ...

    def pause(self) -> None:
        """It is about to be altered or stopped: nothing new is begun before that."""
        ...

    async def stop(self) -> None: ...


#: Makes a source of one type; the shards it fills are in the store.
SourceType = Callable[[SourceDescription, ShardStore, Report], Source]
