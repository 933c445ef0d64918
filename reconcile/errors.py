"""Errors: few kinds, told apart by who is at fault.

Each kind knows the gRPC status it becomes (by name: the core does not import grpc) and carries what happened, a
detail that explains it and a hint at what to do. Messages are lower case and without a final stop.
"""

from enum import StrEnum
from typing import ClassVar


class PlainsongError(Exception):
    """What went wrong, why, and what can be done about it."""

    code: ClassVar[str] = "UNKNOWN"

    def __init__(self, message: str, *, detail: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.detail = detail
        self.hint = hint

    def __str__(self) -> str:
        parts = [self.message, self.detail, f"hint: {self.hint}" if self.hint else ""]
        return "; ".join(part for part in parts if part)


class Violation(StrEnum):
    """The ways in which a peer can break the protocol."""

    BEFORE_HELLO = "before-hello"
    REPEATED_HELLO = "repeated-hello"
    BEFORE_CREATE_INSTANCE = "before-create-instance"
    DUPLICATE_EXPORT = "duplicate-export"
    DUPLICATE_PEEK = "duplicate-peek"
    DUPLICATE_SOURCE = "duplicate-source"
    EMPTY_AS_OF = "empty-as-of"
    UNKNOWN_IMPORT = "unknown-import"
    AS_OF_BEFORE_SINCE = "as-of-before-since"
    FRONTIER_MISMATCH = "frontier-mismatch"
    TOO_LARGE = "too-large"
    MALFORMED = "malformed"


class ProtocolViolation(PlainsongError):
    """The peer said what it must not say; its session ends and nothing else changes."""

    code = "FAILED_PRECONDITION"

    def __init__(self, why: Violation, *, detail: str = "") -> None:
        super().__init__(f"protocol violation: {why}", detail=detail)
        self.why = why


class Fenced(PlainsongError):
    """A newer reign has begun; this one must stop."""

    code = "ABORTED"


class InvalidRequest(PlainsongError):
    """The user asked for something that cannot be done as asked."""

    code = "INVALID_ARGUMENT"


class StorageFailed(PlainsongError):
    """The disk or database failed; stop, and never retry an fsync."""

    code = "UNAVAILABLE"


class InvariantBroken(PlainsongError):
    """We are wrong ourselves; crash with the story rather than go on."""

    code = "INTERNAL"
