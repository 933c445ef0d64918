"""Two controllers, one deployment: the one that lost its reign has no effect and says so."""

import signal
from pathlib import Path

import plainsong
from tests.processes.deployment import deployed
from tests.processes.waiting import online, until


def test_a_second_controller_on_one_data_folder_is_refused_and_told_who_has_it(tmp_path: Path) -> None:
    with deployed(tmp_path) as deployment:
        first = deployment.start()

        second = deployment.launch(port="0")

        assert second.wait() == 1
        assert f"process {first.process.pid}" in deployment.logs()
        assert "--take-over" in deployment.logs()
        with deployment.client() as client:
            client.create_cluster("main", replicas=0)
        assert first.process.poll() is None


def test_take_over_ends_the_holder_first(tmp_path: Path) -> None:
    with deployed(tmp_path) as deployment:
        first = deployment.start()
        with deployment.client() as client:
            client.create_cluster("main", replicas=1)
            client.create_table("t", {"id": "bigint"})
            client.insert("t", [{"id": 1}])
            client.create_index("t", ["id"])
            until(client, online(1))
        first.signal(signal.SIGSTOP)

        deployment.start("--take-over")

        assert first.wait() != 0
        with deployment.client() as client:
            assert [row.id for row in client.lookup("t", 1)] == [1]
            status = until(client, online(1))
            assert [one.dataflows_kept for one in status.clusters[0].replicas] == [1]


def test_a_deposed_controller_has_no_effect_and_stops_by_itself(tmp_path: Path, postgres_url: str) -> None:
    with deployed(tmp_path, database=postgres_url) as deployment:
        first = deployment.start()
        first_address = deployment.address
        with deployment.client() as client:
            client.create_cluster("main", replicas=2)
            client.create_table("t", {"id": "bigint"})
            client.insert("t", [{"id": 1}])
            client.create_index("t", ["id"])
            until(client, online(2))
        first.signal(signal.SIGSTOP)

        second = deployment.launch(port="0")
        deployment.address = second.address()
        with deployment.client() as client, plainsong.connect(first_address) as deposed:
            status = until(client, online(2))
            assert [one.dataflows_kept for one in status.clusters[0].replicas] == [1, 1]
            client.insert("t", [{"id": 2}])
            first.signal(signal.SIGCONT)
            try:
                deposed.insert("t", [{"id": 3}], timeout=5)
                deposed.create_table("stray", {"id": "bigint"}, timeout=5)
            except plainsong.PlainsongError:
                pass
            else:
                raise AssertionError("a deposed controller acknowledged")

            assert first.wait() == 1
            assert sorted(row.id for row in client.peek("t")) == [1, 2]
            assert {one.name for one in client.objects()} == {"t", "t_by_id"}
            client.insert("t", [{"id": 4}])
            assert sorted(row.id for row in client.peek("t")) == [1, 2, 4]
        assert "another controller has taken over" in (tmp_path / "controller-0.log").read_text()
        assert "Traceback" not in deployment.logs()
