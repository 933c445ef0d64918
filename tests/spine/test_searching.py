"""Searching with fences finds what a plain binary search finds."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from instance.spine.searching import STRIDE, fences_of, searched

hashes = st.one_of(st.integers(0, 20), st.integers((1 << 64) - 20, (1 << 64) - 1), st.integers(0, (1 << 64) - 1))


@given(st.lists(hashes, min_size=1), st.integers(1, 2 * STRIDE), st.lists(hashes, max_size=20))
def test_fences_change_nothing(values: list[int], times: int, sought: list[int]) -> None:
    among = np.sort(np.repeat(np.array(values, np.uint64), times))
    wanted = np.array([*sought, *values], np.uint64)

    found = searched(among, fences_of(among), wanted)

    assert found.tolist() == among.searchsorted(wanted).tolist()
