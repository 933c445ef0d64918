"""Peeks: reads that wait until their step is final and are then answered, each at most once."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from instance.inputs import Inputs
from instance.memory.batch import Batch, concat
from instance.memory.dataflow import error_text
from instance.memory.finishing import Finishing, finishing
from instance.memory.index import IndexExport, pieces
from instance.memory.rows import Row, RowFormat
from instance.memory.view import ViewExport
from instance.runtime import Report
from reconcile.compute_actions import PeekFinished, StartPeek
from reconcile.compute_protocol import PeekFailed, PeekRows
from reconcile.errors import InvalidRequest
from reconcile.ids import GlobalId, PeekId, Step

#: Answered in one go before others on the loop have their turn.
_ANSWERS_AT_ONCE_MAX = 64
#: Rows scanned in one go before others on the loop have their turn.
_ROWS_AT_ONCE_MAX = 4_096


class Log(Protocol):
    """What a runtime tells of itself: read as it is at that moment, whatever the step."""

    id: GlobalId
    format: RowFormat
    rows: Callable[[], Iterator[Row]]


Readable = IndexExport | ViewExport | Log


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Waiting:
    """A peek without an answer."""

    peek: PeekId
    id: GlobalId
    at: Step
    finishing: Finishing
    export: Readable


class Peeks:
    """The peeks of a runtime. Never answers from inside ``start``, nor after ``stop``."""

    def __init__(self, inputs: Inputs, report: Report, later: Callable[[Callable[[], None]], None]) -> None:
        self._inputs = inputs
        self._report = report
        self._later = later
        self.result_bytes_max: int | None = None
        #: All and only peeks that were started, and neither stopped nor answered.
        self._waiting: dict[PeekId, _Waiting] = {}
        #: Peeks that were refused when they were started, with the reason.
        self._refused: dict[PeekId, str] = {}
        #: Peeks that can be answered now; some may have been stopped meanwhile.
        self._ready: deque[PeekId] = deque()
        self._draining = False
        self._tasks: dict[PeekId, asyncio.Task[None]] = {}

    def start(self, peek: StartPeek, export: Readable) -> None:
        key = export.key if isinstance(export, IndexExport) else ()
        try:
            found = finishing(peek.finishing, export.format, key)
        except Exception as error:  # the plan came from outside: whatever is wrong with it, only this peek suffers
            self.refuse(peek.peek, error_text(error))
            return
        self._waiting[peek.peek] = _Waiting(peek=peek.peek, id=peek.id, at=peek.at, finishing=found, export=export)
        if isinstance(export, IndexExport):
            export.await_step(peek.at, peek.peek)
        else:
            self.ready(peek.peek)

    def refuse(self, peek: PeekId, error: str) -> None:
        """Answers with an error, soon."""
        self._refused[peek] = error
        self.ready(peek)

    def stop(self, peek: PeekId) -> None:
        self._refused.pop(peek, None)
        waiting = self._waiting.pop(peek, None)
        if waiting is not None and isinstance(waiting.export, IndexExport):
            waiting.export.forget_peek(peek)
        if (task := self._tasks.pop(peek, None)) is not None:
            task.cancel()

    def stop_on(self, id: GlobalId, error: str) -> None:
        """The collection ends: its peeks are answered with the error."""
        for waiting in [waiting for waiting in self._waiting.values() if waiting.id == id]:
            self.stop(waiting.peek)
            self.refuse(waiting.peek, error)

    def waiting(self) -> Iterator[tuple[PeekId, GlobalId, Step]]:
        """Peeks without an answer, but for those that ask for a log."""
        for waiting in tuple(self._waiting.values()):
            if isinstance(waiting.export, IndexExport | ViewExport):
                yield waiting.peek, waiting.id, waiting.at

    def close(self) -> list[asyncio.Task[None]]:
        """Forgets all peeks; returns the tasks that are ending."""
        tasks = list(self._tasks.values())
        for peek in [*self._waiting, *self._refused]:
            self.stop(peek)
        return tasks

    def ready(self, peek: PeekId) -> None:
        """The step of ``peek`` is final."""
        self._ready.append(peek)
        if not self._draining:
            self._draining = True
            self._later(self._drain)

    def _drain(self) -> None:
        for _ in range(min(len(self._ready), _ANSWERS_AT_ONCE_MAX)):
            peek = self._ready.popleft()
            if (error := self._refused.pop(peek, None)) is not None:
                self._report(PeekFinished(peek=peek, outcome=PeekFailed(error=error)))
            elif (waiting := self._waiting.get(peek)) is not None:
                self._answer(waiting)
        self._draining = bool(self._ready)
        if self._draining:
            self._later(self._drain)

    def _answer(self, waiting: _Waiting) -> None:
        export, found = waiting.export, waiting.finishing
        if isinstance(export, ViewExport):
            self._in_task(waiting, self._read_shard)
        elif isinstance(export, IndexExport) and found.key is None and export.arranged.size > _ROWS_AT_ONCE_MAX:
            self._in_task(waiting, self._scan)
        else:
            try:
                if not isinstance(export, IndexExport):
                    told = [(row, waiting.at, 1) for row in export.rows()]
                    rows = found.wanted(Batch.of(export.format, told))
                elif found.key is not None:
                    rows = export.arranged.lookup(found.key, waiting.at)
                else:
                    rows = concat(export.format, [found.wanted(each) for each in export.arranged.contents(waiting.at)])
                self._finish(waiting, found.answer(rows))
            except Exception as error:  # a peek that cannot be answered must not stop the others
                self._fail(waiting, error)

    def _in_task(self, waiting: _Waiting, read: Callable[[_Waiting], Awaitable[bytes]]) -> None:
        async def run() -> None:
            try:
                answer = await read(waiting)
            except Exception as error:
                self._tasks.pop(waiting.peek, None)
                self._fail(waiting, error)
            else:
                self._tasks.pop(waiting.peek, None)
                self._finish(waiting, answer)

        self._tasks[waiting.peek] = asyncio.create_task(run())

    async def _scan(self, waiting: _Waiting) -> bytes:
        """Reads a large arrangement piece by piece."""
        export, found = waiting.export, waiting.finishing
        assert isinstance(export, IndexExport)
        rows = [found.wanted(piece) async for piece in pieces(export.arranged, waiting.at)]
        whole = concat(export.format, rows)
        return await asyncio.to_thread(found.answer, whole) if export.arranged.in_threads else found.answer(whole)

    async def _read_shard(self, waiting: _Waiting) -> bytes:
        """A materialized view is read from its shard, which waits until the step is final there."""
        format = waiting.export.format
        input = self._inputs.open(waiting.id, format.schema)
        try:
            batch = Batch.of_table(format, await input.snapshot(waiting.at), waiting.at)
        finally:
            self._inputs.close(waiting.id)
        return waiting.finishing.answer(waiting.finishing.wanted(batch))

    def _finish(self, waiting: _Waiting, answer: bytes) -> None:
        if self.result_bytes_max is not None and len(answer) > self.result_bytes_max:
            detail = f"it has {len(answer)} bytes, and {self.result_bytes_max} are allowed"
            self._fail(
                waiting, InvalidRequest("the result is too large", detail=detail, hint="select less, or use LIMIT")
            )
        elif self._waiting.pop(waiting.peek, None) is not None:
            self._report(PeekFinished(peek=waiting.peek, outcome=PeekRows(rows=answer)))

    def _fail(self, waiting: _Waiting, error: Exception) -> None:
        if self._waiting.pop(waiting.peek, None) is not None:
            self._report(PeekFinished(peek=waiting.peek, outcome=PeekFailed(error=error_text(error))))
