"""Who may do what, over real connections (B6)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

import plainsong
from adapter.commands.certs import development_files, write_files
from plainsong.access import CONTROLLER_METHODS, Grant, Role, Tokens, guards, role_needed
from plainsong.channels import aio_channel, aio_server, listen
from plainsong.errors import PlainsongError
from plainsong.security import ClientTls, ServerTls
from plainsong.v1 import controller_pb2 as pb
from reconcile.errors import InvalidRequest
from tests.client.serving import SERVICE, Controller, add
from tests.client.test_calls import CHANGING, EVERY, STREAMS, answering

NOW = datetime.now(UTC)
TOKENS = {Role.OPERATOR: "operator-token", Role.READ_ONLY: "reader-token"}
READING = set(EVERY) - CHANGING


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("certs"))


@pytest.fixture(scope="module")
def other_certs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """From a CA that nobody trusts."""
    return made(tmp_path_factory.mktemp("other"))


def made(folder: Path) -> Path:
    write_files(folder, development_files(["127.0.0.1"], 1, NOW), force=True)
    return folder


@pytest.fixture
def tokens(tmp_path: Path) -> Tokens:
    path = tmp_path / "tokens"
    path.write_text("# ours\n\n" + "\n".join(Grant.of(role, TOKENS[role], f"{role} x").line() for role in Role))
    path.chmod(0o600)
    return Tokens.read(path)


@asynccontextmanager
async def guarded(
    controller: Controller, *, tls: ServerTls | None = None, tokens: Tokens | None = None
) -> AsyncIterator[str]:
    server = aio_server(guards(host="127.0.0.1", tls=tls, tokens=tokens))
    add(controller, server)
    checking = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(checking, server)
    address = listen(server, "127.0.0.1:0", tls=tls)
    await server.start()
    try:
        yield address
    finally:
        await server.stop(None)


async def outcome(client: plainsong.AsyncClient, method: str) -> str:
    """``ok``, or the reason for which a call failed."""
    try:
        result: Any = EVERY[method](client)
        await (anext(result) if method in STREAMS else result)
    except PlainsongError as error:
        return error.reason
    return "ok"


def test_every_method_of_the_service_is_classified() -> None:
    assert set(CONTROLLER_METHODS) == {method.name for method in SERVICE.methods}
    assert {name for name, role in CONTROLLER_METHODS.items() if role is Role.OPERATOR} == CHANGING


def test_whatever_carries_an_idempotency_key_needs_an_operator() -> None:
    keyed = {method.name for method in SERVICE.methods if "idempotency_key" in method.input_type.fields_by_name}

    assert keyed == {name for name, role in CONTROLLER_METHODS.items() if role is Role.OPERATOR}


@pytest.mark.parametrize(
    ("method", "role"),
    [
        ("/plainsong.v1.ControllerService/New", Role.OPERATOR),
        ("/plainsong.v1.ComputeService/Session", Role.OPERATOR),
        ("/plainsong.v1.StorageService/Session", Role.OPERATOR),
        ("/other.Service/Query", Role.OPERATOR),
        ("/grpc.health.v1.HealthX/Check", Role.OPERATOR),
        ("/grpc.health.v1.Health/Check", None),
        ("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", Role.READ_ONLY),
    ],
)
def test_what_nobody_thought_of_needs_an_operator(method: str, role: Role | None) -> None:
    assert role_needed(method) is role


@pytest.mark.parametrize("role", Role)
@pytest.mark.asyncio
async def test_a_token_opens_what_its_role_may_and_nothing_else(role: Role, tokens: Tokens) -> None:
    controller = answering()

    async with (
        guarded(controller, tokens=tokens) as address,
        plainsong.aio.connect(address, token=TOKENS[role]) as client,
    ):
        outcomes = {method: await outcome(client, method) for method in EVERY}

    allowed = set(EVERY) if role is Role.OPERATOR else READING
    assert outcomes == {method: "ok" if method in allowed else "PERMISSION_DENIED" for method in EVERY}
    assert {method for method, _ in controller.heard} == allowed


@pytest.mark.parametrize("role", Role)
@pytest.mark.asyncio
async def test_a_certificate_opens_what_its_role_may_and_nothing_else(role: Role, certs: Path) -> None:
    controller = answering()
    name = "client" if role is Role.OPERATOR else "read-only"
    tls = ClientTls(ca=certs / "ca.pem", certificate=certs / f"{name}.pem", key=certs / f"{name}.key")

    async with (
        guarded(controller, tls=ServerTls.folder(certs)) as address,
        plainsong.aio.connect(address, tls=tls) as client,
    ):
        outcomes = {method: await outcome(client, method) for method in EVERY}

    allowed = set(EVERY) if role is Role.OPERATOR else READING
    assert outcomes == {method: "ok" if method in allowed else "PERMISSION_DENIED" for method in EVERY}
    assert {method for method, _ in controller.heard} == allowed


@pytest.mark.parametrize(
    "metadata",
    [
        (),
        (("authorization", "Bearer wrong"),),
        (("authorization", "Bearer "),),
        (("authorization", ""),),
        (("authorization", "operator-token"),),
        (("authorization", "Basic operator-token"),),
        (("authorization", "Bearer operator-token"), ("authorization", "Bearer operator-token")),
        (("authorization", "Bearer operator-tokenx"),),
        (("authorization-bin", b"Bearer operator-token"),),
    ],
    ids=str,
)
@pytest.mark.asyncio
async def test_without_the_right_token_nothing_is_changed_and_nothing_learned(
    metadata: tuple[tuple[str, str], ...], tokens: Tokens
) -> None:
    controller = answering()
    methods = [*(f"/{SERVICE.full_name}/{name}" for name in EVERY), "/plainsong.v1.ControllerService/No", "/no.No/No"]
    said: set[tuple[object, ...]] = set()

    async with guarded(controller, tokens=tokens) as address, aio_channel(address) as channel:
        for method in methods:
            # Not even requests: what they say is not looked at.
            one: Any = channel.unary_unary(method)(b"\xff garbage", metadata=metadata, timeout=10)  # type: ignore[arg-type]
            many: Any = channel.unary_stream(method)(b"\xff garbage", metadata=metadata, timeout=10)  # type: ignore[arg-type]
            for answer in (one, many.read()):
                with pytest.raises(grpc.RpcError) as refused:
                    await answer
                error = refused.value
                said.add((error.code(), error.details(), str(error.trailing_metadata())))

    assert len(said) == 1, "the same answer to every question"
    assert next(iter(said))[0] is grpc.StatusCode.UNAUTHENTICATED
    assert controller.heard == []


@pytest.mark.asyncio
async def test_a_client_without_a_certificate_is_not_even_connected(certs: Path, other_certs: Path) -> None:
    controller = answering()
    outcomes = []

    async with guarded(controller, tls=ServerTls.folder(certs)) as address:
        for tls in (
            None,
            ClientTls(ca=certs / "ca.pem"),
            ClientTls(ca=certs / "ca.pem", certificate=other_certs / "client.pem", key=other_certs / "client.key"),
            # A server's certificate is none for a client.
            ClientTls(ca=certs / "ca.pem", certificate=certs / "server.pem", key=certs / "server.key"),
            ClientTls.folder(other_certs),
        ):
            async with plainsong.aio.connect(address, tls=tls) as client:
                with pytest.raises(plainsong.Unavailable) as failed:
                    await client.status(timeout=0.5)
                outcomes.append(failed.value.reason)

    assert outcomes == ["UNAVAILABLE"] * 5
    assert controller.heard == []


@pytest.mark.asyncio
async def test_a_client_does_not_talk_to_a_server_it_does_not_trust(certs: Path, other_certs: Path) -> None:
    controller = answering()

    async with (
        guarded(controller, tls=ServerTls.folder(other_certs, mutual=False)) as address,
        plainsong.aio.connect(address, tls=ClientTls(ca=certs / "ca.pem"), token="secret") as client,
    ):
        with pytest.raises(plainsong.Unavailable):
            await client.status(timeout=0.5)

    assert controller.heard == []


@pytest.mark.asyncio
async def test_tokens_travel_under_tls(certs: Path, tokens: Tokens) -> None:
    tls = ServerTls.folder(certs, mutual=False)

    async with (
        guarded(answering(), tls=tls, tokens=tokens) as address,
        plainsong.aio.connect(address, tls=ClientTls(ca=certs / "ca.pem"), token=TOKENS[Role.OPERATOR]) as client,
    ):
        assert await outcome(client, "InsertRows") == "ok"


@pytest.mark.asyncio
async def test_a_wrong_token_is_not_saved_by_a_good_certificate(certs: Path, tokens: Tokens) -> None:
    tls = ServerTls.folder(certs)

    async with guarded(answering(), tls=tls, tokens=tokens) as address:
        async with plainsong.aio.connect(address, tls=certs, token="wrong") as wrong:
            assert await outcome(wrong, "GetStatus") == "UNAUTHENTICATED"
        async with plainsong.aio.connect(address, tls=certs, token=TOKENS[Role.READ_ONLY]) as reader:
            assert await outcome(reader, "InsertRows") == "PERMISSION_DENIED"
        async with plainsong.aio.connect(address, tls=certs) as operator:
            assert await outcome(operator, "InsertRows") == "ok"


@pytest.mark.asyncio
async def test_everybody_may_ask_whether_somebody_serves(tokens: Tokens) -> None:
    async with guarded(answering(), tokens=tokens) as address, aio_channel(address) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        reply = await stub.Check(health_pb2.HealthCheckRequest(), timeout=10)

    assert reply.status == health_pb2.HealthCheckResponse.SERVING


@pytest.mark.asyncio
async def test_on_this_machine_and_with_nothing_configured_everybody_is_an_operator() -> None:
    controller = answering()

    async with guarded(controller) as address, plainsong.aio.connect(address) as client:
        assert {await outcome(client, method) for method in EVERY} == {"ok"}


@pytest.mark.asyncio
async def test_a_guarded_stream_is_closed_when_its_reader_leaves(certs: Path) -> None:
    closed = asyncio.Event()

    class Endless(Controller):
        async def Watch(self, _request: object, _context: object) -> AsyncIterator[pb.WatchResponse]:  # noqa: N802
            try:
                while True:
                    yield pb.WatchResponse(object_dropped=pb.ObjectDropped(name="t"))
            finally:
                closed.set()

    async with guarded(Endless(), tls=ServerTls.folder(certs)) as address:
        async with plainsong.aio.connect(address, tls=certs) as client, client.watch() as watch:
            await anext(watch)

        # While the server goes on: it is closed because its reader left, and for no other reason.
        await asyncio.wait_for(closed.wait(), 30)


# --- token files ---


@pytest.mark.parametrize(
    "text",
    [
        "operator",
        "operator abcd name",
        f"admin {'0' * 64} name",
        f"operator {'0' * 64}",
        f"operator {'z' * 64} name",
        "operator my-secret-token name",
    ],
)
def test_a_line_that_is_not_a_tokens_is_refused_and_not_repeated(text: str, tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text(f"\n{text}\n")
    path.chmod(0o600)

    with pytest.raises(InvalidRequest, match="line 2 of") as refused:
        Tokens.read(path)

    assert "my-secret-token" not in str(refused.value)


def test_a_token_file_that_others_may_write_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text("")
    path.chmod(0o666)

    with pytest.raises(InvalidRequest, match="others may write to"):
        Tokens.read(path)


def test_a_missing_token_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="cannot read the tokens in"):
        Tokens.read(tmp_path / "tokens")


# --- certificate files ---


def test_files_that_do_not_belong_together_are_refused_when_read(
    certs: Path, other_certs: Path, tmp_path: Path
) -> None:
    garbage = tmp_path / "garbage.pem"
    garbage.write_text("nothing")
    pairs: list[ServerTls | ClientTls] = [
        ServerTls(certificate=certs / "server.pem", key=other_certs / "server.key"),
        ServerTls(certificate=garbage, key=certs / "server.key"),
        ServerTls(certificate=certs / "no.pem", key=certs / "server.key"),
        ServerTls(certificate=certs / "server.pem", key=certs / "server.key", client_ca=garbage),
        ClientTls(ca=garbage),
        ClientTls(certificate=certs / "client.pem"),
        ClientTls(certificate=certs / "client.pem", key=other_certs / "client.key"),
    ]

    for tls in pairs:
        with pytest.raises(InvalidRequest):
            tls.credentials()
        if isinstance(tls, ClientTls):
            with pytest.raises(plainsong.InvalidRequest):
                plainsong.connect(tls=tls)
