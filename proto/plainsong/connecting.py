"""Connecting: what the client with threads and the one with asyncio share beside their calls."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from inspect import Parameter, signature
from typing import Any

from plainsong.answers import Object
from plainsong.errors import InvalidRequest
from plainsong.security import ClientTls, require_safe_token, split_address
from reconcile.errors import InvalidRequest as CoreInvalidRequest

ADDRESS = "127.0.0.1:6875"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Where a client connects, and as whom."""

    addresses: tuple[str, ...]
    tls: ClientTls | None
    metadata: tuple[tuple[str, str], ...]

    @classmethod
    def of(
        cls,
        address: str | Sequence[str],
        token: str | None,
        tls: ClientTls | str | os.PathLike[str] | None,
        insecure: bool,
    ) -> "Settings":
        """Raises ``InvalidRequest`` for an address that is none, or a token that would travel in clear text."""
        addresses = (address,) if isinstance(address, str) else tuple(address)
        if not addresses:
            raise InvalidRequest("there is no address", hint=f"for example {ADDRESS}")
        try:
            if isinstance(tls, str | os.PathLike):
                tls = ClientTls.folder(tls)
            if tls is not None:
                tls.credentials()
            for each in addresses:
                split_address(each)
                if token is not None:
                    require_safe_token(each, tls, insecure)
        except CoreInvalidRequest as error:
            raise InvalidRequest(error.message, detail=error.detail, hint=error.hint) from error
        token = None if token is None else token.strip()
        if token is not None and not (token and token.isascii() and token.isprintable()):
            raise InvalidRequest("the token is not a token", detail="it must be printable ASCII in one line")
        metadata = () if token is None else (("authorization", f"Bearer {token}"),)
        return cls(addresses=addresses, tls=tls, metadata=metadata)


def method(build: Callable[..., object], run: Callable[..., Any]) -> Any:
    """A method that builds a call and runs it, with the name, parameters and documentation of ``build``."""

    @wraps(build)
    def bound(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        return run(self, build(*args, **kwargs))

    # ``build`` has no self, and ``inspect`` would take its first parameter for one.
    del bound.__dict__["__wrapped__"]
    described = signature(build)
    parameters = [Parameter("self", Parameter.POSITIONAL_OR_KEYWORD), *described.parameters.values()]
    # What a call returns is not what its building returns; the types of the class say it, this would not.
    bound.__dict__["__signature__"] = described.replace(parameters=parameters, return_annotation=described.empty)
    return bound


def table_columns(objects: Sequence[Object], table: str) -> list[str]:
    """The columns of a table in their order; raises ``InvalidRequest`` if there is no such table."""
    for found in objects:
        if found.name == table:
            return [column.name for column in found.columns]
    raise InvalidRequest(f"there is no table {table!r}", hint="client.objects() lists what there is")
