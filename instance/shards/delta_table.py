"""One shard's Delta table as one handle sees it; every call blocks, and commits need a turn of their own.

Every commit is a compare-and-swap on the version of the table: delta-rs is told not to retry, so it commits exactly
the version after the one its handle has loaded, or nothing. Upper, epoch and since are checked as of that version,
with the handle not refreshed in between, because Delta itself compares no values; they are application transactions
as well, so that a commit of anybody who does retry is refused. What others committed is learned from their commit
files (``delta_log``); delta-rs's handle is there to commit, and follows only for that.

That handle slows down with every commit it has seen, and opening one without a log checkpoint reads every commit
there ever was. So the hooks are off, whoever commits a hundredth version writes a checkpoint, and the handle is
opened anew after a hundred versions. Old commits are not cleaned up here: a handle that is behind needs them.
"""

import logging
from collections.abc import Mapping, Sequence
from itertools import islice
from uuid import uuid4

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction, write_deltalake
from deltalake import Schema as DeltaSchema
from deltalake.exceptions import CommitFailedError

from instance.shards.contents import between
from instance.shards.delta_log import (
    ATTEMPT,
    EPOCH,
    LOWER,
    SINCE,
    TOKEN,
    TRANSACTIONS,
    UPPER,
    AddedFile,
    Commit,
    DeltaLog,
    Torn,
    check_next,
    to_frontier,
    to_number,
)
from instance.shards.store import (
    NO_WRITER,
    TOKENS_REMEMBERED_MAX,
    Appended,
    AppendOutcome,
    EpochFenced,
    TakenOver,
    UpperMoved,
)
from plainsong.failpoint import failpoint
from plainsong.types import STEP
from reconcile.errors import InvalidRequest, InvariantBroken, StorageFailed
from reconcile.frontiers import MINIMUM, Antichain
from reconcile.ids import GlobalId, Step, WriterEpoch

_LOG = logging.getLogger(__name__)

#: Versions after which the handle is opened anew, and between two log checkpoints.
REOPEN_AFTER = 100
#: Races that one commit may lose before it gives up; each lost one means that somebody else got on.
RACES_LOST_MAX = 100

_HOOKS_OFF = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
#: Statistics of ``_step`` say which files a read needs, and must be there however many columns a user has.
_CONFIGURATION = {"delta.dataSkippingStatsColumns": STEP, "delta.enableExpiredLogCleanup": "false"}


