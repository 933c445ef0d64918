"""A real Spark cluster under real instances: the same views as on one machine, also while a worker is lost."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any
from zlib import crc32

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types
import pytest

import plainsong
from tests.processes.deployment import deployed
from tests.processes.waiting import online, until
from tests.spark.cluster import SparkCluster, spark_cluster
from tests.spark.histories import formats, history
from tests.sql.shapes import COLUMNS, SHAPES

pytestmark = pytest.mark.heavy

#: Joins, sets, aggregates, windows, what is recomputed, and functions.
CHOSEN = (
    "left join with more in ON",
    "full join using",
    "not in, linked",
    "scalar count, linked",
    "count distinct beside others",
    "rollup",
    "running sum of doubles",
    "top k per group",
    "except all",
    "order and limit",
    "lag and lead",
    "json",
    "texts",
)
#: Of the tables of the shapes; a table has no nested columns.
PLAIN = {name: [column for column in columns.split("|") if "<" not in column] for name, columns in COLUMNS.items()}
QUERIES = {shape: SHAPES[shape] for shape in CHOSEN} | {
    "nested": "SELECT i, named_struct('x', i) AS st FROM (SELECT array(a, b) AS l FROM r) LATERAL VIEW explode(l) AS i"
}
#: Small executors, two of them, one on each worker.
EXECUTORS = ("--spark-conf", "spark.executor.memory=512m", "--spark-conf", "spark.executor.cores=1")
#: Views are computed by JVMs that share a few cores.
TIMEOUT_S = 120


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SparkCluster]:
    with spark_cluster(tmp_path / "spark") as cluster:
        yield cluster


def rows(client: plainsong.Client, name: str, step: int) -> list[str]:
    found = client.peek(name, step=step, timeout=TIMEOUT_S).to_arrow().to_pylist()
    return sorted(repr(row) for row in found)


def changed(client: plainsong.Client, random: Random) -> Iterator[int]:
    """Changes all tables, again and again; gives the step of each change."""
    for name in COLUMNS:
        for added, _ in history(random, name, 3, ""):
            if added:
                table = pa.table(formats()[name].arrays(added), schema=formats()[name].schema)
                table = table.select([column.split()[0] for column in PLAIN[name]])
                yield client.insert(name, table, timeout=TIMEOUT_S).step
    yield client.delete("r", where="b = 1 OR a IS NULL", timeout=TIMEOUT_S).step
    yield client.update("t", {"x": "x + 1"}, where="x > 0", timeout=TIMEOUT_S).step


def test_a_cluster_keeps_the_same_views_as_one_machine(tmp_path: Path, cluster: SparkCluster) -> None:
    with deployed(tmp_path) as deployment:
        deployment.start()
        _, away = deployment.instance(1, "--runtime", "spark", "--spark-master", cluster.master, *EXECUTORS)
        _, here = deployment.instance(2, "--runtime", "spark", "--spark-master", "local[1]")
        with deployment.client() as client:
            client.create_cluster("away", addresses=[away])
            client.create_cluster("here", addresses=[here])
            for name, columns in PLAIN.items():
                client.create_table(
                    name,
                    [(column.split()[0], column.split()[1].replace("!", " not null")) for column in columns],
                    cluster="here",
                )
            for number, shape in enumerate(QUERIES):
                client.create_view(f"v{number}", QUERIES[shape])
                for place in ("away", "here"):
                    client.create_index(f"v{number}", name=f"v{number}_{place}", cluster=place)

            steps = [*changed(client, Random(7))]

            filled = 0
            for number, shape in enumerate(QUERIES):
                for step in steps:
                    found = rows(client, f"v{number}_away", step)
                    filled += bool(found)
                    assert found == rows(client, f"v{number}_here", step), f"{shape} at step {step}"
            assert filled > len(QUERIES)
            assert [each.error for each in client.objects()] == [""] * len(client.objects())
        assert all(worker.started_tasks() for worker in cluster.workers)


#: Seconds of work for each row, in one task.
SLOW = """SELECT k, aggregate(sequence(1, 4000000), CAST(0 AS BIGINT), (sum, x) -> sum + (x * v) % 7) AS n FROM t"""


def slow(v: int) -> int:
    return sum((x * v) % 7 for x in range(1, 4_000_001))


def test_the_loss_of_a_worker_in_the_middle_of_a_step_only_delays_it(tmp_path: Path, cluster: SparkCluster) -> None:
    with deployed(tmp_path) as deployment, ThreadPoolExecutor(1) as thread:
        deployment.start()
        instance, address = deployment.instance(1, "--runtime", "spark", "--spark-master", cluster.master, *EXECUTORS)
        with deployment.client() as client:
            client.create_cluster("main", addresses=[address])
            client.create_table("t", {"k": "int", "v": "bigint"})
            client.create_view("w", SLOW)
            client.create_index("w", ["k"], cluster="main")
            until(client, online(1))
            assert len(client.peek("w", timeout=TIMEOUT_S)) == 0

            client.insert("t", [{"k": k, "v": k} for k in range(8)])
            answer = thread.submit(lambda: client.peek("w", timeout=TIMEOUT_S))
            lost = cluster.busy_worker()
            tasks = lost.running_tasks()
            lost.kill_all()

            found: Any = answer.result()
            (other,) = [worker for worker in cluster.workers if worker is not lost]
            (replica,) = client.clusters()[0].replicas
            assert {(row.k, row.n) for row in found} == {(k, slow(k)) for k in range(8)}
            assert lost.running_tasks() >= tasks, "it was in the middle of them"
            assert other.started_tasks(), "the other one did them again"
            assert (replica.incarnation, instance.process.poll()) == (1, None)
            client.insert("t", [{"k": 9, "v": 9}])
            assert [row.n for row in client.lookup("w", 9, timeout=TIMEOUT_S)] == [slow(9)]
            assert [each.error for each in client.objects()] == [""] * 3


def test_what_is_too_large_to_be_sent_along_is_read_from_the_folder_that_all_share(
    tmp_path: Path, cluster: SparkCluster
) -> None:
    shared = tmp_path / "shared"
    with deployed(tmp_path) as deployment:
        deployment.start()
        options = ("--runtime", "spark", "--spark-master", cluster.master, "--spark-scratch", str(shared), *EXECUTORS)
        _, address = deployment.instance(1, *options)
        with deployment.client() as client:
            client.create_cluster("main", addresses=[address])
            client.create_table("t", {"k": "int", "text": "string"})
            client.create_view("w", "SELECT k % 7 AS k, sum(crc32(text)) AS n FROM t GROUP BY k % 7")
            client.create_index("w", ["k"], cluster="main")

            texts = [f"{k:0100}" for k in range(60_000)]
            large = pa.table({"k": pa.array(range(60_000), pa.int32()), "text": texts})
            client.insert("t", large)
            found = client.peek("w", timeout=TIMEOUT_S)

            assert {(row.k, row.n) for row in found} == {
                (k, sum(crc32(text.encode()) for text in texts[k::7])) for k in range(7)
            }
        logs = [log.read_text(errors="replace") for worker in cluster.workers for log in worker.work.glob("*/*/stderr")]
        assert any(f"file://{shared}/" in log for log in logs), "an executor read it there"
        assert [path for path in shared.rglob("*") if path.is_file()] == []
