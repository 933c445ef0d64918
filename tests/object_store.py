"""A real S3 server on loopback: ``moto`` in a process of its own."""

import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from itertools import count

import pytest

KNOWN = {
    "Authorization": "AWS4-HMAC-SHA256 Credential=a/20260101/us-east-1/s3/aws4_request, SignedHeaders=, Signature="
}
SERVE = """
from moto.server import ThreadedMotoServer
import threading
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
threading.Event().wait()
"""
_buckets = count(1)


def request(method: str, url: str, body: bytes | None = None, **headers: str) -> int:
    """The status of the answer."""
    asked = urllib.request.Request(url, data=body, method=method, headers={**KNOWN, **headers})
    try:
        with urllib.request.urlopen(asked, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code


@pytest.fixture(scope="session")
def s3_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where it listens, as long as the session lasts."""
    log = tmp_path_factory.mktemp("s3") / "log"
    with log.open("w") as output:
        server = subprocess.Popen([sys.executable, "-c", SERVE], stdout=subprocess.PIPE, stderr=output, text=True)
        assert server.stdout is not None
        port = server.stdout.readline().strip()
        assert port, log.read_text()
        yield f"http://127.0.0.1:{port}"
        server.kill()
        server.communicate()


@pytest.fixture
def s3_bucket(s3_endpoint: str) -> str:
    name = f"bucket{next(_buckets)}"
    assert request("PUT", f"{s3_endpoint}/{name}") == 200
    return name


@pytest.fixture
def s3_place(s3_endpoint: str, s3_bucket: str) -> tuple[str, dict[str, str]]:
    """A URL for shards, and the options that lead to it."""
    options = {
        "AWS_ENDPOINT_URL": s3_endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
    }
    return f"s3://{s3_bucket}/shards", options
