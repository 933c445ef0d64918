"""Chunks: one answer cut into messages that any client takes."""

from collections.abc import Iterator

from plainsong.arrow_updates import from_ipc, to_ipc
from reconcile.limits import CHUNK_BYTES_MAX


def chunks(rows: bytes) -> Iterator[bytes]:
    """An Arrow IPC stream as one or more streams of about ``CHUNK_BYTES_MAX`` bytes, rows in order."""
    if len(rows) <= CHUNK_BYTES_MAX:
        yield rows
        return
    table = from_ipc(rows)
    each = max(1, table.num_rows * CHUNK_BYTES_MAX // len(rows))
    for first in range(0, table.num_rows, each):
        yield to_ipc(table.slice(first, each))
