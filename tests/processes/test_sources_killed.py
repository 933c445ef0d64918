"""Sources whose processes are killed: in the end they hold every row once."""

import os
import signal
import sqlite3
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path
from random import Random

import pytest

import plainsong
from controller.store.database import DATABASE_NAME
from tests.processes.deployment import Deployment, deployed
from tests.processes.source_models import finished, held, made_by, rises, shard, shard_reaches, upper
from tests.processes.waiting import online, until

#: Paced, so that it is cut many times.
GENERATOR = {
    "rows": "20000",
    "rate": "4000",
    "flavour": "orders",
    "update_fraction": "0.2",
    "delete_fraction": "0.1",
}
QUICK_STEPS = ("--step-linger-ms", "20", "--grant-every-ms", "50", "--heartbeat-deadline-ms", "1000")


def files_written(folder: Path, files: int, rows: int) -> Counter[tuple[object, ...]]:
    """Files of each format, each row in one of them only; every other has a row that does not fit."""
    folder.mkdir(exist_ok=True)
    expected: Counter[tuple[object, ...]] = Counter()
    for number in range(files):
        ids = range(number * rows, (number + 1) * rows)
        bad = "not a number,x\n" if number % 2 else ""
        (folder / f"{number}.csv").write_text("id,name\n" + "".join(f"{id},name {id}\n" for id in ids) + bad)
        expected.update((id, f"name {id}") for id in ids)
    return expected


def csv(folder: Path, **options: str) -> dict[str, str]:
    return {"path": str(folder), "format": "csv", "bounded": "true", "poll_ms": "20", **options}


