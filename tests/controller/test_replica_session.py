"""The session with one replica, on a clock that jumps."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from controller.links import Link
from controller.replica_session import GATHER_MS, Caller, ReplicaSession
from controller.settings import Settings
from plainsong.codec import ComputeReplyFrame
from plainsong.errors import Fenced
from reconcile.compute_protocol import (
    ComputeResponse,
    CreateInstance,
    Heartbeat,
    InitializationComplete,
    PeekResponse,
    PeekRows,
)
from reconcile.ids import Epoch, PeekId, ReplicaId
from reconcile.limits import SESSION_QUEUE_MAX
from reconcile.storage_protocol import StorageResponse
from tests.controller.virtual_time import run
from tests.controller.wires import MemoryDialer, MemoryWire

SETTINGS = Settings(heartbeat_ms=500, heartbeat_deadline_ms=3_000, reconnect_ms_min=200, reconnect_ms_max=2_000)
ONE = ReplicaId(1)


@dataclass
class Owner:
    """Remembers what it is told, and when."""

    story: list[str] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    heard: list[ComputeResponse] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    end: Callable[[str], None] = print

    def _tell(self, line: str, replica: ReplicaId = ONE) -> None:
        assert replica == ONE
        self.story.append(line)
        self.changed.set()

    async def joining(self, replica: ReplicaId) -> None:
        self._tell("joining", replica)

    def connected(self, replica: ReplicaId, link: Link) -> None:
        self.links.append(link)
        link.replay([CreateInstance(), InitializationComplete()], [CreateInstance(), InitializationComplete()])
        self._tell("connected", replica)

    def lost(self, replica: ReplicaId, why: str) -> None:
        self._tell(f"lost: {why}", replica)

    def heard_compute(self, replica: ReplicaId, response: ComputeResponse) -> None:
        assert replica == ONE
        self.heard.append(response)
        self.changed.set()

    def heard_storage(self, replica: ReplicaId, response: StorageResponse) -> None:
        pass

    async def deposed(self) -> None:
        self._tell("deposed")

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self.changed.clear()
            await self.changed.wait()


def with_session(dialer: MemoryDialer, test: Callable[[Owner], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        async def address() -> str:
            return "somewhere"

        owner = Owner()
        session = ReplicaSession(
            owner=owner,
            replica=ONE,
            caller=Caller(epoch=Epoch(3), deployment="ours"),
            address=address,
            dialer=dialer,
            settings=SETTINGS,
        )
        running = asyncio.create_task(session.run())
        try:
            owner.end = session.end
            await test(owner)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    run(main())


def test_a_session_is_joined_and_then_told_the_whole_requested_state() -> None:
    wire = MemoryWire()

    async def test(owner: Owner) -> None:
        await owner.until(lambda: "connected" in owner.story)
        await asyncio.sleep(1)

        assert owner.story == ["joining", "connected"]
        assert wire.compute == wire.storage == [CreateInstance(), InitializationComplete()]

    with_session(MemoryDialer(wire), test)


def test_heartbeats_are_sent_all_the_time() -> None:
    wire = MemoryWire()

    async def test(owner: Owner) -> None:
        await owner.until(lambda: "connected" in owner.story)
        await asyncio.sleep(60)

        assert wire.heartbeats >= 60_000 // SETTINGS.heartbeat_ms
        assert owner.story == ["joining", "connected"]

    with_session(MemoryDialer(wire), test)


def test_commands_share_frames_while_an_earlier_frame_is_unanswered_but_not_for_long() -> None:
    wire = MemoryWire()

    async def test(owner: Owner) -> None:
        await owner.until(lambda: "connected" in owner.story)
        loop, (link,) = asyncio.get_running_loop(), owner.links
        await asyncio.sleep(1.1)  # well after a heartbeat, and before the next
        began, wire.frames[:] = loop.time(), []
        link.put_compute(InitializationComplete())
        await asyncio.sleep(0.0001)
        for _ in range(3):
            link.put_compute(InitializationComplete())
            await asyncio.sleep(0.0001)
        wire.say(ComputeReplyFrame(responses=(Heartbeat(sent_ms=1),)))
        await asyncio.sleep(0.0001)
        answered = loop.time()
        for _ in range(2):
            link.put_compute(InitializationComplete())
        await asyncio.sleep(1.2 * GATHER_MS / 1000)

        (alone, one), (together, three), (late, two) = wire.frames
        assert (one, three, two) == (1, 3, 2)
        assert alone - began < 0.0001
        assert together - began < 0.0005, "an answer lets the next frame go"
        assert late - answered <= 1.1 * GATHER_MS / 1000, "and without one it goes soon"

    with_session(MemoryDialer(wire), test)


def test_a_replica_that_falls_silent_is_lost_at_its_deadline() -> None:
    async def test(owner: Owner) -> None:
        await owner.until(lambda: "connected" in owner.story)
        began = asyncio.get_running_loop().time()
        await owner.until(lambda: any(line.startswith("lost") for line in owner.story))

        assert owner.story[2] == "lost: nothing was heard for 3 s"
        assert asyncio.get_running_loop().time() - began <= 3.1

    with_session(MemoryDialer(MemoryWire(mute=True)), test)


def test_a_replica_too_slow_for_its_queue_loses_its_session_and_gets_a_new_one() -> None:
    async def test(owner: Owner) -> None:
        await owner.until(lambda: "connected" in owner.story)
        for _ in range(SESSION_QUEUE_MAX + 10):
            owner.links[0].put_compute(CreateInstance())
        await owner.until(lambda: owner.story.count("connected") == 2)

        assert owner.story == [
            "joining", "connected", "lost: it is too slow: too many commands wait", "joining", "connected",
        ]  # fmt: skip

    with_session(MemoryDialer(MemoryWire(deaf=True), MemoryWire()), test)


def test_attempts_come_after_growing_pauses_up_to_a_bound() -> None:
    dialer = MemoryDialer()

    async def test(owner: Owner) -> None:
        await owner.until(lambda: len(owner.story) == 8)

        pauses = [later - earlier for earlier, later in pairwise(dialer.dialed)]
        assert 0.16 <= pauses[0] <= 0.2
        assert all(later >= earlier for earlier, later in pairwise(pauses[:3]))
        assert all(1.6 <= pause <= 2.0 for pause in pauses[4:])

    with_session(dialer, test)


def test_a_refusal_by_a_newer_reign_is_asked_of_the_database() -> None:
    async def test(owner: Owner) -> None:
        await owner.until(lambda: "deposed" in owner.story)

        assert owner.story == ["lost: a newer reign has begun: 9", "deposed"]

    with_session(MemoryDialer(MemoryWire(refusal=Fenced("a newer reign has begun: 9"))), test)


def test_what_a_replica_says_before_its_stream_ends_is_heard() -> None:
    wire = MemoryWire()
    answer = PeekResponse(peek=PeekId(1), outcome=PeekRows(rows=b"rows"))

    async def test(owner: Owner) -> None:
        await owner.until(lambda: "connected" in owner.story)
        wire.say(ComputeReplyFrame(responses=(answer,)))
        wire.hang_up()
        await owner.until(lambda: len(owner.story) == 3)

        assert answer in owner.heard
        assert owner.story[2] == "lost: the replica ended the stream"

    with_session(MemoryDialer(wire), test)


def test_an_ended_session_starts_over() -> None:
    async def test(owner: Owner) -> None:
        await owner.until(lambda: "connected" in owner.story)
        owner.end("it cannot be believed")
        await owner.until(lambda: owner.story.count("connected") == 2)

        assert owner.story[2] == "lost: it cannot be believed"

    with_session(MemoryDialer(MemoryWire(), MemoryWire()), test)
