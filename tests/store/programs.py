"""Small programs that tests run as processes of their own: ``python -m tests.store.programs NAME FOLDER``."""

import asyncio
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from controller.store.changes import Channel, ClusterDropped, ClusterPut
from controller.store.database import sqlite_url
from controller.store.sql import open_store
from reconcile.errors import PlainsongError
from reconcile.ids import GlobalId, Seqno
from tests.store.places import beginning, command, view

ROOT = Path(__file__).parents[2]


def environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Where a process finds the project, and nothing of the failure points that this one may have."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PLAINSONG_")}
    return {**inherited, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "proto")]), **settings}


def started(name: str, folder: Path, **settings: str) -> "subprocess.Popen[str]":
    """A program under way, its output to be read."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.store.programs", name, str(folder)],
        env=environment(settings),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


async def statements(folder: Path) -> None:
    """Three statements and a compaction, each told when it is done; failure points end it on the way."""
    store = await open_store(sqlite_url(folder), migrate=True)
    await store.open_reign("program")
    _say("reigning")
    await store.commit([*beginning("main", "other"), view(1, "a"), command(b"1"), command(b"2")])
    _say("first")
    await store.commit([view(2, "b"), ClusterDropped(name="other"), command(b"3"), ClusterPut(name="x", definition="")])
    _say("second")
    await store.compact_log("main", Channel.COMPUTE, Seqno(2), [b"reduced"])
    _say("compacted")
    await store.commit([view(2, "c"), command(b"4"), command(b"5", "x")])
    _say("third")
    assert GlobalId("u", 2) in (await store.load()).objects
    await store.close()


async def hold(folder: Path) -> None:
    """Holds the folder until it is told to end."""
    store = await open_store(sqlite_url(folder), migrate=True)
    await store.open_reign("holder")
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    _say("holding")
    await ended.wait()
    await store.close()


async def hold_deaf(folder: Path) -> None:
    """Holds the folder and does not listen."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    store = await open_store(sqlite_url(folder), migrate=True)
    await store.open_reign("deaf holder")
    _say("holding")
    await asyncio.Event().wait()


async def fill(folder: Path) -> None:
    """Commits until the disk is full; says what it was promised and what it was told."""
    if "FILE_BYTES_MAX" in os.environ:
        bound = int(os.environ["FILE_BYTES_MAX"])
        resource.setrlimit(resource.RLIMIT_FSIZE, (bound, bound))
    store = await open_store(sqlite_url(folder), migrate=True)
    await store.open_reign("program")
    await store.commit(beginning("main"))
    promised = 0
    for told in range(2):
        try:
            while True:
                await store.commit([command(b"x" * 10_000)])
                promised += 1
        except PlainsongError as error:
            _say(f"{promised} {type(error).__name__}: {error}")
            assert told or promised
    await store.close()


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    program = {"statements": statements, "hold": hold, "hold_deaf": hold_deaf, "fill": fill}[sys.argv[1]]
    asyncio.run(program(Path(sys.argv[2])))
