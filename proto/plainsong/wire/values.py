"""Ids, frontiers, changes and numbers on the wire."""

from collections.abc import Iterable
from typing import Any, TypeVar

from google.protobuf.message import Message

from plainsong.arrow_updates import ArrowUpdates
from plainsong.v1 import common_pb2
from reconcile.errors import InvariantBroken, ProtocolViolation, Violation
from reconcile.frontiers import CLOSED, MINIMUM, Antichain, ChangeBatch
from reconcile.ids import CollectionKind, GlobalId, Step
from reconcile.updates import Updates

#: Steps, ids and every other count: what a signed column of a database and an Arrow bigint can hold.
NUMBER_MAX = 2**63 - 1

_KIND_TO_WIRE: dict[CollectionKind, common_pb2.CollectionKind.ValueType] = {
    "s": common_pb2.COLLECTION_KIND_SOURCE,
    "u": common_pb2.COLLECTION_KIND_USER,
    "t": common_pb2.COLLECTION_KIND_TRANSIENT,
    "l": common_pb2.COLLECTION_KIND_LOGGING,
}
_KIND_FROM_WIRE = {wire: kind for kind, wire in _KIND_TO_WIRE.items()}


def malformed(detail: str) -> ProtocolViolation:
    return ProtocolViolation(Violation.MALFORMED, detail=detail)


def too_large(detail: str) -> ProtocolViolation:
    return ProtocolViolation(Violation.TOO_LARGE, detail=detail)


N = TypeVar("N", bound=int)


def bounded(number: N) -> N:
    """The number itself, if it is natural and fits."""
    if 0 <= number <= NUMBER_MAX:
        return number
    raise malformed(f"{number} is not between 0 and {NUMBER_MAX}")


def required(owner: Message, field: str) -> Any:
    """The message in ``field``, which must be there: an absent one would read as if it were empty."""
    if owner.HasField(field):
        return getattr(owner, field)
    raise malformed(f"{owner.DESCRIPTOR.name} has no {field}")


def put_id(id: GlobalId, out: common_pb2.GlobalId) -> None:
    kind, number = id
    out.kind = _KIND_TO_WIRE[kind]
    out.number = bounded(number)


def take_id(message: common_pb2.GlobalId) -> GlobalId:
    """Refuses an absent id too: its kind is unspecified."""
    kind = _KIND_FROM_WIRE.get(message.kind)
    if kind is None:
        raise malformed(f"collection kind {message.kind} is unknown")
    return GlobalId(kind, bounded(message.number))


def put_ids(ids: Iterable[GlobalId], out: Any) -> None:
    for id in ids:
        put_id(id, out.add())


def take_ids(messages: Iterable[common_pb2.GlobalId]) -> tuple[GlobalId, ...]:
    return tuple([take_id(message) for message in messages])


def put_frontier(frontier: Antichain, out: common_pb2.Frontier) -> None:
    if frontier.step is None:
        out.SetInParent()
    else:
        out.step = bounded(frontier.step)


def take_frontier(owner: Message, field: str) -> Antichain:
    """The frontier in ``field``, which must be there. The common case, a step above 0, is decided first."""
    message = getattr(owner, field)
    step = message.step
    if step:
        return Antichain(bounded(step))
    if message.HasField("step"):
        return MINIMUM
    required(owner, field)
    return CLOSED


def put_changes(changes: ChangeBatch, out: Any) -> None:
    for step, change in changes:
        message = out.add()
        message.step = bounded(step)
        message.change = change


def take_changes(messages: Iterable[common_pb2.StepChange]) -> ChangeBatch:
    changes = tuple([(Step(bounded(message.step)), message.change) for message in messages])
    last = -1
    for step, change in changes:
        if step <= last:
            raise malformed(f"a change at step {step} comes after one at {last}")
        if change == 0:
            raise malformed(f"the change at step {step} is none")
        last = step
    return ChangeBatch(changes)


def put_updates(updates: Updates, out: common_pb2.Updates) -> None:
    if isinstance(updates, ArrowUpdates):
        out.arrow = updates.ipc
    elif len(updates) == 0:
        out.SetInParent()
    else:
        raise InvariantBroken(f"updates of type {type(updates).__name__} cannot be sent", detail="only Arrow is")


def take_updates(owner: Message, field: str) -> ArrowUpdates:
    """Not looked at: whoever opens damaged ones gets the violation."""
    return ArrowUpdates.encoded(required(owner, field).arrow)
