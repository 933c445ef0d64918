"""Places for the spines of operators that are not restored: each in a folder of its own, which goes with it."""

import shutil
from collections.abc import Callable
from itertools import count
from pathlib import Path
from weakref import finalize

from instance.arranged.tending import Place
from instance.spine.files import RunFiles


class Passing:
    """The folders of the spines of one operator, as long as somebody has this."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        finalize(self, shutil.rmtree, folder, ignore_errors=True)

    def __call__(self, name: str) -> RunFiles:
        return RunFiles(self._folder / name)


def passing_places(folder: Path) -> Callable[[str], Place]:
    """Places for operators under ``folder``, new for each: two renderings of one plan may overlap."""
    numbers = count(1)
    return lambda name: Passing(folder / f"{next(numbers)}-{name}")
