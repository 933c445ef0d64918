"""A runtime under test: performs actions, keeps what it reports, and waits for what a test expects."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import count
from types import MappingProxyType

from instance.memory.arranged import Arrange, Arranged, InDicts, OnSpine
from instance.memory.rendering import Rule
from instance.memory.rows import Row, RowFormat
from instance.memory.runtime import MemoryRuntime
from plainsong.arrow_updates import ArrowUpdates, from_ipc
from reconcile.compute_actions import (
    Compact,
    DataflowFailed,
    Drop,
    PeekFinished,
    Render,
    RuntimeEvent,
    StartPeek,
    TailAdvanced,
    UpperReported,
)
from reconcile.compute_protocol import PeekFailed, PeekRows
from reconcile.dataflow import DataflowDescription, Export, ObjectToBuild
from reconcile.frontiers import CLOSED, MINIMUM, Antichain
from reconcile.ids import GlobalId, PeekId, Step
from reconcile.plan_tree import Node, PlanValue
from tests.memory.collections import Collections, rows_of

#: Turns of the loop after which a runtime that has nothing to wait for has done everything.
TURNS_MAX = 200

#: The rules of a runtime for which a test names none, and what its indexes keep; see the fixture ``state``.
RULES: dict[str, Rule] = {}
ARRANGE: Arrange = InDicts


def on_spine(id: GlobalId, format: RowFormat, key: Sequence[str]) -> Arranged:  # noqa: ARG001  # an Arrange
    return OnSpine(format, key)


class Running:
    """A memory runtime and everything it has reported."""

    def __init__(self, collections: Collections, rules: Mapping[str, Rule] = MappingProxyType({})) -> None:
        self.collections = collections
        self.events: list[RuntimeEvent] = []
        self.uppers: dict[GlobalId, Antichain] = {}
        self.errors: dict[GlobalId, str] = {}
        self.answers: dict[PeekId, PeekRows | PeekFailed] = {}
        self._news = asyncio.Event()
        self._performing = False
        self._peek_ids = count(1)
        self.runtime = MemoryRuntime(collections.inputs, self._hear, collections.outputs, rules=rules, arrange=ARRANGE)

    def _hear(self, event: RuntimeEvent) -> None:
        assert not self._performing, "reported from inside perform"
        self.events.append(event)
        match event:
            case UpperReported(id=id, upper=upper):
                assert upper > self.uppers.get(id, MINIMUM), "an upper is reported once, and never goes back"
                self.uppers[id] = upper
            case DataflowFailed(id=id, error=error):
                self.errors[id] = error
            case PeekFinished(peek=peek, outcome=outcome):
                assert peek not in self.answers, "a peek is answered at most once"
                self.answers[peek] = outcome
            case _:
                pass
        self._news.set()

    def perform(self, *actions: "Render | Drop | Compact | StartPeek | object") -> None:
        self._performing = True
        for action in actions:
            self.runtime.perform(action)  # type: ignore[arg-type]  # tests perform any of the actions
        self._performing = False

    async def until(self, expected: Callable[[], bool]) -> None:
        """Waits until what was reported is as expected."""
        while not expected():
            self._news.clear()
            await asyncio.wait_for(self._news.wait(), 30)

    async def upper(self, id: str, at_least: int | None) -> None:
        """Waits until ``id`` was reported to have reached an upper."""
        wanted = Antichain(None if at_least is None else Step(at_least))
        failed = len(self.errors)
        await self.until(lambda: self.uppers.get(GlobalId.parse(id), MINIMUM) >= wanted or len(self.errors) > failed)
        assert self.uppers.get(GlobalId.parse(id), MINIMUM) >= wanted, self.errors

    async def quiet(self) -> None:
        """Lets the runtime do everything it can do without news."""
        for _ in range(TURNS_MAX):
            await asyncio.sleep(0)

    # --- shorthands ---------------------------------------------------------------------------------------

    def render(
        self,
        *exports: Export,
        objects: Mapping[str, PlanValue],
        imports: tuple[str, ...],
        as_of: int = 0,
        until: Antichain = CLOSED,
    ) -> None:
        description = DataflowDescription(
            imports=tuple(map(GlobalId.parse, imports)),
            objects=tuple(ObjectToBuild(id=GlobalId.parse(id), plan=plan) for id, plan in objects.items()),
            exports=exports,
            as_of=Antichain.at(as_of),
            until=until,
        )
        self.perform(Render(description=description))

    def start_peek(self, id: str, at: int, finishing: PlanValue = None) -> PeekId:
        peek = PeekId(next(self._peek_ids))
        self.perform(StartPeek(peek=peek, id=GlobalId.parse(id), at=Step(at), finishing=finishing))
        return peek

    async def answer(self, peek: PeekId) -> PeekRows | PeekFailed:
        await self.until(lambda: peek in self.answers)
        return self.answers[peek]

    async def rows(self, id: str, at: int, **finish: PlanValue) -> list[Row]:
        """The rows of ``id`` at step ``at``, in the order in which they were answered."""
        outcome = await self.answer(self.start_peek(id, at, finishing(**finish) if finish else None))
        assert isinstance(outcome, PeekRows), outcome
        assert isinstance(outcome.rows, bytes)
        return rows_of(from_ipc(outcome.rows))

    async def peek(self, id: str, at: int, **finish: PlanValue) -> Counter[Row]:
        """The contents of ``id`` at step ``at``."""
        return Counter(await self.rows(id, at, **finish))

    async def refusal(self, id: str, at: int, **finish: PlanValue) -> str:
        """The error with which a peek is answered."""
        outcome = await self.answer(self.start_peek(id, at, finishing(**finish) if finish else None))
        assert isinstance(outcome, PeekFailed), outcome
        return outcome.error

    async def failure(self, id: str) -> str:
        await self.until(lambda: GlobalId.parse(id) in self.errors)
        return self.errors[GlobalId.parse(id)]

    def tail(self, id: str) -> list[TailAdvanced]:
        return [event for event in self.events if isinstance(event, TailAdvanced) and event.id == GlobalId.parse(id)]

    def tail_updates(self, id: str) -> list[tuple[Row, int, int]]:
        """All updates of a tail; checks that its batches are contiguous and hold only their own steps."""
        found: list[tuple[Row, int, int]] = []
        reached: Antichain | None = None
        for batch in self.tail(id):
            assert reached is None or batch.lower == reached, "there is a gap or an overlap"
            assert isinstance(batch.updates, ArrowUpdates)
            reached = batch.upper
            for *row, step, diff in rows_of(batch.updates.table):
                assert batch.lower.is_open_at(step), "an update is before its batch"
                assert not batch.upper.is_open_at(step), "an update is after its batch"
                found.append((tuple(row), step, diff))
        return found


def finishing(**fields: PlanValue) -> Node:
    return Node(op="finish", fields=tuple(fields.items()))


@asynccontextmanager
async def running(collections: Collections, rules: Mapping[str, Rule] | None = None) -> AsyncIterator[Running]:
    harness = Running(collections, RULES if rules is None else rules)
    try:
        yield harness
    finally:
        await harness.runtime.close()
