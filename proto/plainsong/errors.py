"""Errors on the wire: the kinds of the core with a reason, as a rich gRPC status and back.

A server raises any kind of ``reconcile.errors``, or one of these where the reason says more than the kind; ``abort``
sends it. A client raises only the kinds below, each of which is also the kind of the core by the same name, so that
``except plainsong.InvalidRequest`` and ``except reconcile.errors.InvalidRequest`` both hold.

On the wire an error is ``google.rpc.Status`` with one ``google.rpc.ErrorInfo``: the reason, and ``detail``, ``hint``
and ``why`` as its metadata. The plain gRPC message is for strangers only: it is cut short and bears no control
characters, while the texts in the status survive whatever they contain.
"""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple, NoReturn, cast

import grpc
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]  # not marked as typed

from reconcile import errors as core

#: The key under which gRPC implementations look for the rich status.
DETAILS_KEY = "grpc-status-details-bin"
DOMAIN = "plainsong"

#: All of a status must fit into the 8 KiB of metadata that a client with default settings accepts.
MESSAGE_BYTES_MAX = 1024
DETAIL_BYTES_MAX = 2048
HINT_BYTES_MAX = 1024
PLAIN_CHARACTERS_MAX = 200


class PlainsongError(core.PlainsongError):
    """What went wrong, why, and what can be done about it; ``reason`` is for programs."""

    def __init__(self, message: str, *, detail: str = "", hint: str = "", reason: str = "") -> None:
        core.PlainsongError.__init__(self, message, detail=detail, hint=hint)
        self.reason = reason or kind_reason(type(self))


class InvalidRequest(PlainsongError, core.InvalidRequest):
    """The user asked for something that cannot be done as asked."""


class Fenced(PlainsongError, core.Fenced):
    """A newer reign has begun."""


class StorageFailed(PlainsongError, core.StorageFailed):
    """The server's disk or database failed."""


class InvariantBroken(PlainsongError, core.InvariantBroken):
    """The server found itself to be wrong."""


class ProtocolViolation(PlainsongError, core.ProtocolViolation):
    """One side said what it must not say."""

    def __init__(
        self, message: str, *, why: core.Violation, detail: str = "", hint: str = "", reason: str = ""
    ) -> None:
        PlainsongError.__init__(self, message, detail=detail, hint=hint, reason=reason)
        self.why = why


class Unavailable(PlainsongError):
    """Nobody could be reached before the deadline; whether a write was done is not known."""

    code = "UNAVAILABLE"


class NotReigning(Unavailable):
    """This controller does not reign (any more); another one does, or soon will."""


class TimedOut(PlainsongError):
    """The deadline passed before there was an answer."""

    code = "DEADLINE_EXCEEDED"


class Unauthenticated(PlainsongError):
    """The server does not know who is asking."""

    code = "UNAUTHENTICATED"


class PermissionDenied(PlainsongError):
    """The server knows who is asking, and that they may not."""

    code = "PERMISSION_DENIED"


class Closed(PlainsongError):
    """The client was closed."""

    code = "CANCELLED"


class Unexpected(PlainsongError):
    """The server answered with an error that this client has no kind for."""


def kind_reason(kind: type[core.PlainsongError]) -> str:
    """The reason that an error of this kind has unless it names another: its name in UPPER_SNAKE."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", kind.__name__).upper()


def reason_of(error: core.PlainsongError) -> str:
    """The reason of any error, of a client's kind or of the core's."""
    return error.reason if isinstance(error, PlainsongError) else kind_reason(type(error))


# --- the server's side ---


class Status(NamedTuple):
    """An error ready to be sent: the arguments of a servicer context's ``abort``."""

    code: grpc.StatusCode
    details: str
    trailing_metadata: tuple[tuple[str, bytes], ...]


def to_status(error: core.PlainsongError) -> Status:
    """The status that tells ``error`` to a client; total, also for texts that are no text."""
    code = grpc.StatusCode[error.code]
    metadata = {"detail": _cut(error.detail, DETAIL_BYTES_MAX), "hint": _cut(error.hint, HINT_BYTES_MAX)}
    if isinstance(error, core.ProtocolViolation):
        metadata["why"] = str(error.why)
    reason = error_details_pb2.ErrorInfo(
        reason=reason_of(error), domain=DOMAIN, metadata={key: text for key, text in metadata.items() if text}
    )
    rich = status_pb2.Status(code=code.value[0], message=_cut(error.message, MESSAGE_BYTES_MAX))
    rich.details.add().Pack(reason)
    return Status(code, _plain(error.message), ((DETAILS_KEY, rich.SerializeToString()),))


async def abort(context: "grpc.aio.ServicerContext[object, object]", error: core.PlainsongError) -> NoReturn:
    """Ends a call with ``error``; never returns, as gRPC leaves the handler by an exception of its own."""
    status = to_status(error)
    await context.abort(status.code, status.details, status.trailing_metadata)
    raise core.InvariantBroken("the server went on after a call was aborted")


