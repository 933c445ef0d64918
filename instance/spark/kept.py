"""What an operator keeps of its input: a spine, merged in the background."""

import asyncio
from collections.abc import Sequence

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types

from instance.spine.files import RunFiles
from instance.spine.spine import Spine
from plainsong.types import DIFF
from reconcile.frontiers import Antichain

#: Rows beyond which an insert is made in a thread.
INLINE_ROWS_MAX = 10_000


class Kept:
    """The newest contents of a collection by key. Steps never go back."""

    def __init__(self, schema: pa.Schema, key: Sequence[str], place: RunFiles | None = None) -> None:
        self._spine = Spine(schema, key, place)
        self._turn = asyncio.Lock()
        self._merging: asyncio.Task[None] | None = None

    @property
    def rows(self) -> int:
        return self._spine.rows

    async def insert(self, updates: pa.Table) -> None:
        """Takes in updates of one step."""
        if updates.num_rows == 0:
            return
        async with self._turn:
            if updates.num_rows > INLINE_ROWS_MAX:
                await asyncio.to_thread(self._spine.insert, updates)
            else:
                self._spine.insert(updates)
            # Nobody asks for an earlier step.
            self._spine.compact(Antichain.at(self._spine.newest + 1))
        if self._merging is None or self._merging.done():
            self._merging = asyncio.create_task(self._merge())

    def of_keys(self, keys: pa.Table) -> pa.Table:
        """The rows with any of these keys: the columns, and ``_diff``."""
        return self._spine.lookup(keys)

    def contents(self) -> pa.Table:
        """Everything: the columns, and ``_diff``."""
        pieces = list(self._spine.contents())
        empty = self._spine.schema.append(pa.field(DIFF, pa.int64())).empty_table()
        return pa.concat_tables([piece.cast(empty.schema) for piece in pieces]) if pieces else empty

    async def close(self) -> None:
        if self._merging is not None:
            self._merging.cancel()
            await asyncio.gather(self._merging, return_exceptions=True)

    async def _merge(self) -> None:
        while True:
            async with self._turn:
                merge = self._spine.merge_due()
            if merge is None:
                return
            try:
                run = await asyncio.to_thread(merge.run)
            except BaseException:
                self._spine.abandon(merge)
                raise
            async with self._turn:
                self._spine.install(merge, run)
