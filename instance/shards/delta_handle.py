"""delta-rs's handle of a shard, through which we commit.

It slows down with every commit it has seen, and opening one without a log checkpoint reads every commit there ever
was. So its hooks are off, whoever commits a hundredth version writes a checkpoint, and the handle is opened anew after
a hundred versions.
"""

import logging

from deltalake import DeltaTable, PostCommitHookProperties

from instance.shards.places import Place
from instance.shards.reasons import reason
from instance.shards.rules import UpkeepRules
from reconcile.errors import StorageFailed
from reconcile.ids import GlobalId

_LOG = logging.getLogger(__name__)

#: Times that opening is tried while others clean up what it is about to read.
OPEN_TRIES_MAX = 5
HOOKS_OFF = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)


def open_handle(id: GlobalId, place: Place) -> DeltaTable:
    """A handle at the newest version."""
    for attempt in range(OPEN_TRIES_MAX):
        try:
            return DeltaTable(place.uri, storage_options=place.options)
        except Exception as error:  # delta-rs raises no narrower kind
            # Somebody may have cleaned up what it was about to read; then there are newer files.
            if attempt == OPEN_TRIES_MAX - 1:
                raise StorageFailed(f"shard {id} cannot be opened", detail=reason(error)) from error
    raise AssertionError("not reached")


def write_checkpoint(id: GlobalId, handle: DeltaTable) -> bool:
    """Saves whoever opens the shard time; whether it could, as nothing depends on it."""
    try:
        handle.create_checkpoint()
    except Exception:  # delta-rs raises no narrower kind
        _LOG.warning("no checkpoint of shard %s at version %d", id, handle.version(), exc_info=True)
        return False
    return True


class CommitHandle:
    """The handle of one table object, opened when it is first needed and again when it has grown slow."""

    def __init__(self, id: GlobalId, place: Place, rules: UpkeepRules) -> None:
        self._id = id
        self._place = place
        self._rules = rules
        self._handle: DeltaTable | None = None
        self._opened_at = 0

    def open(self) -> DeltaTable:
        handle = open_handle(self._id, self._place)
        self._handle, self._opened_at = handle, handle.version()
        return handle

    def forget(self) -> None:
        """After a failure that leaves open where it stands."""
        self._handle = None

    def not_before(self, version: int) -> DeltaTable:
        """The handle at ``version`` or a newer one: when it has to look for what is new it takes all there is."""
        handle = self._handle
        if handle is None or version - self._opened_at >= self._rules.reopen_after:
            return self.open()
        if handle.version() < version:
            try:
                handle.update_incremental()
            except Exception:  # delta-rs raises no narrower kind; what it wanted to read may be cleaned up
                return self.open()
        return handle

    def write_checkpoint(self, version: int) -> bool:
        """False as well if the handle stands elsewhere."""
        handle = self._handle
        return handle is not None and handle.version() == version and write_checkpoint(self._id, handle)
