"""Identity: which process is ours, beyond doubt.

A pid alone proves nothing: it is used again. A process is ours if it has the pid and the start time that we wrote
down, in the same boot of the machine, and bears the nonce that we gave it on its command line. It is looked at while
a pidfd holds it, so that what was verified is what is signalled.
"""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from controller.orchestrator.interface import ReplicaKey
from reconcile.ids import ReplicaId

PROCESS_FILE, ADDRESS_FILE = "process.json", "address.json"
_PROC = Path("/proc")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRecord:
    """What we wrote down about a child: before it was started without, afterwards with, its pid."""

    cluster: str
    replica: int
    nonce: str
    boot: str
    pid: int | None = None
    #: In clock ticks since the boot, as the kernel counts them.
    started: int | None = None

    @property
    def key(self) -> ReplicaKey:
        return ReplicaKey(self.cluster, ReplicaId(self.replica))


def boot_id() -> str:
    """Names this boot of the machine."""
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def start_time(pid: int) -> int | None:
    """When a process was started; ``None`` if there is none, or only what is left of a dead one."""
    try:
        stat = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    # The second field is the program's name in parentheses, which may itself contain blanks and parentheses.
    state, *fields = stat[stat.rindex(")") + 2 :].split()
    return None if state in ("Z", "X") else int(fields[18])


def bears(pid: int, nonce: str) -> bool:
    """Whether ``nonce`` is one of the words on the command line of a process."""
    try:
        return nonce.encode() in (_PROC / str(pid) / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return False


def find(record: ProcessRecord) -> tuple[int, int] | None:
    """The pid of the process in ``record`` and a pidfd that holds it; ``None`` if it does not run (any more).

    A record without a pid was written by a controller that died while starting the process: it is looked for.
    """
    if record.boot != boot_id():
        return None
    candidates = _bearers(record.nonce) if record.pid is None else [record.pid]
    for pid in candidates:
        try:
            pidfd = os.pidfd_open(pid)
        except OSError:
            continue
        started = start_time(pid)
        if started is not None and record.started in (None, started) and bears(pid, record.nonce):
            return pid, pidfd
        os.close(pidfd)
    return None


def _bearers(nonce: str) -> list[int]:
    return [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit() and bears(int(entry.name), nonce)]


def read_record(directory: Path) -> ProcessRecord | None:
    """What was written down in a replica's directory; ``None`` if nothing usable was."""
    found = _json(directory / PROCESS_FILE)
    try:
        record = ProcessRecord(**found)
    except TypeError:
        return None
    whole = all(type(found.get(name)) in (int, type(None)) for name in ("pid", "started"))
    named = all(type(found[name]) is str for name in ("cluster", "nonce", "boot")) and record.nonce != ""
    return record if whole and named and type(found["replica"]) is int else None


def write_record(directory: Path, record: ProcessRecord) -> None:
    """Atomically. Not synced: it must survive us, not the machine, whose processes end with it."""
    path = directory / PROCESS_FILE
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(asdict(record)))
    partial.rename(path)


def read_address(directory: Path, nonce: str, pid: int) -> str | None:
    """Where the child with this nonce listens; ``None`` before it has said so, whatever an earlier one said."""
    found = _json(directory / ADDRESS_FILE)
    address = found.get("address")
    ours = found.get("nonce") == nonce and found.get("pid") == pid
    return address if ours and isinstance(address, str) and address else None


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
