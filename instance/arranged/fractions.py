"""Exact sums of doubles: most as wide integers, which are vectorised, the rest as Python's integers.

A double whose magnitude lies in the *window* is an integer multiple of ``2 ** -WINDOW_BITS`` and adds to an integer of
``WORDS`` words, which no number of rows can outgrow. All others (the very large and very small, infinity, NaN) add to
the *rest*. Which of the two a value adds to depends on nothing but the value, so both sums are exact and in one form
whatever the order; together they are the sum. ``instance.memory.accumulators`` says what comes of it.
"""

import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from instance.arranged.limbs import BITS, Limb, Part, Words, integers, weighed
from instance.memory.rows import NAN

Doubles: TypeAlias = NDArray[np.float64]
#: How often NaN, infinity and negative infinity occur, and the sum of the others in units of the smallest double.
Rest: TypeAlias = tuple[int, int, int, int]

WORDS, WINDOW_BITS = 4, 128
#: Magnitudes in the window, zero aside: from the first to below the second. Each has 53 bits.
_LEAST, _BEYOND = math.ldexp(1.0, 52 - WINDOW_BITS), math.ldexp(1.0, 64)
#: Every double is an integer multiple of two to the power of minus this.
_FRACTION_BITS = 1074
_COUNTS = struct.Struct("<qqq")
NO_REST: Rest = (0, 0, 0, 0)

#: How many values are taken apart at once: they stay in the processor's cache.
_AT_ONCE = 1 << 15


def outside(values: Doubles) -> NDArray[np.int64]:
    """The places of the values that are not in the window."""
    smallest, largest = _span(values)
    if smallest >= _LEAST and largest < _BEYOND:
        return np.zeros(0, np.int64)
    magnitudes = np.abs(values)
    inside = (magnitudes >= _LEAST) & (magnitudes < _BEYOND)
    inside |= values == 0
    return np.flatnonzero(~inside)


def _span(values: Doubles) -> tuple[float, float]:
    """The smallest and the largest magnitude, zero aside; the largest is NaN if any is."""
    smallest, largest = math.inf, 0.0
    for begin in range(0, len(values), _AT_ONCE):
        magnitudes = np.abs(values[begin : begin + _AT_ONCE])
        least = magnitudes.min()
        if least == 0:
            least = np.min(magnitudes, where=magnitudes > 0, initial=math.inf)
        smallest, largest = min(smallest, least), max(magnitudes.max(), largest)
        if largest != largest:
            break
    return smallest, largest


