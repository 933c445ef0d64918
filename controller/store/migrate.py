"""Migrations of the store's database, run from within the program.

A database is migrated in one transaction, under the lock of its data folder; a crash leaves the old schema or the new.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection

from controller.store.database import connect, failure, folder_of, parse
from controller.store.folder_lock import lock_folder
from controller.store.revision import Revision, needed, refuse_newer, require, require_current_on, revision_of

#: Found wherever the package ``migrations`` is: in the checkout or installed.
_SCRIPTS = "migrations:"


def upgrade(url: str) -> Revision:
    """Brings a database to the schema that this program needs; makes an embedded one that does not exist."""
    folder = folder_of(parse(url))
    lock = lock_folder(folder) if folder is not None else None
    try:
        with _connected(url) as connection:
            return upgrade_on(connection)
    finally:
        if lock is not None:
            lock.release()


def current(url: str) -> Revision:
    """Which schema a database has; changes nothing, and may be asked while a controller runs."""
    if folder_of(parse(url)) is not None and not Path(parse(url).database or "").exists():
        return Revision(installed=None, needed=needed())
    with _connected(url, read_only=True) as connection, connection.begin():
        return revision_of(connection)


def require_current(url: str) -> Revision:
    """Raises ``InvalidRequest`` unless the database has the schema that this program needs."""
    return require(current(url))


@contextmanager
def _connected(url: str, read_only: bool = False) -> Iterator[Connection]:
    parsed = parse(url)
    try:
        with connect(parsed, read_only=read_only) as connection:
            yield connection
    except Exception as error:
        raise failure(error, parsed) from error


def upgrade_on(connection: Connection) -> Revision:
    """Brings the open database to the schema that this program needs, in one transaction."""
    with connection.begin():
        revision = revision_of(connection)
        refuse_newer(revision)
        if not revision.is_current:
            config = _config()
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
    with connection.begin():
        return require_current_on(connection)


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", _SCRIPTS)
    return config
