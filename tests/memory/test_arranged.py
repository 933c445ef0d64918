"""An index on a spine: large contents in files, merged while it is read, and nothing left when it ends."""

from pathlib import Path

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types
import pytest

from instance.memory.arranged import spines_in
from instance.memory.batch import Batch
from instance.memory.index import pieces
from instance.memory.rows import declared_format
from plainsong.types import DIFF, STEP
from reconcile.frontiers import Antichain
from reconcile.ids import GlobalId, Step

FORMAT = declared_format((("k", "bigint"), ("v", "string")))
U1 = GlobalId("u", 1)
ROWS = 200_000


def batch(step: int, keys: range, diff: int = 1) -> Batch:
    numbers = np.arange(keys.start, keys.stop, dtype=np.int64)
    columns = {
        "k": pa.array(numbers),
        "v": pa.array(numbers % 7).cast(pa.string()),
        STEP: pa.array(np.full(len(numbers), step)),
        DIFF: pa.array(np.full(len(numbers), diff)),
    }
    return Batch.of_table(FORMAT, pa.table(columns))


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("u1-*/run-*"))


@pytest.mark.asyncio
async def test_a_large_index_is_in_files_that_are_merged_while_it_is_read_and_end_with_it(tmp_path: Path) -> None:
    arranged = spines_in(tmp_path)(U1, FORMAT, ["k"])
    for step in range(4):
        await arranged.insert(batch(step, range(step * ROWS, (step + 1) * ROWS)))
        arranged.compact(Antichain.at(step))
    await arranged.insert(batch(4, range(ROWS), diff=-1))

    before = {step: sum([len(piece) async for piece in pieces(arranged, Step(step))]) for step in (3, 4)}
    found = [list(arranged.lookup((5,), Step(step)).updates) for step in (3, 4)]
    written = files(tmp_path)
    ending = arranged.stop()
    assert ending is not None
    await ending

    assert before == {3: 4 * ROWS, 4: 3 * ROWS}
    assert found == [[((5, "5"), 3, 1)], []]
    assert written
    assert not list(tmp_path.iterdir())
