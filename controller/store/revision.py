"""Revisions of the store's schema: which one a database has, and which this program needs.

Alembic is not asked, because loading it takes longer than the rest of a start; it is there to migrate.
"""

import re
from dataclasses import dataclass
from importlib import resources

from sqlalchemy import Connection, column, inspect, select, table

from reconcile.errors import InvalidRequest

#: The table in which Alembic notes what it did.
_NOTED = table("alembic_version", column("version_num"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """Which schema a database has, and which this program needs."""

    #: None: the database is empty or does not exist.
    installed: str | None
    needed: str

    @property
    def is_current(self) -> bool:
        return self.installed == self.needed


def known() -> tuple[str, ...]:
    """Every revision that this program has, earliest first; the files of migrations are named by them."""
    names = (each.name for each in resources.files("migrations.versions").iterdir())
    return tuple(sorted(match[1] for name in names if (match := re.fullmatch(r"r(\d+)_\w+\.py", name))))


def needed() -> str:
    return known()[-1]


def revision_of(connection: Connection) -> Revision:
    """The schema of an open database; raises ``InvalidRequest`` if it is no database of ours."""
    tables = inspect(connection).get_table_names()
    installed = connection.scalar(select(_NOTED.c.version_num)) if _NOTED.name in tables else None
    if installed is None and tables:
        raise InvalidRequest(
            "the database belongs to another program",
            detail="it has tables, but none that says which schema of plainsong it has",
            hint="name an empty database",
        )
    return Revision(installed=installed, needed=needed())


def require_current_on(connection: Connection) -> Revision:
    """Raises ``InvalidRequest`` unless the open database has the schema that this program needs."""
    return require(revision_of(connection))


def require(revision: Revision) -> Revision:
    if revision.is_current:
        return revision
    refuse_newer(revision)
    raise InvalidRequest(
        "the database has an old schema" if revision.installed else "the database is empty",
        detail=f"it has revision {revision.installed or 'none'}, this version needs {revision.needed}",
        hint="run plainsong db upgrade",
    )


def refuse_newer(revision: Revision) -> None:
    if revision.installed is not None and revision.installed not in known():
        raise InvalidRequest(
            "the database was made by a newer version",
            detail=f"it has revision {revision.installed}, this version knows no later one than {revision.needed}",
            hint="install that version of plainsong",
        )
