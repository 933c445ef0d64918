"""Places: somewhere durable on which a store can be opened again and again."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from controller.store.changes import (
    Change,
    Channel,
    ClusterPut,
    IdsAllotted,
    LogAppended,
    ObjectPut,
    ReplicaIdsAllotted,
)
from controller.store.database import sqlite_url
from controller.store.interface import Loaded, Store
from controller.store.memory import MemoryDisk, MemoryStore
from controller.store.sql import open_store
from reconcile.ids import GlobalId, Seqno


class Place(Protocol):
    """What outlives the stores opened on it."""

    async def open(self) -> Store: ...


class MemoryPlace:
    """A disk in memory."""

    def __init__(self) -> None:
        self._disk = MemoryDisk()

    async def open(self) -> Store:
        return MemoryStore(self._disk)


class SqlitePlace:
    """A data folder; with a ``template`` it starts as a copy of that one, which saves the migration."""

    def __init__(self, folder: Path, template: Path | None = None) -> None:
        self.folder = folder
        if template is not None:
            shutil.copytree(template, folder)

    @property
    def url(self) -> str:
        return sqlite_url(self.folder)

    async def open(self) -> Store:
        return await open_store(self.url, migrate=True)


class PostgresPlace:
    """A database of a real server."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def open(self) -> Store:
        return await open_store(self.url, migrate=True)


async def reigning(place: Place, holder: str = "test") -> Store:
    """A store that reigns."""
    store = await place.open()
    await store.open_reign(holder)
    return store


async def seen_by_the_next(place: Place) -> Loaded:
    """Everything that a later controller finds."""
    store = await reigning(place, "next")
    try:
        return await store.load()
    finally:
        await store.close()


def beginning(*names: str) -> list[Change]:
    """The changes by which clusters come into being, and ids enough for every test."""
    allotted: list[Change] = [
        IdsAllotted(kind="u", next=1_000),
        IdsAllotted(kind="s", next=1_000),
        ReplicaIdsAllotted(next=1_000),
    ]
    return allotted + [ClusterPut(name=name, definition="{}") for name in names]


def command(body: bytes, cluster: str = "main", channel: Channel = Channel.COMPUTE) -> LogAppended:
    return LogAppended(cluster=cluster, channel=channel, body=body)


def view(number: int, name: str, definition: str = "{}") -> ObjectPut:
    return ObjectPut(id=GlobalId("u", number), name=name, kind="view", definition=definition)


def tail_of(loaded: Loaded, cluster: str = "main", channel: Channel = Channel.COMPUTE) -> Sequence[tuple[Seqno, bytes]]:
    return [(record.seqno, record.body) for record in loaded.logs[cluster, channel].tail]
