"""When a replica that ended is started again, and when no more."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from controller.orchestrator.backoff import (
    CRASHES_MAX,
    CRASHES_WITHIN_S,
    RESTART_S_MAX,
    RESTART_S_MIN,
    STABLE_S,
    Crashes,
)

lives = st.lists(st.floats(min_value=0, max_value=200), max_size=30)


def after(lived: list[float]) -> tuple[Crashes, list[float]]:
    """The crashes after lives of these lengths, one directly after the other, and when they were."""
    crashes, now, times = Crashes(), 0.0, []
    for length in lived:
        started, now = now, now + length
        crashes = crashes.another(started=started, now=now)
        times.append(now)
    return crashes, times


def test_the_first_start_waits_for_nothing() -> None:
    assert Crashes().wait_s(Random(1)) == 0.0


def test_the_wait_doubles_up_to_its_bound() -> None:
    waits = [after([0.0] * count)[0].wait_s(Random(1)) for count in range(1, 12)]

    longest = [min(RESTART_S_MAX, RESTART_S_MIN * 2**count) for count in range(11)]
    assert all(bound / 2 <= wait <= bound for wait, bound in zip(waits, longest, strict=True))


def test_the_same_seed_gives_the_same_waits() -> None:
    crashes, _ = after([0.0] * 4)

    assert crashes.wait_s(Random(7)) == crashes.wait_s(Random(7))
    assert crashes.wait_s(Random(7)) != crashes.wait_s(Random(8))


def test_a_stable_life_forgives_earlier_crashes() -> None:
    crashes, _ = after([0.0, 0.0, 0.0, STABLE_S])

    assert crashes.in_a_row == 1


@given(lived=lives)
def test_quarantine_comes_exactly_after_too_many_crashes_within_the_window(lived: list[float]) -> None:
    crashes, times = after(lived)

    recent = [time for time in times if time > times[-1] - CRASHES_WITHIN_S] if times else []
    assert crashes.are_too_many == (len(recent) >= CRASHES_MAX)


@given(lived=lives, seed=st.integers())
def test_every_wait_is_within_the_bounds_and_memory_is_bounded(lived: list[float], seed: int) -> None:
    crashes, _ = after(lived)

    wait = crashes.wait_s(Random(seed))
    assert RESTART_S_MIN <= wait <= RESTART_S_MAX if lived else wait == 0.0
    assert len(crashes.times) <= CRASHES_MAX
