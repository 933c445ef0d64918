"""What is alive: dataflows with the since of each export, and peeks by the collection they read.

Both are kept in order of birth and changed at O(1) a command. A history is made of them, and so is what an
instance runs; that is why the two can be compared.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from reconcile.compute_protocol import Peek
from reconcile.dataflow import DataflowDescription, Tail
from reconcile.errors import InvariantBroken
from reconcile.frontiers import Antichain, meet
from reconcile.ids import GlobalId, PeekId


@dataclass(slots=True, kw_only=True, eq=False)
class LiveDataflow:
    """One dataflow that has at least one export not yet closed."""

    description: DataflowDescription
    #: Its place in order of birth: of rendering on an instance, of creation in a history.
    age: int
    #: The since of each export as created; ``[]`` for one that was dropped.
    sinces: dict[GlobalId, Antichain]
    #: How many of them are not ``[]``; never 0.
    exports_live: int
    #: The exports that may write to their shards, in the order in which they were allowed to.
    writable: dict[GlobalId, None]

    @property
    def as_of(self) -> Antichain:
        """The reduced ``as_of``: the least since of its exports."""
        return meet(self.sinces.values())

    def reduced(self) -> DataflowDescription:
        """The description with ``as_of`` advanced to where it is needed.

        A tail whose reader stands beyond its beginning has told its snapshot, and never tells another.
        """
        as_of = self.as_of
        if as_of == self.description.as_of:
            return self.description
        exports = tuple(
            replace(export, snapshot=False) if isinstance(export, Tail) else export
            for export in self.description.exports
        )
        return replace(self.description, as_of=as_of, exports=exports)


class LiveDataflows:
    """Dataflows in order of birth, found by age and by export."""

    __slots__ = ("_born", "_by_age", "_by_export")

    def __init__(self) -> None:
        self._by_age: dict[int, LiveDataflow] = {}
        #: Every export as created of every live dataflow, dropped ones included.
        self._by_export: dict[GlobalId, LiveDataflow] = {}
        self._born = 0

    def __len__(self) -> int:
        return len(self._by_age)

    def __iter__(self) -> Iterator[LiveDataflow]:
        return iter(self._by_age.values())

    def newest_first(self) -> Iterator[LiveDataflow]:
        return reversed(self._by_age.values())

    def get(self, id: GlobalId) -> LiveDataflow | None:
        """The dataflow that was created with export ``id``."""
        return self._by_export.get(id)

    def since(self, id: GlobalId) -> Antichain | None:
        """From when on ``id`` is readable; ``None`` if it is no export or was dropped."""
        dataflow = self._by_export.get(id)
        if dataflow is None or dataflow.sinces[id].is_closed:
            return None
        return dataflow.sinces[id]

    def create(self, description: DataflowDescription) -> LiveDataflow | None:
        """Adds a dataflow; ``None``, with nothing changed, if it could never be read."""
        if description.as_of.is_closed:
            return None
        sinces = dict.fromkeys(description.export_ids, description.as_of)
        dataflow = LiveDataflow(
            description=description, age=self._born, sinces=sinces, exports_live=len(sinces), writable={}
        )
        self._born += 1
        self._by_age[dataflow.age] = dataflow
        for id in sinces:
            self._by_export[id] = dataflow
        return dataflow

    def advance(self, id: GlobalId, since: Antichain) -> LiveDataflow | None:
        """Moves the since of ``id`` up; its dataflow goes with its last live export.

        Returns the dataflow if the since rose, else ``None`` with nothing changed.
        """
        dataflow = self._by_export.get(id)
        if dataflow is None or not since > dataflow.sinces[id]:
            return None
        dataflow.sinces[id] = since
        if since.is_closed:
            dataflow.writable.pop(id, None)
            dataflow.exports_live -= 1
            if not dataflow.exports_live:
                self.remove(dataflow)
        return dataflow

    def remove(self, dataflow: LiveDataflow) -> None:
        del self._by_age[dataflow.age]
        for id in dataflow.sinces:
            del self._by_export[id]

    def check(self) -> None:
        for age, dataflow in self._by_age.items():
            live = sum(not since.is_closed for since in dataflow.sinces.values())
            if dataflow.age != age or age >= self._born:
                raise InvariantBroken(f"dataflow of age {dataflow.age} is kept at {age} of {self._born}")
            if live == 0 or live != dataflow.exports_live:
                raise InvariantBroken(f"{live} live exports are counted as {dataflow.exports_live}")
            if tuple(dataflow.sinces) != tuple(dict.fromkeys(dataflow.description.export_ids)):
                raise InvariantBroken(f"the sinces of {dataflow.description.export_ids} are {dataflow.sinces}")
            if any(since < dataflow.description.as_of for since in dataflow.sinces.values()):
                raise InvariantBroken(f"a since is before as_of {dataflow.description.as_of}: {dataflow.sinces}")
            if any(self.since(id) is None for id in dataflow.writable):
                raise InvariantBroken(f"a dropped export may write: {dataflow.writable}")
            if any(self._by_export.get(id) is not dataflow for id in dataflow.sinces):
                raise InvariantBroken(f"an export of {dataflow.description.export_ids} is found elsewhere")
        if list(self._by_age) != sorted(self._by_age):
            raise InvariantBroken("dataflows are not in order of age")
        if len(self._by_export) != sum(len(dataflow.sinces) for dataflow in self):
            raise InvariantBroken("an export is found whose dataflow is gone")


class LivePeeks:
    """Peeks in the order in which they began, found by id and by collection."""

    __slots__ = ("_by_collection", "_by_id")

    def __init__(self) -> None:
        self._by_id: dict[PeekId, Peek] = {}
        #: For each collection that is read, its peeks in order; no empty entry.
        self._by_collection: dict[GlobalId, dict[PeekId, Peek]] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Peek]:
        return iter(self._by_id.values())

    def __contains__(self, peek: PeekId) -> bool:
        return peek in self._by_id

    def add(self, peek: Peek) -> None:
        self._by_id[peek.peek] = peek
        self._by_collection.setdefault(peek.id, {})[peek.peek] = peek

    def pop(self, id: PeekId) -> Peek | None:
        peek = self._by_id.pop(id, None)
        if peek is not None:
            siblings = self._by_collection[peek.id]
            del siblings[id]
            if not siblings:
                del self._by_collection[peek.id]
        return peek

    def pop_all(self) -> tuple[Peek, ...]:
        peeks = tuple(self._by_id.values())
        self._by_id.clear()
        self._by_collection.clear()
        return peeks

    def pop_on(self, id: GlobalId) -> tuple[Peek, ...]:
        """Removes and returns all peeks that read ``id``."""
        peeks = tuple(self._by_collection.pop(id, {}).values())
        for peek in peeks:
            del self._by_id[peek.peek]
        return peeks

    def check(self) -> None:
        grouped = {peek.peek: peek for peeks in self._by_collection.values() for peek in peeks.values()}
        if grouped != self._by_id:
            raise InvariantBroken(f"peeks by collection are {grouped}, by id {self._by_id}")
        if not all(self._by_collection.values()):
            raise InvariantBroken("a collection without peeks is remembered")
