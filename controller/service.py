"""``ControllerService``: the API behind gRPC, each call bound to the method of the same name.

Requests are read here and not by gRPC, to which bytes that are no message are an accident of ours.
"""

import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

import grpc
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from controller.api import Api
from plainsong.errors import abort
from plainsong.v1 import controller_pb2
from plainsong.wire.frames import parsed
from reconcile.errors import PlainsongError

_SERVICE = controller_pb2.DESCRIPTOR.services_by_name["ControllerService"]


def method_name(call: str) -> str:
    """``CreateTable`` is ``create_table``."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", call).lower()


def controller_handler(api: Api) -> grpc.GenericRpcHandler:
    """All calls of the service; an error of ours becomes a rich status."""
    bound = {method.name: _bound(method, getattr(api, method_name(method.name))) for method in _SERVICE.methods}
    return grpc.method_handlers_generic_handler(_SERVICE.full_name, bound)


def _bound(method: MethodDescriptor, answer: Callable[[Any], Any]) -> "grpc.RpcMethodHandler[Any, Any]":
    request, reply = GetMessageClass(method.input_type), GetMessageClass(method.output_type)
    if method.server_streaming:
        # Any: the types of a handler are those of a server with threads.
        streamed: Any = _streamed(request, answer)
        return grpc.unary_stream_rpc_method_handler(streamed, None, reply.SerializeToString)
    unary: Any = _unary(request, answer)
    return grpc.unary_unary_rpc_method_handler(unary, None, reply.SerializeToString)


def _unary(kind: type[Message], answer: Callable[[Any], Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    async def handler(request: bytes, context: Any) -> Any:
        try:
            return await answer(parsed(kind, request))
        except PlainsongError as error:
            await abort(context, error)

    return handler


def _streamed(
    kind: type[Message], answer: Callable[[Any], AsyncGenerator[Any, None]]
) -> Callable[..., AsyncIterator[Any]]:
    async def handler(request: bytes, context: Any) -> AsyncIterator[Any]:
        try:
            # Closed at once when the client hangs up: what it held is let go then, and not when memory is swept.
            async with aclosing(answer(parsed(kind, request))) as answers:
                async for message in answers:
                    yield message
        except PlainsongError as error:
            await abort(context, error)

    return handler
