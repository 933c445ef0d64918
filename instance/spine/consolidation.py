"""Consolidation: updates of the same row at the same step become one, and those that cancel disappear.

Rows are brought together by their hash and then compared. Rows that differ under one hash are told apart by value, so
the result is exact whatever the hash function does; it is only slow if many collide.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types
from numpy.typing import NDArray

from instance.spine.hashing import Hashes
from instance.spine.values import Flags, Places, identities, rows_equal

Numbers: TypeAlias = NDArray[np.int64]

#: Beyond this many, sorting unstably and putting equals in order afterwards is several times as fast.
STABLE_MAX = 4_096


@dataclass(frozen=True, slots=True, kw_only=True)
class Consolidated:
    """What is left: where each row is found in the input, ordered by (hash, row, step), and its sums, none zero."""

    places: Places
    #: Whether the input was in this order already; if nothing was left out, it is then what is left.
    in_place: bool
    hashes: Hashes
    steps: Numbers
    diffs: Numbers


def sorted_places(hashes: Hashes) -> Places:
    """The places of the hashes in order; equals stay in the order in which they are."""
    if len(hashes) <= STABLE_MAX:
        return np.argsort(hashes, kind="stable")
    places = np.argsort(hashes)
    found = hashes[places]
    same = found[1:] == found[:-1]
    if same.any():
        tied = np.zeros(len(hashes), np.bool_)
        tied[1:] = same
        tied[:-1] |= same
        among = places[tied]
        places[tied] = among[np.lexsort((among, hashes[among]))]
    return places


def grouped(hashes: Hashes, columns: Sequence[pa.Array], order: Places) -> tuple[Places, Flags]:
    """Brings equal rows together: an order like ``order``, which is sorted by hash, and where in it a new row begins.

    Equal rows keep the order that they have in ``order``.
    """
    found = hashes[order]
    begins = np.ones(len(order), np.bool_)
    np.not_equal(found[1:], found[:-1], out=begins[1:])
    pairs = np.flatnonzero(~begins)
    if not len(pairs):
        return order, begins
    alike = rows_equal(columns, order[pairs - 1], order[pairs])
    if alike.all():
        return order, begins
    return _told_apart(found, columns, order, begins, pairs[~alike])


def _told_apart(
    found: Hashes, columns: Sequence[pa.Array], order: Places, begins: Flags, differing: Places
) -> tuple[Places, Flags]:
    """``grouped`` for hashes that collide: the rows under each such hash are ordered by value."""
    group = np.cumsum(begins) - 1
    collides = np.zeros(int(group[-1]) + 1, np.bool_)
    collides[group[differing]] = True
    affected = np.flatnonzero(collides[group])
    among = order[affected]
    identity = identities([column.take(pa.array(among)) for column in columns], len(among))
    resorted = np.lexsort((identity, found[affected]))
    order, begins = order.copy(), begins.copy()
    order[affected] = among[resorted]
    identity = identity[resorted]
    # Affected places beside each other belong to one hash, or a new one begins there.
    begins[affected[1:]] |= identity[1:] != identity[:-1]
    return order, begins


def consolidated(
    hashes: Hashes,
    columns: Sequence[pa.Array],
    steps: Numbers | None,
    diffs: Numbers,
    *,
    is_sorted: bool = False,
    in_runs: bool = False,
) -> Consolidated:
    """The sums of equal rows by step, or over all steps if there are none given.

    Updates of one row stand in the order of their steps. ``in_runs`` says that the hashes are a few sorted sequences.
    """
    if is_sorted:
        ordered = np.arange(len(hashes))
    else:
        ordered = np.argsort(hashes, kind="stable") if in_runs else sorted_places(hashes)
    order, begins = grouped(hashes, columns, ordered)
    in_place = is_sorted and order is ordered
    if steps is not None:
        at = steps[order]
        begins[1:] |= at[1:] != at[:-1]
    if begins.all():
        places, sums = order, diffs[order]
    else:
        starts = np.flatnonzero(begins)
        places, sums = order[starts], np.add.reduceat(diffs[order], starts)
    if not sums.all():
        left = np.flatnonzero(sums)
        places, sums = places[left], sums[left]
    kept = np.zeros(len(places), np.int64) if steps is None else steps[places]
    return Consolidated(places=places, in_place=in_place, hashes=hashes[places], steps=kept, diffs=sums)
