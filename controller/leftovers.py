"""What sources left in the data folder: lists of files they took, and rows they kept aside.

A source that stops may only have moved to another replica, which goes on with them, so replicas remove nothing. The
catalog knows what was dropped; ids are never used again, so what it says of one that it has allotted is true for ever,
also of a controller that was deposed meanwhile.
"""

import logging
import shutil
from pathlib import Path

from controller.catalog import Catalog
from reconcile.ids import GlobalId

_LOG = logging.getLogger(__name__)

#: The folders of sources, each with one below it for every source.
FOLDERS = ("taken", "rejected")


def dropped_folders(data: Path, catalog: Catalog) -> list[Path]:
    """The folders of sources that were dropped."""
    next = catalog.next_id("s").number
    return [
        folder
        for kind in FOLDERS
        for folder in sorted((data / kind).glob("s*"))
        if (id := _id(folder.name)) is not None and id.number < next and catalog.get(id) is None
    ]


def remove(folders: list[Path]) -> None:
    """Blocks; what cannot be removed is left for the next time."""
    for folder in folders:
        try:
            shutil.rmtree(folder)
        except FileNotFoundError:
            continue
        except OSError as error:
            _LOG.warning("%s of a dropped source cannot be removed: %s", folder, error)


def _id(name: str) -> GlobalId | None:
    number = name.removeprefix("s")
    return GlobalId("s", int(number)) if number.isascii() and number.isdigit() else None
