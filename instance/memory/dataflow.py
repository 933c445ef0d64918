"""One running dataflow: a task that follows the imports and drives the operators."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence

from instance.memory.batch import Batch, concat
from instance.memory.exports import Export
from instance.memory.imports import Import
from instance.memory.rendering import BuiltObject, is_linear
from instance.runtime import Report
from reconcile.compute_actions import DataflowFailed, RuntimeEvent
from reconcile.dataflow import DataflowDescription, Tail
from reconcile.errors import PlainsongError
from reconcile.frontiers import MINIMUM, Antichain, meet
from reconcile.ids import GlobalId, Step

#: Told of each range of steps that was computed: dataflow, lower, upper, rows in and out, seconds.
Stepped = Callable[[GlobalId, Antichain, Antichain, int, int, float], None]


def _untold(id: GlobalId, lower: Antichain, upper: Antichain, rows_in: int, rows_out: int, seconds: float) -> None:
    """Nobody wants to know."""


def begins_before(description: DataflowDescription) -> bool:
    """Whether it must begin one step before ``as_of``, to tell what changes at ``as_of`` from what was there."""
    resumes = any(isinstance(export, Tail) and not export.snapshot for export in description.exports)
    return resumes and description.as_of > MINIMUM


def _only_changes(description: DataflowDescription, objects: Sequence[BuiltObject]) -> bool:
    """Whether the changes of the imports from ``as_of`` on are all that is ever needed: no state, no contents."""
    return (
        begins_before(description)
        and all(isinstance(export, Tail) and not export.snapshot for export in description.exports)
        and all(is_linear(built.tree) for built in objects)
    )


def error_text(error: Exception) -> str:
    """What to tell the user; what is not an error of ours says what kind it is."""
    return str(error) if isinstance(error, PlainsongError) else f"{type(error).__name__}: {error}"


class Voice:
    """Reports what happens in one dataflow, until it is silenced."""

    __slots__ = ("_report",)

    def __init__(self, report: Report) -> None:
        self._report: Report | None = report

    def __call__(self, event: RuntimeEvent) -> None:
        if self._report is not None:
            self._report(event)

    def silence(self) -> None:
        self._report = None


class Dataflow:
    """Computes the exports from the imports, range of steps by range of steps.

    A range is processed when every import is complete through it. Begins with the contents of the imports at
    ``begin``; without one, with the changes from ``as_of`` on.
    """

    def __init__(
        self,
        description: DataflowDescription,
        objects: Sequence[BuiltObject],
        voice: Voice,
        failed: Callable[["Dataflow"], None],
        stepped: Stepped = _untold,
    ) -> None:
        assert description.as_of.step is not None, "admission refuses an empty as_of"
        self.description = description
        self.error: str | None = None
        self.exports: dict[GlobalId, Export] = {}
        self._voice = voice
        self._failed = failed
        self._stepped = stepped
        #: The contents with which it begins were computed, if it needs any.
        self.is_hydrated = False
        self._objects = tuple(objects)
        self._imports: dict[GlobalId, Import] = {}
        before = begins_before(description)
        #: The step with whose contents it begins, unless it needs only changes.
        self._begin = None if _only_changes(description, objects) else Step(description.as_of.step - before)
        first = description.as_of if self._begin is None else Antichain.at(self._begin + 1)
        #: Everything before it was processed; never beyond ``until``.
        self._upper = first
        #: How far each import was read, and what of it was not processed yet.
        self._uppers: dict[GlobalId, Antichain] = {}
        self._unprocessed: dict[GlobalId, Batch] = {}
        self._task: asyncio.Task[None] | None = None

    @property
    def upper(self) -> Antichain:
        return self._upper

    @property
    def objects(self) -> tuple[BuiltObject, ...]:
        return self._objects

    @property
    def reads(self) -> Collection[GlobalId]:
        """The imports that it is connected to."""
        return self._imports.keys()

    @property
    def reads_from(self) -> Step:
        """The earliest step of the imports that it needs to tell from those before."""
        assert self.description.as_of.step is not None
        return self.description.as_of.step if self._begin is None else self._begin

    def connect(self, id: GlobalId, read: Import) -> None:
        """Will read ``id`` there."""
        self._imports[id] = read
        self._uppers[id] = self._upper

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    def stop(self) -> list[asyncio.Task[None]]:
        """Ends it; nothing is reported afterwards. Returns the tasks that are ending."""
        self._voice.silence()
        ending = [task for export in self.exports.values() if (task := export.stop()) is not None]
        for read in self._imports.values():
            read.close()
        self._imports = {}
        if self._task is not None:
            self._task.cancel()
            ending.append(self._task)
        return ending

    def free(self, id: GlobalId) -> list[asyncio.Task[None]]:
        """Goes on without the export ``id`` and what is computed for it alone; returns the tasks that are ending."""
        task = self.exports.pop(id).stop()
        wanted = set(self.exports)
        needed: list[BuiltObject] = []
        for built in reversed(self._objects):
            if built.id in wanted:
                wanted |= built.reads.keys()
                needed.append(built)
        self._objects = tuple(reversed(needed))
        return [] if task is None else [task]

    def fail(self, error: Exception) -> None:
        """Reports the error, and stops."""
        if self.error is None:
            self.error = error_text(error)
            self._voice(DataflowFailed(id=self.description.export_ids[0], error=self.error))
            self._failed(self)
            self.stop()

    async def _run(self) -> None:
        try:
            if self._begin is not None:
                await self._hydrate(self._begin)
            self.is_hydrated = True
            while self._upper < self.description.until:
                await self._advance()
                await asyncio.sleep(0)
        except Exception as error:  # whatever it is, it must end this dataflow and nothing else
            self.fail(error)

    async def _hydrate(self, begin: Step) -> None:
        changes = {id: await read.snapshot(begin) for id, read in self._imports.items()}
        upper = min(self._upper, self.description.until)
        for id, batch in (await self._timed(changes, begin, Antichain(begin), upper)).items():
            if (export := self.exports.get(id)) is not None:
                await export.start(batch, upper)
        self._upper = upper

    async def _advance(self) -> None:
        for id, read in self._imports.items():
            if self._uppers[id] <= self._upper and not self._uppers[id].is_closed:
                self._uppers[id], batch = await read.changes(self._uppers[id])
                if len(batch):
                    earlier = self._unprocessed.pop(id, None)
                    self._unprocessed[id] = batch if earlier is None else concat(batch.format, [earlier, batch])
        upper = min(meet(self._uppers.values()), self.description.until)
        await self._process(upper)

    async def _process(self, upper: Antichain) -> None:
        """Computes everything before ``upper`` and hands it to the exports."""
        at = self._upper.step
        assert at is not None, "a closed dataflow does not go on"
        due: dict[GlobalId, Batch] = {}
        for id, batch in tuple(self._unprocessed.items()):
            due[id], later = batch.split(upper)
            if len(later):
                self._unprocessed[id] = later
            else:
                del self._unprocessed[id]
        changed = any(len(batch) for batch in due.values())
        changes = await self._timed(due, at, self._upper, upper) if changed else {}
        self._upper = upper
        for id, export in tuple(self.exports.items()):
            change = changes.get(id)
            await export.advance(Batch.nothing(export.format) if change is None else change, upper)

    async def _timed(
        self, changes: Mapping[GlobalId, Batch], at: int, lower: Antichain, upper: Antichain
    ) -> dict[GlobalId, Batch]:
        """As ``_computed``, and tells how long it took."""
        loop = asyncio.get_running_loop()
        began, rows_in = loop.time(), sum(map(len, changes.values()))
        computed = await self._computed(changes, at)
        rows_out = sum(len(computed[id]) for id in self.exports if id in computed)
        self._stepped(self.description.export_ids[0], lower, upper, rows_in, rows_out, loop.time() - began)
        return computed

    async def _computed(self, changes: Mapping[GlobalId, Batch], at: int) -> dict[GlobalId, Batch]:
        """The changes of all objects, given those of the imports; what is not given did not change."""
        known = dict(changes)
        for built in self._objects:
            try:
                known[built.id] = await built.change(known, at)
            except PlainsongError as error:
                error.message = f"cannot compute {built.id}: {error.message}"
                raise
        return known
