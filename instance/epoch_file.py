"""The epoch file: the highest epoch an instance has seen, on its disk before anybody is told."""

import os
from pathlib import Path

from reconcile.errors import StorageFailed
from reconcile.ids import Epoch

#: An epoch has at most 63 bits, and a line its end.
EPOCH_CHARACTERS_MAX = 20


class EpochFile:
    """A file that holds one number, replaced whole and synced; an instance that crashes remembers who reigns."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._highest = self._read()

    @property
    def highest(self) -> Epoch:
        return self._highest

    def persist(self, epoch: Epoch) -> None:
        """Durable when it returns. Never goes back. A failure is final: what the disk holds is then unknown."""
        if epoch <= self._highest:
            return
        fresh = self._path.with_suffix(".new")
        try:
            with fresh.open("w") as file:
                file.write(f"{epoch}\n")
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(self._path)
            folder = os.open(self._path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            raise StorageFailed("cannot make an epoch durable", detail=str(error)) from error
        self._highest = epoch

    def _read(self) -> Epoch:
        try:
            text = self._path.read_text(encoding="ascii", errors="replace")
        except FileNotFoundError:
            return Epoch(0)
        except OSError as error:
            raise StorageFailed("cannot read the highest epoch", detail=str(error)) from error
        if not text.strip().isdecimal() or len(text) > EPOCH_CHARACTERS_MAX:
            raise StorageFailed(
                f"{self._path} is damaged",
                detail=f"it should hold a number and holds {text[:40]!r}",
                hint="remove the instance's data folder: it hydrates from the shards",
            )
        return Epoch(int(text))
