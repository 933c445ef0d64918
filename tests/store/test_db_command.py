"""``plainsong db``, as a person runs it."""

import subprocess
import sys
from pathlib import Path

import pytest

from controller.store.database import DATABASE_NAME
from tests.store.programs import environment

#: The sub-application alone, so that this holds wherever it is hung into the command line.
PROGRAM = "from adapter.commands.db import db_app; db_app()"


def _db(*arguments: str, cwd: Path, **settings: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        env=environment(settings),
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def test_a_folder_is_looked_at_made_ready_and_looked_at_again(tmp_path: Path) -> None:
    data = tmp_path / "data with ' # %20 @ ? 🎶"

    before = _db("current", "--data", str(data), cwd=tmp_path)
    upgraded = _db("upgrade", "--data", str(data), cwd=tmp_path)
    after = _db("current", "--data", str(data), cwd=tmp_path)

    assert before == (1, "empty (0002 is needed: run plainsong db upgrade)\n", "")
    assert upgraded == after == (0, "0002 (current)\n", "")
    assert (data / DATABASE_NAME).exists()


def test_a_server_is_named_by_url_or_environment(tmp_path: Path, postgres_url: str) -> None:
    upgraded = _db("upgrade", "--database", postgres_url, cwd=tmp_path)
    after = _db("current", cwd=tmp_path, PLAINSONG_DATABASE=postgres_url)

    assert upgraded == after == (0, "0002 (current)\n", "")


def test_nothing_named_is_a_mistake_of_usage(tmp_path: Path) -> None:
    code, _, errors = _db("current", cwd=tmp_path)

    assert code == 2
    assert "--database" in errors


@pytest.mark.parametrize("command", ["upgrade", "current"])
def test_a_damaged_database_is_one_clear_line_and_exit_code_1(tmp_path: Path, command: str) -> None:
    (tmp_path / DATABASE_NAME).write_bytes(b"words " * 1_000)

    code, output, errors = _db(command, "--data", str(tmp_path), cwd=tmp_path)

    assert (code, output) == (1, "")
    assert errors.startswith("error: the database failed; ")
    assert errors.endswith("restore it from a backup, and keep it for a look\n")
    assert errors.count("\n") == 1


def test_a_folder_called_controller_where_one_stands_is_not_ours(tmp_path: Path) -> None:
    (tmp_path / "controller" / "store").mkdir(parents=True)
    for package in (tmp_path / "controller", tmp_path / "controller" / "store"):
        (package / "__init__.py").write_text("raise SystemExit('not ours')")

    done = subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM, "upgrade", "--data", str(tmp_path / "data")],
        env=environment({}),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (done.returncode, done.stdout) == (0, "0002 (current)\n")
