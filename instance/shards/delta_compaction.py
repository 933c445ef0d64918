"""Compaction of a Delta shard: files are rewritten, then exchanged in one commit.

The commit is guarded twice. The application transaction ``compaction`` is the number of the compaction: of two that
race, the second finds its number taken, in delta-rs's own check as in ours; without it both would commit and every
row would be there twice. And ``since``, so that none races with a change of what may be read. Appends touch neither,
and ``data_change=False`` says that no reader will see a change, so that appends and compaction do not conflict.

The new files are synced before they are committed. What they replace stays until vacuum (``delta_upkeep``).
"""

import json
import time
from dataclasses import dataclass
from urllib.parse import quote, unquote
from uuid import uuid4

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types
import pyarrow.compute as pc  # type: ignore[import-untyped]
from deltalake import CommitProperties, DeltaTable
from deltalake import Schema as DeltaSchema
from deltalake.transaction import AddAction, RemoveAction

from instance.shards.compaction import Compaction
from instance.shards.contents import consolidated, widened
from instance.shards.delta_handle import HOOKS_OFF
from instance.shards.delta_log import COMPACTION, SINCE, to_number
from instance.shards.delta_table import RACES_LOST_MAX, ShardTable
from instance.shards.delta_view import View
from plainsong.failpoint import failpoint
from plainsong.types import DIFF, STEP
from reconcile.errors import InvariantBroken

#: Begins the name of every file that a compaction writes; its number follows.
COMPACTED = "compacted-"
#: Races with appends that delta-rs tries to win by itself; each try is faster than an append.
RETRIES_MAX = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewritten:
    """Files that are written and not yet committed; ``number`` is the compaction that may commit them."""

    number: int
    compaction: Compaction
    added: tuple[AddAction, ...]


def rewrite(table: ShardTable, view: View, compaction: Compaction) -> Rewritten:
    """Writes the new files beside the old; raises ``FileNotFoundError`` if somebody else compacted them away.

    History and later updates go to files of their own, so that whoever reads changes need not read the history.
    """
    number = view.compaction + 1
    if view.since.is_closed:
        return Rewritten(number=number, compaction=compaction, added=())
    # Of one moment: the shard may grow meanwhile, but not by columns of these files.
    schema = table.schema
    old = [widened(table.place.read_table(file.name), schema) for file in compaction.files]
    whole = pa.concat_tables([schema.empty_table(), *old])
    parts = consolidated(whole, view.since, view.upper)
    before, after = _total(whole), sum(_total(part) for part in parts)
    if before != after:
        raise InvariantBroken(f"compaction {number} of {table.id} would change the number of rows by {after - before}")
    added = []
    for part in parts:
        if part.num_rows:
            failpoint("shard-before-rewrite")
            added.append(_write(table, number, part))
    return Rewritten(number=number, compaction=compaction, added=tuple(added))


def _total(table: pa.Table) -> int:
    return int(pc.sum(table[DIFF]).as_py() or 0)


def _write(table: ShardTable, number: int, part: pa.Table) -> AddAction:
    name = f"{COMPACTED}{number}-{uuid4().hex}.parquet"
    size = table.place.write_table(name, part.sort_by(STEP).combine_chunks())
    steps = pc.min_max(part[STEP]).as_py()
    stats = {
        "numRecords": part.num_rows,
        "minValues": {STEP: steps["min"]},
        "maxValues": {STEP: steps["max"]},
        "nullCount": {STEP: 0},
    }
    written = int(time.time() * 1000)
    return AddAction(quote(name), size, {}, written, False, json.dumps(stats))


def commit_rewritten(table: ShardTable, rewritten: Rewritten) -> bool:
    """Exchanges the files in one commit; False if another compaction came first, and then the new ones are deleted."""
    for _ in range(RACES_LOST_MAX):
        table.follow()
        there = {file.name for file in table.view.files}
        if table.view.compaction != rewritten.number - 1:
            ours = [unquote(add.path) for add in rewritten.added]
            if there.issuperset(ours) and ours:
                return True  # a reply that was lost
            for name in ours:
                table.place.delete(name)
            return False
        if not there.issuperset(file.name for file in rewritten.compaction.files):
            raise InvariantBroken(f"files of {table.id} vanished without a compaction")
        transactions = {COMPACTION: rewritten.number, SINCE: to_number(table.view.since)}
        failpoint("shard-before-compaction")
        if table.commit(transactions, {}, _exchanging(table, rewritten), retries=RETRIES_MAX):
            failpoint("shard-after-compaction")
            return True
    raise table.always_beaten()


def _exchanging(table: ShardTable, rewritten: Rewritten) -> "_Exchange":
    removed = int(time.time() * 1000)
    removes = [
        RemoveAction(path=quote(file.name), data_change=False, deletion_timestamp=removed, size=file.size)
        for file in rewritten.compaction.files
    ]
    return _Exchange(table, [*rewritten.added, *removes])


class _Exchange:
    """Commits the exchange through a handle."""

    def __init__(self, table: ShardTable, actions: list[AddAction | RemoveAction]) -> None:
        self._schema = DeltaSchema.from_arrow(table.schema)
        self._actions = actions

    def __call__(self, handle: DeltaTable, properties: CommitProperties) -> None:
        handle.create_write_transaction(
            self._actions,
            "append",
            self._schema,
            commit_properties=properties,
            post_commithook_properties=HOOKS_OFF,
        )
