"""Shards against a dumb model: a list of updates and four numbers."""

import asyncio
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from instance.inputs import NotReadable
from instance.shards.delta import DeltaShardStore
from instance.shards.delta_log import commit_name
from instance.shards.holds import Hold
from instance.shards.maintenance import maintain
from instance.shards.rules import UpkeepRules
from instance.shards.simulated import SimulatedDisk, SimulatedShardStore
from instance.shards.store import Appended, EpochFenced, Shard, ShardStore, TakenOver, UpperMoved
from reconcile.errors import InvariantBroken
from reconcile.frontiers import CLOSED, MINIMUM, Antichain
from reconcile.ids import GlobalId, Step, WriterEpoch
from tests.shards.rows import COLUMNS, Row, contents, listed, updates

S1 = GlobalId("s", 1)
HANDLES = 2


@dataclass
class Model:
    """A shard, as simply as it can be said: no update is ever forgotten."""

    upper: Antichain = MINIMUM
    since: Antichain = MINIMUM
    epoch: int = 0
    position: str = ""
    rows: list[Row] = field(default_factory=list)
    tokens: dict[str, int] = field(default_factory=dict)
    #: By process: what its readers hold, which since it wants, and what it told and did not write.
    holds: list[list[Hold]] = field(default_factory=lambda: [[] for _ in range(HANDLES)])
    wanted: list[Antichain] = field(default_factory=lambda: [MINIMUM] * HANDLES)
    told: list[tuple[Antichain, int | None] | None] = field(default_factory=lambda: [None] * HANDLES)
    now: float = 0.0

    def append(
        self,
        process: int,
        expected: Antichain,
        upper: Antichain,
        rows: list[Row],
        epoch: int | None,
        token: str,
        position: str | None,
    ) -> Appended | UpperMoved | EpochFenced | None:
        """None if it contradicts what the same process told."""
        pending = self.told[process]
        if token in self.tokens:
            return Appended(upper=self.settled(process))
        if epoch is not None and epoch < self.epoch:
            self.told[process] = None
            return EpochFenced(writer_epoch=WriterEpoch(self.epoch))
        from_told = pending is not None and pending[0] == expected and self.upper < expected
        if (expected != self.upper and not from_told) or expected.step is None:
            return UpperMoved(upper=self.settled(process))
        if pending is not None and any(not pending[0].is_open_at(Step(row[2])) for row in rows):
            return None
        self.rows += rows
        self.upper = upper
        self.epoch = max(self.epoch, epoch or 0)
        if token:
            self.tokens[token] = expected.step
        if position is not None:
            self.position = position
        return Appended(upper=self.settled(process))

    def flush(self, process: int) -> Appended | EpochFenced:
        pending = self.told[process]
        if pending is not None:
            if pending[1] is not None and pending[1] < self.epoch:
                self.told[process] = None
                return EpochFenced(writer_epoch=WriterEpoch(self.epoch))
            if pending[0] > self.upper:
                self.upper, self.epoch = pending[0], max(self.epoch, pending[1] or 0)
        return Appended(upper=self.settled(process))

    def settled(self, process: int) -> Antichain:
        pending = self.told[process]
        if pending is not None and self.upper >= pending[0]:
            self.told[process] = None
        return self.upper

    def advance_since(self, process: int, since: Antichain) -> None:
        self.wanted[process] = max(since, self.wanted[process])
        self.since = max(self.since, min([self.wanted[process], *(hold.at for hold in self.holds[process])]))


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
        st.sampled_from([None, None, "here", "there"]),  # upstream
    ),
    st.tuples(st.just("step"), handles, st.lists(st.tuples(names, st.integers(0, 1)), min_size=1, max_size=3)),
    st.tuples(st.just("take over"), handles, st.integers(0, 3)),
    st.tuples(st.just("since"), handles, st.integers(-3, 3)),
    st.tuples(st.just("refresh"), handles),
    st.tuples(st.just("reopen"), handles),
    st.tuples(st.just("read"), handles),
    st.tuples(st.just("hold"), handles, st.integers(-2, 2)),
    st.tuples(st.just("release"), handles),
    st.tuples(st.just("tell"), handles, st.integers(1, 4), st.sampled_from([None, 2])),
    st.tuples(st.just("flush"), handles),
    st.tuples(st.just("maintain"), handles, st.sampled_from([0.0, 400.0])),
)


