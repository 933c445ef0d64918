"""Sums by columns are those of the accumulators in memory, to the bit, whatever is added and taken out."""

import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from instance.arranged.fractions import from_bytes, nearest, outside, rest_of, to_bytes, window_parts
from instance.arranged.group import Group
from instance.arranged.limbs import bits_for, integers, limbs_of, packed, parts_of, parts_of_pairs, unpacked
from instance.arranged.totals import Summed, total_of
from instance.memory.accumulators import accumulator, exact_decimal
from instance.memory.batch import Batch
from instance.memory.group import Group as GroupInMemory
from instance.memory.operators import Operator
from instance.memory.rows import declared_format, row_format
from reconcile.errors import InvalidRequest
from tests.arranged.histories import changes_of

words = st.integers(-(2**63), 2**63 - 1)
#: The weights of a few rows, and of so many that 64 bits are too few.
weights = st.one_of(st.integers(-3, 3), st.integers(-(2**62), 2**62))


def summed(values: Sequence[int], times: Sequence[int]) -> int:
    return sum(value * by for value, by in zip(values, times, strict=True))


@given(st.lists(st.tuples(words, weights), min_size=1, max_size=20), st.integers(32, 61))
def test_parts_of_integers_add_up_exactly(rows: list[tuple[int, int]], bits: int) -> None:
    values, times = zip(*rows, strict=True)
    by = np.array(times, object)

    limbs = limbs_of(parts_of(np.array(values), by, bits), 3)
    total = packed([None if limb is None else limb.sum(keepdims=True) for limb in limbs], 3, 1)

    assert integers(total, np.array([0])) == [summed(values, times)]
    again = packed(unpacked(total), 3, 1)
    assert [int(word[0]) for word in again] == [int(word[0]) for word in total]


@given(st.lists(st.tuples(st.integers(-(10**38), 10**38), weights), min_size=1, max_size=20))
def test_parts_of_wide_decimals_add_up_exactly(rows: list[tuple[int, int]]) -> None:
    values, times = zip(*rows, strict=True)
    low = np.array([value & (2**64 - 1) for value in values], np.uint64).view(np.int64)
    high = np.array([value >> 64 for value in values], np.int64)

    limbs = limbs_of(parts_of_pairs(low, high, np.array(times, object), 40), 4)
    total = packed([None if limb is None else limb.sum(keepdims=True) for limb in limbs], 4, 1)

    assert integers(total, np.array([0])) == [summed(values, times)]


def test_a_sum_beyond_its_words_is_an_error_and_not_another_sum() -> None:
    largest = unpacked([np.array([-1]), np.array([2**63 - 1])])

    with pytest.raises(InvalidRequest, match="128 bits"):
        packed([limb + limb for limb in largest if limb is not None], 2, 1)


doubles = st.one_of(
    st.floats(),
    st.floats(-1e6, 1e6),
    st.floats(-(2.0**64), 2.0**64),
    st.sampled_from([2.0**-76, math.nextafter(2.0**-76, 0), 2.0**64, math.nextafter(2.0**64, 0), 5e-324, 0.1]),
).map(lambda value: math.nan if value != value else value + 0.0)


@settings(max_examples=300)
@given(st.lists(st.tuples(doubles, st.integers(-2, 3)), min_size=1, max_size=30))
def test_sums_of_doubles_are_the_nearest_to_the_exact_sum(rows: list[tuple[float, int]]) -> None:
    values, times = np.array([value for value, _ in rows]), np.array([by for _, by in rows])
    held = accumulator("sum", pa.float64())[1]()
    for value, by in rows:
        held.add(value, by)
    held.add(0.0, 1 - int(times.sum()))  # so that there is one

    beyond = outside(values)
    rest = (0, 0, 0, 0)
    for place in beyond:
        one = rest_of(float(values[place]), int(times[place]))
        rest = tuple(map(sum, zip(rest, one, strict=True)))  # type: ignore[assignment]  # four again
    inside = values.copy()
    inside[beyond] = 0
    limbs = limbs_of(window_parts(inside, times, bits_for(100)), 4)
    total = packed([None if limb is None else limb.sum(keepdims=True) for limb in limbs], 4, 1)

    assert from_bytes(to_bytes(rest)) == rest
    assert str(nearest(total, {0: rest})[0]) == str(np.float64(held.result()))


