"""Sources as their users see them: made, read, paused, moved, dropped; and what becomes of bad input."""

import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

import plainsong
from tests.processes.deployment import Deployment, deployed
from tests.processes.proxy import Proxy
from tests.processes.source_models import finished, held, made_by, rises, status, upper
from tests.processes.waiting import online, until

ROWS: list[dict[str, object]] = [
    {"id": 1, "name": "anvil"},
    {"id": 2, "name": 'a "bell", brass'},
    {"id": 3, "name": None},
]


def started(deployment: Deployment, replicas: int = 1) -> plainsong.Client:
    deployment.start()
    client = deployment.client()
    client.create_cluster("main", replicas=replicas)
    return client


def write_files(folder: Path, format: str, rows: list[dict[str, object]], name: str = "a") -> Path:
    folder.mkdir(exist_ok=True)
    file = folder / f"{name}.{format}"
    if format == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), file)
    elif format == "json":
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        names = list(rows[0])
        lines = [",".join(_quoted(row[name]) for name in names) for row in rows]
        file.write_text("\n".join([",".join(names), *lines, ""]))
    return file


def _quoted(value: object) -> str:
    if value is None:
        return ""
    return '"' + value.replace('"', '""') + '"' if isinstance(value, str) else str(value)


def files(folder: Path, format: str = "csv", **options: str) -> dict[str, str]:
    return {"path": str(folder), "format": format, "poll_ms": "20", **options}


def rejected(deployment: Deployment) -> list[dict[str, object]]:
    found = sorted((deployment.data / "rejected").rglob("*.jsonl"))
    return [json.loads(line) for file in found for line in file.read_text().splitlines()]


# --- what they hold ---------------------------------------------------------------------------------------


def test_files_of_each_format_are_read_with_columns_declared_or_inferred(tmp_path: Path) -> None:
    expected = Counter((row["id"], row["name"]) for row in ROWS)
    with deployed(tmp_path) as deployment, started(deployment) as client:
        for format in ("csv", "json", "parquet"):
            write_files(tmp_path / format, format, ROWS)
            options = files(tmp_path / format, format, bounded="true")
            client.create_source(f"{format}_declared", "files", {"id": "bigint", "name": "string"}, options=options)
            inferred = client.create_source(f"{format}_inferred", "files", options=options)
            assert [(column.name, column.type) for column in inferred.columns] == [("id", "bigint"), ("name", "string")]
        names = [f"{format}_{how}" for format in ("csv", "json", "parquet") for how in ("declared", "inferred")]

        finished(client, *names)

        for name in names:
            assert held(client, name) == expected, name


@pytest.mark.parametrize("flavour", ["counter", "orders", "auction"])
def test_a_generator_holds_what_its_options_say_and_finishes(tmp_path: Path, flavour: str) -> None:
    options = {"flavour": flavour, "rows": "5000", "update_fraction": "0.3", "delete_fraction": "0.2", "seed": "7"}
    with deployed(tmp_path) as deployment, started(deployment) as client:
        client.create_source("made", "generator", options=options)
        client.create_index("made", ["id"])

        finished(client, "made")

        assert held(client, "made") == made_by(options)
        (row,) = client.lookup("made", 1)
        assert tuple(row) in made_by(options)


