"""Updates as Arrow: rows with ``_step`` and ``_diff``, which cross the wire as an IPC stream."""

import struct
from collections.abc import Iterator
from typing import Self

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types
import pyarrow.compute as pc  # type: ignore[import-untyped]

from plainsong.types import DIFF, STEP, updates_schema
from reconcile.errors import InvalidRequest, ProtocolViolation, Violation
from reconcile.frontiers import Antichain

#: How every stream ends that was not cut short.
_END = b"\xff\xff\xff\xff\x00\x00\x00\x00"


def to_ipc(table: pa.Table) -> bytes:
    """``table`` as an Arrow IPC stream, uncompressed."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def from_ipc(ipc: bytes) -> pa.Table:
    """The table in an Arrow IPC stream, every value of it checked, in memory of the order of the stream's length.

    Raises ``ProtocolViolation`` for anything else: damage, an end that is missing, compression, types without bound.
    """
    if not ipc.endswith(_END):
        raise ProtocolViolation(Violation.MALFORMED, detail="not an Arrow IPC stream: it does not come to its end")
    try:
        messages = pa.ipc.MessageReader.open_stream(ipc)
        schema = _schema(next(messages, None))
        table = pa.Table.from_batches([_batch(message, schema) for message in messages], schema)
        table.validate(full=True)
    except (pa.ArrowException, struct.error, ValueError, LookupError, ArithmeticError, OSError, MemoryError) as error:
        raise ProtocolViolation(Violation.MALFORMED, detail=f"not an Arrow IPC stream: {_first_line(error)}") from error
    return table


def _schema(message: pa.Message | None) -> pa.Schema:
    # Arrow itself would take any message for a schema, and crash.
    if message is None or message.type != "schema":
        raise ValueError("it does not begin with its columns")
    schema = pa.ipc.read_schema(message)
    _check_types(schema)
    return schema


def _batch(message: pa.Message, schema: pa.Schema) -> pa.RecordBatch:
    if message.type != "record batch":
        raise ValueError(f"a {message.type} where rows must be")
    if _is_compressed(message.metadata):
        raise ValueError("it is compressed")
    return pa.ipc.read_record_batch(message, schema)


def _is_compressed(metadata: pa.Buffer) -> bool:
    """Whether a record batch says that its buffers are compressed.

    To be known before they are read, because a few kilobytes may claim to be gigabytes; Arrow itself does not tell.
    ``metadata`` is a flatbuffer that Arrow has verified: a Message, whose field 2 is the RecordBatch, whose field 3
    is there if it is compressed.
    """
    (message,) = struct.unpack_from("<I", metadata, 0)
    header = message + _field_place(metadata, message, 2)
    return _field_place(metadata, header + struct.unpack_from("<I", metadata, header)[0], 3) != 0


def _field_place(metadata: pa.Buffer, table: int, field: int) -> int:
    """Where the flatbuffer table at ``table`` has this field, counted from the table; 0 if it has none."""
    vtable = table - struct.unpack_from("<i", metadata, table)[0]
    (vtable_bytes,) = struct.unpack_from("<H", metadata, vtable)
    entry = 4 + 2 * field
    return int(struct.unpack_from("<H", metadata, vtable + entry)[0]) if entry < vtable_bytes else 0


def _check_types(schema: pa.Schema) -> None:
    """Refuses types of which few bytes make many values: they would make a small message unbounded."""
    if not schema.names:
        raise ValueError("it has no columns")
    for field in schema:
        if not _is_bounded(field.type):
            raise ValueError(f"column {field.name!r} is of type {field.type}, which is not sent")


def _is_bounded(type: pa.DataType) -> bool:
    """Whether every value takes room of its own in a message."""
    if pa.types.is_map(type):
        return _is_bounded(type.key_type) and _is_bounded(type.item_type)
    if pa.types.is_list(type):
        return _is_bounded(type.value_type)
    if pa.types.is_struct(type):
        return type.num_fields > 0 and all(_is_bounded(field.type) for field in type)
    if pa.types.is_timestamp(type) and type.tz is not None:
        # Raises for a zone that nobody knows; it would otherwise fail whoever reads the first value.
        pa.lib.string_to_tzinfo(type.tz)
    return any(
        is_kind(type)
        for is_kind in (
            pa.types.is_primitive,
            pa.types.is_decimal,
            pa.types.is_string,
            pa.types.is_large_string,
            pa.types.is_binary,
            pa.types.is_large_binary,
        )
    )


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


class ArrowUpdates:
    """A batch of updates, held as an IPC stream, as a table, or as both; each made from the other when asked for.

    What came from the wire is not looked at before somebody asks for its table or its length; damage shows then,
    as a ``ProtocolViolation``. Equal when the contents are, to the bit and in order.
    """

    __slots__ = ("_ipc", "_table")

    def __init__(self, ipc: bytes | None, table: pa.Table | None) -> None:
        self._ipc = ipc
        self._table = table

    @classmethod
    def of(cls, table: pa.Table) -> Self:
        """Updates from a table; raises ``InvalidRequest`` unless it has good ``_step`` and ``_diff`` columns."""
        if (fault := _fault(table)) is not None:
            raise InvalidRequest("the table does not hold updates", detail=fault)
        return cls(None, table)

    @classmethod
    def encoded(cls, ipc: bytes) -> Self:
        """Updates from an IPC stream, not yet looked at. No bytes at all are no updates."""
        return cls(ipc, None)

    @property
    def table(self) -> pa.Table:
        if self._table is None:
            table = from_ipc(self._ipc) if self._ipc else _nothing()
            if (fault := _fault(table)) is not None:
                raise ProtocolViolation(Violation.MALFORMED, detail=f"these are not updates: {fault}")
            self._table = table
        return self._table

    @property
    def ipc(self) -> bytes:
        if self._ipc is None:
            self._ipc = to_ipc(self._table)
        return self._ipc

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def not_before(self, frontier: Antichain) -> "ArrowUpdates":
        table = self.table
        if table.num_rows == 0:
            return self
        if frontier.step is None:
            return ArrowUpdates(None, table.slice(0, 0))
        if frontier.step <= pc.min(table[STEP]).as_py():
            return self
        return ArrowUpdates(None, table.filter(pc.greater_equal(table[STEP], frontier.step)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ArrowUpdates):
            return NotImplemented
        if self._ipc is not None and self._ipc == other._ipc:
            return True
        return self.table.schema.equals(other.table.schema) and all(
            ours.equals(theirs) for ours, theirs in zip(_bits(self.table), _bits(other.table), strict=True)
        )

    def __hash__(self) -> int:
        return hash((self.table.num_rows, *self.table.column_names))

    def __repr__(self) -> str:
        if self._table is None:
            return f"<ArrowUpdates, {len(self._ipc or b'')} bytes>"
        return f"<ArrowUpdates, {self._table.num_rows} rows of {', '.join(self._table.column_names)}>"


def _nothing() -> pa.Table:
    return updates_schema(pa.schema([])).empty_table()


def _fault(table: pa.Table) -> str | None:
    """What keeps ``table`` from being updates, if anything does."""
    for name in (STEP, DIFF):
        if table.column_names.count(name) != 1:
            return f"there must be one column {name}"
        if table.schema.field(name).type != pa.int64():
            return f"{name} must be a bigint, not {table.schema.field(name).type}"
        if table[name].null_count:
            return f"{name} must not be null"
    if table.num_rows and pc.min(table[STEP]).as_py() < 0:
        return f"{STEP} must not be negative"
    return None


def _bits(table: pa.Table) -> Iterator[pa.ChunkedArray]:
    """The columns, with floating-point numbers as their bits, so that a NaN equals itself."""
    for column in table.columns:
        if pa.types.is_floating(column.type):
            whole = {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[column.type.bit_width]
            yield pa.chunked_array([chunk.view(whole) for chunk in column.chunks], whole)
        else:
            yield column
