"""The types of sources beside tables: which options each has, and what they mean.

Options are text on the wire and in the catalog. The controller refuses what cannot be meant before anything is
durable; the instance reads the same text again.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum

from reconcile.errors import InvalidRequest
from reconcile.sources import SourceDescription

#: Name, type of Spark SQL, and whether null is forbidden.
ColumnText = tuple[str, str, bool]
#: Changes of one block of a generator: fractions are rounded to this many parts.
BLOCK = 100
#: The longest option that is taken.
OPTION_CHARACTERS_MAX = 4_096


class Flavour(StrEnum):
    """What a generator pretends to be."""

    COUNTER = "counter"
    ORDERS = "orders"
    AUCTION = "auction"


class FileFormat(StrEnum):
    """How files hold rows."""

    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"


class OnBad(StrEnum):
    """What becomes of a row that does not fit."""

    KEEP_ASIDE = "keep_aside"
    REFUSE = "refuse"


FLAVOUR_COLUMNS: Mapping[Flavour, tuple[ColumnText, ...]] = {
    Flavour.COUNTER: (("id", "bigint", True), ("key", "bigint", True), ("value", "bigint", True)),
    Flavour.ORDERS: (
        ("id", "bigint", True),
        ("customer", "bigint", True),
        ("item", "string", True),
        ("quantity", "int", True),
        ("price", "decimal(10,2)", True),
        ("status", "string", True),
        ("ordered_at", "timestamp", True),
    ),
    Flavour.AUCTION: (
        ("id", "bigint", True),
        ("auction", "bigint", True),
        ("bidder", "bigint", True),
        ("amount", "decimal(12,2)", True),
        ("channel", "string", True),
        ("bid_at", "timestamp", True),
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratorOptions:
    """A generator: the same changes for the same options, each determined by its number alone."""

    flavour: Flavour = Flavour.COUNTER
    seed: int = 1
    #: Changes after which it is finished; ``None``: never.
    rows: int | None = None
    #: Changes a second; 0: as fast as they are taken.
    rate: float = 0.0
    keys: int = 1_000
    #: How many of the changes update, or delete, a row that was inserted before.
    update_fraction: float = 0.0
    delete_fraction: float = 0.0

    @property
    def updates(self) -> int:
        """Updates in each block of changes."""
        return round(self.update_fraction * BLOCK)

    @property
    def deletes(self) -> int:
        return round(self.delete_fraction * BLOCK)

    @property
    def inserts(self) -> int:
        return BLOCK - self.updates - self.deletes


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesOptions:
    """A folder of files."""

    path: str
    format: FileFormat
    #: Ends when every file that was there is taken; else it looks again every ``poll_ms``.
    bounded: bool = False
    poll_ms: int = 500
    #: Of the names of files, with * and ?; empty: what the format is usually called.
    pattern: str = ""
    on_bad: OnBad = OnBad.KEEP_ASIDE
    #: CSV only.
    header: bool = True
    delimiter: str = ","


_PATTERNS: Mapping[FileFormat, tuple[str, ...]] = {
    FileFormat.CSV: ("*.csv",),
    FileFormat.JSON: ("*.json", "*.jsonl", "*.ndjson"),
    FileFormat.PARQUET: ("*.parquet",),
}


def file_patterns(options: FilesOptions) -> tuple[str, ...]:
    """Which files of the folder are meant; never those whose name begins with a dot or an underscore."""
    return (options.pattern,) if options.pattern else _PATTERNS[options.format]


# --- reading options --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Option:
    read: Callable[[str], object]
    #: What it must be, in words.
    must: str
    required: bool = False


def _whole(least: int, most: int = 2**62) -> Callable[[str], int]:
    def read(text: str) -> int:
        value = int(text)
        if not least <= value <= most:
            raise ValueError(text)
        return value

    return read


def _number(least: float, most: float) -> Callable[[str], float]:
    def read(text: str) -> float:
        value = float(text)
        if not least <= value <= most:  # also refuses NaN
            raise ValueError(text)
        return value

    return read


def _flag(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()]


def _path(text: str) -> str:
    if not text.startswith("/") or "\0" in text:
        raise ValueError(text)
    return text


def _one_character(text: str) -> str:
    # Arrow reads one byte between two values, and takes quotes and line ends for what they are.
    if len(text) != 1 or not text.isascii() or text in '"\r\n\0':
        raise ValueError(text)
    return text


def _name_pattern(text: str) -> str:
    if not text or "/" in text or "\0" in text:
        raise ValueError(text)
    return text


def _one_of(choices: type[StrEnum]) -> str:
    return f"one of {', '.join(choices)}"


_FRACTION = _Option(read=_number(0, 1), must="a number from 0 to 1")
_FLAG = _Option(read=_flag, must="true or false")

_OPTIONS: Mapping[str, Mapping[str, _Option]] = {
    "generator": {
        "flavour": _Option(read=Flavour, must=_one_of(Flavour)),
        "seed": _Option(read=_whole(0, 2**63 - 1), must="a whole number, 0 or more"),
        "rows": _Option(read=_whole(0), must="a whole number, 0 or more"),
        "rate": _Option(read=_number(0, 10_000_000), must="changes a second, 0 for as many as are taken"),
        "keys": _Option(read=_whole(1), must="a whole number, 1 or more"),
        "update_fraction": _FRACTION,
        "delete_fraction": _FRACTION,
    },
    "files": {
        "path": _Option(read=_path, must="the absolute path of a folder", required=True),
        "format": _Option(read=FileFormat, must=_one_of(FileFormat), required=True),
        "bounded": _FLAG,
        "poll_ms": _Option(read=_whole(10, 3_600_000), must="milliseconds, 10 or more"),
        "pattern": _Option(read=_name_pattern, must="a pattern of file names, such as *.csv"),
        "on_bad": _Option(read=OnBad, must=_one_of(OnBad)),
        "header": _FLAG,
        "delimiter": _Option(read=_one_character, must="one character"),
    },
}
#: What a user may ask for; a table has a statement of its own.
SOURCE_TYPES = tuple(_OPTIONS)


def checked_options(type: str, options: Mapping[str, str]) -> GeneratorOptions | FilesOptions:
    """What the options of a source mean; refused with a hint if they mean nothing."""
    known = _OPTIONS.get(type)
    if known is None:
        raise InvalidRequest(
            f"there is no source of type {type!r}", hint=_like(type, SOURCE_TYPES) or f"use {' or '.join(SOURCE_TYPES)}"
        )
    for name in options:
        if name not in known:
            raise InvalidRequest(
                f"a source of type {type} has no option {name!r}",
                hint=_like(name, known) or f"it has {', '.join(known)}",
            )
    for name, option in known.items():
        if option.required and name not in options:
            raise InvalidRequest(f"a source of type {type} needs the option {name}", hint=f"it is {option.must}")
    values: dict[str, object] = {name: _value(name, known[name], text) for name, text in options.items()}
    return _files(values) if type == "files" else _generator(values)


def options_of(source: SourceDescription) -> GeneratorOptions | FilesOptions:
    """The options in a source's definition, which the controller has checked."""
    fields = dict(source.definition)
    fields.pop("columns", None)
    return checked_options(fields.pop("type", ""), fields)


