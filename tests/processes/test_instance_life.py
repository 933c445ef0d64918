"""The life of an instance: dying while it notes who reigns, and ending when it is told to."""

import signal
from pathlib import Path

import pytest

from tests.processes.deployment import deployed
from tests.processes.waiting import online, until


@pytest.mark.parametrize(("point", "noted"), [("instance-before-epoch", False), ("instance-after-epoch", True)])
def test_an_instance_that_dies_while_it_notes_an_epoch_comes_back(tmp_path: Path, point: str, noted: bool) -> None:
    with deployed(tmp_path) as deployment:
        deployment.start()
        armed, address = deployment.instance(1, failpoint=point)
        with deployment.client() as client:
            client.create_cluster("main", addresses=[address])
            assert armed.wait() < 0
            assert (tmp_path / "own-1" / "epoch").exists() == noted

            deployment.instance(1, "--listen", address)

            client.create_table("t", {"id": "bigint"})
            client.insert("t", [{"id": 1}])
            assert [row.id for row in client.query("SELECT id FROM t")] == [1]
            assert (tmp_path / "own-1" / "epoch").read_text() == "1\n"


def test_an_instance_that_is_told_to_stop_finishes_and_says_so(tmp_path: Path) -> None:
    with deployed(tmp_path) as deployment:
        deployment.start()
        program, address = deployment.instance(1)
        with deployment.client() as client:
            client.create_cluster("main", addresses=[address])
            client.create_table("t", {"id": "bigint"})
            client.insert("t", [{"id": 1}])
            until(client, online(1))

            program.signal(signal.SIGTERM)

            assert program.wait() == 0
            log = (tmp_path / "instance-1.log").read_text()
            assert "stopping" in log
            assert "Traceback" not in log


def test_a_controller_that_is_told_to_stop_leaves_its_replicas_running(tmp_path: Path) -> None:
    with deployed(tmp_path) as deployment:
        first = deployment.start()
        with deployment.client() as client:
            client.create_cluster("main", replicas=1)
            client.create_table("t", {"id": "bigint"})
            client.create_index("t", ["id"])
            client.insert("t", [{"id": 1}])
            until(client, online(1))
            pid = deployment.replica_pid(1)

            first.signal(signal.SIGTERM)
            assert first.wait() == 0
            deployment.start()

            assert [row.id for row in client.lookup("t", 1)] == [1]
            assert deployment.replica_pid(1) == pid
        assert "Traceback" not in deployment.logs()