async def perform(operation: tuple[object, ...], shards: list[Shard], store: ShardStore, model: Model) -> None:
    match operation:
        case ("append", int(handle), int(mistake), int(steps), list(rows), epoch, str(token), position):
            assert epoch is None or isinstance(epoch, int)
            assert position is None or isinstance(position, str)
            believed = max(0, (max(model.upper, shards[handle].told).step or 0) + mistake)
            upper = CLOSED if steps == 5 else Antichain.at(believed + steps)
            placed = [(name, n, believed + min(step, steps - 1), diff) for name, n, step, diff in rows]
            await append(handle, believed, upper, placed, epoch, token, position, shards, model)
        case ("step", int(handle), list(rows)):
            at = max(model.upper, shards[handle].told).step
            if at is not None:
                placed = [(name, n, at, 1) for name, n in rows]
                await append(handle, at, Antichain.at(at + 1), placed, None, "", None, shards, model)
        case ("take over", int(handle), int(epoch)):
            taken = await shards[handle].take_over(WriterEpoch(epoch))

            if epoch < model.epoch:
                assert taken == EpochFenced(writer_epoch=WriterEpoch(model.epoch))
            else:
                model.epoch = epoch
                assert taken == TakenOver(upper=model.upper)
        case ("since", int(handle), int(distance)):
            since = Antichain.at(max(0, (model.upper.step or 20) + distance))
            await shards[handle].advance_since(since)
            model.advance_since(handle, since)
        case ("refresh", int(handle)):
            assert await shards[handle].refresh() == model.upper
        case ("reopen", int(handle)):
            shards[handle] = await store.open(S1, COLUMNS)
            model.told[handle] = None
        case _:
            await perform_more(operation, shards, model)


async def perform_more(operation: tuple[object, ...], shards: list[Shard], model: Model) -> None:
    match operation:
        case ("read", int(handle)):
            await check_as_it_stands(shards[handle], model)
        case ("hold", int(handle), int(distance)):
            at = Antichain.at(max(0, (model.since.step or 0) + distance))
            if at < model.since:
                with pytest.raises(NotReadable):
                    await shards[handle].hold(at)
            else:
                model.holds[handle].append(await shards[handle].hold(at))
        case ("release", int(handle)):
            if model.holds[handle]:
                model.holds[handle].pop(0).release()
        case ("tell", int(handle), int(steps), epoch):
            assert epoch is None or isinstance(epoch, int)
            told = shards[handle].told
            if told.step is not None:
                upper = Antichain.at(told.step + steps)
                shards[handle].advance(upper, writer_epoch=None if epoch is None else WriterEpoch(epoch))
                assert shards[handle].told == upper
                model.told[handle] = (upper, epoch)
        case ("flush", int(handle)):
            nothing = model.told[handle] is None
            outcome = await shards[handle].flush()
            assert outcome == (Appended(upper=shards[handle].upper) if nothing else model.flush(handle))
        case ("maintain", int(handle), float(seconds)):
            model.now += seconds
            await maintain(shards[handle], model.now)
            model.advance_since(handle, MINIMUM)
        case _:
            raise AssertionError(operation)


async def append(
    handle: int,
    believed: int,
    upper: Antichain,
    placed: list[Row],
    epoch: int | None,
    token: str,
    position: str | None,
    shards: list[Shard],
    model: Model,
) -> None:
    expected = Antichain.at(believed)
    wanted = model.append(handle, expected, upper, placed, epoch, token, position)
    try:
        outcome = await shards[handle].compare_and_append(
            expected=expected,
            upper=upper,
            updates=updates(*placed),
            writer_epoch=None if epoch is None else WriterEpoch(epoch),
            token=token,
            position=position,
        )
    except InvariantBroken:
        assert wanted is None
    else:
        assert outcome == wanted


