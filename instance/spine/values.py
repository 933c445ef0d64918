"""Values in columns: their canonical form, and when they are equal.

Rows are one row when Spark SQL would group them together: null is null, every NaN is the same, negative zero is zero.
In canonical form (the one NaN, no negative zero) equal values have equal bits, also within lists, structs and maps;
maps are compared as the lists that they are. Only canonical arrays are arranged.
"""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types
import pyarrow.compute as pc  # type: ignore[import-untyped]
from numpy.typing import NDArray

Flags: TypeAlias = NDArray[np.bool_]
Places: TypeAlias = NDArray[np.int64]


def valid_of(array: pa.Array) -> Flags:
    """Which values are not null."""
    return pc.is_valid(array).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def ints_of(array: pa.Array) -> NDArray[np.signedinteger]:
    """The bits of values of a fixed width of at most 64 bits; unspecified where they are null."""
    type = array.type
    if pa.types.is_boolean(type):
        return pc.cast(array, pa.int8()).fill_null(0).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]
    if not len(array):
        return np.zeros(0, np.int64)
    width = type.bit_width // 8
    return np.frombuffer(array.buffers()[1], f"<i{width}", len(array), width * array.offset)


def words_of(array: pa.Array) -> NDArray[np.uint64]:
    """The bits of values of 128 bits, two words each, the lower one first; unspecified where they are null."""
    if not len(array):
        return np.zeros(0, np.uint64)
    return np.frombuffer(array.buffers()[1], "<u8", 2 * len(array), 16 * array.offset)


def has_floats(type: pa.DataType) -> bool:
    """Whether values of this type may have to be made canonical."""
    if pa.types.is_floating(type):
        return True
    return any(has_floats(type.field(place).type) for place in range(type.num_fields))


def canonical(array: pa.Array) -> pa.Array:
    """The same values in canonical form."""
    type = array.type
    if pa.types.is_floating(type):
        return _canonical_floats(array)
    if not has_floats(type):
        return array
    if pa.types.is_struct(type):
        fields = [canonical(field) for field in array.flatten()]
        mask = pc.is_null(array) if array.null_count else None
        return pa.StructArray.from_arrays(fields, fields=list(type), mask=mask)
    begin, end = array.offsets[0].as_py(), array.offsets[-1].as_py()
    children = canonical(array.values.slice(begin, end - begin))
    bounds = pc.subtract(array.offsets, pa.scalar(begin, pa.int32()))
    validity = _bitmap(array)
    return pa.Array.from_buffers(type, len(array), [validity, bounds.buffers()[1]], children=[children])


def _bitmap(array: pa.Array) -> pa.Buffer | None:
    if not array.null_count:
        return None
    return pa.py_buffer(np.packbits(valid_of(array), bitorder="little").tobytes())


def _canonical_floats(array: pa.Array) -> pa.Array:
    if not len(array):
        return array
    width = array.type.bit_width // 8
    values = np.frombuffer(array.buffers()[1], f"<f{width}", len(array), width * array.offset)
    ordinary = values == values
    # Only -0.0 is zero and yet has a sign.
    if ordinary.all() and not ((values == 0) & np.signbit(values)).any():
        return array
    # Adding zero turns -0.0 into 0.0.
    values = np.where(ordinary, values + values.dtype.type(0), values.dtype.type("nan"))
    return pa.Array.from_buffers(array.type, len(array), [_bitmap(array), pa.py_buffer(values)])


def equal(left: pa.Array, right: pa.Array) -> Flags:
    """Which values of two canonical arrays of one type and length are equal; null equals null."""
    type = left.type
    if pa.types.is_null(type):
        return np.ones(len(left), np.bool_)
    if pa.types.is_nested(type):
        found = _equal_structs(left, right) if pa.types.is_struct(type) else _equal_lists(left, right)
    elif pa.types.is_decimal(type):
        words = words_of(left) == words_of(right)
        found = words[0::2] & words[1::2]
    elif pa.types.is_string(type) or pa.types.is_binary(type):
        found = pc.equal(left, right).to_numpy(zero_copy_only=False)
    else:
        found = ints_of(left) == ints_of(right)
    if left.null_count or right.null_count:
        one, other = valid_of(left), valid_of(right)
        return np.where(one & other, found, one == other).astype(np.bool_, copy=False)
    return found


def _equal_structs(left: pa.Array, right: pa.Array) -> Flags:
    found = np.ones(len(left), np.bool_)
    for one, other in zip(left.flatten(), right.flatten(), strict=True):
        found &= equal(one, other)
    return found


def _equal_lists(left: pa.Array, right: pa.Array) -> Flags:
    """Where either is null, the answer is unspecified."""
    lengths = pc.fill_null(pc.list_value_length(_as_list(left)), -1).to_numpy()
    others = pc.fill_null(pc.list_value_length(_as_list(right)), -1).to_numpy()
    alike: Flags = lengths == others
    compared = np.flatnonzero(alike & (lengths > 0))
    if len(compared):
        chosen = pa.array(compared)
        same = equal(_as_list(left).take(chosen).flatten(), _as_list(right).take(chosen).flatten())
        sizes = lengths[compared].astype(np.int64)
        starts = np.cumsum(sizes) - sizes
        alike[compared] = np.logical_and.reduceat(same, starts)
    return alike


def _as_list(array: pa.Array) -> pa.Array:
    """A map as the list of its entries."""
    if not pa.types.is_map(array.type):
        return array
    type = pa.list_(pa.struct([array.type.key_field, array.type.item_field]))
    validity, bounds = array.buffers()[:2]
    return pa.Array.from_buffers(type, len(array), [validity, bounds], offset=array.offset, children=[array.values])


def rows_equal(columns: Sequence[pa.Array], left: Places, right: Places) -> Flags:
    """Which of the pairs of rows, given by their places, are equal."""
    one, other = pa.array(left), pa.array(right)
    found = np.ones(len(left), np.bool_)
    for column in columns:
        found &= equal(column.take(one), column.take(other))
    return found


def identities(columns: Sequence[pa.Array], count: int) -> Places:
    """A number for each row, the same for equal rows and different for others; for the few whose hashes collide."""
    found = np.zeros(count, np.int64)
    for column in columns:
        codes = _codes(column)
        _, found = np.unique(found * (int(codes.max(initial=0)) + 1) + codes, return_inverse=True)
    return found.astype(np.int64, copy=False)


def _codes(column: pa.Array) -> Places:
    """Numbers from 0 on, one for each different value; null is 0."""
    if pa.types.is_nested(column.type):
        # The text tells NaN from NaN no more than canonical values do, and everything else apart.
        seen: dict[str, int] = {}
        return np.array([seen.setdefault(repr(value), len(seen)) for value in column.to_pylist()], np.int64)
    if pa.types.is_floating(column.type):
        column = column.view(pa.int32() if column.type.bit_width == 32 else pa.int64())
    if pa.types.is_null(column.type):
        return np.zeros(len(column), np.int64)
    codes = column.dictionary_encode().indices
    return pc.add(pc.fill_null(codes, -1), 1).to_numpy().astype(np.int64)  # type: ignore[no-any-return]
