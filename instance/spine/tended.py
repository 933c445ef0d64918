"""A tended spine: merged in the background as merges fall due, while inserts and reads go on."""

import asyncio
import logging

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types

from instance.spine.files import RunFiles
from instance.spine.manifest import Manifest
from instance.spine.run import Run
from instance.spine.snapshot import Snapshot
from instance.spine.spine import Spine
from reconcile.errors import StorageFailed
from reconcile.frontiers import MINIMUM, Antichain

_LOG = logging.getLogger(__name__)

#: Rows beyond which an insert is made in a thread.
INLINE_ROWS_MAX = 10_000


class Tended:
    """Takes in updates one batch after the other; whatever it is doing, ``snapshot`` can be read."""

    def __init__(self, spine: Spine, place: RunFiles | None = None) -> None:
        """``place`` is where the files of ``spine`` lie: those that nobody needs any more are removed."""
        self._spine = spine
        self._place = place
        #: Files of these stay.
        self._kept: tuple[Manifest, ...] = ()
        #: Whoever changes the spine has it.
        self._turn = asyncio.Lock()
        self._since = MINIMUM
        self._merging: asyncio.Task[None] | None = None
        #: A merge that was begun: a thread cannot be cancelled.
        self._thread: asyncio.Future[Run | None] | None = None

    @property
    def horizon(self) -> int:
        return max(self._spine.horizon, (self._since.step or 0) - 1)

    @property
    def newest(self) -> int:
        return self._spine.newest

    @property
    def rows(self) -> int:
        return self._spine.rows

    @property
    def bytes(self) -> int:
        return self._spine.bytes

    def snapshot(self) -> Snapshot:
        """What there is; while an insert is under way, with any part of it."""
        return self._spine.snapshot()

    async def insert(self, updates: pa.Table) -> None:
        """Takes in updates, none at a step before what was inserted."""
        if updates.num_rows:
            async with self._turn:
                if updates.num_rows > INLINE_ROWS_MAX:
                    await asyncio.to_thread(self._spine.insert, updates)
                else:
                    self._spine.insert(updates)
                self._spine.compact(self._since)
        self._tend()

    def compact(self, since: Antichain) -> None:
        """Forgets what only reads before ``since`` need, one step less; everything if it is closed."""
        self._since = max(self._since, since)
        if not self._turn.locked():
            self._spine.compact(self._since)

    async def close(self) -> None:
        """Merges no more. A merge that is under way in its thread comes to its end first."""
        if self._merging is not None:
            self._merging.cancel()
            await asyncio.gather(self._merging, return_exceptions=True)
        if self._thread is not None:
            await asyncio.gather(self._thread, return_exceptions=True)

    def _tend(self) -> None:
        if self._merging is None or self._merging.done():
            self._merging = asyncio.create_task(self._merge())

    async def _merge(self) -> None:
        while True:
            async with self._turn:
                merge = self._spine.merge_due()
            if merge is None:
                return
            try:
                self._thread = asyncio.ensure_future(asyncio.to_thread(merge.run))
                run = await asyncio.shield(self._thread)
            except StorageFailed as error:
                # Nothing is lost: the runs stay as they are, and it is tried again after the next insert.
                self._spine.abandon(merge)
                _LOG.warning("a merge failed: %s", error)
                return
            except BaseException:
                self._spine.abandon(merge)
                raise
            async with self._turn:
                self._spine.install(merge, run)
                obsolete = self._spine.obsolete(*self._kept)
            if self._place is not None and obsolete:
                await asyncio.to_thread(self._place.remove, obsolete)
