"""The worker: the one thread that owns the one connection to the database.

Statements that wait are written together, in the order in which they came, in one transaction (group commit): while one
group is being synced to disk the next one gathers. Everything else is a job that has its transaction for itself. After
the first failure nothing is tried again; what waits and whatever comes later gets the same error.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Generic, NamedTuple, TypeVar

from sqlalchemy import URL, Connection

from controller.store.bounds import GROUP_CHANGES_MAX, STATEMENTS_WAITING_MAX
from controller.store.database import connect, failure
from controller.store.effects import Effects
from controller.store.ledger import Admitted
from controller.store.room import Room
from controller.store.writing import check_reign, write
from plainsong.failpoint import failpoint
from reconcile.errors import PlainsongError
from reconcile.ids import Epoch

T = TypeVar("T")


class _Statement(NamedTuple):
    """A named tuple rather than a dataclass: one is built for every commit, at a third of the cost."""

    admitted: Admitted
    done: asyncio.Future[None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job(Generic[T]):
    perform: Callable[[Connection], T]
    done: asyncio.Future[T]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Close:
    done: asyncio.Future[None]


_Item = _Statement | _Job[Any] | _Close


class Worker:
    """Takes work in the event loop, performs it in its thread, and settles it in the event loop again."""

    def __init__(self, url: URL) -> None:
        self._url = url
        self._loop = asyncio.get_running_loop()
        #: What came since the thread was last told. Told once per turn of the loop: being woken for each item, the
        #: thread would fight the loop for the interpreter and find groups of one.
        self._gathering: list[_Item] = []
        self._told: SimpleQueue[list[_Item]] = SimpleQueue()
        #: Room for what waits; taken before an item is queued, given back when it is settled.
        self.room = Room(STATEMENTS_WAITING_MAX)
        #: Set once, in the thread, by the first failure.
        self._failed: PlainsongError | None = None
        #: In whose name statements are written; set before the first one.
        self.epoch = Epoch(0)
        self._connection: Connection | None = None
        threading.Thread(target=self._run, name="plainsong-store", daemon=True).start()

    def append(self, admitted: Admitted) -> asyncio.Future[None]:
        """Queues a statement; done when it is durable."""
        done: asyncio.Future[None] = self._loop.create_future()
        self._put(_Statement(admitted, done))
        return done

    def run(self, perform: Callable[[Connection], T]) -> asyncio.Future[T]:
        """Queues a job, which begins and ends its own transactions."""
        done: asyncio.Future[T] = self._loop.create_future()
        self._put(_Job(perform=perform, done=done))
        return done

    def _put(self, item: _Item) -> None:
        if not self._gathering:
            self._loop.call_soon(self._tell_thread)
        self._gathering.append(item)

    def _tell_thread(self) -> None:
        gathered, self._gathering = self._gathering, []
        self._told.put(gathered)

    async def close(self) -> None:
        """Performs what is queued, then lets go of the connection and ends the thread."""
        done: asyncio.Future[None] = self._loop.create_future()
        self._put(_Close(done=done))
        await done

    def _run(self) -> None:
        waiting: deque[_Item] = deque()
        while True:
            self._receive(waiting)
            item = waiting.popleft()
            if isinstance(item, _Statement):
                group = _group(item, waiting)
                self._perform([statement.done for statement in group], partial(_write, self.epoch, group))
            elif isinstance(item, _Job):
                self._perform([item.done], item.perform)
            else:
                self._disconnect()
                self._settle([item.done], None, None)
                return

    def _receive(self, waiting: deque[_Item]) -> None:
        """Takes in all that came; blocks only if there is nothing to do."""
        if not waiting:
            waiting.extend(self._told.get())
        with suppress(Empty):
            while True:
                waiting.extend(self._told.get_nowait())

    def _perform(self, done: Sequence[asyncio.Future[Any]], perform: Callable[[Connection], Any]) -> None:
        result = None
        if self._failed is None:
            try:
                if self._connection is None:
                    self._connection = connect(self._url)
                result = perform(self._connection)
            except BaseException as error:
                self._failed = failure(error, self._url)
                self._failed.__cause__ = error if error is not self._failed else None
                self._disconnect()
        self._settle(done, result, self._failed)

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):
                connection.close()

    def _settle(self, done: Sequence[asyncio.Future[Any]], result: object, error: PlainsongError | None) -> None:
        # The loop may have ended without closing the store; then nobody waits any more.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._tell, done, result, error)

    def _tell(self, done: Sequence[asyncio.Future[Any]], result: object, error: PlainsongError | None) -> None:
        self.room.give_back(len(done))
        for future in done:
            if future.cancelled():
                continue
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(_again(error))


def _group(first: _Statement, waiting: deque[_Item]) -> list[_Statement]:
    """The statements next in line, up to the bound."""
    group, size = [first], len(first.admitted.changes)
    while waiting and size < GROUP_CHANGES_MAX:
        item = waiting[0]
        if not isinstance(item, _Statement):
            break
        group.append(item)
        size += len(item.admitted.changes)
        waiting.popleft()
    return group


def _write(epoch: Epoch, group: Sequence[_Statement], connection: Connection) -> None:
    effects = Effects(epoch)
    for statement in group:
        effects.add(statement.admitted)
    with connection.begin():
        check_reign(connection, epoch, next_seqno=effects.next_seqno)
        write(connection, effects)
        failpoint("store-before-commit")
    failpoint("store-after-commit")


def _again(error: PlainsongError) -> PlainsongError:
    """The same error for one more waiter; each needs its own, for a raised error carries its traceback."""
    copy = type(error)(error.message, detail=error.detail, hint=error.hint)
    copy.__cause__ = error.__cause__
    return copy
