"""The client for programs with threads: ``plainsong.connect()``.

Every method is a call of ``plainsong.calls``, which see for parameters and meaning. A call whose connection fails is
sent again, with the same idempotency key, to the next address or after a wait, until its deadline.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

import grpc

from plainsong import calls
from plainsong.answers import ObjectKind, Written
from plainsong.calls import Call, Streaming
from plainsong.channels import channel
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
) -> "Client":
    """A client of the controller at ``address``, or at whichever of several addresses one reigns.

    ``token`` is a bearer token. ``tls`` says whom to trust and who one is: a ``ClientTls``, or a folder that
    ``plainsong certs`` made. A token is sent to another machine only under TLS, unless ``insecure`` is said.
    Connects when first used; use it in a ``with`` statement, from as many threads as you like.
    """
    return Client(Settings.of(address, token, tls, insecure))


def _call(build: Callable[P, Call[T]]) -> "Callable[Concatenate[Client, P], T]":
    found: Callable[Concatenate[Client, P], T] = method(build, lambda client, call: client._run(call))
    return found


def _stream(build: Callable[P, Streaming[T]]) -> "Callable[Concatenate[Client, P], Stream[T]]":
    found: Callable[Concatenate[Client, P], Stream[T]] = method(build, lambda client, call: Stream(client, call))
    return found


class Client:
    """A client of the controller; made by ``connect``. Safe to use from several threads."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        #: Each with its calls, by place in the list of addresses; made when first needed.
        self._channels: dict[int, tuple[grpc.Channel, Any]] = {}
        #: Where the last call succeeded, so where the next one begins.
        self._address = 0
        self._closing = threading.Event()
        self._random = Random()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Ends all calls and streams; what was sent may or may not be done."""
        self._closing.set()
        with self._lock:
            channels, self._channels = list(self._channels.values()), {}
        for each, _ in channels:
            each.close()

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

    def insert(
        self,
        table: str,
        rows: Insertable,
        *,
        columns: Sequence[str] | None = None,
        timeout: float = TIMEOUT_S,
        idempotency_key: str | None = None,
    ) -> Written:
        if columns is None and need_columns(rows):
            columns = table_columns(self.objects([ObjectKind.TABLE], timeout=timeout), table)
        return self._run(calls.insert(table, rows, columns=columns, timeout=timeout, idempotency_key=idempotency_key))

    insert.__doc__ = calls.insert.__doc__

    def _run(self, call: Call[T]) -> T:
        attempts = self._attempts(call.timeout)
        while True:
            remaining = attempts.remaining(time.monotonic())
            try:
                responses = self._responses(call, attempts.address, remaining)
            except PlainsongError as error:
                self._wait(attempts.failed, error)
            else:
                return call.read(responses)
            finally:
                self._address = attempts.address

    def _responses(self, call: Call[Any], address: int, remaining: float) -> Sequence[Any]:
        with self._translated():
            response = self._stub(address, call.method)(
                call.attempt(remaining), timeout=remaining, metadata=self._settings.metadata
            )
            return list(response) if call.streamed else [response]

    def _attempts(self, timeout: float) -> Attempts:
        return Attempts(
            addresses=self._settings.addresses,
            first=self._address,
            timeout=timeout,
            now=time.monotonic(),
            random=self._random,
        )

    def _wait(self, failed: Callable[[PlainsongError, float], float], error: PlainsongError) -> None:
        """Waits before the next attempt; raises if there is to be none."""
        if self._closing.wait(failed(error, time.monotonic())):
            raise Closed("the client was closed") from error

    def _stub(self, address: int, name: str) -> Any:
        with self._lock:
            if self._closing.is_set():
                raise Closed("the client is closed", hint="connect again")
            if address not in self._channels:
                made = channel(self._settings.addresses[address], self._settings.tls)
                self._channels[address] = made, ControllerServiceStub(made)
            return getattr(self._channels[address][1], name)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Turns what gRPC raises into our own errors."""
        try:
            yield
        except (grpc.RpcError, ValueError) as error:
            # A channel that was closed meanwhile raises ValueError.
            if self._closing.is_set():
                raise Closed("the client was closed") from error
            if isinstance(error, grpc.RpcError):
                raise from_rpc(error) from error
            raise


class Stream(Iterator[T], Generic[T]):
    """What a server tells over time. Iterate over it; close it, or leave its ``with`` statement, to stop."""

    def __init__(self, client: Client, streaming: Streaming[T]) -> None:
        self._client = client
        self._state = StreamState(streaming, client._attempts)
        self._call: Any = None
        self._closed = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Stops the stream, also from another thread; iteration then ends."""
        self._closed.set()
        if (call := self._call) is not None:
            call.cancel()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        while True:
            if (item := self._state.take()) is not None:
                return item
            if self._state.is_done or self._closed.is_set():
                self.close()
                raise StopIteration
            try:
                self._read()
            except PlainsongError as error:
                self._call = None
                if not self._closed.is_set():
                    self._client._wait(self._state.failed, error)

    def _read(self) -> None:
        """Takes in the next message; opens the stream first if it is not open."""
        with self._client._translated():
            if self._call is None:
                self._open()
            for response in self._call:
                self._state.heard(response)
                return
        raise self._state.ended()

    def _open(self) -> None:
        client, state = self._client, self._state
        stub = client._stub(state.address(client._address), state.method)
        self._call = stub(state.open(time.monotonic()), timeout=STREAM_S_MAX, metadata=client._settings.metadata)
        if self._closed.is_set():
            self._call.cancel()
        if state.missed():
            self._call.initial_metadata()
            if self._call.is_active():
                state.reopened()
