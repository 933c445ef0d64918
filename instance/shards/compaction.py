"""When compacting a shard is worth it: a pure function of its files and frontiers.

Files are merged by tiers of their size, so that each row is rewritten once per tier and a shard of any size has a few
dozen files. History before the since is summed up whenever as much of it has come together as was summed up before,
so that a shard takes at most about twice the room of its contents, and each update is rewritten a few times.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from instance.shards.delta_log import AddedFile
from instance.shards.rules import UpkeepRules
from reconcile.frontiers import Antichain

#: Files up to this size are of the lowest tier; each further tier is so many times as large.
TIER_BYTES_MIN = 64 * 1024
TIER_GROWTH = 8
#: Updates before the since that are worth summing up, for each that was summed up before.
HISTORY_RATIO = 1.0
#: What one compaction reads, as it lies on the disk; larger files stay as they are.
COMPACTION_BYTES_MAX = 128 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """Rewrites ``files``, and only those."""

    files: tuple[AddedFile, ...]
    #: For people.
    reason: str


def compaction_due(
    files: Iterable[AddedFile], since: Antichain, upper: Antichain, rules: UpkeepRules
) -> Compaction | None:
    """What is worth compacting now, if anything."""
    by_size = sorted(files, key=lambda file: (file.size, file.name))
    if since.is_closed:
        return Compaction(files=tuple(by_size), reason="nobody may read it") if by_size else None
    affordable = _affordable(by_size)
    return _history(affordable, min(since, upper), rules) or _small(affordable, rules)


def _affordable(by_size: list[AddedFile]) -> list[AddedFile]:
    total, chosen = 0, list[AddedFile]()
    for file in by_size:
        total += file.size
        if total > COMPACTION_BYTES_MAX:
            break
        chosen.append(file)
    return chosen


def _history(by_size: list[AddedFile], end: Antichain, rules: UpkeepRules) -> Compaction | None:
    old = [file for file in by_size if not end.is_open_at(file.first)]
    rows = [file.rows for file in old]
    # The largest is what was summed up before; a shard that was never compacted has none that stands out.
    settled = max(rows, default=0)
    loose = sum(rows) - settled
    if len(old) < 2 or loose < max(rules.history_rows_min, settled * HISTORY_RATIO):
        return None
    return Compaction(files=tuple(old), reason=f"{loose} updates before step {end} beside {settled} summed up")


def _small(by_size: list[AddedFile], rules: UpkeepRules) -> Compaction | None:
    bound, due = TIER_BYTES_MIN, list[AddedFile]()
    while len(due) < len(by_size):
        below = len(due)
        due = [file for file in by_size if file.size <= bound]
        if len(due) - below >= rules.tier_files_max:
            return Compaction(files=tuple(due), reason=f"{len(due)} files of at most {bound} bytes")
        bound *= TIER_GROWTH
    return None
