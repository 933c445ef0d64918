"""The storage runtime: performs what the storage reconciler asks for, in order for each source."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import assert_never

from instance.shards.store import ShardStore
from instance.storage.source import Report, Source, SourceType
from instance.storage.steps import Steps
from instance.storage.tables import TableSource
from reconcile.errors import InvalidRequest, PlainsongError, StorageFailed
from reconcile.ids import GlobalId
from reconcile.sources import SourceDescription
from reconcile.storage_actions import (
    AlterSource,
    CompactShard,
    NoteSeals,
    OpenSteps,
    ReadContents,
    RunSource,
    SetSinks,
    SetUnattended,
    SourceFares,
    SourceStopped,
    StopSource,
    Write,
)
from reconcile.storage_protocol import TableSeal

_LOG = logging.getLogger(__name__)

#: Between two tries of what a disk refused.
RETRY_S_MIN = 0.1
RETRY_S_MAX = 10.0

SourceAction = RunSource | AlterSource | StopSource | CompactShard | Write | ReadContents
RuntimeAction = SourceAction | OpenSteps | SetUnattended | SetSinks | NoteSeals

#: By the field ``type`` of a source's definition; what is stepped is added by ``stepped_types``.
SOURCE_TYPES: Mapping[str, SourceType] = {"table": TableSource}


class StorageRuntime:
    """Runs sources. Reports come from the event loop, never from within ``perform``."""

    def __init__(
        self,
        store: ShardStore,
        report: Report,
        *,
        note_seals: Callable[[tuple[TableSeal, ...]], None] | None = None,
        types: Mapping[str, SourceType] = SOURCE_TYPES,
        steps: Steps | None = None,
    ) -> None:
        self._store = store
        self._report = report
        self._note_seals = note_seals
        self._types = types
        self._steps = steps
        #: Those that run or have something left to do, and nothing else.
        self._lanes: dict[GlobalId, _Lane] = {}

    def perform(self, action: RuntimeAction) -> None:
        """Begins the action and returns; those of one source are performed in the order of these calls."""
        match action:
            case RunSource(source=source) | AlterSource(source=source):
                self._lane(source.id).put(action)
            case StopSource(id=id) | CompactShard(id=id) | Write(id=id) | ReadContents(id=id):
                self._lane(id).put(action)
            case NoteSeals(seals=seals):
                if self._note_seals is not None:
                    self._note_seals(seals)
            case OpenSteps(opened=opened):
                if self._steps is not None:
                    self._steps.open(opened)
            case SetUnattended(unattended=unattended):
                if self._steps is not None:
                    self._steps.set_unattended(unattended)
            case SetSinks():
                pass  # there are no sinks yet
            case _:
                assert_never(action)

    def _lane(self, id: GlobalId) -> "_Lane":
        lane = self._lanes.get(id)
        if lane is None:
            lane = self._lanes[id] = _Lane(id, self._make, self._report, lambda: self._lanes.pop(id))
        return lane

    def _make(self, description: SourceDescription) -> Source:
        type = dict(description.definition).get("type", "")
        if type not in self._types:
            raise InvalidRequest(
                f"source {description.id} is of unknown type {type!r}", hint=f"known are {', '.join(self._types)}"
            )
        return self._types[type](description, self._store, self._report)

    async def close(self) -> None:
        """Ends every source; a commit under way is finished first, further actions are not performed."""
        lanes = list(self._lanes.values())
        self._lanes.clear()
        await asyncio.gather(*(lane.close() for lane in lanes))


class _Lane:
    """The actions of one source, one after the other. Ends by itself when it runs nothing and has nothing to do.

    An action that fails because of the disk is tried again, by a source that was begun anew, until the disk is well or
    something later makes it moot: what a handle knew before does not count any more, and an append has its token.
    """

    def __init__(
        self,
        id: GlobalId,
        make: Callable[[SourceDescription], Source],
        report: Report,
        ended: Callable[[], object],
    ) -> None:
        self._id = id
        self._make = make
        self._report = report
        self._ended = ended
        self._actions: asyncio.Queue[SourceAction] = asyncio.Queue()
        #: None before it runs and after it ended, by itself or not; then everything but a RunSource is ignored.
        self._source: Source | None = None
        #: What runs, or would if the disk let it.
        self._description: SourceDescription | None = None
        #: Something waits that begins anew or ends it.
        self._superseded = asyncio.Event()
        self._troubled = False
        self._task = asyncio.create_task(self._perform_all(), name=f"source {id}")

    def put(self, action: SourceAction) -> None:
        if self._source is not None and isinstance(action, AlterSource | StopSource | RunSource):
            self._source.pause()
        if isinstance(action, StopSource | RunSource):
            self._superseded.set()
        self._actions.put_nowait(action)

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        if self._source is not None:
            await self._source.stop()

    async def _perform_all(self) -> None:
        while True:
            action = await self._actions.get()
            if isinstance(action, StopSource | RunSource):
                self._superseded.clear()
            try:
                await self._perform_until_well(action)
            except Exception as error:
                # Whatever it is: a source that does not run must not look like one that has nothing to say.
                await self._end()
                if not isinstance(error, PlainsongError):
                    _LOG.exception("source %s ended", self._id)
                self._report(SourceStopped(id=self._id, error=str(error) or type(error).__name__))
            if self._source is None and self._actions.empty():
                self._ended()
                return

    async def _end(self) -> None:
        ended, self._source = self._source, None
        if ended is not None:
            await ended.stop()

    async def _perform_until_well(self, action: SourceAction) -> None:
        wait_s, anew = RETRY_S_MIN, False
        while True:
            try:
                if anew and self._description is not None:
                    await self._begin(self._description)
                await self._perform(action)
            except StorageFailed as error:
                self._troubled = True
                self._report(SourceFares(id=self._id, error=str(error)))
            else:
                if self._troubled:
                    self._troubled = False
                    self._report(SourceFares(id=self._id))
                return
            if await self._is_superseded_within(wait_s):
                await self._end()
                return
            wait_s, anew = min(2 * wait_s, RETRY_S_MAX), not isinstance(action, RunSource)

    async def _is_superseded_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                return await self._superseded.wait()
        except TimeoutError:
            return False

    async def _begin(self, description: SourceDescription) -> None:
        await self._end()
        self._description = description
        self._source = self._make(description)
        await self._source.start()

    async def _perform(self, action: SourceAction) -> None:
        if isinstance(action, RunSource):
            await self._begin(action.source)
            return
        source_now = self._source
        if source_now is None:
            return
        match action:
            case AlterSource(source=description):
                await source_now.alter(description)
                self._description = description
            case StopSource():
                self._source = None
                await source_now.stop()
            case CompactShard(since=since):
                await source_now.compact(since)
            case Write():
                await source_now.write(action)
            case ReadContents():
                await source_now.read_contents()
            case _:
                assert_never(action)
