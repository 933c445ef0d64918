"""Storage history: the sources of one cluster as its storage log leaves them.

The log of a cluster knows what is asked for, not where it runs: that is for the scheduler, which gives each
replica its own part of it.
"""

from collections.abc import Iterator

from reconcile.compute_protocol import AllowCompaction
from reconcile.errors import InvariantBroken
from reconcile.frontiers import MINIMUM, Antichain
from reconcile.ids import GlobalId
from reconcile.sources import SourceDescription
from reconcile.storage_protocol import AlterSources, CreateSources

LoggedStorageCommand = CreateSources | AlterSources | AllowCompaction


class StorageHistory:
    """Live sources in order of creation; cost per command O(1), size O(live)."""

    __slots__ = ("_sinces", "_sources")

    def __init__(self) -> None:
        self._sources: dict[GlobalId, SourceDescription] = {}
        #: The same keys; none is ``[]``.
        self._sinces: dict[GlobalId, Antichain] = {}

    def __iter__(self) -> Iterator[SourceDescription]:
        return iter(self._sources.values())

    def __len__(self) -> int:
        return len(self._sources)

    def __contains__(self, id: GlobalId) -> bool:
        return id in self._sources

    def source(self, id: GlobalId) -> SourceDescription:
        return self._sources[id]

    def since(self, id: GlobalId) -> Antichain | None:
        return self._sinces.get(id)

    def handle(self, command: LoggedStorageCommand) -> None:
        match command:
            case CreateSources(sources=sources):
                for source in sources:
                    self._sources.setdefault(source.id, source)
                    self._sinces.setdefault(source.id, MINIMUM)
            case AlterSources(sources=sources):
                for source in sources:
                    if source.id in self._sources:
                        self._sources[source.id] = source
            case AllowCompaction(id=id, since=since):
                if since.is_closed:
                    self._sources.pop(id, None)
                    self._sinces.pop(id, None)
                elif id in self._sinces:
                    self._sinces[id] = max(self._sinces[id], since)

    def commands(self) -> Iterator[LoggedStorageCommand]:
        """The reduced log."""
        for source in self._sources.values():
            yield CreateSources(sources=(source,))
        for id, since in self._sinces.items():
            if since > MINIMUM:
                yield AllowCompaction(id=id, since=since)

    def check(self) -> None:
        if self._sources.keys() != self._sinces.keys():
            raise InvariantBroken(f"sinces are kept of {sorted(self._sinces)}, sources are {sorted(self._sources)}")
