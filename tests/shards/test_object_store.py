"""Shards in an object store: a real S3 server on loopback, whose conditional puts are tried first.

The server is ``moto`` in a process of its own.
"""

import asyncio
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import pytest

from instance.inputs import NotReadable
from instance.shards.delta import DeltaShardStore
from instance.shards.maintenance import maintain
from instance.shards.rules import UpkeepRules
from instance.shards.store import Appended, UpperMoved
from instance.storage.readers import ShardInputs
from reconcile.frontiers import MINIMUM, Antichain
from reconcile.ids import Step, WriterEpoch
from tests.shards.rows import COLUMNS, listed
from tests.shards.writer import S1, append

KNOWN = {
    "Authorization": "AWS4-HMAC-SHA256 Credential=a/20260101/us-east-1/s3/aws4_request, SignedHeaders=, Signature="
}
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


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    log = tmp_path_factory.mktemp("s3") / "log"
    with log.open("w") as output:
        server = subprocess.Popen([sys.executable, "-c", SERVE], stdout=subprocess.PIPE, stderr=output, text=True)
        assert server.stdout is not None
        port = server.stdout.readline().strip()
        assert port, log.read_text()
        yield f"http://127.0.0.1:{port}"
        server.kill()
        server.communicate()


SERVE = """
from moto.server import ThreadedMotoServer
import threading
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
threading.Event().wait()
"""


@pytest.fixture
def bucket(endpoint: str) -> str:
    name = f"bucket{next(_buckets)}"
    assert request("PUT", f"{endpoint}/{name}") == 200
    return name


@pytest.fixture
def place(endpoint: str, bucket: str) -> tuple[str, dict[str, str]]:
    options = {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
    }
    return f"s3://{bucket}/shards", options


def test_of_conditional_puts_at_the_same_time_exactly_one_wins(endpoint: str, bucket: str) -> None:
    """What everything else here stands on."""
    with ThreadPoolExecutor(8) as threads:
        for number in range(10):
            url = f"{endpoint}/{bucket}/{number}"
            answers = list(
                threads.map(lambda _, url=url: request("PUT", url, b"x", **{"If-None-Match": "*"}), range(8))
            )
            assert sorted(answers) == [200, *([412] * 7)]


@pytest.mark.asyncio
async def test_a_shard_is_written_read_and_fenced_as_on_a_disk(place: tuple[str, dict[str, str]]) -> None:
    stores = [DeltaShardStore(place[0], options=place[1]) for _ in range(2)]
    ours, theirs = [await store.open(S1, COLUMNS) for store in stores]

    outcomes = await asyncio.gather(append(ours, 0, "ours"), append(theirs, 0, "theirs"))
    assert sorted(outcomes) == [False, True]
    winner = "ours" if outcomes[0] else "theirs"
    await theirs.take_over(WriterEpoch(2))
    fenced = await append(ours, 1, "old", epoch=WriterEpoch(1))
    theirs.advance(Antichain.at(5))
    flushed = await theirs.flush()
    late = await theirs.compare_and_append(
        expected=MINIMUM, upper=Antichain.at(1), updates=None, writer_epoch=None, token=""
    )

    assert not fenced
    assert flushed == Appended(upper=Antichain.at(5))
    assert late == UpperMoved(upper=Antichain.at(5))
    assert await ours.refresh() == Antichain.at(5)
    assert listed(await ours.snapshot(Step(4))) == [(winner, 0, 1)]
    assert await ours.find_token(f"{winner}-0") == 0
    for store in stores:
        await store.close()


@pytest.mark.asyncio
async def test_a_shard_is_compacted_cleaned_up_and_vacuumed(place: tuple[str, dict[str, str]]) -> None:
    rules = UpkeepRules(tier_files_max=3, log_versions_min=4, reopen_after=4)
    stores = [DeltaShardStore(place[0], options=place[1], rules=rules) for _ in range(2)]
    shard, behind = [await store.open(S1, COLUMNS) for store in stores]
    cleaned = deleted = 0

    for step in range(16):
        assert await append(shard, step, "a")
        await shard.advance_since(Antichain.at(step // 2))
        done = (await maintain(shard, (1 + step) * 1e12)).tidied
        cleaned, deleted = cleaned + done.commits_cleaned, deleted + done.files_deleted

    assert cleaned > 0
    assert deleted > 0
    assert await behind.refresh() == Antichain.at(16)
    for seen in (shard, behind, await stores[0].open(S1, COLUMNS)):
        assert listed(await seen.snapshot(Step(15))) == sorted([("a", step, 1) for step in range(16)], key=repr)
        with pytest.raises(NotReadable):
            await seen.snapshot(Step(3))
    for store in stores:
        await store.close()


@pytest.mark.asyncio
async def test_a_reader_finds_what_another_process_appends(
    place: tuple[str, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = [DeltaShardStore(place[0], options=place[1]) for _ in range(2)]
    monkeypatch.setattr("instance.shards.delta.REMOTE_POLL_SECONDS", 0.05)
    shard = await theirs.open(S1, COLUMNS)
    inputs = ShardInputs(ours)
    waiting = asyncio.create_task(inputs.open(S1, COLUMNS).changes(MINIMUM))
    await asyncio.sleep(0)

    await append(shard, 0, "a")

    assert listed((await asyncio.wait_for(waiting, 20)).table) == [("a", 0, 0, 1)]
    await inputs.stop()
    await ours.close()
    await theirs.close()
