"""One controller per data folder: the second is told who has it, or ends the first if it is asked to."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from controller.store.folder_lock import LOCK_NAME, DataFolderLocked, FolderLock, lock_folder, take_over_folder
from controller.store.migrate import current, upgrade
from controller.store.sql import open_store
from tests.store.places import SqlitePlace
from tests.store.programs import started

pytestmark = pytest.mark.asyncio


def _waits(process: "subprocess.Popen[str]") -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "holding\n"


def _signed(pid: int, began: str, host: str | None = None) -> str:
    return json.dumps({"pid": pid, "host": host or socket.gethostname(), "began": began})


async def test_a_second_controller_is_refused_by_the_name_of_the_first(tmp_path: Path) -> None:
    with started("hold", tmp_path) as process:
        _waits(process)

        with pytest.raises(DataFolderLocked) as refusal:
            await open_store(SqlitePlace(tmp_path).url)
        with pytest.raises(DataFolderLocked):
            upgrade(SqlitePlace(tmp_path).url)

        assert f"process {process.pid} on this machine ({socket.gethostname()})" in refusal.value.detail
        assert refusal.value.hint == "stop it, or start with --take-over"
        assert process.poll() is None
        assert current(SqlitePlace(tmp_path).url).is_current
        process.terminate()


async def test_take_over_lets_the_holder_end_in_order(tmp_path: Path) -> None:
    with started("hold", tmp_path) as process:
        _waits(process)

        store = await open_store(SqlitePlace(tmp_path).url, take_over=True)

        assert process.wait(timeout=10) == 0
        assert (await store.open_reign("second")).epoch == 2
        await store.close()


async def test_take_over_kills_a_holder_that_does_not_listen(tmp_path: Path) -> None:
    with started("hold_deaf", tmp_path) as process:
        _waits(process)

        lock = await take_over_folder(tmp_path, term_s=0.2)

        assert process.wait(timeout=10) == -signal.SIGKILL
        lock.release()


async def test_take_over_kills_a_holder_that_is_stopped(tmp_path: Path) -> None:
    with started("hold", tmp_path) as process:
        _waits(process)
        process.send_signal(signal.SIGSTOP)

        lock = await take_over_folder(tmp_path, term_s=0.2)

        assert process.wait(timeout=10) == -signal.SIGKILL
        lock.release()


async def test_the_lock_ends_with_its_holder_and_the_old_name_harms_nobody(tmp_path: Path) -> None:
    with started("hold", tmp_path) as process:
        _waits(process)
        process.kill()
        process.wait(timeout=10)

    assert str(process.pid) in (tmp_path / LOCK_NAME).read_text()
    lock_folder(tmp_path).release()


async def test_a_process_that_only_got_the_pid_of_the_holder_is_not_ended(tmp_path: Path) -> None:
    lock = lock_folder(tmp_path)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as bystander:
        (tmp_path / LOCK_NAME).write_text(_signed(bystander.pid, "an earlier life"))

        with pytest.raises(DataFolderLocked):
            await take_over_folder(tmp_path, term_s=0.1, kill_s=0.1)

        assert bystander.poll() is None
        bystander.communicate(b"\n")
    assert bystander.returncode == 0
    lock.release()


async def test_a_holder_on_another_machine_is_named_and_left_alone(tmp_path: Path) -> None:
    lock = lock_folder(tmp_path)
    (tmp_path / LOCK_NAME).write_text(_signed(os.getpid(), "x", host="elsewhere"))

    with pytest.raises(DataFolderLocked) as refusal:
        await take_over_folder(tmp_path)

    assert refusal.value.detail.endswith(f"held by process {os.getpid()} on elsewhere")
    assert refusal.value.hint == "stop it there first"
    lock.release()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": "x"}', "\x00\xff"])
async def test_a_lock_file_with_any_text_is_no_reason_to_fail(tmp_path: Path, text: str) -> None:
    lock: FolderLock = lock_folder(tmp_path)
    (tmp_path / LOCK_NAME).write_text(text)

    with pytest.raises(DataFolderLocked, match="has not said who it is"):
        lock_folder(tmp_path)

    lock.release()
    lock_folder(tmp_path).release()
