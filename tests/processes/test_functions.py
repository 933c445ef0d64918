"""Functions in the catalog: who may register them, once, and where they do not run."""

from collections.abc import Iterator

import pytest

import plainsong
from tests.processes.deployment import Deployment, deployed
from tests.processes.waiting import online, until

Case = tuple[Deployment, plainsong.Client]
SOURCE = "def twice(x):\n    return 2 * x\n"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Case]:
    with deployed(tmp_path_factory.mktemp("functions")) as deployment:
        deployment.start()
        with deployment.client() as client:
            client.create_cluster("main", replicas=1)
            client.create_table("t", {"k": "int"})
            client.insert("t", [{"k": 1}])
            until(client, online(1))
            yield deployment, client


def test_a_runtime_in_memory_says_that_it_runs_no_python(running: Case) -> None:
    _, client = running
    client.create_function("twice", SOURCE, args=["int"], returns="int", if_not_exists=True)
    client.create_view("doubled", "SELECT twice(k) AS n FROM t")
    client.create_index("doubled", cluster="main")

    status = until(client, lambda status: any(each.on == "doubled" and each.error for each in status.objects))

    (error,) = [each.error for each in status.objects if each.on == "doubled"]
    assert "function twice is in Python, which this runtime does not run" in error
    assert "use a cluster that runs on Spark" in error
    assert [row.k for row in client.query("SELECT k FROM t")] == [1]
    client.drop("doubled", cascade=True)


def test_functions_survive_a_restart_and_a_request_sent_again_counts_once(running: Case) -> None:
    deployment, client = running

    def ask() -> plainsong.Function:
        args = {"x": "decimal(10, 2)"}
        source = "def kept(x): return x"
        return client.create_function("kept", source, args=args, returns="array<string>", idempotency_key="once")

    made = ask()

    deployment.kill()
    deployment.start()

    assert [each for each in client.functions() if each.name == "kept"] == [made]
    assert ask() == made
    assert (made.args[0].type, made.returns) == ("decimal(10,2)", "array<string>")
    client.drop_function("kept")
    assert ask() == made, "the reply of then"
    assert [each for each in client.functions() if each.name == "kept"] == []


def test_a_name_is_taken_once_unless_it_is_said_to_be_replaced(running: Case) -> None:
    _, client = running
    first = client.create_function("named", "def named(): return 1", returns="int")

    with pytest.raises(plainsong.InvalidRequest, match="a function named named already"):
        client.create_function("named", "def named(): return 2", returns="int")
    same = client.create_function("named", "def named(): return 2", returns="int", if_not_exists=True)
    second = client.create_function("named", "def named(): return 2", returns="int", replace=True)

    assert same == first
    assert second.version != first.version
    # Functions and relations are named apart.
    client.create_table("named", {"k": "int"})


def test_what_is_declared_as_nondeterministic_is_refused(running: Case) -> None:
    _, client = running

    with pytest.raises(plainsong.InvalidRequest, match="declared as nondeterministic") as refused:
        client.create_function("dice", "def dice(): return 4", returns="int", nondeterministic=True)

    assert refused.value.reason == "NONDETERMINISTIC"
    assert "dice" not in [each.name for each in client.functions()]


def test_what_uses_what_is_around_it_is_refused_before_it_is_sent(running: Case) -> None:
    _, client = running
    around = 3

    def closing(x: int) -> int:
        return x + around

    def using(x: int) -> str:
        return SOURCE * x

    for function, used in ((closing, "around"), (using, "SOURCE")):
        with pytest.raises(plainsong.InvalidRequest, match=f"uses {used} from around it"):
            client.create_function("no", function, args=["int"], returns="int")
    with pytest.raises(plainsong.InvalidRequest, match="not made by a def"):
        client.create_function("no", lambda x: x, args=["int"], returns="int")
    with pytest.raises(plainsong.InvalidRequest, match="not made by a def"):
        client.create_function("no", abs, args=["int"], returns="int")


def test_a_dropped_function_is_gone(running: Case) -> None:
    _, client = running

    with pytest.raises(plainsong.InvalidRequest, match="no function named 'nobody'"):
        client.drop_function("nobody")
    client.drop_function("nobody", if_exists=True)
