"""Figures of spines: ``python -P -m instance.spine.bench [--rows N] [--json FILE]``.

Does a small step cost the same on a large state? For states of 100 thousand rows, of 1 million and so on up to
``--rows``, 10 rows a key: a step of 1,000 changes (500 rows replaced) and a lookup of 1,000 keys, with merges between
the steps and counted apart, and again with merges beside the steps in a thread, as in production; what filling the
state costs for each row; one row inserted, one key looked up; bytes for each row, on disk and in memory; restoring.
Each state has a process to itself, so that memory can be told.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types
from numpy.typing import NDArray

from instance.spine.files import RunFiles
from instance.spine.merging import Merge
from instance.spine.run import Run
from instance.spine.spine import Spine
from plainsong.types import DIFF, STEP, schema
from reconcile.frontiers import Antichain

SIZES = (100_000, 1_000_000, 10_000_000)
ROWS_A_KEY = 10
FILLING_ROWS = 10_000
STEPS, CHANGES, KEYS = 200, 1_000, 1_000
POINTS = 2_000
#: How far the since trails the steps.
RETAINED_STEPS = 10

COLUMNS = schema([("key", "bigint"), ("name", "string"), ("amount", "double")])
_NAMES = pa.array([f"name-{number}" for number in range(1000)])


class State:
    """A spine of ``rows`` rows that are replaced again and again; each row has a number and a version."""

    def __init__(self, spine: Spine, rows: int) -> None:
        self.spine = spine
        self.step = 0
        self.rows = rows
        self.versions = np.zeros(rows, np.int64)
        self.random = np.random.default_rng(1)

    def updates(self, numbers: NDArray[np.int64], versions: NDArray[np.int64], diffs: NDArray[np.int64]) -> pa.Table:
        steps = np.full(len(numbers), self.step)
        columns = [self.keys(numbers), _NAMES.take(pa.array(numbers % 1000)), pa.array(numbers + versions * 0.5)]
        return pa.table([*columns, pa.array(steps), pa.array(diffs)], names=[*COLUMNS.names, STEP, DIFF])

    def keys(self, numbers: NDArray[np.int64]) -> pa.Array:
        return pa.array(numbers % max(1, self.rows // ROWS_A_KEY))

    def change(self, changes: int) -> pa.Table:
        """The next step: half as many rows replaced."""
        self.step += 1
        numbers = np.unique(self.random.integers(0, self.rows, max(1, changes // 2)))
        before = self.versions[numbers]
        self.versions[numbers] += 1
        both, versions = np.concatenate([numbers, numbers]), np.concatenate([before, before + 1])
        return self.updates(both, versions, np.repeat(np.array([-1, 1]), len(numbers)))

    def some_keys(self, count: int) -> pa.Table:
        return pa.table([self.keys(self.random.integers(0, self.rows, count))], names=["key"])

    def compact(self) -> None:
        self.spine.compact(Antichain.at(max(0, self.step - RETAINED_STEPS)))


def merges(spine: Spine) -> Iterator[Merge]:
    while (merge := spine.merge_due()) is not None:
        yield merge


def merged(spine: Spine) -> float:
    """Merges whatever is due; the seconds that it took."""
    begin = time.perf_counter()
    for merge in merges(spine):
        spine.install(merge, merge.run())
    return time.perf_counter() - begin


def seconds(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def percentiles(spent: list[float]) -> dict[str, float]:
    """In milliseconds."""
    middle, high = np.percentile(spent, [50, 99])
    return {"p50_ms": _short(middle * 1e3), "p99_ms": _short(high * 1e3), "max_ms": _short(max(spent) * 1e3)}


def _short(number: float) -> float:
    return float(f"{number:.4g}")


def filled(state: State) -> dict[str, float]:
    """Inserts all rows, as many at once as a hydrating dataflow might."""
    inserting = merging = 0.0
    for begin in range(0, state.rows, FILLING_ROWS):
        numbers = np.arange(begin, min(state.rows, begin + FILLING_ROWS))
        table = state.updates(numbers, np.zeros_like(numbers), np.ones_like(numbers))
        inserting += seconds(lambda table=table: state.spine.insert(table))  # type: ignore[misc]  # a default binds it
        merging += merged(state.spine)
    rows = state.rows / 1e6
    return {"insert_us_a_row": _short(inserting / rows), "merge_us_a_row": _short(merging / rows)}


def stepped(state: State) -> dict[str, Any]:
    """Steps with merges between them."""
    inserts, lookups, both, merging = [], [], [], 0.0
    for _ in range(STEPS):
        table, keys = state.change(CHANGES), state.some_keys(KEYS)
        inserts.append(seconds(lambda table=table: state.spine.insert(table)))  # type: ignore[misc]
        lookups.append(seconds(lambda keys=keys: state.spine.lookup(keys, state.step)))  # type: ignore[misc]
        both.append(inserts[-1] + lookups[-1])
        state.compact()
        merging += merged(state.spine)
    result: dict[str, Any] = {"insert": percentiles(inserts), "lookup": percentiles(lookups), "both": percentiles(both)}
    return {**result, "merge_ms_a_step": _short(merging / STEPS * 1e3), "runs": state.spine.runs}


def stepped_beside_merges(state: State) -> dict[str, Any]:
    """Steps with merges in a thread; with one large merge of everything at the beginning."""
    spine = state.spine
    both: list[float] = []
    during = most = allocated = 0
    # Not what would be due, but the worst that ever is.
    largest = spine._merge(0, spine.runs, to_file=True)
    with ThreadPoolExecutor(2) as threads:
        under_way: dict[Future[Run | None], Merge] = {threads.submit(largest.run): largest}
        while len(both) < STEPS or largest in under_way.values():
            table, keys = state.change(CHANGES), state.some_keys(KEYS)
            begin = time.perf_counter()
            spine.insert(table)
            spine.lookup(keys, state.step)
            both.append(time.perf_counter() - begin)
            state.compact()
            during += largest in under_way.values()
            most = max(most, spine.runs)
            allocated = max(allocated, resident().get("allocated", 0))
            under_way |= {threads.submit(merge.run): merge for merge in merges(spine)}
            for future in [each for each in under_way if each.done()]:
                spine.install(under_way.pop(future), future.result())
        for future, merge in under_way.items():
            spine.install(merge, future.result())
    counts = {"steps_during_the_largest_merge": during, "runs_at_most": most}
    return {**percentiles(both), **counts, "allocated_at_most_mb": allocated // 1_000_000}


def points(state: State) -> dict[str, Any]:
    """Single keys and single rows."""
    keys = [state.some_keys(1) for _ in range(POINTS)]
    found = [seconds(lambda key=key: state.spine.lookup(key)) for key in keys]  # type: ignore[misc]
    rows = [state.change(2).slice(0, 1) for _ in range(POINTS)]
    inserted = [seconds(lambda row=row: state.spine.insert(row)) for row in rows]  # type: ignore[misc]
    return {"lookup_of_one_key": percentiles(found), "insert_of_one_row": percentiles(inserted)}


def resident() -> dict[str, int]:
    """Bytes of memory by kind: allocated, and mapped from files, which the system takes back when it needs to."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return {}
    found = {line.split(":")[0]: line.split()[1] for line in lines if line.startswith("Rss")}
    return {"allocated": int(found["RssAnon"]) * 1024, "mapped": int(found["RssFile"]) * 1024}


