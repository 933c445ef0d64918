"""What operators over spines have in common: large changes are computed in a thread, small ones at once."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types

from instance.arranged.tending import Place, Tending, in_memory
from instance.memory.batch import Batch
from instance.memory.rows import RowFormat
from instance.spine.hashing import Hashing, row_hashes
from instance.spine.sizes import SIZES, Sizes
from instance.spine.spine import Spine
from reconcile.errors import InvariantBroken

#: Updates beyond which a change is computed in a thread.
INLINE_ROWS_MAX = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Where an operator has its spines, and how they are made. What is restored takes the place of empty ones."""

    place: Place = in_memory
    restored: Mapping[str, Spine] = field(default_factory=dict)
    sizes: Sizes = SIZES
    hashing: Hashing = row_hashes


SETTING = Setting()


class ArrangedOperator(ABC):
    """An operator whose state is its spines and nothing else."""

    linear = False
    format: RowFormat

    def __init__(self, schemas: Mapping[str, tuple[pa.Schema, Sequence[str]]], setting: Setting) -> None:
        """``schemas`` are the columns and the key of each spine."""
        self._hashing = setting.hashing
        #: Its files may be there as long as it is.
        self._place = setting.place
        places = {name: setting.place(name) for name in schemas}
        self._spines = {
            name: setting.restored.get(name)
            or Spine(schema, key, places[name], sizes=setting.sizes, hashing=setting.hashing)
            for name, (schema, key) in schemas.items()
        }
        for name, (schema, _) in schemas.items():
            if self._spines[name].schema != schema:
                raise InvariantBroken(f"the restored spine {name!r} has other columns")
        self._tending = Tending(self._spines, places)

    @property
    def rows_kept(self) -> int:
        """The updates in all its spines, no fewer than the rows that are readable."""
        return sum(spine.rows for spine in self._spines.values())

    def spines(self) -> Mapping[str, Spine]:
        """The state. To be saved between two ranges of steps; there must not be a merge under way then."""
        return self._spines

    async def settled(self) -> None:
        """Waits until nothing is left to be merged."""
        await self._tending.settled()

    async def applied(self, changes: Sequence[Batch], at: int) -> Batch:
        await self._tending.relieved()
        with self._tending.lent():
            if sum(map(len, changes)) > INLINE_ROWS_MAX:
                found = await asyncio.to_thread(self.apply, changes, at)
            else:
                found = self.apply(changes, at)
        self._tending.merge()
        return found

    @abstractmethod
    def apply(self, changes: Sequence[Batch], at: int) -> Batch:
        """As ``Operator.apply``, in any thread. What is due to be merged afterwards is not."""
