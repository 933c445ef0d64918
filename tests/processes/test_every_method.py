"""Every method of every service, called once against live servers."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

import plainsong
from plainsong.channels import channel
from plainsong.v1 import compute_pb2, controller_pb2, storage_pb2
from reconcile.compute_protocol import (
    AllowCompaction,
    ComputeCommand,
    CreateDataflows,
    CreateInstance,
    Hello,
    InitializationComplete,
    Inventory,
    Peek,
)
from reconcile.dataflow import DataflowDescription, Index
from reconcile.errors import Violation
from reconcile.frontiers import CLOSED, Antichain
from reconcile.ids import Epoch, GlobalId, PeekId, ReplicaId, SessionId, Step
from reconcile.storage_protocol import CreateSources, StorageCommand
from tests.processes.deployment import PATIENCE_S, Deployment, deployed
from tests.processes.raw import PATHS, Kind, speaking
from tests.processes.waiting import online, until

Case = tuple[Deployment, plainsong.Client]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Case]:
    with deployed(tmp_path_factory.mktemp("every")) as deployment:
        deployment.start()
        with deployment.client() as client:
            client.create_cluster("main", replicas=1)
            client.create_table("t", {"id": "bigint not null", "name": "string"}, cluster="main")
            client.insert("t", [{"id": 1, "name": "one"}, {"id": 2, "name": None}])
            client.create_view("v", "SELECT name, id FROM t WHERE id > 1")
            client.create_index("t", ["id"], name="t_by_id")
            until(client, online(1))
            yield deployment, client
        assert "Traceback" not in deployment.logs()


# --- the controller ---------------------------------------------------------------------------------------


def create_cluster(client: plainsong.Client) -> None:
    assert client.create_cluster("empty", replicas=0) == plainsong.Cluster(name="empty", replicas=())


def alter_cluster(client: plainsong.Client) -> None:
    client.create_cluster("altered", replicas=0)

    assert len(client.alter_cluster("altered", replicas=1).replicas) == 1
    assert client.alter_cluster("altered", replicas=0).replicas == ()


def drop_cluster(client: plainsong.Client) -> None:
    client.create_cluster("short", replicas=0)

    client.drop_cluster("short")

    assert "short" not in [cluster.name for cluster in client.clusters()]


def list_clusters(client: plainsong.Client) -> None:
    (main,) = [cluster for cluster in client.clusters() if cluster.name == "main"]

    assert [replica.state for replica in main.replicas] == [plainsong.ReplicaState.ONLINE]


def create_replica(client: plainsong.Client) -> None:
    client.create_cluster("elsewhere", replicas=0)

    made = client.create_replica("elsewhere", address="127.0.0.1:1")

    (cluster,) = [cluster for cluster in client.clusters() if cluster.name == "elsewhere"]
    assert [(replica.id, replica.address) for replica in cluster.replicas] == [(made.id, "127.0.0.1:1")]


def drop_replica(client: plainsong.Client) -> None:
    (made,) = client.create_cluster("shrinking", addresses=["127.0.0.1:1"]).replicas

    client.drop_replica("shrinking", made.id)

    assert [cluster.replicas for cluster in client.clusters() if cluster.name == "shrinking"] == [()]


def create_table(client: plainsong.Client) -> None:
    made = client.create_table("made", {"id": "bigint not null", "price": "decimal(10, 2)"}, cluster="main")

    assert (made.name, made.kind, made.cluster) == ("made", plainsong.ObjectKind.TABLE, "main")
    assert made.columns == (
        plainsong.Column(name="id", type="bigint", not_null=True),
        plainsong.Column(name="price", type="decimal(10,2)"),
    )


def create_source(client: plainsong.Client) -> None:
    # There is no kind of source yet, so no request that would be granted.
    with pytest.raises(plainsong.InvalidRequest, match="no source of type 'kafka'") as refused:
        client.create_source("s", "kafka", {"id": "bigint"}, options={"topic": "orders"}, cluster="main")
    assert refused.value.reason == "UNKNOWN_SOURCE_TYPE"


def create_view(client: plainsong.Client) -> None:
    made = client.create_view("doubled", "SELECT id * 2 AS twice FROM t")

    assert (made.kind, made.reads) == (plainsong.ObjectKind.VIEW, ("t",))
    assert sorted(row.twice for row in client.query("SELECT twice FROM doubled", cluster="main")) == [2, 4]


def create_materialized_view(client: plainsong.Client) -> None:
    made = client.create_materialized_view("counted", "SELECT count(*) AS n FROM t", cluster="main")

    assert made.kind is plainsong.ObjectKind.MATERIALIZED_VIEW
    assert [row.n for row in client.query("SELECT n FROM counted", cluster="main")] == [2]


def create_index(client: plainsong.Client) -> None:
    made = client.create_index("v", ["name"], cluster="main")

    assert (made.name, made.on, made.key) == ("v_by_name", "v", ("name",))


def add_columns(client: plainsong.Client) -> None:
    client.create_table("grown", {"id": "bigint not null"}, cluster="main")
    client.insert("grown", [{"id": 1}])

    made = client.add_columns("grown", {"note": "string"})
    client.insert("grown", [{"id": 2, "note": "new"}])

    assert [column.name for column in made.columns] == ["id", "note"]
    rows = client.query("SELECT id, note FROM grown ORDER BY id", cluster="main")
    assert [tuple(row) for row in rows] == [(1, None), (2, "new")]


def drop_object(client: plainsong.Client) -> None:
    client.create_view("gone", "SELECT id FROM t")

    assert client.drop("gone") == ("gone",)
    assert "gone" not in [each.name for each in client.objects()]


def list_objects(client: plainsong.Client) -> None:
    assert "t" in [table.name for table in client.objects([plainsong.ObjectKind.TABLE])]
    assert "t" not in [index.name for index in client.objects([plainsong.ObjectKind.INDEX])]


SOURCE = "def half(x):\n    return x // 2\n"


def create_function(client: plainsong.Client) -> None:
    made = client.create_function("half", SOURCE, args={"x": "int"}, returns="int")

    assert made == plainsong.Function(
        name="half",
        version=made.version,
        args=(plainsong.Column(name="x", type="int"),),
        returns="int",
        columns=(),
        source=SOURCE,
    )


def drop_function(client: plainsong.Client) -> None:
    client.create_function("short_lived", "def short_lived(): return 1", returns="int")

    client.drop_function("short_lived")

    assert "short_lived" not in [each.name for each in client.functions()]


def list_functions(client: plainsong.Client) -> None:
    rows = {"n": "int", "text": "string"}
    client.create_function("listed", "def listed(x): return [(x, None)]", args=["int"], returns=rows)

    (listed,) = [each for each in client.functions() if each.name == "listed"]
    assert listed.columns == (plainsong.Column(name="n", type="int"), plainsong.Column(name="text", type="string"))


def insert_rows(client: plainsong.Client) -> None:
    client.create_table("inserted", {"id": "bigint"}, cluster="main")

    written = client.insert("inserted", [{"id": 7}, {"id": 8}])

    assert written.rows == 2
    assert written.step <= client.frontiers().acknowledged
    assert sorted(row.id for row in client.query("SELECT id FROM inserted", cluster="main")) == [7, 8]


def update_rows(client: plainsong.Client) -> None:
    client.create_table("updated", {"id": "bigint"}, cluster="main")
    client.insert("updated", [{"id": 7}, {"id": 8}])

    assert client.update("updated", {"id": "id + 10"}, where="id = 7").rows == 1
    assert sorted(row.id for row in client.query("SELECT id FROM updated", cluster="main")) == [8, 17]


def delete_rows(client: plainsong.Client) -> None:
    client.create_table("deleted", {"id": "bigint"}, cluster="main")
    client.insert("deleted", [{"id": 7}, {"id": 8}])

    assert client.delete("deleted", where="id = 7").rows == 1
    assert [row.id for row in client.query("SELECT id FROM deleted", cluster="main")] == [8]


def lookup(client: plainsong.Client) -> None:
    assert [tuple(row) for row in client.lookup("t_by_id", 2)] == [(2, None)]


def peek(client: plainsong.Client) -> None:
    assert [tuple(row) for row in client.peek("t", columns=["name"], where="id < 2", limit=5)] == [("one",)]


def query(client: plainsong.Client) -> None:
    rows = client.query("SELECT id, name FROM t ORDER BY id DESC", cluster="main")

    assert [tuple(row) for row in rows] == [(2, None), (1, "one")]


def tail(client: plainsong.Client) -> None:
    with client.tail_batches("t", cluster="main") as batches:
        first = next(batches)

    assert first.updates is not None
    assert sorted(row["id"] for row in first.updates.to_pylist()) == [1, 2]
    assert first.upper > first.lower


def explain(client: plainsong.Client) -> None:
    assert client.explain("v").reads == ("t",)
    assert [column.name for column in client.explain(sql="SELECT id AS x FROM t").columns] == ["x"]


def get_frontiers(client: plainsong.Client) -> None:
    found = client.frontiers("t_by_id")

    assert [each.name for each in found.objects] == ["t_by_id"]
    assert found.opened >= found.acknowledged


def get_status(client: plainsong.Client) -> None:
    status = client.status()

    assert (status.epoch, bool(status.deployment), bool(status.version)) == (1, True, True)
    assert {"t", "v", "t_by_id"} <= {each.name for each in status.objects}


def read_log(client: plainsong.Client) -> None:
    texts = [record.text for record in client.log("main")]

    assert any(text.startswith("create table s") for text in texts)
    assert any(text.startswith("create index u") for text in texts)


def watch(client: plainsong.Client) -> None:
    with client.watch() as events:
        patience = threading.Timer(PATIENCE_S, events.close)
        patience.start()
        first = next(events)
        client.create_view("watched", "SELECT id FROM t")
        created = next(event for event in events if isinstance(event, plainsong.ObjectCreated))
        patience.cancel()

    assert isinstance(first, plainsong.FrontiersRose)
    assert created.object.name == "watched"


CALLS: dict[str, Callable[[plainsong.Client], None]] = {
    "CreateCluster": create_cluster,
    "AlterCluster": alter_cluster,
    "DropCluster": drop_cluster,
    "ListClusters": list_clusters,
    "CreateReplica": create_replica,
    "DropReplica": drop_replica,
    "CreateTable": create_table,
    "CreateSource": create_source,
    "CreateView": create_view,
    "CreateMaterializedView": create_materialized_view,
    "CreateIndex": create_index,
    "AddColumns": add_columns,
    "DropObject": drop_object,
    "ListObjects": list_objects,
    "CreateFunction": create_function,
    "DropFunction": drop_function,
    "ListFunctions": list_functions,
    "InsertRows": insert_rows,
    "UpdateRows": update_rows,
    "DeleteRows": delete_rows,
    "Lookup": lookup,
    "Peek": peek,
    "Query": query,
    "Tail": tail,
    "Explain": explain,
    "GetFrontiers": get_frontiers,
    "GetStatus": get_status,
    "ReadLog": read_log,
    "Watch": watch,
}


def test_no_method_is_left_out() -> None:
    service = controller_pb2.DESCRIPTOR.services_by_name["ControllerService"]
    sessions = [
        f"/{service.full_name}/{method.name}"
        for file in (compute_pb2, storage_pb2)
        for service in file.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    ]

    assert set(CALLS) == {method.name for method in service.methods}
    assert sorted(PATHS.values()) == sorted(sessions)


@pytest.mark.parametrize("method", CALLS)
def test_a_method_of_the_controller_does_what_it_says(running: Case, method: str) -> None:
    CALLS[method](running[1])


def test_a_method_that_there_is_not_is_refused(running: Case) -> None:
    with channel(running[0].address) as to:
        call: Any = to.unary_unary("/plainsong.v1.ControllerService/DropEverything")
        with pytest.raises(grpc.RpcError) as refused:
            call(b"", timeout=PATIENCE_S)

    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_health_answers_on_every_server(running: Case) -> None:
    deployment, client = running
    (main,) = [cluster for cluster in client.clusters() if cluster.name == "main"]

    for address in (deployment.address, main.replicas[0].address):
        with channel(address) as to:
            stub: Any = health_pb2_grpc.HealthStub(to)
            answer = stub.Check(health_pb2.HealthCheckRequest(), timeout=PATIENCE_S)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_reflection_names_the_services(running: Case) -> None:
    with channel(running[0].address) as to:
        asked = reflection_pb2.ServerReflectionRequest(list_services="")
        stub: Any = reflection_pb2_grpc.ServerReflectionStub(to)
        (answer,) = stub.ServerReflectionInfo(iter([asked]), timeout=PATIENCE_S)

    named = [service.name for service in answer.list_services_response.service]
    assert {"plainsong.v1.ControllerService", "grpc.health.v1.Health"} <= set(named)


# --- instances --------------------------------------------------------------------------------------------


def hello(epoch: int, *, deployment: str = "ours", replica: int = 7, version: int = 1, session: str = "s") -> Hello:
    return Hello(
        epoch=Epoch(epoch),
        session=SessionId(session),
        deployment=deployment,
        replica=ReplicaId(replica),
        protocol_version=version,
    )


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where an instance of deployment ``ours`` listens that has seen epoch 5."""
    with deployed(tmp_path_factory.mktemp("instance")) as deployment:
        _, address = deployment.instance(1, "--deployment", "ours", "--replica", "7", "--epoch", "5")
        yield address
        assert "Traceback" not in deployment.logs()