def test_an_unbounded_folder_is_looked_at_again_and_files_may_gain_and_lack_columns(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    with deployed(tmp_path) as deployment, started(deployment) as client:
        write_files(folder, "csv", ROWS)
        client.create_source(
            "read", "files", {"id": "bigint not null", "name": "string", "price": "int"}, options=files(folder)
        )
        until(client, lambda _: held(client, "read") == Counter((row["id"], row["name"], None) for row in ROWS))

        write_files(folder, "csv", [{"price": 9, "id": 4, "colour": "red"}], name="b")
        until(client, lambda _: held(client, "read")[4, None, 9] == 1)

        assert status(client, "read") == "running: not taken: column colour"
        assert upper(client, "read") > 0


def test_rows_that_do_not_fit_are_kept_aside_with_file_and_line_or_refuse_their_file(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    write_files(folder, "csv", [{"id": 1}, {"id": "two"}, {"id": 3}])
    with deployed(tmp_path) as deployment, started(deployment) as client:
        client.create_source("aside", "files", {"id": "bigint"}, options=files(folder))
        client.create_source("strict", "files", {"id": "bigint"}, options=files(folder, on_bad="refuse"))

        until(client, lambda _: held(client, "aside") == Counter({(1,): 1, (3,): 1}))
        until(client, lambda _: status(client, "strict").startswith("failed"))

        assert [(row["file"], row["line"]) for row in rejected(deployment)] == [("a.csv", 3)]
        assert status(client, "aside").startswith("running: 1 row was kept aside in ")
        assert "a.csv line 3 does not fit" in status(client, "strict")
        assert not held(client, "strict")

        write_files(folder, "csv", [{"id": 1}, {"id": 2}, {"id": 3}])
        until(client, lambda _: held(client, "strict") == Counter({(1,): 1, (2,): 1, (3,): 1}))
        assert status(client, "strict") == "running"


def test_tables_and_sources_are_joined_at_one_step(tmp_path: Path) -> None:
    options = {"rate": "2000", "keys": "3"}
    with deployed(tmp_path, "--step-linger-ms", "20") as deployment, started(deployment, replicas=2) as client:
        client.create_source("made", "generator", options=options)
        client.create_table("names", {"key": "bigint", "name": "string"})
        client.insert("names", [{"key": key, "name": f"name {key}"} for key in range(3)])
        client.create_view(
            "named", "SELECT n.name, count(*) AS n FROM made m JOIN names n ON m.key = n.key GROUP BY n.name"
        )
        client.create_index("named", [], cluster="main")

        for _ in range(5):
            rises(client, "made")
            rows = client.peek("named")
            (total,) = client.query("SELECT count(*) AS n FROM made", step=rows.step)
            assert sum(row.n for row in rows) == total.n


# --- life -------------------------------------------------------------------------------------------------


def test_without_a_replica_a_source_is_paused_and_a_new_one_takes_it_and_the_reads_that_wait(tmp_path: Path) -> None:
    with deployed(tmp_path, "--step-linger-ms", "20") as deployment, started(deployment) as client:
        client.create_source("made", "generator", options={"rate": "1000"})
        until(client, lambda _: bool(held(client, "made")))

        client.alter_cluster("main", replicas=0)
        until(client, lambda _: status(client, "made") == "paused")
        with pytest.raises(plainsong.TimedOut, match="no answer"):
            client.query("SELECT count(*) AS n FROM made", timeout=0.5)
        client.alter_cluster("main", replicas=1)

        (row,) = client.query("SELECT count(*) AS n FROM made")
        assert row.n > 0
        assert status(client, "made") == "running"
        rises(client, "made")


def test_a_source_made_while_nobody_can_run_it_waits_for_a_replica(tmp_path: Path) -> None:
    with deployed(tmp_path) as deployment, started(deployment, replicas=0) as client:
        client.create_source("made", "generator", options={"rows": "100"})
        assert status(client, "made") == "paused"

        client.alter_cluster("main", replicas=1)
        finished(client, "made")

        assert held(client, "made") == made_by({"rows": "100"})


def test_sources_made_and_dropped_in_quick_succession_never_run_on(tmp_path: Path) -> None:
    with deployed(tmp_path, "--step-linger-ms", "5") as deployment:
        deployment.start()
        replica, address = deployment.instance(1)
        with deployment.client() as client:
            client.create_cluster("main", addresses=[address])
            until(client, online(1))
            for number in range(25):
                client.create_source(f"made{number}", "generator", options={"rate": "5000"})
                if number % 3 == 0:
                    rises(client, f"made{number}")
                client.drop(f"made{number}")
            # One more, behind all the others: once it moves they had their turn.
            client.create_source("last", "generator", options={"rate": "5000"})
            rises(client, "last")
            before = uppers_of_shards(deployment)
            for _ in range(5):
                rises(client, "last")

            after = uppers_of_shards(deployment)
            assert {id for id in after if after[id] != before.get(id)} <= {"s26"}
            assert [one.name for one in client.objects()] == ["last"]
        assert replica.process.poll() is None
        assert " ERROR " not in deployment.logs()


def uppers_of_shards(deployment: Deployment) -> dict[str, int]:
    """Versions of all shards: every commit of a source is one."""
    logs = (deployment.data / "shards").glob("*/_delta_log")
    return {log.parent.name: len(list(log.glob("*.json"))) for log in logs}


def test_a_source_dropped_while_the_connection_is_cut_stops_when_it_is_back(tmp_path: Path) -> None:
    options = ("--step-linger-ms", "10", "--grant-every-ms", "10")
    with deployed(tmp_path, *options) as deployment:
        deployment.start()
        replica, address = deployment.instance(1)
        proxy = Proxy(address)
        with deployment.client() as client:
            client.create_cluster("main", addresses=[proxy.address])
            client.create_source("kept", "generator", options={"rate": "2000"})
            client.create_source("dropped", "generator", options={"rate": "2000"})
            rises(client, "dropped")

            proxy.cut()
            until(client, lambda _: status(client, "dropped") == "paused")
            client.drop("dropped")
            proxy.heal()
            until(client, online(1))
            rises(client, "kept")
            before = uppers_of_shards(deployment)
            for _ in range(3):
                rises(client, "kept")

            assert uppers_of_shards(deployment)["s2"] == before["s2"]
            assert {one.name for one in client.frontiers().objects} == {"kept"}
            assert replica.process.poll() is None
        proxy.close()
        assert " ERROR " not in deployment.logs()


def test_steps_go_on_by_the_clock_when_there_is_nothing_to_take(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with deployed(tmp_path, "--step-tick-ms", "20") as deployment, started(deployment) as client:
        client.create_source("read", "files", {"id": "bigint"}, options=files(tmp_path / "empty"))

        first = rises(client, "read")

        assert rises(client, "read") > first
        assert uppers_of_shards(deployment)["s1"] <= 3  # nothing happened, so nothing is written


# --- bad input --------------------------------------------------------------------------------------------


def test_names_and_paths_may_hold_anything_and_are_only_names(tmp_path: Path) -> None:
    names = ["a 'b' \"c\"", "; DROP TABLE x --", "\N{PILE OF POO}", "`tick`", "line\nbreak"]
    with deployed(tmp_path) as deployment, started(deployment) as client:
        for number, odd in enumerate(names):
            folder = tmp_path / odd
            folder.mkdir()
            (folder / f"{odd}.csv").write_text(f"id\n{number}\nbad\n")
            options = files(folder, bounded="true")
            if "\n" in odd:
                with pytest.raises(plainsong.InvalidRequest, match="control character"):
                    client.create_source(odd, "files", {"id": "bigint"}, options=options)
            name = odd.replace("\n", " ")
            client.create_source(name, "files", {"id": "bigint"}, options=options)
            finished(client, name)
            quoted = name.replace("`", "``")
            assert [row.id for row in client.query(f"SELECT id FROM `{quoted}`")] == [number]
            client.drop(name)
        assert sorted(str(row["file"]) for row in rejected(deployment)) == sorted(f"{odd}.csv" for odd in names)
        outside = {path.name for path in tmp_path.iterdir() if not path.name.startswith("controller-")}
        assert outside == {"data", *names}


def test_a_path_is_a_folder_and_is_not_followed_out_of_the_names_in_it(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    write_files(folder, "csv", ROWS)
    with deployed(tmp_path) as deployment, started(deployment) as client:
        columns = {"id": "bigint", "name": "string"}
        roundabout = files(tmp_path / "nowhere" / ".." / "files", bounded="true")
        client.create_source("roundabout", "files", columns, options=roundabout)
        until(client, lambda _: status(client, "roundabout").startswith("failed"))
        assert "No such file" in status(client, "roundabout")

        for refused in ({"pattern": "../*"}, {"path": "relative"}, {"path": "/a\0b"}, {"path": ""}):
            with pytest.raises(plainsong.InvalidRequest, match="cannot be"):
                client.create_source("no", "files", columns, options={**files(folder), **refused})


@pytest.mark.parametrize(
    ("type", "options", "reason"),
    [
        ("generator", {"rows": "1" * 5_000}, "too long"),
        ("generator", {"rows": "-1"}, "rows cannot be"),
        ("generator", {"rate": "nan"}, "rate cannot be"),
        ("generator", {"colour": "red"}, "no option 'colour'"),
        ("generator", {"update_fraction": "0.9", "delete_fraction": "0.3"}, "more than it inserts"),
        ("files", {"path": "/", "format": "xml"}, "format cannot be"),
        ("files", {"format": "csv"}, "needs the option path"),
        ("files", {"path": "/" + "x" * 5_000, "format": "csv"}, "too long"),
        ("kafka", {}, "no source of type 'kafka'"),
        ("table", {}, "no source of type 'table'"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_it_is_logged(
    idle: plainsong.Client, type: str, options: dict[str, str], reason: str
) -> None:
    before = idle.log("main")

    with pytest.raises(plainsong.InvalidRequest, match=reason):
        idle.create_source("no", type, {"id": "bigint"} if type == "files" else (), options=options)

    assert idle.log("main") == before
    assert idle.objects() == ()


@pytest.fixture(scope="module")
def idle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[plainsong.Client]:
    """A client of a controller that has nothing to do."""
    with deployed(tmp_path_factory.mktemp("idle")) as deployment, started(deployment, replicas=0) as client:
        yield client


def test_columns_that_cannot_be_inferred_are_asked_for(idle: plainsong.Client, tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_bytes(b"id,id\n\xff\n")

    for path, reason in [
        (tmp_path / "gone", "cannot be read"),
        (tmp_path / "bad.csv", "cannot be read"),
        (tmp_path, "cannot be inferred|id"),
    ]:
        with pytest.raises(plainsong.InvalidRequest, match=reason):
            idle.create_source("no", "files", options=files(path))
    assert idle.objects() == ()


def test_a_folder_that_cannot_be_read_is_told_and_taken_once_it_can(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    with deployed(tmp_path) as deployment, started(deployment) as client:
        client.create_source("read", "files", {"id": "bigint", "name": "string"}, options=files(folder))
        client.create_source("made", "generator", options={"rows": "10"})
        until(client, lambda _: status(client, "read").startswith("failed"))
        assert str(folder) in status(client, "read")
        finished(client, "made")  # it harms nobody else

        write_files(folder, "csv", ROWS)
        until(client, lambda _: held(client, "read") == Counter((row["id"], row["name"]) for row in ROWS))

        assert status(client, "read") == "running"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MB."""
    point = tmp_path / "disk"
    point.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(point)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("a full disk needs the right to mount one")
    yield point
    subprocess.run(["umount", "-l", str(point)], check=True)


def test_a_full_disk_is_told_and_a_source_goes_on_where_it_was_once_there_is_room(
    tmp_path: Path, small_disk: Path
) -> None:
    options = {"rows": "20000", "rate": "10000", "seed": "3"}
    with deployed(tmp_path, "--step-linger-ms", "20") as deployment:
        deployment.start()
        (tmp_path / "data" / "shards").symlink_to(small_disk)
        _, address = deployment.instance(1)
        with deployment.client() as client:
            client.create_cluster("main", addresses=[address])
            client.create_source("made", "generator", options=options)
            rises(client, "made")

            filling = small_disk / "filling"
            with filling.open("wb", buffering=0) as file, suppress(OSError):
                while file.write(b"\0" * 4096):
                    pass
            until(client, lambda _: status(client, "made").startswith("failed"))
            assert "No space left" in status(client, "made")
            filling.unlink()
            finished(client, "made")

            assert held(client, "made") == made_by(options)


def test_what_a_dropped_source_kept_is_removed_and_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    write_files(folder, "csv", [{"id": 1}, {"id": "two"}])
    with deployed(tmp_path, "--compaction-ms", "50") as deployment, started(deployment) as client:
        for name in ("kept", "gone"):
            client.create_source(name, "files", {"id": "bigint"}, options=files(folder))
        until(client, lambda _: all(held(client, name) == Counter({(1,): 1}) for name in ("kept", "gone")))
        ids = {each.name: str(each.id) for each in client.objects()}
        places = {name: [deployment.data / kind / ids[name] for kind in ("taken", "rejected")] for name in ids}
        later = deployment.data / "taken" / "s99"  # of a source that this controller does not know yet
        later.mkdir()
        assert all(place.is_dir() for name in ids for place in places[name])

        client.drop("gone")
        write_files(folder, "csv", [{"id": 3}], name="b")
        until(client, lambda _: held(client, "kept")[(3,)] == 1)
        until(client, lambda _: not any(place.exists() for place in places["gone"]))

        deployment.kill()
        for place in places["gone"]:
            place.mkdir()  # as of a writer that was not told
        deployment.start()
        write_files(folder, "csv", [{"id": 4}], name="c")
        until(client, lambda _: held(client, "kept")[(4,)] == 1)
        until(client, lambda _: not any(place.exists() for place in places["gone"]))

        assert all(place.is_dir() for place in (*places["kept"], later))
        assert held(client, "kept") == Counter({(1,): 1, (3,): 1, (4,): 1})
