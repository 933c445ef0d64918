"""Durability of a shard: what delta-rs leaves to us on a local disk, and an object store does by itself.

delta-rs never syncs, so a commit is visible before it is on the disk. Whoever acts on a version, be it to reply, to
read on or to commit the next one, syncs it first; hence only the newest commit can be torn by a power failure, and
nobody has acted on it.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol
from uuid import uuid4

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from instance.shards import places
from instance.shards.delta_log import (
    LOG,
    AddedFile,
    Commit,
    DeltaLog,
    Torn,
    checkpoint_name,
    checkpoint_version,
    commit_name,
)
from instance.shards.places import LocalPlace, Place, RemotePlace

LAST_CHECKPOINT = f"{LOG}/_last_checkpoint"


class Durability(Protocol):
    """Makes what is visible durable."""

    def prepare(self) -> None:
        """Before the shard is opened: sets aside what a power failure tore, as nobody has acted on it."""
        ...

    def sync(self, commit: Commit) -> None:
        """Raises ``FileNotFoundError`` if the commit was cleaned up meanwhile."""
        ...

    def sync_checkpoint(self, version: int) -> None: ...


def place_in(root: Path | str, name: str, options: dict[str, str] | None) -> tuple[Place, Durability]:
    """The place of one shard under ``root``, a folder or a URL, and how things become durable there."""
    if isinstance(root, Path):
        place = LocalPlace(root / name)
        return place, LocalDurability(place)
    return RemotePlace(f"{root.rstrip('/')}/{name}", options), RemoteDurability()


class RemoteDurability:
    """An object store has answered only once it is durable, and shows nothing by halves."""

    def prepare(self) -> None: ...

    def sync(self, commit: Commit) -> None: ...

    def sync_checkpoint(self, version: int) -> None: ...


class LocalDurability:
    """fsync, and judgement over what was not synced when the power failed."""

    def __init__(self, place: LocalPlace) -> None:
        self._folder = place.folder
        self._log = DeltaLog(place)

    def sync(self, commit: Commit) -> None:
        """The files it adds, then the commit, then the folders that name them."""
        for file in commit.added:
            try:
                places.sync(self._folder / file.name)
            except FileNotFoundError:
                continue  # a later commit removed it, and it was vacuumed
        if commit.added:
            places.sync(self._folder)
        places.sync(self._folder / commit_name(commit.version))
        places.sync(self._folder / LOG)
        if commit.version == 0:
            places.sync(self._folder)
            places.sync(self._folder.parent)

    def sync_checkpoint(self, version: int) -> None:
        for name in (checkpoint_name(version), LAST_CHECKPOINT):
            try:
                places.sync(self._folder / name)
            except FileNotFoundError:
                continue  # a newer one took its place
        places.sync(self._folder / LOG)

    def prepare(self) -> None:
        """Under a lock, because between the judgement and the move a whole commit must not come to stand in the place
        of a torn one: none can while the torn file is there, and only a holder of the lock takes it away.
        """
        self._folder.parent.mkdir(parents=True, exist_ok=True)
        with _locked(self._folder.with_name(f"{self._folder.name}.lock")):
            newest = self._log.newest()
            if newest is None:
                return
            self._set_checkpoint_aside()
            try:
                commit = self._log.read(newest)
                for file in commit.added:
                    # What a compaction adds it has synced before.
                    _check_whole(self._folder / file.name, file, deep=commit.compaction is None)
            except (Torn, FileNotFoundError):
                # Others may be far ahead by now: then its files were compacted away, or it was cleaned up itself.
                if not self._log.has(newest + 1) and self._log.has(newest):
                    self._move_aside(commit_name(newest))

    def _set_checkpoint_aside(self) -> None:
        """A torn checkpoint was not synced, so what it stands for is still there: older commits are cleaned up only
        below a checkpoint that was.
        """
        checkpoints = sorted(file.name for file in self._log.list() if checkpoint_version(file.name) is not None)
        if not checkpoints or not (len(checkpoints) > 1 or self._log.has(0)):
            return
        name = f"{LOG}/{checkpoints[-1]}"
        try:
            pq.ParquetFile(self._folder / name).read()
        except FileNotFoundError:
            return  # cleaned up meanwhile: there are newer ones
        except (pa.ArrowException, OSError):
            # The hint first: a hint to nothing is an error to delta-rs, no hint is none.
            self._move_aside(LAST_CHECKPOINT)
            self._move_aside(name)

    def _move_aside(self, name: str) -> None:
        """Keeps the file for whoever wants to know, in a folder that no reader of Delta tables looks at."""
        file, aside = self._folder / name, self._folder / "_torn"
        aside.mkdir(exist_ok=True)
        if file.exists():
            file.rename(aside / f"{file.name}.{uuid4().hex}")
            places.sync(aside)
            places.sync(self._folder / LOG)


def _check_whole(path: Path, file: AddedFile, *, deep: bool) -> None:
    try:
        if path.stat().st_size != file.size:
            raise Torn(f"{file.name} is cut off")
        if deep:
            for _ in pq.ParquetFile(path).iter_batches():
                pass
    except (pa.ArrowException, OSError) as error:
        raise Torn(f"{file.name} is not whole") from error


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Among all processes on this machine; given back by the kernel when its holder dies."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
