"""Retries: when a client tries again, where, and for how long.

Pure: the time is passed in, and so is the randomness.
"""

from random import Random

from plainsong.errors import NotReigning, PlainsongError, TimedOut, kind_reason

#: Between two rounds through the addresses.
BACKOFF_S_MIN, BACKOFF_S_MAX = 0.2, 2.0
#: Every call's, unless it names another.
TIMEOUT_S = 30.0

_NOT_REIGNING = kind_reason(NotReigning)


def backoff_s(rounds: int, random: Random) -> float:
    """How long to wait after so many rounds in which nobody answered: doubling, with jitter, within the bounds."""
    longest = min(BACKOFF_S_MAX, BACKOFF_S_MIN * 2 ** min(rounds, 16))
    return random.uniform(max(BACKOFF_S_MIN, longest / 2), longest)


def is_passing(error: PlainsongError) -> bool:
    """Whether the same request may well succeed a little later, or elsewhere."""
    return error.code == "UNAVAILABLE" or error.reason == _NOT_REIGNING


class Attempts:
    """The attempts of one call. ``address`` is the place, in the client's list, where the next one goes."""

    def __init__(self, *, addresses: tuple[str, ...], first: int, timeout: float, now: float, random: Random) -> None:
        self.address = first
        self._addresses = addresses
        self._timeout = timeout
        self._deadline = now + timeout
        self._random = random
        self._failed = 0

    def remaining(self, now: float) -> float:
        """Seconds until the deadline; raises ``TimedOut`` when there are none."""
        if (left := self._deadline - now) <= 0:
            raise TimedOut(f"no answer within {self._timeout:g} s", hint="give a longer timeout")
        return left

    def failed(self, error: PlainsongError, now: float) -> float:
        """Notes a failure and returns how long to wait before the next attempt; raises if there is to be none.

        Each address is tried at once; only a whole round without success is followed by a wait.
        """
        moves_on = is_passing(error)
        if moves_on or isinstance(error, TimedOut):
            # Not only for this call: an address that is silent is not where the next call should begin.
            self.address = (self.address + 1) % len(self._addresses)
        if not moves_on:
            raise error
        self._failed += 1
        rounds, within = divmod(self._failed, len(self._addresses))
        wait = 0.0 if within else backoff_s(rounds - 1, self._random)
        if now + wait >= self._deadline:
            tried = f"tried {self._failed} times within {self._timeout:g} s at {', '.join(self._addresses)}"
            error.detail = f"{error.detail}; {tried}" if error.detail else tried
            raise error
        return wait
