"""The command line: ``plainsong``."""

from importlib.metadata import version

import typer

from adapter.commands import processes
from adapter.commands.bench import bench_app
from adapter.commands.certs import certs
from adapter.commands.db import db_app
from adapter.commands.script import script

app = typer.Typer(
    name="plainsong",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="SQL views kept incrementally maintained on Spark, answering while controllers restart and replicas fail.",
)
app.command("controller", context_settings=processes.PASSED_ON)(processes.controller)
app.command("instance", context_settings=processes.PASSED_ON)(processes.instance)
app.command("script")(script)
app.command("certs")(certs)
app.add_typer(db_app, name="db")
app.add_typer(bench_app, name="bench")


@app.command("version")
def show_version() -> None:
    """Print the version of Plainsong."""
    typer.echo(version("plainsong"))


def main() -> None:
    app()