wide = st.tuples(st.integers(0, 2**256 - 1), st.integers(0, 255)).map(lambda pair: pair[0] >> pair[1])


#: Half way between two doubles, and a little more or less, with the difference in each of the words.
halves = [
    2 * ((1 << 200) + (odd << 148) + (1 << 147) + more) for odd in (0, 1) for more in (-1, 0, 1, 1 << 70, -(1 << 70))
]


@example(halves)
@example([each + each for each in halves])
@example([each >> 140 for each in halves])
@given(st.lists(wide, min_size=1))
def test_wide_integers_are_rounded_half_to_even(numbers: list[int]) -> None:
    signed = [(-1) ** place * (number >> 1) for place, number in enumerate(numbers)]
    by_word = [
        np.array([(each >> (64 * place)) & (2**64 - 1) for each in signed], np.uint64).view(np.int64)
        for place in range(4)
    ]

    assert nearest(by_word, {}).tolist() == [each / 2**128 for each in signed]


FORMAT = declared_format(
    (("k", "int"), ("b", "bigint"), ("d", "double"), ("m", "decimal(18,2)"), ("w", "decimal(38,3)"))
)
AGGREGATES = [
    (f"{function}_{name}", function, name) for name in "bdmw" for function in ("sum", "avg", "count", "min", "max")
]


@pytest.mark.parametrize("times", [1, 2**31, 2**40, 2**61])
def test_rows_that_occur_very_often_are_counted_exactly(times: int) -> None:
    rows = [(1, -3, 0.1, Decimal("0.01"), Decimal("-0.001")), (1, 2, 1e300, Decimal("-0.02"), Decimal("7.125"))]
    more = [(row, 5, diff) for row, diff in zip(rows, (times, times - 1), strict=True)]
    batches = [Batch.of(FORMAT, more), Batch.of(FORMAT, [(row, 6, 1 - diff) for row, _, diff in more])]
    model, operator = GroupInMemory(FORMAT, [("k", "k")], AGGREGATES), Group(FORMAT, [("k", "k")], AGGREGATES)

    for at, batch in enumerate(batches, 5):
        assert changes_of(operator.apply([batch], at)) == changes_of(model.apply([batch], at))


@pytest.mark.parametrize(
    ("type", "values"),
    [
        (pa.list_(pa.float64()), [(1.0, math.nan), (), (None,), None, (-0.0,), (0.0,)]),
        (pa.struct([("x", pa.int32()), ("y", pa.string())]), [(1, "a"), (1, None), None, (None, None)]),
    ],
    ids=["lists", "structs"],
)
def test_lists_and_structs_are_keys_too(type: pa.DataType, values: list[Any]) -> None:
    format = row_format(("k", "v"), (type, pa.int64()))
    updates = [((value, place), 1 + place % 2, 1) for place, value in enumerate(values * 3)]
    gone = [((value, place), 3, -1) for place, value in enumerate(values * 2)]
    aggregates = [("n", "count", None), ("total", "sum", "v"), ("most", "max", "v")]
    model, operator = GroupInMemory(format, [("k", "k")], aggregates), Group(format, [("k", "k")], aggregates)

    for at, batch in ((1, updates), (3, gone)):
        found = Batch.of(format, batch)
        # By way of Arrow, where -0.0 and every NaN are what they are.
        again = Batch.of_arrow(format, found.arrow)
        assert changes_of(operator.apply([again], at)) == changes_of(model.apply([again], at))


