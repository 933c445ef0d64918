"""The store on a database: SQLite in the data folder, or PostgreSQL."""

import uuid
from collections.abc import Callable, Sequence
from typing import TypeVar

from sqlalchemy import URL, Connection, insert, select, update

from controller.store import tables
from controller.store.changes import Change, Channel
from controller.store.database import folder_of, parse
from controller.store.folder_lock import FolderLock, lock_folder, take_over_folder
from controller.store.interface import Loaded, Reign
from controller.store.ledger import Ledger
from controller.store.reading import read
from controller.store.revision import require, revision_of
from controller.store.worker import Worker
from controller.store.writing import check_reign, write_compaction
from plainsong.failpoint import failpoint
from reconcile.errors import InvariantBroken
from reconcile.ids import Epoch, Seqno

T = TypeVar("T")


async def open_store(url: str, *, take_over: bool = False, migrate: bool = False) -> "SqlStore":
    """Opens the store of a database whose schema is current, or made so by ``migrate``.

    An SQLite database's folder is locked first: ``DataFolderLocked`` names who has it, and ``take_over`` ends that
    process. On PostgreSQL several stores may be open; each new reign fences the earlier ones.
    """
    parsed = parse(url)
    folder = folder_of(parsed)
    lock = None
    if folder is not None:
        lock = await take_over_folder(folder) if take_over else lock_folder(folder)
    store = SqlStore(parsed, lock)
    try:
        await store.prepare(migrate)
    except BaseException:
        await store.close()
        raise
    return store


class SqlStore:
    """One controller's store. Made by ``open_store``; used by the event loop that made it."""

    def __init__(self, url: URL, lock: FolderLock | None) -> None:
        self._lock = lock
        self._worker = Worker(url)
        self._epoch: Epoch | None = None
        self._ledger: Ledger | None = None
        self._closed = False

    async def prepare(self, migrate: bool) -> None:
        """Checks the schema, or brings it up to date."""

        def perform(connection: Connection) -> None:
            with connection.begin():
                revision = revision_of(connection)
            if migrate and not revision.is_current:
                # Only here: what migrates takes longer to load than the rest of a start.
                from controller.store.migrate import upgrade_on

                upgrade_on(connection)
            else:
                require(revision)

        await self._run(perform)

    async def open_reign(self, holder: str) -> Reign:
        if self._epoch is not None:
            raise InvariantBroken("a store was given a second reign")

        def perform(connection: Connection) -> tuple[Reign, Ledger]:
            with connection.begin():
                reign = _begin_reign(connection, holder)
                # In the same transaction: nobody else can have written since.
                return reign, Ledger(read(connection, reign.epoch, bodies=False))

        reign, self._ledger = await self._run(perform)
        self._epoch = self._worker.epoch = reign.epoch
        return reign

    async def load(self) -> Loaded:
        epoch = self._epoch

        def perform(connection: Connection) -> Loaded:
            with connection.begin():
                return read(connection, epoch)

        return await self._run(perform)

    async def commit(self, changes: Sequence[Change]) -> tuple[Seqno, ...]:
        changes = tuple(changes)
        if not self._worker.room.try_take():
            await self._worker.room.take()
        # From here to the queue without waiting: the ledger's order is the log's order.
        try:
            admitted = self._require_reign()[1].admit(changes)
        except BaseException:
            self._worker.room.give_back()
            raise
        await self._worker.append(admitted)
        return admitted.seqnos

    async def compact_log(self, cluster: str, channel: Channel, through: Seqno, reduced: Sequence[bytes]) -> None:
        epoch, ledger = self._require_reign()
        bodies = tuple(reduced)

        def perform(connection: Connection) -> None:
            with connection.begin():
                check_reign(connection, epoch)
                write_compaction(connection, cluster, channel, through, bodies)
                failpoint("compact-before-commit")
            failpoint("compact-after-commit")

        await self._run(perform, lambda: ledger.admit_compaction(cluster, channel, through, bodies))

    async def heartbeat(self) -> None:
        epoch, _ = self._require_reign()

        def perform(connection: Connection) -> None:
            with connection.begin():
                check_reign(connection, epoch, beat=True)

        await self._run(perform)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            await self._worker.close()
        finally:
            if self._lock is not None:
                self._lock.release()

    async def _run(self, perform: Callable[[Connection], T], admit: Callable[[], None] = lambda: None) -> T:
        await self._worker.room.take()
        try:
            self._require_open()
            admit()
        except BaseException:
            self._worker.room.give_back()
            raise
        return await self._worker.run(perform)

    def _require_open(self) -> None:
        if self._closed:
            raise InvariantBroken("the store was used after it was closed")

    def _require_reign(self) -> tuple[Epoch, Ledger]:
        self._require_open()
        if self._epoch is None or self._ledger is None:
            raise InvariantBroken("the store was used before its reign was opened")
        return self._epoch, self._ledger


def _begin_reign(connection: Connection, holder: str) -> Reign:
    before = connection.execute(select(tables.reign.c.epoch).with_for_update()).scalar_one()
    epoch = Epoch(before + 1)
    swap = update(tables.reign).where(tables.reign.c.epoch == before).values(epoch=epoch, holder=holder)
    if connection.execute(swap).rowcount != 1:
        raise InvariantBroken("the reign changed while it was locked")
    query = select(tables.meta.c.value).where(tables.meta.c.key == "deployment")
    deployment = connection.execute(query).scalar_one_or_none()
    if deployment is None:
        deployment = str(uuid.uuid4())
        connection.execute(insert(tables.meta).values(key="deployment", value=deployment))
    return Reign(epoch=epoch, deployment=deployment)
