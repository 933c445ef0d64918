"""A fresh place for each test."""

import asyncio
from pathlib import Path

import pytest

from tests.store.places import MemoryPlace, Place, PostgresPlace, SqlitePlace


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
