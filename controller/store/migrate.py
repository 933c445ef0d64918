"""Migrations of the store's database, run from within the program.

A database is migrated in one transaction, under the lock of its data folder; a crash leaves the old schema or the new.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection, inspect

from controller.store.database import connect, failure, folder_of, parse
from controller.store.folder_lock import lock_folder
from reconcile.errors import InvalidRequest

#: Found wherever the package ``migrations`` is: in the checkout or installed.
_SCRIPTS = "migrations:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """Which schema a database has, and which this program needs."""

    #: None: the database is empty or does not exist.
    installed: str | None
    needed: str

    @property
    def is_current(self) -> bool:
        return self.installed == self.needed


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
        return Revision(installed=None, needed=_needed())
    with _connected(url, read_only=True) as connection, connection.begin():
        return revision_of(connection)


def require_current(url: str) -> Revision:
    """Raises ``InvalidRequest`` unless the database has the schema that this program needs."""
    return _require(current(url))


@contextmanager
def _connected(url: str, read_only: bool = False) -> Iterator[Connection]:
    parsed = parse(url)
    try:
        with connect(parsed, read_only=read_only) as connection:
            yield connection
    except Exception as error:
        raise failure(error, parsed) from error


def revision_of(connection: Connection) -> Revision:
    """The schema of an open database; raises ``InvalidRequest`` if it is no database of ours."""
    installed = MigrationContext.configure(connection).get_current_revision()
    if installed is None and inspect(connection).get_table_names():
        raise InvalidRequest(
            "the database belongs to another program",
            detail="it has tables, but none that says which schema of plainsong it has",
            hint="name an empty database",
        )
    return Revision(installed=installed, needed=_needed())


def require_current_on(connection: Connection) -> Revision:
    """Raises ``InvalidRequest`` unless the open database has the schema that this program needs."""
    return _require(revision_of(connection))


def _require(revision: Revision) -> Revision:
    if revision.is_current:
        return revision
    _refuse_newer(revision)
    raise InvalidRequest(
        "the database has an old schema" if revision.installed else "the database is empty",
        detail=f"it has revision {revision.installed or 'none'}, this version needs {revision.needed}",
        hint="run plainsong db upgrade",
    )


def upgrade_on(connection: Connection) -> Revision:
    """Brings the open database to the schema that this program needs, in one transaction."""
    with connection.begin():
        revision = revision_of(connection)
        _refuse_newer(revision)
        if not revision.is_current:
            config = _config()
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
    with connection.begin():
        return require_current_on(connection)


def _refuse_newer(revision: Revision) -> None:
    if revision.installed is None:
        return
    known = {script.revision for script in _scripts().walk_revisions()}
    if revision.installed not in known:
        raise InvalidRequest(
            "the database was made by a newer version",
            detail=f"it has revision {revision.installed}, this version knows no later one than {revision.needed}",
            hint="install that version of plainsong",
        )


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", _SCRIPTS)
    return config


def _scripts() -> ScriptDirectory:
    return ScriptDirectory.from_config(_config())


def _needed() -> str:
    head = _scripts().get_current_head()
    if head is None:
        raise CommandError("no migrations are installed")
    return head