async def check_as_it_stands(shard: Shard, model: Model) -> None:
    """A handle that is behind answers as of what it knows, or says that this is gone; never wrongly."""
    since, upper = shard.since, shard.upper
    last = 20 if upper.step is None else upper.step - 1
    for step in range(since.step or 0, last + 1):
        try:
            assert listed(await shard.snapshot(Step(step))) == contents(model.rows, step)
        except NotReadable:
            assert Antichain.at(step) < model.since
    if since < upper:
        expected = sorted((row for row in model.rows if since.is_open_at(Step(row[2]))), key=repr)
        try:
            found = listed(await shard.read(since, upper))
        except NotReadable:
            assert since < model.since
        else:
            assert found == [row for row in expected if not upper.is_open_at(Step(int(row[2])))]


async def check(shard: Shard, model: Model) -> None:
    await shard.refresh()

    assert (shard.upper, shard.since, shard.writer_epoch) == (model.upper, model.since, model.epoch)
    assert shard.position == model.position
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
        await check_as_it_stands(shard, model)
        await check(shard, model)
    stores.append(make())
    await check(await stores[-1].open(S1, COLUMNS), model)
    for store in stores:
        await store.close()


#: Compaction, checkpoints and clean-up wherever they are possible at all; with and without the tokens.
EAGER = UpkeepRules(tier_files_max=2, history_rows_min=1, log_seconds_min=-1e12, reopen_after=3)
FORGETFUL = replace(EAGER, log_versions_min=2)


@settings(max_examples=150, deadline=None)
@given(script=st.lists(operations, max_size=40))
def test_a_simulated_shard_does_what_the_model_does(script: list[tuple[object, ...]]) -> None:
    disk = SimulatedDisk()

    asyncio.run(run(lambda: SimulatedShardStore(disk, rules=EAGER), script))


@settings(max_examples=30, deadline=None)
@given(script=st.lists(operations, max_size=25))
def test_a_delta_shard_does_what_the_model_does(script: list[tuple[object, ...]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(lambda: DeltaShardStore(Path(folder), rules=EAGER), script))


@settings(max_examples=5, deadline=None, phases=[Phase.generate])
@given(script=st.lists(operations, min_size=70, max_size=70))
def test_a_delta_shard_whose_log_is_cleaned_up_does_what_the_model_does(script: list[tuple[object, ...]]) -> None:
    """Without tokens, which go with the log, and without an end."""
    plain = list[tuple[object, ...]]()
    for operation in script:
        if operation[0] == "append":
            operation = (*operation[:3], min(4, int(str(operation[3]))), *operation[4:6], "", operation[7])
        plain.append(operation)
    plain = [one for place, operation in enumerate(plain) for one in (operation, ("maintain", place % HANDLES, 100.0))]
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(lambda: DeltaShardStore(Path(folder), rules=FORGETFUL), plain))

        assert not (Path(folder) / "s1" / commit_name(0)).exists()


@pytest.mark.asyncio
async def test_a_long_history_is_read_right_across_checkpoints_and_reopened_handles(tmp_path: Path) -> None:
    store = DeltaShardStore(tmp_path)
    shards = [await store.open(S1, COLUMNS) for _ in range(HANDLES)]
    model = Model()

    for step in range(230):
        row: Row = ("a", step % 7, step, 1 if step % 3 else -1)
        operation = ("append", (step // 50) % HANDLES, 0, 1, [(row[0], row[1], 0, row[3])], None, f"t{step}", None)
        await perform(operation, shards, store, model)

    assert (tmp_path / "s1" / "_delta_log" / f"{200:020d}.checkpoint.parquet").exists()
    late = await store.open(S1, COLUMNS)
    for shard in [*shards, late]:
        await shard.refresh()
        assert shard.upper == Antichain.at(230)
        assert listed(await shard.snapshot(Step(229))) == contents(model.rows, 229)
        assert [await shard.find_token(f"t{step}") for step in (0, 150, 229)] == [0, 150, 229]
    await store.close()
