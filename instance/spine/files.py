"""The files of a spine's runs: uncompressed Arrow IPC, one record batch a part, mapped and read in place.

A file is written under a temporary name, synced and renamed, so what bears a run's name is whole. Files in the folder
that no manifest names are leftovers of a crash and are removed on restore. The folder belongs to one spine.
"""

import json
import mmap
import os
import re
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types
from numpy.typing import NDArray

from instance.spine.run import Part, Run, RunFile
from plainsong.failpoint import failpoint
from plainsong.types import DIFF, STEP
from reconcile.errors import StorageFailed

_NAME, _TEMPORARY = re.compile(r"run-(\d+)\.arrow"), re.compile(r"run-(\d+)\.arrow\.new")
_HASH, _BASE = "_hash", b"plainsong.base"
#: An Arrow file ends with the length of its footer and a magic word, and begins with the word, padded.
_MAGIC, _END = b"ARROW1", struct.Struct("<i6s")

HINT = "remove the instance's data folder: it hydrates from the shards"


class TooNarrow(Exception):
    """A diff has more bytes than there were given to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Widths:
    """In how many bytes the steps and diffs of a run are stored; steps less ``base``."""

    base: int
    step: int
    diff: int

    @classmethod
    def of(cls, first: int, last: int, low: int, high: int) -> "Widths":
        """For steps from ``first`` to ``last`` and diffs from ``low`` to ``high``."""
        step = next(width for width in (1, 2, 4, 8) if last - first < 1 << (8 * width - 1))
        diff = next(width for width in (1, 2, 4, 8) if max(high, -1 - low) < 1 << (8 * width - 1))
        return cls(base=first, step=step, diff=diff)

    def schema(self, columns: pa.Schema) -> pa.Schema:
        fields = [pa.field(field.name, field.type) for field in columns]
        fields.append(pa.field(STEP, pa.from_numpy_dtype(f"i{self.step}")))
        fields.append(pa.field(DIFF, pa.from_numpy_dtype(f"i{self.diff}")))
        fields.append(pa.field(_HASH, pa.uint64()))
        return pa.schema(fields, {_BASE: json.dumps(self.base)})

    def batch(self, part: Part, schema: pa.Schema) -> pa.RecordBatch:
        if self.diff < part.diffs.itemsize:
            limit = 1 << (8 * self.diff - 1)
            if int(part.diffs.min()) < -limit or int(part.diffs.max()) >= limit:
                raise TooNarrow
        steps = (part.steps.astype(np.int64) + (part.base - self.base)).astype(f"i{self.step}")
        others = [pa.array(steps), pa.array(part.diffs.astype(f"i{self.diff}")), pa.array(part.hashes)]
        return pa.RecordBatch.from_arrays([*part.columns, *others], schema=schema)


class RunFiles:
    """A folder with the files of one spine. Only ``write`` may be called in another thread."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with failing(f"cannot open the folder {folder}"):
            folder.mkdir(parents=True, exist_ok=True)
            there = [int(match[1]) for name in os.listdir(folder) if (match := re.match(r"run-(\d+)\.", name))]
        self._numbers = count(max(there, default=0) + 1)

    def number(self) -> int:
        """A number that no file in the folder has or had since it was opened."""
        return next(self._numbers)

    def write(self, number: int, columns: pa.Schema, widths: Widths, parts: Iterable[Part]) -> RunFile:
        """Writes a run; durable when it returns. Raises ``TooNarrow``, with nothing left behind."""
        name = f"run-{number}.arrow"
        path, fresh = self.folder / name, self.folder / f"{name}.new"
        try:
            with failing(f"cannot write {path}"):
                schema = widths.schema(columns)
                with pa.OSFile(str(fresh), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
                    for part in parts:
                        writer.write_batch(widths.batch(part, schema))
                        del part  # it may be large, and the next is made now
                        failpoint("spine-part-written")
                sync(fresh)
                failpoint("spine-synced")
                file = described(fresh, name)
                fresh.rename(path)
                failpoint("spine-renamed")
                sync(self.folder)
        except BaseException:
            fresh.unlink(missing_ok=True)
            raise
        return file

    def mapped(self, file: RunFile, columns: pa.Schema, *, whole: bool = False) -> tuple[Part, ...]:
        """The parts of a run, mapped. Recognises a file that is cut off or not the one that was written.

        With ``whole`` also one of which any byte has changed; that reads it all.
        """
        path = self.folder / file.name
        with failing(f"cannot map {path}"):
            found = described(path, file.name) if whole else described(path, file.name, whole_crc=file.whole_crc)
            if found != file:
                raise StorageFailed(f"{path} is damaged", detail=f"it should be {file} and is {found}", hint=HINT)
            reader = pa.ipc.open_file(pa.memory_map(str(path)))
            base = json.loads((reader.schema.metadata or {}).get(_BASE, b"null"))
            types = [field.type for field in reader.schema]
            if base is None or types[:-3] != [field.type for field in columns] or reader.schema.names[-1] != _HASH:
                detail = f"its columns are {reader.schema.to_string()}"
                raise StorageFailed(f"{path} does not hold this collection", detail=detail, hint=HINT)
            batches = [reader.get_batch(place) for place in range(reader.num_record_batches)]
        return tuple(_part(batch, base) for batch in batches)

    def names(self) -> list[str]:
        """The files of runs that are there, in no order."""
        with failing(f"cannot list {self.folder}"):
            return [name for name in os.listdir(self.folder) if _NAME.fullmatch(name)]

    def remove(self, names: Iterable[str]) -> None:
        """Files that nobody needs; those that are mapped stay readable to whoever has them."""
        with failing(f"cannot remove files from {self.folder}"):
            for name in names:
                (self.folder / name).unlink(missing_ok=True)

    def remove_leftovers(self, named: Iterable[str]) -> None:
        """All files of runs but those that are named, finished or not. Nothing is written at the time."""
        with failing(f"cannot list {self.folder}"):
            unfinished = [name for name in os.listdir(self.folder) if _TEMPORARY.fullmatch(name)]
        self.remove([*unfinished, *(set(self.names()) - set(named))])


def _part(batch: pa.RecordBatch, base: int) -> Part:
    *columns, steps, diffs, hashes = batch.columns
    return Part(columns=columns, hashes=_view(hashes), steps=_view(steps), diffs=_view(diffs), base=base)


def _view(array: pa.Array) -> NDArray[Any]:
    return array.to_numpy(zero_copy_only=True)  # type: ignore[no-any-return]


def described(path: Path, name: str, *, whole_crc: int | None = None) -> RunFile:
    """The file as it is now. Reads all of it unless the checksum of the whole is given."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(0, size - _END.size))
        end = file.read(_END.size)
        footer, magic = _END.unpack(end) if len(end) == _END.size else (0, b"")
        if magic != _MAGIC or not 0 < footer <= size - _END.size:
            raise StorageFailed(f"{path} is damaged", detail="it has no footer", hint=HINT)
        file.seek(size - _END.size - footer)
        footer_crc = zlib.crc32(file.read())
        if whole_crc is None:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as bytes:
                whole_crc = zlib.crc32(bytes)
    return RunFile(name=name, bytes=size, footer_crc=footer_crc, whole_crc=whole_crc)


def sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def failing(message: str) -> Iterator[None]:
    """Whatever the disk does wrong is a ``StorageFailed``."""
    try:
        yield
    except (OSError, ValueError, pa.ArrowException) as error:
        raise StorageFailed(message, detail=str(error)) from error


def widths_of(runs: Sequence[Run], horizon: int) -> Widths:
    """Wide enough for what is in the runs, folded at ``horizon``, if no sum outgrows it."""
    diffs = [part.diffs for run in runs for part in run.parts]
    low, high = min(int(each.min()) for each in diffs), max(int(each.max()) for each in diffs)
    first = max(horizon, min(run.first for run in runs))
    return Widths.of(first, max(horizon, *(run.last for run in runs)), low, high)
