"""Damaged messages: each gives a valid domain value or a ``ProtocolViolation``, and nothing else.

Always the same ones: 250,000 different byte strings made by damaging right messages, and 125,000 messages made
field by field of values that are likely to be wrong.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, get_args

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from plainsong import codec
from plainsong.v1 import compute_pb2, storage_pb2
from reconcile.compute_protocol import ComputeCommand, ComputeResponse
from reconcile.errors import ProtocolViolation
from reconcile.ids import Epoch
from reconcile.storage_protocol import StorageCommand, StorageResponse
from tests.wire import examples

DAMAGED = 50_000
COMPOSED = 25_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Direction:
    """One of the things that the codec reads."""

    union: Any
    values: tuple[Any, ...]
    frame: type[Message]
    encode: Callable[[tuple[Any, ...]], bytes]
    decode: Callable[[bytes], Any]
    again: Callable[[Any], bytes]


DIRECTIONS = {
    "compute commands": Direction(
        union=ComputeCommand,
        values=examples.COMPUTE_COMMANDS,
        frame=compute_pb2.ComputeServiceSessionRequest,
        encode=lambda values: codec.encode_compute_commands(values, sent_ms=5).SerializeToString(),
        decode=codec.decode_compute_request,
        again=lambda heard: codec.encode_compute_commands(heard.commands, heard.sent_ms).SerializeToString(),
    ),
    "compute responses": Direction(
        union=ComputeResponse,
        values=examples.COMPUTE_RESPONSES,
        frame=compute_pb2.ComputeServiceSessionResponse,
        encode=lambda values: codec.encode_compute_responses(values, Epoch(3)).SerializeToString(),
        decode=codec.decode_compute_response,
        again=lambda heard: codec.encode_compute_responses(heard.responses, heard.accepted).SerializeToString(),
    ),
    "storage commands": Direction(
        union=StorageCommand,
        values=examples.STORAGE_COMMANDS,
        frame=storage_pb2.StorageServiceSessionRequest,
        encode=lambda values: codec.encode_storage_commands(values, sent_ms=5).SerializeToString(),
        decode=codec.decode_storage_request,
        again=lambda heard: codec.encode_storage_commands(heard.commands, heard.sent_ms).SerializeToString(),
    ),
    "storage responses": Direction(
        union=StorageResponse,
        values=examples.STORAGE_RESPONSES,
        frame=storage_pb2.StorageServiceSessionResponse,
        encode=lambda values: codec.encode_storage_responses(values, Epoch(3)).SerializeToString(),
        decode=codec.decode_storage_response,
        again=lambda heard: codec.encode_storage_responses(heard.responses, heard.accepted).SerializeToString(),
    ),
    "logged commands": Direction(
        union=ComputeCommand | StorageCommand,
        values=examples.COMPUTE_COMMANDS + examples.STORAGE_COMMANDS,
        frame=compute_pb2.ComputeCommand,
        encode=lambda values: codec.encode_command(values[0]),
        decode=codec.decode_command,
        again=codec.encode_command,
    ),
}


@pytest.mark.parametrize("which", DIRECTIONS)
def test_the_examples_show_every_kind_and_are_right(which: str) -> None:
    direction = DIRECTIONS[which]

    assert {type(value) for value in direction.values} == set(get_args(direction.union))
    for value in direction.values:
        encoded = direction.encode((value,))
        assert direction.again(direction.decode(encoded)) == encoded


@pytest.mark.parametrize("which", DIRECTIONS)
def test_damaged_bytes_become_a_value_or_a_violation(which: str) -> None:
    direction = DIRECTIONS[which]
    drawn = random.Random(f"damaged {which}")
    right = [direction.encode((value,)) for value in direction.values]
    right += [direction.encode(tuple(drawn.choices(direction.values, k=3))) for _ in range(20)]

    heard, seen = 0, set(right)
    enough = len(seen) + DAMAGED
    while len(seen) < enough:
        damaged = damage(drawn, right)
        if damaged not in seen:
            seen.add(damaged)
            heard += is_heard(direction, damaged)

    # Were all of them refused, or none, they would prove nothing.
    assert 0.05 < heard / DAMAGED < 0.95


@pytest.mark.parametrize("which", DIRECTIONS)
def test_composed_messages_become_a_value_or_a_violation(which: str) -> None:
    direction = DIRECTIONS[which]
    drawn = random.Random(f"composed {which}")

    heard = 0
    for _ in range(COMPOSED):
        message = direction.frame()
        compose(drawn, message)
        heard += is_heard(direction, message.SerializeToString())

    assert 0.01 < heard / COMPOSED < 0.95


def is_heard(direction: Direction, encoded: bytes) -> bool:
    """Whether it decodes; what does must be said again and heard the same."""
    try:
        heard = direction.decode(encoded)
    except ProtocolViolation:
        return False
    assert direction.decode(direction.again(heard)) == heard
    return True


def damage(drawn: random.Random, right: list[bytes]) -> bytes:
    """One to four wounds to a right message."""
    encoded = bytearray(drawn.choice(right))
    for _ in range(drawn.choice([1, 1, 2, 4])):
        place = drawn.randrange(len(encoded) + 1)
        match drawn.randrange(6):
            case 0 if place < len(encoded):
                encoded[place] ^= 1 << drawn.randrange(8)
            case 1 if place < len(encoded):
                encoded[place] = drawn.choice([0, 1, 0x7F, 0x80, 0xFF, drawn.randrange(256)])
            case 2:
                del encoded[place:]
            case 3:
                encoded[place:place] = drawn.randbytes(drawn.randrange(1, 5))
            case 4:
                del encoded[place : place + drawn.randrange(1, 5)]
            case _:
                other = drawn.choice(right)
                first = drawn.randrange(len(other) + 1)
                encoded[place:place] = other[first : first + drawn.randrange(1, 40)]
    return bytes(encoded)


NUMBERS = (0, 1, 2, 3, 4, 7, 99, 2**31 - 1, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1)
TEXTS = ("", "a", "a", "0", "-1", "-0", "12345678901234567890", "1" * 1_001, "\x00", "\U0001f3b5")


def compose(drawn: random.Random, message: Message) -> None:
    """Sets each field or not; no type of ours contains itself, so this ends."""
    for field in message.DESCRIPTOR.fields:
        present = 0.85 if field.containing_oneof is None else 1.5 / len(field.containing_oneof.fields)
        if drawn.random() < present:
            if field.is_repeated:
                for _ in range(drawn.choice([0, 1, 1, 1, 2, 3])):
                    if field.message_type is not None:
                        compose(drawn, getattr(message, field.name).add())
                    else:
                        getattr(message, field.name).append(scalar(drawn, field))
            elif field.message_type is not None:
                getattr(message, field.name).SetInParent()
                compose(drawn, getattr(message, field.name))
            else:
                setattr(message, field.name, scalar(drawn, field))


def scalar(drawn: random.Random, field: Any) -> Any:
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_BOOL:
            return drawn.random() < 0.5
        case FieldDescriptor.CPPTYPE_STRING if field.type == FieldDescriptor.TYPE_BYTES:
            return drawn.choice([b"", b"\xff", examples.UPDATES.ipc])
        case FieldDescriptor.CPPTYPE_STRING:
            return drawn.choice(TEXTS)
        case FieldDescriptor.CPPTYPE_ENUM:
            return drawn.choice([1, 1, 2, 2, 3, 3, 4, 4, 0, 99])
        case FieldDescriptor.CPPTYPE_UINT32:
            return drawn.choice([0, 0, 1, 1, 2, 2**32 - 1])
        case FieldDescriptor.CPPTYPE_INT64:
            return drawn.choice([-(2**63), -1, 1, 1, 0, 2**63 - 1])
        case _:
            # Mostly good ones, or hardly a message would be heard.
            return drawn.choice(NUMBERS) if drawn.random() < 0.1 else drawn.randrange(100)


@pytest.mark.parametrize("which", DIRECTIONS)
def test_no_message_contains_itself(which: str) -> None:
    """Protobuf refuses more than 100 nested messages, so nothing may depend on nesting; ``compose`` relies on it."""

    def contained(descriptor: Any, path: tuple[str, ...]) -> None:
        assert descriptor.full_name not in path
        for field in descriptor.fields:
            if field.message_type is not None:
                contained(field.message_type, (*path, descriptor.full_name))

    contained(DIRECTIONS[which].frame.DESCRIPTOR, ())
