"""Upkeep of a Delta shard: log checkpoints, clean-up of the log, vacuum. Safe to be done by several at once.

Nothing is trusted to a clock that would matter for correctness; clocks only keep things longer than needed.

* Commits are cleaned up, oldest first, below a checkpoint that was synced and found whole. A handle that is behind
  the log's beginning opens the shard anew.
* A file that no version names is deleted once it was seen so for a grace period, which spares readers that are at it,
  and once it is certain that nobody is about to commit it: an append commits exactly the version after the one it had
  loaded when it wrote the file, so it cannot once that version is taken; a compaction cannot once its number is.
  A reader that comes later still finds its files gone and looks again.
"""

import re
from dataclasses import dataclass

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types

from instance.shards.delta_compaction import COMPACTED
from instance.shards.delta_handle import open_handle, write_checkpoint
from instance.shards.delta_log import LOG, checkpoint_name, checkpoint_version, commit_version
from instance.shards.delta_table import ShardTable
from instance.shards.delta_view import View
from instance.shards.places import Listed
from instance.shards.store import Tidied
from plainsong.failpoint import failpoint

#: Remains of killed writers in the log's folder that bear no version are deleted after this.
STAGED_SECONDS_MIN = 3_600.0

_NUMBER = re.compile(rf"{COMPACTED}(\d+)-")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Unnamed:
    """A file that no version named, at ``seconds``, as of ``version``."""

    version: int
    seconds: float


class Upkeep:
    """What one maintainer of a shard remembers from one round to the next; losing it only delays deletions."""

    def __init__(self, table: ShardTable) -> None:
        self._table = table
        self._rules = table.rules
        self._unnamed: dict[str, _Unnamed] = {}
        self._log_done_at = -1
        self._vacuumed: float | None = None

    def tidy_log(self, view: View, now: float) -> Tidied:
        """Writes a checkpoint if one is due, then cleans up below an older one."""
        if view.version == self._log_done_at:
            return Tidied()
        listed = self._table.log.list()
        checkpoints = sorted(version for file in listed if (version := checkpoint_version(file.name)) is not None)
        written = None
        if view.version - (checkpoints[-1] if checkpoints else 0) >= self._rules.reopen_after:
            written = self._write_checkpoint()
        cleaned = self._clean_log(listed, checkpoints, view, now)
        if written is None and not cleaned:
            self._log_done_at = view.version
        return Tidied(checkpoint=written, commits_cleaned=cleaned)

    def _write_checkpoint(self) -> int | None:
        """Through a handle of its own, so that nobody who commits has to wait."""
        handle = open_handle(self._table.id, self._table.place)
        if not write_checkpoint(self._table.id, handle):
            return None
        self._table.durability.sync_checkpoint(handle.version())
        return handle.version()

    def _clean_log(self, listed: list[Listed], checkpoints: list[int], view: View, now: float) -> int:
        written = {version: file.written for file in listed if (version := commit_version(file.name)) is not None}
        newest = min(view.version - self._rules.log_versions_min, view.positioned_at)
        long_ago = now - self._rules.log_seconds_min
        old = [version for version in checkpoints if version <= newest and written.get(version, now) <= long_ago]
        staged = [file.name for file in listed if _is_left_over(file, view, now)]
        for name in staged:
            self._table.place.delete(f"{LOG}/{name}")
        if not old or not self._is_whole(old[-1]):
            return 0
        first = old[-1]
        cleaned = sorted(version for version in written if version < first)
        for version in cleaned:
            failpoint("shard-before-clean-up")
            self._table.place.delete(f"{LOG}/{version:020d}.json")
        for version in checkpoints:
            if version < first:
                self._table.place.delete(checkpoint_name(version))
        return len(cleaned)

    def _is_whole(self, version: int) -> bool:
        """Whether the checkpoint can be relied on without what it stands for."""
        try:
            self._table.durability.sync_checkpoint(version)
            self._table.place.read_table(checkpoint_name(version))
        except (pa.ArrowException, FileNotFoundError):
            return False
        return True

    # --- vacuum ---------------------------------------------------------------------------------------------

    def is_vacuum_due(self, now: float) -> bool:
        return self._vacuumed is None or now - self._vacuumed >= self._rules.vacuum_seconds

    def list_files(self) -> list[Listed]:
        """What there is, to be followed by a look at the newest version: a file named only since then is no orphan."""
        return self._table.place.list("")

    def vacuum(self, listed: list[Listed], view: View, now: float) -> int:
        """Deletes what nobody needs; ``view`` was the newest version after ``listed`` was."""
        self._vacuumed = now
        named = {file.name for file in view.files}
        unnamed = {file.name for file in listed if _is_ours(file.name)} - named
        # Named until a moment ago, and seen unnamed before that: its grace period begins now.
        removed, self._table.removed = self._table.removed, set()
        kept = {name: seen for name, seen in self._unnamed.items() if name in unnamed and name not in removed}
        self._unnamed = {name: kept.get(name, _Unnamed(version=view.version, seconds=now)) for name in unnamed}
        gone = [name for name, seen in self._unnamed.items() if self._is_dead(name, seen, view, now)]
        for name in gone:
            failpoint("shard-before-vacuum")
            self._table.place.delete(name)
            del self._unnamed[name]
        return len(gone)

    def _is_dead(self, name: str, seen: _Unnamed, view: View, now: float) -> bool:
        if now - seen.seconds < self._rules.grace_seconds:
            return False
        number = _NUMBER.match(name)
        return view.version > seen.version if number is None else view.compaction >= int(number[1])


def _is_ours(name: str) -> bool:
    """Written by delta-rs or by a compaction, whole or (with a ``#``) in the making."""
    return name.startswith(("part-", COMPACTED)) and ".parquet" in name


def _is_left_over(file: Listed, view: View, now: float) -> bool:
    """What a killed writer was about to rename or link; none can any more where the version is taken."""
    whole, mark, _ = file.name.partition("#")
    if not mark:
        return False
    version = commit_version(whole)
    return file.written <= now - STAGED_SECONDS_MIN if version is None else version <= view.version
