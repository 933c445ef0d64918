"""Durable collections as a runtime reads and writes them: the interface that shards implement.

Rows are Arrow tables of the user's columns. A *snapshot* has ``_diff`` beside them; *updates* have ``_step`` and
``_diff``. A reader that was told all updates before ``upper`` goes on with ``changes(upper)`` and misses nothing.
"""

from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types

from reconcile.errors import PlainsongError
from reconcile.frontiers import Antichain
from reconcile.ids import GlobalId, Step


class NotReadable(PlainsongError):
    """The collection can be read only from ``since`` on: what was asked for has been compacted away."""

    code = "FAILED_PRECONDITION"

    def __init__(self, since: Antichain) -> None:
        super().__init__(f"history before step {since} is gone", hint="read at a later step")
        self.since = since


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """All updates at or after ``lower`` and before ``upper``; ``table`` has ``_step`` and ``_diff``."""

    lower: Antichain
    upper: Antichain
    table: pa.Table


class Input(Protocol):
    """One durable collection as a reader follows it; any number of reads may wait at the same time."""

    async def snapshot(self, at: Step) -> pa.Table:
        """The contents at ``at``, consolidated, each ``_diff`` positive; waits until they are complete through ``at``.

        Raises ``NotReadable`` if the collection's since is beyond ``at``.
        """
        ...

    async def changes(self, lower: Antichain) -> Changes:
        """All updates from ``lower`` to the upper; waits until that is beyond ``lower``.

        Raises ``NotReadable`` if updates at ``lower`` can no longer be told from earlier ones.
        """
        ...


class Inputs(Protocol):
    """Where a runtime finds the collections it reads."""

    def open(self, id: GlobalId, schema: pa.Schema) -> Input: ...

    def close(self, id: GlobalId) -> None:
        """Nothing reads ``id`` any more; once for each ``open``."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Where a shard stands after an append, and whether it was this one that brought it there."""

    upper: Antichain
    by_us: bool


class Output(Protocol):
    """The shard that a materialized view writes."""

    async def upper(self) -> Antichain: ...

    async def append(self, lower: Antichain, upper: Antichain, updates: pa.Table) -> Written:
        """Compare-and-append: writes ``updates`` if the shard's upper is ``lower``."""
        ...


class Outputs(Protocol):
    """Where a runtime finds the shards it writes."""

    def open(self, id: GlobalId, schema: pa.Schema) -> Output: ...
