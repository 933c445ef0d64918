"""What a writer does to a Delta shard; every call blocks, and needs a turn of its own on its table.

Each verb looks, checks as of what it saw, and commits exactly the version after that, or begins anew: Delta itself
compares no values (``delta_table``).
"""

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types
from deltalake import CommitProperties, DeltaTable, Field, write_deltalake

from instance.shards.contents import check_extends, check_not_told, widened
from instance.shards.delta_columns import added_fields
from instance.shards.delta_handle import HOOKS_OFF
from instance.shards.delta_log import EPOCH, LOWER, POSITION, SINCE, TOKEN, UPPER, to_number
from instance.shards.delta_table import RACES_LOST_MAX, ShardTable, Write
from instance.shards.store import Appended, AppendOutcome, EpochFenced, Grown, TakenOver, UpperMoved
from reconcile.frontiers import Antichain
from reconcile.ids import WriterEpoch


def append(
    table: ShardTable,
    expected: Antichain,
    upper: Antichain,
    stored: pa.Table | None,
    writer_epoch: WriterEpoch | None,
    token: str,
    *,
    told: Antichain | None = None,
    position: str | None = None,
) -> AppendOutcome:
    """``told`` is how far the writer has said that nothing happens after the upper."""
    transactions = {UPPER: to_number(upper)}
    if writer_epoch is not None:
        transactions[EPOCH] = writer_epoch
    for _ in range(RACES_LOST_MAX):
        if table.find_token(token) is not None:
            return Appended(upper=table.view.upper)
        if writer_epoch is not None and writer_epoch < table.view.writer_epoch:
            return EpochFenced(writer_epoch=table.view.writer_epoch)
        there = table.view.upper == expected or (told == expected and table.view.upper < expected)
        if not there or expected.step is None:
            return UpperMoved(upper=table.view.upper)
        check_not_told(stored, told)
        about = {TOKEN: token, LOWER: expected.step, **_standing(table, position)}
        if table.commit(transactions, about, _appending(table, stored)):
            return Appended(upper=upper)
    raise table.always_beaten()


def progress(table: ShardTable, upper: Antichain, writer_epoch: WriterEpoch | None) -> AppendOutcome:
    """Makes durable that nothing happens before ``upper``, from wherever the shard stands."""
    transactions = {UPPER: to_number(upper)}
    if writer_epoch is not None:
        transactions[EPOCH] = writer_epoch
    for _ in range(RACES_LOST_MAX):
        table.follow()
        if writer_epoch is not None and writer_epoch < table.view.writer_epoch:
            return EpochFenced(writer_epoch=table.view.writer_epoch)
        if not upper > table.view.upper:
            return Appended(upper=table.view.upper)
        if table.commit(transactions, _standing(table), _appending(table, None)):
            return Appended(upper=upper)
    raise table.always_beaten()


def take_over(table: ShardTable, writer_epoch: WriterEpoch) -> TakenOver | EpochFenced:
    for _ in range(RACES_LOST_MAX):
        table.follow()
        if writer_epoch < table.view.writer_epoch:
            return EpochFenced(writer_epoch=table.view.writer_epoch)
        if writer_epoch == table.view.writer_epoch:
            return TakenOver(upper=table.view.upper)
        # The upper beside the epoch, so that this conflicts with an append under way even if it would retry.
        transactions = {EPOCH: writer_epoch, UPPER: to_number(table.view.upper)}
        table.commit(transactions, _standing(table), _appending(table, None))
    raise table.always_beaten()


def advance_since(table: ShardTable, since: Antichain) -> None:
    for _ in range(RACES_LOST_MAX):
        table.follow()
        if not since > table.view.since:
            return
        table.commit({SINCE: to_number(since)}, _standing(table), _appending(table, None))
    raise table.always_beaten()


def grow(table: ShardTable, wanted: pa.Schema, writer_epoch: WriterEpoch | None) -> Grown | EpochFenced:
    for _ in range(RACES_LOST_MAX):
        table.follow()
        if writer_epoch is not None and writer_epoch < table.view.writer_epoch:
            return EpochFenced(writer_epoch=table.view.writer_epoch)
        check_extends(table.id, table.schema, wanted)
        if len(wanted) == len(table.schema):
            return Grown(schema=table.schema)
        # The upper as for a change of the writer: no append that was checked before this may come after it.
        transactions = {UPPER: to_number(table.view.upper)}
        if writer_epoch is not None:
            transactions[EPOCH] = writer_epoch
        table.commit(transactions, _standing(table), _adding(added_fields(table.schema, wanted)))
    raise table.always_beaten()


def _adding(fields: list[Field]) -> Write:
    def write(handle: DeltaTable, properties: CommitProperties) -> None:
        handle.alter.add_columns(fields, commit_properties=properties, post_commithook_properties=HOOKS_OFF)

    return write


def _standing(table: ShardTable, position: str | None = None) -> dict[str, str | int]:
    return {POSITION: table.view.position if position is None else position}


def _appending(table: ShardTable, stored: pa.Table | None) -> Write:
    # It may have grown since the rows were checked.
    rows = table.schema.empty_table() if stored is None else widened(stored, table.schema)

    def write(handle: DeltaTable, properties: CommitProperties) -> None:
        write_deltalake(
            handle,
            rows,
            mode="append",
            storage_options=table.place.options,
            commit_properties=properties,
            post_commithook_properties=HOOKS_OFF,
        )

    return write
