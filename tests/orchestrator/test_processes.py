"""Replicas as child processes: started, adopted, started again, left alone, ended."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest

from controller.orchestrator.identity import boot_id, read_record, start_time
from controller.orchestrator.interface import Quarantined, ReplicaKey, ReplicaStatus, Running, Starting, Stopped
from controller.orchestrator.processes import Command, ProcessOrchestrator, file_name, instance_command
from controller.orchestrator.supervisor import Patience, ReplicaSpec
from reconcile.errors import InvariantBroken
from reconcile.ids import Epoch, ReplicaId
from tests.orchestrator.children import (
    CRASHING,
    MUTE,
    OBEDIENT,
    STUBBORN,
    Script,
    address_of,
    child,
    is_alive,
    process_file,
    rewrite,
    starts,
)

CLUSTER, REPLICA, EPOCH = "main", ReplicaId(1), Epoch(3)
KEY = ReplicaKey(CLUSTER, REPLICA)
QUICK = Patience(start_s=30.0, end_s=0.2)


@asynccontextmanager
async def orchestrating(
    folder: Path, command: Command, *, stop: bool = True, patience: Patience = QUICK
) -> AsyncIterator[ProcessOrchestrator]:
    """An orchestrator; without ``stop`` its children live on, as those of a killed controller do."""
    orchestrator = ProcessOrchestrator(folder, command, random=Random(1), patience=patience)
    try:
        yield orchestrator
    finally:
        await orchestrator.close(stop_children=stop)


async def until(orchestrator: ProcessOrchestrator, holds: Callable[[ReplicaStatus], bool]) -> ReplicaStatus:
    async with asyncio.timeout(30):
        while not holds(status := orchestrator.status(*KEY)):
            await orchestrator.changed()
    return status


def directory(folder: Path) -> Path:
    return folder / "replicas" / file_name(KEY)


async def running(orchestrator: ProcessOrchestrator) -> int:
    """The pid of the replica, once it runs."""
    await orchestrator.ensure(*KEY, EPOCH)
    async with asyncio.timeout(30):
        return int((await orchestrator.address(*KEY)).rpartition(":")[2])


async def ended(pid: int) -> None:
    """Waits until a process has ended, whoever's child it is."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    gone = asyncio.Event()
    asyncio.get_running_loop().add_reader(pidfd, gone.set)
    async with asyncio.timeout(30):
        await gone.wait()
    asyncio.get_running_loop().remove_reader(pidfd)
    os.close(pidfd)


@pytest.mark.asyncio
async def test_a_replica_is_started_once_and_says_where_it_listens(tmp_path: Path) -> None:
    async with orchestrating(tmp_path, child(OBEDIENT)) as orchestrator:
        assert orchestrator.status(*KEY) == Stopped()
        pid = await running(orchestrator)
        await orchestrator.ensure(*KEY, EPOCH)

        assert orchestrator.status(*KEY) == Running(address=address_of(pid))
        assert orchestrator.listening(*KEY) == address_of(pid)
        assert starts(directory(tmp_path)) == [pid]
        assert (tmp_path / "logs" / f"{file_name(KEY)}.log").read_text() == "started\n"
        assert os.getsid(pid) == pid, "it is in a session of its own"


@pytest.mark.asyncio
async def test_a_replica_is_told_the_epoch(tmp_path: Path) -> None:
    async with orchestrating(tmp_path, child(OBEDIENT)) as orchestrator:
        pid = await running(orchestrator)

        assert (directory(tmp_path) / "starts").read_text() == f"{pid} {EPOCH}\n"


@pytest.mark.asyncio
async def test_children_that_outlive_their_controller_are_adopted_and_not_started_again(tmp_path: Path) -> None:
    async with orchestrating(tmp_path, child(OBEDIENT), stop=False) as first:
        pid = await running(first)

    async with orchestrating(tmp_path, child(CRASHING)) as second:
        assert await running(second) == pid
        assert starts(directory(tmp_path)) == [pid]


