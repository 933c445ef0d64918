"""The transport to one replica: two streams of frames, behind an interface that a simulation can replace."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol

import grpc

from plainsong import codec
from plainsong.channels import aio_channel
from plainsong.codec import ComputeReplyFrame, StorageReplyFrame
from plainsong.errors import from_rpc
from plainsong.security import ClientTls
from plainsong.v1.compute_pb2_grpc import ComputeServiceStub
from plainsong.v1.storage_pb2_grpc import StorageServiceStub
from reconcile.compute_protocol import ComputeCommand
from reconcile.errors import PlainsongError
from reconcile.storage_protocol import StorageCommand


class StreamEnded(PlainsongError):
    """The replica ended the stream without a reason."""

    code = "UNAVAILABLE"


class Wire(Protocol):
    """Both streams to one replica. Whatever goes wrong is a ``PlainsongError``."""

    async def send_compute(self, commands: Iterable[ComputeCommand], *, sent_ms: int = 0) -> None: ...

    async def send_storage(self, commands: Iterable[StorageCommand], *, sent_ms: int = 0) -> None: ...

    async def receive_compute(self) -> ComputeReplyFrame: ...

    async def receive_storage(self) -> StorageReplyFrame: ...


class Dialer(Protocol):
    """Reaches replicas."""

    def dial(self, address: str) -> AbstractAsyncContextManager[Wire]: ...


class GrpcDialer:
    """Reaches replicas over gRPC."""

    def __init__(self, tls: ClientTls | None = None) -> None:
        self._tls = tls

    @asynccontextmanager
    async def dial(self, address: str) -> AsyncIterator[Wire]:
        channel = aio_channel(address, self._tls)
        try:
            yield _GrpcWire(channel)
        finally:
            await channel.close()


class _GrpcWire:
    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._compute: Any = ComputeServiceStub(channel).Session()
        self._storage: Any = StorageServiceStub(channel).Session()

    async def send_compute(self, commands: Iterable[ComputeCommand], *, sent_ms: int = 0) -> None:
        for frame in codec.compute_command_frames(commands):
            await _written(self._compute, frame)
        if sent_ms:
            await _written(self._compute, codec.encode_compute_commands((), sent_ms))

    async def send_storage(self, commands: Iterable[StorageCommand], *, sent_ms: int = 0) -> None:
        for frame in codec.storage_command_frames(commands):
            await _written(self._storage, frame)
        if sent_ms:
            await _written(self._storage, codec.encode_storage_commands((), sent_ms))

    async def receive_compute(self) -> ComputeReplyFrame:
        return codec.decode_compute_response(await _read(self._compute))

    async def receive_storage(self) -> StorageReplyFrame:
        return codec.decode_storage_response(await _read(self._storage))


async def _written(call: Any, frame: object) -> None:
    try:
        await call.write(frame)
    except grpc.aio.AioRpcError as error:
        raise from_rpc(error) from error
    except asyncio.InvalidStateError as error:
        # The call is over, and only reading tells why; a refusal must not be taken for a broken stream.
        await _read(call)
        raise StreamEnded("the stream to the replica is over") from error
    except (grpc.aio.UsageError, OSError) as error:
        raise StreamEnded("the stream to the replica is over", detail=str(error)) from error


async def _read(call: Any) -> Any:
    try:
        frame = await call.read()
    except grpc.aio.AioRpcError as error:
        raise from_rpc(error) from error
    if frame is grpc.aio.EOF:
        raise StreamEnded("the replica ended the stream")
    return frame
