"""Rows: inserts, updates and deletes of tables, as changes that become durable together."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types

from controller.engine import Engine
from controller.objects import CatalogObject, ObjectKind
from controller.ordering import column_text
from controller.planning import get_plan
from controller.reads import ReadAt, Reads, table_of
from controller.sql import Column, CompiledQuery, compile_expression, compile_predicate
from plainsong.arrow_updates import ArrowUpdates, from_ipc
from plainsong.errors import TimedOut, Unavailable
from plainsong.types import DIFF, STEP, schema
from reconcile.errors import InvalidRequest, PlainsongError
from reconcile.ids import GlobalId, Step
from reconcile.limits import RESULT_BYTES_MAX
from reconcile.plan_tree import Node
from reconcile.table_writes import WriteAbandoned, WriteRequested


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """So many rows are durable at ``step``."""

    step: Step
    rows: int


class Rows:
    """Writes to tables."""

    def __init__(self, engine: Engine, reads: Reads) -> None:
        self._engine = engine
        self._reads = reads
        #: Updates and deletes read before they write; one at a time for each table.
        self._turns: dict[GlobalId, asyncio.Lock] = {}

    async def insert(self, name: str, ipc: bytes, *, token: str, timeout_ms: int) -> Written:
        table = self._table(name)
        if len(ipc) > RESULT_BYTES_MAX:
            raise InvalidRequest(f"{len(ipc)} bytes are too many for one insert", hint="insert in smaller pieces")
        rows = conformed(from_ipc(ipc), table)
        step = await self._append(table, _with_diff(rows, 1), token, timeout_ms)
        return Written(step=step, rows=rows.num_rows)

    async def delete(self, name: str, where: str, *, token: str, timeout_ms: int) -> Written:
        table = self._table(name)
        columns = _columns(table)
        predicate = compile_predicate(where, columns, table=name) if where else None
        async with self._turn(table):
            old = await self._matching(table, predicate, [(c.name, column_text(c.name)) for c in columns], timeout_ms)
            if not old.num_rows:
                return Written(step=self._engine.acknowledged, rows=0)
            step = await self._append(table, _with_diff(conformed(old, table), -1), token, timeout_ms)
        return Written(step=step, rows=old.num_rows)

    async def update(
        self, name: str, settings: Mapping[str, str], where: str, *, token: str, timeout_ms: int
    ) -> Written:
        table = self._table(name)
        columns = _columns(table)
        if not settings:
            raise InvalidRequest("an update sets nothing", hint="say which column gets which value")
        known = {column.name: column for column in columns}
        for unknown in sorted(settings.keys() - known.keys()):
            raise InvalidRequest(f"{name} has no column {unknown!r}", hint=f"it has {', '.join(known)}")
        predicate = compile_predicate(where, columns, table=name) if where else None
        wanted = [(f"old {column.name}", column_text(column.name)) for column in columns]
        for column in columns:
            text = settings.get(column.name)
            value = column_text(column.name) if text is None else compile_expression(text, columns, table=name)[0]
            wanted.append((f"new {column.name}", f"CAST({value} AS {column.type.upper()})"))
        async with self._turn(table):
            found = await self._matching(table, predicate, wanted, timeout_ms)
            if not found.num_rows:
                return Written(step=self._engine.acknowledged, rows=0)
            half, names = len(columns), list(known)
            old = conformed(found.select(list(range(half))).rename_columns(names), table)
            new = conformed(found.select(list(range(half, 2 * half))).rename_columns(names), table)
            changes = pa.concat_tables([_with_diff(old, -1), _with_diff(new, 1)])
            step = await self._append(table, changes, token, timeout_ms)
        return Written(step=step, rows=found.num_rows)

    def _table(self, name: str) -> CatalogObject:
        table = self._engine.state.catalog.require(name, ObjectKind.TABLE)
        if not self._engine.state.clusters[table.cluster].replicas:
            raise InvalidRequest(
                f"cannot write to {name}", detail=f"cluster {table.cluster} has no replica", hint="add one to it"
            )
        return table

    def _turn(self, table: CatalogObject) -> asyncio.Lock:
        return self._turns.setdefault(table.id, asyncio.Lock())

    async def _matching(
        self, table: CatalogObject, predicate: str | None, wanted: list[tuple[str, str]], timeout_ms: int
    ) -> pa.Table:
        """The rows of a table that match, each as often as it is there, as these expressions."""
        plan = get_plan(table.id, _columns(table))
        if predicate is not None:
            plan = Node(op="filter", fields=(("input", plan), ("predicate", predicate)))
        node = Node(op="project", fields=(("input", plan), ("columns", tuple(wanted))))
        query = CompiledQuery(
            plan=node, columns=(), reads=(table.id,), names=(table.name,), order=None, limit=None, text=""
        )
        return table_of(await self._reads.query(query, table.cluster, ReadAt(timeout_ms=timeout_ms)))

    async def _append(self, table: CatalogObject, rows: pa.Table, token: str, timeout_ms: int) -> Step:
        """Waits until ``rows`` are durable. When it gives up, they may be or may not."""
        engine = self._engine
        # As it is sent, with the step: the types of the table may take far more than those that were given.
        if (size := rows.nbytes + 8 * rows.num_rows) > RESULT_BYTES_MAX:
            raise InvalidRequest(
                f"{rows.num_rows} changes of {size} bytes are too many for one step",
                detail=f"at most {RESULT_BYTES_MAX} bytes are written at once",
                hint="write in smaller pieces",
            )
        done: asyncio.Future[Step] = asyncio.get_running_loop().create_future()
        if token in engine.waiting_writes:
            return await asyncio.shield(engine.waiting_writes[token])
        engine.waiting_writes[token] = done
        engine.write(WriteRequested(id=table.id, token=token, rows=_stamped(rows)))
        timeout_ms = timeout_ms or engine.settings.timeout_ms
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await done
        except TimeoutError as error:
            raise self._late(table, timeout_ms) from error
        finally:
            if engine.waiting_writes.get(token) is done:
                del engine.waiting_writes[token]
                engine.write(WriteAbandoned(id=table.id, token=token))

    def _late(self, table: CatalogObject, timeout_ms: int) -> PlainsongError:
        cluster = self._engine.state.clusters[table.cluster].machine
        if not cluster.replicas:
            return Unavailable(
                f"no replica of cluster {table.cluster} could be reached within {timeout_ms} ms",
                hint="see `plainsong status`; the same request may be sent again",
            )
        return TimedOut(
            f"the write was not durable within {timeout_ms} ms",
            hint="the same request may be sent again: it counts once",
        )


def conformed(rows: pa.Table, table: CatalogObject) -> pa.Table:
    """``rows`` with exactly the columns and types of ``table``; a nullable column may be missing."""
    wanted = schema([(column.name, column.type) for column in table.columns])
    names = set(rows.column_names)
    if len(names) != rows.num_columns:
        raise InvalidRequest("a column is there twice")
    unknown = [name for name in rows.column_names if name not in wanted.names]
    if unknown:
        raise InvalidRequest(f"{table.name} has no column {unknown[0]!r}", hint=f"it has {', '.join(wanted.names)}")
    arrays = []
    for column, field in zip(table.columns, wanted, strict=True):
        if column.name not in names:
            if column.not_null:
                raise InvalidRequest(f"column {column.name} of {table.name} must not be null", detail="it is missing")
            arrays.append(pa.chunked_array([pa.nulls(rows.num_rows, field.type)]))
            continue
        values = rows.column(column.name)
        if column.not_null and values.null_count:
            raise InvalidRequest(f"column {column.name} of {table.name} must not be null")
        try:
            arrays.append(values.cast(field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            reason = str(error).splitlines()[0]
            raise InvalidRequest(
                f"column {column.name} of {table.name} is {column.type}", detail=f"the value does not fit: {reason}"
            ) from error
    # In one piece: a thousand pieces of a row each would be sent, and stored, as so many.
    return pa.table(arrays, names=list(wanted.names)).combine_chunks()


def _columns(table: CatalogObject) -> tuple[Column, ...]:
    return tuple(Column(name=c.name, type=c.type, nullable=not c.not_null) for c in table.columns)


def _with_diff(rows: pa.Table, diff: int) -> pa.Table:
    diffs = pa.repeat(pa.scalar(diff, pa.int64()), rows.num_rows)
    return rows.append_column(pa.field(DIFF, pa.int64(), nullable=False), diffs)


def _stamped(rows: pa.Table) -> Callable[[Step], ArrowUpdates]:
    def at(step: Step) -> ArrowUpdates:
        steps = pa.repeat(pa.scalar(step, pa.int64()), rows.num_rows)
        return ArrowUpdates.of(rows.append_column(pa.field(STEP, pa.int64(), nullable=False), steps))

    return at
