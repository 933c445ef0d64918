"""Who may listen where, and who may do what: without the right certificate or token nothing is changed or learnt."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

import plainsong
from plainsong.access import CONTROLLER_METHODS, Role
from plainsong.channels import channel
from plainsong.errors import from_rpc
from plainsong.security import ClientTls
from reconcile.compute_protocol import CreateInstance, DropInstance, Hello
from reconcile.ids import Epoch, ReplicaId, SessionId
from reconcile.sessions import PROTOCOL_VERSION
from tests.processes.deployment import PATIENCE_S, Deployment, Program, deployed
from tests.processes.raw import PATHS, speaking
from tests.processes.waiting import online, until

#: How long somebody tries who cannot get in.
TRIES_S = 1.0
#: How a line begins that gRPC's own library logs: a letter, the date and the time.
OF_GRPC = re.compile(r"[EW]0000 00:00:|[EW]\d{4} \d\d:\d\d:")
SERVICE = "/plainsong.v1.ControllerService/"


def ended(program: Program, log: Path) -> str:
    """The one line with which it refuses to start, whatever gRPC itself has logged before."""
    assert program.wait() == 1
    (said,) = [line for line in log.read_text().splitlines() if not OF_GRPC.match(line)]
    return said


def certificates(folder: Path) -> Path:
    """A folder as ``plainsong certs`` makes it."""
    command = [sys.executable, "-P", "-c", "from adapter.cli import main; main()", "certs", str(folder)]
    subprocess.run(command, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certificates(tmp_path_factory.mktemp("ours") / "certs")


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made the same way by somebody else."""
    return certificates(tmp_path_factory.mktemp("theirs") / "certs")


# --- where a server listens -------------------------------------------------------------------------------

EVERYWHERE = ["0.0.0.0:0", "[::]:0", "*:0", ":0"]


def launched(deployment: Deployment, program: str, *options: str) -> tuple[Program, Path]:
    log = deployment.folder / f"{program}-{len(deployment.programs)}.log"
    own = {"controller": ["--migrate"], "instance": ["--shards", str(deployment.folder / "shards")]}[program]
    launched = Program(program, ["--data", str(deployment.data), *own, *options], log)
    deployment.programs.append(launched)
    return launched, log


@pytest.mark.parametrize("program", ["controller", "instance"])
@pytest.mark.parametrize("address", EVERYWHERE)
def test_nobody_listens_to_the_street_without_tls(tmp_path: Path, program: str, address: str) -> None:
    with deployed(tmp_path) as deployment:
        said = ended(*launched(deployment, program, "--listen", address))

    assert said.startswith(f"plainsong {program}: refusing to listen on ")
    assert "hint: " in said
    assert "--insecure if you mean it" in said


@pytest.mark.parametrize("program", ["controller", "instance"])
def test_whoever_says_insecure_is_believed(tmp_path: Path, program: str) -> None:
    with deployed(tmp_path) as deployment:
        started, _ = launched(deployment, program, "--listen", "0.0.0.0:0", "--insecure")
        address = started.address()

        with channel(f"127.0.0.1:{address.rpartition(':')[2]}") as to:
            stub: Any = health_pb2_grpc.HealthStub(to)
            answer = stub.Check(health_pb2.HealthCheckRequest(), timeout=PATIENCE_S)

    assert address.startswith("0.0.0.0:")
    assert answer.status == health_pb2.HealthCheckResponse.SERVING


@pytest.mark.parametrize("program", ["controller", "instance"])
def test_with_certificates_a_server_may_listen_everywhere(tmp_path: Path, program: str, ours: Path) -> None:
    with deployed(tmp_path) as deployment:
        started, _ = launched(deployment, program, "--listen", "0.0.0.0:0", "--tls", str(ours))
        port = started.address().rpartition(":")[2]

        with channel(f"127.0.0.1:{port}", ClientTls.folder(ours)) as to:
            stub: Any = health_pb2_grpc.HealthStub(to)
            answer = stub.Check(health_pb2.HealthCheckRequest(), timeout=PATIENCE_S)

    assert answer.status == health_pb2.HealthCheckResponse.SERVING


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--listen", "nonsense"], "'nonsense' is not an address"),
        (["--listen", "127.0.0.1:99999"], "is not an address"),
        (["--listen", "no-such-host.invalid:0"], "has no address"),
        (["--listen", "192.0.2.1:0", "--insecure"], "cannot listen on 192.0.2.1:0"),
        (["--tls", "/nowhere"], "cannot read /nowhere"),
    ],
)
@pytest.mark.parametrize("program", ["controller", "instance"])
def test_what_cannot_be_listened_on_is_named(tmp_path: Path, program: str, options: list[str], why: str) -> None:
    with deployed(tmp_path) as deployment:
        assert why in ended(*launched(deployment, program, *options))


