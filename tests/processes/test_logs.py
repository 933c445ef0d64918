"""What replicas tell of themselves: read like anything else, one replica at a time, written by nobody."""

import asyncio
from collections.abc import Callable, Iterator

import pytest

import plainsong
import plainsong.aio
from tests.processes.deployment import Deployment, deployed
from tests.processes.waiting import online, until

Case = tuple[Deployment, plainsong.Client]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Case]:
    with deployed(tmp_path_factory.mktemp("logs")) as deployment:
        deployment.start()
        with deployment.client() as client:
            client.create_cluster("main", replicas=2)
            client.create_cluster("empty", replicas=0)
            client.create_table("t", {"k": "int", "v": "bigint"}, cluster="main")
            client.create_view("totals", "SELECT k, sum(v) AS total FROM t GROUP BY k")
            client.create_index("totals", ["k"], cluster="main")
            client.create_index("t", ["k"], cluster="main")
            client.insert("t", [{"k": 1, "v": 5}, {"k": 1, "v": 6}, {"k": 2, "v": 0}])
            until(client, online(2))
            # Whoever has answered for the newest step has taken it in.
            for replica in (1, 2):
                client.peek("totals", replica=replica)
                client.peek("t", replica=replica)
            yield deployment, client


def ids(client: plainsong.Client) -> dict[str, str]:
    return {each.name: str(each.id) for each in client.objects()}


@pytest.mark.parametrize("replica", [1, 2])
def test_frontiers_are_those_that_everybody_is_told(running: Case, replica: int) -> None:
    _, client = running
    known = ids(client)

    found = {row.id: row for row in client.peek("plainsong.frontiers", replica=replica)}

    for name in ("totals_by_k", "t_by_k"):
        told = client.frontiers(name)[name]
        assert (found[known[name]].kind, found[known[name]].upper) == ("index", told.upper.step)


def test_dataflows_arrangements_and_steps_say_what_runs(running: Case) -> None:
    _, client = running
    totals, t = ids(client)["totals_by_k"], ids(client)["t"]

    (dataflow,) = client.peek("plainsong.dataflows", where=f"id = '{totals}'", replica=1)
    kept = client.query(f"SELECT operator, rows FROM plainsong.arrangements WHERE dataflow = '{totals}'", replica=1)
    steps = client.peek("plainsong.steps", where=f"dataflow = '{totals}'", replica=1)

    assert (dataflow.exports, dataflow.imports, dataflow.state, dataflow.error) == (totals, t, "running", None)
    assert {(row.operator, row.rows) for row in kept} == {("index", 2), ("group", 2)}
    assert sum(row.rows_in for row in steps) == 3
    assert sum(row.rows_out for row in steps) == 2
    assert all(row.duration_us > 0 and row.lower < row.upper for row in steps)


def test_queries_take_them_for_relations(running: Case) -> None:
    _, client = running

    joined = client.query(
        "SELECT f.kind, count(*) AS n FROM plainsong.frontiers f JOIN PLAINSONG.dataflows AS d ON f.id = d.id"
        " WHERE d.state = 'running' AND f.kind = 'index' AND f.id LIKE 'u%' GROUP BY f.kind",
        replica=2,
        consistency="serializable",
    )

    assert [(row.kind, row.n) for row in joined] == [("index", 2)]


def test_both_clients_read_them(running: Case) -> None:
    deployment, _ = running

    async def asked() -> int:
        async with plainsong.aio.connect(deployment.address) as client:
            return len(await client.peek("plainsong.dataflows", replica=1))

    assert asyncio.run(asked()) >= 2


def test_a_failed_dataflow_says_why(running: Case) -> None:
    _, client = running
    client.create_materialized_view("bad", "SELECT k, 1 DIV v AS n FROM t", cluster="main")
    until(client, lambda status: any(each.name == "bad" and each.error for each in status.objects))
    bad = ids(client)["bad"]

    failed = [
        row
        for replica in (1, 2)
        for row in client.peek("plainsong.dataflows", where=f"id = '{bad}' AND state = 'failed'", replica=replica)
    ]

    assert failed
    assert all(row.error for row in failed)
    client.drop("bad")


REFUSED: dict[str, tuple[str, Callable[[plainsong.Client], object]]] = {
    "peek of nobody": ("which replica", lambda client: client.peek("plainsong.frontiers")),
    "query of nobody": ("which replica", lambda client: client.query("SELECT * FROM plainsong.peeks", cluster="main")),
    "no such replica": ("no replica 99", lambda client: client.peek("plainsong.frontiers", replica=99)),
    "no such log": ("unknown table", lambda client: client.query("SELECT * FROM plainsong.nothing", replica=1)),
    "peek of no such log": ("there is no 'plainsong.no'", lambda client: client.peek("plainsong.no", replica=1)),
    "insert": ("only be read", lambda client: client.insert("plainsong.peeks", [{"peek": 1}])),
    "update": ("only be read", lambda client: client.update("plainsong.peeks", {"at": "1"}, where="true")),
    "delete": ("only be read", lambda client: client.delete("plainsong.peeks", where="true")),
    "drop": ("only be read", lambda client: client.drop("plainsong.frontiers")),
    "index": ("only be read", lambda client: client.create_index("plainsong.frontiers", cluster="main")),
    "tail": ("only be read", lambda client: next(client.tail("plainsong.frontiers", cluster="main"))),
    "view": ("cannot be part", lambda client: client.create_view("x", "SELECT id FROM plainsong.frontiers")),
    "materialized view": (
        "cannot be part",
        lambda client: client.create_materialized_view("x", "SELECT id FROM plainsong.steps", cluster="main"),
    ),
    "a table of that name": (
        "reserved",
        lambda client: client.create_table("Plainsong.mine", {"k": "int"}, cluster="main"),
    ),
    "the name itself": ("reserved", lambda client: client.create_view("plainsong", "SELECT k FROM t")),
}


@pytest.mark.parametrize("what", REFUSED)
def test_nothing_else_can_be_done_with_them(running: Case, what: str) -> None:
    _, client = running
    message, ask = REFUSED[what]

    with pytest.raises(plainsong.InvalidRequest, match=message) as refused:
        ask(client)

    assert refused.value.hint


def test_a_restarted_controller_and_replica_tell_again(running: Case) -> None:
    deployment, client = running
    totals = ids(client)["totals_by_k"]

    deployment.kill()
    deployment.start()
    until(client, online(2))

    assert [row.id for row in client.peek("plainsong.frontiers", where=f"id = '{totals}'", replica=2)] == [totals]
