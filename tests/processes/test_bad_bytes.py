"""Random and damaged bytes on every method of live servers: an error or a right answer, never a crash, never a change.

Always the same bytes. What happens to be a right request is granted like any other, so each object that is there
afterwards was there before or was announced by an answer, and each that is gone was dropped by one.
"""

import asyncio
import socket
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

import grpc
import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types
import pytest
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

import plainsong
from plainsong import codec
from plainsong.arrow_updates import to_ipc
from plainsong.channels import aio_channel, channel
from plainsong.errors import DETAILS_KEY, from_rpc
from plainsong.v1 import compute_pb2, storage_pb2
from plainsong.v1 import controller_pb2 as pb
from reconcile.compute_protocol import ComputeCommand, CreateInstance, Hello, InitializationComplete
from reconcile.ids import Epoch, ReplicaId, SessionId
from reconcile.storage_protocol import StorageCommand
from tests.processes.damage import changed, damaged
from tests.processes.deployment import PATIENCE_S, Deployment, deployed
from tests.processes.raw import PATHS, Kind, speaking
from tests.processes.waiting import online, until
from tests.wire import examples

#: Damaged messages to each method of the controller.
EACH = 300
#: Conversations of damaged frames on each stream of an instance, with strangers and with one that it knows.
CONVERSATIONS = 500
AT_ONCE = 32
#: A stream that goes on for ever is read for so long.
STREAM_S = 0.4

SERVICE = pb.DESCRIPTOR.services_by_name["ControllerService"]
#: How a server says that it tripped over itself.
ACCIDENTS = {grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN}
#: What a call can end with that nobody refused.
WITHOUT_REASON = {grpc.StatusCode.OK, grpc.StatusCode.DEADLINE_EXCEEDED}

ROWS = to_ipc(pa.table({"id": pa.array([1, 2, None], pa.int64()), "name": ["a", None, "c"]}))
COLUMNS = [pb.Column(name="id", type="bigint", not_null=True), pb.Column(name="price", type="decimal(10,2)")]
MORE = [pb.Column(name="more", type="string")]
SQL = "SELECT k.name, count(*) AS n, sum(k.id) AS s FROM kept k WHERE k.id > 0 GROUP BY k.name"

