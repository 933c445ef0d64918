"""Aggregates are exact, forget what is taken out, and do not depend on the order of rows."""

import math
import random
from decimal import Decimal
from fractions import Fraction

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types
import pytest
from hypothesis import given
from hypothesis import strategies as st

from instance.memory.accumulators import accumulator
from instance.memory.rows import Value
from reconcile.errors import InvalidRequest

doubles = st.floats().map(lambda value: math.nan if value != value else value + 0.0)


def result(function: str, type: pa.DataType, values: list[Value], gone: list[Value] | None = None) -> Value:
    """The aggregate of ``values`` after those in ``gone`` came and went too."""
    held = accumulator(function, type)[1]()
    for value in gone or []:
        held.add(value, 1)
    for value in values:
        held.add(value, 1)
    for value in gone or []:
        held.add(value, -1)
    return held.result()


@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=20), st.lists(doubles), st.randoms()
)
def test_sums_of_doubles_are_the_nearest_to_the_exact_sum_whatever_came_and_went(
    values: list[float], gone: list[float], lots: random.Random
) -> None:
    exact = sum(map(Fraction, values))
    shuffled = lots.sample(values, len(values))
    try:
        expected = float(exact)
    except OverflowError:
        expected = math.inf if exact > 0 else -math.inf

    found = result("sum", pa.float64(), shuffled, gone)

    assert found == expected
    assert result("avg", pa.float64(), shuffled, gone) == expected / len(values)


@given(st.lists(doubles, min_size=1))
def test_special_doubles_add_up_as_ieee_says_and_can_be_taken_out(values: list[float]) -> None:
    found = result("sum", pa.float64(), values, [math.inf, -math.inf, math.nan])

    special = [value for value in values if not math.isfinite(value)]
    if special:
        assert str(found) == str(sum(special))
    else:
        exact = sum(map(Fraction, values), Fraction(0))
        assert math.isfinite(found) or not -(2**1023) < exact < 2**1023


@given(st.lists(doubles, min_size=1), st.lists(doubles))
def test_nan_is_the_greatest_and_least_only_where_there_is_nothing_else(values: list[float], gone: list[float]) -> None:
    numbers = [value for value in values if value == value]

    least, greatest = (result(function, pa.float64(), values, gone) for function in ("min", "max"))

    assert least is math.nan if not numbers else least == min(numbers)
    assert greatest is math.nan if len(numbers) < len(values) else greatest == max(numbers)


@given(st.lists(st.text(max_size=3)), st.lists(st.text(max_size=3)))
def test_extremes_of_strings_forget_what_is_gone(values: list[str], gone: list[str]) -> None:
    assert result("min", pa.string(), values, gone) == min(values, default=None)
    assert result("max", pa.string(), values, gone) == max(values, default=None)


@given(st.lists(st.decimals(-9999, 9999, places=2), min_size=1, max_size=50))
def test_sums_and_averages_of_decimals_are_exact(values: list[Decimal]) -> None:
    total = sum(values, Decimal(0))
    mean = Fraction(total) / len(values)

    assert result("sum", pa.decimal128(6, 2), values, [Decimal("0.01")]) == total
    found = result("avg", pa.decimal128(6, 2), values, [Decimal("0.01")])
    assert -1 <= (Fraction(found) - mean) * 2_000_000 <= 1


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=5))
def test_a_sum_of_integers_is_exact_or_fails(values: list[int]) -> None:
    if -(2**63) <= sum(values) < 2**63:
        assert result("sum", pa.int64(), values, [2**63 - 1, 2**63 - 1]) == sum(values)
    else:
        with pytest.raises(InvalidRequest, match="overflow"):
            result("sum", pa.int64(), values)
    assert result("avg", pa.int64(), values) == sum(values) / len(values)


@pytest.mark.parametrize("function", ["sum", "avg", "min", "max"])
def test_of_nothing_every_aggregate_but_count_is_null(function: str) -> None:
    assert result(function, pa.int64(), [], [5, 6]) is None
    assert result("count", pa.int64(), [], [5, 6]) == 0


def test_a_decimal_sum_that_outgrows_38_digits_fails() -> None:
    with pytest.raises(InvalidRequest, match="overflow"):
        result("sum", pa.decimal128(38, 0), [Decimal("9" * 38), Decimal(1)])