@pytest.mark.parametrize("seed", [1, 2])
def test_whoever_is_killed_and_whenever_no_row_is_lost_and_none_doubled(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    with deployed(tmp_path, *QUICK_STEPS) as deployment:
        deployment.start()
        with deployment.client() as client:
            client.create_cluster("main", replicas=2)
            until(client, online(2))
            expected = files_written(tmp_path / "files", files=40, rows=500)
            client.create_source("made", "generator", options=GENERATOR)
            client.create_source("read", "files", {"id": "bigint", "name": "string"}, options=csv(tmp_path / "files"))
            client.create_materialized_view("counted", "SELECT status, count(*) AS n FROM made GROUP BY status")

            for _ in range(6):
                rises(client, "made")
                killed(deployment, random)
            finished(client, "made", "read")

            assert held(client, "made") == made_by(GENERATOR)
            assert held(client, "read") == expected
            assert [one.error for one in client.objects()] == ["", "", ""]
            statuses: Counter[object] = Counter(row[5] for row in made_by(GENERATOR).elements())
            assert {row.status: row.n for row in client.query("SELECT * FROM counted")} == dict(statuses)


def killed(deployment: Deployment, random: Random) -> None:
    victim = random.choice(["controller", "replica 1", "replica 2", "everything"])
    if victim in ("controller", "everything"):
        deployment.kill()
    for replica in (1, 2):
        if victim in (f"replica {replica}", "everything"):
            with suppress(FileNotFoundError, ProcessLookupError):  # it is about to be started again
                os.kill(deployment.replica_pid(replica), signal.SIGKILL)
    if victim in ("controller", "everything"):
        deployment.start()


@pytest.mark.parametrize(
    "point",
    [
        "source-before-append:1",
        "source-after-append:1",
        "source-after-append:3",
        "source-before-append:4",
        "shard-before-commit:3",
        "shard-after-commit:2",
        "shard-after-commit:4",
    ],
)
def test_an_instance_that_dies_while_it_appends_loses_and_doubles_nothing(tmp_path: Path, point: str) -> None:
    with deployed(tmp_path, *QUICK_STEPS) as deployment:
        deployment.start()
        armed, address = deployment.instance(1, failpoint=point)
        expected = files_written(tmp_path / "files", files=8, rows=8_000)
        with deployment.client() as client:
            client.create_cluster("main", addresses=[address])
            made = {**GENERATOR, "rows": "6000", "rate": "6000"}
            client.create_source("made", "generator", options=made)
            client.create_source("read", "files", {"id": "bigint", "name": "string"}, options=csv(tmp_path / "files"))
            assert armed.wait() == -signal.SIGKILL

            deployment.instance(1, "--listen", address)
            finished(client, "made", "read")

            assert held(client, "made") == made_by(made)
            assert held(client, "read") == expected
            aside = [
                line
                for file in (deployment.data / "rejected").rglob("*.jsonl")
                for line in file.read_text().splitlines()
            ]
            assert len(aside) == 4


@pytest.mark.parametrize("point", ["step-before-commit:2", "step-after-commit:2", "store-after-commit:7"])
def test_a_controller_that_dies_while_it_opens_a_step_loses_and_doubles_nothing(tmp_path: Path, point: str) -> None:
    # Every step is made durable by itself, so that there are many to die at.
    with deployed(tmp_path, *QUICK_STEPS, "--grant-steps", "0") as deployment:
        deployment.start()
        with deployment.client() as client:
            client.create_cluster("main", replicas=1)
            until(client, online(1))
            deployment.kill()
            armed = deployment.start(failpoint=point)
            client.create_source("made", "generator", options={**GENERATOR, "rows": "8000"})
            assert armed.wait() == -signal.SIGKILL

            deployment.start()
            finished(client, "made")

            assert held(client, "made") == made_by({**GENERATOR, "rows": "8000"})


def test_a_source_moves_when_its_host_dies_or_stops_and_its_old_writer_is_fenced(tmp_path: Path) -> None:
    with deployed(tmp_path, *QUICK_STEPS) as deployment:
        deployment.start()
        programs = dict(deployment.instance(number) for number in (1, 2))
        with deployment.client() as client:
            client.create_cluster("main", addresses=list(programs.values()))
            until(client, online(2))
            made = {**GENERATOR, "rows": "16000"}
            source = client.create_source("made", "generator", options=made)
            rises(client, "made")
            first, _ = programs  # the one with the smallest id

            # It does not know that it was taken for dead, and tries to go on.
            first.signal(signal.SIGSTOP)
            rises(client, "made")
            rises(client, "made")
            first.signal(signal.SIGCONT)
            rises(client, "made")
            finished(client, "made")

            assert held(client, "made") == made_by(made)
            assert writer_epoch(deployment, source) >= 2
            assert first.process.poll() is None


def writer_epoch(deployment: Deployment, source: plainsong.Object) -> int:
    from deltalake import DeltaTable

    return DeltaTable(shard(deployment, source.id)).transaction_version("epoch") or 0


def test_new_files_are_taken_once_also_by_the_next_writer(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    with deployed(tmp_path, *QUICK_STEPS) as deployment:
        deployment.start()
        with deployment.client() as client:
            client.create_cluster("main", replicas=1)
            expected = files_written(folder, files=2, rows=10)
            client.create_source(
                "read", "files", {"id": "bigint", "name": "string"}, options=csv(folder, bounded="false")
            )
            for number in range(4):
                until(client, lambda _: held(client, "read") == expected)
                if number % 2:
                    deployment.kill()
                os.kill(deployment.replica_pid(1), signal.SIGKILL)
                if number % 2:
                    deployment.start()
                (folder / f"new {number}.csv").write_text(f"id,name\n{1000 + number},n\n")
                expected[1000 + number, "n"] += 1

            until(client, lambda _: held(client, "read") == expected)


def test_while_the_controller_is_away_sources_and_their_views_go_on_within_the_grant_and_tables_stand_still(
    tmp_path: Path,
) -> None:
    options = ("--step-linger-ms", "20", "--grant-every-ms", "20", "--grant-steps", "20")
    with deployed(tmp_path, *options) as deployment:
        deployment.start()
        with deployment.client() as client:
            client.create_cluster("main", replicas=1)
            source = client.create_source("made", "generator", options={"rate": "1000"})
            table = client.create_table("t", {"id": "bigint"})
            client.insert("t", [{"id": 1}])
            over_source = client.create_materialized_view("n_made", "SELECT count(*) AS n FROM made")
            over_table = client.create_materialized_view("n_t", "SELECT count(*) AS n FROM t")
            rises(client, "made")
            rises(client, "n_made")
            until(client, lambda _: counted(client, "n_t") == 1)
            before = {name: upper(client, name) for name in ("made", "n_made")}

            deployment.kill()
            table_before = shard_reaches(shard(deployment, table.id), lambda _: True)
            reached = shard_reaches(shard(deployment, source.id), lambda now: now > before["made"] + 5)
            shard_reaches(shard(deployment, over_source.id), lambda now: now >= reached)
            # The grant ends; without a controller nothing goes further.
            end = granted(deployment) + 1
            assert shard_reaches(shard(deployment, source.id), lambda now: now >= end) == end
            shard_reaches(shard(deployment, over_source.id), lambda now: now >= end)
            assert shard_reaches(shard(deployment, table.id), lambda _: True) == table_before
            # What was open when the controller died was told of the table too, and of the grant half was left then.
            assert shard_reaches(shard(deployment, over_table.id), lambda _: True) <= end - 10

            deployment.start()
            until(client, online(1))
            until(client, lambda _: upper(client, "made") >= end and upper(client, "n_made") >= end)
            client.insert("t", [{"id": 2}])
            assert counted(client, "n_t") == 2
            rises(client, "made")


def counted(client: plainsong.Client, view: str) -> int:
    return sum(row.n for row in client.query(f"SELECT n FROM {view}"))


def granted(deployment: Deployment) -> int:
    """The last step that the controller which was killed gave to anybody."""
    with closing(sqlite3.connect(deployment.data / DATABASE_NAME)) as database:
        return int(database.execute("SELECT max(step) FROM steps").fetchone()[0])
