"""Exports of a dataflow: a tail streamed to a reader, a materialized view written to its shard."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from instance.inputs import Inputs, Output
from instance.memory.batch import Batch, concat
from instance.memory.rows import RowFormat
from instance.runtime import Report
from plainsong.arrow_updates import ArrowUpdates
from reconcile.compute_actions import TailAdvanced, UpperReported
from reconcile.errors import InvariantBroken
from reconcile.frontiers import MINIMUM, Antichain
from reconcile.ids import GlobalId, Step


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


class ViewExport:
    """Writes to the shard what the shard lacks, by compare-and-append, once it may; its upper is the shard's.

    Whoever wins a step, its contents are the same: the loser goes on where the winner stands. Contents that the
    shard holds from before the dataflow begins are replaced by what the dataflow begins with.
    """

    def __init__(
        self,
        id: GlobalId,
        format: RowFormat,
        output: Output,
        inputs: Inputs,
        report: Report,
        fail: Callable[[Exception], None],
    ) -> None:
        self.id = id
        self.format = format
        self.upper = MINIMUM
        self._output = output
        self._inputs = inputs
        self._report = report
        self._fail = fail
        self._writable = False
        self._computed = self._since = MINIMUM
        #: What was computed and is not yet known to be in the shard.
        self._pending = Batch.nothing(format)
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self, contents: Batch, upper: Antichain) -> None:
        self._task = asyncio.create_task(self._run(upper))
        await self.advance(contents, upper)

    async def advance(self, change: Batch, upper: Antichain) -> None:
        # After a restart much is computed again that the shard has already.
        _, lacking = change.split(self.upper)
        self._pending = concat(self.format, [self._pending, lacking])
        self._computed = upper
        self._news.set()

    def compact(self, since: Antichain) -> None:
        self._since = max(self._since, since)

    def set_writable(self, writable: bool) -> None:
        self._writable = writable
        self._news.set()

    def stop(self) -> asyncio.Task[None] | None:
        if self._task is not None:
            self._task.cancel()
        return self._task

    async def _run(self, begin: Antichain) -> None:
        try:
            shard = await self._output.upper()
            if MINIMUM < shard < begin:
                await self._replace(shard, begin)
            self._at(shard)
            while not self._computed.is_closed or self.upper < self._computed:
                await self._news.wait()
                self._news.clear()
                if self._writable:
                    await self._write()
                else:
                    self._at(await self._output.upper())
                    self._shorten()
        except Exception as error:
            self._fail(error)

    async def _replace(self, shard: Antichain, begin: Antichain) -> None:
        """The shard ends before the dataflow begins: takes out what it holds where the dataflow puts its own in."""
        assert shard.step is not None
        input = self._inputs.open(self.id, self.format.schema)
        try:
            held = Batch.of_table(self.format, await input.snapshot(Step(shard.step - 1)), Step(shard.step - 1))
        finally:
            self._inputs.close(self.id)
        first = shard.step if begin.step is None else begin.step - 1
        gone = Batch.of(self.format, [(row, first, -count) for row, _, count in held.updates])
        self._pending = concat(self.format, [self._pending, gone]).consolidated()

    async def _write(self) -> None:
        while self._writable and self.upper < self._computed:
            lower, upper = self.upper, self._computed
            due, _ = self._pending.split(upper)
            reached = await self._output.append(lower, upper, due.consolidated().table)
            if not reached > lower:
                raise InvariantBroken(f"the shard of {self.id} stands at {reached} after an append from {lower}")
            self._at(reached)

    def _shorten(self) -> None:
        """Folds what nobody will read step by step, so that a view that may not write does not grow for ever."""
        last = min(self._since, self._computed)
        if last.step is not None and last.step > 0:
            # Never up to the computed upper itself: what is written must lie before it.
            self._pending = self._pending.advanced(last.step - 1)

    def _at(self, shard: Antichain) -> None:
        """The shard stands there: what is before it need not be written any more."""
        _, self._pending = self._pending.split(shard)
        if shard > self.upper:
            self.upper = shard
            self._report(UpperReported(id=self.id, upper=shard))
