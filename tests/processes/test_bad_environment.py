"""Disks, folders and databases that cannot be used: one clear line, exit code 1, and nothing made worse."""

import os
import re
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

import plainsong
from controller.store.database import DATABASE_NAME
from controller.store.folder_lock import LOCK_NAME
from tests.processes.deployment import Deployment, Program, deployed
from tests.processes.source_models import held
from tests.processes.waiting import until

#: How a line of the log begins, other than the one line that says what is wrong.
LOGGED = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+ (INFO|WARNING) ")


def story(program: Program, log: Path) -> str:
    """The one line with which it ends; its exit code is 1, and no traceback is shown."""
    assert program.wait() == 1, log.read_text()
    (said,) = [line for line in log.read_text().splitlines() if not LOGGED.match(line)]
    return said


def refusal(deployment: Deployment, data: Path, *options: str) -> str:
    """Why a controller does not start on this data folder."""
    log = deployment.folder / f"controller-{len(deployment.programs)}.log"
    said = story(deployment.launch(*options, data=data), log)
    assert said.startswith("plainsong controller: ")
    return said


def contents(folder: Path) -> dict[str, bytes]:
    """Every file, to the byte, but for the lock, whose contents say who has it now."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != LOCK_NAME)
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data folder of a controller that was stopped in order; it holds a table."""
    with deployed(tmp_path_factory.mktemp("used"), "--stop-replicas") as deployment:
        deployment.start()
        with deployment.client() as client:
            client.create_cluster("main", replicas=1)
            client.create_table("t", {"id": "bigint"})
            client.insert("t", [{"id": 1}])
        assert deployment.controller is not None
        deployment.controller.process.terminate()
        assert deployment.controller.wait() == 0
    return deployment.data