@pytest.mark.parametrize(
    ("function", "name", "values"),
    [
        ("sum", "b", [2**63 - 1, 1]),
        ("sum", "b", [-(2**63), -(2**63), -5]),
        ("sum", "w", [Decimal("9" * 35), Decimal(1)]),
        ("sum", "w", [Decimal("-" + "9" * 35 + ".999"), Decimal("-0.001")]),
        ("avg", "w", [Decimal("-" + "9" * 35 + ".999")]),
    ],
)
def test_what_does_not_fit_its_type_fails_with_the_same_words(function: str, name: str, values: list[Any]) -> None:
    """And only as long as somebody would see it."""
    place = FORMAT.places[name]
    rows = [tuple(value if at == place else 1 if at == 0 else None for at in range(5)) for value in values]
    aggregates = [("n", "count", None), ("result", function, name)]
    come, gone = (Batch.of(FORMAT, [(row, 7, diff) for row in rows]) for diff in (1, -1))
    both = Batch.of(FORMAT, [*come.updates, *gone.updates])
    models: list[Operator] = [GroupInMemory(FORMAT, [("k", "k")], aggregates), Group(FORMAT, [("k", "k")], aggregates)]

    assert [len(model.apply([both], 7)) for model in models] == [0, 0]
    errors = []
    for model in models:
        with pytest.raises(InvalidRequest, match="group failed in 'result'") as error:
            model.apply([come], 7)
        errors.append(str(error.value))
    assert errors[0] == errors[1]


def summed_of(totals: Sequence[int], counts: Sequence[int], count_of_words: int) -> Summed:
    by_word = [
        np.array([(total >> (64 * place)) & (2**64 - 1) for total in totals], np.uint64).view(np.int64)
        for place in range(count_of_words)
    ]
    return Summed(words=by_word, rests={}, counts=np.array(counts), wanted=np.ones(len(counts), np.bool_))


sizes = st.sampled_from([10, 40, 53, 54, 63, 64, 90])
totals = sizes.flatmap(lambda bits: st.integers(-(2**bits), 2**bits))
counts = st.one_of(st.integers(1, 100), st.integers(-5, 2**60)).filter(bool)


#: Of which the nearest doubles have another quotient.
@example(
    [
        (1185305485275284689, 17),
        (977252857347163670, 14),
        (18719639729369433, 91),
        (713073860282, 19619769415762462),
        (96098617744, 774267843827976726),
    ]
)
@example([(2**62 + 3, 3), (-(2**63), 7), (2**64 - 1, 5)])
@given(st.lists(st.tuples(totals, counts), min_size=1, max_size=30))
def test_averages_of_integers_are_the_nearest(rows: list[tuple[int, int]]) -> None:
    found = total_of(pa.int64()).avg(summed_of([total for total, _ in rows], [count for _, count in rows], 2))

    assert found.to_pylist() == [total / count for total, count in rows]


@pytest.mark.parametrize(
    "type", [pa.decimal128(6, 2), pa.decimal128(18, 0), pa.decimal128(18, 18), pa.decimal128(38, 36)]
)
@example([(1, 32), (-1, 32), (3, 32), (1, 64), (-3, 64), (5, 20000), (-5, 20000), (2**60, 3), (-(2**63), 1)])
@given(st.lists(st.tuples(totals, counts), min_size=1, max_size=30))
def test_sums_and_averages_of_decimals_are_rounded_half_up_or_fail(
    type: pa.DataType, rows: list[tuple[int, int]]
) -> None:
    for row in rows:
        for function, divisor in (("sum", 1), ("avg", row[1])):
            result, _ = accumulator(function, type)
            of = summed_of([row[0]], [row[1]], total_of(type).words)
            expected = _outcome(lambda: exact_decimal(row[0], divisor, type.scale, result))  # noqa: B023  # at once
            assert _outcome(lambda: getattr(total_of(type), function)(of)[0].as_py()) == expected  # noqa: B023


def _outcome(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except InvalidRequest as error:
        return str(error)
