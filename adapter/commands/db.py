"""``plainsong db``: look at the schema of the controller's database, or bring it up to date."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

URL_VARIABLE = "PLAINSONG_DATABASE"
FOLDER_VARIABLE = "PLAINSONG_DATA"

db_app = typer.Typer(no_args_is_help=True, help="Look at the schema of the controller's database, or upgrade it.")

Url = Annotated[
    str | None,
    typer.Option(
        "--database",
        envvar=URL_VARIABLE,
        metavar="URL",
        help="The database, such as postgresql+psycopg://user@host/name.",
        show_envvar=True,
    ),
]
Data = Annotated[
    Path | None, typer.Option("--data", metavar="FOLDER", help="The data folder with an embedded database.")
]


@db_app.command("upgrade")
def upgrade(database: Url = None, data: Data = None) -> None:
    """Bring the database to the schema that this version needs; make an embedded one that does not exist.

    Example:

      plainsong db upgrade --data ./plainsong-data
    """
    _run("upgrade", database, data)


@db_app.command("current")
def current(database: Url = None, data: Data = None) -> None:
    """Print the schema's revision. Exits 0 if it is the one this version needs, 1 otherwise."""
    _run("current", database, data)


def _run(command: str, database: str | None, data: Path | None) -> None:
    """Runs the controller's own program: adapters share only the wire with it and do not import it."""
    if data is None and not database:
        typer.echo("plainsong db: name the database with --database or --data", err=True)
        raise typer.Exit(2)
    named = {URL_VARIABLE: "", FOLDER_VARIABLE: str(data)} if data is not None else {URL_VARIABLE: database or ""}
    # -P: a folder called controller where the user happens to stand is not ours.
    program = [sys.executable, "-P", "-m", "controller.store", command]
    raise typer.Exit(subprocess.run(program, env={**os.environ, FOLDER_VARIABLE: "", **named}, check=False).returncode)
