"""A small controller for tests of the transport: it says what a test tells it to say, and remembers what it heard."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, cast

import grpc
import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from plainsong.arrow_updates import to_ipc
from plainsong.channels import aio_server, listen
from plainsong.errors import abort
from plainsong.security import ServerTls
from plainsong.v1 import controller_pb2 as pb
from plainsong.v1.controller_pb2_grpc import ControllerServiceServicer, add_ControllerServiceServicer_to_server
from reconcile.errors import PlainsongError

SERVICE = pb.DESCRIPTOR.services_by_name["ControllerService"]
Context = grpc.aio.ServicerContext[Any, Any]
#: What to answer: messages, an error to raise, or a function of the request that gives one of these.
Script = Message | PlainsongError | Sequence[Message] | Callable[[Any, Context], Awaitable[Any]]


class Controller:
    """Answers each method as ``answers`` says; empty responses where it says nothing."""

    def __init__(self, **answers: Script) -> None:
        self.answers = answers
        #: Every request, in order, by the name of its method.
        self.heard: list[tuple[str, Any]] = []
        #: Set whenever a request arrives.
        self.arrived = asyncio.Event()

    def requests(self, method: str) -> list[Any]:
        return [request for name, request in self.heard if name == method]

    async def answer(self, method: str, request: Message, context: Context) -> Sequence[Message]:
        self.heard.append((method, request))
        self.arrived.set()
        response_type = GetMessageClass(SERVICE.methods_by_name[method].output_type)
        said = self.answers.get(method, response_type())
        if not isinstance(said, Message | PlainsongError | Sequence):
            said = await said(request, context)
        if isinstance(said, PlainsongError):
            await abort(context, said)
        return [said] if isinstance(said, Message) else list(said)


def _behaviour(method: str, streams: bool) -> Any:
    async def one(self: Controller, request: Message, context: Context) -> Message:
        (response,) = await self.answer(method, request, context)
        return response

    async def many(self: Controller, request: Message, context: Context) -> AsyncIterator[Message]:
        for response in await self.answer(method, request, context):
            yield response

    return many if streams else one


for _method in SERVICE.methods:
    setattr(Controller, _method.name, _behaviour(_method.name, _method.server_streaming))


def add(controller: Controller, server: grpc.aio.Server) -> None:
    # Its methods are made from the service's description, which a type checker cannot see.
    add_ControllerServiceServicer_to_server(cast(ControllerServiceServicer, controller), server)


@asynccontextmanager
async def serving(
    controller: Controller,
    address: str = "127.0.0.1:0",
    *,
    tls: ServerTls | None = None,
    interceptors: Sequence[grpc.aio.ServerInterceptor] = (),
) -> AsyncIterator[str]:
    """Serves until the block ends; then stops at once, as a killed server does."""
    server = aio_server(interceptors)
    add(controller, server)
    bound = listen(server, address, tls=tls)
    await server.start()
    try:
        yield bound
    finally:
        await server.stop(None)


@contextmanager
def serving_in_a_thread(controller: Controller, address: str = "127.0.0.1:0") -> Iterator[str]:
    """Like ``serving``, for tests of the client with threads."""
    bound: list[str] = []
    ready = threading.Event()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def serve() -> None:
        async with serving(controller, address) as where:
            bound.append(where)
            ready.set()
            await stop.wait()

    def run() -> None:
        try:
            loop.run_until_complete(serve())
        finally:
            ready.set()
            loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    assert ready.wait(10)
    try:
        yield bound[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)
        assert not thread.is_alive()


def arrow(**columns: Sequence[object]) -> bytes:
    return to_ipc(pa.table(columns))


def batch(
    lower: int, upper: int | None, changes: Sequence[tuple[str, int, int]] = ()
) -> pb.ControllerServiceTailResponse:
    """A batch of a tail: rows of one column ``name`` with their step and diff."""
    response = pb.ControllerServiceTailResponse()
    response.lower.step = lower
    response.upper.SetInParent()
    if upper is not None:
        response.upper.step = upper
    if changes:
        response.arrow = updates(changes)
    return response


def updates(changes: Sequence[tuple[str, int, int]]) -> bytes:
    names, steps, diffs = zip(*changes, strict=True)
    return to_ipc(
        pa.table({"name": pa.array(names), "_step": pa.array(steps, pa.int64()), "_diff": pa.array(diffs, pa.int64())})
    )
