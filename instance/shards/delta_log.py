"""The Delta log of a shard, read commit by commit: a hundredth of the cost of asking delta-rs what is new."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from instance.shards.places import Listed, Place
from reconcile.errors import InvariantBroken
from reconcile.frontiers import CLOSED, Antichain
from reconcile.ids import Step, WriterEpoch

#: Application transactions: the shard's state, one number each.
UPPER, EPOCH, SINCE, COMPACTION = "upper", "epoch", "since", "compaction"
#: Keys of a commit's own description.
TOKEN, LOWER, POSITION, ATTEMPT, TRANSACTIONS = (
    "plainsong.token",
    "plainsong.lower",
    "plainsong.position",
    "plainsong.attempt",
    "plainsong.transactions",
)
LOG = "_delta_log"
#: ``[]`` as an application transaction: the greatest number it can hold, as ``[]`` is the greatest frontier.
_CLOSED = 2**63 - 1
_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.parquet")


def to_number(frontier: Antichain) -> int:
    return _CLOSED if frontier.step is None else frontier.step


def to_frontier(number: int) -> Antichain:
    return CLOSED if number == _CLOSED else Antichain.at(number)


class Torn(Exception):
    """The commit is not whole: the power failed before it was synced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedFile:
    """A Parquet file with ``rows`` updates from ``first`` through ``last``; a superset if the log does not say."""

    name: str
    size: int
    rows: int
    first: Step
    last: Step

    def overlaps(self, lower: Antichain, upper: Antichain) -> bool:
        return lower.is_open_at(self.last) and not upper.is_open_at(self.first)

    def within(self, lower: Antichain, upper: Antichain) -> bool:
        return lower.is_open_at(self.first) and not upper.is_open_at(self.last)


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One version of a shard; a part of its state that it does not change is None."""

    version: int
    upper: Antichain | None
    since: Antichain | None
    writer_epoch: WriterEpoch | None
    compaction: int | None
    #: Where the append with this token began; empty and None for what is not an append.
    token: str
    lower: Step | None
    #: Where the writer stands upstream; said by every commit but a compaction.
    position: str | None
    #: Drawn anew for every attempt to commit, so that a lost reply can be told from a lost race.
    attempt: str
    #: The columns from here on, as Delta writes them.
    columns: str | None
    added: tuple[AddedFile, ...]
    removed: tuple[str, ...]


class DeltaLog:
    """The commit files of the shard in one place."""

    def __init__(self, place: Place) -> None:
        self.place = place

    def has(self, version: int) -> bool:
        return self.place.exists(commit_name(version))

    def list(self) -> list[Listed]:
        return self.place.list(LOG)

    def newest(self) -> int | None:
        """The greatest version there is; lists the folder, so only for opening."""
        return max(
            (version for file in self.list() if (version := commit_version(file.name)) is not None), default=None
        )

    def read(self, version: int) -> Commit:
        """Raises ``Torn`` if any of it is missing, ``FileNotFoundError`` if it was cleaned up or never was."""
        text = self.place.read(commit_name(version)).decode("utf-8", errors="replace")
        try:
            actions: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines()]
        except ValueError as error:
            raise Torn(f"version {version} is cut off") from error
        if not actions or not all(isinstance(action, dict) for action in actions):
            raise Torn(f"version {version} is empty")
        description: dict[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
        numbers = {action["txn"]["appId"]: int(action["txn"]["version"]) for action in actions if "txn" in action}
        # Cut off between two lines: the transactions come last, and the description says which there must be.
        missing = [name for name in str(description.get(TRANSACTIONS, "")).split() if name not in numbers]
        if missing:
            raise Torn(f"version {version} lacks {', '.join(missing)}")
        return Commit(
            version=version,
            upper=to_frontier(numbers[UPPER]) if UPPER in numbers else None,
            since=to_frontier(numbers[SINCE]) if SINCE in numbers else None,
            writer_epoch=WriterEpoch(numbers[EPOCH]) if EPOCH in numbers else None,
            compaction=numbers.get(COMPACTION),
            token=str(description.get(TOKEN, "")),
            lower=Step(int(description[LOWER])) if LOWER in description else None,
            position=str(description[POSITION]) if POSITION in description else None,
            attempt=str(description.get(ATTEMPT, "")),
            columns=next((str(action["metaData"]["schemaString"]) for action in actions if "metaData" in action), None),
            added=tuple(_added(action["add"]) for action in actions if "add" in action),
            removed=tuple(unquote(action["remove"]["path"]) for action in actions if "remove" in action),
        )


def commit_name(version: int) -> str:
    return f"{LOG}/{version:020d}.json"


def checkpoint_name(version: int) -> str:
    return f"{LOG}/{version:020d}.checkpoint.parquet"


def commit_version(name: str) -> int | None:
    """Of a file in the log's folder; None if it is not a commit."""
    found = _COMMIT.fullmatch(name)
    return None if found is None else int(found[1])


def checkpoint_version(name: str) -> int | None:
    found = _CHECKPOINT.fullmatch(name)
    return None if found is None else int(found[1])


def added_file(uri: str, size: int, rows: int | None, first: int | None, last: int | None) -> AddedFile:
    """Paths in the log are relative and percent-encoded."""
    return AddedFile(
        name=unquote(uri),
        size=size,
        rows=rows or 0,
        first=Step(0 if first is None else first),
        last=Step(_CLOSED if last is None else last),
    )


def _added(add: Mapping[str, Any]) -> AddedFile:
    stats = json.loads(add["stats"]) if add.get("stats") else {}
    first, last = stats.get("minValues", {}).get("_step"), stats.get("maxValues", {}).get("_step")
    return added_file(str(add["path"]), int(add["size"]), stats.get("numRecords"), first, last)


def check_next(commit: Commit, version: int, upper: Antichain, since: Antichain, epoch: WriterEpoch) -> None:
    """Nothing in a shard goes back; raises ``InvariantBroken`` if ``commit`` does not follow the state before it."""
    if commit.version != version + 1:
        raise InvariantBroken(f"version {commit.version} came after {version}")
    if commit.upper is not None and commit.upper < upper:
        raise InvariantBroken(f"version {commit.version} moves the upper back from {upper} to {commit.upper}")
    if commit.since is not None and commit.since < since:
        raise InvariantBroken(f"version {commit.version} moves the since back from {since} to {commit.since}")
    if commit.writer_epoch is not None and commit.writer_epoch < epoch:
        raise InvariantBroken(f"version {commit.version} moves the epoch back from {epoch} to {commit.writer_epoch}")
