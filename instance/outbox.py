"""The outbox: what an instance has to say to one session, until the session's stream has taken it.

Bounded. Frontiers coalesce, so that a slow listener is told where things stand and not how they got there; one too
slow for the rest loses its session and reconciles when it is back.
"""

import asyncio
from collections.abc import Iterable
from typing import Generic, TypeVar

from reconcile.compute_protocol import FrontierChange, FrontierUppers, PeekResponse, PeekRows, TailResponse
from reconcile.errors import PlainsongError
from reconcile.frontiers import ChangeBatch
from reconcile.ids import Epoch, GlobalId
from reconcile.limits import OUTBOX_BYTES_MAX, OUTBOX_RESPONSES_MAX

Response = TypeVar("Response")


class TooSlow(PlainsongError):
    """The other side does not take what is sent to it."""

    code = "RESOURCE_EXHAUSTED"


class Outbox(Generic[Response]):
    """Responses in order, but for frontiers, of which each frame has one sum."""

    def __init__(self) -> None:
        self._accepted: Epoch | None = None
        self._frontiers: dict[GlobalId, FrontierChange] = {}
        self._responses: list[Response] = []
        self._bytes = 0
        self._ended: PlainsongError | None = None
        self._wake = asyncio.Event()

    def accept(self, epoch: Epoch) -> None:
        self._accepted = epoch
        self._wake.set()

    def put(self, response: Response) -> None:
        if self._ended is not None:
            return
        if isinstance(response, FrontierUppers):
            self._coalesce(response.changes)
        else:
            self._responses.append(response)
            self._bytes += _size(response)
            if len(self._responses) > OUTBOX_RESPONSES_MAX or self._bytes > OUTBOX_BYTES_MAX:
                waiting = f"{len(self._responses)} responses of {self._bytes} bytes wait"
                self.end(TooSlow("the session is too slow", detail=waiting))
        self._wake.set()

    def end(self, error: PlainsongError) -> None:
        """Nothing more is said; the stream ends with ``error``. The first one counts."""
        if self._ended is None:
            self._ended = error
            self._responses.clear()
            self._frontiers.clear()
        self._wake.set()

    async def take(self) -> tuple[Epoch | None, list[Response | FrontierUppers]]:
        """Everything that waits, when there is something; raises what ended the session."""
        while not (self._responses or self._frontiers or self._accepted is not None):
            if self._ended is not None:
                raise self._ended
            self._wake.clear()
            await self._wake.wait()
        if self._ended is not None and self._accepted is None:
            raise self._ended
        accepted, self._accepted = self._accepted, None
        taken: list[Response | FrontierUppers] = []
        if self._frontiers:
            taken.append(FrontierUppers(changes=tuple(self._frontiers.values())))
            self._frontiers = {}
        taken += self._responses
        self._responses, self._bytes = [], 0
        return accepted, taken

    def _coalesce(self, changes: Iterable[FrontierChange]) -> None:
        for change in changes:
            waiting = self._frontiers.get(change.id)
            if waiting is None:
                self._frontiers[change.id] = change
            else:
                summed = ChangeBatch.of([*waiting.changes, *change.changes])
                self._frontiers[change.id] = FrontierChange(id=change.id, changes=summed, upper=change.upper)


def _size(response: object) -> int:
    match response:
        case PeekResponse(outcome=PeekRows(rows=bytes() as rows)):
            return len(rows)
        case TailResponse(updates=updates):
            return len(getattr(updates, "ipc", b""))
        case _:
            return 0
