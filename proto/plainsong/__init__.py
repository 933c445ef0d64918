"""Plainsong's client: all that an adapter needs.

    import plainsong

    with plainsong.connect() as client:
        client.create_table("orders", {"id": "bigint not null", "qty": "int"})
        client.insert("orders", [{"id": 1, "qty": 5}])
        for row in client.query("select sum(qty) as total from orders"):
            print(row.total)

``plainsong.connect()`` is for threads and ``plainsong.aio.connect()`` for asyncio. What is named here is loaded when
it is first used, so that importing this package costs nothing and its other modules stand alone.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from plainsong import aio as aio
    from plainsong.aio import AsyncClient as AsyncClient
    from plainsong.aio import AsyncStream as AsyncStream
    from plainsong.answers import Change as Change
    from plainsong.answers import Cluster as Cluster
    from plainsong.answers import Column as Column
    from plainsong.answers import Event as Event
    from plainsong.answers import Explanation as Explanation
    from plainsong.answers import Frontiers as Frontiers
    from plainsong.answers import FrontiersRose as FrontiersRose
    from plainsong.answers import Function as Function
    from plainsong.answers import Interrupted as Interrupted
    from plainsong.answers import LogRecord as LogRecord
    from plainsong.answers import Object as Object
    from plainsong.answers import ObjectAltered as ObjectAltered
    from plainsong.answers import ObjectCreated as ObjectCreated
    from plainsong.answers import ObjectDropped as ObjectDropped
    from plainsong.answers import ObjectFailed as ObjectFailed
    from plainsong.answers import ObjectFrontier as ObjectFrontier
    from plainsong.answers import ObjectKind as ObjectKind
    from plainsong.answers import Progress as Progress
    from plainsong.answers import Replica as Replica
    from plainsong.answers import ReplicaChanged as ReplicaChanged
    from plainsong.answers import ReplicaState as ReplicaState
    from plainsong.answers import Status as Status
    from plainsong.answers import TailBatch as TailBatch
    from plainsong.answers import Written as Written
    from plainsong.client import Client as Client
    from plainsong.client import Stream as Stream
    from plainsong.client import connect as connect
    from plainsong.errors import Closed as Closed
    from plainsong.errors import Fenced as Fenced
    from plainsong.errors import InvalidRequest as InvalidRequest
    from plainsong.errors import InvariantBroken as InvariantBroken
    from plainsong.errors import NotReigning as NotReigning
    from plainsong.errors import PermissionDenied as PermissionDenied
    from plainsong.errors import PlainsongError as PlainsongError
    from plainsong.errors import ProtocolViolation as ProtocolViolation
    from plainsong.errors import StorageFailed as StorageFailed
    from plainsong.errors import TimedOut as TimedOut
    from plainsong.errors import Unauthenticated as Unauthenticated
    from plainsong.errors import Unavailable as Unavailable
    from plainsong.errors import Unexpected as Unexpected
    from plainsong.rows import Row as Row
    from plainsong.rows import Rows as Rows
    from plainsong.security import ClientTls as ClientTls

#: Where each public name lives.
_HOMES = {
    "plainsong.client": ("Client", "Stream", "connect"),
    "plainsong.aio": ("AsyncClient", "AsyncStream"),
    "plainsong.rows": ("Row", "Rows"),
    "plainsong.security": ("ClientTls",),
    "plainsong.errors": (
        "Closed",
        "Fenced",
        "InvalidRequest",
        "InvariantBroken",
        "NotReigning",
        "PermissionDenied",
        "PlainsongError",
        "ProtocolViolation",
        "StorageFailed",
        "TimedOut",
        "Unauthenticated",
        "Unavailable",
        "Unexpected",
    ),
    "plainsong.answers": (
        "Change",
        "Cluster",
        "Column",
        "Event",
        "Explanation",
        "Frontiers",
        "FrontiersRose",
        "Function",
        "Interrupted",
        "LogRecord",
        "Object",
        "ObjectAltered",
        "ObjectCreated",
        "ObjectDropped",
        "ObjectFailed",
        "ObjectFrontier",
        "ObjectKind",
        "Progress",
        "Replica",
        "ReplicaChanged",
        "ReplicaState",
        "Status",
        "TailBatch",
        "Written",
    ),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted([*_HOME_OF, "aio"])


def __getattr__(name: str) -> Any:
    if name == "aio":
        return import_module("plainsong.aio")
    if (home := _HOME_OF.get(name)) is None:
        raise AttributeError(f"module 'plainsong' has no attribute {name!r}")
    found = getattr(import_module(home), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME_OF, "aio"])
