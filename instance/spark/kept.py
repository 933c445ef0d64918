"""What an operator keeps of its input: a tended spine, of which only the newest step is asked for."""

from collections.abc import Sequence

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types

from instance.spine.files import RunFiles
from instance.spine.spine import Spine
from instance.spine.tended import Tended
from plainsong.types import DIFF
from reconcile.frontiers import Antichain


class Kept:
    """The newest contents of a collection by key. Steps never go back."""

    def __init__(self, schema: pa.Schema, key: Sequence[str], place: RunFiles | None = None) -> None:
        self._counted = schema.append(pa.field(DIFF, pa.int64()))
        self._spine = Tended(Spine(schema, key, place), place)

    @property
    def rows(self) -> int:
        return self._spine.rows

    async def insert(self, updates: pa.Table) -> None:
        """Takes in updates of one step."""
        await self._spine.insert(updates)
        self._spine.compact(Antichain.at(self._spine.newest + 1))

    def of_keys(self, keys: pa.Table) -> pa.Table:
        """The rows with any of these keys: the columns, and ``_diff``."""
        return self._spine.snapshot().lookup(keys)

    def contents(self) -> pa.Table:
        """Everything: the columns, and ``_diff``."""
        pieces = [piece.cast(self._counted) for piece in self._spine.snapshot().contents()]
        return pa.concat_tables(pieces) if pieces else self._counted.empty_table()
