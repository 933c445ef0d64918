"""Binary search in large sorted arrays that are mapped from files.

A plain binary search touches a new page of memory for most of its probes. Here every so many values are copied to a
small array of *fences*, which stays in the processor's cache; what is left is one stretch of neighbours for each value,
searched for all values at once.
"""

import numpy as np

from instance.spine.hashing import Hashes
from instance.spine.values import Places

#: How far fences are apart; a power of two.
STRIDE = 64
#: Fewer than so many values, or among fewer, are found as fast without fences.
SOUGHT_MIN, AMONG_MIN = 64, 1 << 17


def fences_of(sorted: Hashes) -> Hashes:
    return sorted[::STRIDE].copy()


def searched(sorted: Hashes, fences: Hashes, sought: Hashes) -> Places:
    """What ``sorted.searchsorted(sought)`` says: how many are less than each."""
    reached = fences.searchsorted(sought)
    last = len(sorted) - 1
    # The last place known to be less; the first of all is known not to be if no fence is.
    less: Places = np.maximum(reached - 1, 0) * STRIDE
    half = STRIDE // 2
    while half:
        # Beyond the end the last is asked instead: if that is less all are, and what is too much is cut off below.
        less += half * (sorted[np.minimum(less + half, last)] < sought)
        half //= 2
    less += 1
    less[reached == 0] = 0
    return np.minimum(less, last + 1, out=less)
