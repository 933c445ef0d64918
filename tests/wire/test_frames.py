"""Frames hold what they may hold, and not one more."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plainsong import codec
from plainsong.arrow_updates import ArrowUpdates
from reconcile.compute_protocol import (
    AllowCompaction,
    CancelPeeks,
    ComputeCommand,
    Heartbeat,
    InitializationComplete,
    PeekFailed,
    PeekResponse,
    PeekRows,
)
from reconcile.errors import ProtocolViolation, Violation
from reconcile.frontiers import CLOSED, Antichain
from reconcile.ids import Epoch, GlobalId, PeekId
from reconcile.limits import FRAME_COMMANDS_MAX, MESSAGE_BYTES_MAX
from reconcile.storage_protocol import Append, AppendResult, StorageCommand
from tests.wire import strategies as random

U7 = GlobalId("u", 7)
MANY = [AllowCompaction(id=GlobalId("u", n), since=Antichain.at(n)) for n in range(2 * FRAME_COMMANDS_MAX + 1)]


def append(size: int) -> Append:
    return Append(id=GlobalId("s", 1), upper=CLOSED, updates=ArrowUpdates.encoded(bytes(size)))


@given(commands=st.lists(st.one_of(*random.COMPUTE_COMMANDS.values()), max_size=12))
def test_frames_carry_every_command_once_and_in_order(commands: list[ComputeCommand]) -> None:
    frames = [codec.decode_compute_request(frame) for frame in codec.compute_command_frames(commands)]
    runs = list(codec.split_frames(commands))

    assert [command for frame in frames for command in frame.commands] == commands
    assert [frame.commands for frame in frames] == runs


@given(parts=st.lists(st.sampled_from([1, 2, 3, 4, 100, 10_000]), max_size=6))
@settings(max_examples=12, deadline=None)
def test_large_commands_are_spread_over_frames_that_all_fit(parts: list[int]) -> None:
    commands: list[StorageCommand] = [append((MESSAGE_BYTES_MAX - 200) // part) for part in parts]

    frames = list(codec.storage_command_frames(commands))

    assert all(0 < frame.ByteSize() <= MESSAGE_BYTES_MAX for frame in frames)
    heard = [command for frame in frames for command in codec.decode_storage_request(frame).commands]
    assert heard == commands
    assert [len(run) for run in codec.split_frames(commands)] == [len(frame.commands) for frame in frames]


def test_no_commands_make_no_frames() -> None:
    assert list(codec.compute_command_frames([])) == []
    assert list(codec.split_frames([])) == []


def test_a_frame_has_at_most_so_many_commands() -> None:
    frames = list(codec.compute_command_frames(MANY))

    assert [len(frame.commands) for frame in frames] == [FRAME_COMMANDS_MAX, FRAME_COMMANDS_MAX, 1]
    assert [len(run) for run in codec.split_frames(MANY)] == [FRAME_COMMANDS_MAX, FRAME_COMMANDS_MAX, 1]


def test_a_full_frame_is_heard_and_one_command_more_is_refused() -> None:
    full = codec.encode_compute_commands(MANY[:FRAME_COMMANDS_MAX])
    assert codec.decode_compute_request(full).commands == tuple(MANY[:FRAME_COMMANDS_MAX])

    full.commands.add().drop_instance.SetInParent()

    assert refusal(codec.decode_compute_request, full) is Violation.TOO_LARGE
    assert refusal(codec.encode_compute_commands, MANY) is Violation.TOO_LARGE


def test_the_largest_command_passes_and_one_byte_more_is_refused() -> None:
    around = codec.PART_BYTES_MAX - len(codec.encode_command(append(codec.PART_BYTES_MAX - 100))) + 100
    largest = append(codec.PART_BYTES_MAX - 200 + around)

    (frame,) = codec.storage_command_frames([largest])

    assert len(codec.encode_command(largest)) == codec.PART_BYTES_MAX
    assert codec.decode_storage_request(frame.SerializeToString()).commands == (largest,)
    larger = append(codec.PART_BYTES_MAX - 200 + around + 1)
    assert refusal(codec.encode_command, larger) is Violation.TOO_LARGE
    assert refusal(lambda: list(codec.storage_command_frames([larger]))) is Violation.TOO_LARGE
    assert refusal(lambda: list(codec.split_frames([larger]))) is Violation.TOO_LARGE


def test_a_message_that_is_too_large_is_refused_before_it_is_read() -> None:
    assert refusal(codec.decode_compute_request, bytes(MESSAGE_BYTES_MAX + 1)) is Violation.TOO_LARGE
    assert refusal(codec.decode_command, bytes(MESSAGE_BYTES_MAX + 1)) is Violation.TOO_LARGE
    assert refusal(codec.encode_storage_commands, [append(MESSAGE_BYTES_MAX)]) is Violation.TOO_LARGE


def test_kinds_that_are_never_measured_are_as_small_as_claimed() -> None:
    number = codec.NUMBER_MAX
    widest = AllowCompaction(id=GlobalId("l", number), since=Antichain.at(number))

    frame = codec.encode_compute_commands([widest] * FRAME_COMMANDS_MAX, sent_ms=number)

    assert frame.ByteSize() <= 48 * FRAME_COMMANDS_MAX
    assert codec.encode_compute_responses([Heartbeat(sent_ms=number)]).ByteSize() <= 48


def test_responses_are_spread_over_frames_too() -> None:
    rows = [PeekResponse(peek=PeekId(n), outcome=PeekRows(rows=bytes(MESSAGE_BYTES_MAX // 2))) for n in range(3)]
    results = [AppendResult(id=U7, token="x" * (MESSAGE_BYTES_MAX // 2), upper=CLOSED, left_out=n) for n in range(2)]

    peeks = [codec.decode_compute_response(frame) for frame in codec.compute_response_frames(rows)]
    appends = [codec.decode_storage_response(frame) for frame in codec.storage_response_frames(results)]

    assert [response for frame in peeks for response in frame.responses] == rows
    assert len(peeks) == 3
    assert [frame.responses for frame in appends] == [(result,) for result in results]
    assert [len(run) for run in codec.split_frames(rows)] == [1, 1, 1]


def test_a_frame_may_say_nothing_but_that_its_sender_lives() -> None:
    assert codec.decode_compute_request(b"") == codec.ComputeFrame()
    assert codec.decode_compute_request(codec.encode_compute_commands([], 5)) == codec.ComputeFrame(sent_ms=5)
    accepted = codec.encode_storage_responses([], Epoch(0))
    assert codec.decode_storage_response(accepted) == codec.StorageReplyFrame(accepted=Epoch(0))


def test_what_cannot_be_sent_is_refused_when_it_is_encoded() -> None:
    beyond = codec.NUMBER_MAX + 1

    assert refusal(codec.encode_compute_commands, [CancelPeeks(peeks=(PeekId(beyond),))]) is Violation.MALFORMED
    assert refusal(codec.encode_compute_commands, [CancelPeeks(peeks=(PeekId(-1),))]) is Violation.MALFORMED
    assert refusal(codec.encode_compute_commands, [InitializationComplete()], beyond) is Violation.MALFORMED
    assert refusal(codec.encode_compute_commands, [], -1) is Violation.MALFORMED
    assert refusal(codec.encode_compute_responses, [], Epoch(-1)) is Violation.MALFORMED
    assert refusal(codec.to_pb_id, GlobalId("u", -1)) is Violation.MALFORMED
    assert refusal(codec.to_pb_frontier, Antichain.at(-1)) is Violation.MALFORMED
    unpaired = PeekResponse(peek=PeekId(1), outcome=PeekFailed(error="\ud800"))
    assert refusal(codec.encode_compute_responses, [unpaired]) is Violation.MALFORMED


def refusal(call: Any, *arguments: Any) -> Violation:
    """How ``call`` refuses."""
    with pytest.raises(ProtocolViolation) as refused:
        call(*arguments)
    return refused.value.why
