"""The order of rows over Arrow is that of rows."""

from decimal import Decimal

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types
from hypothesis import given
from hypothesis import strategies as st

from instance.memory.batch import Batch
from instance.memory.ordering import first_rows
from instance.memory.rows import NAN, Row, row_format, row_order

FORMAT = row_format(
    ("a", "b", "c", "d", "e"), (pa.int64(), pa.float64(), pa.string(), pa.decimal128(10, 2), pa.float32())
)
FRACTIONS = st.sampled_from([NAN, float("inf"), float("-inf"), 0.0, 1.5, -1.5, 1e-300, -2.0, 3e8])
ROWS = st.tuples(
    st.none() | st.integers(-2, 2),
    st.none() | FRACTIONS,
    st.none() | st.sampled_from(["", "a", "B", "é", "\U0001f600", "ﬀ"]),
    st.none() | st.sampled_from([Decimal("0.10"), Decimal("-3.00"), Decimal("12.34")]),
    st.none() | st.sampled_from([NAN, 0.0, -0.5, 2.0]),
)


@given(st.dictionaries(ROWS, st.integers(1, 3), max_size=12), st.integers(0, 12))
def test_the_first_rows_are_those_that_sorting_rows_gives(counts: dict[Row, int], limit: int) -> None:
    batch = Batch.of(FORMAT, [(row, 0, count) for row, count in counts.items()])

    found = first_rows(batch.arrow.select([*FORMAT.names, "_diff"]), limit)

    rows = FORMAT.rows(found.columns[:-1], found.num_rows)
    got = [row for row, count in zip(rows, found.column("_diff").to_pylist(), strict=True) for _ in range(count)]
    every = [row for row, count in counts.items() for _ in range(count)]
    assert got == sorted(every, key=row_order(FORMAT.types))[:limit]
