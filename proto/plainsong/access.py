"""Access: who is calling, and whether they may.

Two roles. Who is read-only may look at everything and change nothing; an operator may do all. A caller is known by a
bearer token or by a client certificate. A method that is not in the table below needs an operator: what is new and
forgotten here is closed, not open. Refusals say the same whatever was wrong, and come before a request is read.
"""

import hashlib
import hmac
import secrets
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Any, Self, TypeAlias

import grpc
from cryptography import x509
from cryptography.x509.oid import NameOID

from plainsong.errors import PermissionDenied, PlainsongError, Unauthenticated, abort
from plainsong.security import ServerTls, is_local
from reconcile.errors import InvalidRequest


class Role(StrEnum):
    """What a caller may do."""

    READ_ONLY = "read-only"
    OPERATOR = "operator"

    def may(self, needed: "Role") -> bool:
        return self is Role.OPERATOR or needed is Role.READ_ONLY


_READ = Role.READ_ONLY
_CHANGE = Role.OPERATOR

#: The role that each method for adapters needs.
CONTROLLER_METHODS: Mapping[str, Role] = {
    "CreateCluster": _CHANGE,
    "AlterCluster": _CHANGE,
    "DropCluster": _CHANGE,
    "ListClusters": _READ,
    "CreateReplica": _CHANGE,
    "DropReplica": _CHANGE,
    "CreateTable": _CHANGE,
    "CreateSource": _CHANGE,
    "CreateFunction": _CHANGE,
    "DropFunction": _CHANGE,
    "ListFunctions": _READ,
    "CreateView": _CHANGE,
    "CreateMaterializedView": _CHANGE,
    "CreateIndex": _CHANGE,
    "AddColumns": _CHANGE,
    "DropObject": _CHANGE,
    "ListObjects": _READ,
    "InsertRows": _CHANGE,
    "UpdateRows": _CHANGE,
    "DeleteRows": _CHANGE,
    "Lookup": _READ,
    "Peek": _READ,
    "Query": _READ,
    "Tail": _READ,
    "Explain": _READ,
    "GetFrontiers": _READ,
    "GetStatus": _READ,
    "ReadLog": _READ,
    "Watch": _READ,
}
_CONTROLLER = "/plainsong.v1.ControllerService/"
#: Asked by load balancers, which have no token; tells only whether somebody serves.
_OPEN = ("/grpc.health.v1.Health/",)
_REFLECTION = ("/grpc.reflection.v1.ServerReflection/", "/grpc.reflection.v1alpha.ServerReflection/")


def role_needed(method: str) -> Role | None:
    """The role that a method needs, by its full name; ``None`` if everybody may call it."""
    if method.startswith(_OPEN):
        return None
    if method.startswith(_REFLECTION):
        return _READ
    if method.startswith(_CONTROLLER):
        return CONTROLLER_METHODS.get(method.removeprefix(_CONTROLLER), _CHANGE)
    return _CHANGE


# --- tokens ---


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """One token's line: who has it, and what they may do. The token itself is not kept, only its digest."""

    role: Role
    digest: bytes
    name: str

    @classmethod
    def of(cls, role: Role, token: str, name: str) -> Self:
        return cls(role=role, digest=_digest(token), name=name)

    def line(self) -> str:
        """As it stands in a token file."""
        return f"{self.role} {self.digest.hex()} {self.name}"


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens that a server accepts."""

    grants: tuple[Grant, ...]

    @classmethod
    def read(cls, path: Path) -> Self:
        """Reads a token file: a line ``role token-sha256 name`` each; ``#`` begins a comment."""
        try:
            text = path.read_text(encoding="utf-8")
            writable = path.stat().st_mode & 0o022
        except (OSError, UnicodeError) as error:
            raise InvalidRequest(f"cannot read the tokens in {path}", detail=str(error)) from error
        if writable:
            raise InvalidRequest(
                f"others may write to {path}",
                detail="whoever writes there can make themselves an operator",
                hint=f"chmod 600 {path}",
            )
        return cls(
            tuple(
                _grant(path, number, line)
                for number, line in enumerate(text.splitlines(), start=1)
                if line.strip() and not line.lstrip().startswith("#")
            )
        )

    def role(self, token: str) -> Role | None:
        """What ``token`` allows; takes as long for a wrong one as for a right one, wherever it stands in the file."""
        digest, found = _digest(token), None
        for grant in self.grants:
            if hmac.compare_digest(grant.digest, digest):
                found = grant.role
        return found


def new_token() -> str:
    """A token that nobody guesses."""
    return secrets.token_urlsafe(32)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", errors="surrogateescape")).digest()


