"""Rows as Python values."""

import copy
import pickle
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types
import pytest
from hypothesis import given
from hypothesis import strategies as st

import plainsong
from plainsong.rows import SHOWN_ROWS_MAX, Rows, insertable, make_row

names = st.lists(st.text(min_size=1, max_size=5), min_size=1, max_size=4, unique=True)


@given(names=names, values=st.data())
def test_what_is_inserted_as_dictionaries_reads_back_the_same(names: list[str], values: st.DataObject) -> None:
    value = st.none() | st.integers(min_value=-(2**63), max_value=2**63 - 1)
    rows = values.draw(st.lists(st.fixed_dictionaries(dict.fromkeys(names, value)), min_size=1, max_size=5))

    read = Rows(insertable(rows), step=0)

    assert [dict(row) for row in read] == rows


def test_values_of_every_type_keep_it() -> None:
    moment = datetime(2026, 5, 1, 12, tzinfo=UTC)
    row = {
        "boolean": True,
        "bigint": -1,
        "double": 0.5,
        "string": "é",
        "binary": b"\0",
        "date": date(2026, 5, 1),
        "timestamp": moment,
        "decimal": Decimal("1.50"),
        "nothing": None,
    }

    assert dict(Rows(insertable([row]), step=0).one()) == row


def test_a_time_without_a_zone_is_taken_as_utc() -> None:
    table = insertable([{"at": datetime(2026, 5, 1, 12)}])

    assert table.schema.field("at").type == pa.timestamp("us", tz="UTC")
    assert table["at"].to_pylist() == [datetime(2026, 5, 1, 12, tzinfo=UTC)]


def test_a_row_is_a_tuple_with_names() -> None:
    row = make_row(("a", "b", "a"), (1, 2, 3))

    first, second, third = row
    assert (first, second, third) == (1, 2, 3)
    assert (row.a, row["b"], row[-1], row[1:]) == (1, 2, 3, (2, 3))
    assert (row.keys(), row.items()) == (("a", "b", "a"), (("a", 1), ("b", 2), ("a", 3)))
    assert repr(row) == "Row(a=1, b=2, a=3)"
    assert pickle.loads(pickle.dumps(row)) == copy.copy(row) == row
    assert type(pickle.loads(pickle.dumps(row))) is type(row)


def test_a_column_that_is_not_there_is_named_with_those_that_are() -> None:
    row = make_row(("a", "b"), (1, 2))

    with pytest.raises(KeyError, match="no column 'c', only a, b"):
        row["c"]
    with pytest.raises(AttributeError, match="no column 'c', only a, b"):
        _ = row.c


def test_one_row_means_exactly_one() -> None:
    table = pa.table({"n": [1, 2]})

    with pytest.raises(plainsong.InvalidRequest, match="there are 2 rows, not one"):
        Rows(table, step=0).one()
    assert Rows(table.slice(1), step=0).one().n == 2


def test_the_repr_of_a_large_result_is_small() -> None:
    rows = Rows(pa.table({"n": range(1_000), "text": ["x\n" * 100] * 1_000}), step=7)

    lines = repr(rows).splitlines()

    assert len(lines) == SHOWN_ROWS_MAX + 3
    assert lines[-1] == f"(1000 rows at step 7, {1_000 - SHOWN_ROWS_MAX} not shown)"
    assert max(len(line) for line in lines) < 80


def test_a_result_without_columns_or_rows_can_be_shown() -> None:
    assert repr(Rows(pa.table({}), step=1)).endswith("(0 rows at step 1)")
    assert repr(Rows(pa.table({"n": []}), step=1)) == "n\n-\n(0 rows at step 1)"
