"""One shard's Delta table as one handle sees it; every call blocks, and commits need a turn of their own.

Every append is a compare-and-swap on the version of the table: delta-rs is told not to retry, so it commits exactly
the version after the one its handle has loaded, or nothing. Upper, epoch and since are checked as of that version,
with the handle not refreshed in between, because Delta itself compares no values; they are application transactions
as well, so that a commit of anybody who does retry is refused. Only a compaction retries: what it depends on are its
own transactions. What others committed is learned from their commit files (``delta_log``); delta-rs's handle is there
to commit, and follows only for that (``delta_handle``).

Old commits are cleaned up by maintenance (``delta_upkeep``): whoever is behind the log's beginning opens the shard
anew.
"""

from collections.abc import Callable, Mapping
from itertools import islice
from uuid import uuid4

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake import Schema as DeltaSchema
from deltalake.exceptions import CommitFailedError

from instance.shards.contents import between, widened
from instance.shards.delta_columns import columns_here
from instance.shards.delta_handle import HOOKS_OFF, OPEN_TRIES_MAX, CommitHandle
from instance.shards.delta_log import (
    ATTEMPT,
    COMPACTION,
    EPOCH,
    POSITION,
    SINCE,
    TRANSACTIONS,
    UPPER,
    Commit,
    DeltaLog,
    Torn,
)
from instance.shards.delta_view import NOTHING, View, view_of
from instance.shards.durability import Durability
from instance.shards.places import Place
from instance.shards.reasons import reason
from instance.shards.rules import DEFAULT_RULES, TOKENS_REMEMBERED_MAX, UpkeepRules
from instance.shards.store import NO_WRITER
from plainsong.failpoint import failpoint
from plainsong.types import STEP
from reconcile.errors import StorageFailed
from reconcile.frontiers import Antichain
from reconcile.ids import GlobalId, Step

#: Races that one commit may lose before it gives up; each lost one means that somebody else got on.
RACES_LOST_MAX = 100
_CONFIGURATION = {
    # Statistics of ``_step`` say which files a read needs, and must be there however many columns a user has.
    "delta.dataSkippingStatsColumns": STEP,
    "delta.enableExpiredLogCleanup": "false",
    # Tombstones swell every checkpoint, and each handle that is opened from it. Nobody needs ours: vacuum goes by the
    # files that are there.
    "delta.deletedFileRetentionDuration": "interval 1 second",
}
#: Writes through a handle that stands where everything was checked.
Write = Callable[[DeltaTable, CommitProperties], None]


class FilesGone(Exception):
    """Files of the view were compacted away and vacuumed: look again."""


