"""Dispatch of the codec: which field of a oneof carries which kind of domain value.

Through a dictionary rather than by ``match``, because it is done for every command and response that passes.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from google.protobuf.message import Message

from plainsong.wire.values import malformed
from reconcile.errors import InvariantBroken

#: By type of the domain value: the field, and what fills the message in it.
PutTable = Mapping[type, tuple[str, Callable[[Any, Any], None]]]
#: By field: what reads the value in it.
TakeTable = Mapping[str | None, Callable[[Any], Any]]


def put_one(table: PutTable, value: Any, out: Message) -> None:
    try:
        field, put = table[type(value)]
    except KeyError:
        raise InvariantBroken(f"a {type(value).__name__} has no place in a {out.DESCRIPTOR.name}") from None
    part = getattr(out, field)
    # What is all defaults would otherwise not be there at all.
    part.SetInParent()
    try:
        put(value, part)
    except ValueError as error:
        # Raised by protobuf itself: text that is not Unicode, a number too wide for its field.
        raise malformed(f"cannot be sent: {error}") from error


def take_one(table: TakeTable, message: Message, oneof: str) -> Any:
    """What is in ``oneof``; a kind that we do not know looks as if none were set, and is refused, not ignored."""
    field = message.WhichOneof(oneof)
    if field is None:
        raise malformed(f"{message.DESCRIPTOR.name} is of an unknown kind")
    return table[field](getattr(message, field))


def put_all(table: PutTable, values: Iterable[Any], out: Any) -> None:
    """``put_one`` for each, into a repeated field."""
    for value in values:
        put_one(table, value, out.add())


def take_all(table: TakeTable, messages: Iterable[Message], oneof: str) -> tuple[Any, ...]:
    return tuple([take_one(table, message, oneof) for message in messages])


def put_nothing(_: Any, __: Message) -> None:
    """For kinds of which all is said by the field that is set."""
