"""Every type that a column can have is hashed, compared and found again; hashes never change."""

from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from instance.spine import hashing
from instance.spine.files import RunFiles
from instance.spine.hashing import row_hashes
from instance.spine.spine import Spine
from instance.spine.values import canonical, equal, identities
from plainsong.types import arrow_type
from reconcile.errors import InvalidRequest
from reconcile.frontiers import Antichain
from tests.spine.model import HASHINGS, SMALL, Model, counted, frozen, keys_of, merge_all, save, stepped, table_of

FLOATS = [0.0, -0.0, float("nan"), float("inf"), 1.5, -1.5]
TEXTS = ["", "a", "b", "ab", "ba", "\0", "\0\0", "12345678", "123456789", "x" * 300, "x" * 301, "snö", "x" * 299 + "y"]
VALUES: dict[pa.DataType, list[Any]] = {
    arrow_type("boolean"): [True, False],
    arrow_type("tinyint"): [0, -128, 127],
    arrow_type("smallint"): [0, -1, 32767],
    arrow_type("int"): [0, -1, 1 << 30],
    arrow_type("bigint"): [0, -1, 1, 1 << 62, -(1 << 63)],
    arrow_type("float"): FLOATS,
    arrow_type("double"): FLOATS,
    arrow_type("decimal(38,10)"): [Decimal(0), Decimal("0.5"), Decimal(10) ** 27, -(Decimal(10) ** 27)],
    arrow_type("decimal(5,2)"): [Decimal("0.01"), Decimal("-999.99")],
    arrow_type("string"): TEXTS,
    arrow_type("binary"): [text.encode() for text in TEXTS],
    arrow_type("date"): [date(1969, 12, 31), date(1970, 1, 1), date(9999, 12, 31)],
    arrow_type("timestamp"): [datetime(1969, 12, 31, tzinfo=UTC), datetime(2024, 2, 29, 1, 2, 3, 4, tzinfo=UTC)],
    pa.list_(pa.float64()): [[], [0.0], [-0.0], [float("nan")], [None], [1.0, 2.0], [2.0, 1.0], [0.0, 0.0]],
    pa.list_(pa.list_(pa.string())): [[], [[]], [[], []], [["a"], ["b"]], [["a", "b"]], [None], [[None]]],
    pa.struct([("a", pa.int32()), ("b", pa.string())]): [
        {"a": 1, "b": None},
        {"a": None, "b": None},
        {"a": 1, "b": "x"},
    ],
    pa.list_(pa.struct([("f", pa.float32())])): [[{"f": 0.0}], [{"f": -0.0}], [{"f": None}], [None], [{"f": 1.5}] * 2],
    pa.map_(pa.string(), pa.float64()): [[], [("a", 0.0)], [("a", -0.0)], [("a", None)], [("a", 0.0), ("b", 1.0)]],
}
TYPES = sorted(VALUES, key=str)


def typed(draw: st.DrawFn, type: pa.DataType, size: int) -> list[Any]:
    values = st.sampled_from([None, *VALUES[type]])
    return draw(st.lists(values, min_size=size, max_size=size))


@st.composite
def arrays(draw: st.DrawFn) -> pa.Array:
    """Of any type and in any place of a larger array."""
    type = draw(st.sampled_from(TYPES))
    values = typed(draw, type, draw(st.integers(0, 20)))
    begin = draw(st.integers(0, len(values)))
    return pa.array(values, type).slice(begin, draw(st.integers(0, len(values))))


@given(arrays())
@settings(deadline=None)
def test_equal_values_have_equal_bits_equal_hashes_and_one_identity(array: pa.Array) -> None:
    values = [frozen(value) for value in array.to_pylist()]
    form = canonical(array)
    form.validate(full=True)

    hashes, found = row_hashes([form], None), identities([form], len(form))

    assert [frozen(value) for value in form.to_pylist()] == values
    for place, value in enumerate(values):
        alike = np.array([other == value for other in values])
        assert (hashes[place] == hashes).tolist() == alike.tolist()
        assert (found[place] == found).tolist() == alike.tolist()
        assert equal(form, form.take(pa.array([place] * len(form)))).tolist() == alike.tolist()
        assert row_hashes([form.slice(place, 1)], None)[0] == hashes[place]


@given(arrays(), st.integers(1, 5))
@settings(deadline=None)
def test_hashes_do_not_depend_on_how_many_rows_are_hashed_at_once(array: pa.Array, rows: int) -> None:
    form = canonical(array)
    whole = row_hashes([form], None)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hashing, "ROWS_AT_ONCE", rows)
        patch.setattr(hashing, "FEW", 0)
        assert row_hashes([form], None).tolist() == whole.tolist()
        assert row_hashes([form], whole).tolist() == row_hashes([form, form], None).tolist()


