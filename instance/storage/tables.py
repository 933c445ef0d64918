"""Tables: sources whose upstream is the controller."""

import json
from typing import assert_never

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types

from instance.shards.store import Appended, EpochFenced, Shard, ShardStore, UpperMoved
from instance.storage.source import Report, SourceEnded
from plainsong.arrow_updates import ArrowUpdates
from plainsong.types import DIFF, schema
from reconcile.compute_actions import UpperReported
from reconcile.errors import InvalidRequest, InvariantBroken
from reconcile.frontiers import Antichain
from reconcile.ids import GlobalId, Step, WriterEpoch
from reconcile.sources import SourceDescription
from reconcile.storage_actions import AppendDurable, ContentsRead, SourceStopped, Write
from reconcile.updates import UpdateList, Updates

#: Tries of one append when somebody else moves the upper, which nobody may while our epoch holds.
_TRIES_MAX = 8
#: A step after every other, at which a closed table is read.
_LAST_STEP = Step(2**62)


def table_schema(description: SourceDescription) -> pa.Schema:
    """The user's columns as a table's definition names them."""
    columns = dict(description.definition).get("columns", "")
    try:
        return schema([(str(name), str(type), bool(not_null)) for name, type, not_null in json.loads(columns)])
    except (ValueError, TypeError) as error:
        raise InvalidRequest(f"the columns of {description.id} cannot be read", detail=columns) from error


def require_only_added(before: SourceDescription, after: SourceDescription) -> None:
    """Columns are only ever added, after the others, and may be null: raises ``InvalidRequest`` for anything else."""
    ours, wanted = table_schema(before), table_schema(after)
    for place, field in enumerate(ours):
        if place >= len(wanted) or wanted.field(place).name != field.name:
            raise _not_altered(before, f"column {field.name!r} would be gone or have another name")
        if not wanted.field(place).equals(field):
            raise _not_altered(before, f"column {field.name!r} would change its type, or whether it may be null")
    for field in list(wanted)[len(ours) :]:
        if not field.nullable:
            raise _not_altered(
                before, f"column {field.name!r} is added as not null, though in every row that is there it is"
            )


def _not_altered(source: SourceDescription, detail: str) -> InvalidRequest:
    hint = "add columns that may be null; or drop it, create it again"
    return InvalidRequest(f"the columns of {source.id} cannot be altered", detail=detail, hint=hint)


