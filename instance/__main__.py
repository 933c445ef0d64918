"""``python -m instance``: what ``plainsong instance`` runs."""

import asyncio
import logging
import os
import sys
from pathlib import Path
from typing import Annotated

# Before gRPC is loaded: Spark forks, and gRPC's fork handlers would stall it.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

import typer

from instance.server import Options, serve
from plainsong.runtimes import RuntimeKind, name_values, spark_settings
from plainsong.security import ServerTls
from reconcile.errors import PlainsongError
from reconcile.ids import Epoch, ReplicaId

app = typer.Typer(add_completion=False)


@app.command(name="instance")
def main(
    data: Annotated[Path, typer.Option(help="Its own folder: the highest epoch it has seen, and its address.")],
    shards: Annotated[
        str, typer.Option(help="The folder of the shards, shared by all replicas, or a URL like s3://...")
    ],
    listen: Annotated[str, typer.Option(help="host:port; port 0 picks one.")] = "127.0.0.1:0",
    deployment: Annotated[str, typer.Option(help="The deployment it belongs to; others are refused.")] = "",
    replica: Annotated[int | None, typer.Option(help="Its replica id; a greeting for another is refused.")] = None,
    epoch: Annotated[int, typer.Option(help="The reign that it starts under, when its disk is empty.")] = 0,
    nonce: Annotated[str, typer.Option(help="By which its orchestrator knows it again.")] = "",
    heartbeat_deadline_ms: Annotated[int, typer.Option(help="How long a controller may be silent.")] = 10_000,
    orphan_timeout_ms: Annotated[int, typer.Option(help="End after so long without a controller; 0: never.")] = 0,
    tls: Annotated[Path | None, typer.Option(help="A folder of certificates, made by `plainsong certs`.")] = None,
    insecure: Annotated[bool, typer.Option(help="Listen beyond loopback without TLS.")] = False,
    shard_option: Annotated[
        list[str] | None, typer.Option(help="An option of the object store, name=value; repeatable.")
    ] = None,
    beside: Annotated[Path | None, typer.Option(help="What sources keep beside the shards, shared too.")] = None,
    runtime: Annotated[RuntimeKind, typer.Option(help="What computes views.")] = RuntimeKind.MEMORY,
    spark_master: Annotated[str, typer.Option(help="local[n], local[*] or spark://host:port.")] = "local[*]",
    spark_conf: Annotated[list[str] | None, typer.Option(help="A setting of Spark, name=value; repeatable.")] = None,
    spark_scratch: Annotated[
        Path | None, typer.Option(help="Where large inputs are put for Spark; executors must see it too.")
    ] = None,
    spark_file_mb: Annotated[
        int | None, typer.Option(help="Files of sources from so many MiB on are read by Spark.", min=0)
    ] = None,
) -> None:
    """Run one replica.

    Example:

      plainsong instance --data ./replica-1 --shards ./shards --listen 127.0.0.1:7001

      plainsong instance --data ./replica-1 --shards ./shards --runtime spark --spark-conf spark.driver.memory=2g
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        options = Options(
            data=data,
            shards=shards,
            shard_options=name_values(shard_option or (), "an option of an object store"),
            beside=beside,
            listen=listen,
            deployment=deployment,
            replica=None if replica is None else ReplicaId(replica),
            epoch=Epoch(epoch),
            nonce=nonce,
            heartbeat_deadline_ms=heartbeat_deadline_ms,
            orphan_timeout_ms=orphan_timeout_ms,
            tls=ServerTls.folder(tls) if tls is not None else None,
            insecure=insecure,
            runtime=runtime.value,
            spark_master=spark_master,
            spark_conf=spark_settings(spark_conf or ()),
            spark_scratch=spark_scratch,
            spark_file_bytes=None if spark_file_mb is None else spark_file_mb * 2**20,
        )
        asyncio.run(serve(options))
    except PlainsongError as error:
        typer.echo(f"plainsong instance: {error}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    app(prog_name="plainsong instance")
