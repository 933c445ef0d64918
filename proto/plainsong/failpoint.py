"""Failure points: named places at which a test can have the process killed, off by default.

``PLAINSONG_FAILPOINT=name`` kills the process with SIGKILL when it first passes ``failpoint("name")``;
``name:3`` when it passes it for the third time. The variable is read once, when this module is imported.
"""

import os
import signal
from collections.abc import Iterator, Mapping
from itertools import count

from reconcile.errors import InvalidRequest

VARIABLE = "PLAINSONG_FAILPOINT"


class _Armed:
    """The one point that kills, and how often it has still to be passed.

    Counted by an iterator because passages may come from several threads and ``next`` is one step for all of them.
    """

    __slots__ = ("_last", "_passages")

    def __init__(self, last: int) -> None:
        self._last = last
        self._passages: Iterator[int] = count(1)

    def passed(self) -> None:
        if next(self._passages) == self._last:
            os.kill(os.getpid(), signal.SIGKILL)


def _armed(setting: str) -> Mapping[str, _Armed]:
    if not setting:
        return {}
    name, colon, passage = setting.rpartition(":")
    if not colon:
        return {setting: _Armed(1)}
    if not (name and passage.isascii() and passage.isdigit() and int(passage) > 0):
        raise InvalidRequest(
            f"{VARIABLE}={setting!r} is not a failure point",
            detail=f"{passage!r} is not the number of a passage",
            hint="write NAME or NAME:N, where N is 1 or more",
        )
    return {name: _Armed(int(passage))}


_ARMED = _armed(os.environ.get(VARIABLE, ""))


def failpoint(name: str) -> None:
    """Does nothing, unless this is the passage at which the process is to die."""
    if name in _ARMED:
        _ARMED[name].passed()