@pytest.fixture
def used(tmp_path: Path, template: Path) -> Iterator[Deployment]:
    """A deployment that was used and stopped."""
    with deployed(tmp_path) as deployment:
        shutil.copytree(template, deployment.data)
        yield deployment


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MB."""
    point = tmp_path / "disk"
    point.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(point)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("a full or read-only disk needs the right to mount one")
    yield point
    subprocess.run(["umount", "-l", str(point)], check=True)


def filled(disk: Path, leave: int = 0) -> Path:
    """Fills a disk but for ``leave`` bytes; removing the file that it returns makes room again."""
    filling = disk / "filling"
    with filling.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(b"\0" * 4096):
            pass
    if leave:
        os.truncate(filling, filling.stat().st_size - leave)
    return filling


# --- folders ----------------------------------------------------------------------------------------------


def test_a_file_is_not_a_data_folder(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"mine")
    with deployed(tmp_path) as deployment:
        for folder in (deployment.data, deployment.data / "below"):
            assert f"cannot use {folder} as a data folder" in refusal(deployment, folder)

        assert deployment.data.read_bytes() == b"mine"


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    with deployed(tmp_path) as deployment:
        said = refusal(deployment, Path("/proc/plainsong"))

    assert "cannot use /proc/plainsong as a data folder" in said
    assert "hint: name another with --data" in said


@pytest.mark.parametrize("before", ["nothing", "a used folder"])
def test_a_read_only_disk_is_refused(used: Deployment, small_disk: Path, before: str) -> None:
    folder = small_disk / "data"
    if before == "a used folder":
        shutil.copytree(used.data, folder)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    was = contents(small_disk)

    said = refusal(used, folder)

    assert "Read-only file system" in said
    assert contents(small_disk) == was


# --- databases --------------------------------------------------------------------------------------------


def overwritten(database: Path, at: int, with_: bytes) -> None:
    with database.open("r+b") as file:
        file.seek(at)
        file.write(with_)


def a_folder(database: Path) -> None:
    database.unlink()
    database.mkdir()


def of_a_newer_version(database: Path) -> None:
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
        connection.commit()


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "garbage": (lambda database: database.write_bytes(b"no rows, but words " * 999), "restore it from a backup"),
    "a broken page": (lambda database: overwritten(database, 8192, b"\xa5" * 8192), "restore it from a backup"),
    "a missing end": (lambda database: os.truncate(database, 20_000), "restore it from a backup"),
    "a folder": (a_folder, "unable to open"),
    "a newer version": (of_a_newer_version, "was made by a newer version; it has revision 9999"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_database_that_cannot_be_used_is_refused_and_left_as_it_is(used: Deployment, damage: str) -> None:
    make, why = DAMAGES[damage]
    make(used.data / DATABASE_NAME)
    was = contents(used.data)

    said = refusal(used, used.data)

    assert why in said
    assert "hint: " in said
    assert contents(used.data) == was


def dumped(database: Path) -> list[str]:
    """All rows but the one that says who reigns."""
    with closing(sqlite3.connect(database)) as connection:
        return [line for line in connection.iterdump() if 'INTO "reign"' not in line]


def test_the_database_of_another_program_is_left_to_it(tmp_path: Path) -> None:
    with deployed(tmp_path) as deployment:
        deployment.data.mkdir()
        with closing(sqlite3.connect(deployment.data / DATABASE_NAME)) as connection:
            connection.execute("CREATE TABLE songs (title TEXT)")
            connection.commit()
        was = dumped(deployment.data / DATABASE_NAME)

        said = refusal(deployment, deployment.data)

        assert "belongs to another program" in said
        assert dumped(deployment.data / DATABASE_NAME) == was


def test_a_database_that_contradicts_itself_is_refused(used: Deployment) -> None:
    database = used.data / DATABASE_NAME
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("UPDATE reign SET next_seqno = 1")
        connection.commit()
    was = dumped(database)

    said = refusal(used, used.data)

    assert "contradicts itself" in said
    assert dumped(database) == was


def test_a_database_url_that_is_none_is_refused_without_its_password(tmp_path: Path) -> None:
    with deployed(tmp_path, database="postgresql://user:geheim@127.0.0.1:1/plainsong") as deployment:
        said = refusal(deployment, deployment.data)

        assert "127.0.0.1" in said
        assert "geheim" not in deployment.logs()


def test_an_empty_database_is_not_made_ready_unasked(tmp_path: Path) -> None:
    with deployed(tmp_path) as deployment:
        log = tmp_path / "unasked.log"
        program = Program("controller", ["--data", str(deployment.data), "--listen", "127.0.0.1:0"], log)
        deployment.programs.append(program)

        assert "the database is empty" in story(program, log)


# --- full disks -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("before", ["nothing", "a used folder"])
def test_a_full_disk_is_said_to_be_full(used: Deployment, small_disk: Path, before: str) -> None:
    folder = small_disk / "data"
    if before == "a used folder":
        shutil.copytree(used.data, folder)
    filling = filled(small_disk)
    was = contents(folder)

    said = refusal(used, folder)

    assert re.search("No space left|disk is full|disk I/O error", said)
    assert {name: body for name, body in contents(folder).items() if name in was} == was
    filling.unlink()
    used.start(data=folder)
    with used.client() as client:
        assert client.status().objects == () if before == "nothing" else client.status().objects[0].name == "t"


def test_what_was_promised_before_the_disk_was_full_is_there_after_making_room(
    tmp_path: Path, small_disk: Path
) -> None:
    folder = small_disk / "data"
    with deployed(tmp_path) as deployment:
        program = deployment.start(data=folder)
        with deployment.client() as client:
            promised = views_until_it_fails(client, filled_but_for(small_disk))
        said = story(program, tmp_path / "controller-0.log")
        (small_disk / "filling").unlink()
        deployment.start(data=folder)
        with deployment.client() as client:
            found = {each.name for each in client.objects()} - {"t"}

    assert said.startswith("plainsong controller: the database failed; ")
    assert "hint: make room on the disk, then start again" in said
    assert promised <= found
    # The one that was under way when it failed may be there or not; nobody was told.
    assert len(found - promised) <= 1


def filled_but_for(disk: Path) -> Callable[[], object]:
    return lambda: filled(disk, leave=64 * 1024)


def views_until_it_fails(client: plainsong.Client, fill: Callable[[], object]) -> set[str]:
    """The views that were acknowledged before the controller ended."""
    client.create_cluster("main", replicas=0)
    client.create_table("t", {"id": "bigint", "text": "string"})
    fill()
    promised: set[str] = set()
    filling = "x" * 10_000
    while True:
        name = f"v{len(promised)}"
        try:
            client.create_view(name, f"SELECT id FROM t WHERE text = '{filling}'", timeout=2)
        except (plainsong.Unavailable, plainsong.StorageFailed, plainsong.TimedOut):
            return promised
        promised.add(name)


def test_tables_and_sources_go_on_by_themselves_once_there_is_room_for_their_shards(
    tmp_path: Path, small_disk: Path
) -> None:
    with deployed(tmp_path, "--shards", str(small_disk / "shards")) as deployment:
        deployment.start()
        with deployment.client() as client:
            client.create_cluster("main", replicas=1)
            client.create_table("t", {"id": "bigint", "text": "string"})
            client.insert("t", [{"id": 1, "text": "before"}])
            client.create_source("made", "generator", options={"rate": "200"})
            until(client, lambda _: bool(held(client, "made")))
            pid = deployment.replica_pid(1)

            filling = filled(small_disk)
            with pytest.raises(plainsong.TimedOut):
                client.insert("t", [{"id": 2, "text": "x" * 100_000}], timeout=1, idempotency_key="mine")
            status = until(client, lambda now: all(error_of(now, name) for name in ("t", "made")))
            filling.unlink()
            client.insert("t", [{"id": 2, "text": "x" * 100_000}], idempotency_key="mine")
            until(client, lambda now: not any(each.error for each in now.objects))
            before = len(held(client, "made"))
            until(client, lambda _: len(held(client, "made")) > before)

            assert "No space left" in error_of(status, "t")
            assert sorted(row.id for row in client.query("SELECT id FROM t")) == [1, 2]
            numbers = [int(str(row[0])) for row in held(client, "made").elements()]
            assert sorted(numbers) == list(range(min(numbers), min(numbers) + len(numbers)))
            assert deployment.replica_pid(1) == pid
            assert client.clusters()[0].replicas[0].incarnation == 1


def error_of(status: plainsong.Status, name: str) -> str:
    return next(each.error for each in status.objects if each.name == name)


# --- instances --------------------------------------------------------------------------------------------


def instance_refusal(deployment: Deployment, data: Path, shards: Path) -> str:
    log = deployment.folder / f"instance-{len(deployment.programs)}.log"
    arguments = ["--data", str(data), "--shards", str(shards), "--epoch", "3"]
    program = Program("instance", arguments, log)
    deployment.programs.append(program)
    said = story(program, log)
    assert said.startswith("plainsong instance: ")
    return said


def test_an_instance_refuses_a_folder_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"mine")
    with deployed(tmp_path) as deployment:
        for folder in (tmp_path / "file", Path("/proc/plainsong")):
            said = instance_refusal(deployment, folder, tmp_path / "shards")
            assert f"cannot use {folder} as a data folder" in said
        said = instance_refusal(deployment, tmp_path / "own", tmp_path / "file")

    assert f"cannot use {tmp_path / 'file'} as a folder of shards" in said
    assert (tmp_path / "file").read_bytes() == b"mine"


def test_an_instance_refuses_a_damaged_epoch(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    with deployed(tmp_path) as deployment:
        for damage in (b"many\n", b"", b"\xff\xfe", b"-1", b"9" * 5_000):
            (tmp_path / "own" / "epoch").write_bytes(damage)

            said = instance_refusal(deployment, tmp_path / "own", tmp_path / "shards")

            assert "is damaged" in said
            assert "hint: remove the instance's data folder" in said
            assert (tmp_path / "own" / "epoch").read_bytes() == damage


def test_an_instance_does_not_start_on_a_full_disk(tmp_path: Path, small_disk: Path) -> None:
    own = small_disk / "own"
    own.mkdir()
    (own / "epoch").write_text("2\n")
    filled(small_disk)
    with deployed(tmp_path) as deployment:
        said = instance_refusal(deployment, own, tmp_path / "shards")

    assert "cannot make an epoch durable" in said
    assert "No space left" in said
    assert (own / "epoch").read_text() == "2\n"
