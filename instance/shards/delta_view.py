"""A view: a shard's Delta table as of one version, which never changes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types
from deltalake import DeltaTable

from instance.shards.delta_log import (
    COMPACTION,
    EPOCH,
    SINCE,
    UPPER,
    AddedFile,
    Commit,
    added_file,
    check_next,
    to_frontier,
)
from instance.shards.store import NO_WRITER
from plainsong.types import STEP
from reconcile.errors import InvariantBroken
from reconcile.frontiers import MINIMUM, Antichain
from reconcile.ids import WriterEpoch


class Files:
    """The files of one version. Versions that only add share one list, of which each sees its own beginning."""

    __slots__ = ("_count", "_list")

    def __init__(self, files: list[AddedFile]) -> None:
        self._list = files
        self._count = len(files)

    def __iter__(self) -> Iterator[AddedFile]:
        return iter(self._list[: self._count])

    def __len__(self) -> int:
        return self._count

    def after(self, commit: Commit) -> "Files":
        if not commit.removed and len(self._list) == self._count:
            self._list.extend(commit.added)
            return Files(self._list)
        removed = set(commit.removed)
        return Files([*(file for file in self if file.name not in removed), *commit.added])


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What a reader needs to be right: the files together with the since that they were compacted to."""

    version: int
    upper: Antichain
    since: Antichain
    writer_epoch: WriterEpoch
    #: How often the shard was compacted.
    compaction: int
    files: Files
    #: Where the writer stands upstream. Every commit repeats it, but for compactions, which may come after an append
    #: that they do not know; so it is in the log however old the append is that said it.
    position: str
    #: The last version that said it; its commit is never cleaned up.
    positioned_at: int
    #: As Delta writes them.
    columns: str

    def after(self, commit: Commit) -> "View":
        check_next(commit, self.version, self.upper, self.since, self.writer_epoch)
        return View(
            version=commit.version,
            upper=self.upper if commit.upper is None else commit.upper,
            since=self.since if commit.since is None else commit.since,
            writer_epoch=self.writer_epoch if commit.writer_epoch is None else commit.writer_epoch,
            compaction=self.compaction if commit.compaction is None else commit.compaction,
            files=self.files.after(commit),
            position=self.position if commit.position is None else commit.position,
            positioned_at=self.positioned_at if commit.position is None else commit.version,
            columns=self.columns if commit.columns is None else commit.columns,
        )

    def check_after(self, earlier: "View") -> None:
        """Raises ``InvariantBroken`` if anything went back."""
        numbers = self.version >= earlier.version and self.compaction >= earlier.compaction
        frontiers = self.upper >= earlier.upper and self.since >= earlier.since
        if not (numbers and frontiers and self.writer_epoch >= earlier.writer_epoch):
            raise InvariantBroken(f"the shard goes back from {earlier} to {self}")


#: Before the shard was looked at.
NOTHING = View(
    version=-1,
    upper=MINIMUM,
    since=MINIMUM,
    writer_epoch=NO_WRITER,
    compaction=0,
    files=Files([]),
    position="",
    positioned_at=-1,
    columns="",
)


def view_of(handle: DeltaTable, position: str, positioned_at: int) -> View:
    """What a handle that was opened anew knows, and what only the log says."""
    upper, since, epoch = (handle.transaction_version(name) for name in (UPPER, SINCE, EPOCH))
    if upper is None or since is None or epoch is None:
        raise InvariantBroken(f"not a shard: {handle.table_uri} has upper {upper}, since {since}, epoch {epoch}")
    return View(
        version=handle.version(),
        upper=to_frontier(upper),
        since=to_frontier(since),
        writer_epoch=WriterEpoch(epoch),
        compaction=handle.transaction_version(COMPACTION) or 0,
        files=Files(_files(handle)),
        position=position,
        positioned_at=positioned_at,
        columns=handle.schema().to_json(),
    )


def _files(handle: DeltaTable) -> list[AddedFile]:
    actions = pa.table(handle.get_add_actions(flatten=True))

    def column(name: str) -> Sequence[int | None]:
        known = name in actions.column_names
        return actions.column(name).to_pylist() if known else [None] * actions.num_rows

    paths, sizes = actions.column("path").to_pylist(), actions.column("size_bytes").to_pylist()
    stats = zip(column("num_records"), column(f"min.{STEP}"), column(f"max.{STEP}"), strict=True)
    return [added_file(path, size, *about) for path, size, about in zip(paths, sizes, stats, strict=True)]
