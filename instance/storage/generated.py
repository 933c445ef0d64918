"""What a generator makes: each change a function of its options and its number, and of nothing else.

Changes come in blocks: first rows are inserted, then some of them are updated, then some deleted, all within the
block. So what a change takes back can be computed, however far back it lies and wherever a generator starts.
"""

from dataclasses import dataclass

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types
import pyarrow.compute as pc  # type: ignore[import-untyped]

from plainsong.types import DIFF, schema
from reconcile.source_types import BLOCK, FLAVOUR_COLUMNS, Flavour, GeneratorOptions

_ITEMS = pa.array(["anvil", "bell", "candle", "drum", "easel", "flute", "globe", "hammer", "inkwell", "jug"])
_STATUSES = pa.array(["new", "paid", "packed", "shipped", "delivered"])
_CHANNELS = pa.array(["web", "phone", "app", "floor"])
#: The first moment of 2024 in microseconds; each row is a millisecond after the one before.
_BEGIN_US = 1_704_067_200_000_000
_ROW_US = 1_000


def generator_schema(options: GeneratorOptions) -> pa.Schema:
    return schema(FLAVOUR_COLUMNS[options.flavour])


def generated(options: GeneratorOptions, first: int, last: int) -> pa.Table:
    """The changes numbered from ``first`` up to, not including, ``last``: the columns and ``_diff``.

    An update is one change and two rows of the result.
    """
    if options.inserts == BLOCK:
        ids = pa.array(range(first, last), pa.int64())
        return _rows(options, ids, pa.repeat(pa.scalar(0, pa.int64()), len(ids)), _ones(len(ids), 1))
    changes = [_change(options, number) for number in range(first, last)]
    flat = [(change.id, *part) for change in changes for part in change.parts]
    ids = pa.array([id for id, _, _ in flat], pa.int64())
    versions = pa.array([version for _, version, _ in flat], pa.int64())
    return _rows(options, ids, versions, pa.array([diff for _, _, diff in flat], pa.int64()))


@dataclass(frozen=True, slots=True)
class _Change:
    """What happens to row ``id``: versions of it, each with what it adds."""

    id: int
    parts: tuple[tuple[int, int], ...]


def _change(options: GeneratorOptions, number: int) -> _Change:
    block, place = divmod(number, BLOCK)
    base = block * options.inserts
    if place < options.inserts:
        return _Change(base + place, ((0, 1),))
    place -= options.inserts
    if place < options.updates:
        version, row = divmod(place, options.inserts)
        return _Change(base + row, ((version, -1), (version + 1, 1)))
    row = options.inserts - 1 - (place - options.updates)
    # How often it was updated in this block.
    version = (options.updates - row + options.inserts - 1) // options.inserts
    return _Change(base + row, ((max(version, 0), -1),))


# --- rows -------------------------------------------------------------------------------------------------


def _rows(options: GeneratorOptions, ids: pa.Array, versions: pa.Array, diffs: pa.Array) -> pa.Table:
    drawn = _Lots(options.seed, ids)
    match options.flavour:
        case Flavour.COUNTER:
            columns = [ids, drawn.below(0, options.keys), pc.add(ids, versions)]
        case Flavour.ORDERS:
            columns = [
                ids,
                drawn.below(0, options.keys),
                _ITEMS.take(drawn.below(1, len(_ITEMS))),
                pc.add(drawn.below(2, 9), 1).cast(pa.int32()),
                _cents(pc.add(drawn.below(3, 99_900), 100), 10),
                _STATUSES.take(_wrapped(versions, len(_STATUSES))),
                _moments(ids),
            ]
        case Flavour.AUCTION:
            columns = [
                ids,
                drawn.below(0, options.keys),
                drawn.below(1, 10 * options.keys),
                # A bid that is updated is raised.
                _cents(pc.add(pc.add(drawn.below(2, 1_000_000), 100), pc.multiply(versions, 500)), 12),
                _CHANNELS.take(drawn.below(3, len(_CHANNELS))),
                _moments(ids),
            ]
    names = generator_schema(options)
    return pa.Table.from_arrays([*columns, diffs], schema=names.append(pa.field(DIFF, pa.int64(), nullable=False)))


class _Lots:
    """Numbers that look drawn by lot, the same for the same seed, row and draw (SplitMix64)."""

    def __init__(self, seed: int, ids: pa.Array) -> None:
        self._seed = seed
        self._ids = ids.cast(pa.uint64())

    def below(self, draw: int, bound: int) -> pa.Array:
        begin = (self._seed * 0x9E3779B97F4A7C15 + draw * 0xD1B54A32D192ED03) % 2**64
        mixed = pc.add(pc.multiply(self._ids, _u64(0xBF58476D1CE4E5B9)), _u64(begin))
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            mixed = pc.multiply(pc.bit_wise_xor(mixed, pc.shift_right(mixed, _u64(shift))), _u64(factor))
        mixed = pc.shift_right(mixed, _u64(11)).cast(pa.int64())
        return _wrapped(mixed, bound)


def _u64(number: int) -> pa.Scalar:
    return pa.scalar(number, pa.uint64())


def _wrapped(numbers: pa.Array, bound: int) -> pa.Array:
    """Each modulo ``bound``; none is negative."""
    return pc.subtract(numbers, pc.multiply(pc.divide(numbers, bound), bound))


def _cents(numbers: pa.Array, precision: int) -> pa.Array:
    # Cast first: a decimal of cents has room to be divided exactly.
    cents = numbers.cast(pa.decimal128(19, 0))
    return pc.multiply(cents, pa.scalar("0.01").cast(pa.decimal128(3, 2))).cast(pa.decimal128(precision, 2))


def _moments(ids: pa.Array) -> pa.Array:
    return pc.add(pc.multiply(ids, _ROW_US), _BEGIN_US).cast(pa.timestamp("us", tz="UTC"))


def _ones(count: int, diff: int) -> pa.Array:
    return pa.repeat(pa.scalar(diff, pa.int64()), count)
