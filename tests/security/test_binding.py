"""Nothing listens beyond this machine without TLS or an explicit ``--insecure`` (B5)."""

from pathlib import Path

import pytest

from plainsong.access import Guard, Tokens, guards
from plainsong.channels import aio_server, listen
from plainsong.security import ClientTls, ServerTls, is_local, require_safe_bind, require_safe_token, split_address
from reconcile.errors import InvalidRequest

TLS = ServerTls(certificate=Path("server.pem"), key=Path("server.key"))
LOCAL = [
    "127.0.0.1",
    "127.0.0.2",
    "127.1",
    "::1",
    "[::1]",
    "localhost",
    "::ffff:127.0.0.1",
    "unix:/tmp/x",
    "unix-abstract:x",
]
OPEN = ["0.0.0.0", "0", "::", "[::]", "", "*", "192.0.2.1", "::ffff:0.0.0.0", "2001:db8::1", "10.0.0.1", "fe80::1"]


@pytest.mark.parametrize("host", LOCAL)
def test_this_machine_needs_no_tls(host: str) -> None:
    require_safe_bind(host, None, insecure=False)

    assert is_local(host)


@pytest.mark.parametrize("host", OPEN)
def test_others_need_tls_or_somebody_who_means_it(host: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        require_safe_bind(host, None, insecure=False)
    require_safe_bind(host, TLS, insecure=False)
    require_safe_bind(host, None, insecure=True)

    assert "--insecure" in refused.value.hint


@pytest.mark.parametrize("host", ["no-such-host.invalid", "ipv4:0.0.0.0", "vsock:1", "\udcff", "a" * 300])
def test_a_host_without_an_address_is_not_taken_for_this_machine(host: str) -> None:
    with pytest.raises(InvalidRequest):
        require_safe_bind(host, None, insecure=False)


@pytest.mark.asyncio
async def test_a_server_refuses_before_it_listens() -> None:
    server = aio_server()

    with pytest.raises(InvalidRequest, match=r"refusing to listen on 0\.0\.0\.0 without TLS"):
        listen(server, "0.0.0.0:0")
    await server.stop(None)


@pytest.mark.asyncio
async def test_a_port_is_never_shared() -> None:
    first, second = aio_server(), aio_server()
    address = listen(first, "127.0.0.1:0")

    with pytest.raises(InvalidRequest, match=f"cannot listen on {address}"):
        listen(second, address)
    await first.stop(None)
    await second.stop(None)


def test_tls_alone_lets_nobody_in_from_elsewhere() -> None:
    with pytest.raises(InvalidRequest, match="without knowing who may connect"):
        guards(host="0.0.0.0", tls=TLS, tokens=None)

    assert guards(host="127.0.0.1", tls=None, tokens=None) == ()
    assert guards(host="0.0.0.0", tls=None, tokens=None, insecure=True) == ()
    assert [type(each) for each in guards(host="127.0.0.1", tls=None, tokens=Tokens(()))] == [Guard]


def test_a_token_is_not_sent_to_another_machine_in_clear_text() -> None:
    require_safe_token("127.0.0.1:1", None, insecure=False)
    require_safe_token("192.0.2.1:1", ClientTls(), insecure=False)
    require_safe_token("192.0.2.1:1", None, insecure=True)

    with pytest.raises(InvalidRequest, match=r"refusing to send a token to 192\.0\.2\.1:1 without TLS"):
        require_safe_token("192.0.2.1:1", None, insecure=False)


@pytest.mark.parametrize(
    ("address", "parts"),
    [
        ("127.0.0.1:6875", ("127.0.0.1", 6875)),
        ("[::1]:0", ("::1", 0)),
        (":80", ("", 80)),
        ("unix:/run/x", ("unix:/run/x", None)),
    ],
)
def test_an_address_is_a_host_and_a_port(address: str, parts: tuple[str, int | None]) -> None:
    assert split_address(address) == parts


@pytest.mark.parametrize("address", ["", "host", "host:", "host:x", "host:70000", "::1:80", "host:-1", "host:٣"])
def test_what_is_not_an_address_is_refused(address: str) -> None:
    with pytest.raises(InvalidRequest, match="is not an address"):
        split_address(address)
