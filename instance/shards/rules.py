"""When the upkeep of shards is worth its cost; one set of numbers per store."""

from dataclasses import dataclass

#: Newest versions of which a shard can tell by a token that an append was committed; older ones may be forgotten.
TOKENS_REMEMBERED_MAX = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class UpkeepRules:
    """Nothing here matters for what a shard contains."""

    #: Files of one tier of sizes, or of lower ones, at which they are merged; in memory, batches.
    tier_files_max: int = 32
    #: Updates before the since that are worth summing up.
    history_rows_min: int = 1_000
    #: Versions after which a handle is opened anew, and between two log checkpoints.
    reopen_after: int = 100
    #: Newest versions whose commits stay, because they say which appends were committed.
    log_versions_min: int = TOKENS_REMEMBERED_MAX
    #: How long a commit stays at least, for other readers of Delta tables that are about to read it; every commit of
    #: ours looks at all that stay.
    log_seconds_min: float = 10.0
    #: How long a file stays after no version names it any more.
    grace_seconds: float = 300.0
    #: Between two looks for such files.
    vacuum_seconds: float = 60.0


DEFAULT_RULES = UpkeepRules()
