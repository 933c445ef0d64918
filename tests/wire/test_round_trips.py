"""Whatever is said is heard: ``decode(encode(x)) == x`` for every kind of command and response."""

from typing import Any, get_args

import pytest
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st

from plainsong import codec
from plainsong.v1 import compute_pb2, storage_pb2
from plainsong.wire import compute, storage
from reconcile.compute_protocol import ComputeCommand, ComputeResponse, Peek
from reconcile.frontiers import Antichain
from reconcile.ids import Epoch, GlobalId, PeekId, Step
from reconcile.plan_tree import PlanValue
from reconcile.storage_protocol import StorageCommand, StorageResponse
from tests.wire import strategies as random

KINDS = {
    "compute commands": (ComputeCommand, random.COMPUTE_COMMANDS, compute.PUT_COMMAND, compute.TAKE_COMMAND),
    "compute responses": (ComputeResponse, random.COMPUTE_RESPONSES, compute.PUT_RESPONSE, compute.TAKE_RESPONSE),
    "storage commands": (StorageCommand, random.STORAGE_COMMANDS, storage.PUT_COMMAND, storage.TAKE_COMMAND),
    "storage responses": (StorageResponse, random.STORAGE_RESPONSES, storage.PUT_RESPONSE, storage.TAKE_RESPONSE),
}
CARRIERS: dict[str, tuple[type[Message], str]] = {
    "compute commands": (compute_pb2.ComputeCommand, "command"),
    "compute responses": (compute_pb2.ComputeResponse, "response"),
    "storage commands": (storage_pb2.StorageCommand, "command"),
    "storage responses": (storage_pb2.StorageResponse, "response"),
}


@pytest.mark.parametrize("which", KINDS)
def test_the_codec_knows_every_kind(which: str) -> None:
    union, strategies, put, take = KINDS[which]
    carrier, oneof = CARRIERS[which]

    fields = {field.name for field in carrier.DESCRIPTOR.oneofs_by_name[oneof].fields}

    assert set(put) == set(strategies) == set(get_args(union))
    assert set(take) == fields == {field for field, _ in put.values()}


def names(kinds: dict[type, Any]) -> list[Any]:
    return [pytest.param(kind, id=kind.__name__) for kind in kinds]


@pytest.mark.parametrize("kind", names(random.COMPUTE_COMMANDS))
@given(draw=st.data(), sent_ms=random.NUMBERS)
@settings(max_examples=60)
def test_compute_commands_are_heard_as_said(kind: type, draw: st.DataObject, sent_ms: int) -> None:
    commands = tuple(draw.draw(st.lists(random.COMPUTE_COMMANDS[kind], max_size=3)))

    heard = codec.decode_compute_request(codec.encode_compute_commands(commands, sent_ms).SerializeToString())

    assert heard == codec.ComputeFrame(commands=commands, sent_ms=sent_ms)


@pytest.mark.parametrize("kind", names(random.STORAGE_COMMANDS))
@given(draw=st.data(), sent_ms=random.NUMBERS)
@settings(max_examples=60)
def test_storage_commands_are_heard_as_said(kind: type, draw: st.DataObject, sent_ms: int) -> None:
    commands = tuple(draw.draw(st.lists(random.STORAGE_COMMANDS[kind], max_size=3)))

    heard = codec.decode_storage_request(codec.encode_storage_commands(commands, sent_ms).SerializeToString())

    assert heard == codec.StorageFrame(commands=commands, sent_ms=sent_ms)


@pytest.mark.parametrize("kind", names(random.COMPUTE_RESPONSES))
@given(draw=st.data(), accepted=st.none() | random.NUMBERS.map(Epoch))
@settings(max_examples=60)
def test_compute_responses_are_heard_as_said(kind: type, draw: st.DataObject, accepted: Epoch | None) -> None:
    responses = tuple(draw.draw(st.lists(random.COMPUTE_RESPONSES[kind], max_size=3)))

    heard = codec.decode_compute_response(codec.encode_compute_responses(responses, accepted).SerializeToString())

    assert heard == codec.ComputeReplyFrame(accepted=accepted, responses=responses)


@pytest.mark.parametrize("kind", names(random.STORAGE_RESPONSES))
@given(draw=st.data(), accepted=st.none() | random.NUMBERS.map(Epoch))
@settings(max_examples=60)
def test_storage_responses_are_heard_as_said(kind: type, draw: st.DataObject, accepted: Epoch | None) -> None:
    responses = tuple(draw.draw(st.lists(random.STORAGE_RESPONSES[kind], max_size=3)))

    heard = codec.decode_storage_response(codec.encode_storage_responses(responses, accepted).SerializeToString())

    assert heard == codec.StorageReplyFrame(accepted=accepted, responses=responses)


@pytest.mark.parametrize("kind", names({**random.COMPUTE_COMMANDS, **random.STORAGE_COMMANDS}))
@given(draw=st.data())
@settings(max_examples=60)
def test_a_logged_command_is_read_back(kind: type, draw: st.DataObject) -> None:
    command = draw.draw({**random.COMPUTE_COMMANDS, **random.STORAGE_COMMANDS}[kind])

    assert codec.decode_command(codec.encode_command(command)) == command


@given(plan=random.PLANS)
def test_plan_values_keep_their_types(plan: PlanValue) -> None:
    """True equals 1 and a GlobalId equals a pair, so equality alone would not notice."""
    peek = Peek(peek=PeekId(1), id=GlobalId("u", 1), at=Step(0), finishing=plan)

    heard = codec.decode_command(codec.encode_command(peek))

    assert repr(heard) == repr(peek)


@given(id=random.IDS, frontier=random.FRONTIERS)
def test_ids_and_frontiers_of_the_api_are_heard_as_said(id: GlobalId, frontier: Antichain) -> None:
    assert codec.from_pb_id(codec.to_pb_id(id)) == id
    assert codec.from_pb_frontier(codec.to_pb_frontier(frontier)) == frontier


def test_what_both_protocols_know_has_one_number_and_no_number_means_two_things() -> None:
    ours = compute_pb2.ComputeCommand.DESCRIPTOR.fields_by_name
    theirs = storage_pb2.StorageCommand.DESCRIPTOR.fields_by_name

    numbers = {(field.number, field.name) for field in [*ours.values(), *theirs.values()]}

    assert len({number for number, _ in numbers}) == len({name for _, name in numbers}) == len(numbers)
