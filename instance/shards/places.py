"""Places: where the files of one shard lie, on a local disk or in any object store that deltalake reaches."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types
import pyarrow.fs as pf  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from deltalake.fs import DeltaStorageHandler


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A file by its name within the folder that was listed, and when it was last written, in seconds of the epoch."""

    name: str
    written: float


class Place(Protocol):
    """The folder of one shard. Names are relative to it; a missing file raises ``FileNotFoundError``."""

    @property
    def uri(self) -> str: ...

    @property
    def options(self) -> dict[str, str] | None:
        """What deltalake wants to know beside the uri."""
        ...

    def exists(self, name: str) -> bool: ...

    def read(self, name: str) -> bytes: ...

    def list(self, folder: str) -> list[Listed]:
        """The files directly in ``folder``; none if there is no such folder."""
        ...

    def read_table(self, name: str) -> pa.Table: ...

    def write_table(self, name: str, table: pa.Table) -> int:
        """Writes a Parquet file, durable when this returns; its size."""
        ...

    def delete(self, name: str) -> None:
        """Whoever deleted it before is welcome."""
        ...


class LocalPlace:
    """A folder on this machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def uri(self) -> str:
        return str(self.folder)

    @property
    def options(self) -> dict[str, str] | None:
        return None

    def exists(self, name: str) -> bool:
        return os.path.exists(self.folder / name)

    def read(self, name: str) -> bytes:
        return (self.folder / name).read_bytes()

    def list(self, folder: str) -> list[Listed]:
        found = []
        try:
            with os.scandir(self.folder / folder) as entries:
                for entry in entries:
                    try:
                        if entry.is_file():
                            found.append(Listed(name=entry.name, written=entry.stat().st_mtime))
                    except FileNotFoundError:  # gone while we looked
                        continue
        except FileNotFoundError:
            return []
        return found

    def read_table(self, name: str) -> pa.Table:
        # By file: reading through delta-rs shortly before the process exits aborts it.
        return pq.ParquetFile(self.folder / name).read()

    def write_table(self, name: str, table: pa.Table) -> int:
        path = self.folder / name
        pq.write_table(table, path, compression="zstd")
        sync(path)
        sync(self.folder)
        return path.stat().st_size

    def delete(self, name: str) -> None:
        (self.folder / name).unlink(missing_ok=True)


class RemotePlace:
    """A prefix in an object store. Puts are whole and durable once answered, so there is nothing to sync."""

    def __init__(self, uri: str, options: Mapping[str, str] | None) -> None:
        self.uri = uri
        self.options = dict(options or {})
        self._handler = DeltaStorageHandler(uri, self.options)
        self._files = pf.PyFileSystem(self._handler)

    def exists(self, name: str) -> bool:
        return bool(self._files.get_file_info(name).type == pf.FileType.File)

    def read(self, name: str) -> bytes:
        with self._files.open_input_file(name) as file:
            return bytes(file.read())

    def list(self, folder: str) -> list[Listed]:
        infos = self._files.get_file_info(pf.FileSelector(folder, allow_not_found=True))
        return [
            Listed(name=info.base_name, written=info.mtime.timestamp())
            for info in infos
            if info.type == pf.FileType.File
        ]

    def read_table(self, name: str) -> pa.Table:
        with self._files.open_input_file(name) as file:
            return pq.ParquetFile(file).read()

    def write_table(self, name: str, table: pa.Table) -> int:
        buffer = BytesIO()
        pq.write_table(table, buffer, compression="zstd")
        # The stream that pyarrow wraps around this one hands it a type that it refuses.
        raw: Any = self._handler._handler
        stream = raw.open_output_stream(name, None)
        stream.write(buffer.getvalue())
        stream.close()
        return len(buffer.getvalue())

    def delete(self, name: str) -> None:
        try:
            self._files.delete_file(name)
        except FileNotFoundError:
            return


def sync(path: Path) -> None:
    """fsync of a file or folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
