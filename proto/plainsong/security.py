"""Transport security: where a server may listen, and the TLS that lets it listen anywhere.

Loopback by default. Any other address needs TLS or an explicit ``insecure``: who forgot to think about it must not
find a database open to the street. Who may do what once connected is decided in ``plainsong.access``.
"""

import ipaddress
import os
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import grpc

from reconcile.errors import InvalidRequest

#: What ``plainsong certs`` calls the files it makes.
CA_FILE, SERVER_CERTIFICATE, SERVER_KEY, CLIENT_CERTIFICATE, CLIENT_KEY = (
    "ca.pem",
    "server.pem",
    "server.key",
    "client.pem",
    "client.key",
)
#: Sockets in the file system or in the kernel's own name space: never beyond this machine.
_UNIX = ("unix:", "unix-abstract:")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTls:
    """How a server proves who it is; with ``client_ca``, every client must prove it too (mTLS)."""

    certificate: Path
    key: Path
    client_ca: Path | None = None

    @classmethod
    def folder(cls, path: str | os.PathLike[str], *, mutual: bool = True) -> Self:
        """From a folder that ``plainsong certs`` made."""
        here = Path(path)
        return cls(
            certificate=here / SERVER_CERTIFICATE,
            key=here / SERVER_KEY,
            client_ca=here / CA_FILE if mutual else None,
        )

    def credentials(self) -> grpc.ServerCredentials:
        """Reads the files; raises ``InvalidRequest`` if one is missing, damaged, or does not fit the others."""
        _check_pair(self.certificate, self.key)
        authority = None if self.client_ca is None else _authority(self.client_ca)
        pairs = [(_read(self.key), _read(self.certificate))]
        return grpc.ssl_server_credentials(pairs, authority, require_client_auth=authority is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTls:
    """Whom a client trusts, and with ``certificate`` and ``key`` who it is itself.

    Without ``ca`` it trusts what the system trusts. ``server_name`` is the name in the server's certificate where
    that differs from the address.
    """

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    server_name: str | None = None

    @classmethod
    def folder(cls, path: str | os.PathLike[str]) -> Self:
        """From a folder that ``plainsong certs`` made; with its client certificate, if that is there."""
        here = Path(path)
        if not here.is_dir():
            raise InvalidRequest(f"there is no folder {here}", hint="make one: plainsong certs FOLDER")
        mine = (here / CLIENT_CERTIFICATE).exists()
        return cls(
            ca=here / CA_FILE,
            certificate=here / CLIENT_CERTIFICATE if mine else None,
            key=here / CLIENT_KEY if mine else None,
        )

    def credentials(self) -> grpc.ChannelCredentials:
        """Reads the files; raises ``InvalidRequest`` if one is missing, damaged, or does not fit the others."""
        if (self.certificate is None) != (self.key is None):
            raise InvalidRequest("a client certificate and its key belong together", hint="give both, or neither")
        authority = None if self.ca is None else _authority(self.ca)
        if self.certificate is None or self.key is None:
            return grpc.ssl_channel_credentials(authority)
        _check_pair(self.certificate, self.key)
        return grpc.ssl_channel_credentials(authority, _read(self.key), _read(self.certificate))


def split_address(address: str) -> tuple[str, int | None]:
    """Host and port of ``host:port``, ``[::1]:port`` or ``unix:path``, which has no port."""
    if address.startswith(_UNIX):
        return address, None
    host, colon, port = address.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    bracketed = host != bare
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > 65_535 or (":" in bare and not bracketed):
        raise InvalidRequest(
            f"{address!r} is not an address",
            detail="it must be a host, a colon and a port from 0 to 65535",
            hint="for example 127.0.0.1:6875 or [::1]:6875",
        )
    return bare, int(port)


def is_local(host: str) -> bool:
    """Whether who listens on (or connects to) ``host`` stays on this machine.

    A name is local only if all its addresses are. The system's own resolver decides, so spellings such as ``127.1``
    mean what they will mean when the port is bound. Raises ``InvalidRequest`` for a name that has no address.
    """
    if host.startswith(_UNIX):
        return True
    bare = host.removeprefix("[").removesuffix("]")
    if bare in ("", "*"):
        return False
    try:
        found = socket.getaddrinfo(bare, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise InvalidRequest(
            f"host {bare!r} has no address", hint="is it spelled right? 127.0.0.1 always works"
        ) from error
    return all(_is_loopback(str(address[0])) for *_, address in found)


def require_safe_bind(host: str, tls: ServerTls | None, insecure: bool) -> None:
    """Refuses to listen beyond this machine without TLS, unless somebody explicitly asked for it."""
    if tls is not None or insecure or is_local(host):
        return
    raise InvalidRequest(
        f"refusing to listen on {host or 'all addresses'} without TLS",
        detail="others than this machine could connect, read everything, and change everything",
        hint="listen on 127.0.0.1, give a certificate (plainsong certs makes one), or say --insecure if you mean it",
    )


def require_safe_token(address: str, tls: ClientTls | None, insecure: bool) -> None:
    """Refuses to send a token in clear text to another machine, unless somebody explicitly asked for it."""
    if tls is not None or insecure or is_local(split_address(address)[0]):
        return
    raise InvalidRequest(
        f"refusing to send a token to {address} without TLS",
        detail="everybody on the way could read it and use it",
        hint="give tls=, or insecure=True if you mean it",
    )


def _is_loopback(address: str) -> bool:
    parsed = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped is not None:
        return parsed.ipv4_mapped.is_loopback
    return parsed.is_loopback


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidRequest(
            f"cannot read {path}",
            detail=(error.strerror or str(error)).lower(),
            hint="plainsong certs makes such files",
        ) from error


def _authority(path: Path) -> bytes:
    """The certificates of an authority, checked now: gRPC would only fail to connect, without a word."""
    contents = _read(path)
    try:
        ssl.create_default_context(cadata=contents.decode("ascii"))
    except (ssl.SSLError, ValueError) as error:
        raise InvalidRequest(f"{path} holds no certificate", hint="it must be a PEM file") from error
    return contents


def _check_pair(certificate: Path, key: Path) -> None:
    _read(certificate), _read(key)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password=_no_password)
    except (ssl.SSLError, OSError, ValueError) as error:
        raise InvalidRequest(
            f"{certificate} and {key} are not a certificate and its key",
            hint="both must be PEM files, made together; the key without a password",
        ) from error


def _no_password() -> str:
    """Instead of a question on the terminal, which OpenSSL asks otherwise."""
    raise ValueError("the key has a password")
