"""Taken files: which files of a folder a source has taken, for ever.

A list that only grows, in a file beside the shards; the position that is committed with rows says how much of it
counts. So a commit carries a few numbers however many files were taken, and what was written after the last commit
is as if it had never been. Each writer epoch writes a list of its own, so a fenced writer spoils nothing.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path

from reconcile.errors import StorageFailed


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenFile:
    """One file by its name and content; the time is only a hint that spares reading it again."""

    name: str
    bytes: int
    digest: str
    mtime_ns: int

    def line(self) -> str:
        return json.dumps([self.name, self.bytes, self.digest, self.mtime_ns]) + "\n"


class TakenFiles:
    """The list of one writer. What is added counts for a later writer as far as the committed position says."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: Path | None = None
        self._unwritten: list[str] = []
        self._entries: list[TakenFile] = []
        #: Contents that were taken under each name.
        self._contents: dict[str, set[tuple[int, str]]] = {}
        #: Size and time of what was last seen to be taken under each name.
        self._seen: dict[str, tuple[int, int]] = {}

    @property
    def name(self) -> str:
        return "" if self._file is None else self._file.name

    def __len__(self) -> int:
        return len(self._entries)

    def open(self, name: str, count: int, epoch: int) -> None:
        """Goes on after the first ``count`` of the list ``name``, in a list of our own.

        Lists that no position can name any more are removed, on the first call.
        """
        if self._file is not None and self.name == name and len(self._entries) == count:
            return
        first = self._file is None
        entries = self._read(name, count) if name else []
        self._entries, self._contents, self._seen, self._unwritten = [], {}, {}, []
        for entry in entries:
            self._remember(entry)
        self._folder.mkdir(parents=True, exist_ok=True)
        present = sorted(path.name for path in self._folder.iterdir())
        number = 0
        while f"{epoch}-{number}.jsonl" in present:
            number += 1
        self._file = self._folder / f"{epoch}-{number}.jsonl"
        self._write(self._file, "".join(entry.line() for entry in entries))
        _sync(self._folder)
        if first:
            for other in present:
                if other not in (name, self._file.name):
                    (self._folder / other).unlink(missing_ok=True)

    def is_seen(self, name: str, bytes: int, mtime_ns: int) -> bool:
        """Whether this is surely what was taken; no is only a maybe."""
        return self._seen.get(name) == (bytes, mtime_ns)

    def is_taken(self, file: TakenFile) -> bool:
        if (file.bytes, file.digest) not in self._contents.get(file.name, ()):
            return False
        self._seen[file.name] = (file.bytes, file.mtime_ns)
        return True

    def add(self, file: TakenFile) -> None:
        """Counts at once here, and for others once ``sync`` and a commit have happened."""
        self._remember(file)
        self._unwritten.append(file.line())

    def sync(self) -> None:
        """Makes everything that was added durable."""
        if self._unwritten and self._file is not None:
            self._write(self._file, "".join(self._unwritten))
            self._unwritten = []

    def _remember(self, file: TakenFile) -> None:
        self._entries.append(file)
        self._contents.setdefault(file.name, set()).add((file.bytes, file.digest))
        self._seen[file.name] = (file.bytes, file.mtime_ns)

    def _read(self, name: str, count: int) -> list[TakenFile]:
        path = self._folder / name
        try:
            lines = path.read_text("utf-8").splitlines()[:count]
            found = [json.loads(line) for line in lines]
        except (OSError, ValueError) as error:
            raise StorageFailed(f"the list of taken files {path} cannot be read", detail=str(error)) from error
        if len(found) < count:
            raise StorageFailed(
                f"the list of taken files {path} is damaged", detail=f"it has {len(found)} entries instead of {count}"
            )
        return [TakenFile(name=n, bytes=b, digest=d, mtime_ns=m) for n, b, d, m in found]

    def _write(self, path: Path, text: str) -> None:
        try:
            with path.open("a", encoding="utf-8") as opened:
                opened.write(text)
                opened.flush()
                os.fsync(opened.fileno())
        except OSError as error:
            raise StorageFailed(f"the list of taken files {path} cannot be written", detail=str(error)) from error


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
