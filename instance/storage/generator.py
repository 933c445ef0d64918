"""The generator feed: rows that are made up, at a chosen pace."""

import asyncio

from instance.storage.feed import Batch, Note
from instance.storage.generated import generated
from reconcile.errors import InvariantBroken
from reconcile.ids import WriterEpoch
from reconcile.source_types import GeneratorOptions, options_of
from reconcile.sources import SourceDescription

#: Changes made at once: they are made on the event loop.
_CHANGES_MAX = 2_000
#: At a given rate, how long changes gather before they are handed over.
_PACE_S = 0.02


class GeneratorFeed:
    """Makes changes from the one after the last that was received; its position is the number of the next one."""

    def __init__(self, description: SourceDescription, _note: Note) -> None:
        options = options_of(description)
        if not isinstance(options, GeneratorOptions):
            raise InvariantBroken(f"source {description.id} is not a generator")
        self._options = options
        self._next = 0
        #: When the change with number ``_paced_from`` was due.
        self._paced_at = 0.0
        self._paced_from = 0

    async def open(self, position: str, _writer_epoch: WriterEpoch) -> None:
        self._next = self._paced_from = int(position or 0)
        self._paced_at = asyncio.get_running_loop().time()

    async def receive(self) -> Batch | None:
        last = self._options.rows
        if last is not None and self._next >= last:
            return None
        through = await self._due()
        if last is not None:
            through = min(through, last)
        first, self._next = self._next, through
        return Batch(rows=generated(self._options, first, through), position=str(through))

    async def _due(self) -> int:
        """Waits until at least one change is due; up to which ones are."""
        rate = self._options.rate
        if not rate:
            await asyncio.sleep(0)  # whoever makes rows as fast as it can lets others run in between
            return self._next + _CHANGES_MAX
        loop = asyncio.get_running_loop()
        wait_s = self._paced_at + (self._next + 1 - self._paced_from) / rate - loop.time()
        await asyncio.sleep(max(wait_s, _PACE_S))
        due = self._paced_from + int((loop.time() - self._paced_at) * rate)
        return min(max(due, self._next + 1), self._next + _CHANGES_MAX)

    async def close(self) -> None:
        """There is nothing to let go."""