def _cut(text: str, bytes_max: int) -> str:
    """``text`` as valid UTF-8 of bounded size, saying how much was left off."""
    encoded = text.encode("utf-8", errors="replace")
    if len(encoded) <= bytes_max:
        return encoded.decode("utf-8")
    mark = f" ... ({len(encoded) - bytes_max} more bytes)"
    return encoded[: bytes_max - len(mark) - 8].decode("utf-8", errors="ignore") + mark


def _plain(text: str) -> str:
    # Cut first: a text may quote ten megabytes of somebody's name.
    shown = "".join(character if character.isprintable() else " " for character in text[:PLAIN_CHARACTERS_MAX])
    return shown.encode("ascii", errors="replace").decode("ascii")


# --- the client's side ---

_BY_REASON: dict[str, type[PlainsongError]] = {
    kind_reason(kind): kind
    for kind in (
        InvalidRequest,
        Fenced,
        StorageFailed,
        InvariantBroken,
        Unavailable,
        NotReigning,
        TimedOut,
        Unauthenticated,
        PermissionDenied,
        Closed,
        Unexpected,
    )
}
#: For reasons that this client has never heard of, and for what gRPC itself says.
_BY_CODE: dict[grpc.StatusCode, type[PlainsongError]] = {
    grpc.StatusCode.INVALID_ARGUMENT: InvalidRequest,
    grpc.StatusCode.NOT_FOUND: InvalidRequest,
    grpc.StatusCode.ALREADY_EXISTS: InvalidRequest,
    grpc.StatusCode.FAILED_PRECONDITION: InvalidRequest,
    grpc.StatusCode.OUT_OF_RANGE: InvalidRequest,
    grpc.StatusCode.RESOURCE_EXHAUSTED: InvalidRequest,
    grpc.StatusCode.ABORTED: Fenced,
    grpc.StatusCode.INTERNAL: InvariantBroken,
    grpc.StatusCode.UNAVAILABLE: Unavailable,
    # A server that stops cancels what it still serves; a client's own cancellation never comes here.
    grpc.StatusCode.CANCELLED: Unavailable,
    grpc.StatusCode.DEADLINE_EXCEEDED: TimedOut,
    grpc.StatusCode.UNAUTHENTICATED: Unauthenticated,
    grpc.StatusCode.PERMISSION_DENIED: PermissionDenied,
}
_HINTS: dict[grpc.StatusCode, str] = {
    grpc.StatusCode.UNAVAILABLE: "is the controller running, at this address, and with TLS if you use it?",
    grpc.StatusCode.DEADLINE_EXCEEDED: "give a longer timeout, or see what is late: client.status()",
    grpc.StatusCode.UNAUTHENTICATED: "give a token or a client certificate",
    grpc.StatusCode.UNIMPLEMENTED: "is the server older than this client?",
    grpc.StatusCode.RESOURCE_EXHAUSTED: "ask for fewer rows at once: a limit, or fewer columns",
}


def from_rpc(error: grpc.RpcError) -> PlainsongError:
    """What a failed call means; total: a damaged or missing rich status leaves what gRPC said."""
    if not hasattr(error, "code"):  # the type says it has one, but not every such error is a call's
        return Unavailable("the call failed", detail=str(error))
    code, told = error.code(), _told(error)
    if told is None:
        kind = _BY_CODE.get(code, Unexpected)
        message = (error.details() or "").strip() or code.name.lower().replace("_", " ")
        return kind(message, hint=_HINTS.get(code, ""))
    status, reason = told
    return _built(code, reason.reason, status.message, reason.metadata)


def _built(code: grpc.StatusCode, reason: str, message: str, metadata: Mapping[str, str]) -> PlainsongError:
    detail, hint = metadata.get("detail", ""), metadata.get("hint", "")
    if reason == kind_reason(ProtocolViolation):
        known = {str(why): why for why in core.Violation}
        why = known.get(metadata.get("why", ""), core.Violation.MALFORMED)
        return ProtocolViolation(message, why=why, detail=detail, hint=hint)
    kind = _BY_REASON.get(reason) or _BY_CODE.get(code, Unexpected)
    return kind(message, detail=detail, hint=hint, reason=reason)


def _told(error: grpc.RpcError) -> tuple[status_pb2.Status, error_details_pb2.ErrorInfo] | None:
    """The rich status of a call, if it has one with a reason.

    Not ``grpc_status.rpc_status.from_call``: that refuses a status whose text differs from the plain message.
    """
    # Pairs at run time, of either kind of channel, whatever the types say.
    metadata = cast(Iterable[tuple[str, str | bytes]], error.trailing_metadata() or ())
    for key, value in metadata:
        if key != DETAILS_KEY or not isinstance(value, bytes):
            continue
        try:
            status = status_pb2.Status.FromString(value)
            for packed in status.details:
                reason = error_details_pb2.ErrorInfo()
                if packed.Unpack(reason):
                    return status, reason
        except DecodeError:
            return None
    return None
