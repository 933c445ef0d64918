"""Full disks, read-only folders, damaged files, lost servers: a clear error, and nothing made worse."""

import os
import shutil
import signal
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import make_url

from controller.store.changes import Channel
from controller.store.database import DATABASE_NAME
from controller.store.interface import Store
from controller.store.migrate import current
from controller.store.sql import open_store
from reconcile.errors import InvalidRequest, StorageFailed
from reconcile.ids import Seqno
from tests.store.places import PostgresPlace, SqlitePlace, beginning, command, reigning, seen_by_the_next, tail_of
from tests.store.programs import started

pytestmark = pytest.mark.asyncio


async def _filled(place: SqlitePlace) -> None:
    store = await reigning(place)
    await store.commit([*beginning("main"), *(command(b"%d" % n * 1_000) for n in range(300))])
    await store.close()


def _contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix == ".db"}


DAMAGES: dict[str, Callable[[Path], object]] = {
    "another file": lambda file: file.write_bytes(b"these are no rows, but words " * 500),
    "a broken header": lambda file: _overwrite(file, 0, b"\xff" * 100),
    "a broken page": lambda file: _overwrite(file, 3 * 4096, b"\xa5" * 20 * 4096),
    "a missing end": lambda file: os.truncate(file, file.stat().st_size // 2),
}


def _overwrite(file: Path, at: int, text: bytes) -> None:
    with file.open("r+b") as handle:
        handle.seek(at)
        handle.write(text)


@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_damaged_database_is_refused_and_left_as_it_is(sqlite_place: SqlitePlace, damage: str) -> None:
    await _filled(sqlite_place)
    DAMAGES[damage](sqlite_place.folder / DATABASE_NAME)
    before = _contents(sqlite_place.folder)

    for migrate in (False, True):
        with pytest.raises(StorageFailed) as failure:
            await open_store(sqlite_place.url, migrate=migrate)

        assert failure.value.message == "the database failed"
        assert "restore it from a backup" in failure.value.hint
        assert DATABASE_NAME in failure.value.detail
    assert _contents(sqlite_place.folder) == before


async def test_rows_that_contradict_each_other_are_damage_too(sqlite_place: SqlitePlace) -> None:
    await _filled(sqlite_place)
    _sql(sqlite_place, "UPDATE reign SET next_seqno = 7")

    store = await sqlite_place.open()
    with pytest.raises(StorageFailed, match="contradicts itself; the compute log of main is out of order"):
        await store.load()
    with pytest.raises(StorageFailed, match="contradicts itself"):
        await store.open_reign("x")
    await store.close()


async def test_a_folder_where_the_database_should_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / DATABASE_NAME).mkdir()

    with pytest.raises(StorageFailed, match="unable to open"):
        await open_store(SqlitePlace(tmp_path).url, migrate=True)


async def test_a_file_where_the_folder_should_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")

    with pytest.raises(StorageFailed, match="the data folder cannot be written"):
        await open_store(SqlitePlace(tmp_path / "file").url, migrate=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 400 kB."""
    point = tmp_path / "disk"
    point.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(point)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("needs the right to mount")
    yield point
    subprocess.run(["umount", "-l", str(point)], check=True)


async def test_a_read_only_folder_is_refused_and_left_as_it_is(small_disk: Path, template: Path) -> None:
    place = SqlitePlace(small_disk / "folder", template)
    before = _contents(place.folder)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)

    with pytest.raises(StorageFailed, match="the data folder cannot be written") as failure:
        await open_store(place.url, migrate=True)

    assert "Read-only file system" in failure.value.detail
    assert _contents(place.folder) == before


async def test_what_was_promised_on_a_full_disk_is_there_after_making_room(small_disk: Path, tmp_path: Path) -> None:
    with started("fill", small_disk / "folder") as process:
        output, _ = process.communicate(timeout=60)

    first, second = output.splitlines()
    assert process.returncode == 0, output
    promised = int(first.split()[0])
    assert "StorageFailed: the database failed" in first
    assert "make room on the disk" in first
    assert second == first
    shutil.copytree(small_disk / "folder", tmp_path / "roomier")
    assert len(tail_of(await seen_by_the_next(SqlitePlace(tmp_path / "roomier")))) == promised


async def test_a_file_that_may_not_grow_is_a_failure_of_the_disk(tmp_path: Path) -> None:
    with started("fill", tmp_path, FILE_BYTES_MAX="400000") as process:
        output, _ = process.communicate(timeout=60)

    first, second = output.splitlines()
    assert process.returncode == 0, output
    assert "StorageFailed: the database failed" in first
    assert second == first
    assert len(tail_of(await seen_by_the_next(SqlitePlace(tmp_path)))) == int(first.split()[0])


async def test_a_lost_server_ends_the_store_for_ever(postgres: str, postgres_url: str) -> None:
    place = PostgresPlace(postgres_url)
    store = await reigning(place)
    await store.commit([*beginning("main"), command(b"1")])
    _end_connections(postgres, postgres_url)

    await _everything_fails(store)

    await store.close()
    assert tail_of(await seen_by_the_next(place)) == [(1, b"1")]


async def test_a_server_that_is_not_there_is_a_clear_failure() -> None:
    with pytest.raises(StorageFailed, match=r"postgresql\+psycopg://me:\*\*\*@127.0.0.1:1/x") as failure:
        await open_store("postgresql://me:secret@127.0.0.1:1/x")

    assert "secret" not in str(failure.value)


async def test_a_successor_is_not_held_up_by_a_stopped_controller(postgres_url: str) -> None:
    """Whatever it was in the middle of: the server ends the transaction of one that stands still."""
    place = PostgresPlace(postgres_url)
    await (await place.open()).close()
    plain = make_url(postgres_url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(plain, options="-c idle_in_transaction_session_timeout=300") as stopped:
        stopped.execute("SELECT * FROM reign FOR UPDATE")

        store = await reigning(place)

        with pytest.raises(psycopg.errors.IdleInTransactionSessionTimeout):
            stopped.execute("SELECT 1")
    await store.commit(beginning("main"))
    await store.close()


@pytest.mark.parametrize(
    "url",
    ["", "nonsense", "mysql://x/y", "sqlite://", "sqlite:///:memory:", "sqlite:///x?mode=ro", "sqlite:///a?/b.db"],
)
async def test_a_url_that_cannot_be_used_is_the_users_mistake(url: str) -> None:
    with pytest.raises(InvalidRequest, match="the database URL cannot be used"):
        await open_store(url)


async def test_looking_at_the_schema_of_a_killed_controllers_database_changes_nothing(tmp_path: Path) -> None:
    with started("hold", tmp_path) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGKILL)
    before = _contents(tmp_path)

    assert current(SqlitePlace(tmp_path).url).is_current

    assert _contents(tmp_path) == before


async def _everything_fails(store: Store) -> None:
    for _ in range(2):
        with pytest.raises(StorageFailed):
            await store.commit([command(b"2")])
        with pytest.raises(StorageFailed):
            await store.load()
        with pytest.raises(StorageFailed):
            await store.heartbeat()
        with pytest.raises(StorageFailed):
            await store.compact_log("main", Channel.COMPUTE, Seqno(1), [])


def _end_connections(postgres: str, url: str) -> None:
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (make_url(url).database,)
        )


def _sql(place: SqlitePlace, statement: str) -> None:
    connection = sqlite3.connect(place.folder / DATABASE_NAME)
    connection.execute(statement)
    connection.commit()
    connection.close()
