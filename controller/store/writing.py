"""Writing: effects become rows.

Rows of one table go in as few statements as possible, each with many rows. Not for the database's sake alone: sqlite3
lets go of the interpreter lock at every statement, and a thread that shares it with a busy event loop gets it back
milliseconds later; row by row, a group of 500 would take seconds where it takes one millisecond.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

from sqlalchemy import Column, Connection, Table, bindparam, delete, insert, update
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.sql import ClauseElement

from controller.store import tables
from controller.store.bounds import REPLIES_MAX
from controller.store.changes import Channel
from controller.store.effects import Effects
from controller.store.interface import fenced
from reconcile.errors import InvariantBroken
from reconcile.ids import Epoch, Seqno

#: Rows per statement, greatest first. Few sizes, so that each stays prepared; below SQLite's 32,766 parameters.
_CHUNKS = (500, 50, 5, 1)


def check_reign(connection: Connection, epoch: Epoch, next_seqno: Seqno | None = None, beat: bool = False) -> None:
    """Locks the reign for this transaction, or raises ``Fenced``; always the transaction's first statement."""
    values: dict[str, Any] = {"epoch": epoch}
    if next_seqno is not None:
        values["next_seqno"] = next_seqno
    if beat:
        values["beats"] = tables.reign.c.beats + 1
    # An update rather than a select: it locks the row in both databases, and it re-reads after waiting for the lock.
    if connection.execute(update(tables.reign).where(tables.reign.c.epoch == epoch).values(**values)).rowcount == 1:
        return
    row = connection.execute(tables.reign.select()).one_or_none()
    if row is None:
        raise InvariantBroken("the database has no reign")
    raise fenced(epoch, Epoch(row.epoch), row.holder)


def write(connection: Connection, effects: Effects) -> None:
    """Makes the outcome of a group part of the open transaction, whose reign was checked."""
    for cluster in effects.dropped_clusters:
        for table in (tables.command_log, tables.command_log_base, tables.replicas):
            connection.execute(delete(table).where(table.c.cluster == cluster))
    objects = [(str(id), put) for id, put in effects.objects.items()]
    _replace(
        connection,
        tables.catalog.c.id,
        [id for id, _ in objects],
        [(id, put.name, put.kind, put.definition) for id, put in objects if put],
    )
    _replace(
        connection,
        tables.functions.c.name,
        list(effects.functions),
        [(name, definition) for name, definition in effects.functions.items() if definition is not None],
    )
    _replace(
        connection,
        tables.clusters.c.name,
        list(effects.clusters),
        [(name, definition) for name, definition in effects.clusters.items() if definition is not None],
    )
    _replace(
        connection,
        tables.replicas.c.replica,
        list(effects.replicas),
        [(id, put.cluster, put.definition) for id, put in effects.replicas.items() if put],
    )
    epochs = [(str(id), epoch) for id, epoch in effects.writer_epochs.items()]
    _replace(
        connection,
        tables.writer_epochs.c.id,
        [id for id, _ in epochs],
        [(id, epoch) for id, epoch in epochs if epoch is not None],
    )
    _replace(connection, tables.counters.c.name, list(effects.counters), list(effects.counters.items()))
    if effects.step is not None:
        _replace(connection, tables.steps.c.one, [1], [(1, effects.step)])
    _write_replies(connection, effects)
    _insert(connection, tables.command_log, effects.log)


def write_compaction(
    connection: Connection, cluster: str, channel: Channel, through: Seqno, reduced: Sequence[bytes]
) -> None:
    """Replaces a channel's records through ``through``, and its earlier base, by a new base."""
    for table in (tables.command_log, tables.command_log_base):
        within = (table.c.cluster == cluster) & (table.c.channel == channel.value)
        if table is tables.command_log:
            within &= table.c.seqno <= through
        connection.execute(delete(table).where(within))
    bodies = (b"", *reduced)
    rows = [(cluster, channel.value, place, through, body) for place, body in enumerate(bodies)]
    _insert(connection, tables.command_log_base, rows)


def _write_replies(connection: Connection, effects: Effects) -> None:
    if not effects.replies:
        return
    rows = [(number, reply.key, reply.request_digest, reply.reply) for number, reply in effects.replies]
    # The old go first: a key may be remembered again once it was forgotten, even within one group.
    newest = rows[-1][0]
    connection.execute(delete(tables.replies).where(tables.replies.c.number <= newest - REPLIES_MAX))
    _insert(connection, tables.replies, rows[-REPLIES_MAX:])


def _replace(connection: Connection, key: Column[Any], touched: Sequence[Any], rows: Sequence[tuple[Any, ...]]) -> None:
    """Deletes every touched key, then inserts what is left; so no two rows are in each other's way between."""
    for chunk in _chunks(touched):
        connection.exec_driver_sql(_delete_sql(connection.dialect.name, key, len(chunk)), tuple(chunk))
    _insert(connection, key.table, rows)


def _insert(connection: Connection, table: Table, rows: Sequence[tuple[Any, ...]]) -> None:
    for chunk in _chunks(rows):
        sql = _insert_sql(connection.dialect.name, table, len(chunk))
        connection.exec_driver_sql(sql, tuple([value for row in chunk for value in row]))


def _chunks(rows: Sequence[Any]) -> list[Sequence[Any]]:
    chunks: list[Sequence[Any]] = []
    start = 0
    for size in _CHUNKS:
        while len(rows) - start >= size:
            chunks.append(rows[start : start + size])
            start += size
    return chunks


@cache
def _insert_sql(dialect: str, table: Table, rows: int) -> str:
    """An insert of that many rows, values in the order of the table's columns."""
    values = [
        {column.name: bindparam(f"{column.name}_{row}", type_=column.type) for column in table.columns}
        for row in range(rows)
    ]
    return _positional(dialect, insert(table).values(values))


@cache
def _delete_sql(dialect: str, key: Column[Any], rows: int) -> str:
    """A delete of that many keys."""
    return _positional(dialect, delete(key.table).where(key.in_([bindparam(f"key_{row}") for row in range(rows)])))


def _positional(dialect: str, statement: ClauseElement) -> str:
    """The driver's own text, to be executed with a plain tuple: what SQLAlchemy does per parameter is saved."""
    if dialect == "sqlite":
        return str(statement.compile(dialect=SQLiteDialect_pysqlite(paramstyle="qmark")))
    driver = PGDialect_psycopg(paramstyle="format")  # type: ignore[no-untyped-call]  # SQLAlchemy leaves it untyped
    return str(statement.compile(dialect=driver))
