"""The lock on a data folder: one controller at a time, by name.

The lock is the kernel's (flock), so it ends with its holder however that dies. The file says who holds it, for people
and for a take-over; its text is believed only as far as the process it names is the one that wrote it.
"""

import asyncio
import contextlib
import fcntl
import json
import os
import signal
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from controller.store.bounds import TAKE_OVER_KILL_S, TAKE_OVER_POLL_S, TAKE_OVER_TERM_S
from reconcile.errors import InvalidRequest, StorageFailed

LOCK_NAME = "controller.lock"


class DataFolderLocked(InvalidRequest):
    """Another controller has the data folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """The process that holds a folder."""

    pid: int
    host: str
    #: When the process began, in the kernel's words; tells it from a later one with the same pid.
    began: str

    @classmethod
    def this_process(cls) -> Self:
        return cls(pid=os.getpid(), host=socket.gethostname(), began=_began(os.getpid()) or "")

    @property
    def is_here(self) -> bool:
        """Whether it runs on this machine, now, and is the one that wrote the file."""
        return self.host == socket.gethostname() and self.began != "" and _began(self.pid) == self.began


class FolderLock:
    """A held lock; let go by ``release`` or by the end of the process."""

    def __init__(self, folder: Path, descriptor: int) -> None:
        self.folder = folder
        self._descriptor: int | None = descriptor

    def release(self) -> None:
        """Lets go; harmless when already done. The file stays, empty: removing it would let two hold it."""
        if self._descriptor is None:
            return
        descriptor, self._descriptor = self._descriptor, None
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)
        os.close(descriptor)


def lock_folder(folder: Path) -> FolderLock:
    """Takes the folder, making it if needed, or raises ``DataFolderLocked`` with the name of its holder."""
    descriptor = _open(folder)
    try:
        if not _try_lock(descriptor):
            raise _refusal(folder, _holder(descriptor))
        _sign(descriptor)
    except BaseException:
        os.close(descriptor)
        raise
    return FolderLock(folder, descriptor)


async def take_over_folder(
    folder: Path, term_s: float = TAKE_OVER_TERM_S, kill_s: float = TAKE_OVER_KILL_S
) -> FolderLock:
    """Takes the folder, ending its holder on this machine first: SIGTERM, then SIGKILL after ``term_s``."""
    descriptor = _open(folder)
    try:
        loop = asyncio.get_running_loop()
        began = loop.time()
        told: set[tuple[Holder, signal.Signals]] = set()
        while not _try_lock(descriptor):
            holder = _holder(descriptor)
            waited = loop.time() - began
            if waited >= term_s + kill_s or (holder is not None and holder.host != socket.gethostname()):
                raise _refusal(folder, holder)
            which = signal.SIGTERM if waited < term_s else signal.SIGKILL
            if holder is not None and (holder, which) not in told:
                told.add((holder, which))
                _end(holder, which)
            await asyncio.sleep(TAKE_OVER_POLL_S)
        _sign(descriptor)
    except BaseException:
        os.close(descriptor)
        raise
    return FolderLock(folder, descriptor)


def _open(folder: Path) -> int:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise _unwritable(folder, error) from error


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _sign(descriptor: int) -> None:
    me = Holder.this_process()
    text = json.dumps({"pid": me.pid, "host": me.host, "began": me.began}) + "\n"
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, text.encode(), 0)
    except OSError as error:
        raise StorageFailed("the data folder cannot be written", detail=error.strerror or "") from error


def _holder(descriptor: int) -> Holder | None:
    """Whoever the file names; None while the holder has not yet signed."""
    try:
        said = json.loads(os.pread(descriptor, 4096, 0))
        return Holder(pid=int(said["pid"]), host=str(said["host"]), began=str(said["began"]))
    except (ValueError, KeyError, TypeError):
        return None


def _end(holder: Holder, which: signal.Signals) -> None:
    """Signals the holder if it is still the process that signed; by descriptor, so that the pid cannot change hands."""
    try:
        process = os.pidfd_open(holder.pid)
    except (OSError, OverflowError):
        return
    try:
        if holder.pid != os.getpid() and holder.is_here:
            signal.pidfd_send_signal(process, which)
    except ProcessLookupError:
        pass
    except PermissionError as error:
        raise InvalidRequest(
            "the holder of the data folder cannot be ended",
            detail=f"process {holder.pid} belongs to another user",
            hint="stop it yourself, then start again",
        ) from error
    finally:
        os.close(process)


def _began(pid: int) -> str | None:
    """The 22nd field of the kernel's line on a process, with the boot it counts from; None if there is no process."""
    try:
        line = Path(f"/proc/{pid}/stat").read_text()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None
    # The second field, the program's name, may hold spaces and brackets; the rest is counted from its end.
    return f"{boot}/{line.rpartition(')')[2].split()[19]}"


def _refusal(folder: Path, holder: Holder | None) -> DataFolderLocked:
    if holder is None:
        who, hint = "by a process that has not said who it is", "try again in a moment"
    elif holder.host == socket.gethostname():
        who, hint = f"by process {holder.pid} on this machine ({holder.host})", "stop it, or start with --take-over"
    else:
        who, hint = f"by process {holder.pid} on {holder.host}", "stop it there first"
    return DataFolderLocked("the data folder is in use", detail=f"{folder} is held {who}", hint=hint)


def _unwritable(folder: Path, error: OSError) -> StorageFailed:
    return StorageFailed(
        "the data folder cannot be written",
        detail=f"{folder}: {error.strerror}",
        hint="give another folder, or the right to write in this one",
    )
