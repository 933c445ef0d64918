"""The durable log shrinks to what is alive, and dying in the middle of that loses nothing."""

from pathlib import Path

import pytest

import plainsong
from tests.processes.deployment import Deployment, deployed
from tests.processes.waiting import online, until

#: So short that everything that is logged is soon history.
SHORT = ("--retention-ms", "1", "--resume-ms", "0", "--compaction-ms", "20", "--log-tail-max", "10")


def compacted(client: plainsong.Client) -> bool:
    """Whether some of the log stands for what was before it."""
    return any(record.seqno == 0 for record in client.log(timeout=3))


def work(client: plainsong.Client) -> None:
    client.create_cluster("main", replicas=1, timeout=3)
    client.create_table("t", {"id": "bigint"}, timeout=3)
    client.create_index("t", ["id"], timeout=3)
    for number in range(200):
        client.insert("t", [{"id": number}], timeout=3)
        if number > 20 and compacted(client):
            return
    raise AssertionError("the log was never compacted")


def check_whole(deployment: Deployment, client: plainsong.Client) -> None:
    before = sorted(row.id for row in client.query("SELECT id FROM t"))
    sinces = {one.name: one.since for one in client.frontiers().objects}
    deployment.kill()
    deployment.start()
    status = until(client, online(1))
    assert [(one.dataflows_kept, one.dataflows_replaced) for one in status.clusters[0].replicas] == [(1, 0)]
    assert sorted(row.id for row in client.query("SELECT id FROM t")) == before
    assert all(one.since >= sinces[one.name] for one in client.frontiers().objects)


def test_a_compacted_log_leads_to_the_same_state(tmp_path: Path) -> None:
    with deployed(tmp_path, *SHORT) as deployment:
        deployment.start()
        with deployment.client() as client:
            work(client)
            assert len(client.log()) < 30

            check_whole(deployment, client)


@pytest.mark.parametrize("point", ["compact-before-commit", "compact-after-commit"])
def test_dying_while_the_log_is_compacted_loses_nothing(tmp_path: Path, point: str) -> None:
    with deployed(tmp_path, *SHORT) as deployment:
        armed = deployment.start(failpoint=point)
        with deployment.client() as client:
            with pytest.raises(plainsong.PlainsongError):
                work(client)
            assert armed.wait() < 0
            deployment.start()

            check_whole(deployment, client)