def test_hashes_are_those_that_files_hold() -> None:
    """If this fails, files that were written before are read wrongly: give ``hashing.SCHEME`` another number."""
    hashes = [int(row_hashes([canonical(pa.array(VALUES[type], type))], None).sum()) for type in TYPES]

    assert (hashing.SCHEME, [f"{hash:016x}" for hash in hashes]) == (1, EXPECTED)


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 64, 200, 5000])
def test_texts_that_differ_in_one_byte_or_in_length_have_different_hashes(length: int) -> None:
    text = bytes(range(256)) * 20
    texts = [text[:length], text[: length + 1], text[:length] + b"\0", text[:length] + b"\0\0"]
    texts += [text[:place] + b"\xff" + text[place + 1 : length] for place in range(0, length, 97)]

    hashes = row_hashes([pa.array(texts, pa.binary())], None)

    assert len(set(hashes.tolist())) == len(set(texts))


def test_hashes_lie_evenly() -> None:
    """A hundred thousand small integers, and as many texts: no bucket of a thousand is far from the mean."""
    for column in (pa.array(range(100_000)), pa.array([f"name-{number}" for number in range(100_000)])):
        hashes = row_hashes([column], None)

        for shift in (0, 24, 54):
            counts = np.bincount(((hashes >> np.uint64(shift)) & np.uint64(1023)).astype(np.int64), minlength=1024)
            assert 45 < counts.min() < counts.max() < 160
        assert len(np.unique(hashes)) == 100_000


@given(st.data(), st.sampled_from(sorted(HASHINGS)))
@settings(max_examples=80, deadline=None)
def test_rows_of_any_types_are_found_by_any_key(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, hashing: str
) -> None:
    types = data.draw(st.lists(st.sampled_from(TYPES), min_size=1, max_size=3))
    schema = pa.schema([(f"c{place}", type) for place, type in enumerate(types)])
    key = data.draw(st.lists(st.sampled_from(schema.names), unique=True))
    size = data.draw(st.integers(1, 12))
    rows = list(zip(*[data.draw(st.composite(typed)(type, size)) for type in types], strict=True))
    files = RunFiles(tmp_path_factory.mktemp("runs"))
    spine = Spine(schema, key, files, sizes=SMALL, hashing=HASHINGS[hashing])
    model = Model([schema.names.index(name) for name in spine.key])
    for step, row in enumerate([*rows, *rows[:3]]):
        spine.insert(table_of(schema, [(row, step, 1)]))
        model.insert([(row, step, 1)])
        merge_all(spine)
    save(spine)
    spine = Spine.restore(files, spine.manifest(Antichain.at(99)), sizes=SMALL, hashing=HASHINGS[hashing])

    spine.check()
    assert stepped(spine.changes_from(0)) == model.history(0)
    for row in rows:
        assert counted(spine.lookup(keys_of(schema, key, [row]))) == model.contents(None, {model.key(row)})


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"_step": [1], "_diff": [1]}, "do not have the columns"),
        ({"a": ["no number"], "_step": [1], "_diff": [1]}, "do not have the columns"),
        ({"a": [1], "_step": [1]}, "do not have the columns"),
        ({"a": [1], "_step": [None], "_diff": [1]}, "has nulls"),
    ],
)
def test_what_is_not_an_update_is_refused(columns: dict[str, Sequence[Any]], message: str) -> None:
    spine = Spine(pa.schema([("a", pa.int64())]), ())

    with pytest.raises(InvalidRequest, match=message):
        spine.insert(pa.table(columns))

    assert spine.rows == 0


def test_other_numbers_are_taken_if_nothing_is_lost(tmp_path: Path) -> None:
    spine = Spine(pa.schema([("a", pa.int64()), ("b", pa.string())]), ["a"], RunFiles(tmp_path))
    spine.insert(
        pa.table({"a": pa.array([1], pa.int8()), "b": pa.array(["x"]).dictionary_encode(), "_step": [1], "_diff": [1]})
    )

    assert counted(spine.lookup(pa.table({"a": pa.array([1], pa.int16())}))) == {(1, "x"): 1}


#: One for each type, in the order of their names.
EXPECTED = [
    "6672c2560cd2faaf",  # binary
    "7adca459ee9303de",  # bool
    "d50179284ed4b4f1",  # date32[day]
    "c14b7a9583c1b3c7",  # decimal128(38, 10)
    "2195bd80b45b0474",  # decimal128(5, 2)
    "4c62914ba3b80ac1",  # double
    "44d52dfa0249a937",  # float
    "8c6017f71b44b34a",  # int16
    "ecd347f0217a6eee",  # int32
    "ee7a92d2299e661f",  # int64
    "2084712aa0074a7a",  # int8
    "33e146198321e354",  # list<item: double>
    "829a34ec30bf93c2",  # list<item: list<item: string>>
    "282829e1a50428c9",  # list<item: struct<f: float>>
    "104e9d222e5fb30c",  # map<string, double>
    "6672c2560cd2faaf",  # string
    "eb81393b4b79cd13",  # struct<a: int32, b: string>
    "db744314d46333e0",  # timestamp[us, tz=UTC]
]
