"""Figures of operators over spines: ``python -P -m instance.arranged.bench [--rows N] [--json FILE]``.

Does a small step cost the same on a large state? For states of 100 thousand rows, of 1 million and so on up to
``--rows``, 10 rows a key: *accumulate* (count, sum of a bigint, average of a double), *extremes* (least and greatest
double) and *join* (each row with the one row of its key): hydration in one range of steps, beside Arrow's own
aggregation or join of the same rows and the inserts into spines, which alone cost so much; a step of 1,000 changes (500
rows replaced), with merges between the steps and counted apart, and again with merges beside the steps, as in
production; bytes for each row of state. Each operator and size has a process to itself, so that memory can be told.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types
from numpy.typing import NDArray

from instance.arranged.group import Group
from instance.arranged.join import Join
from instance.arranged.operator import ArrangedOperator, Setting
from instance.arranged.places import Passing
from instance.memory.batch import Batch
from instance.memory.rows import declared_format
from instance.spine.bench import CHANGES, ROWS_A_KEY, SIZES, STEPS, merged, percentiles, resident, seconds
from instance.spine.spine import Spine
from plainsong.types import DIFF, STEP
from reconcile.frontiers import Antichain

KINDS = ("accumulate", "extremes", "join")
FORMAT = declared_format((("key", "bigint"), ("amount", "bigint"), ("price", "double")))
OTHER = declared_format((("id", "bigint"), ("name", "string")))


def _short(number: float) -> float:
    return float(f"{number:.4g}")


class Input:
    """Rows that are replaced again and again; each has a number and a version."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.keys = max(1, rows // ROWS_A_KEY)
        self.step = 0
        self._versions = np.zeros(rows, np.int64)
        self._random = np.random.default_rng(1)

    def contents(self) -> Batch:
        numbers = self._random.permutation(self.rows)
        return self._batch(numbers, np.zeros_like(numbers), np.ones_like(numbers))

    def others(self) -> Batch:
        """One row for each key."""
        numbers = self._random.permutation(self.keys)
        names = pa.array([f"name-{number}" for number in range(1000)]).take(pa.array(numbers % 1000))
        arrays = [pa.array(numbers), names, pa.array(np.zeros_like(numbers)), pa.array(np.ones_like(numbers))]
        return Batch.of_arrow(OTHER, pa.RecordBatch.from_arrays(arrays, schema=OTHER.updates_schema))

    def change(self) -> Batch:
        """The next step: half as many rows replaced."""
        self.step += 1
        numbers = np.unique(self._random.integers(0, self.rows, CHANGES // 2))
        before = self._versions[numbers]
        self._versions[numbers] += 1
        both, versions = np.concatenate([numbers, numbers]), np.concatenate([before, before + 1])
        return self._batch(both, versions, np.repeat(np.array([-1, 1]), len(numbers)))

    def _batch(self, numbers: NDArray[np.int64], versions: NDArray[np.int64], diffs: NDArray[np.int64]) -> Batch:
        columns = [numbers % self.keys, numbers * 1_000 + versions, (numbers * 7919 % 100_003 + versions) * 0.01]
        arrays = [*columns, np.full(len(numbers), self.step), diffs]
        return Batch.of_arrow(
            FORMAT, pa.RecordBatch.from_arrays([pa.array(each) for each in arrays], schema=FORMAT.updates_schema)
        )


def operator_of(kind: str, setting: Setting) -> ArrangedOperator:
    match kind:
        case "accumulate":
            aggregates = (("n", "count", None), ("total", "sum", "amount"), ("mean", "avg", "price"))
            return Group(FORMAT, (("key", "key"),), aggregates, setting)
        case "extremes":
            return Group(FORMAT, (("key", "key"),), (("low", "min", "price"), ("high", "max", "price")), setting)
        case _:
            return Join(FORMAT, OTHER, (("key", "id"),), setting)


def changes_of(kind: str, change: Batch, other: Batch | None = None) -> list[Batch]:
    return [change, other or Batch.nothing(OTHER)] if kind == "join" else [change]


def yardstick(kind: str, batches: list[Batch]) -> Callable[[], object]:
    """The same from scratch, by Arrow."""
    table = batches[0].table
    match kind:
        case "accumulate":
            wanted = [([], "count_all"), ("amount", "sum"), ("price", "mean")]
            return lambda: table.group_by("key").aggregate(wanted)
        case "extremes":
            return lambda: table.group_by("key").aggregate([("price", "min"), ("price", "max")])
        case _:
            other = batches[1].table.drop_columns([STEP, DIFF])
            return lambda: table.join(other, "key", "id", join_type="inner")


def inserts(operator: ArrangedOperator) -> float:
    """What it takes to put the same rows into empty spines."""
    spent = 0.0
    for spine in operator.spines().values():
        pieces = list(spine.contents())
        table = pa.concat_tables(pieces)
        table = table.append_column(STEP, pa.array(np.zeros(table.num_rows, np.int64)))
        table = table.take(pa.array(np.random.default_rng(2).permutation(table.num_rows)))
        fresh = Spine(spine.schema, spine.key)
        spent += seconds(lambda fresh=fresh, table=table: fresh.insert(table))  # type: ignore[misc]  # defaults bind
    return spent


def tended(operator: ArrangedOperator) -> float:
    """Merges whatever is due; the seconds that it took."""
    for spine in operator.spines().values():
        spine.compact(Antichain.at(spine.newest + 1))
    return sum(merged(spine) for spine in operator.spines().values())


def hydrated(kind: str, operator: ArrangedOperator, input: Input) -> dict[str, float]:
    batches = changes_of(kind, input.contents(), input.others() if kind == "join" else None)
    before = resident()
    spent = seconds(lambda: operator.apply(batches, 0))
    merging = tended(operator)
    pa.default_memory_pool().release_unused()
    after = resident()
    # The better of two: the first to ask for memory pays for it, as hydration does.
    arrow = min(seconds(yardstick(kind, batches)) for _ in range(2))
    spines = operator.spines().values()
    alone = inserts(operator)
    return {
        "seconds": _short(spent),
        "merge_seconds": _short(merging),
        "arrow_seconds": _short(arrow),
        "insert_seconds": _short(alone),
        "ratio": _short(spent / (arrow + alone)),
        "rows_of_state": sum(spine.rows for spine in spines),
        "bytes_a_row_of_state": _short(sum(spine.bytes for spine in spines) / sum(spine.rows for spine in spines)),
        **{f"{name}_bytes_a_row": _short((after[name] - before[name]) / input.rows) for name in after},
    }


def stepped(kind: str, operator: ArrangedOperator, input: Input) -> dict[str, Any]:
    """Steps with merges between them."""
    spent, merging = [], 0.0
    for _ in range(STEPS):
        changes = changes_of(kind, input.change())
        spent.append(seconds(lambda changes=changes: operator.apply(changes, input.step)))  # type: ignore[misc]
        merging += tended(operator)
    return {**percentiles(spent), "merge_ms_a_step": _short(merging / STEPS * 1e3)}


async def stepped_beside_merges(kind: str, operator: ArrangedOperator, input: Input) -> dict[str, Any]:
    """Steps as in production."""
    spent = []
    loop = asyncio.get_running_loop()
    for _ in range(STEPS):
        changes = changes_of(kind, input.change())
        begin = loop.time()
        await operator.applied(changes, input.step)
        spent.append(loop.time() - begin)
        await asyncio.sleep(0)
    await operator.settled()
    return percentiles(spent)


def figures(kind: str, rows: int) -> dict[str, Any]:
    """All figures of one operator with so many rows of state."""
    with tempfile.TemporaryDirectory(prefix="plainsong-arranged-") as folder:
        operator = operator_of(kind, Setting(place=Passing(Path(folder) / "operator")))
        input = Input(rows)
        result: dict[str, Any] = {"operator": kind, "rows": rows, "hydration": hydrated(kind, operator, input)}
        result["step"] = stepped(kind, operator, input)
        result["step_beside_merges"] = asyncio.run(stepped_beside_merges(kind, operator, input))
        return result


def growth(results: list[dict[str, Any]]) -> dict[str, float]:
    """The cost of a step on the largest state, by that on the smallest; merges in it on average."""
    first, last = results[0]["step"], results[-1]["step"]
    found = {place: _short(last[place] / first[place]) for place in ("p50_ms", "p99_ms")}
    whole = [each["p50_ms"] + each["merge_ms_a_step"] for each in (first, last)]
    return {**found, "with_merges": _short(whole[1] / whole[0])}


def main() -> None:
    parser = argparse.ArgumentParser(description="Figures of operators over spines.")
    parser.add_argument("--rows", type=int, default=SIZES[-1], help="the largest state")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, help="which operators")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    arguments = parser.parse_args()
    sizes = [size for size in SIZES if size <= arguments.rows] or [arguments.rows]
    report: dict[str, Any] = {}
    for kind in arguments.kinds:
        results = []
        for size in sizes:
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
                results.append(process.submit(figures, kind, size).result())
        report[kind] = {"states": results, "growth": growth(results)}
    text = json.dumps(report, indent=2)
    sys.stdout.write(f"{text}\n")
    if arguments.json is not None:
        arguments.json.write_text(f"{text}\n")


if __name__ == "__main__":
    main()
