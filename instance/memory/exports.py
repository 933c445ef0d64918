"""Exports of a dataflow: what they have in common, and a tail streamed to a reader."""

import asyncio
from typing import Protocol

from instance.memory.batch import Batch, concat
from instance.memory.rows import RowFormat
from instance.runtime import Report
from plainsong.arrow_updates import ArrowUpdates
from reconcile.compute_actions import TailAdvanced, UpperReported
from reconcile.frontiers import MINIMUM, Antichain
from reconcile.ids import GlobalId


class Export(Protocol):
    """One export of a running dataflow. Told every change once, in order."""

    id: GlobalId
    format: RowFormat
    #: Everything before it is final, as far as was reported.
    upper: Antichain

    async def start(self, contents: Batch, upper: Antichain) -> None:
        """Takes in the contents at the step before ``upper``, with which the dataflow begins."""
        ...

    async def advance(self, change: Batch, upper: Antichain) -> None:
        """Takes in all changes from the last upper to this one."""
        ...

    def compact(self, since: Antichain) -> None: ...

    def stop(self) -> asyncio.Task[None] | None:
        """Does nothing more; returns the task that is ending, if there is one."""
        ...


class TailExport:
    """Streams batches, contiguous from ``as_of`` on."""

    def __init__(self, id: GlobalId, format: RowFormat, as_of: Antichain, snapshot: bool, report: Report) -> None:
        self.id = id
        self.format = format
        self.upper = as_of
        self._as_of = as_of
        # Before step 0 there is nothing: whoever resumes there has seen nothing.
        self._snapshot = snapshot or as_of == MINIMUM
        self._report = report
        self._held = Batch.nothing(format)

    async def start(self, contents: Batch, upper: Antichain) -> None:
        if self._snapshot:
            self._held = contents
        if upper > self.upper:
            await self.advance(Batch.nothing(self.format), upper)

    async def advance(self, change: Batch, upper: Antichain) -> None:
        if len(self._held):
            change = concat(self.format, [self._held, change]).advanced(self._as_of.step or 0)
            self._held = Batch.nothing(self.format)
        lower, self.upper = self.upper, upper
        updates = ArrowUpdates.of(change.consolidated().table)
        self._report(TailAdvanced(id=self.id, lower=lower, upper=upper, updates=updates))
        self._report(UpperReported(id=self.id, upper=upper))

    def compact(self, since: Antichain) -> None:
        pass

    def stop(self) -> None:
        return None
