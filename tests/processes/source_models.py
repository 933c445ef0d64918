"""What sources must hold in the end, and how far their shards are, seen from outside."""

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from deltalake import DeltaTable

import plainsong
from instance.storage.generated import generated
from plainsong.types import DIFF
from reconcile.source_types import GeneratorOptions, checked_options
from tests.processes.deployment import PATIENCE_S, Deployment
from tests.processes.waiting import until

Rows = Counter[tuple[object, ...]]

#: In an upper of a shard's log: nothing comes any more.
CLOSED = 2**63 - 1


def made_by(options: dict[str, str]) -> Rows:
    """The contents of a generator that has finished."""
    meant = checked_options("generator", options)
    assert isinstance(meant, GeneratorOptions)
    assert meant.rows is not None
    rows: Rows = Counter()
    for row in generated(meant, 0, meant.rows).to_pylist():
        diff = row.pop(DIFF)
        rows[tuple(row.values())] += diff
    assert all(count >= 0 for count in rows.values())
    return +rows


def held(client: plainsong.Client, name: str) -> Rows:
    return Counter(tuple(row) for row in client.query(f"SELECT * FROM {name}"))


def status(client: plainsong.Client, name: str) -> str:
    (found,) = [one for one in client.objects() if one.name == name]
    return f"{found.status} {found.error}".strip()


def finished(client: plainsong.Client, *names: str) -> None:
    """Waits until these sources have nothing more to say."""
    until(client, lambda told: {one.name for one in told.objects if one.status == "finished"} >= set(names))


def upper(client: plainsong.Client, name: str) -> int:
    """How far it is complete; beyond every step if it is finished."""
    (one,) = client.frontiers(name).objects
    return CLOSED if one.upper.step is None else one.upper.step


def rises(client: plainsong.Client, name: str) -> int:
    """Waits until more of it is complete than now."""
    before = upper(client, name)
    until(client, lambda _: before == CLOSED or upper(client, name) > before)
    return upper(client, name)


def shard(deployment: Deployment, id: object) -> Path:
    return deployment.data / "shards" / str(id)


def shard_upper(folder: Path) -> int:
    found = DeltaTable(folder).transaction_version("upper")
    return -1 if found is None else found


def shard_reaches(folder: Path, condition: Callable[[int], bool]) -> int:
    """Looks at a shard, without any controller, until it is as far as that; its upper."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        now = shard_upper(folder)
        if condition(now):
            return now
        assert time.monotonic() < deadline, f"{folder} stands still at {now}"
