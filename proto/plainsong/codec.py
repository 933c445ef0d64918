"""The codec: bytes become a valid domain value or a ``ProtocolViolation``, and domain values become bytes.

Total and bounded. Decoding checks meaning, not only syntax: a quarter of randomly damaged messages still parse. A
kind that is not known is refused, never ignored. ``decode(encode(x)) == x`` for every domain value ``x`` within the
limits; one beyond them is refused by either side, ``TOO_LARGE`` or ``MALFORMED``, so that nothing is logged or sent
that could not be read again. Generated code stays behind this border, except in the services themselves.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from google.protobuf.message import Message

from plainsong.v1 import common_pb2, compute_pb2, storage_pb2
from plainsong.wire import compute, storage
from plainsong.wire.frames import PART_BYTES_MAX, SMALL, SMALL_BYTES, Room, check_count, frames, parsed, part_bytes
from plainsong.wire.tables import PutTable, put_all, put_one, take_all, take_one
from plainsong.wire.values import NUMBER_MAX, bounded, put_frontier, put_id, take_id
from reconcile.compute_protocol import ComputeCommand, ComputeResponse
from reconcile.frontiers import CLOSED, Antichain
from reconcile.ids import Epoch, GlobalId, Step
from reconcile.storage_protocol import StorageCommand, StorageResponse

__all__ = [
    "NUMBER_MAX",
    "PART_BYTES_MAX",
    "ComputeFrame",
    "ComputeReplyFrame",
    "StorageFrame",
    "StorageReplyFrame",
    "compute_command_frames",
    "compute_response_frames",
    "decode_command",
    "decode_compute_request",
    "decode_compute_response",
    "decode_storage_request",
    "decode_storage_response",
    "encode_command",
    "encode_compute_commands",
    "encode_compute_responses",
    "encode_storage_commands",
    "encode_storage_responses",
    "from_pb_frontier",
    "from_pb_id",
    "split_frames",
    "storage_command_frames",
    "storage_response_frames",
    "to_pb_frontier",
    "to_pb_id",
]

T = TypeVar("T", bound=ComputeCommand | ComputeResponse | StorageCommand | StorageResponse)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeFrame:
    """Compute commands in order. ``sent_ms`` is the controller's clock, to be returned unread; 0 asks for nothing."""

    commands: tuple[ComputeCommand, ...] = ()
    sent_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeReplyFrame:
    """Compute responses in order. ``accepted`` is the epoch of the session, in its first frame only."""

    accepted: Epoch | None = None
    responses: tuple[ComputeResponse, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageFrame:
    """Storage commands in order. ``sent_ms`` is the controller's clock, to be returned unread; 0 asks for nothing."""

    commands: tuple[StorageCommand, ...] = ()
    sent_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageReplyFrame:
    """Storage responses in order. ``accepted`` is the epoch of the session, in its first frame only."""

    accepted: Epoch | None = None
    responses: tuple[StorageResponse, ...] = ()


# --- whole frames -----------------------------------------------------------------------------------------


def encode_compute_commands(
    commands: Iterable[ComputeCommand], sent_ms: int = 0
) -> compute_pb2.ComputeServiceSessionRequest:
    """One frame; refuses what does not fit into one."""
    frame = compute_pb2.ComputeServiceSessionRequest(sent_ms=bounded(sent_ms))
    put_all(compute.PUT_COMMAND, commands, frame.commands)
    check_count(frame.commands)
    return parsed(compute_pb2.ComputeServiceSessionRequest, frame)


def decode_compute_request(message: compute_pb2.ComputeServiceSessionRequest | bytes) -> ComputeFrame:
    frame = parsed(compute_pb2.ComputeServiceSessionRequest, message)
    check_count(frame.commands)
    return ComputeFrame(
        commands=take_all(compute.TAKE_COMMAND, frame.commands, "command"), sent_ms=bounded(frame.sent_ms)
    )


def encode_compute_responses(
    responses: Iterable[ComputeResponse], accepted: Epoch | None = None
) -> compute_pb2.ComputeServiceSessionResponse:
    """One frame; refuses what does not fit into one."""
    frame = compute_pb2.ComputeServiceSessionResponse()
    if accepted is not None:
        _put_accepted(accepted, frame.accepted)
    put_all(compute.PUT_RESPONSE, responses, frame.responses)
    check_count(frame.responses)
    return parsed(compute_pb2.ComputeServiceSessionResponse, frame)


def decode_compute_response(message: compute_pb2.ComputeServiceSessionResponse | bytes) -> ComputeReplyFrame:
    frame = parsed(compute_pb2.ComputeServiceSessionResponse, message)
    check_count(frame.responses)
    return ComputeReplyFrame(
        accepted=_take_accepted(frame), responses=take_all(compute.TAKE_RESPONSE, frame.responses, "response")
    )


def encode_storage_commands(
    commands: Iterable[StorageCommand], sent_ms: int = 0
) -> storage_pb2.StorageServiceSessionRequest:
    """One frame; refuses what does not fit into one."""
    frame = storage_pb2.StorageServiceSessionRequest(sent_ms=bounded(sent_ms))
    put_all(storage.PUT_COMMAND, commands, frame.commands)
    check_count(frame.commands)
    return parsed(storage_pb2.StorageServiceSessionRequest, frame)


def decode_storage_request(message: storage_pb2.StorageServiceSessionRequest | bytes) -> StorageFrame:
    frame = parsed(storage_pb2.StorageServiceSessionRequest, message)
    check_count(frame.commands)
    return StorageFrame(
        commands=take_all(storage.TAKE_COMMAND, frame.commands, "command"), sent_ms=bounded(frame.sent_ms)
    )


def encode_storage_responses(
    responses: Iterable[StorageResponse], accepted: Epoch | None = None
) -> storage_pb2.StorageServiceSessionResponse:
    """One frame; refuses what does not fit into one."""
    frame = storage_pb2.StorageServiceSessionResponse()
    if accepted is not None:
        _put_accepted(accepted, frame.accepted)
    put_all(storage.PUT_RESPONSE, responses, frame.responses)
    check_count(frame.responses)
    return parsed(storage_pb2.StorageServiceSessionResponse, frame)


def decode_storage_response(message: storage_pb2.StorageServiceSessionResponse | bytes) -> StorageReplyFrame:
    frame = parsed(storage_pb2.StorageServiceSessionResponse, message)
    check_count(frame.responses)
    return StorageReplyFrame(
        accepted=_take_accepted(frame), responses=take_all(storage.TAKE_RESPONSE, frame.responses, "response")
    )


def _put_accepted(epoch: Epoch, out: common_pb2.SessionAccepted) -> None:
    out.SetInParent()
    out.epoch = bounded(epoch)


def _take_accepted(
    frame: compute_pb2.ComputeServiceSessionResponse | storage_pb2.StorageServiceSessionResponse,
) -> Epoch | None:
    return Epoch(bounded(frame.accepted.epoch)) if frame.HasField("accepted") else None


# --- as many frames as it takes ---------------------------------------------------------------------------


def compute_command_frames(commands: Iterable[ComputeCommand]) -> Iterator[compute_pb2.ComputeServiceSessionRequest]:
    """As few frames as hold ``commands``, in order; each command is encoded once. One too large for any is refused."""
    return frames(compute.PUT_COMMAND, commands, compute_pb2.ComputeServiceSessionRequest, "commands")


def compute_response_frames(
    responses: Iterable[ComputeResponse],
) -> Iterator[compute_pb2.ComputeServiceSessionResponse]:
    return frames(compute.PUT_RESPONSE, responses, compute_pb2.ComputeServiceSessionResponse, "responses")


def storage_command_frames(commands: Iterable[StorageCommand]) -> Iterator[storage_pb2.StorageServiceSessionRequest]:
    return frames(storage.PUT_COMMAND, commands, storage_pb2.StorageServiceSessionRequest, "commands")


def storage_response_frames(
    responses: Iterable[StorageResponse],
) -> Iterator[storage_pb2.StorageServiceSessionResponse]:
    return frames(storage.PUT_RESPONSE, responses, storage_pb2.StorageServiceSessionResponse, "responses")


def split_frames(said: Iterable[T]) -> Iterator[tuple[T, ...]]:
    """Commands or responses cut into runs that fit one frame each; one too large for any frame is refused.

    Measures all but the smallest kinds by encoding them; ``compute_command_frames`` and its like encode only once.
    """
    run: list[T] = []
    room = Room()
    for value in said:
        size = SMALL_BYTES if type(value) in SMALL else part_bytes(value, _carried(value))
        if not room.takes(size):
            yield tuple(run)
            run, room = [], Room()
            room.takes(size)
        run.append(value)
    if run:
        yield tuple(run)


# --- single commands --------------------------------------------------------------------------------------


def encode_command(command: ComputeCommand | StorageCommand) -> bytes:
    """One command as the durable log keeps it; refused if it is too large for a frame.

    What both protocols know has the same bytes in both.
    """
    carrier = _carried(command)
    part_bytes(command, carrier)
    return carrier.SerializeToString()


def decode_command(command: bytes) -> ComputeCommand | StorageCommand:
    """The command in these bytes, of whichever protocol it is."""
    decoded: ComputeCommand | StorageCommand
    message = parsed(compute_pb2.ComputeCommand, command)
    if message.WhichOneof("command") is not None:
        decoded = take_one(compute.TAKE_COMMAND, message, "command")
    else:
        decoded = take_one(storage.TAKE_COMMAND, parsed(storage_pb2.StorageCommand, command), "command")
    return decoded


#: Every kind of command and response: how it is written, and the message that carries it.
_CARRIERS: dict[type, tuple[PutTable, type[Message]]] = {
    kind: (table, carrier)
    for table, carrier in (
        (storage.PUT_RESPONSE, storage_pb2.StorageResponse),
        (compute.PUT_RESPONSE, compute_pb2.ComputeResponse),
        (storage.PUT_COMMAND, storage_pb2.StorageCommand),
        (compute.PUT_COMMAND, compute_pb2.ComputeCommand),
    )
    for kind in table
}


def _carried(value: ComputeCommand | ComputeResponse | StorageCommand | StorageResponse) -> Message:
    table, carrier = _CARRIERS[type(value)]
    message = carrier()
    put_one(table, value, message)
    return message


# --- for the API ------------------------------------------------------------------------------------------


def to_pb_id(id: GlobalId) -> common_pb2.GlobalId:
    message = common_pb2.GlobalId()
    put_id(id, message)
    return message


def from_pb_id(message: common_pb2.GlobalId) -> GlobalId:
    return take_id(message)


def to_pb_frontier(frontier: Antichain) -> common_pb2.Frontier:
    message = common_pb2.Frontier()
    put_frontier(frontier, message)
    return message


def from_pb_frontier(message: common_pb2.Frontier) -> Antichain:
    """A frontier without a step is closed; whether there is a frontier at all is for the caller to ask."""
    return Antichain(Step(bounded(message.step))) if message.HasField("step") else CLOSED
