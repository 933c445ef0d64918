"""DuckDB's answers: the same contents, and the query in its dialect."""

from collections import Counter

import duckdb
import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types
import sqlglot

from instance.memory.rows import Row, RowFormat
from tests.spark.oracle import Answers, History


def answers_of_duckdb(history: History, sql: str, format: RowFormat) -> Answers:
    """The answer at each step; values are converted to the declared types where that loses nothing."""
    [text] = sqlglot.transpile(sql, read="spark", write="duckdb")
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        return {at: _answer(database, history, text, format, at) for at in range(history.begin, history.steps)}


def _answer(
    database: duckdb.DuckDBPyConnection, history: History, text: str, format: RowFormat, at: int
) -> Counter[Row]:
    for table in history.tables:
        rows = list(history.contents(table.name, at).elements())
        database.register(table.name, pa.table(table.format.arrays(rows), schema=table.format.schema))
    found = database.sql(text).to_arrow_table()
    plain = found.rename_columns(list(format.names)).cast(format.schema)
    return Counter(format.rows([column.combine_chunks() for column in plain.columns], plain.num_rows))
