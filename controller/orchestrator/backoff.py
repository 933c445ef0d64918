"""Backoff: when a replica that ended is started again, and when no more.

Pure: the time is passed in, and so is the randomness.
"""

from dataclasses import dataclass
from random import Random

#: The wait before a replica is started again: doubled with each crash.
RESTART_S_MIN, RESTART_S_MAX = 0.1, 10.0
#: So many crashes within so many seconds, and it is left alone.
CRASHES_MAX, CRASHES_WITHIN_S = 5, 60.0
#: Who ran so long has recovered: its earlier crashes no longer count for the wait.
STABLE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Crashes:
    """The crashes of one replica that still count."""

    #: When, in order; only those within ``CRASHES_WITHIN_S`` of the last.
    times: tuple[float, ...] = ()
    #: How many in a row without a stable life in between.
    in_a_row: int = 0

    def another(self, *, started: float, now: float) -> "Crashes":
        """With one more crash, ``now``, of a process that was ``started`` then."""
        recent = (*(time for time in self.times if time > now - CRASHES_WITHIN_S), now)
        return Crashes(times=recent[-CRASHES_MAX:], in_a_row=1 if now - started >= STABLE_S else self.in_a_row + 1)

    @property
    def are_too_many(self) -> bool:
        return len(self.times) >= CRASHES_MAX

    def wait_s(self, random: Random) -> float:
        """How long to wait before the next start: exponential, with jitter so that replicas do not start in step."""
        if self.in_a_row == 0:
            return 0.0
        longest = min(RESTART_S_MAX, RESTART_S_MIN * 2 ** min(self.in_a_row - 1, 32))
        return random.uniform(max(RESTART_S_MIN, longest / 2), longest)
