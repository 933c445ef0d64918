"""Real instances that run on Spark: views that only Spark can compute, and a Spark that dies."""

import os
import signal
from contextlib import suppress
from pathlib import Path

import plainsong
from tests.processes.deployment import Deployment, deployed
from tests.processes.waiting import online, until

#: Beyond the operators in memory: a window, and an outer join.
BEST = "SELECT k, v FROM (SELECT k, v, row_number() OVER (PARTITION BY k ORDER BY v DESC) AS n FROM t) WHERE n = 1"
NAMED = "SELECT t.k, t.v, names.name FROM t LEFT JOIN names ON t.k = names.k"


def jvm_of(pid: int) -> int:
    """The JVM that an instance started."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        # pid (name) state parent ...; the name may hold anything but ends with the last bracket.
        with suppress(FileNotFoundError, ProcessLookupError):
            name, _, rest = stat.read_text().partition("(")[2].rpartition(")")
            if name == "java" and int(rest.split()[1]) == pid:
                return int(stat.parent.name)
    raise AssertionError(f"process {pid} has started no JVM")


def prepared(deployment: Deployment) -> None:
    deployment.start("--runtime", "spark", "--spark-master", "local[1]")
    with deployment.client() as client:
        client.create_cluster("main", replicas=1)
        client.create_table("t", {"k": "int", "v": "int"})
        client.create_table("names", {"k": "int", "name": "string"})
        client.create_view("best", BEST)
        client.create_index("best", ["k"], cluster="main")
        client.create_materialized_view("named", NAMED, cluster="main")
        client.insert("t", [{"k": 1, "v": 10}, {"k": 1, "v": 20}, {"k": 2, "v": 5}])
        client.insert("names", [{"k": 1, "name": "one"}])
        until(client, online(1))


def check(client: plainsong.Client, best: set[tuple[int, int]], named: set[tuple[int, int, str | None]]) -> None:
    assert {tuple(row) for row in client.query("SELECT k, v FROM best")} == best
    assert {tuple(row) for row in client.query("SELECT k, v, name FROM named")} == named


def test_views_that_only_spark_computes_are_kept_and_survive_the_death_of_spark(tmp_path: Path) -> None:
    with deployed(tmp_path) as deployment:
        prepared(deployment)
        with deployment.client() as client:
            check(client, {(1, 20), (2, 5)}, {(1, 10, "one"), (1, 20, "one"), (2, 5, None)})
            client.delete("t", where="v = 20")
            client.insert("names", [{"k": 2, "name": "two"}])
            check(client, {(1, 10), (2, 5)}, {(1, 10, "one"), (2, 5, "two")})

            os.kill(jvm_of(deployment.replica_pid(1)), signal.SIGKILL)
            client.insert("t", [{"k": 3, "v": 1}])
            check(client, {(1, 10), (2, 5), (3, 1)}, {(1, 10, "one"), (2, 5, "two"), (3, 1, None)})

            (replica,) = next(each.replicas for each in client.clusters() if each.name == "main")
            assert replica.incarnation == 2
        assert "the JVM is gone" in deployment.logs()
