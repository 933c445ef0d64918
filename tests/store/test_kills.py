"""A controller killed at any durable step: afterwards each statement is entirely there or entirely not."""

import signal
from pathlib import Path

import pytest

from controller.store.changes import Channel
from controller.store.interface import Loaded
from tests.store.places import SqlitePlace, seen_by_the_next
from tests.store.programs import started

pytestmark = pytest.mark.asyncio

#: Where it is killed, what it said before, and how many of its four calls are durable.
KILLS = {
    "store-before-commit:1": (["reigning"], 0),
    "store-after-commit:1": (["reigning"], 1),
    "store-before-commit:2": (["reigning", "first"], 1),
    "store-after-commit:2": (["reigning", "first"], 2),
    "compact-before-commit": (["reigning", "first", "second"], 2),
    "compact-after-commit": (["reigning", "first", "second"], 3),
    "store-before-commit:3": (["reigning", "first", "second", "compacted"], 3),
    "store-after-commit:3": (["reigning", "first", "second", "compacted"], 4),
}


def summary(loaded: Loaded) -> tuple[object, ...]:
    logs = {
        (cluster, channel): (log.base, [(record.seqno, record.body) for record in log.tail])
        for (cluster, channel), log in loaded.logs.items()
        if log.base or log.tail
    }
    names = sorted(put.name for put in loaded.objects.values())
    return names, sorted(loaded.clusters), logs, loaded.next_seqno, loaded.next_ids["u"]


MAIN, X = ("main", Channel.COMPUTE), ("x", Channel.COMPUTE)
#: What is there after so many of the four calls.
STATES: list[tuple[object, ...]] = [
    ([], [], {}, 1, 1),
    (["a"], ["main", "other"], {MAIN: ((), [(1, b"1"), (2, b"2")])}, 3, 1_000),
    (["a", "b"], ["main", "x"], {MAIN: ((), [(1, b"1"), (2, b"2"), (3, b"3")])}, 4, 1_000),
    (["a", "b"], ["main", "x"], {MAIN: ((b"reduced",), [(3, b"3")])}, 4, 1_000),
    (["a", "c"], ["main", "x"], {MAIN: ((b"reduced",), [(3, b"3"), (4, b"4")]), X: ((), [(5, b"5")])}, 6, 1_000),
]


@pytest.mark.parametrize("point", KILLS)
async def test_a_statement_is_all_there_or_not_at_all(point: str, tmp_path: Path) -> None:
    said, durable = KILLS[point]

    with started("statements", tmp_path, PLAINSONG_FAILPOINT=point) as process:
        output, _ = process.communicate(timeout=60)

    assert process.returncode == -signal.SIGKILL, output
    assert output.splitlines() == said
    assert summary(await seen_by_the_next(SqlitePlace(tmp_path))) == STATES[durable]


async def test_without_a_failure_point_all_of_it_is_there(tmp_path: Path) -> None:
    with started("statements", tmp_path) as process:
        output, _ = process.communicate(timeout=60)

    assert process.returncode == 0, output
    assert summary(await seen_by_the_next(SqlitePlace(tmp_path))) == STATES[4]
