"""The controller process: puts the parts of one reign together, serves it, and ends in order."""

import asyncio
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from controller.api import Api
from controller.controller import Controller
from controller.orchestrator.processes import ProcessOrchestrator, instance_command
from controller.service import controller_handler
from controller.settings import Settings
from controller.store.database import sqlite_url
from controller.store.sql import open_store
from controller.transport import GrpcDialer
from plainsong.access import Tokens, guards
from plainsong.channels import aio_server, listen
from plainsong.security import ClientTls, ServerTls, is_local, require_safe_bind, split_address
from plainsong.v1 import controller_pb2
from reconcile.errors import StorageFailed

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How one controller is started."""

    data: Path
    listen: str = "127.0.0.1:6875"
    #: Empty: an embedded database in the data folder.
    database: str = ""
    take_over: bool = False
    migrate: bool = False
    #: Stop the replicas too when it is told to stop.
    stop_replicas: bool = False
    orphan_timeout_ms: int = 600_000
    tls: Path | None = None
    tokens: Path | None = None
    insecure: bool = False
    reflection: bool = False
    settings: Settings = field(default_factory=Settings)
    #: Where the shards are, if not in the data folder: any URL that deltalake accepts, with its options.
    shards: str = ""
    shard_options: Mapping[str, str] = field(default_factory=dict)
    #: Of the replicas that it starts: ``memory``, or ``spark`` with its settings.
    runtime: str = "memory"
    spark_master: str = "local[*]"
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    spark_scratch: Path | None = None
    spark_file_mb: int | None = None


async def serve(options: Options) -> None:
    """Reigns until it is told to stop or deposed; raises what ended the reign, if something did."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    _prepared(options.data)
    tls = ServerTls.folder(options.tls) if options.tls is not None else None
    tokens = Tokens.read(options.tokens) if options.tokens is not None else None
    host, _ = split_address(options.listen)
    require_safe_bind(host, tls, options.insecure)
    server = aio_server(guards(host=host, tls=tls, tokens=tokens, insecure=options.insecure))
    url = options.database or sqlite_url(options.data)
    store = await open_store(url, take_over=options.take_over, migrate=options.migrate)
    # After the store: a holder that is taken over may have held this port too.
    address = listen(server, options.listen, tls=tls, insecure=options.insecure)
    controller = await Controller.start(
        store=store,
        holder=f"{socket.gethostname()} pid {os.getpid()}",
        dialer=GrpcDialer(ClientTls.folder(options.tls) if options.tls is not None else None),
        orchestrator=lambda reign: _orchestrator(options, reign.deployment),
        settings=options.settings,
        data=options.data.absolute(),
    )
    server.add_generic_rpc_handlers((controller_handler(Api(controller)),))
    healthy = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(healthy, server)
    if options.reflection or is_local(host):
        service = controller_pb2.DESCRIPTOR.services_by_name["ControllerService"].full_name
        reflection.enable_server_reflection((service, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
    await server.start()
    await healthy.set("", health_pb2.HealthCheckResponse.SERVING)
    _announce(options, address)
    _LOG.info("reign %d begins, listening on %s", controller.reign.epoch, address)
    stopping = asyncio.ensure_future(stop.wait())
    ends: list[asyncio.Future[Any]] = [stopping, controller.ended]
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    _LOG.info("reign %d ends", controller.reign.epoch)
    stopping.cancel()
    await server.stop(grace=0.2)
    await controller.close(stop_replicas=options.stop_replicas and not controller.ended.done())
    if controller.ended.done():
        raise controller.ended.result()


def _orchestrator(options: Options, deployment: str) -> ProcessOrchestrator:
    more = [
        *("--deployment", deployment),
        *("--shards", options.shards or str(options.data.absolute() / "shards")),
        *("--beside", str(options.data.absolute())),
        *("--orphan-timeout-ms", str(options.orphan_timeout_ms)),
    ]
    if options.tls is not None:
        more += ["--tls", str(options.tls.absolute())]
    for name, value in options.shard_options.items():
        more += ["--shard-option", f"{name}={value}"]
    if options.runtime != "memory":
        more += ["--runtime", options.runtime, "--spark-master", options.spark_master]
        for name, value in options.spark_conf.items():
            more += ["--spark-conf", f"{name}={value}"]
        if options.spark_scratch is not None:
            more += ["--spark-scratch", str(options.spark_scratch.absolute())]
        if options.spark_file_mb is not None:
            more += ["--spark-file-mb", str(options.spark_file_mb)]
    # -P: a folder called instance where the user happens to stand is not ours.
    command = instance_command((sys.executable, "-P", "-m"), more)
    return ProcessOrchestrator(options.data, command, random=Random())


def _prepared(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageFailed(
            f"cannot use {folder} as a data folder", detail=str(error), hint="name another with --data"
        ) from error


def _announce(options: Options, address: str) -> None:
    """Says where it listens: on standard output, and in a file for programs that started it."""
    fresh = options.data / "controller.new"
    try:
        fresh.write_text(json.dumps({"pid": os.getpid(), "address": address}))
        fresh.replace(options.data / "controller.json")
    except OSError as error:
        raise StorageFailed("cannot write the address file", detail=str(error)) from error
    print(f"plainsong controller listens on {address}", flush=True)  # noqa: T201  # for whoever started it
