"""Cursors: where a stream stands, so that it goes on after a lost connection without a gap or a repeat.

Pure: a cursor makes the next request, takes in each response, and says what of it is new.
"""

from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from google.protobuf.message import Message

from plainsong import reading
from plainsong.answers import Change, Event, Interrupted, LogRecord, Progress, TailBatch
from plainsong.arrow_updates import ArrowUpdates
from plainsong.rows import make_row, python_rows
from plainsong.types import DIFF, STEP
from plainsong.v1 import controller_pb2
from reconcile.errors import ProtocolViolation as CoreViolation
from reconcile.frontiers import Antichain

T = TypeVar("T")
Item_co = TypeVar("Item_co", covariant=True)


class Cursor(Protocol[Item_co]):
    """One stream, over all the connections that it takes."""

    method: str
    #: The stream has told all that it will ever tell.
    done: bool

    def request(self) -> Message:
        """What to ask for, to go on where the stream stands."""
        ...

    def accept(self, response: Any) -> Sequence[Item_co]:
        """What is new in ``response``."""
        ...

    def reopened(self) -> Sequence[Item_co]:
        """What a reader must be told after the stream was lost and opened again."""
        ...


class TailCursor(Generic[T]):
    """The changes of a collection: contiguous and disjoint, whatever the connection does.

    Everything before ``seen`` has been given to the reader; ``None`` before the first batch.
    """

    method = "Tail"

    def __init__(self, request: controller_pb2.TailRequest, told_as: Callable[[TailBatch], Sequence[T]]) -> None:
        self._request = request
        self._told_as = told_as
        self.seen = Antichain.at(request.resume) if request.HasField("resume") else None
        self.done = False

    def request(self) -> controller_pb2.TailRequest:
        request = controller_pb2.TailRequest()
        request.CopyFrom(self._request)
        if self.seen is not None and self.seen.step is not None:
            request.snapshot = False
            request.ClearField("as_of")
            request.resume = self.seen.step
        return request

    def accept(self, response: controller_pb2.ControllerServiceTailResponse) -> Sequence[T]:
        lower, upper = reading.frontier(response.lower), reading.frontier(response.upper)
        if upper < lower:
            raise reading.violation(f"a batch of a tail from {lower} to {upper}")
        if self.seen is not None and lower > self.seen:
            raise reading.violation(f"a tail that stood at {self.seen} went on at {lower}")
        start = lower if self.seen is None else self.seen
        if upper < start or (upper == start and self.seen is not None):
            return ()
        updates = None
        if response.arrow:
            try:
                kept = ArrowUpdates.encoded(response.arrow).not_before(start).table
            except CoreViolation as error:
                raise reading.violation(error.detail) from error
            updates = kept if kept.num_rows else None
        self.seen, self.done = upper, upper.is_closed
        return self._told_as(TailBatch(lower=start, upper=upper, updates=updates))

    def reopened(self) -> Sequence[T]:
        return ()


def as_batch(batch: TailBatch) -> Sequence[TailBatch]:
    return (batch,)


def as_changes(batch: TailBatch) -> Sequence[Change | Progress]:
    """The changes in the order of their steps, then how far that is."""
    if batch.updates is None:
        return (Progress(upper=batch.upper),)
    steps, diffs = batch.updates[STEP].to_pylist(), batch.updates[DIFF].to_pylist()
    user = batch.updates.drop_columns([STEP, DIFF])
    rows = list(python_rows(user)) if user.num_columns else [make_row((), ())] * len(steps)
    changes = [Change(row=row, step=step, diff=diff) for row, step, diff in zip(rows, steps, diffs, strict=True)]
    return (*sorted(changes, key=lambda change: change.step), Progress(upper=batch.upper))


class LogCursor:
    """The command log as it grows; each record once.

    Only what compaction left of the log's beginning, which has no seqnos, may be told again when the connection is
    lost in the middle of it.
    """

    method = "ReadLog"
    done = False

    def __init__(self, cluster: str, first_seqno: int) -> None:
        self._cluster = cluster
        self._first = first_seqno
        #: The smallest seqno not yet told; ``None`` before the first that is one.
        self._next: int | None = None

    def request(self) -> controller_pb2.ReadLogRequest:
        first = self._first if self._next is None else self._next
        return controller_pb2.ReadLogRequest(cluster=self._cluster, first_seqno=first, follow=True)

    def accept(self, response: controller_pb2.ReadLogResponse) -> Sequence[LogRecord]:
        start = self._next
        records = [each for each in reading.log_records(response) if start is None or each.seqno >= start]
        if (last := max((each.seqno for each in records), default=0)) > 0:
            self._next = last + 1
        return records

    def reopened(self) -> Sequence[LogRecord]:
        return ()


class WatchCursor:
    """Events as they happen. They are not kept anywhere, so a reader is told when some may have been missed."""

    method = "Watch"
    done = False

    def request(self) -> controller_pb2.WatchRequest:
        return controller_pb2.WatchRequest()

    def accept(self, response: controller_pb2.WatchResponse) -> Sequence[Event]:
        event = reading.event(response)
        return () if event is None else (event,)

    def reopened(self) -> Sequence[Event]:
        return (Interrupted(),)
