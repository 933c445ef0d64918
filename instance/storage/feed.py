"""What a stepped source asks of its upstream, whatever that is."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types

from reconcile.ids import WriterEpoch

#: Tells what the owner of the source should know; the last one counts.
Note = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What came next: rows with ``_diff``, and where a feed goes on after them.

    There may be no rows: then it is only known that there was nothing, and that is written down too.
    """

    rows: pa.Table
    position: str


class Feed(Protocol):
    """One upstream. The same position leads to the same rows; whatever it raises is trouble outside."""

    async def open(self, position: str, writer_epoch: WriterEpoch) -> None:
        """Goes on after ``position``, from the beginning if it is empty; again after trouble."""
        ...

    async def receive(self) -> Batch | None:
        """Waits for what comes next; ``None`` when nothing ever will."""
        ...

    async def close(self) -> None: ...