class TableSource:
    """The one writer of a table's shard, for as long as its epoch is not fenced."""

    def __init__(self, description: SourceDescription, store: ShardStore, report: Report) -> None:
        self._description = description
        self._store = store
        self._report = report
        self._open_shard: Shard | None = None

    @property
    def _id(self) -> GlobalId:
        return self._description.id

    @property
    def _shard(self) -> Shard:
        if self._open_shard is None:
            raise InvariantBroken(f"table {self._id} was not started")
        return self._open_shard

    @property
    def _writer_epoch(self) -> WriterEpoch:
        if self._description.writer_epoch is None:
            raise InvalidRequest(f"table {self._id} carries no writer epoch", detail="without one it cannot be written")
        return self._description.writer_epoch

    async def start(self) -> None:
        self._open_shard = await self._store.open(self._id, table_schema(self._description))
        await self._take_over()
        self._report(UpperReported(id=self._id, upper=self._shard.upper))

    async def alter(self, description: SourceDescription) -> None:
        """Columns may be added, and its writer epoch may rise."""
        require_only_added(self._description, description)
        self._description = description
        await self._take_over()

    async def _take_over(self) -> None:
        """Fences all others, then gives the shard the columns that it may lack still."""
        outcome = await self._shard.take_over(self._writer_epoch)
        if isinstance(outcome, EpochFenced):
            raise self._fenced(outcome)
        grown = await self._shard.grow(table_schema(self._description), writer_epoch=self._writer_epoch)
        if isinstance(grown, EpochFenced):
            raise self._fenced(grown)

    async def write(self, write: Write) -> None:
        """Appends all of it in one commit and makes the shard complete below its upper.

        Rows whose token is in the shard are not written again; what is left of the write is its upper.
        """
        rows = _as_table(write.updates, self._shard.schema)
        if rows is not None and (null := self._null_where_forbidden(rows)) is not None:
            self._refuse(write, f"column {null} must not be null")
            return
        for _ in range(_TRIES_MAX):
            found = await self._shard.find_token(write.token) is not None
            upper = self._shard.upper
            nothing_to_write = found or rows is None
            if nothing_to_write and not write.upper > upper:
                self._durable(write, upper)
                return
            if not found and (not write.upper > upper or len(write.updates.not_before(upper)) < len(write.updates)):
                self._too_late(write, upper)
                return
            outcome = await self._shard.compare_and_append(
                expected=upper,
                upper=write.upper,
                updates=None if found else rows,
                writer_epoch=self._writer_epoch,
                token="" if found else write.token,
            )
            match outcome:
                case Appended(upper=upper):
                    self._durable(write, upper)
                    return
                case EpochFenced():
                    raise self._fenced(outcome)
                case UpperMoved():
                    continue
                case _:
                    assert_never(outcome)
        raise InvariantBroken(f"somebody else writes to table {self._id} under writer epoch {self._writer_epoch}")

    def _durable(self, write: Write, upper: Antichain) -> None:
        self._report(UpperReported(id=self._id, upper=upper))
        self._report(AppendDurable(id=self._id, token=write.token))

    def _null_where_forbidden(self, rows: pa.Table) -> str | None:
        """Shards let every column be null; what a table declares is for us to guard, after the controller has."""
        names = (field.name for field in table_schema(self._description) if not field.nullable)
        return next((name for name in names if name not in rows.column_names or rows[name].null_count), None)

    def _too_late(self, write: Write, upper: Antichain) -> None:
        """Accepted before we had said how far the shard is."""
        self._report(UpperReported(id=self._id, upper=upper))
        self._refuse(write, f"it came too late: the table is final below {upper}")

    def _refuse(self, write: Write, why: str) -> None:
        """Nothing of the write is written, so it is never acknowledged; the table goes on."""
        error = f"an append to {self._id} up to {write.upper} was refused; {why}"
        self._report(SourceStopped(id=self._id, error=error))

    def _fenced(self, fenced: EpochFenced) -> SourceEnded:
        return SourceEnded(
            f"table {self._id} has a newer writer",
            detail=f"ours has writer epoch {self._writer_epoch}, the shard {fenced.writer_epoch}",
        )

    async def read_contents(self) -> None:
        shard = self._shard
        await shard.refresh()
        # The since of a sealed table may be beyond its shard's upper; in between nothing happened.
        last = _LAST_STEP if shard.upper.step is None else Step(shard.upper.step - 1)
        at = max(last, shard.since.step or Step(0))
        held = await shard.snapshot(at, complete=Antichain.at(at + 1))
        rows: list[tuple[object, ...]] = []
        for row in held.to_pylist():
            count = row.pop(DIFF)
            if count < 0:
                raise InvariantBroken(f"table {self._id} holds {row} {count} times")
            rows.extend([tuple(row.values())] * count)
        self._report(ContentsRead(id=self._id, rows=tuple(rows)))

    async def compact(self, since: Antichain) -> None:
        await self._shard.advance_since(since)

    def pause(self) -> None:
        """A table does only what it is asked for."""

    async def stop(self) -> None:
        """The shard stays as it is; whoever writes next takes it over."""


def _as_table(updates: Updates, schema: pa.Schema) -> pa.Table | None:
    """The updates as Arrow; None if there are none."""
    if len(updates) == 0:
        return None
    match updates:
        case ArrowUpdates():
            return updates.table
        case UpdateList(updates=changes):
            # What a snapshot changes; its rows are tuples in the order of the columns, as ``ContentsRead`` has them.
            rows = [(*_cells(change.row), change.step, change.diff) for change in changes]
            columns = zip(*rows, strict=True)
            arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
            return pa.Table.from_arrays(arrays, schema=schema)
        case _:
            raise InvariantBroken(f"a table cannot store {type(updates).__name__}")


def _cells(row: object) -> tuple[object, ...]:
    if not isinstance(row, tuple):
        raise InvariantBroken(f"a row must be a tuple of its cells, not {row!r}")
    return row
