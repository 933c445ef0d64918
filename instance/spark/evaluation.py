"""One SQL text, evaluated by Spark over tables that change from call to call.

Tables that are small are shipped as they are; larger ones as Parquet files, because a large local relation can bring
the JVM out of memory.
"""

import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession
from sqlglot import exp, parse_one

from instance.memory.rows import RowFormat
from instance.spark.session import SparkHost
from plainsong.types import DIFF
from reconcile.errors import InvalidRequest

#: What is shipped as a local relation, at most.
SHIPPED_BYTES_MAX = 4 * 1024 * 1024

_numbers = count(1)

#: Tables by the names that a text has for them.
Tables: TypeAlias = Mapping[str, pa.Table]


#: Makes a session ready for a text.
Prepare: TypeAlias = Callable[[SparkSession], None]


def _nothing(session: SparkSession) -> None:
    """Most texts need no more than Spark has."""


class Evaluation:
    """Computes what ``text`` gives over tables named by ``aliases``; one call at a time."""

    def __init__(
        self,
        host: SparkHost,
        scratch: Path,
        *,
        text: str,
        aliases: Sequence[str],
        format: RowFormat,
        prepare: Prepare = _nothing,
    ) -> None:
        """``prepare`` is called with the session before the text is."""
        self._host = host
        self._scratch = scratch
        self._prepare = prepare
        self._format = format
        number = next(_numbers)
        self._sides = [_Side(text, aliases, f"plainsong_{number}_{side}") for side in range(2)]

    async def rows(self, before: Tables | None, after: Tables) -> pa.Table:
        """The rows after, each with ``_diff`` 1, and those before, if given, with ``_diff`` -1; not consolidated."""
        return await self._host.run(lambda session: self._evaluated(session, before, after))

    def _evaluated(self, session: SparkSession, before: Tables | None, after: Tables) -> pa.Table:
        folder = Path(tempfile.mkdtemp(dir=self._scratch, prefix="sql-"))
        try:
            self._prepare(session)
            texts = list[str]()
            for side, tables, diff in zip(self._sides, (after, before), (1, -1), strict=True):
                if tables is not None:
                    side.register(session, tables, folder)
                    texts.append(f"SELECT *, {diff}L AS {DIFF} FROM ({side.text})")
            return self._fitted(session.sql(" UNION ALL ".join(texts)).coalesce(1).toArrow())
        finally:
            for side in self._sides:
                side.forget(session)
            shutil.rmtree(folder, ignore_errors=True)

    def _fitted(self, table: pa.Table) -> pa.Table:
        wanted = self._format.schema.append(pa.field(DIFF, pa.int64()))
        try:
            return table.rename_columns(wanted.names).cast(wanted)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
            raise InvalidRequest(
                "Spark gives other columns than were declared",
                detail=f"it gives {table.schema.to_string(show_field_metadata=False)}",
                hint="cast them to the declared types",
            ) from error


class _Side:
    """The text over views of its own, so that before and after can be asked for at once."""

    def __init__(self, text: str, aliases: Sequence[str], prefix: str) -> None:
        self._views = {alias: f"{prefix}{alias}" for alias in aliases}
        tree = parse_one(text, read="spark")
        for table in list(tree.find_all(exp.Table)):
            view = self._views.get(table.name)
            if view is not None and not table.db:
                # Its columns may be named by the alias.
                alias = table.alias or table.name
                table.set("this", exp.to_identifier(view))
                table.set("alias", exp.TableAlias(this=exp.to_identifier(alias, quoted=True)))
        self.text = tree.sql(dialect="spark")
        self._registered: list[str] = []

    def register(self, session: SparkSession, tables: Tables, folder: Path) -> None:
        for alias, view in self._views.items():
            shipped(session, tables[alias], folder / view).createOrReplaceTempView(view)
            self._registered.append(view)

    def forget(self, session: SparkSession) -> None:
        for view in self._registered:
            session.catalog.dropTempView(view)
        self._registered.clear()


def shipped(session: SparkSession, table: pa.Table, file: Path) -> DataFrame:
    """``table`` as Spark sees it; ``file`` is where it may be put and must stay until it was read."""
    if table.nbytes <= SHIPPED_BYTES_MAX:
        # One partition: no shuffle, and whatever depends on the order of rows depends on nothing else.
        return session.createDataFrame(_copied(table)).coalesce(1)
    pq.write_table(table, file, compression="lz4")
    # Wherever else the executors read by default, this lies in a folder.
    return session.read.parquet(file.as_uri())


def _copied(table: pa.Table) -> pa.Table:
    """The same rows, nested ones in arrays that are no slices: Spark's way in cannot read slices that have nulls."""
    if not any(pa.types.is_nested(type) for type in table.schema.types):
        return table
    return table.take(pa.array(range(table.num_rows), pa.int64()))
