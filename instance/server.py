"""The instance process: puts the parts of one replica together, serves, and ends in order."""

import asyncio
import hashlib
import json
import logging
import os
import shutil
import signal
import socket
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from instance.epoch_file import EpochFile
from instance.memory.arranged import Arrange, InDicts, spines_in
from instance.memory.rendering import Rule
from instance.memory.runtime import MemoryRuntime
from instance.owner import Owner
from instance.service import ComputeServicer, StorageServicer
from instance.shards.blocking import BlockingPool
from instance.shards.delta import DeltaShardStore
from instance.shards.maintenance import maintained
from instance.storage.file_reading import MakeReader, arrow_reader
from instance.storage.readers import ShardInputs, ShardOutputs
from instance.storage.runtime import StorageRuntime
from instance.storage.steps import Steps
from instance.storage.types import source_types
from plainsong.access import guards
from plainsong.channels import aio_server, listen
from plainsong.security import ServerTls, split_address
from reconcile.errors import InvalidRequest, StorageFailed
from reconcile.ids import Epoch, ReplicaId
from reconcile.sessions import Identity

_LOG = logging.getLogger(__name__)

#: That read files for sources: Spark may keep one waiting for long.
READING_THREADS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How one instance is started."""

    data: Path
    #: A folder, or the URL of an object store with the options it needs.
    shards: str
    shard_options: Mapping[str, str] = field(default_factory=dict)
    #: What sources keep beside the shards, for all replicas; None: the folder that the shards' folder is in.
    beside: Path | None = None
    listen: str = "127.0.0.1:0"
    deployment: str = ""
    replica: ReplicaId | None = None
    #: An instance with an empty disk starts from the reign that its orchestrator gives it.
    epoch: Epoch = Epoch(0)
    nonce: str = ""
    heartbeat_deadline_ms: int = 10_000
    #: Ends by itself when no controller was there for so long; 0: never.
    orphan_timeout_ms: int = 0
    tls: ServerTls | None = None
    insecure: bool = False
    #: ``memory``, or ``spark`` with its settings.
    runtime: str = "memory"
    spark_master: str = "local[*]"
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    #: Where large inputs are put for executors to read; None: in the data folder, which local ones see.
    spark_scratch: Path | None = None
    #: Files of sources from this size on are read by Spark; None: what measuring says.
    spark_file_bytes: int | None = None


class Orphaned:
    """Ends an instance that nobody has spoken to for too long."""

    def __init__(self, timeout_ms: int, stop: asyncio.Event) -> None:
        self._timeout_ms = timeout_ms
        self._stop = stop
        self._timer: asyncio.TimerHandle | None = None
        self.sessions(0)

    def sessions(self, live: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if live == 0 and self._timeout_ms:
            self._timer = asyncio.get_running_loop().call_later(self._timeout_ms / 1000, self._end)

    def _end(self) -> None:
        _LOG.warning("no controller for %d ms: this instance ends", self._timeout_ms)
        self._stop.set()


async def serve(options: Options) -> None:
    """Serves until it is told to stop; what is under way is finished first."""
    _prepared(options.data, "a data folder")
    beside = _beside(options)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    epochs = EpochFile(options.data / "epoch")
    epochs.persist(options.epoch)
    async with _engines(options) as engines:
        await _serve(options, stop, epochs, beside, engines)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Engines:
    """What computes and reads here."""

    #: For operators beyond those in memory.
    rules: Mapping[str, Rule] = field(default_factory=dict)
    #: What indexes keep.
    arrange: Arrange = InDicts
    make_reader: MakeReader = arrow_reader


async def _serve(options: Options, stop: asyncio.Event, epochs: EpochFile, beside: Path, engines: _Engines) -> None:
    orphaned = Orphaned(options.orphan_timeout_ms, stop)
    store = DeltaShardStore(options.shards, options=options.shard_options or None)
    inputs = ShardInputs(store)
    steps, reading = Steps(), BlockingPool(threads=READING_THREADS)
    types = source_types(steps, beside, reading, make_reader=engines.make_reader)
    owner = Owner(
        identity=Identity(deployment=options.deployment, replica=options.replica),
        epochs=epochs,
        runtime=lambda report: MemoryRuntime(
            inputs, report, ShardOutputs(store), rules=engines.rules, arrange=engines.arrange
        ),
        storage=lambda report: StorageRuntime(store, report, note_seals=inputs.note_seals, types=types, steps=steps),
        on_sessions=orphaned.sessions,
    )
    host, _ = split_address(options.listen)
    # Who may connect may not yet command: a certificate that may only read is as well signed as the controller's.
    server = aio_server(guards(host=host, tls=options.tls, tokens=None, insecure=options.insecure))
    deadline = options.heartbeat_deadline_ms
    compute = ComputeServicer(owner, heartbeat_deadline_ms=deadline)
    storage = StorageServicer(owner, heartbeat_deadline_ms=deadline)
    server.add_generic_rpc_handlers((compute.handler(), storage.handler()))
    healthy = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(healthy, server)
    address = listen(server, options.listen, tls=options.tls, insecure=options.insecure)
    await server.start()
    await healthy.set("", health_pb2.HealthCheckResponse.SERVING)
    _announce(options, address)
    _LOG.info("listening on %s", address)
    async with maintained(store, time.time):
        await stop.wait()
    _LOG.info("stopping")
    await server.stop(grace=0.5)
    await owner.close()
    await inputs.stop()
    await reading.close()
    await store.close()


@asynccontextmanager
async def _engines(options: Options) -> AsyncIterator[_Engines]:
    """With Spark, as long as its session lives."""
    if options.runtime == "memory":
        yield _Engines()
        return
    # Only here: it takes a second to load, and whoever keeps to memory need not have it at all.
    from instance.spark.file_reader import SPARK_BYTES_MIN, spark_reader
    from instance.spark.host import spark_started
    from instance.spark.rendering import spark_rules
    from instance.spark.settings import SparkSettings

    folder = _scratch(options)
    settings = SparkSettings(master=options.spark_master, conf=options.spark_conf, warehouse=folder / "warehouse")
    # Nobody but this process reads it, and nothing in it outlives the process yet.
    state = options.data / "state"
    shutil.rmtree(state, ignore_errors=True)
    with spark_started(settings, folder) as (host, scratch):
        rules = spark_rules(host, scratch, state / "operators")
        bytes_min = SPARK_BYTES_MIN if options.spark_file_bytes is None else options.spark_file_bytes
        loop = asyncio.get_running_loop()
        reader = spark_reader(host, scratch / "files", loop=loop, bytes_min=bytes_min)
        yield _Engines(rules=rules, arrange=spines_in(state / "indexes"), make_reader=reader)


def _scratch(options: Options) -> Path:
    """A folder of this instance alone, the same after a restart: whoever starts removes what is in it."""
    own = options.data.absolute()
    if options.spark_scratch is None:
        return own / "spark" / "scratch"
    return options.spark_scratch.absolute() / hashlib.sha256(f"{socket.gethostname()}:{own}".encode()).hexdigest()[:16]


def _beside(options: Options) -> Path:
    """The folder of what sources keep, prepared; and that of the shards, if it is one."""
    if "://" not in options.shards:
        _prepared(Path(options.shards), "a folder of shards")
        return options.beside or Path(options.shards).absolute().parent
    if options.beside is None:
        raise InvalidRequest(
            f"the shards are in {options.shards}, and sources need a folder too", hint="name one with --beside"
        )
    _prepared(options.beside, "a folder for sources")
    return options.beside


def _prepared(folder: Path, purpose: str) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageFailed(f"cannot use {folder} as {purpose}", detail=str(error)) from error


def _announce(options: Options, address: str) -> None:
    """Says where this instance listens: on standard output, and in a file for its orchestrator."""
    said = {"pid": os.getpid(), "nonce": options.nonce, "address": address}
    fresh = options.data / "address.new"
    try:
        fresh.write_text(json.dumps(said))
        fresh.replace(options.data / "address.json")
    except OSError as error:
        raise StorageFailed("cannot write the address file", detail=str(error)) from error
    print(f"plainsong instance listens on {address}", flush=True)  # noqa: T201  # for whoever started it
