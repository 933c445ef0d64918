"""Imports: what a dataflow reads, whether a durable collection or an index of the same runtime.

Dataflows that read the same collection at the same place share one read of it, so that a step of a table on which
ten thousand dataflows stand is fetched and decoded once.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol
from weakref import WeakValueDictionary

from instance.inputs import Input, Inputs
from instance.memory.batch import Batch
from instance.memory.rows import RowFormat
from reconcile.frontiers import Antichain
from reconcile.ids import GlobalId, Step

#: Reads of changes that are remembered for dataflows a little behind the others.
_REMEMBERED_MAX = 4


class Import(Protocol):
    """One collection as one dataflow follows it."""

    async def snapshot(self, at: Step) -> Batch:
        """The contents at ``at``, all of them at that step; raises ``NotReadable`` if they are gone."""
        ...

    async def changes(self, lower: Antichain) -> tuple[Antichain, Batch]:
        """The upper, once it is beyond ``lower``, and all updates from ``lower`` to there."""
        ...

    def close(self) -> None: ...


class SharedInput:
    """A durable collection as all dataflows of a runtime read it."""

    def __init__(self, input: Input, format: RowFormat, forget: Callable[[], None]) -> None:
        self._input = input
        self._format = format
        self._forget = forget
        self.readers = 0
        #: Reads of changes that are under way, and the last few that are done.
        self._changes: dict[Antichain, asyncio.Task[tuple[Antichain, Batch]]] = {}
        #: Reads of contents that are under way; what they gave is shared for as long as somebody has it.
        self._reading: dict[Step, asyncio.Task[Batch]] = {}
        self._snapshots: WeakValueDictionary[Step, Batch] = WeakValueDictionary()

    async def snapshot(self, at: Step) -> Batch:
        batch = self._snapshots.get(at)
        if batch is not None:
            return batch
        reading = self._reading.get(at)
        if reading is None:
            reading = self._reading[at] = asyncio.create_task(self._snapshot(at))
            reading.add_done_callback(_retrieved)
        return await asyncio.shield(reading)

    async def _snapshot(self, at: Step) -> Batch:
        try:
            batch = Batch.of_table(self._format, await self._input.snapshot(at), at)
            self._snapshots[at] = batch
            return batch
        finally:
            del self._reading[at]

    async def changes(self, lower: Antichain) -> tuple[Antichain, Batch]:
        reading = self._changes.get(lower)
        if reading is None:
            reading = self._changes[lower] = asyncio.create_task(self._change(lower))
            reading.add_done_callback(_retrieved)
        return reading.result() if reading.done() else await asyncio.shield(reading)

    async def _change(self, lower: Antichain) -> tuple[Antichain, Batch]:
        try:
            found = await self._input.changes(lower)
        except BaseException:
            self._changes.pop(lower, None)
            raise
        done = [place for place, reading in self._changes.items() if reading.done()]
        for place in done[: max(0, len(done) + 1 - _REMEMBERED_MAX)]:
            del self._changes[place]
        return found.upper, Batch.of_table(self._format, found.table)

    def close(self) -> None:
        """One reader less; the last one closes the input."""
        self.readers -= 1
        if self.readers == 0:
            for reading in (*self._changes.values(), *self._reading.values()):
                reading.cancel()
            self._forget()


def _retrieved(task: asyncio.Task[object]) -> None:
    """A failed read is told to whoever waits for it; if nobody does any more, to nobody."""
    if not task.cancelled():
        task.exception()


class SharedInputs:
    """The durable collections that a runtime has open."""

    def __init__(self, inputs: Inputs) -> None:
        self._inputs = inputs
        self._open: dict[tuple[GlobalId, RowFormat], SharedInput] = {}

    def open(self, id: GlobalId, format: RowFormat) -> SharedInput:
        """One more reader of ``id``."""
        found = self._open.get((id, format))
        if found is None:
            input = self._inputs.open(id, format.schema)
            found = self._open[id, format] = SharedInput(input, format, lambda: self._close(id, format))
        found.readers += 1
        return found

    def _close(self, id: GlobalId, format: RowFormat) -> None:
        del self._open[id, format]
        self._inputs.close(id)
