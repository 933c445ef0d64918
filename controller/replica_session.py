"""The session with one replica, kept up: dial, greet, replay, stream, and start over when it ends.

Loss or slowness here is nobody else's: each replica has its own task, its own queue and its own deadline.
"""

import asyncio
import contextlib
import random
import uuid
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol, TypeVar

from controller.links import Link
from controller.settings import Settings
from controller.transport import Dialer, Wire
from reconcile.compute_protocol import ComputeResponse, Hello
from reconcile.errors import PlainsongError
from reconcile.ids import Epoch, ReplicaId, SessionId
from reconcile.limits import FRAME_COMMANDS_MAX
from reconcile.sessions import PROTOCOL_VERSION
from reconcile.storage_protocol import StorageResponse

Command = TypeVar("Command")

#: How long commands wait at most for others to share their frame, while an earlier frame is unanswered.
GATHER_MS = 2
#: As many do not wait.
GATHERED_MAX = 64


class SessionLost(PlainsongError):
    """The session cannot go on; the next one reconciles."""

    code = "UNAVAILABLE"


class SessionOwner(Protocol):
    """What a session tells the controller; all but ``joining`` take effect at once."""

    async def joining(self, replica: ReplicaId) -> None: ...

    def connected(self, replica: ReplicaId, link: Link) -> None: ...

    def lost(self, replica: ReplicaId, why: str) -> None: ...

    def heard_compute(self, replica: ReplicaId, response: ComputeResponse) -> None: ...

    def heard_storage(self, replica: ReplicaId, response: StorageResponse) -> None: ...

    async def deposed(self) -> None:
        """A replica says that a newer reign has begun; raises if that is so."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who calls: what every greeting says."""

    epoch: Epoch
    deployment: str


class ReplicaSession:
    """Keeps one replica connected until it is closed."""

    def __init__(
        self,
        *,
        owner: SessionOwner,
        replica: ReplicaId,
        caller: Caller,
        address: Callable[[], Awaitable[str]],
        dialer: Dialer,
        settings: Settings,
    ) -> None:
        self._owner = owner
        self._replica = replica
        self._caller = caller
        self._address = address
        self._dialer = dialer
        self._settings = settings
        self._wake = asyncio.Event()
        #: Something was heard after the last frame of commands.
        self._answered = asyncio.Event()
        self._ended: asyncio.Future[str] | None = None
        self._jitter = random.Random(replica)

    async def run(self) -> None:
        """Runs for ever; cancel it to close."""
        attempt = 0
        while True:
            address = await self._address()
            joined = False
            try:
                async with self._dialer.dial(address) as wire:
                    await self._greet(wire)
                    attempt = 0
                    joined = True
                    await self._owner.joining(self._replica)
                    await self._stream(wire)
            except PlainsongError as error:
                self._owner.lost(self._replica, str(error))
                if getattr(error, "reason", "") == "FENCED":
                    await self._owner.deposed()
            except BaseException:
                if joined:
                    self._owner.lost(self._replica, "the controller stops")
                raise
            await asyncio.sleep(self._pause_s(attempt))
            attempt += 1

    def end(self, why: str) -> None:
        """Ends the current session, if there is one."""
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(why)

    def _pause_s(self, attempt: int) -> float:
        doubled = self._settings.reconnect_ms_min << min(attempt, 10)
        return min(doubled, self._settings.reconnect_ms_max) / 1000 * self._jitter.uniform(0.8, 1.0)

    async def _greet(self, wire: Wire) -> None:
        hello = Hello(
            epoch=self._caller.epoch,
            session=SessionId(uuid.uuid4().hex),
            deployment=self._caller.deployment,
            replica=self._replica,
            protocol_version=PROTOCOL_VERSION,
        )
        try:
            async with asyncio.timeout(self._settings.greeting_ms / 1000):
                await wire.send_compute([hello])
                await wire.send_storage([hello])
                compute, storage = await wire.receive_compute(), await wire.receive_storage()
        except TimeoutError as error:
            raise SessionLost(f"no greeting within {self._settings.greeting_ms} ms") from error
        if compute.accepted is None or storage.accepted is None:
            raise SessionLost("the replica spoke before it accepted the session")

    async def _stream(self, wire: Wire) -> None:
        """Replays the requested state and streams what follows; returns only by raising."""
        self._wake.clear()
        self._ended = asyncio.get_running_loop().create_future()
        link = Link(on_put=self._wake.set, on_overflow=lambda: self.end("it is too slow: too many commands wait"))
        self._owner.connected(self._replica, link)
        tasks = [
            asyncio.create_task(self._send(wire, link)),
            asyncio.create_task(self._receive_compute(wire)),
            asyncio.create_task(self._receive_storage(wire)),
            asyncio.create_task(self._wait_for_end(self._ended)),
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            # When a stream breaks, its reader knows the reason and its writer only that it broke.
            for task in sorted(done, key=tasks.index, reverse=True):
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        raise SessionLost("the session ended")

    async def _wait_for_end(self, ended: "asyncio.Future[str]") -> None:
        raise SessionLost(await ended)

    async def _send(self, wire: Wire, link: Link) -> None:
        """Sends what waits, and a heartbeat at least every ``heartbeat_ms``."""
        loop = asyncio.get_running_loop()
        period = self._settings.heartbeat_ms / 1000
        beat = loop.time()
        while True:
            now = loop.time()
            if now >= beat:
                beat = now + period
                sent_ms = int(now * 1000) or 1
                await wire.send_compute((), sent_ms=sent_ms)
                await wire.send_storage((), sent_ms=sent_ms)
            # One frame at a time, so that a long replay does not delay heartbeats.
            while link.storage and loop.time() < beat:
                await wire.send_storage(_taken(link.storage))
            while link.compute and loop.time() < beat:
                await self._gather(link)
                self._answered.clear()
                await wire.send_compute(_taken(link.compute))
            if not link.compute and not link.storage:
                self._wake.clear()
                try:
                    async with asyncio.timeout_at(beat):
                        await self._wake.wait()
                except TimeoutError:
                    continue

    async def _gather(self, link: Link) -> None:
        """Lets commands share a frame while an earlier one is unanswered: each costs far more than what is in it.

        A command that comes alone waits for nothing; many at a time are paced by the answers.
        """
        if len(link.compute) < GATHERED_MAX:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(GATHER_MS / 1000):
                    await self._answered.wait()

    async def _receive_compute(self, wire: Wire) -> None:
        async with self._deadline() as heard:
            while True:
                for response in (await wire.receive_compute()).responses:
                    self._owner.heard_compute(self._replica, response)
                self._answered.set()
                heard()

    async def _receive_storage(self, wire: Wire) -> None:
        async with self._deadline() as heard:
            while True:
                for response in (await wire.receive_storage()).responses:
                    self._owner.heard_storage(self._replica, response)
                heard()

    @asynccontextmanager
    async def _deadline(self) -> AsyncIterator[Callable[[], None]]:
        """Raises ``SessionLost`` when the function it gives is not called for longer than the deadline."""
        deadline = self._settings.heartbeat_deadline_ms / 1000
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(deadline) as silence:
                yield lambda: silence.reschedule(loop.time() + deadline)
        except TimeoutError as error:
            raise SessionLost(f"nothing was heard for {deadline:g} s") from error


def _taken(queue: "deque[Command]") -> list[Command]:
    return [queue.popleft() for _ in range(min(len(queue), FRAME_COMMANDS_MAX))]
