"""Names: which are accepted, and why others are not."""

import pytest

from controller.sql import Column, compile_columns, validate_name
from reconcile.errors import InvalidRequest
from tests.sql.tables import columns


@pytest.mark.parametrize(
    "name", ["a", "it's", 'a "b"', "../x", "🙂‍↔️", "sélect", "x" * 255, " ", "`", "a;drop table b", "%00"]
)
def test_strange_names_are_names(name: str) -> None:
    assert validate_name(name) == name


@pytest.mark.parametrize(
    ("name", "message", "detail"),
    [
        ("", "a name is empty", ""),
        ("x" * 256, "is too long", "256 characters"),
        ("x" * 10_000_000, "is too long", "10000000 characters"),
        ("a\0b", "cannot be used", "character 2 is a control character (U+0000)"),
        ("a\nb", "cannot be used", "control character (U+000A)"),
        ("\x1b[31m", "cannot be used", "character 1 is a control character (U+001B)"),
        ("\x85", "cannot be used", "control character"),
        ("\u2028", "cannot be used", "line separator"),
        ("\ud800", "cannot be used", "surrogate"),
    ],
)
def test_names_that_cannot_be_shown_or_stored_are_refused_with_the_reason(name: str, message: str, detail: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        validate_name(name)

    assert message in refused.value.message
    assert detail in refused.value.detail
    assert refused.value.hint
    assert len(str(refused.value)) < 300
    assert str(refused.value).isprintable()


def test_columns_of_a_table_get_the_one_spelling_of_their_types() -> None:
    written = columns("a INTEGER!", "b Long", "c DECIMAL", "d numeric(5)", "e STRING")

    assert compile_columns(written) == columns("a int!", "b bigint", "c decimal(10,0)", "d decimal(5,0)", "e string")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (columns(), "a table has no columns"),
        (columns("a int", "A int"), "column 'A' is there twice"),
        (columns("_step int"), "column name '_step' is reserved"),
        (columns("_DIFFerence int"), "column name '_DIFFerence' is reserved"),
        (columns("a blob"), "type 'blob' is unknown"),
        (columns("a array<int>"), "column 'a' of a table cannot be array<int>"),
        ((Column(name="", type="int"),), "a name is empty"),
        ((Column(name="a\0", type="int"),), "cannot be used"),
    ],
)
def test_impossible_tables_are_refused(given: tuple[Column, ...], message: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        compile_columns(given)

    assert message in refused.value.message
    assert refused.value.hint
