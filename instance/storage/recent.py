"""Recent updates of one shard, kept so that many readers cost one read."""

from collections import deque
from dataclasses import dataclass

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types

from instance.shards.contents import between, joined
from reconcile.frontiers import Antichain

#: Of one shard.
RECENT_BYTES_MAX = 16 * 1024 * 1024
RECENT_PIECES_MAX = 1_024


@dataclass(slots=True)
class _Piece:
    """All updates in [``lower``, ``upper``)."""

    lower: Antichain
    upper: Antichain
    rows: pa.Table


class RecentUpdates:
    """The updates of one shard between two frontiers, in adjoining pieces, oldest first."""

    def __init__(self) -> None:
        self._pieces: deque[_Piece] = deque()
        self._bytes = 0

    def missing(self, lower: Antichain, upper: Antichain) -> tuple[Antichain, Antichain] | None:
        """What must be read for [``lower``, ``upper``): its end, where that suffices; None if all of it is here."""
        if not self._pieces or lower < self._pieces[0].lower or lower > self._pieces[-1].upper:
            return lower, upper
        end = self._pieces[-1].upper
        return None if upper <= end else (end, upper)

    def add(self, lower: Antichain, upper: Antichain, rows: pa.Table) -> None:
        """Takes in what was read: at the end if it adjoins it, in place of everything if it lies beyond."""
        last = self._pieces[-1] if self._pieces else None
        if last is not None and upper <= last.upper:
            return  # history that somebody late asked for
        if last is not None and lower != last.upper:
            self._pieces.clear()
            self._bytes = 0
            last = None
        if last is not None and rows.num_rows == 0:
            last.upper = upper
            return
        self._pieces.append(_Piece(lower, upper, rows))
        self._bytes += rows.nbytes
        while self._bytes > RECENT_BYTES_MAX or len(self._pieces) > RECENT_PIECES_MAX:
            self._bytes -= self._pieces.popleft().rows.nbytes

    def between(self, lower: Antichain, upper: Antichain) -> pa.Table:
        """The updates in [``lower``, ``upper``), none of which may be missing."""
        pieces = [piece for piece in self._pieces if piece.upper > lower and piece.lower < upper]
        tables = [
            piece.rows if lower <= piece.lower and piece.upper <= upper else between(piece.rows, lower, upper)
            for piece in pieces
        ]
        return joined(tables)
