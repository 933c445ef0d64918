"""The tending of an operator's spines: merged in threads, beside whatever the operator does.

Spines belong to one thread at a time. An operator may change its spines in a thread of its own; what was merged
meanwhile is put in its place afterwards.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from weakref import ref

from instance.spine.files import RunFiles
from instance.spine.merging import Merge
from instance.spine.run import Run
from instance.spine.spine import Spine
from reconcile.errors import InvariantBroken
from reconcile.frontiers import Antichain

#: A spine with more runs is merged before it takes in more.
RUNS_MAX = 64

#: Where each spine of an operator, by its name, has its files; None keeps it in memory.
Place = Callable[[str], RunFiles | None]


def in_memory(_: str) -> None:
    """The place of spines without files."""
    return


class Tending:
    """Keeps some spines short, and rid of files that nobody needs."""

    def __init__(self, spines: Mapping[str, Spine], places: Mapping[str, RunFiles | None]) -> None:
        self._spines = spines
        self._places = places
        self._under_way: dict[asyncio.Future[Run | None], tuple[str, Merge]] = {}
        self._is_lent = False
        self._error: BaseException | None = None

    @contextmanager
    def lent(self) -> Iterator[None]:
        """The spines are somebody else's until the end."""
        if self._is_lent:
            raise InvariantBroken("an operator was given a range of steps before it had done the last")
        if self._error is not None:
            raise self._error
        self._is_lent = True
        try:
            yield
        finally:
            self._is_lent = False
            self._install()

    def merge(self) -> None:
        """Begins whatever merges are due."""
        loop = asyncio.get_running_loop()
        for name, spine in self._spines.items():
            # Nobody asks for an earlier step.
            spine.compact(Antichain.at(spine.newest + 1))
            while (merge := spine.merge_due()) is not None:
                try:
                    future = loop.run_in_executor(None, merge.run)
                except RuntimeError:  # everything is about to end
                    spine.abandon(merge)
                    return
                self._under_way[future] = name, merge
                # Whoever drops the operator drops what is left to merge.
                future.add_done_callback(partial(_told, ref(self)))

    async def relieved(self) -> None:
        """Waits as long as there are too many runs and merges under way."""
        while self._under_way and any(spine.runs > RUNS_MAX for spine in self._spines.values()):
            await asyncio.wait(self._under_way, return_when=asyncio.FIRST_COMPLETED)
            self._done()

    async def settled(self) -> None:
        """Waits until nothing is left to be merged."""
        while self._under_way:
            await asyncio.wait(self._under_way)
            self._done()
        if self._error is not None:
            raise self._error

    def _done(self) -> None:
        if not self._is_lent:
            self._install()
            if self._error is None:
                self.merge()

    def _install(self) -> None:
        for future in [each for each in self._under_way if each.done()]:
            name, merge = self._under_way.pop(future)
            spine, place = self._spines[name], self._places[name]
            error = asyncio.CancelledError() if future.cancelled() else future.exception()
            if error is not None:
                spine.abandon(merge)
                self._error = error
                continue
            spine.install(merge, future.result())
            if place is not None:
                place.remove(spine.obsolete())


def _told(tending: "ref[Tending]", merged: asyncio.Future[Run | None]) -> None:
    found = tending()
    if found is not None:
        found._done()
    elif not merged.cancelled():
        # Of an operator that is gone, files may be gone too: nobody minds.
        merged.exception()