#: Right requests. Those that change something mean nothing that must be kept, and start no process.
SEEDS: dict[str, list[Message]] = {
    "CreateCluster": [
        pb.CreateClusterRequest(name="fresh", addresses=["127.0.0.1:1"], idempotency_key="c"),
        pb.CreateClusterRequest(name="newer", idempotency_key="d"),
    ],
    "AlterCluster": [pb.AlterClusterRequest(name="away", replicas=2, idempotency_key="a")],
    "DropCluster": [pb.DropClusterRequest(name="doomed", cascade=True, idempotency_key="d")],
    "ListClusters": [pb.ListClustersRequest()],
    "CreateReplica": [pb.CreateReplicaRequest(cluster="nowhere", address="127.0.0.1:1", idempotency_key="r")],
    "DropReplica": [pb.DropReplicaRequest(cluster="away", replica=2, idempotency_key="x")],
    "CreateTable": [
        pb.CreateTableRequest(name="made", cluster="main", columns=COLUMNS, if_not_exists=True, idempotency_key="t")
    ],
    "CreateSource": [
        pb.CreateSourceRequest(name="s", cluster="main", type="kafka", options={"a": "b"}, columns=COLUMNS)
    ],
    "CreateView": [pb.CreateViewRequest(name="made_view", sql=SQL, idempotency_key="v")],
    "CreateMaterializedView": [
        pb.CreateMaterializedViewRequest(name="made_mv", cluster="main", sql=SQL, idempotency_key="m")
    ],
    "CreateIndex": [
        pb.CreateIndexRequest(name="made_index", cluster="main", on="victim", key=["id"], idempotency_key="i")
    ],
    "AddColumns": [pb.AddColumnsRequest(name="growing", columns=MORE, idempotency_key="g")],
    "DropObject": [pb.DropObjectRequest(name="doomed_view", cascade=True, if_exists=True, idempotency_key="o")],
    "ListObjects": [pb.ListObjectsRequest(kinds=[pb.OBJECT_KIND_TABLE, pb.OBJECT_KIND_INDEX])],
    "CreateFunction": [
        pb.CreateFunctionRequest(
            name="made_function",
            source="def made_function(x, y):\n    return x\n",
            args=COLUMNS,
            returns="bigint",
            replace=True,
            idempotency_key="f",
        ),
        pb.CreateFunctionRequest(
            name="as_rows", source="as_rows = list", args=COLUMNS[:1], columns=COLUMNS, replace=True
        ),
    ],
    "DropFunction": [pb.DropFunctionRequest(name="made_function", if_exists=True, idempotency_key="g")],
    "ListFunctions": [pb.ListFunctionsRequest()],
    "InsertRows": [pb.InsertRowsRequest(table="victim", arrow=ROWS, idempotency_key="k")],
    "UpdateRows": [pb.UpdateRowsRequest(table="victim", set={"id": "id + 1"}, where="id = 1", idempotency_key="u")],
    "DeleteRows": [pb.DeleteRowsRequest(table="victim", where="name = 'a'", idempotency_key="e")],
    "Lookup": [
        pb.LookupRequest(name="kept_by_id", key=[pb.Value(whole=1)], step=1, timeout_ms=1_000),
        pb.LookupRequest(name="kept_by_id", key=[pb.Value(text="x")], consistency=pb.CONSISTENCY_SERIALIZABLE),
    ],
    "Peek": [pb.PeekRequest(name="kept", columns=["id + 1", "name"], where="id > 0", limit=3, step=2, replica=1)],
    "Query": [pb.QueryRequest(sql=SQL, cluster="main", step=2, replica=1, timeout_ms=500)],
    "Tail": [pb.TailRequest(name="kept", cluster="main", snapshot=True, as_of=2, replica=1)],
    "Explain": [pb.ExplainRequest(name="kept_view"), pb.ExplainRequest(sql=SQL)],
    "GetFrontiers": [pb.GetFrontiersRequest(names=["kept", "kept_by_id"])],
    "GetStatus": [pb.GetStatusRequest()],
    "ReadLog": [pb.ReadLogRequest(cluster="main", first_seqno=1, follow=True)],
    "Watch": [pb.WatchRequest()],
}


@dataclass(slots=True)
class Outcomes:
    """What became of the messages that were sent."""

    codes: Counter[grpc.StatusCode] = field(default_factory=Counter)
    accidents: list[str] = field(default_factory=list)
    #: Requests that were granted, with all that was answered.
    granted: list[tuple[str, Any, list[Any]]] = field(default_factory=list)

    def note(self, method: str, raw: bytes, code: grpc.StatusCode, details: str, metadata: Any) -> None:
        """A refusal is ours only if it says why: one without a reason comes from gRPC, or from nobody."""
        self.codes[code] += 1
        says_why = any(key == DETAILS_KEY for key, _ in metadata or ())
        if code in ACCIDENTS or not (says_why or code in WITHOUT_REASON):
            self.accidents.append(f"{method} {raw.hex()}: {code.name} {details}")

    @property
    def sent(self) -> int:
        return self.codes.total()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Deployment, plainsong.Client]]:
    with deployed(tmp_path_factory.mktemp("bytes")) as deployment:
        deployment.start()
        with deployment.client() as client:
            client.create_cluster("main", replicas=1)
            client.create_cluster("away", addresses=["127.0.0.1:1"] * 3)
            client.create_cluster("doomed", replicas=0)
            for table in ("kept", "victim", "doomed_table", "growing"):
                client.create_table(table, {"id": "bigint", "name": "string"}, cluster="main")
            client.insert("kept", [{"id": number, "name": f"n{number % 3}"} for number in range(20)])
            client.create_index("kept", ["id"], name="kept_by_id")
            client.create_view("kept_view", SQL)
            client.create_view("doomed_view", "SELECT id FROM doomed_table")
            until(client, online(1))
            yield deployment, client
        logs = deployment.logs()
        assert "Traceback" not in logs
        assert " ERROR " not in logs


