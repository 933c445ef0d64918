"""A materialized view: what is computed is written to its shard, by whichever replica comes first."""

import asyncio
import logging
from collections.abc import Callable

from instance.inputs import Input, Inputs, NotReadable, Output
from instance.memory.batch import Batch
from instance.memory.owed import Owed
from instance.memory.rows import RowFormat
from instance.runtime import Report
from reconcile.compute_actions import UpperReported
from reconcile.errors import InvariantBroken
from reconcile.frontiers import MINIMUM, Antichain
from reconcile.ids import GlobalId, Step

_LOG = logging.getLogger(__name__)


class ViewExport:
    """Writes to the shard what the shard lacks, by compare-and-append, once it may; its upper is the shard's.

    Whoever wins a step, the loser reads what was written and goes on from there. Whatever the shard holds that was not
    computed, from before the dataflow began or from a replica that differed, is corrected by the next write.
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
        self._since = MINIMUM
        self._owed = Owed(format)
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self, contents: Batch, upper: Antichain) -> None:
        self._task = asyncio.create_task(self._run(upper))
        await self.advance(contents, upper)

    async def advance(self, change: Batch, upper: Antichain) -> None:
        self._owed.compute(change, upper)
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
        input = self._inputs.open(self.id, self.format.schema)
        try:
            await self._begin(input, begin)
            while not self._owed.computed.is_closed or self.upper < self._owed.computed:
                await self._news.wait()
                self._news.clear()
                while self._writable and self.upper < self._owed.computed:
                    await self._write(input)
                if not self._writable:
                    await self._follow(input)
                    self._owed.forget_steps(self._since)
        except Exception as error:
            self._fail(error)
        finally:
            self._inputs.close(self.id)

    async def _begin(self, input: Input, begin: Antichain) -> None:
        """Accounts for what the shard holds when the dataflow begins."""
        shard = await self._output.upper()
        if shard > MINIMUM and shard.step is not None:
            last = Step(shard.step - 1)
            try:
                # What the shard has before the dataflow begins is replaced where the dataflow puts its own in.
                at = last if begin.step is None else Step(max(last, begin.step - 1))
                self._owed.hold(Batch.of_table(self.format, await input.snapshot(last), at), shard)
            except NotReadable:
                self._trust(shard)
        elif shard.is_closed:
            self._owed.trust(shard)
        self._at(shard)

    async def _follow(self, input: Input) -> None:
        """Accounts for what others wrote."""
        shard = await self._output.upper()
        if not shard > self.upper:
            return
        try:
            found = await input.changes(self.upper)
        except NotReadable:
            self._trust(shard)
        else:
            shard = found.upper
            self._owed.hold(Batch.of_table(self.format, found.table), shard)
        self._at(shard)

    def _trust(self, shard: Antichain) -> None:
        _LOG.warning("what %s held before step %s is gone: it is taken for what is desired", self.id, shard)
        self._owed.trust(shard)

    async def _write(self, input: Input) -> None:
        lower, upper = self.upper, self._owed.computed
        written = await self._output.append(lower, upper, self._owed.due().table)
        if not written.upper > lower:
            raise InvariantBroken(f"the shard of {self.id} stands at {written.upper} after an append from {lower}")
        if written.by_us:
            self._owed.wrote(upper)
            self._at(upper)
        else:
            await self._follow(input)

    def _at(self, shard: Antichain) -> None:
        """The shard stands there."""
        if shard > self.upper:
            self.upper = shard
            self._report(UpperReported(id=self.id, upper=shard))
