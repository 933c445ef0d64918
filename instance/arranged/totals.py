"""Sums by columns: what each kind of number adds up to, and the sum and average that come of it.

The meaning is that of ``instance.memory.accumulators``, to the bit: whatever is vectorised here is exact, and what is
not (sums beyond 64 bits, decimals of many digits) is left to the same functions, one by one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types

from instance.arranged.fractions import WORDS as FRACTION_WORDS
from instance.arranged.fractions import Rest, nearest, outside, rest_of, window_parts
from instance.arranged.limbs import Limb, Part, Words, fits_one_word, integers, parts_of, parts_of_pairs
from instance.memory.accumulators import accumulator, exact_decimal
from instance.memory.casts import EXACT, checked
from instance.memory.type_rules import BIGINT, is_fractional, is_integer
from instance.spine.consolidation import Numbers
from instance.spine.values import Flags, ints_of, valid_of, words_of

#: Integers up to here are doubles too.
_EXACT_IN_DOUBLE = 1 << 53
#: Decimals of so many digits at most fit one word.
_DIGITS_OF_WORD = 18


@dataclass(frozen=True, slots=True, kw_only=True)
class Summed:
    """The sums of some groups: wide integers, the rest of each that has one, and how many values there are."""

    words: Sequence[Words]
    rests: Mapping[int, Rest]
    counts: Numbers
    #: Which sums anybody will see: only they may fail.
    wanted: Flags

    @property
    def valid(self) -> Flags:
        found: Flags = self.wanted & (self.counts != 0)
        return found


class Total(Protocol):
    """How values of one type are added up."""

    #: Of the integer that is stored.
    words: int
    has_rest: bool

    def weighed(
        self, values: pa.Array, diffs: Numbers, weights: Limb | None, bits: int
    ) -> tuple[list[Part], dict[int, Rest]]:
        """What is added, in parts of so many bits at most; and by place what some add beyond that.

        The weights are the differences, with none for null; or None if all are one.
        """
        ...

    def sum(self, of: Summed) -> pa.Array: ...

    def avg(self, of: Summed) -> pa.Array: ...


def total_of(type: pa.DataType) -> Total:
    """For values that ``accumulator`` sums."""
    if is_fractional(type):
        return Fractions()
    return Integers() if is_integer(type) else Decimals(type)


class Integers:
    """Of the integer types."""

    words, has_rest = 2, False

    def weighed(
        self, values: pa.Array, diffs: Numbers, weights: Limb | None, bits: int  # noqa: ARG002
    ) -> tuple[list[Part], dict[int, Rest]]:  # fmt: skip
        return parts_of(ints_of(values).astype(np.int64, copy=False), weights, bits), {}

    def sum(self, of: Summed) -> pa.Array:
        beyond = np.flatnonzero(of.valid & ~fits_one_word(of.words))
        if len(beyond):
            checked(integers(of.words, beyond[:1])[0], BIGINT)
        return pa.array(of.words[0], mask=~of.valid)

    def avg(self, of: Summed) -> pa.Array:
        low, counts = of.words[0], of.counts
        exact = fits_one_word(of.words)
        for each in (low, counts):
            exact &= (each < _EXACT_IN_DOUBLE) & (each > -_EXACT_IN_DOUBLE)
        valid = of.valid
        # A sum of zero has no sign, whatever that of the count.
        found = low / np.where(valid, counts, 1) + 0.0
        others = np.flatnonzero(valid & ~exact)
        if len(others):
            found[others] = [
                total / int(count) for total, count in zip(integers(of.words, others), counts[others], strict=True)
            ]
        return pa.array(found, mask=~valid)


class Decimals:
    """Of one decimal type, in units of its last digit."""

    has_rest = False

    def __init__(self, type: pa.DataType) -> None:
        self._type = type
        self._is_narrow = type.precision <= _DIGITS_OF_WORD
        self.words = 2 if self._is_narrow else 3
        self._sum_type, _ = accumulator("sum", type)
        self._avg_type, _ = accumulator("avg", type)

    def weighed(
        self, values: pa.Array, diffs: Numbers, weights: Limb | None, bits: int  # noqa: ARG002
    ) -> tuple[list[Part], dict[int, Rest]]:  # fmt: skip
        words = words_of(values).view(np.int64)
        if self._is_narrow:
            return parts_of(words[0::2], weights, bits), {}
        return parts_of_pairs(words[0::2], words[1::2], weights, bits), {}

    def sum(self, of: Summed) -> pa.Array:
        fits = fits_one_word(of.words)
        if self._sum_type.precision <= _DIGITS_OF_WORD:
            limit = 10**self._sum_type.precision
            fits &= (of.words[0] < limit) & (of.words[0] > -limit)
        return self._array(of, self._sum_type, of.words[0].copy(), fits, np.ones_like(of.counts))

    def avg(self, of: Summed) -> pa.Array:
        type, counts = self._avg_type, of.counts
        factor = 10 ** (type.scale - self._type.scale)
        limit = min((1 << 62) // (2 * factor) - 1, 10 ** min(type.precision, _DIGITS_OF_WORD) // factor - 1)
        fits = fits_one_word(of.words) & (counts > 0) & (counts < 1 << 62)
        fits &= (of.words[0] < limit) & (of.words[0] > -limit)
        twice = np.where(fits, np.abs(of.words[0]), 0) * (2 * factor)
        divisor = np.where(fits, counts, 1)
        # Half up, away from zero: twice the sum and once the count, by twice the count.
        halves, odd = np.divmod(twice, 2 * divisor)
        means = halves + (odd >= divisor)
        return self._array(of, type, np.where(of.words[0] < 0, -means, means), fits, counts)

    def _array(self, of: Summed, type: pa.DataType, low: Words, fits: Flags, counts: Numbers) -> pa.Array:
        """Decimals whose digits are ``low`` where they fit; the others one by one, from the sums and ``counts``."""
        valid = of.valid
        high = low >> 63
        others = np.flatnonzero(valid & ~fits)
        for place, total in zip(others, integers(of.words, others), strict=True):
            found = exact_decimal(total, int(counts[place]), self._type.scale, type)
            digits = int(found.scaleb(type.scale, EXACT))
            low[place], high[place] = np.uint64(digits & ((1 << 64) - 1)).view(np.int64), digits >> 64
        words = np.empty(2 * len(low), np.int64)
        words[0::2], words[1::2] = low, high
        bitmap = pa.py_buffer(np.packbits(valid, bitorder="little"))
        return pa.Array.from_buffers(type, len(low), [bitmap, pa.py_buffer(words)])


class Fractions:
    """Of floats and doubles."""

    words, has_rest = FRACTION_WORDS, True

    def weighed(
        self, values: pa.Array, diffs: Numbers, weights: Limb | None, bits: int
    ) -> tuple[list[Part], dict[int, Rest]]:
        doubles = _doubles(values)
        beyond = outside(doubles)
        rests = {int(place): rest_of(float(doubles[place]), int(diffs[place])) for place in beyond}
        if rests:
            doubles = doubles.copy()
            doubles[beyond] = 0
        return window_parts(doubles, weights, bits), rests

    def sum(self, of: Summed) -> pa.Array:
        return pa.array(nearest(of.words, of.rests), mask=~of.valid)

    def avg(self, of: Summed) -> pa.Array:
        totals, valid = nearest(of.words, of.rests), of.valid
        # Adding zero: an average that vanishes has no sign. NaN stays the one that it is.
        means = np.where(totals == totals, totals / np.where(valid, of.counts, 1) + 0.0, np.nan)
        return pa.array(means, mask=~valid)


def _doubles(values: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Zero where there is none."""
    width = values.type.bit_width // 8
    if not len(values):
        return np.zeros(0)
    bits = np.frombuffer(values.buffers()[1], f"<f{width}", len(values), width * values.offset)
    found = bits.astype(np.float64, copy=False)
    return np.where(valid_of(values), found, 0.0) if values.null_count else found
