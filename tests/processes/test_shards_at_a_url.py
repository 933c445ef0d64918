"""A deployment whose shards are in an object store: what was acknowledged outlives every process."""

import os
import signal
from collections import Counter
from pathlib import Path

import pytest
from deltalake import DeltaTable

import plainsong
from tests.processes.deployment import Deployment, deployed
from tests.processes.source_models import held
from tests.processes.test_sources import ROWS, files, write_files
from tests.processes.waiting import online, until

Place = tuple[str, dict[str, str]]


def at(place: Place) -> list[str]:
    options = [part for name, value in place[1].items() for part in ("--shard-option", f"{name}={value}")]
    return ["--shards", place[0], *options]


def kill_everything(deployment: Deployment, replicas: int) -> None:
    pids = [deployment.replica_pid(replica) for replica in range(1, replicas + 1)]
    deployment.kill()
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def check(client: plainsong.Client, rows: list[tuple[int, str | None]]) -> None:
    assert [tuple(row) for row in client.query("SELECT id, name FROM t ORDER BY id")] == rows
    assert sorted(tuple(row) for row in client.peek("t_by_id")) == rows
    for row in rows:
        assert [tuple(found) for found in client.lookup("t", row[0])] == [row]
    assert [row.n for row in client.query("SELECT n FROM counted")] == [len(rows)]


@pytest.mark.heavy
def test_rows_in_an_object_store_outlive_controller_and_replicas(tmp_path: Path, s3_place: Place) -> None:
    write_files(tmp_path / "files", "csv", ROWS)
    with deployed(tmp_path, *at(s3_place)) as deployment:
        deployment.start()
        with deployment.client() as client:
            client.create_cluster("main", replicas=2)
            client.create_table("t", {"id": "bigint not null", "name": "string"})
            client.insert("t", [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}])
            client.create_index("t", ["id"], name="t_by_id")
            client.create_materialized_view("counted", "SELECT count(*) AS n FROM t")
            columns = {"id": "bigint", "name": "string"}
            client.create_source("read", "files", columns, options=files(tmp_path / "files"))
            until(client, online(2))
            client.update("t", {"name": "'c'"}, where="id = 2")
            check(client, [(1, "a"), (2, "c")])
            taken = Counter((row["id"], row["name"]) for row in ROWS)
            until(client, lambda _: held(client, "read") == taken)

            kill_everything(deployment, 2)
            deployment.start()

            check(client, [(1, "a"), (2, "c")])
            assert held(client, "read") == taken
            client.add_columns("t", {"note": "string"})
            client.insert("t", [{"id": 3, "name": "d", "note": "new"}])

            kill_everything(deployment, 2)
            deployment.start()

            check(client, [(1, "a"), (2, "c"), (3, "d")])
            noted = client.query("SELECT id, note FROM t ORDER BY id")
            assert [tuple(row) for row in noted] == [(1, None), (2, None), (3, "new")]
            assert held(client, "read") == taken

        # They are where they should be, for any reader of Delta tables, and nowhere else.
        assert DeltaTable(f"{s3_place[0]}/s1", storage_options=s3_place[1]).transaction_version("upper")
        assert not list((deployment.data / "shards").glob("*"))
        assert "Traceback" not in deployment.logs()


@pytest.mark.heavy
@pytest.mark.parametrize("refused", ["endpoint", "bucket"])
def test_a_store_that_cannot_be_reached_is_named_and_loses_nothing_once_it_can(
    tmp_path: Path, s3_place: Place, refused: str
) -> None:
    url, options = s3_place
    elsewhere: dict[str, Place] = {
        "endpoint": (url, {**options, "AWS_ENDPOINT_URL": "http://127.0.0.1:9", "max_retries": "1"}),
        "bucket": ("s3://nowhere/shards", options),
    }
    with deployed(tmp_path) as deployment:
        deployment.start(*at(elsewhere[refused]))
        with deployment.client() as client:
            client.create_cluster("main", replicas=1)
            client.create_table("t", {"id": "bigint"})
            status = until(client, lambda status: any(one.error for one in status.objects))
            with pytest.raises(plainsong.PlainsongError):
                client.insert("t", [{"id": 1}], timeout=0.5)

            kill_everything(deployment, 1)
            deployment.start(*at(s3_place))
            client.insert("t", [{"id": 2}])

            told = next(one.error for one in status.objects)
            assert told.startswith("shard s1 failed; Generic S3 error: ")
            assert "\n" not in told
            assert "\x1b" not in told
            assert [row.id for row in client.query("SELECT id FROM t")] == [2]
