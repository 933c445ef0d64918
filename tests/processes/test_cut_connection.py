"""Connections that fail while both ends live."""

import socket
from pathlib import Path

import pytest

import plainsong
from tests.processes.deployment import deployed
from tests.processes.proxy import Proxy
from tests.processes.waiting import online, until


def offline(status: plainsong.Status) -> bool:
    return all(member.state is not plainsong.ReplicaState.ONLINE for member in status.clusters[0].replicas)


def test_what_is_dropped_while_the_connection_is_cut_vanishes_when_it_is_back(tmp_path: Path) -> None:
    with deployed(tmp_path) as deployment:
        deployment.start()
        replica, address = deployment.instance(1)
        proxy = Proxy(address)
        with deployment.client() as client:
            client.create_cluster("main", addresses=[proxy.address])
            client.create_table("kept", {"id": "bigint"})
            client.create_table("dropped", {"id": "bigint"})
            for table in ("kept", "dropped"):
                client.insert(table, [{"id": 1}])
                client.create_index(table, ["id"])
            until(client, online(1))

            proxy.cut()
            until(client, offline)
            client.drop("dropped")
            proxy.heal()
            status = until(client, online(1))

            assert [(one.dataflows_kept, one.dataflows_replaced) for one in status.clusters[0].replicas] == [(1, 0)]
            assert {one.name for one in client.frontiers().objects} == {"kept", "kept_by_id"}
            assert [row.id for row in client.lookup("kept", 1)] == [1]
            client.insert("kept", [{"id": 2}])
            assert sorted(row.id for row in client.peek("kept")) == [1, 2]
            assert replica.process.poll() is None
        proxy.close()
        assert " ERROR " not in deployment.logs()
        assert "Traceback" not in deployment.logs()


def test_a_write_whose_reply_was_cut_off_counts_once(tmp_path: Path) -> None:
    with deployed(tmp_path) as deployment:
        deployment.start()
        _, address = deployment.instance(1)
        proxy = Proxy(address)
        with deployment.client() as client:
            client.create_cluster("main", addresses=[proxy.address])
            client.create_table("t", {"id": "bigint"})
            until(client, online(1))

            for number in range(30):
                if number % 3 == 0:
                    proxy.cut()
                    proxy.heal()
                client.insert("t", [{"id": number}])

            assert sorted(row.id for row in client.query("SELECT id FROM t")) == list(range(30))
        proxy.close()


def test_a_replica_that_never_answers_delays_nobody(tmp_path: Path) -> None:
    with deployed(tmp_path) as deployment, socket.create_server(("127.0.0.1", 0)) as deaf:
        deployment.start()
        _, address = deployment.instance(1, "--replica", "2")
        silent = f"127.0.0.1:{deaf.getsockname()[1]}"
        with deployment.client() as client:
            client.create_cluster("main", addresses=[silent, address])
            client.create_table("t", {"id": "bigint"})
            client.insert("t", [{"id": 1}])
            client.create_index("t", ["id"])
            assert [row.id for row in client.lookup("t", 1)] == [1]

            deployment.kill()
            deployment.start()

            assert [row.id for row in client.lookup("t", 1)] == [1]
            states = {one.id: one.state for one in client.clusters()[0].replicas}
            assert states == {1: plainsong.ReplicaState.CONNECTING, 2: plainsong.ReplicaState.ONLINE}


def test_a_read_that_must_wait_names_what_is_late(tmp_path: Path) -> None:
    with deployed(tmp_path) as deployment:
        deployment.start()
        _, address = deployment.instance(1)
        proxy = Proxy(address)
        with deployment.client() as client:
            client.create_cluster("main", addresses=[proxy.address])
            client.create_table("t", {"id": "bigint"})
            client.insert("t", [{"id": 1}])
            client.create_index("t", ["id"])
            until(client, online(1))

            proxy.cut()
            until(client, offline)
            with pytest.raises(plainsong.TimedOut) as late:
                client.lookup("t", 1, timeout=0.5)

            assert "no replica that can be reached" in late.value.detail
        proxy.close()
