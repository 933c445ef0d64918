"""Wide integers, many at once: as words to be stored, as limbs to be added up.

An integer of ``n`` words of 64 bits is two's complement, the lowest word first. To be added up it is taken apart into
limbs of 32 bits, each in an array of its own with room for sums and signs above; a limb that is zero everywhere is
None. Limbs may be added in any order, and ``packed`` carries what is beyond their 32 bits: so sums are exact, and have
one form. Where 64 bits are too few for what is added, arrays of Python's integers take their place and do the same.

What is about to be added by the million is better taken apart into as few *parts* as there is room for: each stands at
any bit and has as many bits as its sum leaves free.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from reconcile.errors import InvalidRequest

Words: TypeAlias = NDArray[np.int64]
#: Of 64-bit integers, or of Python's if those might be too small.
Limb: TypeAlias = NDArray[Any]
#: At which bit it stands, and what is added there.
Part: TypeAlias = tuple[int, Limb]

BITS = 32
_MASK = (1 << BITS) - 1
_HALF = 1 << (BITS - 1)
#: So often at most is any limb added in 64 bits.
TIMES_MAX = 1 << 30


def weighed(limb: NDArray[np.int64], weights: Limb | None) -> Limb:
    """Each as often as its weight says; no weights are ones."""
    return limb if weights is None else limb * weights


def bits_for(times: float) -> int:
    """How many bits a part may have, if so many are added."""
    return 62 - int(times).bit_length()


def parts_of(values: NDArray[np.int64], weights: Limb | None, bits: int) -> list[Part]:
    """Integers of 64 bits: one part if they are small enough, else two."""
    if not len(values):
        return []
    if max(int(values.max()), -1 - int(values.min())).bit_length() <= bits:
        return [(0, weighed(values, weights))]
    return [(0, weighed(values & _MASK, weights)), (BITS, weighed(values >> BITS, weights))]


def parts_of_pairs(low: NDArray[np.int64], high: NDArray[np.int64], weights: Limb | None, bits: int) -> list[Part]:
    """Integers of 128 bits."""
    if (high == low >> 63).all():
        return parts_of(low, weights, bits)
    parts = [low & _MASK, (low >> BITS) & _MASK, high & _MASK, high >> BITS]
    return [(BITS * place, weighed(part, weights)) for place, part in enumerate(parts)]


def limbs_of(parts: Sequence[Part], words: int) -> list[Limb | None]:
    """The limbs that parts add up to, for integers of so many words."""
    found: list[Limb | None] = [None] * (2 * words)

    def add(place: int, limb: Limb) -> None:
        before = found[place]
        found[place] = limb if before is None else before + limb

    for bit, part in parts:
        place, shift = divmod(bit, BITS)
        if shift:
            add(place, (part & ((1 << (BITS - shift)) - 1)) << shift)
            add(place + 1, part >> (BITS - shift))
        else:
            add(place, part)
    return found


def unpacked(words: Sequence[Words]) -> list[Limb | None]:
    """The limbs of stored integers, two for each word."""
    limbs: list[Limb | None] = []
    for place, word in enumerate(words):
        is_top = place == len(words) - 1
        limbs += [word & _MASK, word >> BITS if is_top else (word >> BITS) & _MASK]
    return limbs


def packed(limbs: Sequence[Limb | None], words: int, count: int) -> list[Words]:
    """The ``count`` integers as so many words; raises ``InvalidRequest`` if one has not room there."""
    carried: Limb = np.zeros(count, np.int64)
    found: list[NDArray[np.int64]] = []
    for place in range(2 * words):
        limb = limbs[place] if place < len(limbs) else None
        full: Limb = carried if limb is None else limb + carried
        if place == 2 * words - 1:
            if len(full) and (full.min() < -_HALF or full.max() >= _HALF):
                raise InvalidRequest("overflow", detail=f"a sum does not fit {64 * words} bits")
            found.append(full.astype(np.int64, copy=False))
        else:
            found.append((full & _MASK).astype(np.int64, copy=False))
            carried = full >> BITS
    return [low | (high << BITS) for low, high in zip(found[0::2], found[1::2], strict=True)]


def integers(words: Sequence[Words], places: NDArray[np.int64]) -> list[int]:
    """The integers in some places, as Python's."""
    total = [int(top) for top in words[-1][places]]
    for word in reversed(words[:-1]):
        total = [(each << 64) | (int(low) & ((1 << 64) - 1)) for each, low in zip(total, word[places], strict=True)]
    return total


def fits_one_word(words: Sequence[Words]) -> NDArray[np.bool_]:
    """Which integers are just their lowest word, with its sign."""
    sign = words[0] >> 63
    found = np.ones(len(sign), np.bool_)
    for word in words[1:]:
        found &= word == sign
    return found