def _value(name: str, option: _Option, text: str) -> object:
    if len(text) > OPTION_CHARACTERS_MAX:
        raise InvalidRequest(f"option {name} is too long", detail=f"it has {len(text)} characters")
    try:
        return option.read(text)
    except (ValueError, KeyError) as error:
        raise InvalidRequest(f"option {name} cannot be {text!r}", hint=f"it is {option.must}") from error


def _generator(values: dict[str, object]) -> GeneratorOptions:
    options = GeneratorOptions(**values)  # type: ignore[arg-type]  # each value was read by its own option
    if options.inserts < 1 or options.deletes > options.inserts:
        raise InvalidRequest(
            "a generator cannot update and delete more than it inserts",
            detail=f"of {BLOCK} changes {options.updates} are updates and {options.deletes} deletes",
            hint="choose a smaller update_fraction or delete_fraction",
        )
    return options


def _files(values: dict[str, object]) -> FilesOptions:
    options = FilesOptions(**values)  # type: ignore[arg-type]  # each value was read by its own option
    if options.format is not FileFormat.CSV:
        for name in ("header", "delimiter"):
            if name in values:
                raise InvalidRequest(f"only CSV files have a {name}", detail=f"these are {options.format}")
    return options


def _like(name: str, known: Mapping[str, object] | tuple[str, ...]) -> str:
    found = get_close_matches(name, known, n=1)
    return f"did you mean {found[0]}?" if found else ""