@pytest.mark.parametrize("fault", ["writable", "secret", "missing"])
def test_a_token_file_that_cannot_be_trusted_is_refused_and_not_repeated(tmp_path: Path, fault: str) -> None:
    tokens = tmp_path / "tokens"
    if fault != "missing":
        tokens.write_text("operator geheim me\n" if fault == "secret" else f"operator {'ab' * 32} me\n")
        tokens.chmod(0o666 if fault == "writable" else 0o600)
    with deployed(tmp_path) as deployment:
        said = ended(*launched(deployment, "controller", "--listen", "127.0.0.1:0", "--tokens", str(tokens)))

    assert {"writable": "others may write", "secret": "line 1 of", "missing": "cannot read the tokens"}[fault] in said
    assert "geheim" not in said


# --- tokens -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, ours: Path) -> Iterator[Deployment]:
    """A deployment with tokens and one secret in it."""
    with deployed(tmp_path_factory.mktemp("tokens"), "--tokens", str(ours / "tokens")) as deployment:
        deployment.start()
        with plainsong.connect(deployment.address, token=token(ours, Role.OPERATOR)) as client:
            client.create_cluster("hidden", replicas=1)
            client.create_table("secret", {"word": "string"})
            client.insert("secret", [{"word": "xyzzy"}])
            client.create_index("secret", name="secret_index")
            until(client, online(1, cluster="hidden"))
        yield deployment
        assert "Traceback" not in deployment.logs()


def token(folder: Path, role: Role) -> str:
    return (folder / f"{role}.token").read_text().strip()


def as_seen_by(client: plainsong.Client) -> tuple[object, ...]:
    words = [row.word for row in client.query("SELECT word FROM secret")]
    return words, client.objects(), [(each.name, len(each.replicas)) for each in client.clusters()], client.log()


def refused(
    address: str, method: str, *metadata: tuple[str, str], tls: ClientTls | None = None
) -> grpc.RpcError | None:
    """How a call without a request ends; ``None`` if it is answered. Its first answer is enough."""
    with channel(address, tls) as to:
        ask: Any = to.unary_stream(method)
        try:
            next(ask(b"", metadata=metadata, timeout=PATIENCE_S), None)
        except grpc.RpcError as error:
            return error
    return None


WRONG: dict[str, tuple[tuple[str, str], ...]] = {
    "none": (),
    "empty": (("authorization", ""),),
    "no scheme": (("authorization", "x"),),
    "another scheme": (("authorization", "Basic eDp5"),),
    "a wrong one": (("authorization", "Bearer wrong"),),
    "an empty one": (("authorization", "Bearer "),),
    "a long one": (("authorization", "Bearer " + "x" * 4_000),),
    "sql": (("authorization", "Bearer ' OR '1'='1"),),
    "a path": (("authorization", "Bearer ../../operator.token"),),
    "two": (("authorization", "Bearer a"), ("authorization", "Bearer b")),
}


@pytest.mark.parametrize("credentials", WRONG)
def test_without_a_token_no_method_says_anything(guarded: Deployment, ours: Path, credentials: str) -> None:
    with plainsong.connect(guarded.address, token=token(ours, Role.OPERATOR)) as client:
        before = as_seen_by(client)

        refusals = [
            refused(guarded.address, f"{SERVICE}{method}", *WRONG[credentials]) for method in CONTROLLER_METHODS
        ]

        assert as_seen_by(client) == before
    told = {str(from_rpc(refusal)) for refusal in refusals if refusal is not None}
    assert [refusal.code() for refusal in refusals if refusal] == [grpc.StatusCode.UNAUTHENTICATED] * len(refusals)
    assert told == {"not authenticated; hint: give a valid token or client certificate"}


def test_a_digest_is_not_a_token(guarded: Deployment, ours: Path) -> None:
    """Who reads the token file cannot use it."""
    for line in (ours / "tokens").read_text().splitlines()[1:]:
        refusal = refused(guarded.address, f"{SERVICE}GetStatus", ("authorization", f"Bearer {line.split()[1]}"))

        assert refusal is not None
        assert refusal.code() is grpc.StatusCode.UNAUTHENTICATED


