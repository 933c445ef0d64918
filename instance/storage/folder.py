"""A folder of files, each taken once: what is there, what is ready, and the rows of it in order. Calls block.

A file is known by its name and content. It is ready when two looks in a row found it the same; from then on it must
not change until it is taken. A file that is rewritten under its old name is another file.
"""

import fnmatch
import hashlib
import json
import os
import time
from collections import deque
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types

from instance.storage.feed import Batch, Note
from instance.storage.file_reading import BadFile, BadRow, FileReader, Piece, Place
from instance.storage.taken_files import TakenFile, TakenFiles
from plainsong.types import DIFF
from reconcile.errors import PlainsongError, StorageFailed
from reconcile.ids import WriterEpoch
from reconcile.source_types import FilesOptions, OnBad, file_patterns

#: Contents of larger files are told apart by size, beginning and end.
_DIGEST_BYTES_MAX = 16 * 1024 * 1024
_DIGEST_ENDS = 1024 * 1024
#: Files are put together up to so many rows.
_BATCH_ROWS = 20_000
#: A folder whose own time is older than this, and as it was, has no new files; all is looked at every so many looks.
_QUIET_S = 2.0
_FULL_LOOK_EVERY = 10
_UNKNOWN_SHOWN_MAX = 5


class BadInput(PlainsongError):
    """A file holds what the source refuses."""

    code = "INVALID_ARGUMENT"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Open:
    """The file that is being taken, as it was when it was begun, and how far it is taken."""

    file: TakenFile
    place: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class _Position:
    """What is written with rows: the list of taken files and how much of it counts, the open file, rows kept aside."""

    list: str = ""
    count: int = 0
    open: _Open | None = None
    aside: int = 0

    def text(self) -> str:
        fields: dict[str, object] = {"list": self.list, "count": self.count, "aside": self.aside}
        if self.open is not None:
            file, place = self.open.file, self.open.place
            fields["open"] = [file.name, file.bytes, file.digest, file.mtime_ns, place.byte, place.line]
        return json.dumps(fields)

    @classmethod
    def of(cls, text: str) -> "_Position":
        if not text:
            return cls()
        fields = json.loads(text)
        begun = None
        if "open" in fields:
            name, size, digest, mtime_ns, byte, line = fields["open"]
            file = TakenFile(name=name, bytes=size, digest=digest, mtime_ns=mtime_ns)
            begun = _Open(file=file, place=Place(byte=byte, line=line))
        return cls(list=fields["list"], count=fields["count"], open=begun, aside=fields["aside"])


