"""Shards against a dumb model: a list of updates and four numbers."""

import asyncio
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from instance.shards.delta import DeltaShardStore
from instance.shards.simulated import SimulatedDisk, SimulatedShardStore
from instance.shards.store import Appended, EpochFenced, Shard, ShardStore, TakenOver, UpperMoved
from reconcile.frontiers import CLOSED, MINIMUM, Antichain
from reconcile.ids import GlobalId, Step, WriterEpoch
from tests.shards.rows import COLUMNS, Row, contents, listed, updates

S1 = GlobalId("s", 1)
HANDLES = 2


@dataclass
class Model:
    """A shard, as simply as it can be said."""

    upper: Antichain = MINIMUM
    since: Antichain = MINIMUM
    epoch: int = 0
    rows: list[Row] = field(default_factory=list)
    tokens: dict[str, int] = field(default_factory=dict)

    def append(
        self, expected: Antichain, upper: Antichain, rows: list[Row], epoch: int | None, token: str
    ) -> Appended | UpperMoved | EpochFenced:
        if token in self.tokens:
            return Appended(upper=self.upper)
        if epoch is not None and epoch < self.epoch:
            return EpochFenced(writer_epoch=WriterEpoch(self.epoch))
        if expected != self.upper or expected.step is None:
            return UpperMoved(upper=self.upper)
        self.rows += rows
        self.upper = upper
        self.epoch = max(self.epoch, epoch or 0)
        if token:
            self.tokens[token] = expected.step
        return Appended(upper=upper)


handles = st.integers(0, HANDLES - 1)
names = st.sampled_from(["a", "b", None])
operations = st.one_of(
    st.tuples(
        st.just("append"),
        handles,
        st.sampled_from([0, 0, 0, -1, 2]),  # how far the writer is mistaken about the upper
        st.integers(1, 5),  # how many steps it covers; 5 is for ever
        st.lists(st.tuples(names, st.integers(0, 1), st.integers(0, 3), st.sampled_from([-1, 1, 2])), max_size=3),
        st.sampled_from([None, 1, 2, 3]),
        st.sampled_from(["", "", "x", "y"]),
    ),
    st.tuples(st.just("take over"), handles, st.integers(0, 3)),
    st.tuples(st.just("since"), handles, st.integers(0, 12)),
    st.tuples(st.just("refresh"), handles),
    st.tuples(st.just("reopen"), handles),
)


async def perform(operation: tuple[object, ...], shards: list[Shard], store: ShardStore, model: Model) -> None:
    match operation:
        case ("append", int(handle), int(mistake), int(steps), list(rows), epoch, str(token)):
            assert epoch is None or isinstance(epoch, int)
            believed = max(0, (model.upper.step or 0) + mistake)
            expected = Antichain.at(believed)
            upper = CLOSED if steps == 5 else Antichain.at(believed + steps)
            placed = [(name, n, believed + min(step, steps - 1), diff) for name, n, step, diff in rows]

            outcome = await shards[handle].compare_and_append(
                expected=expected,
                upper=upper,
                updates=updates(*placed),
                writer_epoch=None if epoch is None else WriterEpoch(epoch),
                token=token,
            )

            assert outcome == model.append(expected, upper, placed, epoch, token)
        case ("take over", int(handle), int(epoch)):
            taken = await shards[handle].take_over(WriterEpoch(epoch))

            if epoch < model.epoch:
                assert taken == EpochFenced(writer_epoch=WriterEpoch(model.epoch))
            else:
                model.epoch = epoch
                assert taken == TakenOver(upper=model.upper)
        case ("since", int(handle), int(since)):
            await shards[handle].advance_since(Antichain.at(since))
            model.since = max(model.since, Antichain.at(since))
        case ("refresh", int(handle)):
            assert await shards[handle].refresh() == model.upper
        case ("reopen", int(handle)):
            shards[handle] = await store.open(S1, COLUMNS)
        case _:
            raise AssertionError(operation)


async def check(shard: Shard, model: Model) -> None:
    await shard.refresh()

    assert (shard.upper, shard.since, shard.writer_epoch) == (model.upper, model.since, model.epoch)
    assert [await shard.find_token(token) for token in ("x", "y")] == [model.tokens.get("x"), model.tokens.get("y")]
    last = 20 if model.upper.step is None else model.upper.step - 1
    since = model.since.step or 0
    for step in range(since, last + 1):
        assert listed(await shard.snapshot(Step(step))) == contents(model.rows, step)
    if model.since < model.upper:
        expected = sorted((row for row in model.rows if row[2] >= since), key=repr)
        assert listed(await shard.read(model.since, model.upper)) == expected


async def run(make: Callable[[], ShardStore], script: list[tuple[object, ...]]) -> None:
    stores = [make() for _ in range(HANDLES)]
    shards = [await store.open(S1, COLUMNS) for store in stores]
    model = Model()
    for operation in script:
        handle = operation[1]
        assert isinstance(handle, int)
        await perform(operation, shards, stores[handle], model)
    for shard in shards:
        await check(shard, model)
    stores.append(make())
    await check(await stores[-1].open(S1, COLUMNS), model)
    for store in stores:
        await store.close()


@settings(max_examples=150, deadline=None)
@given(script=st.lists(operations, max_size=25))
def test_a_simulated_shard_does_what_the_model_does(script: list[tuple[object, ...]]) -> None:
    disk = SimulatedDisk()

    asyncio.run(run(lambda: SimulatedShardStore(disk), script))


@settings(max_examples=25, deadline=None)
@given(script=st.lists(operations, max_size=15))
def test_a_delta_shard_does_what_the_model_does(script: list[tuple[object, ...]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(lambda: DeltaShardStore(Path(folder)), script))


@pytest.mark.asyncio
async def test_a_long_history_is_read_right_across_checkpoints_and_reopened_handles(tmp_path: Path) -> None:
    store = DeltaShardStore(tmp_path)
    shards = [await store.open(S1, COLUMNS) for _ in range(HANDLES)]
    model = Model()

    for step in range(230):
        row: Row = ("a", step % 7, step, 1 if step % 3 else -1)
        operation = ("append", (step // 50) % HANDLES, 0, 1, [(row[0], row[1], 0, row[3])], None, f"t{step}")
        await perform(operation, shards, store, model)

    assert (tmp_path / "s1" / "_delta_log" / f"{200:020d}.checkpoint.parquet").exists()
    late = await store.open(S1, COLUMNS)
    for shard in [*shards, late]:
        await shard.refresh()
        assert shard.upper == Antichain.at(230)
        assert listed(await shard.snapshot(Step(229))) == contents(model.rows, 229)
        assert [await shard.find_token(f"t{step}") for step in (0, 150, 229)] == [0, 150, 229]
    await store.close()