def test_every_method_is_damaged() -> None:
    assert set(SEEDS) == {method.name for method in SERVICE.methods}
    assert EACH * len(SEEDS) + 2 * 2 * CONVERSATIONS > 2_000


@pytest.mark.asyncio
async def test_damaged_requests_are_refused_or_granted_and_nothing_else(
    running: tuple[Deployment, plainsong.Client],
) -> None:
    deployment, client = running
    before, contents, replicas = client.objects(), kept(client), incarnations(client)

    outcomes = await everything_damaged(deployment.address)

    assert outcomes.accidents == []
    assert outcomes.sent == EACH * len(SEEDS)
    assert outcomes.codes.keys() >= {grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT}
    check_catalog(before, client, outcomes)
    check_victim(client, outcomes)
    assert kept(client) == contents
    assert incarnations(client) == replicas
    client.insert("kept", [{"id": 1000, "name": "after"}])
    assert [tuple(row) for row in client.lookup("kept_by_id", 1000)] == [(1000, "after")]


async def everything_damaged(address: str) -> Outcomes:
    outcomes = Outcomes()
    turns = asyncio.Semaphore(AT_ONCE)
    async with aio_channel(address) as to:

        async def send(method: MethodDescriptor, raw: bytes) -> None:
            async with turns:
                await ask(to, method, raw, outcomes)

        calls = [send(method, raw) for method in SERVICE.methods for raw in wrong_requests(method.name)]
        # Mixed, so that what changes something meets what reads it.
        Random("order").shuffle(calls)
        await asyncio.gather(*calls)
    return outcomes


