"""Connections fail; calls and streams go on."""

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import plainsong
from plainsong.answers import TailBatch
from plainsong.cursors import TailCursor, as_batch
from plainsong.errors import NotReigning, Unavailable, abort
from plainsong.v1 import controller_pb2 as pb
from reconcile.errors import Fenced, InvalidRequest
from reconcile.frontiers import Antichain
from tests.client.serving import Controller, batch, serving, serving_in_a_thread

Progress = plainsong.Progress


def progress(step: int) -> plainsong.Progress:
    return plainsong.Progress(upper=Antichain.at(step))


def change(name: str, step: int, diff: int = 1) -> tuple[str, int, int]:
    return name, step, diff


def told(items: Sequence[object]) -> list[object]:
    """Changes as what a test writes down, progress as it is."""
    return [(item.row["name"], item.step, item.diff) if isinstance(item, plainsong.Change) else item for item in items]


# --- calls ---


@pytest.mark.asyncio
async def test_a_call_waits_for_a_server_that_is_not_there_yet() -> None:
    async with serving(Controller()) as address:
        pass

    async with plainsong.aio.connect(address) as client:
        await fails_to_connect(client)
        waiting = asyncio.create_task(client.insert("t", [{"n": 1}]))
        async with serving(controller := Controller(InsertRows=pb.InsertRowsResponse(step=3, rows=1)), address):
            written = await waiting

    assert written == plainsong.Written(step=3, rows=1)
    assert len(controller.requests("InsertRows")) == 1


async def fails_to_connect(client: plainsong.AsyncClient) -> None:
    with pytest.raises(plainsong.Unavailable):
        await client.status(timeout=0.1)


def test_a_call_with_threads_goes_on_after_a_restart_on_the_same_port() -> None:
    with serving_in_a_thread(Controller(GetStatus=pb.GetStatusResponse(epoch=1))) as address:
        client = plainsong.connect(address)
        assert client.status().epoch == 1

    with serving_in_a_thread(Controller(GetStatus=pb.GetStatusResponse(epoch=2)), address), client:
        assert client.status().epoch == 2


@pytest.mark.asyncio
async def test_a_reply_lost_with_the_server_is_asked_for_again_under_the_same_key() -> None:
    async def silence(_request: object, _context: object) -> list[Any]:
        await asyncio.Event().wait()
        return []

    first = Controller(InsertRows=silence)
    second = Controller(InsertRows=pb.InsertRowsResponse(step=3, rows=1))
    async with AsyncExitStack() as stack:
        async with serving(first) as address:
            client = await stack.enter_async_context(plainsong.aio.connect(address))
            waiting = asyncio.create_task(client.insert("t", [{"n": 1}]))
            await first.arrived.wait()
        await stack.enter_async_context(serving(second, address))
        await waiting

    assert first.requests("InsertRows") == second.requests("InsertRows")


@pytest.mark.asyncio
async def test_the_key_stays_the_same_over_all_retries() -> None:
    async def refuse_twice(_request: object, _context: object) -> object:
        refused = len(controller.requests("CreateView")) <= 2
        return Unavailable("not now") if refused else pb.CreateViewResponse()

    controller = Controller(CreateView=refuse_twice)
    async with serving(controller) as address, plainsong.aio.connect(address) as client:
        await client.create_view("v", "select 1")

    assert len(controller.heard) == 3
    assert len({request.idempotency_key for _, request in controller.heard}) == 1


@pytest.mark.parametrize("refusal", [NotReigning("standby"), Unavailable("starting"), None], ids=str)
@pytest.mark.asyncio
async def test_of_several_addresses_the_one_that_reigns_answers(refusal: Unavailable | None) -> None:
    standby = Controller() if refusal is None else Controller(GetStatus=refusal)
    reigning = Controller(GetStatus=pb.GetStatusResponse(epoch=5))
    async with serving(reigning) as there, AsyncExitStack() as stack:
        async with AsyncExitStack() as until_here:
            other = await until_here.enter_async_context(serving(standby))
            if refusal is not None:
                stack.push_async_exit(until_here.pop_all())

        async with plainsong.aio.connect([other, there]) as client:
            statuses = [await client.status(), await client.status()]

    assert [status.epoch for status in statuses] == [5, 5]
    assert len(standby.heard) == (0 if refusal is None else 1), "the second call began where the first succeeded"


@pytest.mark.asyncio
async def test_a_call_ends_at_its_deadline_when_nobody_answers() -> None:
    async with serving(Controller()) as address:
        pass

    async with plainsong.aio.connect(address) as client:
        with pytest.raises(plainsong.Unavailable) as failed:
            await client.status(timeout=0.5)

    assert f"within 0.5 s at {address}" in failed.value.detail
    assert failed.value.hint


@pytest.mark.asyncio
async def test_a_call_ends_at_its_deadline_when_the_server_is_silent() -> None:
    async def silence(_request: object, _context: object) -> list[Any]:
        await asyncio.Event().wait()
        return []

    async with serving(Controller(Query=silence)) as address, plainsong.aio.connect(address) as client:
        with pytest.raises(plainsong.TimedOut) as failed:
            await client.query("select 1", timeout=0.2)

    assert failed.value.reason == "TIMED_OUT"


