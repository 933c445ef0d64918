"""One child process: started or adopted, watched, ended.

Held by a pidfd from beginning to end: its exit is an event of the loop, and a signal reaches it or nobody.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Self


class Child:
    """A process that is verifiably ours. ``exited`` is done, with how it ended, when it has."""

    def __init__(self, pid: int, pidfd: int, process: "subprocess.Popen[bytes] | None") -> None:
        self.pid = pid
        self._pidfd = pidfd
        #: Only of one that we started ourselves; of an adopted one somebody else is the parent.
        self._process = process
        self._loop = asyncio.get_running_loop()
        self.exited: asyncio.Future[str] = self._loop.create_future()
        self._loop.add_reader(pidfd, self._on_exit)

    @classmethod
    def start(cls, command: Sequence[str], log: Path) -> Self:
        """Starts a process in a session of its own, so that it outlives us; raises ``OSError`` if it cannot be."""
        with log.open("ab") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                close_fds=True,
            )
        # It cannot be reaped before we do it, so the pid is still its own.
        return cls(process.pid, os.pidfd_open(process.pid), process)

    def terminate(self) -> None:
        """Asks it to end."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGTERM)

    def kill(self) -> None:
        """Ends it and what it started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            # The pidfd says that the leader lives, so the number of its group is not yet anybody else's.
            signal.pidfd_send_signal(self._pidfd, 0)
            if os.getpgid(self.pid) == self.pid:
                os.killpg(self.pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    async def end(self, patience_s: float) -> None:
        """Asks it to end, and ends it when it has not within ``patience_s``; returns when it is gone."""
        if self.exited.done():
            return
        self.terminate()
        await self.wait(patience_s)
        if not self.exited.done():
            self.kill()
            await self.wait()

    async def wait(self, timeout_s: float | None = None) -> None:
        """Waits until it has ended, or so long.

        Never await ``exited`` itself: cancelling who waits would cancel the future, and nobody would learn the end.
        """
        await asyncio.wait({self.exited}, timeout=timeout_s)

    def let_go(self) -> None:
        """Watches it no longer; it goes on by itself."""
        if self._pidfd >= 0:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1
        if self._process is not None and self._process.returncode is None:
            # Else Python warns that it still runs; that is what it is meant to do.
            self._process.returncode = 0
        if not self.exited.done():
            self.exited.cancel()

    def _on_exit(self) -> None:
        self._loop.remove_reader(self._pidfd)
        if not self.exited.done():
            self.exited.set_result(self._how())

    def _how(self) -> str:
        if self._process is not None:
            code: int | None = self._process.poll()
        else:
            try:
                reaped, status = os.waitpid(self.pid, os.WNOHANG)
                code = os.waitstatus_to_exitcode(status) if reaped else None
            except ChildProcessError:
                code = None
        if code is None:
            return "ended; how is known only to the parent that it had"
        return f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
