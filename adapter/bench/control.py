"""Benchmark of the control plane: real processes on loopback, each figure beside its yardstick in the same run."""

import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import plainsong.aio
from adapter.bench.measure import Figure
from adapter.bench.processes import started
from plainsong import codec
from plainsong.channels import aio_channel
from plainsong.v1 import controller_pb2 as pb
from plainsong.v1.compute_pb2_grpc import ComputeServiceStub
from plainsong.v1.controller_pb2_grpc import ControllerServiceStub
from reconcile.compute_protocol import (
    AllowCompaction,
    ComputeCommand,
    CreateDataflows,
    CreateInstance,
    Heartbeat,
    Hello,
    InitializationComplete,
)
from reconcile.dataflow import DataflowDescription, Index, ObjectToBuild
from reconcile.frontiers import MINIMUM, Antichain
from reconcile.ids import Epoch, GlobalId, SessionId
from reconcile.plan_tree import Node

Progress = Callable[[str], None]
#: Reads in flight at any time.
AT_ONCE = 16
KEYS = 1_000


def control_figures(scale: float, progress: Progress) -> list[Figure]:
    """All figures of the control plane."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        figures = _log_figures(scale, progress)
        figures += asyncio.run(_stream_figures(folder, scale, progress))
        for replicas, target in ((1, 0.35), (3, 0.20)):
            figures += asyncio.run(_peek_figures(folder / f"peeks-{replicas}", replicas, target, scale, progress))
        figures += _restart_figures(folder, scale, progress)
    return figures


# --- the log ----------------------------------------------------------------------------------------------


def _log_figures(scale: float, progress: Progress) -> list[Figure]:
    progress("durable log appends")
    program = [sys.executable, "-P", "-m", "controller.store.bench", str(scale)]
    run = subprocess.run(program, capture_output=True, text=True, check=True)
    rates = json.loads(run.stdout)
    note = f"{rates['batched']:,.0f} of {rates['raw']:,.0f} appends/s; 1 a statement: {rates['single']:,.0f}"
    return [
        Figure(
            name="log appends, 10 a statement / raw SQLite",
            value=rates["batched"] / rates["raw"],
            unit="x",
            target=0.5,
            at_least=True,
            note=note,
        )
    ]


# --- peeks ------------------------------------------------------------------------------------------------


async def _peek_figures(folder: Path, replicas: int, target: float, scale: float, progress: Progress) -> list[Figure]:
    progress(f"point peeks with {replicas} replicas")
    folder.mkdir()
    log = folder / "log"
    arguments = ("--data", str(folder / "data"), "--migrate", "--listen", "127.0.0.1:0", "--stop-replicas")
    reads = max(200, int(4_000 * scale))
    ratios, times, rates = [], [], []
    with started("adapter.bench.echo", log=log) as echo, started("controller", *arguments, log=log) as controller:
        async with plainsong.aio.connect(controller.address) as client, aio_channel(echo.address) as channel:
            await client.create_cluster("main", replicas=replicas)
            await client.create_table("t", {"k": "bigint", "v": "string"})
            await client.insert("t", [{"k": k, "v": f"value {k}"} for k in range(KEYS)])
            await client.create_index("t", ["k"])
            await _all_online(client, replicas)
            stub = ControllerServiceStub(channel)

            async def echoed(number: int) -> object:
                return await stub.Lookup(pb.LookupRequest(name="t", key=[pb.Value(whole=number)]))

            async def peeked(number: int) -> object:
                return await client.lookup("t", number)

            await _rate(echoed, reads // 10), await _rate(peeked, reads // 10)  # warm
            for _ in range(5):
                bare, _ = await _rate(echoed, reads)
                rate, taken = await _rate(peeked, reads)
                ratios.append(rate / bare)
                rates.append(rate)
                times += taken
    times.sort()
    p50, p99 = (times[int(len(times) * part)] * 1000 for part in (0.5, 0.99))
    return [
        Figure(
            name=f"point peeks, {replicas} replica{'s' if replicas > 1 else ''} / bare gRPC echo",
            value=statistics.median(ratios),
            unit="x",
            target=target,
            at_least=True,
            note=f"{statistics.median(rates):,.0f}/s, p50 {p50:.1f} ms, p99 {p99:.1f} ms, {AT_ONCE} at once",
        )
    ]


async def _rate(call: Callable[[int], Awaitable[object]], count: int) -> tuple[float, list[float]]:
    """Calls a second with ``AT_ONCE`` in flight, and how long each took."""
    times: list[float] = []

    async def worker(first: int) -> None:
        for number in range(first, count, AT_ONCE):
            begun = time.perf_counter()
            await call(number % KEYS)
            times.append(time.perf_counter() - begun)

    begun = time.perf_counter()
    await asyncio.gather(*(worker(first) for first in range(AT_ONCE)))
    return count / (time.perf_counter() - begun), times


async def _all_online(client: plainsong.AsyncClient, replicas: int) -> None:
    """Waits until every replica has all its dataflows."""
    async with client.watch() as events:
        async for _ in events:
            members = [member for cluster in await client.clusters() for member in cluster.replicas]
            ready = [
                member
                for member in members
                if member.state is plainsong.ReplicaState.ONLINE and member.dataflows_hydrated == member.dataflows_total
            ]
            if len(ready) == replicas:
                return


# --- commands ---------------------------------------------------------------------------------------------


async def _stream_figures(folder: Path, scale: float, progress: Progress) -> list[Figure]:
    progress("commands to one instance")
    log = folder / "stream.log"
    count = max(20_000, int(500_000 * scale))
    arguments = ("--data", str(folder / "stream"), "--shards", str(folder / "stream-shards"))
    ratios, rates = [], []
    with started("adapter.bench.echo", log=log) as echo, started("instance", *arguments, log=log) as instance:
        for number in range(3):
            bare = await _commands_per_s(echo.address, count, number)
            rate = await _commands_per_s(instance.address, count, number)
            ratios.append(rate / bare)
            rates.append(rate)
    note = f"{statistics.median(ratios):.2f} of a server that parses the same frames and does nothing"
    return [
        Figure(
            name="commands streamed to one instance",
            value=statistics.median(rates),
            unit="commands/s",
            target=100_000,
            at_least=True,
            note=note,
        )
    ]


async def _commands_per_s(address: str, count: int, session: int) -> float:
    """Rising compactions of a thousand installed indexes, until the last has been taken in."""
    indexes = [GlobalId("u", number) for number in range(1, 1_001)]
    installed: list[ComputeCommand] = [
        Hello(epoch=Epoch(1), session=SessionId(f"bench {session}")),
        CreateInstance(),
        *(CreateDataflows(dataflows=(_index(id),)) for id in indexes),
        InitializationComplete(),
    ]
    rising = [
        AllowCompaction(id=indexes[number % 1_000], since=Antichain.at(session * count + number))
        for number in range(count)
    ]
    frames = list(codec.compute_command_frames(rising))
    async with aio_channel(address) as channel:
        call = ComputeServiceStub(channel).Session()
        for frame in codec.compute_command_frames(installed):
            await call.write(frame)
        await _taken_in(call, 1)
        begun = time.perf_counter()
        for frame in frames:
            await call.write(frame)
        await _taken_in(call, 2)
        elapsed = time.perf_counter() - begun
        call.cancel()
    return count / elapsed


async def _taken_in(call: Any, mark: int) -> None:
    """Waits until everything sent so far has been handled: heartbeats come back in order."""
    await call.write(codec.encode_compute_commands((), sent_ms=mark))
    while True:
        reply = codec.decode_compute_response(await call.read())
        if Heartbeat(sent_ms=mark) in reply.responses:
            return


def _index(id: GlobalId) -> DataflowDescription:
    source = GlobalId("s", 1)
    get = Node(op="get", fields=(("id", source), ("columns", (("k", "bigint"), ("v", "string")))))
    return DataflowDescription(
        imports=(source,), objects=(ObjectToBuild(id=id, plan=get),), exports=(Index(id=id, key=("k",)),), as_of=MINIMUM
    )


# --- restart ----------------------------------------------------------------------------------------------


def _restart_figures(folder: Path, scale: float, progress: Progress) -> list[Figure]:
    figures: list[Figure] = []
    seconds: list[float] = []
    sizes = [max(50, int(size * scale)) for size in (1_000, 10_000)]
    for size in sizes:
        progress(f"controller restart with {size:,} dataflows")
        first, again, replaced = asyncio.run(_restarted(folder / f"restart-{size}", size))
        seconds.append(again)
        figures.append(
            Figure(
                name=f"restart with {size:,} dataflows / first installation",
                value=again / first,
                unit="x",
                target=1 / 3,
                at_least=False,
                note=f"{again:.1f} s from exec to all frontiers known; first {first:.1f} s",
            )
        )
        figures.append(
            Figure(name=f"dataflows rendered again of {size:,}", value=replaced, unit="", target=0, at_least=False)
        )
    growth = sizes[1] / sizes[0]
    figures.append(
        Figure(
            name=f"restart with {sizes[1]:,} / with {sizes[0]:,}",
            value=seconds[1] / seconds[0],
            unit="x",
            target=growth * 1.2,
            at_least=False,
            note="linear or better",
        )
    )
    return figures


async def _restarted(folder: Path, size: int) -> tuple[float, float, int]:
    """Seconds of the first installation, seconds of a restart, and how much was rendered again.

    Both from the start of the controller's process until every frontier is known.
    """
    folder.mkdir()
    log = folder / "log"
    arguments = ("--data", str(folder / "data"), "--migrate", "--listen", "127.0.0.1:0")
    begun = time.perf_counter()
    with started("controller", *arguments, log=log) as controller:
        async with plainsong.aio.connect(controller.address) as client:
            await client.create_cluster("main", replicas=1)
            await client.create_table("t", {"k": "bigint", "v": "string"})
            await client.insert("t", [{"k": 1, "v": "one"}])

            async def create(first: int) -> None:
                for number in range(first, size, AT_ONCE):
                    await client.create_index("t", ["k"], name=f"index {number}", timeout=120)

            await asyncio.gather(*(create(first) for first in range(AT_ONCE)))
            await _all_online(client, 1)
            first_s = time.perf_counter() - begun
        controller.process.kill()
    begun = time.perf_counter()
    with started("controller", *arguments, "--stop-replicas", log=log) as controller:
        async with plainsong.aio.connect(controller.address) as client:
            await _all_online(client, 1)
            again_s = time.perf_counter() - begun
            (cluster,) = await client.clusters()
    return first_s, again_s, sum(member.dataflows_replaced for member in cluster.replicas)
