"""Hashes of rows: 64 bits for each row, the same in every process and on every machine, because files hold them.

A hash only says where to look; values are always compared. Values must be canonical (``values.canonical``), so that
what is equal has the same bits. Everything is vectorised: a column becomes one number a row, columns are folded in
order. Bytes are read as little-endian words; the hash of a text is the sum of its words, each mixed with its place,
so it does not matter in which order or how many at once they are read. Lists are hashed likewise over their children.

Whoever changes a result here must change ``SCHEME``: files that bear another one are refused.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types
from numpy.typing import NDArray

from instance.spine.values import ints_of, valid_of, words_of

Hashes: TypeAlias = NDArray[np.uint64]
#: Hashes rows given by their columns, at least one and all of the same length; goes on from the hashes of earlier ones.
Hashing: TypeAlias = Callable[[Sequence[pa.Array], Hashes | None], Hashes]

SCHEME = 1

_U = np.uint64
_NULL, _PLACE, _COLUMN = _U(0x9AE16A3B2F90404F), _U(0x9E3779B97F4A7C15), _U(0xD6E8FEB86659FD93)
_ALL = (1 << 64) - 1
_30, _27, _31 = _U(30), _U(27), _U(31)
_FIRST, _SECOND = _U(0xBF58476D1CE4E5B9), _U(0x94D049BB133111EB)

#: How many rows are hashed at once: bounds the memory for what lies between a column and its hashes.
ROWS_AT_ONCE = 1 << 18
#: When so few texts are longer than what was read, each is read to its end by itself.
FEW = 16
#: The bytes of a word that belong to the text, by how many are left of it.
_MASKS = np.array([(1 << (8 * count)) - 1 for count in range(9)], dtype=np.uint64)


def mixed(words: Hashes) -> Hashes:
    """A bijection that spreads every bit over all (the finaliser of splitmix64)."""
    words = words ^ (words >> _30)
    words *= _FIRST
    words ^= words >> _27
    words *= _SECOND
    words ^= words >> _31
    return words


def row_hashes(columns: Sequence[pa.Array], start: Hashes | None = None) -> Hashes:
    """The hash of each row; goes on from the hashes of the columns before these, if they are given."""
    count = len(columns[0])
    if count <= ROWS_AT_ONCE:
        return _row_hashes(columns, start)
    found = []
    for begin in range(0, count, ROWS_AT_ONCE):
        before = None if start is None else start[begin : begin + ROWS_AT_ONCE]
        found.append(_row_hashes([column.slice(begin, ROWS_AT_ONCE) for column in columns], before))
    return np.concatenate(found)


def _row_hashes(columns: Sequence[pa.Array], start: Hashes | None) -> Hashes:
    for column in columns:
        numbers = _numbers(column)
        start = mixed(numbers + _COLUMN) if start is None else mixed(start * _COLUMN + numbers)
    assert start is not None
    return start


def _numbers(array: pa.Array) -> Hashes:
    """One number for each value: different for different values, if they have at most 64 bits; null has its own."""
    numbers = _valid_numbers(array)
    if array.null_count:
        numbers = np.where(valid_of(array), numbers, _NULL)
    return numbers


def _valid_numbers(array: pa.Array) -> Hashes:
    type = array.type
    if pa.types.is_decimal128(type):
        words = words_of(array)
        return mixed(words[0::2] + _PLACE) + words[1::2]
    if pa.types.is_string(type) or pa.types.is_binary(type):
        return _text_hashes(array)
    if pa.types.is_struct(type):
        # A struct without fields has only null and not null.
        fields = array.flatten()
        return _row_hashes(fields, None) if fields else np.zeros(len(array), np.uint64)
    if pa.types.is_list(type) or pa.types.is_map(type):
        return _list_hashes(array)
    if pa.types.is_null(type):
        return np.full(len(array), _NULL)
    return ints_of(array).astype(np.int64, copy=False).view(np.uint64)


def bounds_of(array: pa.Array) -> NDArray[np.int64]:
    """Where each text or list begins in what it is made of, and where the last one ends."""
    if not len(array):
        return np.zeros(1, np.int64)
    return np.frombuffer(array.buffers()[1], np.int32, len(array) + 1, 4 * array.offset).astype(np.int64)


def _text_hashes(array: pa.Array) -> Hashes:
    count = len(array)
    bounds = bounds_of(array)
    starts, lengths = bounds[:-1], np.diff(bounds)
    hashes: Hashes = mixed(lengths.view(np.uint64) ^ _COLUMN)
    begin, end = int(bounds[0]), int(bounds[-1])
    if begin == end:
        return hashes
    words = _words_anywhere(array.buffers()[2], begin, end)
    starts = starts - begin
    # Which texts have words that were not read, and how many words were.
    longer: Any = slice(None) if lengths.all() else np.flatnonzero(lengths)
    left, read = lengths[longer], 0
    while len(left) > FEW or (len(left) and read < FEW):
        masks = _MASKS[np.minimum(left, 8)]
        here = words[starts[longer] + 8 * read] & masks
        # In Python: numpy warns when a single number overflows, as this one is meant to.
        hashes[longer] += mixed(here + _U(int(_PLACE) * (read + 1) & _ALL))
        left, read = left - 8, read + 1
        more = left > 0
        if not more.all():
            longer = np.flatnonzero(more) if isinstance(longer, slice) else longer[more]
            left = left[more]
    if len(left):
        rows = np.arange(count)[longer]
        rest = [_rest_of_text(words, int(starts[row]), int(lengths[row]), read) for row in rows]
        hashes[rows] += np.array(rest, np.uint64)
    return hashes


def _words_anywhere(buffer: pa.Buffer, begin: int, end: int) -> Hashes:
    """The eight bytes from any place on as one word; bytes beyond the end are unspecified."""
    if end + 7 <= buffer.size:
        return np.ndarray((end - begin,), "<u8", buffer, begin, (1,))
    padded = np.zeros(end - begin + 7, np.uint8)
    padded[: end - begin] = np.frombuffer(buffer, np.uint8, end - begin, begin)
    return np.ndarray((end - begin,), "<u8", padded.data, 0, (1,))


def _rest_of_text(words: Hashes, start: int, length: int, read: int) -> int:
    """The sum of the words of one text that were not read."""
    here = words[start + 8 * read : start + length : 8].copy()
    here[-1] &= _MASKS[(length - 1) % 8 + 1]
    places = np.arange(read + 1, read + 1 + len(here), dtype=np.uint64)
    return int(np.add.reduce(mixed(here + _PLACE * places)))


def _list_hashes(array: pa.Array) -> Hashes:
    bounds = bounds_of(array)
    begin, lengths = int(bounds[0]), np.diff(bounds)
    children = array.values.slice(begin, int(bounds[-1]) - begin)
    places = np.arange(len(children)) - np.repeat(bounds[:-1] - begin, lengths) + 1
    mixes = mixed(mixed(_numbers(children)) + _PLACE * places.astype(np.uint64))
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(mixes, dtype=np.uint64)])
    ends = bounds - begin
    hashes: Hashes = mixed(lengths.view(np.uint64) ^ _COLUMN) + sums[ends[1:]] - sums[ends[:-1]]
    return hashes