def test_a_stranger_learns_neither_methods_nor_messages(guarded: Deployment, ours: Path) -> None:
    asked = reflection_pb2.ServerReflectionRequest(list_services="")
    answers = []
    for metadata in ((), (("authorization", f"Bearer {token(ours, Role.READ_ONLY)}"),)):
        with channel(guarded.address) as to:
            stub: Any = reflection_pb2_grpc.ServerReflectionStub(to)
            call = stub.ServerReflectionInfo(iter([asked]), metadata=metadata, timeout=PATIENCE_S)
            try:
                answers.append(next(call).WhichOneof("message_response"))
            except grpc.RpcError as error:
                answers.append(error.code())
    unknown = refused(guarded.address, f"{SERVICE}DropEverything")

    assert answers == [grpc.StatusCode.UNAUTHENTICATED, "list_services_response"]
    assert unknown is not None
    assert unknown.code() is grpc.StatusCode.UNAUTHENTICATED


def test_everybody_may_ask_whether_it_lives(guarded: Deployment) -> None:
    with channel(guarded.address) as to:
        stub: Any = health_pb2_grpc.HealthStub(to)
        answer = stub.Check(health_pb2.HealthCheckRequest(), timeout=PATIENCE_S)

    assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_who_may_only_read_reads_all_and_changes_nothing(guarded: Deployment, ours: Path) -> None:
    metadata = ("authorization", f"Bearer {token(ours, Role.READ_ONLY)}")
    with (
        plainsong.connect(guarded.address, token=token(ours, Role.OPERATOR)) as operator,
        plainsong.connect(guarded.address, token=token(ours, Role.READ_ONLY)) as reader,
    ):
        before = as_seen_by(operator)

        for method, needed in CONTROLLER_METHODS.items():
            refusal = refused(guarded.address, f"{SERVICE}{method}", metadata)
            denied = refusal is not None and refusal.code() is grpc.StatusCode.PERMISSION_DENIED
            assert denied is (needed is Role.OPERATOR), method
        for attempt in (
            lambda: reader.insert("secret", [{"word": "plugh"}]),
            lambda: reader.insert("missing", [{"word": "plugh"}]),
            lambda: reader.drop("secret", cascade=True),
            lambda: reader.drop_cluster("hidden", cascade=True),
        ):
            with pytest.raises(plainsong.PermissionDenied, match="this needs the role operator"):
                attempt()

        assert as_seen_by(reader) == before
        assert as_seen_by(operator) == before
        assert [row.word for row in reader.peek("secret_index")] == ["xyzzy"]


def test_with_the_right_token_everything_works(guarded: Deployment, ours: Path) -> None:
    with plainsong.connect(guarded.address, token=token(ours, Role.OPERATOR)) as operator:
        operator.create_table("mine", {"id": "int"})
        operator.insert("mine", [{"id": 1}])

        assert [row.id for row in operator.query("SELECT id FROM mine")] == [1]
        assert operator.drop("mine") == ("mine",)


# --- certificates -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory, ours: Path) -> Iterator[Deployment]:
    """A deployment whose controller and replicas ask for certificates."""
    with deployed(tmp_path_factory.mktemp("mtls"), "--tls", str(ours)) as deployment:
        deployment.start()
        with plainsong.connect(deployment.address, tls=ours) as client:
            client.create_cluster("hidden", replicas=1)
            client.create_table("secret", {"word": "string"})
            client.insert("secret", [{"word": "xyzzy"}])
            client.create_index("secret", name="secret_index")
            until(client, online(1, cluster="hidden"))
        yield deployment
        assert "Traceback" not in deployment.logs()


def reader(folder: Path) -> ClientTls:
    return ClientTls(ca=folder / "ca.pem", certificate=folder / "read-only.pem", key=folder / "read-only.key")


def test_certificates_hold_from_the_client_to_the_replicas(sealed: Deployment, ours: Path) -> None:
    with plainsong.connect(sealed.address, tls=ours) as client:
        client.create_table("mine", {"id": "int"})
        client.insert("mine", [{"id": 1}])
        (replica,) = client.clusters()[0].replicas
        command = Path(f"/proc/{sealed.replica_pid(replica.id, 'hidden')}/cmdline").read_bytes().decode()

        assert [row.id for row in client.query("SELECT id FROM mine")] == [1]
        assert [row.word for row in client.peek("secret_index")] == ["xyzzy"]
        assert re.search(rf"--tls\0{re.escape(str(ours))}\0", command)
        client.drop("mine")


def strangers(ours: Path, theirs: Path) -> dict[str, ClientTls | None]:
    mine = ClientTls.folder(theirs)
    return {
        "no TLS": None,
        "no certificate": ClientTls(ca=ours / "ca.pem"),
        "another's certificate": ClientTls(ca=ours / "ca.pem", certificate=mine.certificate, key=mine.key),
        "another's authority": mine,
        "the server's own": ClientTls(ca=ours / "ca.pem", certificate=ours / "server.pem", key=ours / "server.key"),
    }


