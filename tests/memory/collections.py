"""Collections in memory: a simple stand-in for shards, for tests of runtimes.

``append``, ``advance`` and ``compact`` are what a test does to a collection; a runtime sees it through ``inputs`` and
``outputs`` of ``Collections``.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types

from instance.inputs import Changes, NotReadable, Written
from instance.memory.batch import Batch, RowUpdate, consolidate
from instance.memory.rows import Row, RowFormat, declared_format, row_format, values_of
from reconcile.frontiers import MINIMUM, Antichain
from reconcile.ids import GlobalId, Step


class Collection:
    """One collection: rows with steps, an upper and a since."""

    def __init__(self, format: RowFormat) -> None:
        self.format = format
        self.upper = MINIMUM
        self.since = MINIMUM
        self.updates: list[RowUpdate] = []
        self.snapshots_read = 0
        self.changes_read = 0
        self._news: list[asyncio.Future[None]] = []

    def append(self, step: int, *rows: Row, diff: int = 1) -> None:
        """Adds each row ``diff`` times at ``step``, which must be open."""
        assert self.upper.is_open_at(Step(step)), f"step {step} is final"
        self.updates += [(row, step, diff) for row in rows]

    def advance(self, upper: int | None) -> None:
        """Makes everything before ``upper`` final; ``None`` closes the collection."""
        self._move(Antichain(None if upper is None else Step(upper)))

    def compact(self, since: int) -> None:
        """Folds what happened before ``since`` into the step before it."""
        self.since = Antichain.at(since)
        self.updates = consolidate((row, max(step, since - 1), diff) for row, step, diff in self.updates)

    def contents(self, at: int) -> Counter[Row]:
        found: Counter[Row] = Counter()
        for row, step, diff in self.updates:
            if step <= at:
                found[row] += diff
        return Counter({row: count for row, count in found.items() if count})

    def _move(self, upper: Antichain) -> None:
        assert upper >= self.upper, f"the upper would go back from {self.upper} to {upper}"
        self.upper = upper
        news, self._news = self._news, []
        for future in news:
            if not future.done():
                future.set_result(None)

    async def _beyond(self, frontier: Antichain) -> None:
        while not self.upper > frontier:
            future = asyncio.get_running_loop().create_future()
            self._news.append(future)
            await future


class MemoryInput:
    """A collection as a runtime reads it."""

    def __init__(self, collection: Collection) -> None:
        self._collection = collection

    async def snapshot(self, at: Step) -> pa.Table:
        await self._collection._beyond(Antichain(at))
        if self._collection.since > Antichain(at):
            raise NotReadable(self._collection.since)
        self._collection.snapshots_read += 1
        rows = [(row, at, count) for row, count in self._collection.contents(at).items()]
        return Batch.of(self._collection.format, rows).table.drop_columns(["_step"])

    async def changes(self, lower: Antichain) -> Changes:
        await self._collection._beyond(lower)
        if self._collection.since > lower:
            raise NotReadable(self._collection.since)
        self._collection.changes_read += 1
        upper = self._collection.upper
        _, rest = Batch.of(self._collection.format, self._collection.updates).split(lower)
        found, _ = rest.split(upper)
        return Changes(lower=lower, upper=upper, table=found.table)


class MemoryOutput:
    """A collection as a materialized view writes it."""

    def __init__(self, collection: Collection) -> None:
        self._collection = collection

    async def upper(self) -> Antichain:
        return self._collection.upper

    async def append(self, lower: Antichain, upper: Antichain, updates: pa.Table) -> Written:
        by_us = self._collection.upper == lower
        if by_us:
            batch = Batch.of_table(self._collection.format, updates)
            assert all(
                lower.is_open_at(Step(step)) and not upper.is_open_at(Step(step)) for _, step, _ in batch.updates
            )
            self._collection.updates += batch.updates
            self._collection._move(upper)
        return Written(upper=self._collection.upper, by_us=by_us)


class _Opened:
    """The two ways into the same collections."""

    def __init__(self, owner: "Collections") -> None:
        self._owner = owner


class MemoryInputs(_Opened):
    def open(self, id: GlobalId, schema: pa.Schema) -> MemoryInput:
        self._owner.open_inputs[id] += 1
        return MemoryInput(self._owner.collection(id, schema))

    def close(self, id: GlobalId) -> None:
        assert self._owner.open_inputs[id] > 0, f"{id} is not open"
        self._owner.open_inputs[id] -= 1


class MemoryOutputs(_Opened):
    def open(self, id: GlobalId, schema: pa.Schema) -> MemoryOutput:
        return MemoryOutput(self._owner.collection(id, schema))


class Collections:
    """All collections of one test, by id."""

    def __init__(self) -> None:
        self.open_inputs: Counter[GlobalId] = Counter()
        self._collections: dict[GlobalId, Collection] = {}
        self.inputs = MemoryInputs(self)
        self.outputs = MemoryOutputs(self)

    def create(self, id: str, columns: Iterable[tuple[str, str]]) -> Collection:
        found = self._collections[GlobalId.parse(id)] = Collection(declared_format(tuple(columns)))
        return found

    def share(self, id: GlobalId, collection: Collection) -> None:
        """Another's collection is one of these too."""
        self._collections[id] = collection

    def collection(self, id: GlobalId, schema: pa.Schema) -> Collection:
        if id not in self._collections:
            self._collections[id] = Collection(row_format(tuple(schema.names), tuple(schema.types)))
        return self._collections[id]

    def __getitem__(self, id: str) -> Collection:
        return self._collections[GlobalId.parse(id)]


def rows_of(table: pa.Table) -> list[Row]:
    """The rows of a table, as the runtime's own tuples."""
    return list(zip(*[values_of(column.combine_chunks()) for column in table.columns], strict=True))
