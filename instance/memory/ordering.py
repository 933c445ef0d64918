"""The total order of rows, over Arrow: column after column, null first, NaN above every number; as ``row_order``."""

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types
import pyarrow.compute as pc  # type: ignore[import-untyped]

from plainsong.types import DIFF


def first_rows(counted: pa.RecordBatch, limit: int) -> pa.RecordBatch:
    """Of rows with counts in ``_diff``, the last column, the first ``limit`` in order, as often as they occur."""
    if counted.num_rows == 0 or limit == 0:
        return counted.slice(0, 0)
    keys = pa.table([_sortable(column) for column in counted.columns[:-1]], names=_names(counted.num_columns - 1))
    order = pc.sort_indices(keys, sort_keys=[(name, "ascending", "at_start") for name in keys.column_names])
    found = counted.take(order[:limit])
    # The last of those that are wanted may occur more often than is left of the limit.
    counts = found.column(DIFF).to_numpy()
    left = limit - (np.cumsum(counts) - counts)
    wanted = int(np.count_nonzero(left > 0))
    counts = np.minimum(counts, left)[:wanted]
    return found.slice(0, wanted).set_column(found.num_columns - 1, found.schema.field(DIFF), pa.array(counts))


def _names(count: int) -> list[str]:
    return [str(place) for place in range(count)]


def _sortable(column: pa.Array) -> pa.Array:
    """Sorts as the values do. Fractions become whole numbers in their order: Arrow puts NaN next to null."""
    if not pa.types.is_floating(column.type):
        return column
    values = pc.fill_null(column.cast(pa.float64()), 0.0).to_numpy(zero_copy_only=False) + 0.0
    values[np.isnan(values)] = np.nan
    bits = values.view(np.int64)
    return pa.array(bits ^ ((bits >> 63) & np.int64(2**63 - 1)), mask=pc.is_null(column).to_numpy(zero_copy_only=False))
