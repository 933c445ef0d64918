"""A stand-in for an instance: a process that keeps an orchestrator's contract, and misbehaves when told to."""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from controller.orchestrator.identity import ADDRESS_FILE, PROCESS_FILE
from controller.orchestrator.supervisor import ReplicaSpec

#: Counts its starts in the file ``starts``, says where it listens, and waits to be ended.
OBEDIENT = """
import json, os, signal, sys
directory, nonce = sys.argv[1], sys.argv[2]
with open(directory + "/starts", "a") as starts:
    starts.write(f"{os.getpid()} {sys.argv[3]}\\n")
print("started", flush=True)
with open(directory + "/address.partial", "w") as file:
    json.dump({"pid": os.getpid(), "nonce": nonce, "address": f"127.0.0.1:{os.getpid()}"}, file)
os.rename(directory + "/address.partial", directory + "/address.json")
signal.pause()
"""
#: Ends at once, with something to say.
CRASHING = """
print("first line")
print("the disk is on fire")
raise SystemExit(3)
"""
#: Runs, and never says where.
MUTE = "import signal; signal.pause()"
#: Does not end when asked to.
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + OBEDIENT


def child(script: str) -> "Script":
    return Script(script)


class Script:
    """A command that runs ``script``; it may be changed between two starts."""

    def __init__(self, script: str) -> None:
        self.script = script

    def __call__(self, spec: ReplicaSpec) -> Sequence[str]:
        return [sys.executable, "-S", "-c", self.script, str(spec.directory), spec.nonce, str(spec.epoch)]


def starts(directory: Path) -> list[int]:
    """The pids of all the processes that were started for a replica."""
    found = directory / "starts"
    return [int(line.split()[0]) for line in found.read_text().splitlines()] if found.exists() else []


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def address_of(pid: int) -> str:
    return f"127.0.0.1:{pid}"


def process_file(directory: Path) -> Path:
    return directory / PROCESS_FILE


def rewrite(path: Path, **fields: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


__all__ = ["ADDRESS_FILE", "CRASHING", "MUTE", "OBEDIENT", "STUBBORN"]