class ShardTable:
    """The shard as of ``view``, which this process has synced. Nothing of it ever goes back."""

    def __init__(
        self,
        id: GlobalId,
        schema: pa.Schema,
        place: Place,
        durability: Durability,
        synced: dict[GlobalId, int],
        rules: UpkeepRules = DEFAULT_RULES,
    ) -> None:
        self.id = id
        #: The columns as of ``view``; before there is one, those that whoever opened it knows.
        self.schema = schema
        self._known = schema
        #: Replaced as a whole, so that a reader beside us takes files and since of one version.
        self.view = NOTHING
        self.place = place
        self.log = DeltaLog(place)
        self.durability = durability
        self.rules = rules
        #: Files that commits removed since maintenance last asked.
        self.removed: set[str] = set()
        #: Shared by all handles of a process, by id.
        self._synced = synced
        #: Where recent appends began, oldest first; read when first asked for.
        self._tokens: dict[str, Step] | None = None
        self._handle = CommitHandle(id, place, rules)
        #: An fsync failed: what is on the disk is unknown, and asking again would answer wrongly.
        self._failed: OSError | None = None

    @property
    def version(self) -> int:
        return self.view.version

    # --- opening --------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Creates the shard if it is not there, and learns its state."""
        self.durability.prepare()
        if not self.log.has(0) and self.log.newest() is None:
            self._create()
        self._load()

    def _create(self) -> None:
        try:
            DeltaTable.create(
                self.place.uri,
                DeltaSchema.from_arrow(self.schema),
                configuration=_CONFIGURATION,
                storage_options=self.place.options,
                commit_properties=_properties({UPPER: 0, EPOCH: NO_WRITER, SINCE: 0, COMPACTION: 0}, {POSITION: ""}, 0),
                post_commithook_properties=HOOKS_OFF,
            )
        except Exception as error:
            # So wide because delta-rs raises no narrower kind; whoever else created it meanwhile did our work.
            if not self.log.has(0):
                raise StorageFailed(f"shard {self.id} cannot be created", detail=reason(error)) from error

    def _load(self) -> None:
        """Takes the newest version from a new handle, not from the commits in between."""
        for _ in range(OPEN_TRIES_MAX):
            handle = self._handle.open()
            try:
                newest = self._read(handle.version())
                view = view_of(handle, *self._position(newest))
                view.check_after(self.view)
                self._sync(newest)
            except FileNotFoundError:
                continue  # cleaned up already: others are far ahead
            self._show(view)
            self._tokens = None
            return
        raise StorageFailed(f"shard {self.id} cannot be opened", detail="it is cleaned up faster than it can be read")

    def _position(self, commit: Commit) -> tuple[str, int]:
        """Where the writer stood as of ``commit``, and the version that says so; only compactions do not."""
        while commit.position is None:
            commit = self._read(commit.version - 1)
        return commit.position, commit.version

    # --- following ------------------------------------------------------------------------------------------

    def is_behind(self) -> bool:
        """Whether there is a newer version; two looks. One that was cleaned up has newer ones after it."""
        return self.log.has(self.version + 1) or not self.log.has(self.version)

    def follow(self) -> list[Commit] | None:
        """Takes in every newer version, each one synced first; None if some of them had been cleaned up already."""
        taken = list[Commit]()
        try:
            while self.log.has(self.version + 1):
                commit = self._read(self.version + 1)
                self._sync(commit)
                self._take_in(commit)
                taken.append(commit)
            if self.log.has(self.version):
                return taken
        except FileNotFoundError:
            pass  # between our look and our reading
        self._load()
        self.follow()
        return None

    def _read(self, version: int) -> Commit:
        try:
            return self.log.read(version)
        except Torn as torn:
            raise StorageFailed(
                f"shard {self.id} is damaged", detail=str(torn), hint="restart; a torn newest commit is set aside"
            ) from torn

    def _sync(self, commit: Commit) -> None:
        if self._failed is not None:
            raise self._failed
        if self._synced.get(self.id, -1) >= commit.version:
            return
        try:
            self.durability.sync(commit)
        except FileNotFoundError:
            raise
        except OSError as error:
            self._failed = error
            raise
        self._synced[self.id] = max(self._synced.get(self.id, -1), commit.version)

    def _take_in(self, commit: Commit) -> None:
        view = self.view.after(commit)
        self.removed.update(commit.removed)
        if self._tokens is not None:
            _remember(self._tokens, commit)
        self._show(view)

    def _show(self, view: View) -> None:
        if view.columns != self.view.columns:
            self.schema = columns_here(self.id, view.columns, self._known)
        self.view = view

    def find_token(self, token: str) -> Step | None:
        """Where the append with this token began, after a look at what is new; an empty one is not looked for."""
        self.follow()
        if not token:
            return None
        if self._tokens is None:
            self._tokens = {}
            for version in range(max(0, self.version - TOKENS_REMEMBERED_MAX), self.version + 1):
                try:
                    _remember(self._tokens, self._read(version))
                except FileNotFoundError:
                    continue  # cleaned up
        return self._tokens.get(token)

    def read(self, view: View, lower: Antichain, upper: Antichain) -> pa.Table:
        """The updates in [``lower``, ``upper``) as of ``view``; raises ``FilesGone`` if its files are."""
        schema = self.schema
        tables = [schema.empty_table()]
        for file in view.files:
            if file.overlaps(lower, upper):
                try:
                    table = widened(self.place.read_table(file.name), schema)
                except FileNotFoundError as error:
                    raise FilesGone(file.name) from error
                tables.append(table if file.within(lower, upper) else between(table, lower, upper))
        return pa.concat_tables(tables)

    # --- committing -----------------------------------------------------------------------------------------

    def commit(
        self, transactions: Mapping[str, int], about: Mapping[str, str | int], write: Write, *, retries: int = 0
    ) -> bool:
        """Commits the version after the one that was checked, durably; False, with nothing written, if it is not ours.

        Nothing may be taken in between the check and the commit: what getting the handle ready brings in is a race
        lost. A failure that leaves open whether it was committed is resolved by our attempt in the log.
        """
        attempt, version = uuid4().hex, self.version + 1
        handle = self._handle_here()
        if self.version + 1 != version:
            return False
        failure: Exception | None = None
        failpoint("shard-before-commit")
        try:
            write(handle, _properties(transactions, {**about, ATTEMPT: attempt}, retries))
        except CommitFailedError as error:
            failure = error  # the handle stands where it stood and can be used on
        except Exception as error:  # delta-rs raises no narrower kind
            failure = error
            self._handle.forget()
        failpoint("shard-after-commit")
        if not self.is_behind():
            detail = reason(failure) if failure is not None else f"version {version} is not there"
            raise StorageFailed(f"shard {self.id} cannot be written", detail=detail) from failure
        ours = self._is_ours(self.follow(), attempt, failure)
        if ours and version == self.version and version % self.rules.reopen_after == 0:
            self._write_checkpoint(version)
        return ours

    def _is_ours(self, taken: list[Commit] | None, attempt: str, failure: Exception | None) -> bool:
        if taken is not None:
            return any(commit.attempt == attempt for commit in taken)
        # The commit was cleaned up before we could look, which takes a process that was stopped for long.
        if failure is None or isinstance(failure, CommitFailedError):
            return failure is None
        raise StorageFailed(f"shard {self.id} was written or not, and its log no longer says") from failure

    def _handle_here(self) -> DeltaTable:
        """delta-rs's handle, at exactly our version."""
        for _ in range(RACES_LOST_MAX):
            handle = self._handle.not_before(self.version)
            # It may be at a version that came after our last look; then that is ours too, once synced.
            self.follow()
            if handle.version() == self.version:
                return handle
        raise self.always_beaten()

    def _write_checkpoint(self, version: int) -> None:
        """The commit before it is durable with or without."""
        if not self._handle.write_checkpoint(version):
            return
        try:
            self.durability.sync_checkpoint(version)
        except OSError as error:
            self._failed = error

    def always_beaten(self) -> StorageFailed:
        return StorageFailed(f"shard {self.id} cannot be written", detail=f"{RACES_LOST_MAX} commits lost their race")


def _properties(transactions: Mapping[str, int], about: Mapping[str, str | int], retries: int) -> CommitProperties:
    return CommitProperties(
        custom_metadata={**about, TRANSACTIONS: " ".join(transactions)},
        max_commit_retries=retries,
        app_transactions=[Transaction(name, number) for name, number in transactions.items()],
    )


def _remember(tokens: dict[str, Step], commit: Commit) -> None:
    if commit.token and commit.lower is not None:
        tokens[commit.token] = commit.lower
    for old in list(islice(tokens, max(0, len(tokens) - TOKENS_REMEMBERED_MAX))):
        del tokens[old]