@pytest.mark.parametrize("error", [InvalidRequest("no"), Fenced("no")], ids=["request", "fenced"])
@pytest.mark.asyncio
async def test_what_would_fail_again_is_not_sent_again(error: InvalidRequest | Fenced) -> None:
    controller = Controller(GetStatus=error)

    async with serving(controller) as address, plainsong.aio.connect(address) as client:
        with pytest.raises(type(error)):
            await client.status()

    assert len(controller.heard) == 1


def test_closing_the_client_ends_the_wait_of_another_thread() -> None:
    with serving_in_a_thread(Controller()) as address:
        pass
    client = plainsong.connect(address)
    failures: list[BaseException] = []

    def ask() -> None:
        try:
            client.status()
        except plainsong.PlainsongError as error:
            failures.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    client.close()
    asking.join(10)

    assert [type(failure) for failure in failures] == [plainsong.Closed]


# --- tails ---


class Tailing(Controller):
    """Serves the tail of a fixed history and breaks the stream off after each of ``breaks`` batches."""

    def __init__(self, history: Sequence[pb.ControllerServiceTailResponse], breaks: Sequence[int]) -> None:
        super().__init__()
        self.history = history
        self.breaks = list(breaks)

    async def Tail(  # noqa: N802  # as the service calls it
        self,
        request: pb.TailRequest,
        context: Any,  # noqa: ARG002
    ) -> AsyncIterator[pb.ControllerServiceTailResponse]:
        self.heard.append(("Tail", request))
        start = request.resume if request.HasField("resume") else 0
        left = self.breaks.pop(0) if self.breaks else len(self.history) + 1
        for response in self.history:
            closed = not response.upper.HasField("step")
            if closed or response.upper.step > start:
                if left == 0:
                    raise RuntimeError("broken off")
                left -= 1
                yield response


HISTORY = [
    batch(0, 3, [change("a", 0), change("b", 2)]),
    batch(3, 4),
    batch(4, 6, [change("a", 5, -1), change("c", 4)]),
    batch(6, None, [change("d", 6)]),
]
TOLD = [
    ("a", 0, 1),
    ("b", 2, 1),
    progress(3),
    progress(4),
    ("c", 4, 1),
    ("a", 5, -1),
    progress(6),
    ("d", 6, 1),
    plainsong.Progress(upper=Antichain(None)),
]


class Breaking(Tailing):
    """Breaks off as a server does that is going away."""

    async def Tail(self, request: pb.TailRequest, context: Any) -> AsyncIterator[pb.ControllerServiceTailResponse]:  # noqa: N802
        try:
            async for response in super().Tail(request, context):
                yield response
        except RuntimeError:
            await abort(context, Unavailable("going away"))


@pytest.mark.parametrize("breaks", [[], [1], [0, 2], [1, 1, 1], [3]], ids=str)
@pytest.mark.asyncio
async def test_a_tail_tells_everything_once_wherever_it_is_broken_off(breaks: list[int]) -> None:
    async with serving(Breaking(HISTORY, breaks)) as address, plainsong.aio.connect(address) as client:
        items = [item async for item in client.tail("v")]

    assert told(items) == TOLD


def test_a_tail_with_threads_tells_everything_once() -> None:
    controller = Breaking(HISTORY, [1, 1])

    with serving_in_a_thread(controller) as address, plainsong.connect(address) as client:
        items = list(client.tail("v"))

    assert told(items) == TOLD
    assert [(request.snapshot, request.resume) for _, request in controller.heard] == [
        (True, 0),
        (False, 3),
        (False, 4),
    ]


@pytest.mark.asyncio
async def test_a_tail_goes_on_at_a_restarted_server_where_it_stood() -> None:
    first, second = Waiting(HISTORY[:2]), Tailing(HISTORY, [])
    async with AsyncExitStack() as stack:
        async with serving(first) as address:
            client = await stack.enter_async_context(plainsong.aio.connect(address))
            tail = client.tail("v")
            items = [await anext(tail) for _ in range(4)]
        await stack.enter_async_context(serving(second, address))
        items += [item async for item in tail]

    assert told(items) == TOLD
    assert [request.resume for _, request in second.heard] == [4]


class Waiting(Tailing):
    """Says what it knows, and then nothing for ever."""

    def __init__(self, history: Sequence[pb.ControllerServiceTailResponse]) -> None:
        super().__init__(history, [])

    async def Tail(self, request: pb.TailRequest, context: Any) -> AsyncIterator[pb.ControllerServiceTailResponse]:  # noqa: N802
        async for response in super().Tail(request, context):
            yield response
        await asyncio.Event().wait()


