"""A real PostgreSQL for the session, and a fresh place for each test."""

import asyncio
import os
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import make_url

from tests.store.places import MemoryPlace, Place, PostgresPlace, SqlitePlace

_numbers = count(1)


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URI of a server that lives as long as the session."""
    with pytest.MonkeyPatch.context() as patch:
        if "XDG_RUNTIME_DIR" not in os.environ:
            # pgserver keeps a lock file there, and warns when nobody says where that is.
            patch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("runtime")))
        from pgserver.postgres_server import get_server

    # Not below pytest's folder: a server that root starts runs as another user, and every pytest that starts meanwhile
    # closes that folder to others again.
    with tempfile.TemporaryDirectory(prefix="plainsong-postgres-", ignore_cleanup_errors=True) as folder:
        server = get_server(folder, cleanup_mode="delete")
        yield server.get_uri()
        server.cleanup()


@pytest.fixture
def postgres_url(postgres: str) -> str:
    """A new, empty database."""
    name = f"plainsong_{next(_numbers)}"
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return make_url(postgres).set(drivername="postgresql+psycopg", database=name).render_as_string(hide_password=False)


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder that was migrated and never reigned over."""
    folder = tmp_path_factory.mktemp("template") / "folder"

    async def make() -> None:
        await (await SqlitePlace(folder).open()).close()

    asyncio.run(make())
    return folder


@pytest.fixture
def sqlite_place(tmp_path: Path, template: Path) -> SqlitePlace:
    return SqlitePlace(tmp_path / "folder", template)


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def place(request: pytest.FixtureRequest) -> Place:
    """Each of the three in turn; all must keep the same promises."""
    if request.param == "memory":
        return MemoryPlace()
    if request.param == "sqlite":
        found: SqlitePlace = request.getfixturevalue("sqlite_place")
        return found
    return PostgresPlace(request.getfixturevalue("postgres_url"))


@pytest.fixture(params=["memory", "postgres"])
def shared_place(request: pytest.FixtureRequest) -> Place:
    """Those on which two controllers can be at once; the folder of the third is locked."""
    if request.param == "memory":
        return MemoryPlace()
    return PostgresPlace(request.getfixturevalue("postgres_url"))
