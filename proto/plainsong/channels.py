"""Channels and servers: the gRPC settings that all of Plainsong shares.

Nothing in the project makes a channel or a server but through here, so that no part of it reconnects late, shares a
port silently, or listens where it should not.
"""

from collections.abc import Sequence

import grpc

from plainsong.security import ClientTls, ServerTls, require_safe_bind, split_address
from reconcile.errors import InvalidRequest
from reconcile.limits import MESSAGE_BYTES_MAX

#: With gRPC's own settings a channel may notice only after 14 s that its server is back.
RECONNECT_MS_MIN, RECONNECT_MS_MAX = 200, 2_000
#: Finds dead networks. A stopped process answers pings still: for that there are heartbeats.
KEEPALIVE_MS, KEEPALIVE_TIMEOUT_MS = 10_000, 5_000

_BOTH: tuple[tuple[str, int], ...] = (
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
)
CHANNEL_OPTIONS: tuple[tuple[str, int], ...] = (
    *_BOTH,
    ("grpc.initial_reconnect_backoff_ms", RECONNECT_MS_MIN),
    ("grpc.min_reconnect_backoff_ms", RECONNECT_MS_MIN),
    ("grpc.max_reconnect_backoff_ms", RECONNECT_MS_MAX),
    # A connection of its own for each channel: one client's backing off must not delay another.
    ("grpc.use_local_subchannel_pool", 1),
    # We decide ourselves what is sent again, and with which idempotency key.
    ("grpc.enable_retries", 0),
    # A proxy named in the environment is for the web, not for loopback and not between our processes.
    ("grpc.enable_http_proxy", 0),
)
SERVER_OPTIONS: tuple[tuple[str, int], ...] = (
    *_BOTH,
    # Else a second server shares the port and takes half of the calls.
    ("grpc.so_reuseport", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", KEEPALIVE_MS // 2),
    ("grpc.keepalive_permit_without_calls", 1),
)


def channel(address: str, tls: ClientTls | None = None) -> grpc.Channel:
    """A channel for threads; it connects by itself, when it is first used."""
    if tls is None:
        return grpc.insecure_channel(address, options=CHANNEL_OPTIONS)
    return grpc.secure_channel(address, tls.credentials(), options=_named(tls))


def aio_channel(address: str, tls: ClientTls | None = None) -> grpc.aio.Channel:
    """A channel for the event loop in which it is made."""
    if tls is None:
        return grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)
    return grpc.aio.secure_channel(address, tls.credentials(), options=_named(tls))


def aio_server(interceptors: Sequence[grpc.aio.ServerInterceptor] = ()) -> grpc.aio.Server:
    """A server that listens nowhere yet."""
    return grpc.aio.server(interceptors=list(interceptors), options=SERVER_OPTIONS)


def listen(server: grpc.aio.Server, address: str, *, tls: ServerTls | None = None, insecure: bool = False) -> str:
    """Binds ``server`` to ``address`` (``host:port``; port 0 picks one) and returns where it then listens.

    Raises ``InvalidRequest`` if that would be unsafe, or impossible.
    """
    host, port = split_address(address)
    require_safe_bind(host, tls, insecure)
    try:
        if tls is None:
            bound = server.add_insecure_port(address)
        else:
            bound = server.add_secure_port(address, tls.credentials())
    except RuntimeError as error:
        raise _cannot_listen(address) from error
    if bound == 0:
        raise _cannot_listen(address)
    return address if port is None else f"{address.rpartition(':')[0]}:{bound}"


def _cannot_listen(address: str) -> InvalidRequest:
    return InvalidRequest(
        f"cannot listen on {address}", detail="the port is taken or the host is not ours", hint="choose another port"
    )


def _named(tls: ClientTls) -> tuple[tuple[str, int | str], ...]:
    if tls.server_name is None:
        return CHANNEL_OPTIONS
    return (*CHANNEL_OPTIONS, ("grpc.ssl_target_name_override", tls.server_name))
