"""Schemas: made, recognised, refused when they are not ours to use."""

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, text

from controller.store.database import DATABASE_NAME, sqlite_url
from controller.store.migrate import current, require_current, upgrade
from controller.store.revision import Revision, known
from controller.store.sql import open_store
from controller.store.tables import metadata
from reconcile.errors import InvalidRequest


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of each kind."""
    if request.param == "sqlite":
        return sqlite_url(tmp_path)
    found: str = request.getfixturevalue("postgres_url")
    return found


def _execute(url: str, statement: str) -> None:
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text(statement))
    engine.dispose()


def test_an_empty_database_is_made_ready(url: str) -> None:
    before = current(url)
    with pytest.raises(InvalidRequest, match="run plainsong db upgrade"):
        require_current(url)

    upgraded = upgrade(url)

    assert before == Revision(installed=None, needed="0002")
    assert upgraded == current(url) == require_current(url) == Revision(installed="0002", needed="0002")
    assert upgrade(url) == upgraded


def test_a_database_of_the_version_before_is_brought_up_to_date_with_what_it_holds(url: str) -> None:
    upgrade(url)
    _execute(url, "DROP TABLE functions")
    _execute(url, "UPDATE alembic_version SET version_num = '0001'")
    _execute(url, "INSERT INTO catalog VALUES ('u1', 'v', 'view', '{}')")
    with pytest.raises(InvalidRequest, match="run plainsong db upgrade"):
        require_current(url)

    upgraded = upgrade(url)

    engine = create_engine(url)
    with engine.connect() as connection:
        kept = connection.execute(text("SELECT name FROM catalog")).scalars().all()
        functions = connection.execute(text("SELECT name FROM functions")).scalars().all()
    engine.dispose()
    assert upgraded.is_current
    assert (kept, functions) == (["v"], [])


def test_the_migrations_make_the_tables_that_the_program_uses(url: str) -> None:
    upgrade(url)
    engine = create_engine(url)

    with engine.connect() as connection:
        differences = compare_metadata(MigrationContext.configure(connection, opts={"compare_type": True}), metadata)

    engine.dispose()
    assert differences == []


def test_the_files_of_migrations_are_named_by_their_revisions_in_order() -> None:
    config = Config()
    config.set_main_option("script_location", "migrations:")

    scripts = [script.revision for script in ScriptDirectory.from_config(config).walk_revisions()]

    assert list(known()) == scripts[::-1]


def test_a_start_with_a_current_schema_does_not_load_what_migrates(tmp_path: Path) -> None:
    upgrade(sqlite_url(tmp_path))
    start = (
        "import asyncio, sys\n"
        "import controller.__main__\n"
        "from controller.store.sql import open_store\n"
        "store = asyncio.run(open_store(sys.argv[1], migrate=True))\n"
        "sys.exit('alembic' in sys.modules)"
    )

    subprocess.run([sys.executable, "-P", "-c", start, sqlite_url(tmp_path)], check=True, timeout=60)


def test_looking_does_not_make_a_database(tmp_path: Path) -> None:
    current(sqlite_url(tmp_path / "folder"))

    assert list(tmp_path.iterdir()) == []


@pytest.mark.asyncio
async def test_a_newer_schema_is_refused_and_left_as_it_is(url: str) -> None:
    upgrade(url)
    _execute(url, "UPDATE alembic_version SET version_num = '9999'")

    for refused in (upgrade, require_current):
        with pytest.raises(InvalidRequest, match="made by a newer version; it has revision 9999"):
            refused(url)
    for migrate in (False, True):
        with pytest.raises(InvalidRequest, match="made by a newer version"):
            await open_store(url, migrate=migrate)

    assert current(url).installed == "9999"


@pytest.mark.asyncio
async def test_a_store_is_not_opened_on_a_stale_schema(url: str) -> None:
    with pytest.raises(InvalidRequest, match=r"the database is empty.*hint: run plainsong db upgrade"):
        await open_store(url)


@pytest.mark.asyncio
async def test_another_programs_database_is_refused_and_left_as_it_is(url: str) -> None:
    _execute(url, "CREATE TABLE theirs (x INTEGER)")

    for migrate in (False, True):
        with pytest.raises(InvalidRequest, match="the database belongs to another program"):
            await open_store(url, migrate=migrate)
    with pytest.raises(InvalidRequest, match="the database belongs to another program"):
        upgrade(url)

    _execute(url, "INSERT INTO theirs VALUES (1)")
    with pytest.raises(InvalidRequest, match="the database belongs to another program"):
        current(url)


def test_a_migration_that_fails_half_way_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tables of a first migration are made in one transaction, also on SQLite."""
    from alembic.operations import Operations

    real = Operations.create_table

    def failing(self: Operations, name: str, *columns: object, **settings: object) -> object:
        if name == "replicas":
            raise OSError("no more")
        return real(self, name, *columns, **settings)  # type: ignore[arg-type]  # passed on as they came

    monkeypatch.setattr(Operations, "create_table", failing)
    with pytest.raises(Exception, match="no more"):
        upgrade(sqlite_url(tmp_path))
    monkeypatch.undo()

    connection = sqlite3.connect(tmp_path / DATABASE_NAME)
    assert connection.execute("SELECT name FROM sqlite_master").fetchall() == []
    connection.close()
    assert upgrade(sqlite_url(tmp_path)).is_current
