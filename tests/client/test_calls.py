"""What the client sends, and what it makes of the replies."""

import asyncio
import inspect
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types
import pytest

import plainsong
from plainsong import calls
from plainsong.client import Client
from plainsong.v1 import controller_pb2 as pb
from reconcile.frontiers import CLOSED, Antichain
from reconcile.ids import GlobalId
from reconcile.limits import MESSAGE_BYTES_MAX, RESULT_BYTES_MAX
from tests.client.serving import SERVICE, Controller, arrow, batch, serving, serving_in_a_thread

#: One call of every method of the service, so that none is forgotten.
EVERY: dict[str, Callable[[Any], Any]] = {
    "CreateCluster": lambda client: client.create_cluster("c", replicas=2),
    "AlterCluster": lambda client: client.alter_cluster("c", replicas=3),
    "DropCluster": lambda client: client.drop_cluster("c", cascade=True),
    "ListClusters": lambda client: client.clusters(),
    "CreateReplica": lambda client: client.create_replica("c", address="127.0.0.1:1"),
    "DropReplica": lambda client: client.drop_replica("c", 2),
    "CreateTable": lambda client: client.create_table("t", {"id": "bigint"}, cluster="c"),
    "CreateSource": lambda client: client.create_source("s", "kafka", {"id": "bigint"}, options={"topic": "x"}),
    "CreateView": lambda client: client.create_view("v", "select 1"),
    "CreateMaterializedView": lambda client: client.create_materialized_view("m", "select 1"),
    "CreateIndex": lambda client: client.create_index("t", ["id"]),
    "AddColumns": lambda client: client.add_columns("t", {"note": "string"}),
    "DropObject": lambda client: client.drop("t"),
    "ListObjects": lambda client: client.objects(["table"]),
    "CreateFunction": lambda client: client.create_function("f", "def f(x): return x", args=["int"], returns="int"),
    "DropFunction": lambda client: client.drop_function("f"),
    "ListFunctions": lambda client: client.functions(),
    "InsertRows": lambda client: client.insert("t", [{"id": 1}]),
    "UpdateRows": lambda client: client.update("t", {"id": "id + 1"}, where="id = 1"),
    "DeleteRows": lambda client: client.delete("t", where="id = 1"),
    "Lookup": lambda client: client.lookup("t", 1),
    "Peek": lambda client: client.peek("t"),
    "Query": lambda client: client.query("select 1"),
    "Tail": lambda client: client.tail("t"),
    "Explain": lambda client: client.explain("v"),
    "GetFrontiers": lambda client: client.frontiers(),
    "GetStatus": lambda client: client.status(),
    "ReadLog": lambda client: client.log("c"),
    "Watch": lambda client: client.watch(),
}
STREAMS = {"Tail", "Watch"}
CHANGING = {name for name in EVERY if name.startswith(("Create", "Alter", "Add", "Drop", "Insert", "Update", "Delete"))}


def answering() -> Controller:
    rows = arrow(n=[1])
    return Controller(
        Lookup=pb.LookupResponse(step=1, arrow=rows),
        Peek=pb.ControllerServicePeekResponse(step=1, arrow=rows),
        Query=pb.QueryResponse(step=1, arrow=rows),
        Tail=batch(0, None),
        Watch=pb.WatchResponse(object_dropped=pb.ObjectDropped(name="t")),
    )


def test_there_is_a_call_for_every_method_of_the_service() -> None:
    assert set(EVERY) == {method.name for method in SERVICE.methods}


@pytest.mark.parametrize("method", EVERY)
def test_every_method_is_called_with_threads(method: str) -> None:
    controller = answering()

    with serving_in_a_thread(controller) as address, plainsong.connect(address) as client:
        result = EVERY[method](client)
        if method in STREAMS:
            next(result)

    assert [name for name, _ in controller.heard] == [method]


@pytest.mark.asyncio
async def test_every_method_is_called_with_asyncio() -> None:
    controller = answering()

    async with serving(controller) as address, plainsong.aio.connect(address) as client:
        for method, call in EVERY.items():
            result = call(client)
            await (anext(result) if method in STREAMS else result)

    assert [name for name, _ in controller.heard] == list(EVERY)


@pytest.mark.asyncio
async def test_every_call_that_changes_something_has_a_key_of_its_own() -> None:
    controller = answering()

    async with serving(controller) as address, plainsong.aio.connect(address) as client:
        for method in [*CHANGING, *CHANGING]:
            await EVERY[method](client)

    keys = [request.idempotency_key for _, request in controller.heard]
    assert len(set(keys)) == 2 * len(CHANGING)
    assert all(keys)


