"""A replica at the other end of a wire, in memory: it greets, and does what the test says."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from controller.transport import StreamEnded
from plainsong.codec import ComputeReplyFrame, StorageReplyFrame
from reconcile.compute_protocol import ComputeCommand, Heartbeat, Hello
from reconcile.errors import PlainsongError
from reconcile.ids import Epoch
from reconcile.storage_protocol import StorageCommand


class MemoryWire:
    """Both streams of one session."""

    def __init__(self, *, deaf: bool = False, mute: bool = False, refusal: PlainsongError | None = None) -> None:
        self.compute: list[ComputeCommand] = []
        #: When each frame of compute commands came, and how many were in it.
        self.frames: list[tuple[float, int]] = []
        self.storage: list[StorageCommand] = []
        self._deaf = deaf
        self._mute = mute
        self._refusal = refusal
        self._compute_replies: asyncio.Queue[ComputeReplyFrame | None] = asyncio.Queue()
        self._storage_replies: asyncio.Queue[StorageReplyFrame | None] = asyncio.Queue()
        self.heartbeats = 0

    async def send_compute(self, commands: Iterable[ComputeCommand], *, sent_ms: int = 0) -> None:
        if commands := list(commands):
            self.frames.append((asyncio.get_running_loop().time(), len(commands)))
        for command in commands:
            if isinstance(command, Hello):
                if self._refusal is not None:
                    raise self._refusal
                self._compute_replies.put_nowait(ComputeReplyFrame(accepted=Epoch(command.epoch)))
            elif self._deaf:
                await asyncio.get_running_loop().create_future()  # for ever, as a full window is
            else:
                self.compute.append(command)
        if sent_ms and not self._mute:
            self.heartbeats += 1
            self._compute_replies.put_nowait(ComputeReplyFrame(responses=(Heartbeat(sent_ms=sent_ms),)))

    async def send_storage(self, commands: Iterable[StorageCommand], *, sent_ms: int = 0) -> None:
        for command in commands:
            if isinstance(command, Hello):
                self._storage_replies.put_nowait(StorageReplyFrame(accepted=Epoch(command.epoch)))
            else:
                self.storage.append(command)
        if sent_ms and not self._mute:
            self._storage_replies.put_nowait(StorageReplyFrame(responses=(Heartbeat(sent_ms=sent_ms),)))

    async def receive_compute(self) -> ComputeReplyFrame:
        reply = await self._compute_replies.get()
        if reply is None:
            raise StreamEnded("the replica ended the stream")
        return reply

    async def receive_storage(self) -> StorageReplyFrame:
        reply = await self._storage_replies.get()
        if reply is None:
            raise StreamEnded("the replica ended the stream")
        return reply

    def say(self, frame: ComputeReplyFrame) -> None:
        self._compute_replies.put_nowait(frame)

    def hang_up(self) -> None:
        self._compute_replies.put_nowait(None)


class MemoryDialer:
    """Gives out these wires, one for each attempt; then nobody answers."""

    def __init__(self, *wires: MemoryWire) -> None:
        self._wires = list(wires)
        self.dialed: list[float] = []

    @asynccontextmanager
    async def dial(self, address: str) -> AsyncIterator[MemoryWire]:
        self.dialed.append(asyncio.get_running_loop().time())
        if not self._wires:
            raise StreamEnded(f"nobody answers at {address}")
        yield self._wires.pop(0)
