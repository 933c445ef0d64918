"""A spine reads right at every step, whatever is inserted, compacted, merged and restored when."""

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from instance.inputs import NotReadable
from instance.memory.arrangement import Arrangement
from instance.spine.files import RunFiles
from instance.spine.manifest import Manifest
from instance.spine.merging import Merge
from instance.spine.spine import Spine
from plainsong.types import schema
from reconcile.errors import InvariantBroken
from reconcile.frontiers import CLOSED, Antichain
from tests.spine.model import HASHINGS, SMALL, Model, Row, counted, frozen, keys_of, merge_all, stepped, table_of

COLUMNS = schema([("number", "double"), ("text", "string"), ("small", "tinyint")])
rows = st.tuples(
    st.sampled_from([None, float("nan"), 0.0, -0.0, 1.5]), st.sampled_from([None, "", "a", "ab" * 9]), st.integers(0, 1)
)
changes = st.lists(st.tuples(rows, st.sampled_from([1, 1, 2, -1, 300])), max_size=8)
keys = st.sampled_from([(), ("number",), ("text", "number"), ("small",)])


class SpineMachine(RuleBasedStateMachine):
    """Does anything to a spine, at any moment of any merge, and reads everything after it."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="plainsong-spine-"))
        self.merges: list[Merge] = []
        self.step = 0
        self.kept: Manifest | None = None

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    @initialize(
        key=keys, in_files=st.booleans(), hashing=st.sampled_from(sorted(HASHINGS)), at_once=st.sampled_from([0, 4])
    )
    def begin(self, key: tuple[str, ...], in_files: bool, hashing: str, at_once: int) -> None:
        self.sizes = replace(SMALL, at_once_rows=at_once)
        self.hashing = HASHINGS[hashing]
        self.files = RunFiles(self.folder) if in_files else None
        self.spine = Spine(COLUMNS, key, self.files, sizes=self.sizes, hashing=self.hashing)
        self.model = Model([COLUMNS.get_field_index(name) for name in self.spine.key])

    @rule(changes=changes, later=st.integers(0, 2), chunks=st.booleans())
    def insert(self, changes: list[tuple[Row, int]], later: int, chunks: bool) -> None:
        # Not in the order of steps, though not before what was inserted.
        updates = [
            (row, self.step + (later if place % 2 == 0 else 0), diff) for place, (row, diff) in enumerate(changes)
        ]
        table = table_of(COLUMNS, updates)
        self.spine.insert(pa.concat_tables([table.slice(0, 3), table.slice(3)]) if chunks else table)
        self.model.insert((row, max(step, self.spine.horizon), diff) for row, step, diff in updates)
        self.step = max([self.step, *(step for _, step, _ in updates)])

    @rule(each=st.lists(st.tuples(rows, st.sampled_from([1, -1])), min_size=4, max_size=12))
    def insert_one_by_one(self, each: list[tuple[Row, int]]) -> None:
        for row, diff in each:
            self.insert([(row, diff)], 0, False)

    @rule(back=st.integers(-4, 2))
    def compact(self, back: int) -> None:
        self.spine.compact(Antichain.at(max(0, self.step + back)))

    @rule()
    def begin_merge(self) -> None:
        self._begun(self.spine.merge_due())

    @rule()
    def begin_saving(self) -> None:
        self._begun(self.spine.saving())

    def _begun(self, merge: Merge | None) -> None:
        if merge is not None:
            under_way = {run.number for each in self.merges for run in each.runs}
            assert not under_way & {run.number for run in merge.runs}
            self.merges.append(merge)

    @precondition(lambda self: self.merges)
    @rule(which=st.integers(0, 9), fails=st.sampled_from([False, False, False, True]))
    def end_merge(self, which: int, fails: bool) -> None:
        merge = self.merges.pop(which % len(self.merges))
        if fails:
            self.spine.abandon(merge)
        else:
            self.spine.install(merge, merge.run())

    @precondition(lambda self: self.files is not None)
    @rule()
    def keep_a_manifest(self) -> None:
        assert self.files is not None
        self.kept = Manifest.from_json(self.spine.manifest(Antichain.at(self.step)).to_json())
        self.files.remove(self.spine.obsolete(self.kept))
        assert set(self.kept.files) <= set(self.files.names())
        self.at_manifest = self.step, {row: list(changes) for row, changes in self.model.updates.items()}

    @precondition(lambda self: self.kept is not None)
    @rule(whole=st.booleans())
    def restart(self, whole: bool) -> None:
        assert self.kept is not None
        self.files = RunFiles(self.folder)
        self.spine = Spine.restore(self.files, self.kept, whole=whole, sizes=self.sizes, hashing=self.hashing)
        assert sorted(self.files.names()) == sorted(set(self.kept.files))
        self.step = self.at_manifest[0]
        self.model.updates.clear()
        self.model.insert((row, step, diff) for row, all in self.at_manifest[1].items() for step, diff in all)
        self.merges.clear()

    @rule()
    def close(self) -> None:
        self.spine.compact(CLOSED)
        self.model.updates.clear()
        assert (self.spine.rows, self.spine.bytes, list(self.spine.contents(self.spine.horizon))) == (0, 0, [])

    @rule(chosen=st.lists(rows, max_size=6))
    def look_up(self, chosen: list[Row]) -> None:
        wanted = {self.model.key(row) for row in chosen}
        table = keys_of(COLUMNS, self.spine.key, [*chosen, *chosen[:2]])
        for at in [None, *range(self.spine.horizon, self.step + 2)]:
            assert counted(self.spine.lookup(table, at)) == self.model.contents(at, wanted)
        for lower in range(self.spine.horizon, self.step + 2):
            assert stepped(self.spine.history(table, lower)) == self.model.history(lower, wanted)

    @invariant()
    def reads_right(self) -> None:
        self.spine.check()
        for at in [None, *range(self.spine.horizon, self.step + 2)]:
            assert counted(self.spine.contents(at)) == self.model.contents(at)
        for step in range(self.spine.horizon + 1, self.step + 2):
            expected = {place: diff for place, diff in self.model.history(step - 1).items() if place[1] >= step}
            assert stepped(self.spine.changes_from(step)) == expected
        assert stepped(self.spine.changes_from(0)) == self.model.history(self.spine.horizon)

    @invariant()
    def what_is_gone_cannot_be_read(self) -> None:
        before = self.spine.horizon - 1
        if before >= 0:
            key = keys_of(COLUMNS, self.spine.key, [(0.0, "", 0)])
            with pytest.raises(NotReadable):
                self.spine.contents(before)
            with pytest.raises(NotReadable):
                self.spine.lookup(key, before)
            with pytest.raises(NotReadable):
                self.spine.history(key, before)
        if before > 0:
            with pytest.raises(NotReadable):
                self.spine.changes_from(before + 1)


TestSpine = SpineMachine.TestCase
TestSpine.settings = settings(max_examples=100, stateful_step_count=20, deadline=None)

integers = st.tuples(st.one_of(st.none(), st.integers(0, 2)), st.integers(0, 2))
histories = st.lists(
    st.tuples(st.lists(st.tuples(integers, st.sampled_from([1, 1, 2, -1])), max_size=6), st.integers(-3, 2)),
    max_size=10,
)


@given(histories, st.sampled_from([(), ("a",), ("b", "a")]), st.sampled_from(sorted(HASHINGS)))
@settings(max_examples=60, deadline=None)
def test_it_means_what_an_arrangement_in_memory_means(
    history: list[tuple[list[tuple[Row, int]], int]], key: tuple[str, ...], hashing: str
) -> None:
    columns = schema([("a", "bigint"), ("b", "bigint")])
    arrangement = Arrangement([columns.names.index(name) for name in key])
    spine = Spine(columns, key, sizes=SMALL, hashing=HASHINGS[hashing])
    for step, (changes, back) in enumerate(history):
        updates = [(row, step, diff) for row, diff in changes]
        arrangement.insert(updates)
        spine.insert(table_of(columns, updates))
        since = Antichain.at(max(0, step + back))
        arrangement.compact(since)
        spine.compact(since)
        merge_all(spine)

        assert spine.horizon == arrangement.horizon
        for at in range(spine.horizon, step + 2):
            positive = {row: count for row, count in counted(spine.contents(at)).items() if count > 0}
            assert positive == dict(arrangement.contents(at))
        for lower in range(spine.horizon + 1, step + 1):
            expected = {(row, at): diff for row, at, diff in arrangement.changes_from(lower)}
            assert stepped(spine.changes_from(lower)) == expected


@given(
    st.lists(rows, max_size=12),
    st.sampled_from([None, float("-inf"), 0.0, 1.5, float("nan")]),
    st.sampled_from([None, float("-inf"), 0.0, 1.5, float("nan")]),
    st.booleans(),
    st.booleans(),
)
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_a_range_has_the_rows_whose_first_key_column_lies_in_it(
    inserted: list[Row], low: float | None, high: float | None, low_included: bool, high_included: bool
) -> None:
    spine = Spine(COLUMNS, ("number", "text"), sizes=SMALL)
    spine.insert(table_of(COLUMNS, [(row, 1, 1) for row in inserted]))

    def order(value: Any) -> tuple[bool, float]:
        return (value == "NaN", 0.0 if value == "NaN" else value)

    def lies(value: Any) -> bool:
        if value is None:
            return False
        found, lower, upper = order(value), order(frozen(low)) if low is not None else None, order(frozen(high))
        above = lower is None or found > lower or (low_included and found == lower)
        return above and (high is None or found < upper or (high_included and found == upper))

    least, most = [None if bound is None else pa.scalar(bound, pa.float64()) for bound in (low, high)]
    found = counted(spine.range(least, most, 1, low_included=low_included, high_included=high_included))

    expected = counted(spine.contents(1))
    assert found == {row: count for row, count in expected.items() if lies(row[0])}


def test_an_update_before_what_was_inserted_is_refused() -> None:
    spine = Spine(COLUMNS, ())
    spine.insert(table_of(COLUMNS, [((1.0, "a", 0), 5, 1)]))

    with pytest.raises(InvariantBroken, match="step 4 came after one at 5"):
        spine.insert(table_of(COLUMNS, [((1.0, "a", 0), 4, 1)]))


def test_what_was_begun_to_be_read_is_read_to_its_end_whatever_happens_to_the_spine(tmp_path: Path) -> None:
    files = RunFiles(tmp_path)
    spine = Spine(COLUMNS, ("small",), files, sizes=SMALL)
    for number in range(40):
        spine.insert(table_of(COLUMNS, [((float(number), "a", 0), 1, 1)]))
    first = spine.manifest(Antichain.at(2))
    reading = spine.contents(1)
    begun = next(reading)

    spine.compact(CLOSED)
    files.remove(spine.obsolete())

    assert files.names() == []
    assert len(first.files) > 0
    assert len(counted([begun, *reading])) == 40


def test_an_update_before_the_horizon_counts_as_at_the_horizon_whatever_was_inserted_before_it() -> None:
    spine = Spine(COLUMNS, ())
    spine.insert(table_of(COLUMNS, [((1.0, "a", 0), 3, 1)]))
    spine.compact(Antichain.at(6))

    spine.insert(table_of(COLUMNS, [((1.0, "a", 0), 2, 1)]))

    assert spine.newest == 5
    assert counted(spine.contents(5)) == {(1.0, "a", 0): 2}
    assert spine.changes_from(6).num_rows == 0
    spine.check()


def test_contents_come_in_pieces_of_bounded_size_however_the_runs_are_made_up() -> None:
    sizes = replace(SMALL, at_once_rows=0, part_rows=100, piece_rows=30)
    spine = Spine(schema([("number", "bigint")]), (), sizes=sizes)
    for begin in range(0, 1000, 100):
        spine.insert(table_of(spine.schema, [((number,), 1, 1) for number in range(begin, begin + 100)]))
        merge_all(spine)

    found = [table.num_rows for table in spine.contents()]

    assert sum(found) == 1000
    assert max(found) <= 2 * 30
