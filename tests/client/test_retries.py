"""When a client tries again, where, and for how long."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plainsong import calls
from plainsong.answers import Interrupted, ObjectDropped, Progress
from plainsong.errors import Fenced, InvalidRequest, NotReigning, PlainsongError, StorageFailed, TimedOut, Unavailable
from plainsong.retries import BACKOFF_S_MAX, BACKOFF_S_MIN, Attempts, backoff_s
from plainsong.streams import ESTABLISHED_S, STREAM_S_MAX, StreamState
from plainsong.v1 import controller_pb2 as pb
from reconcile.frontiers import Antichain
from tests.client.serving import batch


def attempts(addresses: int = 1, timeout: float = 30.0, now: float = 0.0) -> Attempts:
    names = tuple(f"host:{number}" for number in range(addresses))
    return Attempts(addresses=names, first=0, timeout=timeout, now=now, random=Random(1))


@given(rounds=st.integers(min_value=0, max_value=10_000), seed=st.integers())
def test_every_wait_is_within_its_bounds(rounds: int, seed: int) -> None:
    assert BACKOFF_S_MIN <= backoff_s(rounds, Random(seed)) <= BACKOFF_S_MAX


def test_the_next_address_is_tried_at_once_and_only_a_whole_round_is_followed_by_a_wait() -> None:
    call = attempts(addresses=3)

    tried = [(call.failed(Unavailable("no"), now=0.0) > 0, call.address) for _ in range(6)]

    assert tried == [(False, 1), (False, 2), (True, 0), (False, 1), (False, 2), (True, 0)]


@pytest.mark.parametrize("error", [InvalidRequest("no"), Fenced("no")], ids=["request", "fenced"])
def test_what_does_not_pass_is_raised_and_the_address_stays(error: PlainsongError) -> None:
    call = attempts(addresses=2)

    with pytest.raises(type(error)):
        call.failed(error, now=0.0)

    assert call.address == 0


def test_after_a_silent_address_the_next_call_begins_elsewhere() -> None:
    call = attempts(addresses=2)

    with pytest.raises(TimedOut):
        call.failed(TimedOut("late"), now=30.0)

    assert call.address == 1


@pytest.mark.parametrize(
    "error", [Unavailable("no"), NotReigning("no"), StorageFailed("no"), InvalidRequest("no", reason="NOT_REIGNING")]
)
def test_what_passes_is_tried_until_the_deadline_and_no_longer(error: PlainsongError) -> None:
    call = attempts(timeout=10.0)
    waits: list[float] = []

    def try_for_ever() -> None:
        while True:
            waits.append(call.failed(error, sum(waits)))

    with pytest.raises(type(error), match="within 10 s at host:0"):
        try_for_ever()

    assert 10.0 - BACKOFF_S_MAX <= sum(waits) < 10.0
    assert 7 <= len(waits) <= 15


def test_no_time_left_is_said() -> None:
    with pytest.raises(TimedOut, match="no answer within 30 s"):
        attempts().remaining(30.0)


# --- streams ---


def test_a_stream_that_was_silent_for_hours_has_all_its_patience_when_it_fails() -> None:
    begun: list[float] = []

    def begin(timeout: float) -> Attempts:
        begun.append(timeout)
        return attempts(timeout=timeout, now=now)

    now = 0.0
    state = StreamState(calls.tail("t", timeout=10.0), begin)
    state.open(now)
    state.failed(Unavailable("lost"), now)
    state.open(now)
    now = 7_200.0
    wait = state.failed(Unavailable("lost again"), now)

    assert wait >= BACKOFF_S_MIN
    assert begun == [10.0, 10.0]


def test_a_stream_that_nobody_opens_fails_when_its_patience_is_over() -> None:
    waits: list[float] = []
    state = StreamState(calls.tail("t", timeout=10.0), lambda timeout: attempts(timeout=timeout, now=sum(waits)))

    def try_for_ever() -> None:
        while True:
            state.open(sum(waits))
            waits.append(state.failed(Unavailable("refused"), sum(waits)))

    with pytest.raises(Unavailable):
        try_for_ever()

    assert sum(waits) < 10.0
    assert ESTABLISHED_S > BACKOFF_S_MAX


def test_a_stream_that_was_silent_too_long_is_only_opened_anew() -> None:
    state = StreamState(calls.tail("t"), lambda timeout: attempts(timeout=timeout, now=STREAM_S_MAX))
    state.open(0.0)

    assert state.failed(TimedOut("deadline"), STREAM_S_MAX) >= 0


def test_a_server_that_says_too_late_is_believed() -> None:
    state = StreamState(calls.tail("t"), lambda timeout: attempts(timeout=timeout))
    state.open(0.0)

    with pytest.raises(TimedOut):
        state.failed(TimedOut("the input is late"), 1.0)


def test_a_watcher_learns_of_an_interruption_once_and_a_tail_never() -> None:
    watch = StreamState(calls.watch(), lambda timeout: attempts(timeout=timeout))
    tail = StreamState(calls.tail("t"), lambda timeout: attempts(timeout=timeout))
    event = pb.WatchResponse(object_dropped=pb.ObjectDropped(name="t"))
    for state in (watch, tail):
        state.open(0.0)
        state.failed(Unavailable("lost"), 0.0)
        state.open(1.0)

    watch.heard(event)
    watch.heard(event)
    tail.heard(batch(0, 3))

    dropped = ObjectDropped(name="t")
    assert [watch.take() for _ in range(4)] == [Interrupted(), dropped, dropped, None]
    assert [tail.take() for _ in range(2)] == [Progress(upper=Antichain.at(3)), None]
