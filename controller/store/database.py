"""The one connection to the database, SQLite or PostgreSQL, as the store needs it."""

import os
import sqlite3
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from controller.store.bounds import CONNECT_S, LOCK_WAIT_MS, TRANSACTION_IDLE_MS
from reconcile.errors import InvalidRequest, InvariantBroken, PlainsongError, StorageFailed

DATABASE_NAME = "controller.db"


def sqlite_url(folder: Path) -> str:
    """Where a data folder keeps its embedded database."""
    return URL.create("sqlite", database=str(folder.absolute() / DATABASE_NAME)).render_as_string()


def parse(url: str) -> URL:
    """A URL that the store can use, or ``InvalidRequest``."""
    try:
        parsed = make_url(url)
        backend = parsed.get_backend_name()
    except ArgumentError as error:
        raise _unusable("it is not a URL") from error
    if backend == "sqlite":
        # A ? begins options, of which none is for the user to set; in a file's name it is written %3F.
        if parsed.database in (None, "", ":memory:") or "?" in url:
            raise _unusable("an embedded database is one plain file")
        return parsed.set(drivername="sqlite+pysqlite")
    if backend == "postgresql":
        return parsed.set(drivername="postgresql+psycopg")
    raise _unusable(f"{backend} is not supported")


def folder_of(url: URL) -> Path | None:
    """The data folder that must be locked; None for a server, which fences by itself."""
    return Path(url.database or "").absolute().parent if url.get_backend_name() == "sqlite" else None


def connect(url: URL, *, read_only: bool = False) -> Connection:
    """Opens the one connection; to be used in the calling thread only.

    With ``read_only`` an SQLite file is neither made, nor changed, nor checkpointed, so that a second process may look
    at it while its controller writes.
    """
    if url.get_backend_name() == "postgresql":
        return _postgres(url).connect()
    path = Path(url.database or "").absolute()
    return _sqlite(path, read_only).connect()


def _sqlite(path: Path, read_only: bool) -> Engine:
    new = not path.exists()

    def opened() -> sqlite3.Connection:
        mode = "?mode=ro" if read_only else ""
        connection = sqlite3.connect(path.as_uri() + mode, uri=True, isolation_level=None, cached_statements=256)
        try:
            if not read_only:
                _prepare_sqlite(connection)
                if new:
                    _sync_folder(path.parent)
        except BaseException:
            connection.close()
            raise
        return connection

    engine = create_engine("sqlite+pysqlite://", creator=opened, poolclass=NullPool)

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN" if read_only else "BEGIN IMMEDIATE")

    return engine


def _prepare_sqlite(connection: sqlite3.Connection) -> None:
    # Looked over before anything is written: a write into a damaged file makes it worse.
    found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if found != "ok":
        raise sqlite3.DatabaseError(found)
    mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    if mode != "wal":
        raise sqlite3.OperationalError(f"the journal mode is {mode} and cannot be wal here")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA fullfsync = ON")


def _sync_folder(folder: Path) -> None:
    """The database file was made just now; its name is durable only when its folder is."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _postgres(url: URL) -> Engine:
    settings = {
        # A stopped controller must not hold the reign's row for ever: the server ends its transaction.
        "idle_in_transaction_session_timeout": TRANSACTION_IDLE_MS,
        "lock_timeout": LOCK_WAIT_MS,
        # Whatever the role's default is: committed means durable.
        "synchronous_commit": "on",
        "client_encoding": "UTF8",
    }
    options = " ".join(f"-c {name}={value}" for name, value in settings.items())
    arguments: dict[str, Any] = {"connect_timeout": CONNECT_S, "options": options, "application_name": "plainsong"}
    engine = create_engine(url, poolclass=NullPool, connect_args=arguments)

    @event.listens_for(engine, "connect")
    def connected(connection: Any, _record: object) -> None:
        encoding = connection.info.parameter_status("server_encoding")
        if encoding != "UTF8":
            connection.close()
            raise InvalidRequest(
                "the database cannot hold every text",
                detail=f"its encoding is {encoding}",
                hint="make it with ENCODING 'UTF8'",
            )

    return engine


def failure(error: BaseException, url: URL) -> PlainsongError:
    """What an error of the database means to people."""
    if isinstance(error, PlainsongError):
        return error
    where = url.render_as_string(hide_password=True)
    if isinstance(error, IntegrityError):
        return InvariantBroken("the database refused what the ledger had admitted", detail=str(error.orig))
    cause = error.orig if isinstance(error, DBAPIError) else error
    if isinstance(error, SQLAlchemyError | sqlite3.Error | OSError):
        return StorageFailed("the database failed", detail=f"{where}: {_first_line(cause)}", hint=_hint(cause))
    return InvariantBroken("the store failed", detail=f"{type(error).__name__}: {error}")


def _hint(cause: BaseException | None) -> str:
    """What to do, by what SQLite or the system calls the failure."""
    said = str(cause).lower()
    if "not a database" in said or "malformed" in said or "damaged" in said or "corrupt" in said or "***" in said:
        return "the file is damaged; restore it from a backup, and keep it for a look"
    if "full" in said or "no space" in said:
        return "make room on the disk, then start again"
    if "readonly" in said or "read-only" in said or "unable to open" in said or "permission" in said:
        return "give the right to write there, or another place"
    return "nothing that was not acknowledged is promised; see to the disk or the server, then start again"


def _first_line(cause: BaseException | None) -> str:
    return (str(cause).strip().splitlines() or [type(cause).__name__])[0]


def _unusable(why: str) -> InvalidRequest:
    return InvalidRequest(
        "the database URL cannot be used",
        detail=why,
        hint="write sqlite:////folder/controller.db or postgresql+psycopg://user@host/database",
    )
