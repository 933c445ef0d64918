"""``python -m controller``: what ``plainsong controller`` runs."""

import asyncio
import logging
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from controller.server import Options, serve
from controller.settings import Settings
from plainsong.runtimes import RuntimeKind, name_values, spark_settings
from reconcile.errors import PlainsongError

app = typer.Typer(add_completion=False)
_DEFAULTS = Settings()


@app.command(name="controller")
def main(
    data: Annotated[Path, typer.Option(help="The data folder: embedded database, shards, logs of replicas.")] = Path(
        "plainsong-data"
    ),
    listen: Annotated[str, typer.Option(help="host:port for adapters; port 0 picks one.")] = "127.0.0.1:6875",
    database: Annotated[
        str, typer.Option(envvar="PLAINSONG_DATABASE", help="A PostgreSQL URL instead of the embedded database.")
    ] = "",
    take_over: Annotated[
        bool, typer.Option("--take-over", help="End a controller that holds the data folder.")
    ] = False,
    migrate: Annotated[bool, typer.Option("--migrate", help="Make or upgrade the database's schema first.")] = False,
    stop_replicas: Annotated[bool, typer.Option("--stop-replicas", help="Stop replicas when told to stop.")] = False,
    orphan_timeout_ms: Annotated[
        int, typer.Option(help="Replicas end by themselves after so long without a controller.")
    ] = 600_000,
    tls: Annotated[Path | None, typer.Option(help="A folder of certificates, made by `plainsong certs`.")] = None,
    tokens: Annotated[Path | None, typer.Option(help="A file of tokens and their roles.")] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="Listen beyond loopback without TLS.")] = False,
    reflection: Annotated[bool, typer.Option("--reflection", help="Serve reflection beyond loopback too.")] = False,
    heartbeat_ms: Annotated[int, typer.Option(help="How often replicas are asked for a sign of life.")] = (
        _DEFAULTS.heartbeat_ms
    ),
    heartbeat_deadline_ms: Annotated[int, typer.Option(help="How long a replica may be silent.")] = (
        _DEFAULTS.heartbeat_deadline_ms
    ),
    retention_ms: Annotated[int, typer.Option(help="How much history stays readable.")] = _DEFAULTS.retention_ms,
    resume_ms: Annotated[int, typer.Option(help="How long a lost tail can be resumed.")] = _DEFAULTS.resume_ms,
    compaction_ms: Annotated[int, typer.Option(help="How often history is let go.")] = _DEFAULTS.compaction_ms,
    step_records_max: Annotated[int, typer.Option(help="Records over all sources that open a step.")] = (
        _DEFAULTS.step_records_max
    ),
    step_linger_ms: Annotated[int, typer.Option(help="How long a record waits for others before a step opens.")] = (
        _DEFAULTS.step_linger_ms
    ),
    step_tick_ms: Annotated[int, typer.Option(help="Open a step this often whatever happens; 0: never.")] = (
        _DEFAULTS.step_tick_ms
    ),
    grant_steps: Annotated[int, typer.Option(help="Steps that sources may open without a controller.")] = (
        _DEFAULTS.grant_steps
    ),
    grant_every_ms: Annotated[int, typer.Option(help="How often a source opens a step without a controller.")] = (
        _DEFAULTS.grant_every_ms
    ),
    shards: Annotated[str, typer.Option(help="Where shards are, if not in the data folder: a path or a URL.")] = "",
    shard_option: Annotated[
        list[str] | None, typer.Option(help="An option of the object store, name=value; repeatable.")
    ] = None,
    runtime: Annotated[RuntimeKind, typer.Option(help="What computes views on replicas.")] = RuntimeKind.MEMORY,
    spark_master: Annotated[str, typer.Option(help="local[n], local[*] or spark://host:port.")] = "local[*]",
    spark_conf: Annotated[list[str] | None, typer.Option(help="A setting of Spark, name=value; repeatable.")] = None,
    spark_scratch: Annotated[
        Path | None, typer.Option(help="Where large inputs are put for Spark; executors must see it too.")
    ] = None,
    spark_file_mb: Annotated[
        int | None, typer.Option(help="Files of sources from so many MiB on are read by Spark.", min=0)
    ] = None,
    log_tail_max: Annotated[int, typer.Option(help="Log records kept before they are reduced.")] = (
        _DEFAULTS.log_tail_max
    ),
) -> None:
    """Run the controller.

    Examples:

      plainsong controller --data ./plainsong-data --migrate

      plainsong controller --migrate --runtime spark --spark-conf spark.driver.memory=2g

      plainsong controller --database postgresql+psycopg://user@host/plainsong --listen 127.0.0.1:6875
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("alembic").setLevel(logging.WARNING)
    settings = Settings(
        heartbeat_ms=heartbeat_ms,
        heartbeat_deadline_ms=heartbeat_deadline_ms,
        retention_ms=retention_ms,
        resume_ms=resume_ms,
        compaction_ms=compaction_ms,
        log_tail_max=log_tail_max,
        step_records_max=step_records_max,
        step_linger_ms=step_linger_ms,
        step_tick_ms=step_tick_ms,
        grant_steps=grant_steps,
        grant_every_ms=grant_every_ms,
    )
    try:
        spark = spark_settings(spark_conf or ())
        store = name_values(shard_option or (), "an option of an object store")
    except PlainsongError as error:
        typer.echo(f"plainsong controller: {error}", err=True)
        sys.exit(1)
    options = Options(
        data=data,
        listen=listen,
        database=database,
        take_over=take_over,
        migrate=migrate,
        stop_replicas=stop_replicas,
        orphan_timeout_ms=orphan_timeout_ms,
        tls=tls,
        tokens=tokens,
        insecure=insecure,
        reflection=reflection,
        settings=settings,
        shards=shards,
        shard_options=store,
        runtime=runtime.value,
        spark_master=spark_master,
        spark_conf=spark,
        spark_scratch=spark_scratch,
        spark_file_mb=spark_file_mb,
    )
    try:
        asyncio.run(serve(options))
    except PlainsongError as error:
        typer.echo(f"plainsong controller: {error}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    app(prog_name="plainsong controller")