CONTROLLER = """
import asyncio, sys
from pathlib import Path
from random import Random
from controller.orchestrator.processes import ProcessOrchestrator
from tests.orchestrator.children import OBEDIENT, child

async def main():
    orchestrator = ProcessOrchestrator(Path(sys.argv[1]), child(OBEDIENT), random=Random(1))
    await orchestrator.ensure("main", 1, 3)
    print(await orchestrator.address("main", 1), flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.mark.asyncio
async def test_a_killed_controller_leaves_its_children_to_the_next_which_restarts_them(tmp_path: Path) -> None:
    path = os.pathsep.join(sys.path)
    command = [sys.executable, "-c", CONTROLLER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path}) as killed:
        assert killed.stdout is not None
        told = killed.stdout.readline().strip()
        killed.kill()

    async with orchestrating(tmp_path, child(OBEDIENT)) as next_one:
        pid = await running(next_one)
        assert address_of(pid) == told

        os.kill(pid, signal.SIGKILL)
        again = await until(next_one, lambda status: status not in (Running(address=told), Starting()))
        restarted = await running(next_one)

        assert isinstance(again, Starting)
        assert starts(directory(tmp_path)) == [pid, restarted]


@pytest.mark.asyncio
async def test_a_killed_child_is_started_again_under_another_nonce(tmp_path: Path) -> None:
    async with orchestrating(tmp_path, child(OBEDIENT)) as orchestrator:
        pid = await running(orchestrator)
        before = read_record(directory(tmp_path))

        os.kill(pid, signal.SIGKILL)
        reason = await until(orchestrator, lambda status: isinstance(status, Starting) and bool(status.reason))
        restarted = await running(orchestrator)

        after = read_record(directory(tmp_path))
        assert reason == Starting(reason="its process was ended by signal 9")
        assert starts(directory(tmp_path)) == [pid, restarted]
        assert before is not None
        assert after is not None
        assert before.nonce != after.nonce


@pytest.mark.asyncio
async def test_a_crash_loop_ends_in_quarantine_that_says_why(tmp_path: Path) -> None:
    script = child(CRASHING)
    async with orchestrating(tmp_path, script) as orchestrator:
        await orchestrator.ensure(*KEY, EPOCH)
        status = await until(orchestrator, lambda status: isinstance(status, Quarantined))

        assert isinstance(status, Quarantined)
        assert status.reason.startswith("ended 5 times within 60 s; the last time its process ended with code 3; ")
        assert status.reason.endswith("first line\nthe disk is on fire")
        assert orchestrator.listening(*KEY) is None

        await orchestrator.ensure(*KEY, EPOCH)
        assert orchestrator.status(*KEY) == status, "only a reset ends it"

        script.script = OBEDIENT
        await orchestrator.ensure(*KEY, EPOCH, reset=True)
        await until(orchestrator, lambda status: isinstance(status, Running))


@pytest.mark.asyncio
async def test_a_program_that_is_not_there_ends_in_quarantine_too(tmp_path: Path) -> None:
    async with orchestrating(tmp_path, lambda spec: ["/no/such/program", spec.nonce]) as orchestrator:
        await orchestrator.ensure(*KEY, EPOCH)
        status = await until(orchestrator, lambda status: isinstance(status, Quarantined))

    assert isinstance(status, Quarantined)
    assert "could not be started" in status.reason
    assert "/no/such/program" in status.reason


@pytest.mark.asyncio
async def test_a_child_that_never_says_where_it_listens_is_ended(tmp_path: Path) -> None:
    patience = Patience(start_s=0.2, end_s=0.2)
    async with orchestrating(tmp_path, child(MUTE), patience=patience) as orchestrator:
        await orchestrator.ensure(*KEY, EPOCH)
        status = await until(orchestrator, lambda status: isinstance(status, Starting) and bool(status.reason))

    assert status == Starting(reason="its process was ended by signal 9")


@pytest.mark.parametrize("script", [OBEDIENT, STUBBORN], ids=["obedient", "stubborn"])
@pytest.mark.asyncio
async def test_a_dropped_replica_ends_and_leaves_nothing(tmp_path: Path, script: str) -> None:
    async with orchestrating(tmp_path, child(script)) as orchestrator:
        pid = await running(orchestrator)

        await orchestrator.drop(*KEY)

        assert not is_alive(pid)
        assert orchestrator.status(*KEY) == Stopped()
        assert not directory(tmp_path).exists()


@pytest.mark.asyncio
async def test_a_replica_of_an_earlier_controller_can_be_dropped(tmp_path: Path) -> None:
    async with orchestrating(tmp_path, child(OBEDIENT), stop=False) as first:
        pid = await running(first)

    async with orchestrating(tmp_path, child(OBEDIENT)) as second:
        await second.drop(*KEY)

    await ended(pid)
    assert not directory(tmp_path).exists()


@pytest.mark.asyncio
async def test_what_is_no_longer_wanted_is_ended_at_the_start(tmp_path: Path) -> None:
    other = ReplicaKey("../odd name", ReplicaId(7))
    async with orchestrating(tmp_path, child(OBEDIENT), stop=False) as first:
        pid = await running(first)
        await first.ensure(*other, EPOCH)
        unwanted = int((await first.address(*other)).rpartition(":")[2])

    async with orchestrating(tmp_path, child(OBEDIENT)) as second:
        await second.retain({KEY})

        await ended(unwanted)
        assert await running(second) == pid


@pytest.fixture
def stranger() -> "AsyncIterator[int]":  # type: ignore[misc]  # a fixture of pytest may be a generator
    with subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()", "word"]) as process:
        yield process.pid
        process.kill()


@pytest.mark.parametrize("fields", ["pid", "pid and start time", "pid, start time and word"])
@pytest.mark.asyncio
async def test_a_stranger_under_a_reused_pid_is_neither_adopted_nor_ended(
    tmp_path: Path, stranger: int, fields: str
) -> None:
    async with orchestrating(tmp_path, child(OBEDIENT)) as first:
        await running(first)
    lies: dict[str, object] = {"pid": stranger}
    if fields != "pid":
        lies["started"] = start_time(stranger)
    if fields.endswith("word"):
        lies.update(nonce="word", boot="another boot")
    rewrite(process_file(directory(tmp_path)), **lies)

    async with orchestrating(tmp_path, child(OBEDIENT)) as second:
        pid = await running(second)
        assert pid != stranger
        await second.drop(*KEY)

    assert start_time(stranger) is not None, "it still runs"


@pytest.mark.asyncio
async def test_a_child_is_found_again_whose_pid_was_never_written_down(tmp_path: Path) -> None:
    async with orchestrating(tmp_path, child(OBEDIENT), stop=False) as first:
        pid = await running(first)
    rewrite(process_file(directory(tmp_path)), pid=None, started=None)

    async with orchestrating(tmp_path, child(OBEDIENT)) as second:
        assert await running(second) == pid
        record = read_record(directory(tmp_path))

    assert record is not None
    assert (record.pid, record.boot) == (pid, boot_id())


@pytest.mark.parametrize("damage", ["", "{", "[]", "{}", '{"pid": "x"}', '{"cluster": 1, "replica": 1}'])
@pytest.mark.asyncio
async def test_a_damaged_record_is_as_none(tmp_path: Path, damage: str) -> None:
    directory(tmp_path).mkdir(parents=True)
    process_file(directory(tmp_path)).write_text(damage)

    async with orchestrating(tmp_path, child(OBEDIENT)) as orchestrator:
        pid = await running(orchestrator)

    assert starts(directory(tmp_path)) == [pid]


@pytest.mark.asyncio
async def test_what_an_earlier_child_said_about_its_address_is_not_believed(tmp_path: Path) -> None:
    async with orchestrating(tmp_path, child(OBEDIENT)) as first:
        await running(first)
    assert (directory(tmp_path) / "address.json").exists()

    async with orchestrating(tmp_path, child(MUTE)) as second:
        await second.ensure(*KEY, EPOCH)

        assert second.status(*KEY) == Starting()
        assert second.listening(*KEY) is None


@pytest.mark.asyncio
async def test_a_controller_that_was_stopped_does_not_start_what_a_later_one_has_started(tmp_path: Path) -> None:
    async with orchestrating(tmp_path, child(OBEDIENT), stop=False) as stopped:
        pid = await running(stopped)
        async with orchestrating(tmp_path, Script(OBEDIENT), stop=False) as later:
            await running(later)
            os.kill(pid, signal.SIGKILL)
            await until(later, lambda status: isinstance(status, Starting))
            await until(stopped, lambda status: isinstance(status, Starting))

            pids = {await running(later), await running(stopped)}

    assert len(pids) == 1
    async with orchestrating(tmp_path, child(OBEDIENT)) as last:
        assert {await running(last)} == pids


@pytest.mark.asyncio
async def test_a_closed_orchestrator_starts_nothing(tmp_path: Path) -> None:
    async with orchestrating(tmp_path, child(OBEDIENT)) as orchestrator:
        pass

    with pytest.raises(InvariantBroken):
        await orchestrator.ensure(*KEY, EPOCH)


def test_every_cluster_has_files_of_its_own_whatever_its_name() -> None:
    names = ["a", "a-1", "../x", ".", "A", "é" * 255, "é" * 254, "a/b", "a%2Fb", ""]
    keys = [ReplicaKey(name, ReplicaId(replica)) for name in names for replica in (1, 11)]

    files = [file_name(key) for key in keys]

    assert len(set(files)) == len(files)
    assert all("/" not in name and name not in (".", "..") and len(name) < 230 for name in files)


def test_the_command_of_an_instance_names_all_that_it_must_know(tmp_path: Path) -> None:
    spec = ReplicaSpec(cluster="c", replica=ReplicaId(2), epoch=Epoch(4), directory=tmp_path, nonce="n")

    command = instance_command(["plainsong"], ["--orphan-timeout", "60"])(spec)

    assert command == [
        *("plainsong", "instance", "--data", str(tmp_path), "--listen", "127.0.0.1:0", "--replica", "2"),
        *("--epoch", "4", "--nonce", "n", "--orphan-timeout", "60"),
    ]
