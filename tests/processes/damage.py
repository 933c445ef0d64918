"""Damage: right messages made wrong, always in the same ways for the same seed."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from random import Random
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

Damage = Callable[[Random, bytes, bytes], bytes]


def _place(random: Random, raw: bytes) -> int:
    return random.randrange(len(raw) + 1)


def _flipped(random: Random, raw: bytes, _: bytes) -> bytes:
    damaged = bytearray(raw or b"\0")
    for _flip in range(random.randint(1, 6)):
        damaged[random.randrange(len(damaged))] ^= 1 << random.randrange(8)
    return bytes(damaged)


def _cut_short(random: Random, raw: bytes, _: bytes) -> bytes:
    return raw[: _place(random, raw)]


def _spliced(random: Random, raw: bytes, other: bytes) -> bytes:
    return raw[: _place(random, raw)] + other[_place(random, other) :]


def _inserted(random: Random, raw: bytes, _: bytes) -> bytes:
    at = _place(random, raw)
    return raw[:at] + random.randbytes(random.randint(1, 12)) + raw[at:]


def _removed(random: Random, raw: bytes, _: bytes) -> bytes:
    first, last = sorted((_place(random, raw), _place(random, raw)))
    return raw[:first] + raw[last:]


def _repeated(_: Random, raw: bytes, other: bytes) -> bytes:
    return raw + other


def _extreme(random: Random, raw: bytes, _: bytes) -> bytes:
    """A number or a length becomes as large as it can be written."""
    at = _place(random, raw)
    return raw[:at] + b"\xff" * 9 + b"\x01" + raw[at + 1 :]


def _random(random: Random, _: bytes, __: bytes) -> bytes:
    return random.randbytes(random.randint(0, 200))


DAMAGES: tuple[Damage, ...] = (
    _flipped,
    _flipped,
    _cut_short,
    _spliced,
    _inserted,
    _removed,
    _repeated,
    _extreme,
    _random,
)


def damaged(seeds: Sequence[bytes], count: int, seed: str) -> Iterator[bytes]:
    """``count`` byte strings, all different, none of them one of ``seeds``."""
    random = Random(seed)
    seen = set(seeds)
    while count:
        made = random.choice(DAMAGES)(random, random.choice(seeds), random.choice(seeds))
        if made not in seen:
            seen.add(made)
            count -= 1
            yield made


# --- damage to meaning ------------------------------------------------------------------------------------

TEXTS = (
    "",
    " ",
    "'",
    "`",
    '"',
    "\0",
    "\n",
    "../../etc/passwd",
    "x" * 300,
    "\u202eright to left",
    "😀",
    "Robert'); DROP TABLE kept; --",
    "SELECT",
    "SELECT * FROM kept",
    "SELECT 1 / 0 AS x",
    "id / 0 = 1",
    "CAST(name AS INT) = 1",
    "name",
    "id",
    "1",
    "-",
    "127.0.0.1:99999",
    "{}",
    "${HOME}",
)
#: None starts a process: replicas are none, or more than a cluster may have.
NUMBERS = (0, 3_000, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, -1, -(2**63))
#: Where a text that happens to name a cluster would start a process.
LEFT_ALONE = {"plainsong.v1.CreateReplicaRequest.cluster", "plainsong.v1.AlterClusterRequest.name"}


def changed(random: Random, message: Message, spare: Sequence[bytes]) -> Message:
    """A copy of ``message`` in which a few fields say something else."""
    copy = type(message)()
    copy.CopyFrom(message)
    for _ in range(random.randint(1, 3)):
        _change(random, copy, spare)
    return copy


def _change(random: Random, message: Message, spare: Sequence[bytes]) -> None:
    fields = [field for field in message.DESCRIPTOR.fields if field.full_name not in LEFT_ALONE]
    if not fields:
        return
    field = random.choice(fields)
    # Any: which type the value has only the descriptor knows.
    owner: Any = message
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        getattr(owner, field.name)[random.choice(TEXTS)] = random.choice(TEXTS)
    elif field.is_repeated:
        _change_repeated(random, getattr(owner, field.name), field, spare)
    elif field.message_type is not None:
        _change(random, getattr(owner, field.name), spare)
    elif random.random() < 0.2:
        owner.ClearField(field.name)
    else:
        with suppress(ValueError):  # the number is beyond the type of the field
            setattr(owner, field.name, _value(random, field, spare))


def _change_repeated(random: Random, values: Any, field: Any, spare: Sequence[bytes]) -> None:
    if values and random.random() < 0.3:
        del values[random.randrange(len(values))]
    elif field.message_type is not None:
        _change(random, random.choice(values) if values and random.random() < 0.5 else values.add(), spare)
    else:
        with suppress(ValueError):
            values.append(_value(random, field, spare))


def _value(random: Random, field: Any, spare: Sequence[bytes]) -> object:
    match field.type:
        case FieldDescriptor.TYPE_STRING:
            return random.choice(TEXTS)
        case FieldDescriptor.TYPE_BYTES:
            return next(damaged(spare, 1, str(random.random())))
        case FieldDescriptor.TYPE_BOOL:
            return random.random() < 0.5
        case _:
            return random.choice(NUMBERS)