def wrong_requests(method: str) -> Iterator[bytes]:
    """Half of them damaged in their bytes, most of which no longer parse; half in their meaning."""
    seeds = SEEDS[method]
    yield from damaged([seed.SerializeToString() for seed in seeds], EACH // 2, method)
    random = Random(method)
    for _ in range(EACH // 2):
        yield changed(random, random.choice(seeds), [ROWS]).SerializeToString()


async def ask(to: grpc.aio.Channel, method: MethodDescriptor, raw: bytes, outcomes: Outcomes) -> None:
    path = f"/{SERVICE.full_name}/{method.name}"
    answers: list[Any] = []
    # Any: without serializers these take bytes, of which the types know nothing.
    method_of: Any = to.unary_stream(path) if method.server_streaming else to.unary_unary(path)
    call = method_of(raw, timeout=STREAM_S if method.server_streaming else PATIENCE_S)
    with suppress(grpc.aio.AioRpcError):
        answers = [answer async for answer in call] if method.server_streaming else [await call]
    code = await call.code()
    outcomes.note(method.name, raw, code, await call.details(), await call.trailing_metadata())
    # An answer that is no message of its kind would raise here.
    read = [GetMessageClass(method.output_type).FromString(answer) for answer in answers]
    if code is grpc.StatusCode.OK:
        outcomes.granted.append((method.name, GetMessageClass(method.input_type).FromString(raw), read))


def check_catalog(before: Sequence[plainsong.Object], client: plainsong.Client, outcomes: Outcomes) -> None:
    """All that is there was there or was announced; all that is gone was dropped, or the cluster it was on."""
    after = {each.name: each.id for each in client.objects()}
    known = {each.name for each in before}
    dropped: set[str] = set()
    clusters = {"main", "away", "doomed"}
    for method, request, answers in outcomes.granted:
        if hasattr(answers[0] if answers else None, "object"):
            known.add(answers[0].object.name)
        elif method == "CreateCluster":
            clusters.add(answers[0].cluster.name)
        elif method == "DropCluster":
            clusters.discard(request.name)
        elif method == "DropObject":
            dropped.update(answers[0].dropped)
    assert set(after) <= known
    assert known - set(after) <= dropped
    assert {each.name for each in before if each.name.startswith("kept")} <= set(after)
    assert [each for each in client.objects() if each.name.startswith("kept")] == [
        each for each in before if each.name.startswith("kept")
    ]
    assert {each.name for each in client.clusters()} == clusters
    stored = [each.name for each in client.objects() if each.kind is not plainsong.ObjectKind.VIEW]
    assert [each.name for each in client.frontiers().objects] == stored


def check_victim(client: plainsong.Client, outcomes: Outcomes) -> None:
    """As many rows as were said to be inserted and not said to be deleted. Equal requests count once."""
    rows: dict[tuple[str, bytes], int] = {}
    for method, request, answers in outcomes.granted:
        sign = {"InsertRows": 1, "DeleteRows": -1}.get(method, 0)
        if sign and request.table == "victim":
            key = request.SerializeToString(deterministic=True) if request.idempotency_key else str(len(rows)).encode()
            rows[method, key] = rows.get((method, key)) or sign * answers[0].rows
    assert [row.n for row in client.query("SELECT count(*) AS n FROM victim", cluster="main")] == [sum(rows.values())]


def kept(client: plainsong.Client) -> tuple[Counter[tuple[object, ...]], ...]:
    names = ("kept", "kept_view")
    return tuple(Counter(tuple(row) for row in client.query(f"SELECT * FROM {name}", cluster="main")) for name in names)


def incarnations(client: plainsong.Client) -> list[tuple[int, plainsong.ReplicaState, int]]:
    main = next(each for each in client.clusters() if each.name == "main")
    return [(replica.id, replica.state, replica.incarnation) for replica in main.replicas]


# --- instances --------------------------------------------------------------------------------------------


def frames(kind: Kind, commands: Sequence[ComputeCommand | StorageCommand]) -> list[bytes]:
    # Any: which commands belong to which stream is known to whoever calls.
    encode: Any = codec.encode_compute_commands if kind == "compute" else codec.encode_storage_commands
    return [encode([command], 5).SerializeToString() for command in commands]


def commands(kind: Kind) -> Sequence[ComputeCommand | StorageCommand]:
    return examples.COMPUTE_COMMANDS if kind == "compute" else examples.STORAGE_COMMANDS


def greeting(number: int, deployment: str) -> Hello:
    return Hello(
        epoch=Epoch(10**6), session=SessionId(f"s{number}"), deployment=deployment, replica=ReplicaId(number % 3)
    )


@pytest.mark.parametrize("kind", PATHS)
def test_the_garbage_of_strangers_disturbs_no_session(running: tuple[Deployment, plainsong.Client], kind: Kind) -> None:
    _, client = running
    contents, replicas = kept(client), incarnations(client)
    address = next(each for each in client.clusters() if each.name == "main").replicas[0].address
    strange = frames(kind, [greeting(number, "theirs") for number in range(9)])
    other = list(damaged([*strange, *frames(kind, commands(kind))], 2 * CONVERSATIONS, f"strangers {kind}"))
    talks = [
        [strange[n % 9], *other[2 * n : 2 * n + 2]] if n % 2 else other[2 * n : 2 * n + 2] for n in range(CONVERSATIONS)
    ]

    outcomes = all_said(address, kind, talks)

    assert outcomes.accidents == []
    assert outcomes.codes.keys() <= {grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.DEADLINE_EXCEEDED}
    assert incarnations(client) == replicas
    assert kept(client) == contents


@pytest.mark.parametrize("kind", PATHS)
def test_an_instance_survives_a_controller_that_talks_garbage(
    tmp_path_factory: pytest.TempPathFactory, kind: Kind
) -> None:
    with deployed(tmp_path_factory.mktemp("known")) as deployment:
        _, address = deployment.instance(1, "--deployment", "ours")
        other = wrong_frames(kind)
        opening = frames(kind, [CreateInstance(), InitializationComplete()])
        talks = [
            [*frames(kind, [greeting(n, "ours")]), *opening[: 1 + n % 2], *other[2 * n : 2 * n + 2]]
            for n in range(CONVERSATIONS)
        ]

        outcomes = all_said(address, kind, talks)

        assert outcomes.accidents == []
        with speaking(address, kind) as speaker:
            speaker.say(greeting(1, "ours"))
            assert speaker.hear().accepted == 10**6
        # Rows that do not fit their table may end its source, which is logged; a session may not fail.
        assert "a session failed" not in deployment.logs()
        assert "never retrieved" not in deployment.logs()


def wrong_frames(kind: Kind) -> list[bytes]:
    """Frames of an open session, by turns damaged in their bytes and in their meaning."""
    seeds = frames(kind, commands(kind)[1:])
    frame = pb_frame(kind)
    random = Random(kind)
    meant = [
        changed(random, frame.FromString(random.choice(seeds)), [examples.UPDATES.ipc]).SerializeToString()
        for _ in range(CONVERSATIONS)
    ]
    return [raw for pair in zip(damaged(seeds, CONVERSATIONS, f"known {kind}"), meant, strict=True) for raw in pair]


def pb_frame(kind: Kind) -> type[Message]:
    if kind == "compute":
        return compute_pb2.ComputeServiceSessionRequest
    return storage_pb2.StorageServiceSessionRequest


def all_said(address: str, kind: Kind, talks: Sequence[Sequence[bytes]]) -> Outcomes:
    """Every conversation said to its end, one after the other: a later session supersedes an earlier one."""
    outcomes = Outcomes()
    heard = codec.decode_compute_response if kind == "compute" else codec.decode_storage_response
    with channel(address) as to:
        session: Any = to.stream_stream(PATHS[kind])
        for talk in talks:
            call = session(iter(talk), timeout=PATIENCE_S)
            with suppress(grpc.RpcError):
                for answer in call:
                    heard(answer)
            outcomes.note(kind, b"".join(talk), call.code(), call.details(), call.trailing_metadata())
    return outcomes


def test_what_is_not_even_http_is_cut_off(running: tuple[Deployment, plainsong.Client]) -> None:
    deployment, client = running
    replica = next(each for each in client.clusters() if each.name == "main").replicas[0].address
    random = Random("tcp")

    for address in (deployment.address, replica) * 20:
        host, _, port = address.rpartition(":")
        with socket.create_connection((host, int(port)), PATIENCE_S) as connection, suppress(ConnectionError):
            connection.sendall(random.randbytes(random.randint(1, 4_000)))
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(4096):
                pass

    assert client.status().epoch == 1
    assert [tuple(row) for row in client.lookup("kept_by_id", 3)] == [(3, "n0")]


def test_what_is_no_message_is_named_as_such(running: tuple[Deployment, plainsong.Client]) -> None:
    """By the rich status, as whoever debugs a client of their own needs it."""
    deployment, _ = running
    garbage = b"\xff\xff\xff"
    with pytest.raises(DecodeError):
        pb.QueryRequest.FromString(garbage)

    with channel(deployment.address) as to:
        call: Any = to.unary_unary(f"/{SERVICE.full_name}/GetStatus")
        with pytest.raises(grpc.RpcError) as raised:
            call(garbage, timeout=PATIENCE_S)

    told = from_rpc(raised.value)
    assert isinstance(told, plainsong.ProtocolViolation)
    assert "not a GetStatusRequest" in told.detail


def test_what_was_granted_is_read_again_by_the_next_controller(running: tuple[Deployment, plainsong.Client]) -> None:
    """Last: it has everything behind it that went before."""
    deployment, client = running
    before, contents = {each.name: each for each in client.objects()}, kept(client)

    deployment.kill()
    deployment.start()
    until(client, online(1))

    assert {each.name: each for each in client.objects()} == before
    assert kept(client) == contents
