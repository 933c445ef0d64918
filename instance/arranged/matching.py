"""Rows brought together by key: hashes say which may have the same, values decide."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types

from instance.spine.consolidation import Numbers, grouped, sorted_places
from instance.spine.hashing import Hashing
from instance.spine.values import Flags, Places

#: So many rows at least are joined by Arrow.
LARGE = 1 << 17
#: The step of what was there before.
BEFORE = -1


def together(parts: Sequence[Sequence[pa.Array]]) -> list[pa.Array]:
    """The columns of several tables, one after the other; at least one."""
    if len(parts) == 1:
        return list(parts[0])
    return [pa.concat_arrays(same) for same in zip(*parts, strict=True)]


def numbers_of(keys: Sequence[pa.Array], hashing: Hashing) -> Places:
    """A number for each row, from 0 on: the same for equal keys, which are canonical, and different for others."""
    hashes = hashing(keys, None)
    # Whatever the order of equals: only which are equal counts.
    order, begins = grouped(hashes, keys, np.argsort(hashes))
    numbers = np.empty(len(order), np.int64)
    numbers[order] = np.cumsum(begins) - 1
    return numbers


def pairs(left: Sequence[pa.Array], right: Sequence[pa.Array], hashing: Hashing) -> tuple[Places, Places]:
    """The places of each pair of a left and a right row whose keys are equal; there are no nulls in them."""
    count = len(left[0])
    if count + len(right[0]) >= LARGE and not any(pa.types.is_nested(column.type) for column in left):
        return _joined_by_arrow(left, right)
    numbers = numbers_of(together([left, right]), hashing)
    ours, theirs = numbers[:count], numbers[count:]
    order = np.argsort(theirs)
    each = np.bincount(theirs, minlength=int(numbers.max()) + 1)
    counts = each[ours]
    begins = (np.cumsum(each) - each)[ours]
    return np.repeat(np.arange(count), counts), order[ranges(begins, counts)]


def _joined_by_arrow(left: Sequence[pa.Array], right: Sequence[pa.Array]) -> tuple[Places, Places]:
    """The same by Arrow's join: sooner for many rows, later for few."""
    names = [f"key{place}" for place in range(len(left))]
    one, other = (
        pa.table([*map(_by_bits, keys), pa.array(np.arange(len(keys[0])))], names=[*names, side])
        for keys, side in ((left, "left"), (right, "right"))
    )
    found = one.join(other, names, join_type="inner", use_threads=False)
    return found.column("left").to_numpy(), found.column("right").to_numpy()


def _by_bits(column: pa.Array) -> pa.Array:
    """Canonical fractions are equal when their bits are, NaN too."""
    if not pa.types.is_floating(column.type):
        return column
    return column.view(pa.int32() if column.type.bit_width == 32 else pa.int64())


def ranges(begins: Places, counts: Places) -> Places:
    """All numbers of several ranges, one range after the other."""
    if not len(begins):
        return np.zeros(0, np.int64)
    ends = np.cumsum(counts)
    return np.repeat(begins - ends + counts, counts) + np.arange(int(ends[-1]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Chains:
    """Elements by key, those of a key in the order of their steps. A *point* is the last of its key and step."""

    #: Where each element is found.
    order: Places
    #: The place in the order at which the chain of each element begins.
    starts: Places
    #: The places of the points in the order.
    points: Places
    #: Which points are the first of their chain, and which the last.
    first: Flags
    last: Flags
    #: The step of each point.
    steps: Numbers

    @property
    def is_plain(self) -> bool:
        """Whether each element is a chain by itself."""
        return bool(self.first.all()) and len(self.points) == len(self.order)

    @property
    def elements(self) -> Places:
        """Where the element is found that completes each point."""
        return self.order[self.points]


def chained(keys: Sequence[pa.Array], steps: Numbers, hashing: Hashing) -> Chains:
    """The chains of at least one element; equal keys at equal steps stay in their order."""
    hashes = hashing(keys, None)
    if (steps[1:] >= steps[:-1]).all():
        order = sorted_places(hashes)
    else:
        by_step = np.argsort(steps, kind="stable")
        order = by_step[sorted_places(hashes[by_step])]
    order, begins = grouped(hashes, keys, order)
    ordered = steps[order]
    ends = np.ones(len(order), np.bool_)
    ends[:-1] = begins[1:] | (ordered[1:] != ordered[:-1])
    points = np.flatnonzero(ends)
    beginnings = np.flatnonzero(begins)
    starts = beginnings[np.cumsum(begins) - 1]
    chain = starts[points]
    last = np.ones(len(points), np.bool_)
    np.not_equal(chain[1:], chain[:-1], out=last[:-1])
    first = np.ones(len(points), np.bool_)
    first[1:] = last[:-1]
    return Chains(order=order, starts=starts, points=points, first=first, last=last, steps=ordered[points])
