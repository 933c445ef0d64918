"""The Delta log of a shard, read commit by commit: a hundredth of the cost of asking delta-rs what is new.

Commits are made by delta-rs alone. What it leaves to us is durability: it never syncs, so a commit is visible
before it is on the disk. Whoever acts on a version, be it to reply, to read on or to commit the next one, syncs it
first; hence only the newest commit can be torn by a power failure, and nobody has acted on it.
"""

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from uuid import uuid4

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from reconcile.errors import InvariantBroken
from reconcile.frontiers import CLOSED, Antichain
from reconcile.ids import Step, WriterEpoch

#: Application transactions: the shard's state, one number each.
UPPER, EPOCH, SINCE = "upper", "epoch", "since"
#: Keys of a commit's own description.
TOKEN, LOWER, ATTEMPT, TRANSACTIONS = (
    "plainsong.token",
    "plainsong.lower",
    "plainsong.attempt",
    "plainsong.transactions",
)
#: ``[]`` as an application transaction: the greatest number it can hold, as ``[]`` is the greatest frontier.
_CLOSED = 2**63 - 1


def to_number(frontier: Antichain) -> int:
    return _CLOSED if frontier.step is None else frontier.step


def to_frontier(number: int) -> Antichain:
    return CLOSED if number == _CLOSED else Antichain.at(number)


class Torn(Exception):
    """The commit is not whole: the power failed before it was synced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedFile:
    """A Parquet file with the updates from ``first`` through ``last``; a superset if the log does not say."""

    path: Path
    size: int
    first: Step
    last: Step

    def overlaps(self, lower: Antichain, upper: Antichain) -> bool:
        return lower.is_open_at(self.last) and not upper.is_open_at(self.first)

    def within(self, lower: Antichain, upper: Antichain) -> bool:
        return lower.is_open_at(self.first) and not upper.is_open_at(self.last)


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One version of a shard; a part of its state that it does not change is None."""

    version: int
    upper: Antichain | None
    since: Antichain | None
    writer_epoch: WriterEpoch | None
    #: Where the append with this token began; empty and None for what is not an append.
    token: str
    lower: Step | None
    #: Drawn anew for every attempt to commit, so that a lost reply can be told from a lost race.
    attempt: str
    added: tuple[AddedFile, ...]
    removed: tuple[Path, ...]


