"""Merges keep the runs few, the work small and nothing that folds for long."""

import threading
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types
import pytest
from hypothesis import given
from hypothesis import strategies as st

from instance.spine.files import RunFiles
from instance.spine.merging import REACH, STANDING, window_due
from instance.spine.run import Run
from instance.spine.sizes import Sizes
from instance.spine.spine import Spine
from plainsong.types import schema
from reconcile.frontiers import CLOSED, Antichain
from tests.spine.model import SMALL, counted, merge_all, table_of

COLUMNS = schema([("key", "bigint"), ("value", "bigint")])


@given(st.lists(st.integers(1, 1000), max_size=300), st.integers(1, 50))
def test_there_are_few_runs_and_each_row_is_merged_few_times(inserted: list[int], every: int) -> None:
    sizes: list[int] = []
    moved = 0
    for place, size in enumerate(inserted):
        sizes.append(size)
        while place % every == 0 and (window := window_due(sizes)) is not None:
            begin, end = window
            moved += sum(sizes[begin:end])
            sizes[begin:end] = [sum(sizes[begin:end])]

        if place % every == 0:
            doublings = sum(sizes).bit_length()
            assert len(sizes) <= STANDING * (doublings + 1)
            # Each merge makes the run that a row is in larger by at least a part.
            assert moved <= sum(sizes) * REACH * (doublings + 1)


@given(st.lists(st.one_of(st.none(), st.integers(1, 40)), max_size=40), st.integers(1, 100))
def test_what_is_being_merged_is_left_alone_and_bounds_are_kept(sizes: list[int | None], rows_max: int) -> None:
    window = window_due(sizes, rows_max)

    if window is not None:
        chosen = [size for size in sizes[slice(*window)] if size is not None]
        assert len(chosen) == window[1] - window[0] > STANDING
        assert sum(chosen) <= rows_max


def rows(step: int, numbers: range, diff: int = 1, value: int = 0) -> pa.Table:
    return table_of(COLUMNS, [((number, value), step, diff) for number in numbers])


def test_a_merge_does_not_hold_up_the_merges_of_what_comes_after() -> None:
    spine = Spine(COLUMNS, ["key"], sizes=Sizes(at_once_rows=0))
    for _ in range(4):
        spine.insert(rows(1, range(100)))
    large = spine.merge_due()
    assert large is not None

    for step in range(2, 500):
        spine.insert(rows(step, range(1)))
        merge_all(spine)
    assert spine.runs < 4 + 30

    spine.install(large, large.run())
    merge_all(spine)
    assert counted(spine.contents()) == {(number, 0): 4 + (498 if number == 0 else 0) for number in range(100)}
    spine.check()


def test_a_merge_may_run_in_another_thread_while_everything_goes_on() -> None:
    spine = Spine(COLUMNS, ["key"], sizes=Sizes(at_once_rows=0, part_rows=50))
    for step in range(4):
        spine.insert(rows(step, range(1000)))
    merge = spine.merge_due()
    assert merge is not None
    results: list[Run | None] = []
    thread = threading.Thread(target=lambda: results.append(merge.run()))

    thread.start()
    for step in range(4, 30):
        spine.insert(rows(step, range(step), -1))
        spine.compact(Antichain.at(step - 1))
        assert counted(spine.contents(step))[999, 0] == 4
    thread.join()
    spine.install(merge, results[0])

    spine.check()
    assert counted(spine.contents())[0, 0] == 4 - 26
    assert results[0] is not None
    assert len(results[0].parts) > 1


def test_rows_that_are_gone_before_the_horizon_leave_nothing() -> None:
    spine = Spine(COLUMNS, ["key"], sizes=SMALL)
    for step in range(64):
        spine.insert(rows(step, range(5), -1 if step % 2 else 1))

    spine.compact(Antichain.at(100))
    for _ in range(4):
        spine.insert(rows(100, range(5)))
        spine.insert(rows(100, range(5), -1))
    merge_all(spine)

    # What is too small to be merged may be left of what cancels.
    assert spine.rows <= 5 * 2 * STANDING
    assert counted(spine.contents()) == {}


def test_a_run_that_is_mostly_history_is_folded_though_nothing_is_inserted() -> None:
    spine = Spine(COLUMNS, ["key"], sizes=Sizes(at_once_rows=1_000_000))
    for step in range(3):
        spine.insert(rows(step, range(10), 1))
    assert (spine.rows, spine.runs, spine.merge_due()) == (30, 1, None)

    spine.compact(Antichain.at(5))
    merge_all(spine)

    assert (spine.rows, spine.runs) == (10, 1)
    assert spine.merge_due() is None


def test_what_was_merged_after_everything_was_forgotten_stays_forgotten() -> None:
    spine = Spine(COLUMNS, ["key"], sizes=Sizes(at_once_rows=0))
    for step in range(4):
        spine.insert(rows(step, range(10)))
    merge = spine.merge_due()
    assert merge is not None
    run = merge.run()

    spine.compact(CLOSED)
    spine.insert(rows(9, range(1), value=7))
    spine.install(merge, run)

    assert counted(spine.contents()) == {(0, 7): 1}
    spine.check()


@pytest.mark.parametrize("diff", [1, 127, -128, 1 << 40, -(1 << 40)])
def test_sums_that_outgrow_the_width_of_what_was_summed_are_exact(tmp_path: Path, diff: int) -> None:
    spine = Spine(COLUMNS, ["key"], RunFiles(tmp_path), sizes=Sizes(at_once_rows=0, file_rows=1))
    for _ in range(16):
        spine.insert(rows(1 << 40, range(3), diff))
        merge_all(spine)

    assert set(counted(spine.contents()).values()) == {16 * diff}
    assert spine.bytes_in_memory == 0
    spine.check()