def _grant(path: Path, number: int, line: str) -> Grant:
    words = line.split(maxsplit=2)
    try:
        role, digest = Role(words[0]), bytes.fromhex(words[1])
        if len(digest) != hashlib.sha256().digest_size:
            raise ValueError("not the length of a SHA-256 digest")
        return Grant(role=role, digest=digest, name=words[2].strip())
    except (ValueError, IndexError) as error:
        # The line itself is not repeated: somebody may have put the token there instead of its digest.
        raise InvalidRequest(
            f"line {number} of {path} is not a token's line",
            detail=f"it must be {' or '.join(Role)}, the SHA-256 of the token in hexadecimal, and a name",
            hint="printf %s TOKEN | sha256sum",
        ) from error


# --- the guard ---

_Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
_Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"


def guards(
    *, host: str, tls: ServerTls | None, tokens: Tokens | None, insecure: bool = False
) -> tuple[grpc.aio.ServerInterceptor, ...]:
    """The interceptors of a server that listens on ``host``.

    With nothing configured everybody on this machine is an operator. Beyond this machine somebody must be named,
    by tokens or certificates, or ``insecure`` said: TLS alone hides what is said, but asks nobody who they are.
    """
    certificates = tls is not None and tls.client_ca is not None
    if tokens is not None or certificates:
        return (Guard(tokens=tokens, certificates=certificates),)
    if insecure or is_local(host):
        return ()
    raise InvalidRequest(
        f"refusing to listen on {host or 'all addresses'} without knowing who may connect",
        detail="TLS hides what is said but lets everybody in",
        hint="give a token file, or a CA for client certificates, or say --insecure if you mean it",
    )


class Guard(grpc.aio.ServerInterceptor):
    """Lets a call through only if its caller has the role that it needs.

    A token, if there is one, decides alone: a wrong one is not saved by a good certificate.
    """

    def __init__(self, *, tokens: Tokens | None, certificates: bool) -> None:
        self._tokens = tokens
        self._certificates = certificates

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable["_Handler | None"]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> "_Handler | None":
        needed = role_needed(handler_call_details.method)
        if needed is None:
            return await continuation(handler_call_details)
        presented = [value for key, value in handler_call_details.invocation_metadata if key.lower() == "authorization"]
        if not presented and self._certificates:
            handler = await continuation(handler_call_details)
            # Only the context of the call knows the certificate, and only its handler has the context.
            return None if handler is None else _guarded(handler, needed)
        refusal = _refusal(self._token_role(presented), needed)
        return await continuation(handler_call_details) if refusal is None else _refusing(refusal)

    def _token_role(self, presented: list[str | bytes]) -> Role | None:
        if self._tokens is None or len(presented) != 1 or not isinstance(presented[0], str):
            return None
        scheme, _, token = presented[0].partition(" ")
        return self._tokens.role(token.strip()) if scheme.lower() == "bearer" else None


def certificate_role(context: _Context) -> Role | None:
    """The role that a caller's certificate names as its organizational unit; TLS has verified who signed it."""
    for pem in context.auth_context().get("x509_pem_cert", ()):
        return _role_in(pem)
    return None


@lru_cache(maxsize=1024)
def _role_in(pem: bytes) -> Role | None:
    subject = x509.load_pem_x509_certificate(pem).subject
    named = {str(unit.value) for unit in subject.get_attributes_for_oid(NameOID.ORGANIZATIONAL_UNIT_NAME)}
    roles = [role for role in Role if role in named]
    return roles[0] if len(roles) == 1 else None


def _refusal(role: Role | None, needed: Role) -> PlainsongError | None:
    if role is None:
        return Unauthenticated("not authenticated", hint="give a valid token or client certificate")
    if not role.may(needed):
        return PermissionDenied(f"this needs the role {needed}", hint="ask an operator")
    return None


def _refusing(refusal: PlainsongError) -> _Handler:
    """Refuses any call, without reading what it says; streaming both ways fits every kind."""

    async def refuse(_requests: object, context: _Context) -> None:
        await abort(context, refusal)

    return grpc.stream_stream_rpc_method_handler(refuse)


def _guarded(handler: _Handler, needed: Role) -> _Handler:
    """``handler``, once the certificate of its caller was looked at."""
    # Any: the types of a handler are those of a server with threads.
    behaviour: Any = handler.unary_unary or handler.unary_stream or handler.stream_unary or handler.stream_stream

    async def check(context: _Context) -> None:
        if (refusal := _refusal(certificate_role(context), needed)) is not None:
            await abort(context, refusal)

    async def one(request: Any, context: _Context) -> Any:
        await check(context)
        return await behaviour(request, context)

    async def many(request: Any, context: _Context) -> Any:
        await check(context)
        async with aclosing(behaviour(request, context)) as answers:
            async for answer in answers:
                yield answer

    make: Callable[..., _Handler] = {
        (False, False): grpc.unary_unary_rpc_method_handler,
        (False, True): grpc.unary_stream_rpc_method_handler,
        (True, False): grpc.stream_unary_rpc_method_handler,
        (True, True): grpc.stream_stream_rpc_method_handler,
    }[handler.request_streaming, handler.response_streaming]
    wrapped = many if handler.response_streaming else one
    return make(wrapped, handler.request_deserializer, handler.response_serializer)
