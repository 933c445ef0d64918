"""Files are read piece by piece, and every row is taken or told with its line and the reason."""

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from instance.storage import file_reading
from instance.storage.file_reading import FileReader, arrow_reader, sieve
from reconcile.source_types import FileFormat, FilesOptions
from tests.sources.reading_suite import *  # noqa: F403  # the tests that every reader passes
from tests.sources.reading_suite import COLUMNS, MakeReader, all_of, written


def arrow(format: FileFormat = FileFormat.CSV, columns: pa.Schema = COLUMNS, **options: object) -> FileReader:
    return arrow_reader(FilesOptions(path="/", format=format, **options), columns)  # type: ignore[arg-type]


@pytest.fixture
def make_reader() -> MakeReader:
    return arrow


VALUES = st.one_of(st.none(), st.text(st.characters(codec="utf-8", exclude_characters="\r\0"), max_size=8))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.one_of(st.integers(0, 99), st.just("bad")), VALUES), max_size=30), st.integers(8, 200))
def test_it_does_not_matter_where_pieces_end(
    tmp_path_factory: pytest.TempPathFactory, lines: list[tuple[int | str, str | None]], piece_bytes: int
) -> None:
    def quoted(value: str | None) -> str:
        return "" if value is None else '"' + value.replace('"', '""') + '"'

    text = "id,name\n" + "".join(f"{id},{quoted(name)}\n" for id, name in lines)
    file = written(tmp_path_factory.mktemp("pieces") / "a.csv", text)
    expected = [(id, name) for id, name in lines if id != "bad"]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_reading, "PIECE_BYTES", piece_bytes)
        rows, bad, _ = all_of(arrow(), file)

    assert [(row["id"], row["name"]) for row in rows] == expected
    assert len(bad) == len(lines) - len(expected)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.booleans(), max_size=60))
def test_the_sieve_finds_exactly_the_bad_rows(fits: list[bool]) -> None:
    def parse(first: int, last: int) -> pa.Table:
        if not all(fits[first:last]):
            raise pa.ArrowInvalid("no")
        return pa.table({"row": list(range(first, last))})

    good, bad = sieve(len(fits), parse)

    assert [row for table in good for row in table["row"].to_pylist()] == [n for n, fit in enumerate(fits) if fit]
    assert bad == [(n, "no") for n, fit in enumerate(fits) if not fit]
