"""Python functions on real instances: views that call them, what they raise, and what stays when they change."""

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import plainsong
import plainsong.aio
from tests.processes.deployment import Deployment, deployed
from tests.processes.waiting import online, until
from tests.spark.cluster import children, spark_cluster
from tests.spark.test_cluster import EXECUTORS, TIMEOUT_S

WORDS = """
import re

PATTERN = re.compile("[a-z]+")

def words(text, least):
    for word in PATTERN.findall(text or ""):
        if len(word) >= least:
            yield {"word": word, "size": len(word)}
"""


def initials(text: str | None) -> str | None:
    return None if text is None else "".join(word[0] for word in text.split())


Case = tuple[Deployment, plainsong.Client]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Case]:
    with deployed(tmp_path_factory.mktemp("functions")) as deployment:
        deployment.start("--runtime", "spark", "--spark-master", "local[1]")
        with deployment.client() as client:
            client.create_cluster("main", replicas=1)
            client.create_table("t", {"k": "int", "text": "string"})
            client.insert("t", [{"k": 1, "text": "to be or not"}, {"k": 2, "text": None}])
            until(client, online(1))
            yield deployment, client


def read(client: plainsong.Client, name: str) -> set[tuple[Any, ...]]:
    return {tuple(row) for row in client.peek(name, timeout=TIMEOUT_S)}


def test_views_call_functions_and_follow_changes(running: Case) -> None:
    _, client = running
    made = client.create_function("initials", initials, args=["string"], returns="string")
    client.create_function(
        "words", WORDS, args={"text": "string", "least": "int"}, returns={"word": "string", "size": "int"}
    )
    client.create_view("short", "SELECT k, initials(text) AS i FROM t")
    client.create_index("short", ["k"], cluster="main", strict_incremental=True)
    client.create_view("sizes", "SELECT word, sum(size) AS n FROM t LATERAL VIEW words(text, 2) w GROUP BY word")
    client.create_index("sizes", ["word"], cluster="main")

    before = read(client, "short"), read(client, "sizes")
    client.insert("t", [{"k": 3, "text": "be it"}])
    client.delete("t", where="k = 1")

    assert before == ({(1, "tbon"), (2, None)}, {("to", 2), ("be", 2), ("or", 2), ("not", 3)})
    assert (read(client, "short"), read(client, "sizes")) == ({(2, None), (3, "bi")}, {("be", 2), ("it", 2)})
    assert [row.i for row in client.query("SELECT initials(text) AS i FROM t WHERE k = 3", timeout=TIMEOUT_S)] == ["bi"]
    assert ("initials", made.version) in [(each.name, each.version) for each in client.functions()]
    client.insert("t", [{"k": 1, "text": "to be or not"}])
    client.delete("t", where="k = 3")


@pytest.mark.heavy
def test_what_was_made_keeps_its_version_whatever_happens_to_the_function(running: Case) -> None:
    deployment, client = running
    first = client.create_function("mark", "def mark(k): return k * 10", args=["int"], returns="int")
    client.create_view("marked", "SELECT k, mark(k) AS m FROM t")
    client.create_index("marked", ["k"], cluster="main")
    assert read(client, "marked") == {(1, 10), (2, 20)}

    second = client.create_function("mark", "def mark(k): return -k", args=["int"], returns="int", replace=True)
    client.create_view("marked_anew", "SELECT k, mark(k) AS m FROM t")
    client.create_index("marked_anew", ["k"], cluster="main")
    client.drop_function("mark")
    # Whoever starts again has them from the log: controller, replica and JVM.
    deployment.kill()
    os.kill(deployment.replica_pid(1), signal.SIGKILL)
    deployment.start("--runtime", "spark", "--spark-master", "local[1]")
    client.insert("t", [{"k": 5, "text": ""}], timeout=TIMEOUT_S)

    assert first.version != second.version
    assert read(client, "marked") == {(1, 10), (2, 20), (5, 50)}
    assert read(client, "marked_anew") == {(1, -1), (2, -2), (5, -5)}
    # A view is computed with its own version wherever it is read.
    found = client.query("SELECT m FROM marked WHERE m = 50", timeout=TIMEOUT_S)
    assert [row.m for row in found] == [50]
    objects = {each.name: each.functions for each in client.objects()}
    assert objects["marked"] == (f"mark_{first.version}",)
    assert objects["marked_anew"] == (f"mark_{second.version}",)
    with pytest.raises(plainsong.InvalidRequest, match="unknown function 'mark'"):
        client.create_view("no", "SELECT mark(k) AS m FROM t")
    client.delete("t", where="k = 5")