@pytest.mark.parametrize("who", ["no TLS", "no certificate", "another's certificate", "another's authority"])
@pytest.mark.parametrize("server", ["controller", "replica"])
def test_without_our_certificate_nobody_gets_in(
    sealed: Deployment, ours: Path, theirs: Path, who: str, server: str
) -> None:
    tls = strangers(ours, theirs)[who]
    with plainsong.connect(sealed.address, tls=ours) as client:
        before = as_seen_by(client)
        address = sealed.address if server == "controller" else client.clusters()[0].replicas[0].address

        for method in (f"{SERVICE}GetStatus", PATHS["compute"], "/grpc.health.v1.Health/Check"):
            refusal = refused(address, method, tls=tls)
            assert refusal is not None
            assert refusal.code() is grpc.StatusCode.UNAVAILABLE

        assert as_seen_by(client) == before


def test_a_certificate_without_a_role_opens_nothing(sealed: Deployment, ours: Path, theirs: Path) -> None:
    tls = strangers(ours, theirs)["the server's own"]

    for method in CONTROLLER_METHODS:
        refusal = refused(sealed.address, f"{SERVICE}{method}", tls=tls)
        assert refusal is not None
        assert refusal.code() in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.UNAVAILABLE)


def test_a_certificate_that_may_only_read_changes_nothing(sealed: Deployment, ours: Path) -> None:
    with (
        plainsong.connect(sealed.address, tls=ours) as operator,
        plainsong.connect(sealed.address, tls=reader(ours)) as client,
    ):
        before = as_seen_by(operator)

        for method, needed in CONTROLLER_METHODS.items():
            refusal = refused(sealed.address, f"{SERVICE}{method}", tls=reader(ours))
            denied = refusal is not None and refusal.code() is grpc.StatusCode.PERMISSION_DENIED
            assert denied is (needed is Role.OPERATOR), method
        with pytest.raises(plainsong.PermissionDenied):
            client.drop("secret", cascade=True)

        assert as_seen_by(client) == before


def test_a_certificate_that_may_only_read_does_not_command_replicas(sealed: Deployment, ours: Path) -> None:
    """It knows everything that a controller says, and is signed as well as the controller's."""
    with plainsong.connect(sealed.address, tls=ours) as client:
        before, status = as_seen_by(client), client.status()
        (replica,) = status.clusters[0].replicas
        hello = Hello(
            epoch=Epoch(status.epoch + 1),
            session=SessionId("thief"),
            deployment=status.deployment,
            replica=ReplicaId(replica.id),
            protocol_version=PROTOCOL_VERSION,
        )

        for kind in PATHS:
            with speaking(replica.address, kind, reader(ours)) as speaker:
                speaker.say(hello)
                assert isinstance(speaker.refusal(), plainsong.PermissionDenied)
        with speaking(replica.address, "compute", reader(ours)) as speaker:
            speaker.say(hello, CreateInstance(), DropInstance())
            assert isinstance(speaker.refusal(), plainsong.PermissionDenied)

        assert as_seen_by(client) == before
        assert client.clusters()[0].replicas[0].incarnation == replica.incarnation


def test_a_client_says_why_it_cannot_get_in(sealed: Deployment, theirs: Path) -> None:
    for tls in (None, ClientTls.folder(theirs)):
        with (
            plainsong.connect(sealed.address, tls=tls) as client,
            pytest.raises(plainsong.Unavailable, match="TLS if you use it"),
        ):
            client.status(timeout=TRIES_S)


def test_a_wrong_token_is_not_saved_by_a_good_certificate(tmp_path: Path, ours: Path) -> None:
    with deployed(tmp_path, "--tls", str(ours), "--tokens", str(ours / "tokens")) as deployment:
        deployment.start()
        for said, expected in (
            (None, None),
            ("wrong", plainsong.Unauthenticated),
            (token(ours, Role.READ_ONLY), plainsong.PermissionDenied),
            (token(ours, Role.OPERATOR), None),
        ):
            with plainsong.connect(deployment.address, tls=ours, token=said) as client:
                if expected is None:
                    assert client.create_cluster(f"by {said}", replicas=0).replicas == ()
                else:
                    with pytest.raises(expected):
                        client.create_cluster("refused", replicas=0)
        with plainsong.connect(deployment.address, tls=ours) as client:
            assert "refused" not in [each.name for each in client.clusters()]