def restored(state: State, files: RunFiles) -> dict[str, float]:
    """From a manifest to the first answer."""
    while (merge := state.spine.saving()) is not None:
        state.spine.install(merge, merge.run())
    manifest = state.spine.manifest(Antichain.at(state.step + 1))
    files.remove(state.spine.obsolete(manifest))
    key = state.some_keys(1)
    quick = seconds(lambda: Spine.restore(files, manifest).lookup(key))
    whole = seconds(lambda: Spine.restore(files, manifest, whole=True).lookup(key))
    return {"ms": _short(quick * 1e3), "every_byte_checked_ms": _short(whole * 1e3)}


def figures(rows: int) -> dict[str, Any]:
    """All figures of a state of so many rows."""
    with tempfile.TemporaryDirectory(prefix="plainsong-spine-") as folder:
        files = RunFiles(Path(folder))
        before = resident()
        state = State(Spine(COLUMNS, ["key"], files), rows)
        result: dict[str, Any] = {"rows": rows, "filling": filled(state)}
        after = resident()
        result["bytes_a_row"] = {
            "stored": _short(state.spine.bytes / state.spine.rows),
            **{kind: _short((after[kind] - before[kind]) / rows) for kind in after},
        }
        result["step"] = stepped(state)
        result["step_beside_merges"] = stepped_beside_merges(state)
        result["point"] = points(state)
        result["restore"] = restored(state, files)
        return result


def main() -> None:
    parser = argparse.ArgumentParser(description="Figures of spines.")
    parser.add_argument("--rows", type=int, default=SIZES[-1], help="the largest state")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    arguments = parser.parse_args()
    sizes = [size for size in SIZES if size <= arguments.rows] or [arguments.rows]
    results = []
    for size in sizes:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
            results.append(process.submit(figures, size).result())
    costs = [result["step"]["both"]["p50_ms"] for result in results]
    report = {"states": results, "growth": _short(costs[-1] / costs[0])}
    text = json.dumps(report, indent=2)
    sys.stdout.write(f"{text}\n")
    if arguments.json is not None:
        arguments.json.write_text(f"{text}\n")


if __name__ == "__main__":
    main()