class DeltaLog:
    """The commit files of the shard in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "_delta_log"

    def commit_file(self, version: int) -> Path:
        return self.log / f"{version:020d}.json"

    def has(self, version: int) -> bool:
        return self.commit_file(version).exists()

    def newest(self) -> int | None:
        """The greatest version there is; lists the folder, so only for opening."""
        try:
            names = os.listdir(self.log)
        except FileNotFoundError:
            return None
        return max((int(name[:20]) for name in names if len(name) == 25 and name.endswith(".json")), default=None)

    def read(self, version: int) -> Commit:
        """Raises ``Torn`` if any of it is missing."""
        text = self.commit_file(version).read_text(encoding="utf-8", errors="replace")
        try:
            actions: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines()]
        except ValueError as error:
            raise Torn(f"version {version} is cut off") from error
        if not actions or not all(isinstance(action, dict) for action in actions):
            raise Torn(f"version {version} is empty")
        description: dict[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
        numbers = {action["txn"]["appId"]: int(action["txn"]["version"]) for action in actions if "txn" in action}
        # Cut off between two lines: the transactions come last, and the description says which there must be.
        missing = [name for name in str(description.get(TRANSACTIONS, "")).split() if name not in numbers]
        if missing:
            raise Torn(f"version {version} lacks {', '.join(missing)}")
        return Commit(
            version=version,
            upper=to_frontier(numbers[UPPER]) if UPPER in numbers else None,
            since=to_frontier(numbers[SINCE]) if SINCE in numbers else None,
            writer_epoch=WriterEpoch(numbers[EPOCH]) if EPOCH in numbers else None,
            token=str(description.get(TOKEN, "")),
            lower=Step(int(description[LOWER])) if LOWER in description else None,
            attempt=str(description.get(ATTEMPT, "")),
            added=tuple(self._added(action["add"]) for action in actions if "add" in action),
            removed=tuple(self._path(action["remove"]["path"]) for action in actions if "remove" in action),
        )

    def _path(self, uri: str) -> Path:
        """Paths in the log are relative and percent-encoded."""
        return self.folder / unquote(uri)

    def _added(self, add: Mapping[str, Any]) -> AddedFile:
        stats = json.loads(add["stats"]) if add.get("stats") else {}
        first, last = stats.get("minValues", {}).get("_step"), stats.get("maxValues", {}).get("_step")
        return self.added(str(add["path"]), int(add["size"]), first, last)

    def added(self, uri: str, size: int, first: int | None, last: int | None) -> AddedFile:
        return AddedFile(
            path=self._path(uri),
            size=size,
            first=Step(0 if first is None else first),
            last=Step(_CLOSED if last is None else last),
        )

    # --- durability -----------------------------------------------------------------------------------------

    def sync(self, commit: Commit) -> None:
        """Makes a visible commit durable: the files it adds, then the commit, then the folders that name them."""
        for file in commit.added:
            sync(file.path)
        if commit.added:
            sync(self.folder)
        sync(self.commit_file(commit.version))
        sync(self.log)
        if commit.version == 0:
            sync(self.folder)
            sync(self.folder.parent)

    def set_torn_aside(self) -> None:
        """Puts the newest commit, and the newest checkpoint, out of the way if the power failed while they were new.

        Under a lock, because between the judgement and the move a whole commit must not come to stand in its place:
        none can while the torn file is there, and only a holder of the lock takes it away.
        """
        with _locked(self.folder.with_name(f"{self.folder.name}.lock")):
            newest = self.newest()
            if newest is None:
                return
            self._set_checkpoint_aside()
            try:
                commit = self.read(newest)
                for file in commit.added:
                    _check_whole(file)
            except Torn:
                self._move_aside(self.commit_file(newest))

    def _set_checkpoint_aside(self) -> None:
        """A checkpoint only saves reading commits, which are all still there: when in doubt, without it."""
        checkpoints = sorted(self.log.glob("*.checkpoint.parquet"))
        if not checkpoints or not self.has(0):
            return
        try:
            pq.ParquetFile(checkpoints[-1]).read()
        except (pa.ArrowException, OSError):
            self._move_aside(self.log / "_last_checkpoint")
            self._move_aside(checkpoints[-1])

    def _move_aside(self, file: Path) -> None:
        """Keeps the file for whoever wants to know, in a folder that no reader of Delta tables looks at."""
        aside = self.folder / "_torn"
        aside.mkdir(exist_ok=True)
        if file.exists():
            file.rename(aside / f"{file.name}.{uuid4().hex}")
            sync(aside)
            sync(self.log)

    def sync_checkpoint(self, version: int) -> None:
        for name in (f"{version:020d}.checkpoint.parquet", "_last_checkpoint"):
            if (self.log / name).exists():
                sync(self.log / name)
        sync(self.log)


def _check_whole(file: AddedFile) -> None:
    try:
        if file.path.stat().st_size != file.size:
            raise Torn(f"{file.path.name} is cut off")
        for _ in pq.ParquetFile(file.path).iter_batches():
            pass
    except (pa.ArrowException, OSError) as error:
        raise Torn(f"{file.path.name} is not whole") from error


def sync(path: Path) -> None:
    """fsync of a file or folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Among all processes on this machine; given back by the kernel when its holder dies."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def check_next(commit: Commit, version: int, upper: Antichain, since: Antichain, epoch: WriterEpoch) -> None:
    """Nothing in a shard goes back; raises ``InvariantBroken`` if ``commit`` does not follow the state before it."""
    if commit.version != version + 1:
        raise InvariantBroken(f"version {commit.version} came after {version}")
    if commit.upper is not None and commit.upper < upper:
        raise InvariantBroken(f"version {commit.version} moves the upper back from {upper} to {commit.upper}")
    if commit.since is not None and commit.since < since:
        raise InvariantBroken(f"version {commit.version} moves the since back from {since} to {commit.since}")
    if commit.writer_epoch is not None and commit.writer_epoch < epoch:
        raise InvariantBroken(f"version {commit.version} moves the epoch back from {epoch} to {commit.writer_epoch}")
