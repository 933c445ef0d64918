"""``python -m controller.store upgrade|current``: what ``plainsong db`` runs.

A program of its own because adapters share only the wire with the controller and never import it. The database comes in
the environment, as a folder or a URL: a command line can be read by every user of the machine, and a URL may hold a
password.
"""

import os
import sys
from pathlib import Path

from controller.store.database import sqlite_url
from controller.store.migrate import current, upgrade
from reconcile.errors import InvalidRequest, PlainsongError

URL_VARIABLE = "PLAINSONG_DATABASE"
FOLDER_VARIABLE = "PLAINSONG_DATA"


def main(arguments: list[str]) -> int:
    """Prints the revision; 0 if it is the needed one, 1 if not or on any failure."""
    try:
        url = _url(os.environ.get(FOLDER_VARIABLE, ""), os.environ.get(URL_VARIABLE, ""))
        match arguments:
            case ["upgrade"]:
                revision = upgrade(url)
            case ["current"]:
                revision = current(url)
            case _:
                raise InvalidRequest("unknown command", hint="upgrade or current")
    except PlainsongError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201  # this module is a command
        return 1
    state = "current" if revision.is_current else f"{revision.needed} is needed: run plainsong db upgrade"
    print(f"{revision.installed or 'empty'} ({state})")  # noqa: T201
    return 0 if revision.is_current else 1


def _url(folder: str, url: str) -> str:
    if folder:
        return sqlite_url(Path(folder))
    if not url:
        raise InvalidRequest("no database is named", hint=f"set {URL_VARIABLE} to its URL or {FOLDER_VARIABLE}")
    return url


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