@pytest.mark.parametrize(
    ("source", "returns", "said"),
    [
        ("def bad(k):\n    return helper(k)\n\ndef helper(k):\n    return 1 // (k - 2)\n", "int", "ZeroDivisionError"),
        ("def bad(k):\n    return 'one'\n", "int", "bad gave 'one' of type str, which is no int"),
        ("def bad(k):\n    return 2 ** 40\n", "int", "which is no int"),
        ("def bad(k):\n    raise ValueError('java.lang.OutOfMemoryError, says who')\n", "int", "says who"),
        ("import nothing_of_that_name\n\ndef bad(k): return 1\n", "int", "nothing_of_that_name"),
    ],
    ids=["raises", "another type", "too large", "words of a dying JVM", "cannot be loaded"],
)
def test_what_a_function_raises_fails_its_view_and_nothing_else(
    running: Case, source: str, returns: str, said: str
) -> None:
    _, client = running
    client.create_function("bad", source, args=["int"], returns=returns)
    client.create_view("failing", "SELECT k, bad(k) AS n FROM t")
    client.create_index("failing", ["k"], cluster="main")

    status = until(client, lambda status: any(each.on == "failing" and each.error for each in status.objects))

    (error,) = [each.error for each in status.objects if each.on == "failing"]
    assert said in error
    with pytest.raises(plainsong.InvalidRequest, match="the read failed") as refused:
        client.peek("failing", timeout=TIMEOUT_S)
    assert said in refused.value.detail
    if "helper" in source:
        assert 'File "<function bad>", line 5, in helper' in error
        assert "return 1 // (k - 2)" in error
        assert "pyspark" not in error
    assert [(row.k,) for row in client.query("SELECT k FROM t WHERE k = 1", timeout=TIMEOUT_S)] == [(1,)]
    (replica,) = next(each.replicas for each in client.clusters() if each.name == "main")
    assert replica.state is plainsong.ReplicaState.ONLINE
    client.drop("failing", cascade=True)
    client.drop_function("bad")


VALUES = """
from datetime import date
from decimal import Decimal

def value(kind):
    return {"boolean": True, "tinyint": -128, "smallint": 32767, "int": -1, "bigint": 2**63 - 1, "float": 0.5,
            "double": 1, "decimal(10,2)": Decimal("1.005"), "string": "\\u00e9\\U0001f3b5", "binary": b"\\0\\xff",
            "date": date(1969, 12, 31), "array<int>": [1, None], "array<string>": ("a",)}[kind]
"""


def test_values_of_every_type_come_and_go(running: Case) -> None:
    _, client = running
    types = ["boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "decimal(10,2)", "string", "binary"]
    types += ["date", "array<int>", "array<string>"]
    for number, type in enumerate(types):
        source = (
            VALUES
            + f"\ndef v{number}(given):\n    back = value({type!r})\n    return back if given is None else given\n"
        )
        client.create_function(f"v{number}", source, args=[type], returns=type)

    once = ", ".join(f"v{number}(v{number}(NULL)) AS c{number}" for number in range(len(types)))
    (row,) = client.query(f"SELECT {once} FROM t WHERE k = 1", timeout=TIMEOUT_S).to_arrow().to_pylist()

    space: dict[str, Any] = {}
    exec(VALUES, space)
    expected = [space["value"](type) for type in types]
    expected[types.index("decimal(10,2)")] = space["Decimal"]("1.01")
    expected[-1] = ["a"]
    assert list(row.values()) == expected
    for number in range(len(types)):
        client.drop_function(f"v{number}")


def test_both_clients_register_list_and_drop(running: Case) -> None:
    deployment, _ = running

    async def asked() -> list[str]:
        async with plainsong.aio.connect(deployment.address) as client:
            await client.create_function("once", "def once(x): return x", args={"x": "int"}, returns="int")
            there = [each.name for each in await client.functions()]
            await client.drop_function("once")
            await client.drop_function("once", if_exists=True)
            return there

    assert "once" in asyncio.run(asked())


@pytest.mark.heavy
def test_functions_run_on_the_executors_of_a_cluster(tmp_path: Path) -> None:
    with spark_cluster(tmp_path / "spark") as cluster, deployed(tmp_path) as deployment:
        deployment.start()
        _, address = deployment.instance(1, "--runtime", "spark", "--spark-master", cluster.master, *EXECUTORS)
        with deployment.client() as client:
            client.create_cluster("main", addresses=[address])
            client.create_table("t", {"k": "int", "text": "string"})
            client.create_function("initials", initials, args=["string"], returns="string")
            client.create_view("short", "SELECT k, initials(text) AS i FROM t")
            client.create_index("short", ["k"], cluster="main")
            client.insert("t", [{"k": 1, "text": "to be"}])

            assert read(client, "short") == {(1, "tb")}
        assert any(children(pid) for worker in cluster.workers for pid in worker.executors()), "a worker of Python"