class Folder:
    """Takes the files of one folder."""

    def __init__(
        self, options: FilesOptions, reader: FileReader, columns: pa.Schema, *, taken: Path, rejected: Path, note: Note
    ) -> None:
        self._options = options
        self._reader = reader
        self._columns = columns
        self._rejected = rejected
        self._note = note
        self._patterns = file_patterns(options)
        self._taken = TakenFiles(taken)
        self._open: _Open | None = None
        self._aside = 0
        self._unknown: dict[str, None] = {}
        #: Seen once and not taken, as they were; and those that are ready, oldest first.
        self._unsettled: dict[str, tuple[int, int]] = {}
        self._ready: deque[TakenFile] = deque()
        self._looks = 0
        self._folder_time: int | None = None

    def open(self, position: str, epoch: WriterEpoch) -> None:
        """Goes on after ``position``; blocks."""
        before = _Position.of(position)
        self._taken.open(before.list, before.count, epoch)
        self._open, self._aside = before.open, before.aside
        self._unsettled, self._ready, self._looks, self._folder_time = {}, deque(), 0, None
        if self._open is not None:
            self._check_unchanged(self._open.file, thorough=True)
        self._tell()

    # --- looking ------------------------------------------------------------------------------------------

    def look(self) -> bool:
        """Looks for files; whether all that are there are taken or ready."""
        self._looks += 1
        root = Path(self._options.path)
        now = root.stat().st_mtime_ns
        quiet = not self._unsettled and now == self._folder_time and self._looks % _FULL_LOOK_EVERY
        if quiet:
            return True
        # Within the clock's grain of a change there may be another that does not show.
        self._folder_time = now if time.time() - now / 1e9 > _QUIET_S else None
        found = sorted(self._candidates(root), key=lambda file: (file.mtime_ns, file.name))
        begun = set() if self._open is None else {self._open.file.name}
        ready = {file.name for file in self._ready} | begun
        unsettled: dict[str, tuple[int, int]] = {}
        for file in found:
            if file.name in ready:
                continue
            if self._unsettled.get(file.name) != (file.bytes, file.mtime_ns):
                unsettled[file.name] = (file.bytes, file.mtime_ns)
                continue
            whole = replace(file, digest=_digest(root / file.name, file.bytes))
            if not self._taken.is_taken(whole):
                self._ready.append(whole)
        self._unsettled = unsettled
        return not unsettled

    def _candidates(self, root: Path) -> list[TakenFile]:
        found = []
        with os.scandir(root) as entries:
            for entry in entries:
                name = entry.name
                if name.startswith((".", "_")) or not any(fnmatch.fnmatchcase(name, p) for p in self._patterns):
                    continue
                try:
                    if not entry.is_file():
                        continue
                    status = entry.stat()
                except FileNotFoundError:
                    continue  # gone since it was listed
                if not self._taken.is_seen(name, status.st_size, status.st_mtime_ns):
                    found.append(TakenFile(name=name, bytes=status.st_size, digest="", mtime_ns=status.st_mtime_ns))
        return found

    # --- taking -------------------------------------------------------------------------------------------

    @property
    def has_ready(self) -> bool:
        return self._open is not None or bool(self._ready)

    def take(self) -> Batch | None:
        """The next rows, durably noted as taken once they are committed; ``None`` if no file is ready."""
        if not self.has_ready:
            return None
        tables: list[pa.Table] = []
        rows = 0
        while rows < _BATCH_ROWS and self.has_ready:
            try:
                piece = self._next_piece()
            except (OSError, PlainsongError):
                if tables:
                    break  # what comes before the trouble is taken; the trouble will still be there
                raise
            tables.append(piece.rows)
            rows += piece.rows.num_rows
        self._taken.sync()
        table = pa.concat_tables(tables)
        ones = pa.repeat(pa.scalar(1, pa.int64()), table.num_rows)
        table = table.append_column(pa.field(DIFF, pa.int64(), nullable=False), ones)
        position = _Position(list=self._taken.name, count=len(self._taken), open=self._open, aside=self._aside)
        return Batch(rows=table, position=position.text())

    def _next_piece(self) -> Piece:
        """One more piece of the open file, or the first one of the next; nothing is changed if it raises."""
        begun = self._open or self._begin(self._ready[0])
        self._check_unchanged(begun.file, thorough=False)
        piece = self._read(begun.file, begun.place)
        self._keep_aside(begun, piece.bad)
        self._unknown.update(dict.fromkeys(piece.unknown))
        if self._open is None:
            self._ready.popleft()
        if piece.then is None:
            self._open = None
            self._taken.add(begun.file)
        else:
            self._open = _Open(file=begun.file, place=piece.then)
        self._tell()
        return piece

    def _begin(self, file: TakenFile) -> _Open:
        if self._options.on_bad is OnBad.REFUSE:
            self._refuse_bad(file)
        return _Open(file=file, place=Place())

    def _refuse_bad(self, file: TakenFile) -> None:
        """Reads all of it first: a file is taken as a whole or not at all."""
        place: Place | None = Place()
        while place is not None:
            piece = self._read(file, place)
            for bad in piece.bad:
                raise BadInput(
                    f"{file.name} line {bad.line} does not fit: {bad.reason}",
                    hint="correct or remove the file; or create the source with on_bad = keep_aside",
                )
            place = piece.then

    def _read(self, file: TakenFile, place: Place) -> Piece:
        try:
            return self._reader.piece(Path(self._options.path) / file.name, place)
        except BadFile as bad:
            whole = BadRow(line=1, reason=str(bad), text="")
            return Piece(rows=self._columns.empty_table(), bad=(whole,))

    def _check_unchanged(self, file: TakenFile, *, thorough: bool) -> None:
        path = Path(self._options.path) / file.name
        status = path.stat()
        same = (status.st_size, status.st_mtime_ns) == (file.bytes, file.mtime_ns)
        if not same and (status.st_size != file.bytes or not thorough or _digest(path, file.bytes) != file.digest):
            raise BadInput(
                f"{file.name} changed while it was taken",
                detail="part of it may be in the source already",
                hint="put back the file as it was; write new rows to a file of their own",
            )

    # --- what does not fit --------------------------------------------------------------------------------

    def _keep_aside(self, begun: _Open, bad: tuple[BadRow, ...]) -> None:
        """Writes rows aside under a name that the same piece has again, if it is read again."""
        if not bad:
            return
        name = f"{quote(os.fsencode(begun.file.name), safe='')[:100]}-{begun.file.digest[:16]}-{begun.place.line}.jsonl"
        lines = [
            json.dumps({"file": begun.file.name, "line": row.line, "reason": row.reason, "text": row.text}) + "\n"
            for row in bad
        ]
        try:
            self._rejected.mkdir(parents=True, exist_ok=True)
            fresh = self._rejected / f".{name}"
            with fresh.open("w", encoding="utf-8") as opened:
                opened.writelines(lines)
                opened.flush()
                os.fsync(opened.fileno())
            fresh.replace(self._rejected / name)
        except OSError as error:
            raise StorageFailed(f"rows cannot be kept aside in {self._rejected}", detail=str(error)) from error
        self._aside += len(bad)

    def _tell(self) -> None:
        notes = []
        if self._aside:
            rows = "row was" if self._aside == 1 else "rows were"
            notes.append(f"{self._aside} {rows} kept aside in {self._rejected}")
        if self._unknown:
            shown = list(self._unknown)[:_UNKNOWN_SHOWN_MAX]
            more = len(self._unknown) - len(shown)
            notes.append(f"not taken: column {', '.join(shown)}" + (f" and {more} more" if more else ""))
        self._note("; ".join(notes))


def _digest(path: Path, size: int) -> str:
    """What tells contents apart: all of a small file, the ends of a large one."""
    digest = hashlib.sha256(str(size).encode())
    with path.open("rb") as opened:
        if size <= _DIGEST_BYTES_MAX:
            digest.update(opened.read())
        else:
            digest.update(opened.read(_DIGEST_ENDS))
            opened.seek(-_DIGEST_ENDS, os.SEEK_END)
            digest.update(opened.read())
    return digest.hexdigest()[:32]
