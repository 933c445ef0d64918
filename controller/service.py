"""``ControllerService``: the API behind gRPC, each call bound to the method of the same name."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from google.protobuf.descriptor import MethodDescriptor

from controller.api import Api
from plainsong.errors import abort
from plainsong.v1 import controller_pb2, controller_pb2_grpc
from reconcile.errors import PlainsongError

_SERVICE = controller_pb2.DESCRIPTOR.services_by_name["ControllerService"]


def method_name(call: str) -> str:
    """``CreateTable`` is ``create_table``."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", call).lower()


def controller_servicer(api: Api) -> controller_pb2_grpc.ControllerServiceServicer:
    """All calls of the service; an error of ours becomes a rich status."""
    bound = {method.name: _bound(method, getattr(api, method_name(method.name))) for method in _SERVICE.methods}
    return type("ControllerServicer", (controller_pb2_grpc.ControllerServiceServicer,), bound)()  # type: ignore[no-any-return]


def _bound(method: MethodDescriptor, answer: Callable[[Any], Any]) -> Callable[..., Any]:
    return _streamed(answer) if method.server_streaming else _unary(answer)


def _unary(answer: Callable[[Any], Awaitable[Any]]) -> Callable[..., Any]:
    async def handler(_servicer: object, request: Any, context: Any) -> Any:
        try:
            return await answer(request)
        except PlainsongError as error:
            await abort(context, error)

    return handler


def _streamed(answer: Callable[[Any], AsyncIterator[Any]]) -> Callable[..., Any]:
    async def handler(_servicer: object, request: Any, context: Any) -> AsyncIterator[Any]:
        try:
            async for message in answer(request):
                yield message
        except PlainsongError as error:
            await abort(context, error)

    return handler
