"""A controller that is killed and comes back: nothing is computed again, nothing is lost, nothing is told twice."""

import os
import signal
from collections import Counter
from pathlib import Path

import plainsong
from tests.processes.deployment import Deployment, deployed
from tests.processes.waiting import online, until

#: Fifteen dataflows: indexes on tables, on views, on views over indexed views; joins; materialized views.
VIEWS = {
    "busy": "SELECT customer, sum(qty) AS total, count(*) AS n FROM orders GROUP BY customer",
    "big": "SELECT id, customer, qty FROM orders WHERE qty > 3",
    "named": "SELECT o.id, c.name, o.qty FROM orders o JOIN customers c ON o.customer = c.id",
    "very_busy": "SELECT customer, total FROM busy WHERE n > 1",
    "extremes": "SELECT customer, min(qty) AS least, max(qty) AS most FROM orders GROUP BY customer",
    "by_name": "SELECT name, sum(qty) AS total FROM named GROUP BY name",
}
MATERIALIZED = {
    "kept_totals": "SELECT customer, sum(qty) AS total FROM orders GROUP BY customer",
    "kept_names": "SELECT name, count(*) AS n FROM customers GROUP BY name",
    "kept_big": "SELECT id, qty FROM big",
}
DATAFLOWS = 15


def build(client: plainsong.Client) -> None:
    client.create_cluster("main", replicas=2)
    client.create_table("orders", {"id": "bigint not null", "customer": "int", "qty": "int"})
    client.create_table("customers", {"id": "int", "name": "string"})
    for name, sql in VIEWS.items():
        client.create_view(name, sql)
        client.create_index(name, [], cluster="main")
    client.create_index("orders", ["customer"])
    client.create_index("orders", ["id"])
    client.create_index("customers", ["id"])
    client.create_index("busy", ["customer"], cluster="main")
    client.create_index("named", ["id"], cluster="main")
    client.create_index("very_busy", ["customer"], cluster="main", name="very_busy_again")
    for name, sql in MATERIALIZED.items():
        client.create_materialized_view(name, sql)


def write(client: plainsong.Client, first: int, count: int = 5) -> None:
    for number in range(first, first + count):
        client.insert("orders", [{"id": number, "customer": number % 3, "qty": number % 7}])
        client.insert("customers", [{"id": number % 3, "name": f"name {number % 2}"}])


def uppers(client: plainsong.Client) -> dict[str, int]:
    return {one.name: one.upper.step or -1 for one in client.frontiers().objects}


def contents(client: plainsong.Client) -> dict[str, Counter[tuple[object, ...]]]:
    return {name: Counter(tuple(row) for row in client.query(f"SELECT * FROM {name}")) for name in VIEWS}


def started(folder: Deployment) -> plainsong.Client:
    folder.start()
    return folder.client()


def test_everything_that_runs_is_kept_and_goes_on_from_where_it_was(tmp_path: Path) -> None:
    with deployed(tmp_path, "--retention-ms", "500", "--resume-ms", "0", "--compaction-ms", "100") as deployment:
        with started(deployment) as client:
            build(client)
            write(client, 0)
            until(client, online(2))
            before, rows = uppers(client), contents(client)

            deployment.kill()
            deployment.start()
            status = until(client, online(2))
            until(client, lambda _: all(uppers(client)[name] >= upper for name, upper in before.items()))

            assert [(r.dataflows_kept, r.dataflows_replaced) for r in status.clusters[0].replicas] == [(15, 0)] * 2
            assert contents(client) == rows
            write(client, 100)
            assert sum(contents(client)["big"].values()) > sum(rows["big"].values())
        assert " ERROR " not in deployment.logs()
        assert "Traceback" not in deployment.logs()


def test_other_transient_ids_in_between_change_nothing(tmp_path: Path) -> None:
    with deployed(tmp_path) as deployment, started(deployment) as client:
        build(client)
        write(client, 0)
        for _ in range(3):
            contents(client)  # each query takes a transient id
        until(client, online(2))

        deployment.kill()
        deployment.start()
        contents(client)
        status = until(client, online(2))

        assert [(r.dataflows_kept, r.dataflows_replaced) for r in status.clusters[0].replicas] == [(15, 0)] * 2


def test_what_was_acknowledged_is_there_after_a_power_cut_of_everything(tmp_path: Path) -> None:
    with deployed(tmp_path) as deployment, started(deployment) as client:
        client.create_cluster("main", replicas=2)
        client.create_table("t", {"id": "bigint"})
        for number in range(20):
            client.insert("t", [{"id": number}])
        pids = [deployment.replica_pid(replica) for replica in (1, 2)]

        deployment.kill()
        kill_all(pids)
        deployment.start()

        assert sorted(row.id for row in client.query("SELECT id FROM t")) == list(range(20))


def test_the_same_insert_sent_to_the_next_controller_counts_once(tmp_path: Path) -> None:
    with deployed(tmp_path) as deployment, started(deployment) as client:
        client.create_cluster("main", replicas=1)
        client.create_table("t", {"id": "bigint"})
        client.insert("t", [{"id": 1}], idempotency_key="the same")

        deployment.kill()
        deployment.start()
        client.insert("t", [{"id": 1}], idempotency_key="the same")

        assert [row.id for row in client.query("SELECT id FROM t")] == [1]


def test_a_tail_resumes_without_a_gap_or_a_repeat(tmp_path: Path) -> None:
    with deployed(tmp_path) as deployment, started(deployment) as client:
        build(client)
        write(client, 0, 3)
        seen: Counter[tuple[object, ...]] = Counter()
        frontier = -1
        tail = iter(client.tail_batches("busy", cluster="main"))

        def follow(through: int) -> None:
            nonlocal frontier
            while frontier <= through:
                batch = next(tail)
                assert frontier in (-1, batch.lower.step)
                assert batch.upper.step is not None
                frontier = batch.upper.step
                for row in [] if batch.updates is None else batch.updates.to_pylist():
                    assert batch.lower.step <= row["_step"] < frontier
                    seen[row["customer"], row["total"], row["n"]] += row["_diff"]

        follow(client.frontiers().acknowledged)
        deployment.kill()
        deployment.start()
        write(client, 50, 3)
        follow(client.frontiers().acknowledged)

        assert +seen == Counter(tuple(row) for row in client.query("SELECT * FROM busy"))


def kill_all(pids: list[int]) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
