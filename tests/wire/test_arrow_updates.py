"""Updates as Arrow: the same contents whichever way they are held, and damage told when they are opened."""

import random
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types
import pytest
from hypothesis import given

from plainsong.arrow_updates import ArrowUpdates, from_ipc, to_ipc
from reconcile.errors import InvalidRequest, ProtocolViolation, Violation
from reconcile.frontiers import CLOSED, Antichain
from reconcile.updates import Updates
from tests.wire.strategies import FRONTIERS, TABLES

TABLE = pa.table({"a": ["x", None, "z"], "_step": [5, 3, 4], "_diff": [1, -2, 1]})


def stream(table: pa.Table, **options: Any) -> bytes:
    """An IPC stream as somebody else might write it."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


@given(table=TABLES)
def test_a_table_is_read_as_it_was_written(table: pa.Table) -> None:
    updates = ArrowUpdates.of(table)

    read = ArrowUpdates.encoded(updates.ipc)

    assert read == ArrowUpdates.of(table)
    assert len(read) == len(updates) == table.num_rows
    assert hash(read) == hash(updates)
    assert from_ipc(to_ipc(table)).schema.equals(table.schema)


@given(table=TABLES, frontier=FRONTIERS)
def test_what_is_not_before_a_frontier_stays_in_order(table: pa.Table, frontier: Antichain) -> None:
    updates: Updates = ArrowUpdates.of(table)
    expected = table.filter(pa.array([frontier.is_open_at(step) for step in table["_step"].to_pylist()], pa.bool_()))

    left = updates.not_before(frontier)

    assert left == ArrowUpdates.of(expected)
    assert (left is updates) == (len(left) == len(updates))


def test_updates_are_equal_by_contents_to_the_bit() -> None:
    chunked = pa.concat_tables([TABLE.slice(0, 1), TABLE.slice(1)])
    number = pa.table({"a": [float("nan"), 0.0], "_step": [1, 1], "_diff": [1, 1]})
    negative = pa.table({"a": [float("nan"), -0.0], "_step": [1, 1], "_diff": [1, 1]})

    assert ArrowUpdates.of(chunked) == ArrowUpdates.of(TABLE)
    assert ArrowUpdates.of(TABLE.slice(1)) != ArrowUpdates.of(TABLE)
    assert ArrowUpdates.of(TABLE.rename_columns(["b", "_step", "_diff"])) != ArrowUpdates.of(TABLE)
    assert ArrowUpdates.of(number) == ArrowUpdates.encoded(to_ipc(number))
    assert ArrowUpdates.of(number) != ArrowUpdates.of(negative)
    assert ArrowUpdates.of(TABLE) != "something else"


def test_no_bytes_are_no_updates() -> None:
    nothing = ArrowUpdates.encoded(b"")

    assert len(nothing) == 0
    assert nothing.not_before(CLOSED) is nothing
    assert nothing.table.column_names == ["_step", "_diff"]
    assert nothing.ipc == b""


def test_damage_is_told_when_the_updates_are_opened_and_not_before() -> None:
    damaged = ArrowUpdates.encoded(b"not Arrow")

    assert damaged.ipc == b"not Arrow"
    assert "9 bytes" in repr(damaged)
    with pytest.raises(ProtocolViolation) as told:
        len(damaged)
    assert told.value.why is Violation.MALFORMED
    with pytest.raises(ProtocolViolation):
        damaged.not_before(CLOSED)


NO_UPDATES = {
    "no step": pa.table({"_diff": [1]}),
    "no diff": pa.table({"_step": [1]}),
    "two steps": pa.table([[1], [1], [1]], names=["_step", "_step", "_diff"]),
    "a step of another type": pa.table({"_step": pa.array([1], pa.int32()), "_diff": [1]}),
    "a diff of another type": pa.table({"_step": [1], "_diff": ["1"]}),
    "a step that is null": pa.table({"_step": pa.array([None], pa.int64()), "_diff": [1]}),
    "a diff that is null": pa.table({"_step": [1], "_diff": pa.array([None], pa.int64())}),
    "a step before all": pa.table({"_step": [-1], "_diff": [1]}),
}


@pytest.mark.parametrize("what", NO_UPDATES)
def test_a_table_that_holds_no_updates_is_refused(what: str) -> None:
    with pytest.raises(InvalidRequest):
        ArrowUpdates.of(NO_UPDATES[what])
    with pytest.raises(ProtocolViolation):
        ArrowUpdates.encoded(to_ipc(NO_UPDATES[what])).table  # noqa: B018  # opening it is the test


UNSENT = {
    "nothing": b"",
    "no columns": stream(pa.table({})),
    "null": stream(pa.table({"a": pa.nulls(3)})),
    "lists of nulls": stream(pa.table({"a": [[None], [None]]})),
    "structs of nothing": stream(pa.table({"a": pa.array([{}], pa.struct([]))})),
    "lists of such structs": stream(pa.table({"a": pa.array([[{}]], pa.list_(pa.struct([])))})),
    "a time zone that nobody knows, inside": stream(
        pa.table({"a": pa.array([[1]], pa.list_(pa.timestamp("us", "Nowhere/Land")))})
    ),
    "dictionaries": stream(pa.table({"a": pa.array(["x", "x"]).dictionary_encode()})),
    "runs": stream(pa.table({"a": pa.RunEndEncodedArray.from_arrays(pa.array([1 << 30], pa.int32()), ["x"])})),
    "a time zone that nobody knows": stream(pa.table({"a": pa.array([1], pa.timestamp("us", "Nowhere/Land"))})),
    "a batch before its columns": to_ipc(TABLE)[len(to_ipc(TABLE.schema.empty_table())) - 8 :],
    "strings of no length": stream(pa.table({"a": pa.array([b""], pa.binary(0))})),
    "compressed by zstd": stream(pa.table({"a": [0] * 10_000}), compression="zstd"),
    "compressed by lz4": stream(pa.table({"a": ["x" * 10_000]}), compression="lz4"),
}


NESTED = {
    "lists": pa.table({"a": [[1], None, [2, None]]}),
    "structs": pa.table({"a": [{"b": 1, "c": ["x"]}, None]}),
    "maps": pa.table({"a": pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.int32()))}),
}


@pytest.mark.parametrize("what", NESTED)
def test_lists_structs_and_maps_are_sent(what: str) -> None:
    assert from_ipc(to_ipc(NESTED[what])).equals(NESTED[what])


@pytest.mark.parametrize("what", UNSENT)
def test_streams_of_which_few_bytes_could_make_much_are_refused(what: str) -> None:
    with pytest.raises(ProtocolViolation) as refused:
        from_ipc(UNSENT[what])

    assert refused.value.why is Violation.MALFORMED


@pytest.mark.parametrize("type", [pa.timestamp("ns", "Europe/Berlin"), pa.uint8(), pa.large_string()], ids=str)
def test_types_that_can_be_cast_to_ours_are_read(type: pa.DataType) -> None:
    table = pa.table({"a": pa.array([1], pa.int64()).cast(type)})

    assert from_ipc(to_ipc(table)).equals(table)


def test_a_stream_of_several_batches_is_read_whole() -> None:
    table = pa.concat_tables([TABLE] * 5)

    assert from_ipc(to_ipc(table)).equals(table)
    assert from_ipc(to_ipc(TABLE.schema.empty_table())).num_rows == 0


def test_a_stream_that_was_cut_anywhere_is_refused() -> None:
    whole = to_ipc(pa.concat_tables([TABLE] * 3))

    for length in range(len(whole)):
        with pytest.raises(ProtocolViolation):
            from_ipc(whole[:length])


def test_damaged_streams_become_a_table_or_a_violation() -> None:
    """Every value is checked, so that what was read can be used."""
    drawn = random.Random("streams")
    whole = to_ipc(pa.concat_tables([TABLE, TABLE.slice(1)]))

    read = 0
    for _ in range(20_000):
        damaged = bytearray(whole)
        for _ in range(drawn.choice([1, 1, 3])):
            # The end is left alone, or few would get past the first check.
            damaged[drawn.randrange(len(whole) - 8)] = drawn.choice([0, 1, 0x7F, 0x80, 0xFF, drawn.randrange(256)])
        try:
            table = from_ipc(bytes(damaged))
        except ProtocolViolation:
            continue
        read += 1
        table.to_pylist()

    assert 1_000 < read < 19_000