def test_both_clients_have_the_same_methods_with_the_same_parameters_and_documentation() -> None:
    def described(kind: type[object]) -> dict[str, tuple[object, str | None]]:
        return {
            name: (inspect.signature(found).replace(return_annotation=None), found.__doc__)
            for name, found in vars(kind).items()
            if not name.startswith("_") and callable(found) and name != "close"
        }

    threads, aio = described(plainsong.Client), described(plainsong.AsyncClient)

    assert threads == aio
    assert all(documentation for _, documentation in threads.values())
    assert {name for name in vars(calls) if name in threads} == set(threads)


def test_a_bound_method_shows_its_parameters() -> None:
    with plainsong.connect("127.0.0.1:1") as client:
        assert list(inspect.signature(client.drop_replica).parameters)[:2] == ["cluster", "replica"]


class Order(NamedTuple):
    id: int
    name: str


@pytest.mark.parametrize(
    "rows",
    [
        [{"id": 1, "name": "a"}, {"id": 2}],
        [Order(1, "a"), Order(2, None)],  # type: ignore[arg-type]
        [(1, "a"), (2, None)],
        pa.table({"id": [1, 2], "name": ["a", None]}),
        pa.record_batch({"id": [1, 2], "name": ["a", None]}),
    ],
    ids=["dictionaries", "named tuples", "tuples", "table", "record batch"],
)
def test_rows_of_every_form_arrive_as_the_same_arrow(rows: Any) -> None:
    columns = [pb.Column(name="id", type="bigint"), pb.Column(name="name", type="string")]
    controller = Controller(
        ListObjects=pb.ListObjectsResponse(objects=[pb.Object(name="orders", columns=columns)]),
        InsertRows=pb.InsertRowsResponse(step=9, rows=2),
    )

    with serving_in_a_thread(controller) as address, plainsong.connect(address) as client:
        written = client.insert("orders", rows)

    assert written == plainsong.Written(step=9, rows=2)
    assert controller.requests("InsertRows")[0].arrow == arrow(id=[1, 2], name=["a", None])


def test_a_read_gives_rows_by_place_and_by_name_and_as_arrow() -> None:
    parts = [pb.QueryResponse(step=4, arrow=arrow(id=[1, 2], name=["a", None])), pb.QueryResponse(step=4)]
    parts[1].arrow = arrow(id=[3], name=["c"])

    with serving_in_a_thread(Controller(Query=parts)) as address, plainsong.connect(address) as client:
        rows = client.query("select * from t")

    assert rows.step == 4
    assert list(rows) == [(1, "a"), (2, None), (3, "c")]
    assert (rows[2].id, rows[2]["name"], dict(rows[2])) == (3, "c", {"id": 3, "name": "c"})
    assert rows.to_arrow().equals(pa.table({"id": [1, 2, 3], "name": ["a", None, "c"]}).combine_chunks())
    assert repr(rows) == "id | name\n---+-----\n1  | a\n2  | NULL\n3  | c\n(3 rows at step 4)"


def test_a_key_of_an_index_keeps_the_type_of_each_value() -> None:
    key = (True, -7, "x", b"\x00", None, Decimal("1.50"))

    call = calls.lookup("t", *key)

    assert isinstance(call.request, pb.LookupRequest)
    assert list(call.request.key) == [
        pb.Value(boolean=True),
        pb.Value(whole=-7),
        pb.Value(text="x"),
        pb.Value(binary=b"\x00"),
        pb.Value(),
        pb.Value(text="1.50"),
    ]


def test_columns_are_given_as_in_sql() -> None:
    call = calls.create_table("t", {"id": "bigint NOT NULL", "price": "decimal(10, 2)"})

    assert isinstance(call.request, pb.CreateTableRequest)
    assert list(call.request.columns) == [
        pb.Column(name="id", type="bigint", not_null=True),
        pb.Column(name="price", type="decimal(10, 2)"),
    ]


def test_the_server_gives_up_before_the_client_does_so_that_it_can_say_why() -> None:
    request = calls.query("select 1", timeout=30).attempt(10.0)

    assert isinstance(request, pb.QueryRequest)
    assert request.timeout_ms == 9_750


