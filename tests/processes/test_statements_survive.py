"""Statements and writes cut short by a power cut: after the restart each is entirely there or entirely not.

A statement is one durable write, so there are two places to die at: before it, and after it with nobody told.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

import plainsong
from reconcile.frontiers import Antichain
from tests.processes.deployment import Deployment, Program, deployed
from tests.processes.waiting import online, until

Statement = Callable[[plainsong.Client, float], object]
KEY = "sent twice"
STATEMENTS: dict[str, Statement] = {
    "create cluster": lambda client, patience: client.create_cluster(
        "second", replicas=0, timeout=patience, idempotency_key=KEY + "1"
    ),
    "add a replica": lambda client, patience: client.create_replica(
        "spare", address="127.0.0.1:1", timeout=patience, idempotency_key=KEY + "2"
    ),
    "create table": lambda client, patience: client.create_table(
        "made table", {"id": "bigint"}, cluster="main", timeout=patience, idempotency_key=KEY + "3"
    ),
    "create view": lambda client, patience: client.create_view(
        "made view", "SELECT id FROM t WHERE id > 1", timeout=patience, idempotency_key=KEY + "4"
    ),
    "create index": lambda client, patience: client.create_index(
        "t", ["id"], name="made index", timeout=patience, idempotency_key=KEY + "5"
    ),
    "create materialized view": lambda client, patience: client.create_materialized_view(
        "made kept view", "SELECT id FROM t", cluster="main", timeout=patience, idempotency_key=KEY + "6"
    ),
    "add columns": lambda client, patience: client.add_columns(
        "t", {"note": "string"}, timeout=patience, idempotency_key=KEY + "a"
    ),
    "drop index": lambda client, patience: client.drop("t_index", timeout=patience, idempotency_key=KEY + "7"),
    "drop with readers": lambda client, patience: client.drop(
        "t", cascade=True, timeout=patience, idempotency_key=KEY + "8"
    ),
    "drop cluster": lambda client, patience: client.drop_cluster(
        "spare", cascade=True, timeout=patience, idempotency_key=KEY + "9"
    ),
}


def prepared(deployment: Deployment) -> None:
    """A deployment with something in it, at rest."""
    deployment.start()
    with deployment.client() as client:
        client.create_cluster("main", replicas=1)
        client.create_cluster("spare", replicas=0)
        client.create_table("t", {"id": "bigint"}, cluster="main")
        client.create_view("v", "SELECT id FROM t")
        client.create_index("t", [], cluster="main")
        client.insert("t", [{"id": 1}, {"id": 2}])
        until(client, online(1))


def described(client: plainsong.Client) -> tuple[object, ...]:
    """All that a statement can change, as a client sees it."""
    clusters = {cluster.name: len(cluster.replicas) for cluster in client.clusters()}
    objects = {object.name: (object.kind, object.id, object.columns) for object in client.objects()}
    return clusters, objects, len(client.log())


@pytest.mark.parametrize("point", ["statement-before-commit", "statement-after-commit"])
def test_a_statement_is_there_or_not_and_sent_again_counts_once(tmp_path: Path, point: str) -> None:
    with deployed(tmp_path) as deployment:
        prepared(deployment)
        for name, statement in STATEMENTS.items():
            with deployment.client() as client:
                before = described(client)
            deployment.kill()
            armed = deployment.start(failpoint=point)
            with deployment.client() as client, pytest.raises(plainsong.PlainsongError):
                statement(client, 0.5)
            assert armed.wait() < 0, f"{name} did not pass {point}"

            deployment.start()
            with deployment.client() as client:
                cut_short = described(client)
                assert (cut_short == before) == (point == "statement-before-commit"), name
                statement(client, 30)
                after = described(client)
                assert after != before, name
                assert after == cut_short or cut_short == before, name
                for object in client.objects([plainsong.ObjectKind.INDEX]):
                    client.peek(object.name)


def upper(client: plainsong.Client, name: str) -> Antichain:
    return client.frontiers(name)[name].upper


@pytest.mark.parametrize(
    "point", ["step-before-commit", "step-after-commit", "shard-before-commit", "shard-after-commit"]
)
def test_a_write_cut_short_and_sent_again_counts_once(tmp_path: Path, point: str) -> None:
    with deployed(tmp_path) as deployment:
        deployment.start()
        with deployment.client() as client:
            client.create_cluster("main", replicas=1)
            client.create_table("t", {"id": "bigint"})
            client.insert("t", [{"id": 1}])
            before = upper(client, "t")
        deployment.kill()
        # The first passage is that of the barrier append at the start of the reign; it has risen when that is over.
        armed = deployment.start(failpoint=f"{point}:2")
        with deployment.client() as client:
            if point.startswith("step"):
                until(client, lambda _: upper(client, "t") > before)
            if point.startswith("step"):
                with pytest.raises(plainsong.PlainsongError):
                    client.insert("t", [{"id": 2}], timeout=1, idempotency_key="mine")
                assert armed.wait() < 0
                deployment.start()
            client.insert("t", [{"id": 2}], idempotency_key="mine")

            assert sorted(row.id for row in client.query("SELECT id FROM t")) == [1, 2]


@pytest.mark.parametrize("passage", range(1, 6))
@pytest.mark.parametrize("point", ["store-before-commit", "store-after-commit"])
def test_a_controller_may_die_at_any_commit_of_its_life(tmp_path: Path, point: str, passage: int) -> None:
    with deployed(tmp_path) as deployment:
        program = deployment.launch(failpoint=f"{point}:{passage}")
        made = make_until_it_dies(deployment, program)

        deployment.start()
        with deployment.client() as client:
            client.create_cluster("another", replicas=0)
            there = len(client.clusters()) - 1 + len(client.objects())

        assert there in (made, made + 1)


def make_until_it_dies(deployment: Deployment, program: Program) -> int:
    """How many statements were acknowledged before the controller died."""
    try:
        deployment.address = program.address()
    except AssertionError:  # it died before it listened
        return 0
    made = 0
    with deployment.client() as client:
        try:
            client.create_cluster("main", replicas=0, timeout=1)
            for number in range(10):
                made += 1
                client.create_table(f"t{number}", {"id": "bigint"}, timeout=1)
        except plainsong.PlainsongError:
            assert program.wait() < 0
            return made
    raise AssertionError("it never died")
