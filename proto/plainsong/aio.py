"""The client for programs with asyncio: ``plainsong.aio.connect()``.

The same methods as ``plainsong.Client``, to be awaited; streams are read with ``async for``.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

import grpc

from plainsong import calls
from plainsong.answers import ObjectKind, Written
from plainsong.calls import Call, Streaming
from plainsong.channels import aio_channel
from plainsong.connecting import ADDRESS, Settings, method, table_columns
from plainsong.errors import Closed, PlainsongError, from_rpc
from plainsong.retries import TIMEOUT_S, Attempts
from plainsong.rows import Insertable, need_columns
from plainsong.security import ClientTls
from plainsong.streams import STREAM_S_MAX, StreamState
from plainsong.v1.controller_pb2_grpc import ControllerServiceStub

P = ParamSpec("P")
T = TypeVar("T")


def connect(
    address: str | Sequence[str] = ADDRESS,
    *,
    token: str | None = None,
    tls: ClientTls | str | os.PathLike[str] | None = None,
    insecure: bool = False,
) -> "AsyncClient":
    """Like ``plainsong.connect``; use it in an ``async with`` statement, in one event loop."""
    return AsyncClient(Settings.of(address, token, tls, insecure))


def _call(build: Callable[P, Call[T]]) -> "Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]":
    found: Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]] = method(
        build, lambda client, call: client._run(call)
    )
    return found


def _stream(build: Callable[P, Streaming[T]]) -> "Callable[Concatenate[AsyncClient, P], AsyncStream[T]]":
    found: Callable[Concatenate[AsyncClient, P], AsyncStream[T]] = method(
        build, lambda client, call: AsyncStream(client, call)
    )
    return found


class AsyncClient:
    """A client of the controller for asyncio; made by ``plainsong.aio.connect``."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        #: Each with its calls, by place in the list of addresses; made when first needed, in the loop that needs it.
        self._channels: dict[int, tuple[grpc.aio.Channel, Any]] = {}
        #: Where the last call succeeded, so where the next one begins.
        self._address = 0
        self._closed = False
        self._random = Random()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends all calls and streams; what was sent may or may not be done."""
        self._closed = True
        channels, self._channels = list(self._channels.values()), {}
        for each, _ in channels:
            await each.close()

    create_cluster = _call(calls.create_cluster)
    alter_cluster = _call(calls.alter_cluster)
    drop_cluster = _call(calls.drop_cluster)
    clusters = _call(calls.clusters)
    create_replica = _call(calls.create_replica)
    drop_replica = _call(calls.drop_replica)
    create_table = _call(calls.create_table)
    create_source = _call(calls.create_source)
    create_view = _call(calls.create_view)
    create_materialized_view = _call(calls.create_materialized_view)
    create_index = _call(calls.create_index)
    add_columns = _call(calls.add_columns)
    drop = _call(calls.drop)
    objects = _call(calls.objects)
    create_function = _call(calls.create_function)
    drop_function = _call(calls.drop_function)
    functions = _call(calls.functions)
    update = _call(calls.update)
    delete = _call(calls.delete)
    lookup = _call(calls.lookup)
    peek = _call(calls.peek)
    query = _call(calls.query)
    tail = _stream(calls.tail)
    tail_batches = _stream(calls.tail_batches)
    explain = _call(calls.explain)
    frontiers = _call(calls.frontiers)
    status = _call(calls.status)
    log = _call(calls.log)
    follow_log = _stream(calls.follow_log)
    watch = _stream(calls.watch)

    async def insert(
        self,
        table: str,
        rows: Insertable,
        *,
        columns: Sequence[str] | None = None,
        timeout: float = TIMEOUT_S,
        idempotency_key: str | None = None,
    ) -> Written:
        if columns is None and need_columns(rows):
            columns = table_columns(await self.objects([ObjectKind.TABLE], timeout=timeout), table)
        return await self._run(
            calls.insert(table, rows, columns=columns, timeout=timeout, idempotency_key=idempotency_key)
        )

    insert.__doc__ = calls.insert.__doc__

    async def _run(self, call: Call[T]) -> T:
        attempts = self._attempts(call.timeout)
        while True:
            remaining = attempts.remaining(_now())
            try:
                responses = await self._responses(call, attempts.address, remaining)
            except PlainsongError as error:
                await asyncio.sleep(attempts.failed(error, _now()))
            else:
                return call.read(responses)
            finally:
                self._address = attempts.address

    async def _responses(self, call: Call[Any], address: int, remaining: float) -> Sequence[Any]:
        with self._translated():
            response = self._stub(address, call.method)(
                call.attempt(remaining), timeout=remaining, metadata=self._settings.metadata
            )
            return [each async for each in response] if call.streamed else [await response]

    def _attempts(self, timeout: float) -> Attempts:
        return Attempts(
            addresses=self._settings.addresses,
            first=self._address,
            timeout=timeout,
            now=_now(),
            random=self._random,
        )

    def _stub(self, address: int, name: str) -> Any:
        if self._closed:
            raise Closed("the client is closed", hint="connect again")
        if address not in self._channels:
            made = aio_channel(self._settings.addresses[address], self._settings.tls)
            self._channels[address] = made, ControllerServiceStub(made)
        return getattr(self._channels[address][1], name)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Turns what gRPC raises into our own errors."""
        try:
            yield
        except (grpc.RpcError, grpc.aio.UsageError) as error:
            if self._closed:
                raise Closed("the client was closed") from error
            if isinstance(error, grpc.RpcError):
                raise from_rpc(error) from error
            raise
        except asyncio.CancelledError as error:
            # Closing a channel cancels its calls; that is not the cancellation of the task that waits for one.
            task = asyncio.current_task()
            if self._closed and task is not None and not task.cancelling():
                raise Closed("the client was closed") from error
            raise


class AsyncStream(AsyncIterator[T], Generic[T]):
    """What a server tells over time. Read it with ``async for``; leave its ``async with`` statement to stop."""

    def __init__(self, client: AsyncClient, streaming: Streaming[T]) -> None:
        self._client = client
        self._state = StreamState(streaming, client._attempts)
        self._call: Any = None
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Stops the stream; iteration then ends."""
        self._closed = True
        if (call := self._call) is not None:
            call.cancel()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        while True:
            if (item := self._state.take()) is not None:
                return item
            if self._state.is_done or self._closed:
                await self.aclose()
                raise StopAsyncIteration
            try:
                await self._read()
            except PlainsongError as error:
                self._call = None
                if not self._closed:
                    await asyncio.sleep(self._state.failed(error, _now()))

    async def _read(self) -> None:
        """Takes in the next message; opens the stream first if it is not open."""
        with self._client._translated():
            if self._call is None:
                await self._open()
            try:
                response = await self._call.read()
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if self._closed and task is not None and not task.cancelling():
                    return
                # The message that was about to be read is lost with the reading of it; the next opening asks again.
                self._call.cancel()
                self._call = None
                self._state.lost()
                raise
            if response is not grpc.aio.EOF:
                self._state.heard(response)
                return
        raise self._state.ended()

    async def _open(self) -> None:
        client, state = self._client, self._state
        stub = client._stub(state.address(client._address), state.method)
        self._call = stub(state.open(_now()), timeout=STREAM_S_MAX, metadata=client._settings.metadata)
        if state.missed():
            await self._call.initial_metadata()
            if not self._call.done():
                state.reopened()


def _now() -> float:
    return asyncio.get_running_loop().time()
