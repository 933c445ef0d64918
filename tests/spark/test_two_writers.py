"""F2b and F8: two replicas with other batches and other orders of rows write one view: one content, no orphans."""

import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from deltalake import DeltaTable

import plainsong
from controller.sql import CompiledQuery, compile_query
from instance.inputs import Written
from instance.memory.rows import Row, row_format
from instance.spark.rendering import spark_rules
from instance.spark.session import SparkHost
from reconcile.compute_actions import SetWritable
from reconcile.dataflow import MaterializedView
from reconcile.frontiers import Antichain
from reconcile.ids import GlobalId
from tests.memory.collections import Collection, Collections, MemoryOutput
from tests.memory.harness import Running, running
from tests.processes.deployment import Deployment, deployed
from tests.processes.waiting import online, until
from tests.spark.oracle import History, maintained, needs_spark
from tests.spark.shape_tables import shape_history
from tests.spark.test_exact_doubles import VALUES, bits
from tests.sql.shapes import SHAPE_TABLES

U1 = GlobalId("u", 1)
#: Doubles, decimals and ties; the first ones need no Spark.
IN_PROCESS = {
    "sums": "SELECT c, sum(d) AS s, avg(d) AS v, sum(m) AS t, avg(m) AS w, max(d) AS x FROM r GROUP BY c",
    "ties": "SELECT c, d, m FROM (SELECT c, d, m FROM r ORDER BY a LIMIT 3 OFFSET 1)",
    "join": "SELECT r.c, sum(r.d * t.x) AS s, avg(r.m) AS v FROM r JOIN t ON r.b = t.b GROUP BY r.c",
}
ON_SPARK = {
    "folds": "SELECT c, count(DISTINCT a) AS n, sum(d) AS s, avg(m) AS v, stddev(d) AS e FROM r GROUP BY c",
    "places": "SELECT c, d, m FROM (SELECT *, row_number() OVER (PARTITION BY c ORDER BY a) AS n FROM r) WHERE n <= 2",
    "lists": "SELECT b, collect_list(d) AS l, max_by(m, a) AS k FROM r GROUP BY b",
}


class WatchedOutput(MemoryOutput):
    """Notes who wrote what."""

    def __init__(self, collection: Collection, writer: int, wins: list[tuple[int, Antichain, Antichain]]) -> None:
        super().__init__(collection)
        self._writer = writer
        self._wins = wins

    async def append(self, lower: Antichain, upper: Antichain, updates: pa.Table) -> Written:
        if await self.upper() == lower:
            self._wins.append((self._writer, lower, upper))
        return await super().append(lower, upper, updates)


class OneShard:
    """The outputs of one replica, which are those of the other."""

    def __init__(
        self, shared: Collections, own: Collections, writer: int, wins: list[tuple[int, Antichain, Antichain]]
    ) -> None:
        self._shared, self._own, self._writer, self._wins = shared, own, writer, wins

    def open(self, id: GlobalId, schema: pa.Schema) -> WatchedOutput:
        shard = self._shared.collection(id, schema)
        self._own.share(id, shard)
        return WatchedOutput(shard, self._writer, self._wins)


def own_inputs(history: History, random: Random) -> Collections:
    """The inputs as one replica sees them: rows in an order of its own."""
    collections = Collections()
    for table in history.tables:
        collection = collections.create(str(table.id), [(column.name, column.type) for column in table.columns])
        for step, (added, gone) in enumerate(history.changes[table.name]):
            updates = [(row, 1) for row in added] + [(row, -1) for row in gone]
            random.shuffle(updates)
            for row, diff in updates:
                collection.append(step, row, diff=diff)
    return collections


async def written_by_two(
    history: History, compiled: CompiledQuery, random: Random, rules: Any
) -> tuple[Collection, list[tuple[int, Antichain, Antichain]]]:
    """The shard after two replicas, of which now one and now the other is ahead, have written it."""
    shared, wins = Collections(), list[tuple[int, Antichain, Antichain]]()
    inputs = [own_inputs(history, random) for _ in range(2)]
    for writer, own in enumerate(inputs):
        own.outputs = OneShard(shared, own, writer, wins)  # type: ignore[assignment]  # one shard for both
    async with running(inputs[0], rules) as one, running(inputs[1], rules) as other:
        imports = tuple(str(id) for id in compiled.reads)
        for it in (one, other):
            it.render(MaterializedView(id=U1), objects={"u1": compiled.plan}, imports=imports)
            it.perform(SetWritable(id=U1, writable=True))
        reached = [0, 0]
        while min(reached) < history.steps:
            ahead = random.choice([place for place in range(2) if reached[place] < history.steps])
            reached[ahead] = random.randint(reached[ahead] + 1, history.steps)
            for table in history.tables:
                inputs[ahead][str(table.id)].advance(reached[ahead])
            await _reached((one, other)[ahead], reached[ahead])
    return shared["u1"], wins


async def _reached(it: Running, step: int) -> None:
    await it.upper("u1", step)


def check_one_content(
    shard: Collection, wins: list[tuple[int, Antichain, Antichain]], expected: dict[int, Counter[Row]]
) -> None:
    lower = Antichain.at(0)
    for _, begin, end in wins:
        assert begin == lower, "each step is written once"
        lower = end
    for at, rows in expected.items():
        found = shard.contents(at)
        assert all(times > 0 for times in found.values()), "an orphan is left"
        assert {bits(row): n for row, n in found.items()} == {bits(row): n for row, n in rows.items()}