KINDS: tuple[Kind, ...] = ("compute", "storage")


@pytest.mark.parametrize("kind", KINDS)
def test_a_greeting_is_accepted_with_its_epoch(instance: str, kind: Kind) -> None:
    with speaking(instance, kind) as speaker:
        speaker.say(hello(5))

        assert speaker.hear().accepted == 5


def test_an_inventory_follows_the_greeting(instance: str) -> None:
    with speaking(instance, "compute") as speaker:
        speaker.say(hello(5), CreateInstance(), InitializationComplete())

        heard = [speaker.hear(), speaker.hear()]

        assert [frame.responses for frame in heard] == [(), (Inventory(exports=()),)]


T9, S9 = GlobalId("t", 9), GlobalId("s", 9)
ON_NOTHING = DataflowDescription(imports=(S9,), objects=(), exports=(Index(id=T9),), as_of=CLOSED)
SEEN = Peek(peek=PeekId(1), id=T9, at=Step(0), finishing=None)

VIOLATIONS: dict[Violation, tuple[Kind, tuple[ComputeCommand | StorageCommand, ...]]] = {
    Violation.BEFORE_HELLO: ("compute", (CreateInstance(),)),
    Violation.REPEATED_HELLO: ("compute", (hello(5), CreateInstance(), hello(5))),
    Violation.BEFORE_CREATE_INSTANCE: ("storage", (hello(5), AllowCompaction(id=S9, since=Antichain.at(3)))),
    Violation.EMPTY_AS_OF: ("compute", (hello(5), CreateInstance(), CreateDataflows(dataflows=(ON_NOTHING,)))),
    Violation.DUPLICATE_PEEK: ("compute", (hello(5), CreateInstance(), SEEN, SEEN)),
    # A command of the other protocol is of no kind that this one knows.
    Violation.MALFORMED: ("compute", (hello(5), CreateInstance(), CreateSources(sources=()))),
}


