"""What options of a source may say, and how they are refused."""

import pytest

from reconcile.errors import InvalidRequest
from reconcile.ids import GlobalId
from reconcile.source_types import (
    FileFormat,
    FilesOptions,
    Flavour,
    GeneratorOptions,
    OnBad,
    checked_options,
    file_patterns,
    options_of,
)
from reconcile.sources import SourceDescription


def test_options_mean_what_they_say() -> None:
    assert checked_options("generator", {}) == GeneratorOptions()
    assert checked_options(
        "generator", {"flavour": "auction", "seed": "7", "rows": "10", "rate": "2.5", "update_fraction": "0.25"}
    ) == GeneratorOptions(flavour=Flavour.AUCTION, seed=7, rows=10, rate=2.5, update_fraction=0.25)
    assert checked_options(
        "files", {"path": "/data", "format": "csv", "bounded": "true", "on_bad": "refuse", "delimiter": ";"}
    ) == FilesOptions(path="/data", format=FileFormat.CSV, bounded=True, on_bad=OnBad.REFUSE, delimiter=";")


def test_an_instance_reads_the_options_out_of_a_definition() -> None:
    definition = (("type", "generator"), ("keys", "5"), ("columns", "[]"))

    assert options_of(SourceDescription(id=GlobalId("s", 1), definition=definition)) == GeneratorOptions(keys=5)


@pytest.mark.parametrize(
    ("type", "options", "message", "hint"),
    [
        ("file", {}, "no source of type 'file'", "did you mean files?"),
        ("kafka", {}, "no source of type 'kafka'", "use generator or files"),
        ("generator", {"flavor": "orders"}, "no option 'flavor'", "did you mean flavour?"),
        ("generator", {"zzz": "1"}, "no option 'zzz'", "it has flavour, seed"),
        ("generator", {"rows": "-1"}, "option rows cannot be '-1'", "0 or more"),
        ("generator", {"rate": "nan"}, "option rate cannot be 'nan'", "changes a second"),
        ("generator", {"flavour": "tulips"}, "option flavour cannot be 'tulips'", "counter, orders, auction"),
        ("generator", {"update_fraction": "1"}, "more than it inserts", "smaller"),
        ("generator", {"delete_fraction": "0.6"}, "more than it inserts", "smaller"),
        ("files", {"format": "csv"}, "needs the option path", "absolute path"),
        ("files", {"path": "data", "format": "csv"}, "option path cannot be 'data'", "absolute path"),
        ("files", {"path": "/a\0b", "format": "csv"}, "option path cannot be", "absolute path"),
        ("files", {"path": "/data", "format": "xml"}, "option format cannot be 'xml'", "csv, json, parquet"),
        ("files", {"path": "/data", "format": "json", "header": "true"}, "only CSV files have a header", ""),
        ("files", {"path": "/data", "format": "csv", "delimiter": '"'}, "option delimiter cannot be", "one character"),
        ("files", {"path": "/data", "format": "csv", "pattern": "../*"}, "option pattern cannot be", "file names"),
        ("files", {"path": "/" + "x" * 5_000, "format": "csv"}, "option path is too long", ""),
    ],
)
def test_what_cannot_be_meant_is_refused_with_a_hint(
    type: str, options: dict[str, str], message: str, hint: str
) -> None:
    with pytest.raises(InvalidRequest, match=message) as refused:
        checked_options(type, options)

    assert hint in refused.value.hint


def test_files_go_by_what_their_format_is_usually_called() -> None:
    assert file_patterns(FilesOptions(path="/", format=FileFormat.JSON)) == ("*.json", "*.jsonl", "*.ndjson")
    assert file_patterns(FilesOptions(path="/", format=FileFormat.JSON, pattern="log-*")) == ("log-*",)
