"""Maintenance of shards: what keeps appends and reads fast for ever, and the disk from filling up.

Several maintainers of one shard, in one process or many, do no harm and cost little more than one.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from instance.shards.store import Shard, ShardStore, Tidied
from reconcile.errors import PlainsongError

_LOG = logging.getLogger(__name__)

#: Between two rounds of maintenance of all shards of a process.
MAINTAIN_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Maintained:
    """What one round did to a shard."""

    compacted: bool
    tidied: Tidied


async def maintain(shard: Shard, now: float) -> Maintained:
    """One round: the since goes where the holds allow it, history is compacted, the log and the files cleared up.

    ``now`` is in seconds of the epoch. Costs a look when nothing happened since the last round.
    """
    await shard.refresh()
    await shard.advance_since(shard.since)
    compacted = await shard.compact()
    return Maintained(compacted=compacted, tidied=await shard.tidy(now))


async def maintain_for_ever(shards: Callable[[], Iterable[Shard]], clock: Callable[[], float]) -> None:
    """Maintains, one after the other, the shards that there are at each round, until it is cancelled."""
    while True:
        await asyncio.sleep(MAINTAIN_SECONDS)
        for shard in tuple(shards()):
            try:
                await maintain(shard, clock())
            except PlainsongError as error:
                _LOG.warning("shard %s was not maintained: %s", shard.id, error)
            except Exception:  # whatever it is: one shard's trouble must not let the others fill the disk
                _LOG.exception("shard %s was not maintained", shard.id)


@asynccontextmanager
async def maintained(store: ShardStore, clock: Callable[[], float]) -> AsyncIterator[None]:
    """Within it, what this store has written is maintained; a commit under way is finished at the end."""
    task = asyncio.create_task(maintain_for_ever(store.written, clock), name="maintenance of shards")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