@pytest.mark.asyncio
async def test_a_tail_can_be_taken_up_by_another_client_later() -> None:
    async with serving(Tailing(HISTORY, [])) as address:
        async with plainsong.aio.connect(address) as client, client.tail("v") as tail:
            seen = [await anext(tail) for _ in range(4)]
        async with plainsong.aio.connect(address) as client:
            rest = [item async for item in client.tail("v", resume=4)]

    assert told([*seen, *rest]) == TOLD


@pytest.mark.asyncio
async def test_a_tail_that_nobody_serves_any_more_says_so() -> None:
    async with AsyncExitStack() as stack:
        async with serving(Waiting(HISTORY[:1])) as address:
            client = await stack.enter_async_context(plainsong.aio.connect(address))
            tail = client.tail_batches("v", timeout=0.3)
            await anext(tail)

        with pytest.raises(plainsong.Unavailable):
            await anext(tail)


@pytest.mark.asyncio
async def test_a_tail_whose_past_is_gone_says_so() -> None:
    gone = InvalidRequest("cannot go on at 4", hint="begin anew")

    async with serving(Controller(Tail=gone)) as address, plainsong.aio.connect(address) as client:
        with pytest.raises(plainsong.InvalidRequest) as failed:
            await anext(client.tail("v", resume=4))

    assert failed.value.hint == "begin anew"


@pytest.mark.asyncio
async def test_a_server_that_leaves_a_gap_is_not_believed() -> None:
    gap = [batch(0, 3), batch(4, 5)]

    async with serving(Controller(Tail=gap)) as address, plainsong.aio.connect(address) as client:
        tail = client.tail("v")
        assert await anext(tail) == progress(3)
        with pytest.raises(plainsong.ProtocolViolation, match="stood at 3 went on at 4"):
            await anext(tail)


@pytest.mark.asyncio
async def test_a_cancelled_read_of_a_tail_loses_nothing() -> None:
    async with serving(Waiting(HISTORY)) as address, plainsong.aio.connect(address) as client:
        tail = client.tail("v")
        items: list[object] = []
        for _ in range(50):
            reading = asyncio.ensure_future(anext(tail))
            await asyncio.sleep(0)
            reading.cancel()
            try:
                items.append(await reading)
            except asyncio.CancelledError:
                continue
        items += [item async for item in tail]

    assert told(items) == TOLD


def test_closing_a_stream_from_another_thread_ends_its_iteration() -> None:
    controller = Waiting(HISTORY[:1])

    with serving_in_a_thread(controller) as address, plainsong.connect(address) as client:
        tail = client.tail_batches("v")
        next(tail)
        closing = threading.Thread(target=tail.close)
        closing.start()

        assert list(tail) == []
        closing.join()


steps = st.integers(min_value=0, max_value=12)


@given(
    changes=st.lists(st.tuples(st.sampled_from("abc"), steps, st.sampled_from([1, -1])), max_size=8),
    cuts=st.lists(st.lists(st.tuples(steps, steps), max_size=6), max_size=4),
)
def test_whatever_overlapping_batches_connections_bring_each_change_is_told_once(
    changes: list[tuple[str, int, int]], cuts: list[list[tuple[int, int]]]
) -> None:
    cursor = TailCursor(pb.TailRequest(name="v", resume=0), as_batch)
    batches: list[TailBatch] = []
    for connection in cuts:
        assert cursor.seen is not None
        for lower, upper in connection:
            if lower <= (cursor.seen.step or 0) and lower <= upper:
                batches += cursor.accept(batch(lower, upper, [each for each in changes if lower <= each[1] < upper]))

    assert cursor.seen is not None
    end = cursor.seen.step or 0
    rows = [
        (row["name"], row["_step"], row["_diff"])
        for each in batches
        if each.updates is not None
        for row in each.updates.to_pylist()
    ]
    assert sorted(rows) == sorted(each for each in changes if each[1] < end)
    assert all(one.upper == other.lower for one, other in pairwise(batches))


# --- other streams ---


@pytest.mark.asyncio
async def test_a_followed_log_tells_each_record_once() -> None:
    async def read_log(request: pb.ReadLogRequest, _context: object) -> object:
        records = [pb.LogRecord(seqno=seqno, text=f"r{seqno}") for seqno in range(request.first_seqno, 7)]
        return [pb.ReadLogResponse(records=records[:2])]

    async with serving(Controller(ReadLog=read_log)) as address, plainsong.aio.connect(address) as client:
        log = client.follow_log("c", first_seqno=1)
        records = [await anext(log) for _ in range(6)]

    assert [record.seqno for record in records] == [1, 2, 3, 4, 5, 6]


@pytest.mark.asyncio
async def test_a_watcher_is_told_that_events_may_be_missing() -> None:
    event = pb.WatchResponse(object_dropped=pb.ObjectDropped(name="t"))

    async with serving(Controller(Watch=[event])) as address, plainsong.aio.connect(address) as client:
        watch = client.watch()
        events = [await anext(watch) for _ in range(3)]

    dropped = plainsong.ObjectDropped(name="t")
    assert events == [dropped, plainsong.Interrupted(), dropped]
