"""Least and greatest values by key: kept as long as nothing takes them away, else found anew among the rows.

The extreme of a key changes with what is added as a minimum does. Only if rows go that are no greater than the least
(for the least; the greatest is the same in the opposite order), the rows of the key have to be looked at.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types
import pyarrow.compute as pc  # type: ignore[import-untyped]

from instance.arranged.matching import Chains, ranges
from instance.spine.consolidation import Numbers
from instance.spine.values import Flags, Places, ints_of, valid_of

#: So many rows at most are looked at together.
ROWS_AT_ONCE = 1 << 22


def has_nan(column: pa.Array) -> bool:
    """Whether Arrow's own minimum and maximum would be wrong: to it, NaN is not above every number."""
    return bool(pa.types.is_floating(column.type) and pc.any(pc.is_nan(column)).as_py())


def sortable(column: pa.Array) -> pa.Array:
    """Values in the same order that are not fractions; what is none stays as it is."""
    if not pa.types.is_floating(column.type):
        return column
    bits = ints_of(column).astype(np.int64)
    return pa.array(_turned(bits, column.type.bit_width), mask=~valid_of(column))


def from_sortable(column: pa.Array, type: pa.DataType) -> pa.Array:
    if column.type == type:
        return column
    width = type.bit_width // 8
    bits = _turned(ints_of(column).astype(np.int64), type.bit_width).astype(f"i{width}")
    return pa.array(bits.view(f"f{width}"), type, mask=~valid_of(column))


def _turned(bits: Numbers, width: int) -> Numbers:
    """Doubles as integers in the same order, and back: negative ones are turned round."""
    return np.where(bits < 0, bits ^ ((1 << (width - 1)) - 1), bits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """Values by rank: the smaller, the nearer to the extreme. What is null has the rank ``none``, above all others."""

    ranks: Places
    none: int
    _values: pa.Array
    #: For each rank a place where it is.
    _places: Places

    @classmethod
    def of(cls, values: pa.Array, *, greatest: bool) -> "Ranked":
        """Of canonical values."""
        valid = valid_of(values)
        places = np.flatnonzero(valid)
        dense = _dense(values if len(places) == len(values) else values.take(pa.array(places)))
        none = int(dense.max(initial=-1)) + 1
        if greatest:
            dense = none - 1 - dense
        ranks = np.full(len(values), none)
        ranks[places] = dense
        found = np.empty(none, np.int64)
        found[dense] = places
        return cls(ranks=ranks, none=none, _values=values, _places=found)

    def values(self, ranks: Places) -> pa.Array:
        is_none = ranks == self.none
        if not is_none.any():
            return self._values.take(pa.array(self._places[ranks]))
        places = np.zeros(len(ranks), np.int64)
        places[~is_none] = self._places[ranks[~is_none]]
        return self._values.take(pa.array(places, mask=is_none))


def _dense(values: pa.Array) -> Places:
    """Ranks from 0 on, without gaps, of values that are not null."""
    if not len(values):
        return np.zeros(0, np.int64)
    values = sortable(values)
    if pa.types.is_decimal(values.type) or pa.types.is_string(values.type) or pa.types.is_binary(values.type):
        ranks: Places = pc.rank(values, tiebreaker="dense").to_numpy().astype(np.int64) - 1
        return ranks
    found: Places = np.unique(ints_of(values), return_inverse=True)[1].astype(np.int64, copy=False)
    return found


def running(ranks: Places, chains: Chains) -> Places:
    """The least rank in each chain up to each point."""
    ordered = ranks[chains.order]
    if chains.is_plain:
        return ordered
    # Each chain lies below all before it, so that what was least there does not count.
    span = int(ordered.max(initial=0)) + 1
    floors = -chains.starts * span
    return (np.minimum.accumulate(ordered + floors) - floors)[chains.points]


def harmed(least: Places, gone: Places, none: int, chains: Chains) -> Flags:
    """For which points something may have gone that was the extreme; ``gone`` are the ranks of what goes."""
    ordered = gone[chains.order]
    starts = np.zeros(len(chains.points), np.int64)
    starts[1:] = chains.points[:-1] + 1
    nearest = np.minimum.reduceat(ordered, starts)
    return (nearest < none) & (nearest <= least)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Rows of some keys, which are numbered from 0 on: what was there before, and what changes at which step."""

    keys: Places
    steps: Numbers
    diffs: Numbers


def found_anew(rows: Rows, columns: Sequence[tuple[pa.Array, bool]], keys: Places, steps: Numbers) -> list[pa.Array]:
    """The extreme of each column for each key and step that is asked for; a column comes with "is it the greatest".

    ``rows`` are in the order of keys and steps.
    """
    moments = np.unique(np.concatenate([rows.steps, steps]))
    span = len(moments) + 1
    places = rows.keys * span + np.searchsorted(moments, rows.steps)
    begins = np.searchsorted(places, keys * span)
    counts = np.searchsorted(places, keys * span + np.searchsorted(moments, steps), "right") - begins
    ranked = [Ranked.of(column, greatest=greatest) for column, greatest in columns]
    found = [np.full(len(keys), each.none) for each in ranked]
    cuts = np.searchsorted(np.cumsum(counts) // ROWS_AT_ONCE, np.arange(int(counts.sum()) // ROWS_AT_ONCE + 2))
    for low, high in pairwise(cuts):
        if low == high:
            continue
        chosen = ranges(begins[low:high], counts[low:high])
        asked = np.repeat(np.arange(low, high), counts[low:high])
        for each, least in zip(ranked, found, strict=True):
            _look(each, chosen, asked, rows.diffs, least)
    return [each.values(least) for each, least in zip(ranked, found, strict=True)]


def _look(ranked: Ranked, chosen: Places, asked: Places, diffs: Numbers, least: Places) -> None:
    """Writes down the least rank that is there in each of the asked."""
    if not ranked.none or not len(chosen):
        return
    places = asked * (ranked.none + 1) + ranked.ranks[chosen]
    order = np.argsort(places, kind="stable")
    ordered = places[order]
    begins = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=begins[1:])
    starts = np.flatnonzero(begins)
    sums = np.add.reduceat(diffs[chosen[order]], starts)
    there = ordered[starts[sums != 0]]
    which, rank = np.divmod(there, ranked.none + 1)
    # The last that is written stays: the least.
    least[which[::-1]] = rank[::-1]