def window_parts(values: Doubles, weights: Limb | None, bits: int) -> list[Part]:
    """The parts of values in the window, of at most so many bits: as many as the magnitudes that occur need."""
    smallest, largest = _span(values)
    if largest == 0:
        return []
    first = math.frexp(smallest)[1] - 53 + WINDOW_BITS
    count = -(-(math.frexp(largest)[1] + WINDOW_BITS - first) // bits)
    scale = math.ldexp(1.0, WINDOW_BITS - first)
    found = [np.empty(len(values), np.int64) for _ in range(count)]
    for begin in range(0, len(values), _AT_ONCE):
        here = slice(begin, begin + _AT_ONCE)
        # Powers of two: nothing is rounded. A magnitude less its upper parts has no more digits than it had.
        left = values[here] * scale
        if count > 1:
            signs = np.sign(left)
            np.abs(left, out=left)
            for place in range(count - 1, 0, -1):
                part = np.floor(left * math.ldexp(1.0, -bits * place))
                left -= part * math.ldexp(1.0, bits * place)
                found[place][here] = part * signs
            left *= signs
        found[0][here] = left
    return [(first + bits * place, weighed(part, weights)) for place, part in enumerate(found)]


def rest_of(value: float, times: int) -> Rest:
    """What so many times a value outside the window add to the rest."""
    if value != value:
        return times, 0, 0, 0
    if math.isinf(value):
        return (0, times, 0, 0) if value > 0 else (0, 0, times, 0)
    numerator, denominator = value.as_integer_ratio()
    return 0, 0, 0, (numerator << (_FRACTION_BITS + 1 - denominator.bit_length())) * times


def added(one: Rest, other: Rest) -> Rest:
    return one[0] + other[0], one[1] + other[1], one[2] + other[2], one[3] + other[3]


def to_bytes(rest: Rest) -> bytes:
    """The rest as it is stored; nothing if it is zero."""
    *counts, total = rest
    if rest == NO_REST:
        return b""
    return _COUNTS.pack(*counts) + total.to_bytes(total.bit_length() // 8 + 1, "little", signed=True)


def from_bytes(stored: bytes) -> Rest:
    if not stored:
        return NO_REST
    nans, positives, negatives = _COUNTS.unpack_from(stored)
    return nans, positives, negatives, int.from_bytes(stored[_COUNTS.size :], "little", signed=True)


def nearest(words: Sequence[Words], rests: Mapping[int, Rest]) -> Doubles:
    """The double nearest to each sum, given by its words in the window and its rest, if it has one."""
    found = _nearest_in_window(words)
    with_rest = [place for place, rest in rests.items() if rest != NO_REST]
    if with_rest:
        places = np.array(with_rest, np.int64)
        found[places] = list(_totals(integers(words, places), [rests[place] for place in with_rest]))
    return found


def _totals(windows: Iterable[int], rests: Iterable[Rest]) -> Iterable[float]:
    for window, (nans, positives, negatives, rest) in zip(windows, rests, strict=True):
        if nans or (positives and negatives):
            yield NAN
        elif positives or negatives:
            yield math.inf if positives else -math.inf
        else:
            total = (window << (_FRACTION_BITS - WINDOW_BITS)) + rest
            try:
                yield total / (1 << _FRACTION_BITS)
            except OverflowError:
                yield math.inf if total > 0 else -math.inf


def _nearest_in_window(words: Sequence[Words]) -> Doubles:
    """Rounds half to even: the upper 64 bits of a magnitude, with the last one set if anything is below them."""
    negative = words[-1] < 0
    magnitude = np.stack(_magnitudes(words, negative))
    filled = magnitude != 0
    top = len(words) - 1 - np.argmax(filled[::-1], axis=0)
    upper = np.take_along_axis(magnitude, top[None], 0)[0]
    lower = np.where(top > 0, np.take_along_axis(magnitude, np.maximum(top - 1, 0)[None], 0)[0], np.uint64(0))
    below = (filled & (np.arange(len(words))[:, None] < top - 1)).any(axis=0)
    shifts = (64 - _bit_lengths(upper)).astype(np.uint64)
    shifts[upper == 0] = 0
    some = shifts > 0
    moved = np.where(some, lower >> ((np.uint64(64) - shifts) & np.uint64(63)), np.uint64(0))
    mantissa = (upper << shifts) | moved
    below |= (lower << shifts) != 0
    mantissa |= below.astype(np.uint64)
    found = np.ldexp(mantissa.astype(np.float64), (64 * top - shifts.astype(np.int64) - WINDOW_BITS).astype(np.int32))
    signed: Doubles = np.where(negative, -found, found)
    return signed


def _magnitudes(words: Sequence[Words], negative: NDArray[np.bool_]) -> list[NDArray[np.uint64]]:
    found = []
    carry = negative.astype(np.uint64)
    for word in words:
        flipped = np.where(negative, ~word, word).view(np.uint64) + carry
        carry &= flipped == 0
        found.append(flipped)
    return found


def _bit_lengths(words: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Of each half a conversion to a double is exact."""
    high = words >> np.uint64(BITS)
    of_high = np.frexp(high.astype(np.float64))[1] + BITS
    of_low = np.frexp((words & np.uint64((1 << BITS) - 1)).astype(np.float64))[1]
    return np.where(high != 0, of_high, of_low).astype(np.int64)