class ShardTable:
    """The shard as of ``version``, which this process has synced. Nothing of it ever goes back."""

    def __init__(self, id: GlobalId, schema: pa.Schema, log: DeltaLog, synced: dict[GlobalId, int]) -> None:
        self.id = id
        self.schema = schema
        self.version = -1
        self.upper = MINIMUM
        self.since = MINIMUM
        self.writer_epoch = NO_WRITER
        self._log = log
        #: Shared by all handles of a process, by id.
        self._synced = synced
        #: Replaced rather than changed when a file goes; only ever appended to otherwise, for readers beside us.
        self._files: list[AddedFile] = []
        #: Where recent appends began, oldest first; read when first asked for.
        self._tokens: dict[str, Step] | None = None
        self._handle: DeltaTable | None = None
        self._opened_at = 0
        #: An fsync failed: what is on the disk is unknown, and asking again would answer wrongly.
        self._failed: OSError | None = None

    # --- opening --------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Creates the shard if it is not there, and learns its state."""
        self._log.folder.parent.mkdir(parents=True, exist_ok=True)
        self._log.set_torn_aside()
        if not self._log.has(0) and self._log.newest() is None:
            self._create()
        handle = self._open_handle()
        if handle.schema() != DeltaSchema.from_arrow(self.schema):
            raise InvalidRequest(
                f"shard {self.id} has other columns",
                detail=f"it has {handle.schema().to_json()}, asked for was {self.schema}",
            )
        self.version = handle.version()
        self.upper, self.since, self.writer_epoch = _state(handle)
        self._files = _files(handle, self._log)
        self._sync(self._read(self.version))

    def _create(self) -> None:
        try:
            DeltaTable.create(
                str(self._log.folder),
                DeltaSchema.from_arrow(self.schema),
                configuration=_CONFIGURATION,
                commit_properties=_properties({UPPER: 0, EPOCH: NO_WRITER, SINCE: 0}, {}),
                post_commithook_properties=_HOOKS_OFF,
            )
        except Exception as error:
            # So wide because delta-rs raises no narrower kind; whoever else created it meanwhile did our work.
            if not self._log.has(0):
                raise StorageFailed(f"shard {self.id} cannot be created", detail=str(error)) from error

    def _open_handle(self) -> DeltaTable:
        try:
            handle = DeltaTable(str(self._log.folder))
        except Exception as error:  # delta-rs raises no narrower kind
            raise StorageFailed(f"shard {self.id} cannot be opened", detail=str(error)) from error
        self._handle, self._opened_at = handle, handle.version()
        return handle

    # --- following ------------------------------------------------------------------------------------------

    def is_behind(self) -> bool:
        """Whether there is a newer version; one ``stat``."""
        return self._log.has(self.version + 1)

    def follow(self) -> None:
        """Takes in every newer version, each one synced first."""
        while self.is_behind():
            commit = self._read(self.version + 1)
            self._sync(commit)
            self._take_in(commit)

    def _read(self, version: int) -> Commit:
        try:
            return self._log.read(version)
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
            self._log.sync(commit)
        except OSError as error:
            self._failed = error
            raise
        self._synced[self.id] = max(self._synced.get(self.id, -1), commit.version)

    def _take_in(self, commit: Commit) -> None:
        check_next(commit, self.version, self.upper, self.since, self.writer_epoch)
        if commit.removed:
            removed = set(commit.removed)
            self._files = [file for file in self._files if file.path not in removed]
        # Files before the upper: a reader beside us that sees the new upper finds the files below it.
        self._files.extend(commit.added)
        if self._tokens is not None:
            _remember(self._tokens, commit)
        self.since = self.since if commit.since is None else commit.since
        self.writer_epoch = self.writer_epoch if commit.writer_epoch is None else commit.writer_epoch
        self.version = commit.version
        self.upper = self.upper if commit.upper is None else commit.upper

    def find_token(self, token: str) -> Step | None:
        """Where the append with this token began, after a look at what is new; an empty one is not looked for."""
        self.follow()
        if not token:
            return None
        if self._tokens is None:
            self._tokens = {}
            for version in range(max(0, self.version - TOKENS_REMEMBERED_MAX), self.version + 1):
                if self._log.has(version):
                    _remember(self._tokens, self._read(version))
        return self._tokens.get(token)

    def read(self, lower: Antichain, upper: Antichain) -> pa.Table:
        """The updates in [``lower``, ``upper``) that this handle knows of."""
        tables = [self.schema.empty_table()]
        for file in tuple(self._files):
            if file.overlaps(lower, upper):
                # By file: reading through delta-rs shortly before the process exits aborts it.
                table = pq.ParquetFile(file.path).read().cast(self.schema)
                tables.append(table if file.within(lower, upper) else between(table, lower, upper))
        return pa.concat_tables(tables)

    # --- committing -----------------------------------------------------------------------------------------

    def append(
        self,
        expected: Antichain,
        upper: Antichain,
        stored: pa.Table | None,
        writer_epoch: WriterEpoch | None,
        token: str,
    ) -> AppendOutcome:
        transactions = {UPPER: to_number(upper)}
        if writer_epoch is not None:
            transactions[EPOCH] = writer_epoch
        for _ in range(RACES_LOST_MAX):
            if self.find_token(token) is not None:
                return Appended(upper=self.upper)
            if writer_epoch is not None and writer_epoch < self.writer_epoch:
                return EpochFenced(writer_epoch=self.writer_epoch)
            if self.upper != expected or expected.step is None:
                return UpperMoved(upper=self.upper)
            if self._commit(transactions, {TOKEN: token, LOWER: expected.step}, stored):
                return Appended(upper=upper)
        raise self._always_beaten()

    def take_over(self, writer_epoch: WriterEpoch) -> TakenOver | EpochFenced:
        for _ in range(RACES_LOST_MAX):
            self.follow()
            if writer_epoch < self.writer_epoch:
                return EpochFenced(writer_epoch=self.writer_epoch)
            if writer_epoch == self.writer_epoch:
                return TakenOver(upper=self.upper)
            # The upper beside the epoch, so that this conflicts with an append under way even if it would retry.
            self._commit({EPOCH: writer_epoch, UPPER: to_number(self.upper)}, {}, None)
        raise self._always_beaten()

    def advance_since(self, since: Antichain) -> None:
        for _ in range(RACES_LOST_MAX):
            self.follow()
            if not since > self.since:
                return
            self._commit({SINCE: to_number(since)}, {}, None)
        raise self._always_beaten()

    def _commit(self, transactions: Mapping[str, int], about: Mapping[str, str | int], stored: pa.Table | None) -> bool:
        """Commits the version after the one that was checked, durably; False, with nothing written, if it is not ours.

        Nothing may be taken in between the check and the commit: what getting the handle ready brings in is a race
        lost. A failure that leaves open whether it was committed is resolved by our attempt in the log.
        """
        attempt, version = uuid4().hex, self.version + 1
        handle = self._handle_here()
        if self.version + 1 != version:
            return False
        rows = self.schema.empty_table() if stored is None else stored
        failure: Exception | None = None
        failpoint("shard-before-commit")
        try:
            write_deltalake(
                handle,
                rows,
                mode="append",
                commit_properties=_properties(transactions, {**about, ATTEMPT: attempt}),
                post_commithook_properties=_HOOKS_OFF,
            )
        except CommitFailedError as error:
            failure = error  # the handle stands where it stood and can be used on
        except Exception as error:  # delta-rs raises no narrower kind
            self._handle, failure = None, error
        failpoint("shard-after-commit")
        if not self.is_behind():
            detail = str(failure) if failure is not None else f"version {version} is not there"
            raise StorageFailed(f"shard {self.id} cannot be written", detail=detail) from failure
        ours = self._read(version).attempt == attempt
        self.follow()
        if ours and version % REOPEN_AFTER == 0:
            self._write_checkpoint(version)
        return ours

    def _handle_here(self) -> DeltaTable:
        """delta-rs's handle, at exactly our version."""
        for _ in range(RACES_LOST_MAX):
            handle = self._handle
            if handle is None or self.version - self._opened_at >= REOPEN_AFTER:
                handle = self._open_handle()
            elif handle.version() < self.version:
                handle.update_incremental()
            # It loads the newest version, which may have come after our last look; then it is ours too, once synced.
            self.follow()
            if handle.version() == self.version:
                return handle
        raise self._always_beaten()

    def _write_checkpoint(self, version: int) -> None:
        """Saves whoever opens the shard time; the commit before it is durable with or without."""
        handle = self._handle
        if handle is None or handle.version() != version:
            return
        try:
            handle.create_checkpoint()
        except Exception:  # delta-rs raises no narrower kind
            _LOG.warning("no checkpoint of shard %s at version %d", self.id, version, exc_info=True)
            return
        try:
            self._log.sync_checkpoint(version)
        except OSError as error:
            self._failed = error

    def _always_beaten(self) -> StorageFailed:
        return StorageFailed(f"shard {self.id} cannot be written", detail=f"{RACES_LOST_MAX} commits lost their race")


