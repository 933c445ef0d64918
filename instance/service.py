"""The services of an instance: two streams of frames, compute and storage, in front of one owner.

Frames are read by the codec and not by gRPC, to which bytes that are no message are an accident of ours.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

import grpc

from instance.owner import Conversation, Owner
from plainsong import codec
from plainsong.errors import abort
from plainsong.v1 import compute_pb2, storage_pb2
from reconcile.compute_protocol import ComputeResponse, Heartbeat
from reconcile.errors import InvariantBroken, PlainsongError
from reconcile.storage_protocol import StorageResponse

_LOG = logging.getLogger(__name__)

Message = TypeVar("Message")


class Silent(PlainsongError):
    """The controller missed its deadline."""

    code = "DEADLINE_EXCEEDED"


class ComputeServicer:
    """``ComputeService``: each call is one conversation."""

    def __init__(self, owner: Owner, *, heartbeat_deadline_ms: int) -> None:
        self._owner = owner
        self._deadline = heartbeat_deadline_ms / 1000

    def handler(self) -> grpc.GenericRpcHandler:
        service = compute_pb2.DESCRIPTOR.services_by_name["ComputeService"].full_name
        return _handler(service, self.session, compute_pb2.ComputeServiceSessionResponse.SerializeToString)

    async def session(
        self, request_iterator: AsyncIterator[bytes], context: Any
    ) -> AsyncIterator[compute_pb2.ComputeServiceSessionResponse]:
        conversation: Conversation[ComputeResponse] = Conversation()

        def receive(request: bytes) -> None:
            frame = codec.decode_compute_request(request)
            self._owner.compute_said(conversation, frame.commands)
            if frame.sent_ms:
                conversation.outbox.put(Heartbeat(sent_ms=frame.sent_ms))

        reader = asyncio.create_task(_read(request_iterator, receive, conversation, self._deadline))
        try:
            while True:
                accepted, responses = await conversation.outbox.take()
                if accepted is not None:
                    yield codec.encode_compute_responses((), accepted=accepted)
                for message in codec.compute_response_frames(responses):
                    yield message
        except PlainsongError as error:
            await abort(context, error)
        finally:
            self._owner.compute_closed(conversation)
            await _cancel(reader)


class StorageServicer:
    """``StorageService``: each call is one conversation."""

    def __init__(self, owner: Owner, *, heartbeat_deadline_ms: int) -> None:
        self._owner = owner
        self._deadline = heartbeat_deadline_ms / 1000

    def handler(self) -> grpc.GenericRpcHandler:
        service = storage_pb2.DESCRIPTOR.services_by_name["StorageService"].full_name
        return _handler(service, self.session, storage_pb2.StorageServiceSessionResponse.SerializeToString)

    async def session(
        self, request_iterator: AsyncIterator[bytes], context: Any
    ) -> AsyncIterator[storage_pb2.StorageServiceSessionResponse]:
        conversation: Conversation[StorageResponse] = Conversation()

        def receive(request: bytes) -> None:
            frame = codec.decode_storage_request(request)
            self._owner.storage_said(conversation, frame.commands)
            if frame.sent_ms:
                conversation.outbox.put(Heartbeat(sent_ms=frame.sent_ms))

        reader = asyncio.create_task(_read(request_iterator, receive, conversation, self._deadline))
        try:
            while True:
                accepted, responses = await conversation.outbox.take()
                if accepted is not None:
                    yield codec.encode_storage_responses((), accepted=accepted)
                for message in codec.storage_response_frames(responses):
                    yield message
        except PlainsongError as error:
            await abort(context, error)
        finally:
            self._owner.storage_closed(conversation)
            await _cancel(reader)


def _handler(service: str, session: Any, encode: Callable[[Message], bytes]) -> grpc.GenericRpcHandler:
    methods: dict[str, Any] = {"Session": grpc.stream_stream_rpc_method_handler(session, None, encode)}
    return grpc.method_handlers_generic_handler(service, methods)


async def _read(
    requests: AsyncIterator[bytes],
    receive: Callable[[bytes], None],
    conversation: Conversation[Any],
    deadline: float,
) -> None:
    """Hands every frame to the owner; a silence longer than ``deadline`` ends the session."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(deadline) as silence:
            async for request in requests:
                receive(request)
                silence.reschedule(loop.time() + deadline)
        conversation.outbox.end(Silent("the controller has hung up"))
    except TimeoutError:
        conversation.outbox.end(Silent(f"nothing was heard for {deadline:g} s"))
    except (grpc.aio.AioRpcError, grpc.aio.BaseError):
        conversation.outbox.end(Silent("the stream broke"))
    except PlainsongError as error:
        conversation.outbox.end(error)
    except Exception as error:
        # Nobody waits for this task: the session would only fall silent.
        _LOG.exception("a session failed")
        conversation.outbox.end(InvariantBroken("the instance failed", detail=repr(error)))


async def _cancel(task: "asyncio.Task[None]") -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
