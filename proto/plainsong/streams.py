"""Streams: what is ready to be read of one, and what to do when its connection fails.

Pure: both clients move bytes, and this decides. A stream may be silent for hours, so a connection that failed is told
from one that never was by how long it lived, not by what it said.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from google.protobuf.message import Message

from plainsong.calls import Streaming
from plainsong.errors import PlainsongError, TimedOut, Unavailable
from plainsong.retries import Attempts

T = TypeVar("T")

#: A stream is opened anew at least so often: a server that was stopped without a word is not noticed otherwise.
STREAM_S_MAX = 300.0
#: A stream that lived so long was open: an address where nobody answers fails within two seconds.
ESTABLISHED_S = 5.0


class StreamState(Generic[T]):
    """One stream, over all the connections that it takes. ``begin`` starts counting the attempts of an outage."""

    def __init__(self, streaming: Streaming[T], begin: Callable[[float], Attempts]) -> None:
        self._cursor = streaming.cursor
        self._timeout = streaming.timeout
        self._begin = begin
        self._ready: deque[T] = deque()
        #: The attempts of the present outage; ``None`` while there is none.
        self._outage: Attempts | None = None
        self._opened_at = 0.0
        self._was_lost = False

    @property
    def method(self) -> str:
        return self._cursor.method

    @property
    def is_done(self) -> bool:
        """Nothing is ready, and nothing will come."""
        return self._cursor.done and not self._ready

    def address(self, preferred: int) -> int:
        return preferred if self._outage is None else self._outage.address

    def open(self, now: float) -> Message:
        """The request that opens the stream where it stands."""
        self._opened_at = now
        return self._cursor.request()

    def missed(self) -> Sequence[T]:
        """What to tell once the stream is open again; nothing if it was never lost, or loses nothing."""
        return self._cursor.reopened() if self._was_lost else ()

    def reopened(self) -> None:
        self._ready.extend(self.missed())
        self._was_lost, self._outage = False, None

    def heard(self, response: Any) -> None:
        if self._was_lost:
            self.reopened()
        self._outage = None
        self._ready.extend(self._cursor.accept(response))

    def take(self) -> T | None:
        return self._ready.popleft() if self._ready else None

    def lost(self) -> None:
        """The connection was given up, and with it what may have been on its way."""
        self._was_lost = True

    def ended(self) -> PlainsongError:
        """The error that it is when a server ends a stream that has no end."""
        return Unavailable("the server ended the stream")

    def failed(self, error: PlainsongError, now: float) -> float:
        """How long to wait before the stream is opened again; raises if it is not to be."""
        lived = now - self._opened_at
        if isinstance(error, TimedOut) and lived >= STREAM_S_MAX - 1:
            error = Unavailable("the stream was silent")
        if self._outage is None or lived >= ESTABLISHED_S:
            self._outage = self._begin(self._timeout)
        self.lost()
        return self._outage.failed(error, now)