def _properties(transactions: Mapping[str, int], about: Mapping[str, str | int]) -> CommitProperties:
    return CommitProperties(
        custom_metadata={**about, TRANSACTIONS: " ".join(transactions)},
        max_commit_retries=0,
        app_transactions=[Transaction(name, number) for name, number in transactions.items()],
    )


def _state(handle: DeltaTable) -> tuple[Antichain, Antichain, WriterEpoch]:
    upper, since, epoch = (handle.transaction_version(name) for name in (UPPER, SINCE, EPOCH))
    if upper is None or since is None or epoch is None:
        raise InvariantBroken(f"not a shard: {handle.table_uri} has upper {upper}, since {since}, epoch {epoch}")
    return to_frontier(upper), to_frontier(since), WriterEpoch(epoch)


def _files(handle: DeltaTable, log: DeltaLog) -> list[AddedFile]:
    actions = handle.get_add_actions(flatten=True)

    def column(name: str) -> Sequence[int | None]:
        known = name in actions.column_names
        return actions.column(name).to_pylist() if known else [None] * actions.num_rows

    paths, sizes = actions.column("path").to_pylist(), actions.column("size_bytes").to_pylist()
    steps = zip(column(f"min.{STEP}"), column(f"max.{STEP}"), strict=True)
    return [log.added(path, size, *step) for path, size, step in zip(paths, sizes, steps, strict=True)]


def _remember(tokens: dict[str, Step], commit: Commit) -> None:
    if commit.token and commit.lower is not None:
        tokens[commit.token] = commit.lower
    for old in list(islice(tokens, max(0, len(tokens) - TOKENS_REMEMBERED_MAX))):
        del tokens[old]
