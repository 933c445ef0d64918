"""``plainsong controller`` and ``plainsong instance``: become one of Plainsong's own programs.

Adapters share only the wire with them and do not import them; the options are theirs.
"""

import os
import sys

import typer

#: Everything behind the command's name goes to the program, ``--help`` too.
PASSED_ON = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}


def controller(context: typer.Context) -> None:
    """Run the controller; see plainsong controller --help."""
    _become("controller", context.args)


def instance(context: typer.Context) -> None:
    """Run one replica; see plainsong instance --help."""
    _become("instance", context.args)


def _become(program: str, arguments: list[str]) -> None:
    # -P: a folder of that name where the user happens to stand is not ours.
    os.execv(sys.executable, [sys.executable, "-P", "-m", program, *arguments])
