"""Frames: how many commands or responses go into one message.

A frame holds at most ``FRAME_COMMANDS_MAX`` of them and at most ``MESSAGE_BYTES_MAX`` bytes.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from google.protobuf.message import DecodeError, Message

from plainsong.wire.tables import PutTable, put_one
from plainsong.wire.values import malformed, too_large
from reconcile.compute_protocol import AllowCompaction, AllowWrites, DropInstance, Heartbeat, InitializationComplete
from reconcile.limits import FRAME_COMMANDS_MAX, MESSAGE_BYTES_MAX

#: What a frame needs beside what it carries (an epoch, a time), with plenty to spare.
_FRAME_BYTES = 64
#: What each part needs in a frame beside itself: its tag and its length.
_PART_BYTES = 8
#: The most that one command or response may take.
PART_BYTES_MAX = MESSAGE_BYTES_MAX - _FRAME_BYTES - _PART_BYTES

#: Kinds that are small whatever they say, so that nobody needs to measure them; and how small.
SMALL = {AllowCompaction, AllowWrites, DropInstance, Heartbeat, InitializationComplete}
SMALL_BYTES = 48

M = TypeVar("M", bound=Message)


def parsed(kind: type[M], message: M | bytes) -> M:
    """The message, read from bytes if need be; refuses more than a message may hold."""
    if isinstance(message, bytes):
        size = len(message)
    else:
        size = message.ByteSize()
    if size > MESSAGE_BYTES_MAX:
        raise too_large(f"a message takes {size} bytes; at most {MESSAGE_BYTES_MAX} are allowed")
    if not isinstance(message, bytes):
        return message
    try:
        return kind.FromString(message)
    except DecodeError as error:
        raise malformed(f"not a {kind.DESCRIPTOR.name}: {error}") from error


def check_count(parts: Any) -> None:
    if len(parts) > FRAME_COMMANDS_MAX:
        raise too_large(f"a frame has {len(parts)} parts; at most {FRAME_COMMANDS_MAX} are allowed")


def part_bytes(value: object, part: Message) -> int:
    """What ``value``, written as ``part``, takes in a frame; refused if that is more than any frame can give."""
    if type(value) in SMALL:
        return SMALL_BYTES
    size = part.ByteSize()
    if size > PART_BYTES_MAX:
        raise too_large(f"a {type(value).__name__} takes {size} bytes; at most {PART_BYTES_MAX} are allowed")
    return size + _PART_BYTES


class Room:
    """What still fits into the frame that is being filled."""

    __slots__ = ("_bytes", "_parts")

    def __init__(self) -> None:
        self._parts = FRAME_COMMANDS_MAX
        self._bytes = MESSAGE_BYTES_MAX - _FRAME_BYTES

    def takes(self, size: int) -> bool:
        """Whether one more part of this size fits; if so it is counted."""
        if self._parts == 0 or size > self._bytes:
            return False
        self._parts -= 1
        self._bytes -= size
        return True


def frames(table: PutTable, values: Iterable[Any], new_frame: Callable[[], M], parts: str) -> Iterator[M]:
    """``values`` in frames, in order, each frame as full as it can be; none for no values."""
    frame, room = new_frame(), Room()
    slots = getattr(frame, parts)
    for value in values:
        put_one(table, value, slots.add())
        size = part_bytes(value, slots[-1])
        if not room.takes(size):
            # It begins the next frame instead.
            del slots[-1]
            yield frame
            frame, room = new_frame(), Room()
            slots = getattr(frame, parts)
            put_one(table, value, slots.add())
            room.takes(size)
    if slots:
        yield frame
