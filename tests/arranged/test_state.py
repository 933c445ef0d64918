"""The state of an operator is its spines: merged in the background, restored from their files, gone with it."""

import asyncio
import gc
import math
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from instance.arranged import operator as operators
from instance.arranged.group import Group
from instance.arranged.join import Join
from instance.arranged.operator import ArrangedOperator, Setting
from instance.arranged.places import passing_places
from instance.arranged.rendering import distinct_of
from instance.memory.batch import Batch
from instance.memory.distinct import Distinct
from instance.memory.group import Group as GroupInMemory
from instance.memory.join import Join as JoinInMemory
from instance.memory.operators import Operator
from instance.memory.rows import declared_format
from instance.spine.files import RunFiles
from instance.spine.manifest import Manifest
from instance.spine.spine import Spine
from plainsong.types import schema
from reconcile.errors import InvariantBroken, StorageFailed
from reconcile.frontiers import Antichain
from tests.arranged.histories import TINY, changes_of

FORMAT = declared_format((("k", "int"), ("v", "double")))
OTHER = declared_format((("j", "bigint"), ("name", "string")))
AGGREGATES = [("n", "count", None), ("total", "sum", "v"), ("mean", "avg", "v"), ("least", "min", "v")]
KINDS: dict[str, tuple[Callable[[Setting], ArrangedOperator], Callable[[], Operator]]] = {
    "group": (
        lambda setting: Group(FORMAT, [("k", "k")], AGGREGATES, setting),
        lambda: GroupInMemory(FORMAT, [("k", "k")], AGGREGATES),
    ),
    "one group": (
        lambda setting: Group(FORMAT, [], AGGREGATES, setting),
        lambda: GroupInMemory(FORMAT, [], AGGREGATES),
    ),
    "distinct": (lambda setting: distinct_of(FORMAT, setting), lambda: Distinct(FORMAT)),
    "join": (
        lambda setting: Join(FORMAT, OTHER, [("k", "j")], setting),
        lambda: JoinInMemory(FORMAT, OTHER, [("k", "j")]),
    ),
}


class Rows:
    """Random rows that come and go."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._there: list[tuple[int, float]] = []

    def batch(self, at: int, count: int) -> Batch:
        values = [0.1, 0.25, 3.0, 1e300, math.nan, math.inf]
        come = [(self._random.randrange(20), self._random.choice(values)) for _ in range(count)]
        self._random.shuffle(self._there)
        gone, self._there = self._there[: count // 2], self._there[count // 2 :] + come
        steps = [at + self._random.randrange(2) for _ in come]
        return Batch.of(FORMAT, [(row, at, -1) for row in gone] + list(zip(come, steps, [1] * count, strict=True)))


def changes(kind: str, at: int, batch: Batch) -> list[Batch]:
    if kind != "join":
        return [batch]
    return [batch, Batch.of(OTHER, [((at % 20, f"name-{at}"), at, 1)])]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.asyncio
async def test_merges_beside_the_steps_change_nothing_but_the_number_of_runs(kind: str, tmp_path: Path) -> None:
    make, model = KINDS[kind]
    operator, expected, rows = make(Setting(place=lambda name: RunFiles(tmp_path / name), sizes=TINY)), model(), Rows(1)

    for at in range(0, 60, 2):
        given = changes(kind, at, rows.batch(at, 20))
        assert changes_of(await operator.applied(given, at)) == changes_of(expected.apply(given, at))
        if at % 20 == 0:
            await operator.settled()

    await operator.settled()
    for name, spine in operator.spines().items():
        spine.check()
        assert spine.runs < 6
        assert len(RunFiles(tmp_path / name).names()) <= spine.runs, "what was merged is not left behind"


@pytest.mark.parametrize("kind", KINDS)
def test_an_operator_goes_on_from_restored_spines(kind: str, tmp_path: Path) -> None:
    make, model = KINDS[kind]
    expected, rows = model(), Rows(2)
    places = {name: RunFiles(tmp_path / name) for name in make(Setting()).spines()}
    restored: dict[str, Spine] = {}

    for at in range(0, 40, 2):
        # Also when nothing has come yet.
        given = changes(kind, at, rows.batch(at, 12 if at else 0))
        operator = make(Setting(place=lambda name: places[name], sizes=TINY, restored=restored))
        assert changes_of(operator.apply(given, at)) == changes_of(expected.apply(given, at))
        for name, spine in operator.spines().items():
            manifest = spine.manifest(Antichain.at(at + 2)).to_json()
            restored[name] = Spine.restore(places[name], Manifest.from_json(manifest), sizes=TINY)


def test_spines_of_something_else_are_not_taken_for_its_own(tmp_path: Path) -> None:
    other = Spine(schema([("x", "int")]), ["x"], RunFiles(tmp_path))

    with pytest.raises(InvariantBroken, match="'groups' has other columns"):
        Group(FORMAT, [("k", "k")], AGGREGATES, Setting(restored={"groups": other}))


@pytest.mark.parametrize("kind", ["group", "distinct", "join"])
@pytest.mark.asyncio
async def test_nothing_is_kept_of_what_is_gone(kind: str) -> None:
    operator = KINDS[kind][0](Setting(sizes=TINY))
    come = Rows(6).batch(0, 50)
    gone = Batch.of(FORMAT, [(row, 2, -diff) for row, _, diff in come.updates])

    for at, batch in ((0, come), (2, gone)):
        await operator.applied([batch, *[Batch.nothing(OTHER)] * (kind == "join")], at)
        await operator.settled()

    assert [list(spine.contents()) for spine in operator.spines().values() if list(spine.contents())] == []


@pytest.mark.asyncio
async def test_large_changes_are_computed_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop is free meanwhile, and the result the same."""
    monkeypatch.setattr(operators, "INLINE_ROWS_MAX", 3)
    operator, expected, rows = KINDS["group"][0](Setting()), KINDS["group"][1](), Rows(3)
    turns = 0

    async def turning() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(turning())
    for at in range(0, 10, 2):
        batch = rows.batch(at, 50)
        before = turns
        assert changes_of(await operator.applied([batch], at)) == changes_of(expected.apply([batch], at))
        assert turns > before
    other.cancel()


@pytest.mark.asyncio
async def test_a_disk_that_fails_a_merge_fails_the_operator(tmp_path: Path) -> None:
    operator = Group(FORMAT, [("k", "k")], [], Setting(place=lambda _: RunFiles(tmp_path / "gone"), sizes=TINY))
    (tmp_path / "gone").rmdir()
    await operator.applied([Rows(4).batch(0, 50)], 0)

    with pytest.raises(StorageFailed, match="cannot write"):
        await operator.settled()
    with pytest.raises(StorageFailed, match="cannot write"):
        await operator.applied([Batch.nothing(FORMAT)], 2)


@pytest.mark.asyncio
async def test_files_go_with_their_operator_and_two_renderings_share_none(tmp_path: Path) -> None:
    places = passing_places(tmp_path)
    one, other = (Group(FORMAT, [("k", "k")], [], Setting(place=places("u1-1-group"), sizes=TINY)) for _ in range(2))
    for operator in (one, other):
        await operator.applied([Rows(5).batch(0, 50)], 0)
        await operator.settled()
    assert len(list(tmp_path.rglob("*.arrow"))) == 2

    del one, operator
    gc.collect()

    assert len(list(tmp_path.rglob("*.arrow"))) == 1
    assert other.spines()["groups"].rows > 0