@pytest.mark.parametrize("name", IN_PROCESS)
@pytest.mark.asyncio
async def test_two_replicas_in_process_write_one_content(tmp_path: Path, name: str) -> None:
    compiled = compile_query(IN_PROCESS[name], SHAPE_TABLES, allow_order=False)
    assert not needs_spark(compiled)
    writers = set[int]()
    for seed in range(8):
        random = Random(f"{seed} {name}")
        history = _from_the_beginning(shape_history(random, (), VALUES))

        shard, wins = await written_by_two(history, compiled, random, {})

        expected = (await maintained(history, {name: compiled}, random, None, tmp_path))[name]
        assert not isinstance(expected, str)
        check_one_content(shard, wins, expected)
        writers |= {writer for writer, _, _ in wins}
    assert writers == {0, 1}


@pytest.mark.heavy
@pytest.mark.parametrize("name", ON_SPARK)
@pytest.mark.asyncio
async def test_two_replicas_on_spark_write_one_content(spark: SparkHost, tmp_path: Path, name: str) -> None:
    compiled = compile_query(ON_SPARK[name], SHAPE_TABLES, allow_order=False)
    writers = set[int]()
    for seed in range(4):
        random = Random(f"{seed} {name}")
        history = _from_the_beginning(shape_history(random, (), VALUES))

        shard, wins = await written_by_two(history, compiled, random, spark_rules(spark, tmp_path, tmp_path))

        expected = (await maintained(history, {name: compiled}, random, spark, tmp_path))[name]
        assert not isinstance(expected, str)
        check_one_content(shard, wins, expected)
        writers |= {writer for writer, _, _ in wins}
    assert writers == {0, 1}


def _from_the_beginning(history: History) -> History:
    return History(tables=history.tables, changes=history.changes, steps=history.steps, begin=0)


# --- processes ---------------------------------------------------------------------------------------------

SUMS = "SELECT k, count(*) AS n, sum(d) AS s, avg(d) AS v, sum(m) AS t, avg(m) AS w FROM t GROUP BY k"
FOLDS = "SELECT k, count(DISTINCT tag) AS n, sum(d) AS s, stddev(d) AS e, max_by(d, tag) AS b FROM t GROUP BY k"
TIES = "SELECT k, d, m FROM (SELECT k, d, m, row_number() OVER (PARTITION BY k ORDER BY tag) AS n FROM t) WHERE n <= 2"
VIEWS = {"sums": SUMS, "folds": FOLDS, "ties": TIES}


def some_rows(random: Random, count: int) -> list[dict[str, object]]:
    return [
        {
            "k": random.randrange(3),
            "tag": random.randrange(2),
            "d": random.choice([0.1, 0.2, 0.3, 1e17, -1e17, 1 / 3, 7.7]),
            "m": random.choice(["0.10", "3.33", "-7.77"]),
        }
        for _ in range(count)
    ]


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def shard_updates(deployment: Deployment, id: str) -> tuple[int, list[tuple[Row, int, int]]]:
    """The upper of a shard, and everything in it."""
    shard = DeltaTable(str(deployment.data / "shards" / id))
    schema = pa.schema(shard.schema().to_arrow())
    files = [pq.ParquetFile(file).read().cast(schema) for file in shard.file_uris()]
    table = pa.concat_tables([schema.empty_table(), *files])
    plain = table.drop_columns(["_step", "_diff"])
    format = row_format(tuple(plain.column_names), tuple(plain.schema.types))
    rows = format.rows([column.combine_chunks() for column in plain.columns], plain.num_rows)
    steps, diffs = table["_step"].to_pylist(), table["_diff"].to_pylist()
    upper = shard.transaction_version("upper")
    assert upper is not None
    return upper, list(zip(rows, steps, diffs, strict=True))


def check_shard(deployment: Deployment, client: plainsong.Client, name: str) -> None:
    """No step of the shard has an orphan or a group twice, and its last contents are what a new view computes."""
    [id] = [each.id for each in client.objects() if each.name == name]
    asked = Counter(bits(tuple(row)) for row in client.query(VIEWS[name]))
    upper, updates = shard_updates(deployment, str(id))
    contents: Counter[Row] = Counter()
    by_step: dict[int, list[tuple[Row, int]]] = {}
    for row, step, diff in updates:
        by_step.setdefault(step, []).append((row, diff))
    for step in sorted(by_step):
        for row, diff in by_step[step]:
            contents[bits(row)] += diff
        assert min(contents.values()) >= 0, f"an orphan in {name} at step {step}"
        contents = +contents
        if name != "ties":
            keys = [row[0] for row in contents.elements()]
            assert len(keys) == len(set(keys)), f"a group of {name} is there twice at step {step}"
    assert upper > max(by_step)
    assert contents == asked


@pytest.mark.heavy
def test_two_spark_replicas_that_take_turns_write_one_content(tmp_path: Path) -> None:
    random = Random(1)
    with deployed(tmp_path, "--heartbeat-deadline-ms", "1500") as deployment:
        deployment.start("--runtime", "spark", "--spark-master", "local[1]")
        with deployment.client() as client:
            client.create_cluster("main", replicas=2)
            client.create_table("t", {"k": "int", "tag": "int", "d": "double", "m": "decimal(10,2)"})
            for name, sql in VIEWS.items():
                client.create_materialized_view(name, sql, cluster="main")
            until(client, online(2))
            for turn in range(6):
                with stopped(deployment.replica_pid(turn % 2 + 1)):
                    for _ in range(4):
                        client.insert("t", some_rows(random, 5))
                    client.delete("t", where=f"k = {turn % 3} AND d > 1")
                # What the other one missed is due at once.
                client.insert("t", some_rows(random, 3))
                client.query("SELECT count(*) AS n FROM sums")
            until(client, online(2))
            for name in VIEWS:
                client.query(f"SELECT count(*) AS n FROM {name}")
                check_shard(deployment, client, name)
