"""The columns of a source that declares none: known by its type, or inferred once from its first file."""

import fnmatch
import io
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types
import pyarrow.csv as pa_csv  # type: ignore[import-untyped]
import pyarrow.json as pa_json  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from controller.sql import Column
from plainsong.types import type_name
from reconcile.errors import InvalidRequest
from reconcile.source_types import FLAVOUR_COLUMNS, FileFormat, FilesOptions, GeneratorOptions, file_patterns

#: What is read of the first file: enough to see what is in it.
_SAMPLE_BYTES = 1024 * 1024
_DECLARE = "declare the columns"


def source_columns(options: GeneratorOptions | FilesOptions, declared: tuple[Column, ...]) -> tuple[Column, ...]:
    """What a source's columns are, for ever; blocks while it reads a file. Declared ones count."""
    if isinstance(options, FilesOptions):
        return declared or _inferred(options)
    known = tuple(
        Column(name=name, type=type, nullable=not not_null) for name, type, not_null in FLAVOUR_COLUMNS[options.flavour]
    )
    if declared and declared != known:
        listed = ", ".join(f"{column.name} {column.type}" for column in known)
        raise InvalidRequest(
            f"the columns of flavour {options.flavour} are known", detail=f"they are {listed}", hint="declare none"
        )
    return known


def _inferred(options: FilesOptions) -> tuple[Column, ...]:
    file = _first_file(options)
    try:
        columns = _file_schema(file, options)
    except (OSError, pa.ArrowException, ValueError) as error:
        reason = (str(error).splitlines() or [""])[0]
        raise InvalidRequest(f"the columns of {file.name} cannot be inferred", detail=reason, hint=_DECLARE) from error
    return tuple(Column(name=field.name, type=_type_name(field), nullable=True) for field in columns)


def _first_file(options: FilesOptions) -> Path:
    patterns = file_patterns(options)
    try:
        files = [
            entry
            for entry in sorted(Path(options.path).iterdir())
            if any(fnmatch.fnmatchcase(entry.name, pattern) for pattern in patterns)
            and not entry.name.startswith((".", "_"))
            and entry.is_file()
        ]
    except OSError as error:
        raise InvalidRequest(
            f"folder {options.path} cannot be read", detail=error.strerror or str(error), hint=_DECLARE
        ) from error
    if not files:
        raise InvalidRequest(
            f"folder {options.path} has no file to infer columns from",
            detail=f"looked for {' or '.join(patterns)}",
            hint=_DECLARE,
        )
    return files[0]


def _file_schema(file: Path, options: FilesOptions) -> pa.Schema:
    if options.format is FileFormat.PARQUET:
        return pq.read_schema(file)
    with file.open("rb") as opened:
        sample = opened.read(_SAMPLE_BYTES)
        if opened.read(1):
            sample = sample[: sample.rfind(b"\n") + 1]
    if not sample.strip():
        raise ValueError("it is empty")
    if options.format is FileFormat.JSON:
        return pa_json.read_json(
            io.BytesIO(sample), read_options=pa_json.ReadOptions(block_size=len(sample) + 1)
        ).schema
    return pa_csv.read_csv(
        io.BytesIO(sample),
        read_options=pa_csv.ReadOptions(autogenerate_column_names=not options.header, block_size=len(sample) + 1),
        parse_options=pa_csv.ParseOptions(delimiter=options.delimiter),
        convert_options=pa_csv.ConvertOptions(null_values=[""]),
    ).schema


def _type_name(field: pa.Field) -> str:
    """The type of a column as far as there is one; times are in UTC, and what was always null may become anything."""
    type = field.type
    if pa.types.is_null(type) or pa.types.is_large_string(type):
        return "string"
    if pa.types.is_timestamp(type):
        return "timestamp"
    if pa.types.is_unsigned_integer(type):
        return "int" if type.bit_width < 32 else "bigint"
    try:
        return type_name(type)
    except InvalidRequest as error:
        raise InvalidRequest(
            f"column {field.name!r} is {type}, which has no place in a source", hint=_DECLARE + " without it"
        ) from error
