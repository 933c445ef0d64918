"""Finding keys in runs: binary search by hash, then comparison of the keys."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types

from instance.spine.consolidation import grouped, sorted_places
from instance.spine.hashing import Hashes
from instance.spine.run import KEY_MASK, ROW_MASK, Part, Run, Updates, joined
from instance.spine.values import Places, equal

_ONE = np.uint64(1)


class Wanted:
    """Keys to be found: each once, in the order of their hashes."""

    __slots__ = ("_columns", "_distinct", "_least", "_reaches_top", "_searched")

    def __init__(self, columns: Sequence[pa.Array], hashes: Hashes) -> None:
        """The key columns, canonical, and the hashes of the keys; at least one key."""
        if len(hashes) > 1:
            order, begins = grouped(hashes, columns, sorted_places(hashes))
            places = order[begins]
            columns = [column.take(pa.array(places)) for column in columns]
            hashes = hashes[places]
        self._columns = columns
        self._least = low = hashes & KEY_MASK
        #: For each key the least hash that its rows may have, and the least above that they may not.
        self._searched = np.empty(2 * len(low), np.uint64)
        self._searched[0::2] = low
        self._searched[1::2] = (low | ROW_MASK) + _ONE
        #: Whether rows of the last key may have the greatest hash of all: then the least above it came out as zero.
        self._reaches_top = not self._searched[-1]
        self._distinct = len(low) == 1 or bool((low[1:] != low[:-1]).all())

    def find(self, runs: Iterable[Run], key: Sequence[int], at: int | None) -> tuple[Updates, bool] | None:
        """All updates of rows with these keys, up to ``at`` if given; and whether they are sorted. None if none.

        ``key`` are the places of the key columns.
        """
        pieces, keys = [], []
        for run in runs:
            if at is not None and run.first > at:
                continue
            for part in run.parts:
                for piece, which in self._found(part, len(run.parts) == 1):
                    if at is not None and run.last > at:
                        early = np.flatnonzero(piece.steps <= at)
                        pieces.append(piece.taken(early))
                        keys.append(which[early])
                    else:
                        pieces.append(piece)
                        keys.append(which)
        if not pieces:
            return None
        updates = joined(pieces)
        is_sorted = len(pieces) == 1 and self._distinct
        return self._compared(updates, key, keys[0] if len(keys) == 1 else np.concatenate(keys)), is_sorted

    def _found(self, part: Part, is_only: bool) -> Iterator[tuple[Updates, Places]]:
        """What may have these keys, and which of them."""
        first, searched = 0, self._searched
        if not is_only:
            # A part of several has but a range of hashes: most keys need not be searched there.
            first, last = self._least.searchsorted((part.hashes[0] & KEY_MASK, part.hashes[-1] | ROW_MASK))
            searched = searched[2 * first : 2 * last]
        if not len(searched):
            return
        bounds = part.searched(searched)
        if self._reaches_top:
            top = searched == 0
            top[0::2] = False
            bounds[top] = len(part)
        if len(bounds) == 2:
            begin, end = int(bounds[0]), int(bounds[1])
            if begin < end:
                yield part.between(begin, end), np.full(end - begin, first, np.int64)
            return
        begins = bounds[0::2]
        counts = bounds[1::2] - begins
        which = np.flatnonzero(counts)
        if len(which):
            begins, counts = begins[which], counts[which]
            ends = np.cumsum(counts)
            places = np.repeat(begins - ends + counts, counts) + np.arange(int(ends[-1]))
            yield part.at(places), np.repeat(which + first, counts)

    def _compared(self, updates: Updates, key: Sequence[int], which: Places) -> Updates:
        """Those that have the key indeed."""
        chosen = pa.array(which)
        alike = np.ones(len(updates), np.bool_)
        for place, column in zip(key, self._columns, strict=True):
            alike &= equal(updates.columns[place], column.take(chosen))
        return updates if alike.all() else updates.taken(np.flatnonzero(alike))