def test_status_and_frontiers_are_plain_values() -> None:
    reply = pb.GetFrontiersResponse(opened=9, acknowledged=8)
    told = reply.frontiers.add(name="v", id={"kind": 2, "number": 7}, since={"step": 3}, upper={})
    told.replicas.add(replica=1, upper={"step": 8})

    with serving_in_a_thread(Controller(GetFrontiers=reply)) as address, plainsong.connect(address) as client:
        frontiers = client.frontiers("v")

    assert frontiers["v"] == plainsong.ObjectFrontier(
        name="v",
        id=GlobalId("u", 7),
        since=Antichain.at(3),
        upper=CLOSED,
        replicas=((1, Antichain.at(8)),),
    )


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda c: c.insert("t", []), "there are no rows to insert"),
        (lambda c: c.insert("t", [{"a": 1}, {"a": "x"}]), "the values of column 'a' have no common type"),
        (lambda c: c.insert("t", [{"a": [1]}]), "column 'a': "),
        (lambda c: c.insert("t", [{"a": 2**70}]), "the values of column 'a' have no common type"),
        (lambda c: c.insert("t", [(1, 2), (3,)], columns=["a", "b"]), "row 2 does not fit the columns"),
        (lambda c: c.insert("t", [{"a": "x" * RESULT_BYTES_MAX}]), "the rows are too many for one insert: "),
        (lambda c: c.query("x" * MESSAGE_BYTES_MAX), "the request is too large: "),
        (lambda c: c.delete("t", where=" "), "there is no condition"),
        (lambda c: c.update("t", {}, where="true"), "there is nothing to set"),
        (lambda c: c.lookup("t", 2**63), f"{2**63} is not a key"),
        (lambda c: c.lookup("t", object()), "a value of type object is not a key"),
        (lambda c: c.query("select 1", consistency="eventual"), "there is no consistency 'eventual'"),
        (lambda c: c.query("select 1", timeout=0), "timeout 0 leaves no time"),
        (lambda c: c.explain(), "either a name or a query is explained"),
        (lambda c: c.objects(["tabel"]), "there is no kind "),
        (lambda c: c.create_index("t", "id"), "key must be a list"),
        (lambda c: c.create_cluster("c", replicas=-1), "replicas cannot be -1"),
        (lambda c: c.tail("t", resume=1, as_of=1), "a tail begins at a step or goes on from one, not both"),
    ],
)
def test_what_cannot_be_asked_is_refused_before_it_is_sent(ask: Callable[[Client], Any], message: str) -> None:
    with plainsong.connect("127.0.0.1:1") as client, pytest.raises(plainsong.InvalidRequest) as refused:
        ask(client)

    assert refused.value.message.startswith(message)
    assert refused.value.reason == "INVALID_REQUEST"


@pytest.mark.parametrize(
    "chunks",
    [
        [],
        [pb.QueryResponse(step=1, arrow=b"garbage")],
        [pb.QueryResponse(step=1, arrow=arrow(n=[1])), pb.QueryResponse(step=2, arrow=arrow(n=[1]))],
        [pb.QueryResponse(step=1, arrow=arrow(n=[1])), pb.QueryResponse(step=1, arrow=arrow(m=[1]))],
    ],
    ids=["none", "damaged", "steps", "columns"],
)
def test_a_result_that_makes_no_sense_is_the_servers_violation(chunks: list[pb.QueryResponse]) -> None:
    with (
        serving_in_a_thread(Controller(Query=chunks)) as address,
        plainsong.connect(address) as client,
        pytest.raises(plainsong.ProtocolViolation),
    ):
        client.query("select 1")


def test_importing_the_client_loads_no_database_no_spark_and_no_parser() -> None:
    script = """
import sys
import plainsong
plainsong.connect, plainsong.aio.connect, plainsong.Rows, plainsong.InvalidRequest
strays = {'pyspark', 'sqlalchemy', 'sqlglot', 'alembic', 'pandas', 'typer', 'cryptography'} & set(sys.modules)
assert not strays, strays
"""

    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)

    assert (ran.returncode, ran.stderr) == (0, "")


def test_every_public_name_is_there() -> None:
    assert [name for name in plainsong.__all__ if getattr(plainsong, name, None) is None] == []
    assert set(plainsong.__all__) <= set(dir(plainsong))
    with pytest.raises(AttributeError):
        _ = plainsong.nonsense


@pytest.mark.asyncio
async def test_a_closed_client_says_that_it_is_closed() -> None:
    async def silence(_request: object, _context: object) -> list[Any]:
        await asyncio.Event().wait()
        return []

    controller = Controller(Query=silence)
    async with serving(controller) as address:
        client = plainsong.aio.connect(address)
        waiting = asyncio.create_task(client.query("select 1"))
        await controller.arrived.wait()

        await client.close()

        with pytest.raises(plainsong.Closed):
            await waiting
        with pytest.raises(plainsong.Closed):
            await client.status()