@pytest.mark.parametrize("violation", VIOLATIONS)
def test_what_may_not_be_said_now_ends_the_session_by_its_name(instance: str, violation: Violation) -> None:
    kind, commands = VIOLATIONS[violation]
    with speaking(instance, kind) as speaker:
        for command in commands:
            if isinstance(command, CreateSources):
                frame = storage_pb2.StorageServiceSessionRequest()
                frame.commands.add().create_sources.SetInParent()
                speaker.say_bytes(frame.SerializeToString())
            else:
                speaker.say(command)

        refusal = speaker.refusal()

    assert isinstance(refusal, plainsong.ProtocolViolation)
    assert refusal.why is violation


@pytest.mark.parametrize("kind", KINDS)
def test_a_lower_epoch_is_fenced(instance: str, kind: Kind) -> None:
    with speaking(instance, kind) as speaker:
        speaker.say(hello(4))

        refusal = speaker.refusal()

    assert isinstance(refusal, plainsong.Fenced)
    assert (refusal.reason, refusal.message) == ("FENCED", "a newer reign has begun: 5")


STRANGERS = {
    "deployment": hello(9, deployment="theirs"),
    "replica": hello(9, replica=8),
    "protocol version": hello(9, version=2),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("field", STRANGERS)
def test_a_stranger_is_refused_by_name_and_fences_nobody(instance: str, kind: Kind, field: str) -> None:
    with speaking(instance, kind) as speaker:
        speaker.say(STRANGERS[field])
        refusal = speaker.refusal()
    with speaking(instance, kind) as ours:
        ours.say(hello(5))
        accepted = ours.hear().accepted

    assert refusal.message == f"this instance has another {field}"
    assert accepted == 5


@pytest.mark.parametrize("kind", KINDS)
def test_a_later_session_supersedes_an_earlier_one(instance: str, kind: Kind) -> None:
    with speaking(instance, kind) as first, speaking(instance, kind) as second:
        first.say(hello(5, session="first"))
        first.hear()

        second.say(hello(5, session="second"))

        assert second.hear().accepted == 5
        assert first.refusal().message == "a later session with this instance has begun"


def test_the_replicas_of_a_controller_know_their_deployment(running: Case) -> None:
    _, client = running
    (main,) = [cluster for cluster in client.clusters() if cluster.name == "main"]
    (replica,) = main.replicas

    with speaking(replica.address, "compute") as speaker:
        speaker.say(hello(10**6, deployment="theirs", replica=replica.id))
        refusal = speaker.refusal()

    assert refusal.message == "this instance has another deployment"
    assert [(one.state, one.incarnation) for one in client.clusters()[0].replicas] == [
        (plainsong.ReplicaState.ONLINE, replica.incarnation)
    ]
