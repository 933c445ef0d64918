"""The shard store: one interface to durable collections, which several stores implement and one suite tests.

A shard holds rows with ``_step`` and ``_diff``. Everything below its upper is final, everything at or after its
since is readable. Its one write verb is ``compare_and_append``; nothing is ever taken back.

A ``Shard`` is a handle: several may be open on one shard, in one process or in many, and each knows the shard as
of its own last refresh or commit. What a handle shows never goes back.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types

from instance.shards.holds import Hold
from instance.shards.local_appends import LocalAppends
from reconcile.frontiers import MINIMUM, Antichain
from reconcile.ids import GlobalId, Step, WriterEpoch

#: The writer epoch of a shard that nobody has taken over.
NO_WRITER = WriterEpoch(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Appended:
    """The append is durable, now or since an earlier try with the same token; the shard stands at ``upper``."""

    upper: Antichain


@dataclass(frozen=True, slots=True, kw_only=True)
class UpperMoved:
    """Nothing was written: the shard stands at ``upper`` and not where the writer believed."""

    upper: Antichain


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochFenced:
    """Nothing was written: a writer with this, higher, epoch has taken over."""

    writer_epoch: WriterEpoch


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenOver:
    """No lower epoch writes from here on; the shard stands at ``upper``."""

    upper: Antichain


@dataclass(frozen=True, slots=True, kw_only=True)
class Tidied:
    """What one round of clearing up did."""

    #: The version of the log checkpoint that was written.
    checkpoint: int | None = None
    commits_cleaned: int = 0
    files_deleted: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Grown:
    """The shard has all of the columns."""

    schema: pa.Schema


AppendOutcome = Appended | UpperMoved | EpochFenced


class Shard(Protocol):
    """A handle to one shard."""

    @property
    def id(self) -> GlobalId: ...

    @property
    def schema(self) -> pa.Schema:
        """The user's columns, then ``_step`` and ``_diff``; what this handle reads has all of them.

        Columns are only ever added, after the others. In rows that were there before they are null.
        """
        ...

    @property
    def upper(self) -> Antichain: ...

    @property
    def since(self) -> Antichain: ...

    @property
    def writer_epoch(self) -> WriterEpoch: ...

    @property
    def position(self) -> str:
        """Where the writer stood upstream after the last append that said so; empty before any did."""
        ...

    async def compare_and_append(
        self,
        *,
        expected: Antichain,
        upper: Antichain,
        updates: pa.Table | None,
        writer_epoch: WriterEpoch | None,
        token: str,
        position: str | None = None,
    ) -> AppendOutcome:
        """Writes ``updates``, all of them in [``expected``, ``upper``), if the shard stands at ``expected``.

        All or nothing, and durable before it returns. A singleton writer gives its epoch and is refused if it was
        fenced; a deterministic one gives None and is fenced by ``expected`` alone. A token that was committed
        before is a success that writes nothing; an empty token is never recognised. ``position`` becomes durable
        with the updates, for whoever writes next; None leaves it as it is. A column that the updates lack is null.
        """
        ...

    async def grow(self, schema: pa.Schema, *, writer_epoch: WriterEpoch | None) -> Grown | EpochFenced:
        """Adds those of these user's columns that the shard lacks, durably; with none to add nothing is written.

        They may be null. Raises ``InvalidRequest`` if ``schema`` does not begin with the columns that are there; the
        epoch is checked as for an append.
        """
        ...

    async def take_over(self, writer_epoch: WriterEpoch) -> TakenOver | EpochFenced:
        """Fences every lower epoch, durably; refused if a higher one has done so."""
        ...

    async def refresh(self) -> Antichain:
        """Learns what others committed; the upper. Cheap when there is nothing new."""
        ...

    async def read(self, lower: Antichain, upper: Antichain, *, complete: Antichain = MINIMUM) -> pa.Table:
        """The updates with ``_step`` in [``lower``, ``upper``).

        Raises ``NotReadable`` if ``lower`` is before the since. ``complete`` is how far the caller knows the shard
        to be complete, from a seal; without one it may not ask beyond the upper of this handle.
        """
        ...

    async def snapshot(self, at: Step, *, complete: Antichain = MINIMUM) -> pa.Table:
        """The contents at ``at``: the user's columns and ``_diff``, each row once, none with a zero.

        Raises ``NotReadable`` if ``at`` is before the since; ``complete`` as for ``read``.
        """
        ...

    async def find_token(self, token: str) -> Step | None:
        """The step at which the append with this token began, if it is among the recent ones that were committed."""
        ...

    async def advance_since(self, since: Antichain) -> None:
        """Gives up, durably, the right to read before ``since``; a lower one than before changes nothing.

        It goes no further than the least hold; the rest comes true with ``maintain``, once the holds allow it.
        """
        ...

    async def hold(self, at: Antichain) -> Hold:
        """From now on no since that this store moves passes ``at``; raises ``NotReadable`` if it has already."""
        ...

    @property
    def told(self) -> Antichain:
        """How far the shard is said to be complete through this handle: its upper, or what ``advance`` said."""
        ...

    def advance(self, upper: Antichain, *, writer_epoch: WriterEpoch | None = None) -> None:
        """Says that nothing happens before ``upper``: heard at once in this process, durable a little later.

        Only for progress that whoever writes next will repeat: what is not durable is lost with the process. An
        append from ``told`` on takes it along.
        """
        ...

    async def flush(self) -> AppendOutcome:
        """Makes durable what ``advance`` said; ``EpochFenced`` if it no longer may."""
        ...

    async def compact(self) -> bool:
        """Sums up history and merges files if that is worth it; whether it did. Of several at once one does."""
        ...

    async def tidy(self, now: float) -> Tidied:
        """Clears away what is no longer needed; ``now`` is in seconds of the epoch, never less than before."""
        ...


class ShardStore(Protocol):
    """Where shards live."""

    @property
    def appends(self) -> LocalAppends:
        """Tells of each append made through this store object."""
        ...

    @property
    def poll_seconds(self) -> float:
        """How often it is cheap to look for what other processes appended."""
        ...

    async def open(self, id: GlobalId, schema: pa.Schema) -> Shard:
        """A new handle; creates the shard if it is not there, also when several race to do so.

        ``schema`` are the user's columns as the caller knows them. The shard may have more, added since, or fewer,
        if nobody has grown it yet; raises ``InvalidRequest`` if it has others.
        """
        ...

    async def refresh_all(self, shards: Sequence[Shard]) -> None:
        """As ``refresh`` on each of them, at the cost of about one when nothing is new."""
        ...

    def written(self) -> Sequence[Shard]:
        """A handle to each shard that was written through this store and is still open: those it should maintain.

        So readers leave the upkeep to writers, and of several writers those that do write share it.
        """
        ...

    async def close(self) -> None:
        """Makes told progress durable, waits for calls under way and frees what the store holds.

        Handles are of no use afterwards.
        """
        ...
