"""Tables and sources that gain columns: nothing that reads them is disturbed, and a power cut loses nothing."""

import os
import signal
import threading
from collections import Counter
from pathlib import Path

import pytest

import plainsong
from tests.processes.deployment import PATIENCE_S, Deployment, deployed
from tests.processes.source_models import held
from tests.processes.test_sources import ROWS, files, started, write_files
from tests.processes.waiting import online, until

Rows = list[tuple[object, ...]]


def build(client: plainsong.Client) -> None:
    """A table with readers of every kind, all of which were made before the column is added."""
    client.create_table("t", {"id": "bigint not null", "name": "string"}, cluster="main")
    client.insert("t", [{"id": 1, "name": "a"}, {"id": 2, "name": None}])
    client.create_view("everything", "SELECT * FROM t")
    client.create_view("noted", "SELECT *, 'no' AS note FROM t WHERE id < 3")
    client.create_materialized_view("kept", "SELECT * FROM everything", cluster="main")
    client.create_index("t", ["id"], name="t_by_id")
    client.create_index("everything", ["name"], cluster="main")
    client.create_view("counted", "SELECT name, count(*) AS n FROM t GROUP BY name")
    client.create_index("counted", ["name"], cluster="main")


def read(client: plainsong.Client, sql: str) -> Rows:
    return [tuple(row) for row in client.query(sql, cluster="main")]


def check_before(client: plainsong.Client, rows: Rows) -> None:
    """Readers that were there see what they always saw."""
    for name in ("everything", "kept"):
        assert read(client, f"SELECT * FROM {name} ORDER BY id") == rows
    assert sorted(tuple(row) for row in client.peek("t_by_id")) == sorted(rows, key=lambda row: int(str(row[0])))
    below = [row for row in rows if int(str(row[0])) < 3]
    assert read(client, "SELECT * FROM noted ORDER BY id") == [(*row, "no") for row in below]
    names = Counter(name for _, name in rows)
    assert {row.name: row.n for row in client.peek("counted")} == names
    assert {row.name: row.n for row in client.query("SELECT * FROM counted", cluster="main")} == names


def test_added_columns_are_null_in_old_rows_and_unknown_to_readers_that_were_there(tmp_path: Path) -> None:
    with deployed(tmp_path) as deployment, started(deployment, replicas=2) as client:
        build(client)
        until(client, online(2))
        before = [(one.name, one.error) for one in client.objects()]

        grown = client.add_columns("t", {"note": "string", "price": "decimal(10,2)"})
        client.insert("t", [{"id": 3, "name": "c", "note": "new", "price": "1.50"}, {"id": 4, "name": "d"}])
        client.insert("t", [(5, "e", "tuple", None)])

        assert [column.name for column in grown.columns] == ["id", "name", "note", "price"]
        rows: Rows = [(1, "a"), (2, None), (3, "c"), (4, "d"), (5, "e")]
        notes: dict[object, str] = {3: "new", 5: "tuple"}
        assert read(client, "SELECT id, name, note FROM t ORDER BY id") == [(*row, notes.get(row[0])) for row in rows]
        assert read(client, "SELECT CAST(price AS string) FROM t WHERE id = 3") == [("1.50",)]
        check_before(client, rows)
        assert client.update("t", {"note": "concat(name, '!')"}, where="note IS NULL AND id > 3").rows == 1
        assert client.delete("t", where="note = 'tuple'").rows == 1
        client.create_index("t", ["note"], name="t_by_note")
        assert [tuple(row)[:3] for row in client.lookup("t_by_note", "d!")] == [(4, "d", "d!")]
        assert [tuple(row)[:3] for row in client.lookup("t", "new")] == [(3, "c", "new")]
        assert read(client, "SELECT note, count(*) FROM t GROUP BY note ORDER BY note") == [
            (None, 2),
            ("d!", 1),
            ("new", 1),
        ]
        check_before(client, rows[:4])

        # Nothing was rendered anew for it, on whichever replica, and nothing failed.
        after = until(client, online(2))
        assert [(one.name, one.error) for one in client.objects()] == [*before, ("t_by_note", "")]
        for replica in after.clusters[0].replicas:
            assert (replica.dataflows_replaced, replica.incarnation) == (0, 1)

        deployment.kill()
        deployment.start()
        status = until(client, online(2))
        for replica in status.clusters[0].replicas:
            assert (replica.dataflows_kept, replica.dataflows_replaced) == (replica.dataflows_total, 0)
        check_before(client, rows[:4])

        pids = [deployment.replica_pid(replica) for replica in (1, 2)]
        deployment.kill()
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        deployment.start()
        client.insert("t", [{"id": 6, "note": "after"}])

        check_before(client, [*rows[:4], (6, None)])
        assert read(client, "SELECT id, note FROM t WHERE note IS NOT NULL ORDER BY id") == [
            (3, "new"),
            (4, "d!"),
            (6, "after"),
        ]
        assert "Traceback" not in deployment.logs()


REFUSED: dict[str, tuple[str, object, str]] = {
    "a column that must not be null": ("t", {"note": "string not null"}, "cannot be added as not null"),
    "a name that is there": ("t", {"name": "string"}, "has a column 'name' already"),
    "a name that is there in another case": ("t", {"NAME": "string"}, "has a column 'name' already"),
    "another type": ("t", {"id": "string"}, "no column changes its type"),
    "a name twice": ("t", [("x", "int"), ("X", "int")], "there twice"),
    "a reserved name": ("t", {"_step": "bigint"}, "_step"),
    "a type that there is not": ("t", {"note": "varchar2"}, "varchar2"),
    "nothing": ("t", {}, "no columns"),
    "one good and one bad": ("t", [("fine", "int"), ("id", "bigint")], "has a column 'id' already"),
    "too many": ("t", [(f"c{place}", "int") for place in range(4_096)], "too many"),
    "to a view": ("everything", {"note": "string"}, "is a view, not a table or source"),
    "to an index": ("t_by_id", {"note": "string"}, "is a index, not a table or source"),
    "to a generator": ("made", {"note": "string"}, "known by its flavour"),
    "to nothing": ("nowhere", {"note": "string"}, "no object named 'nowhere'"),
}


def test_all_else_is_refused_with_a_reason_and_changes_nothing(tmp_path: Path) -> None:
    with deployed(tmp_path) as deployment, started(deployment) as client:
        build(client)
        client.create_source("made", "generator", options={"rows": "10"})
        before = ([(one.name, one.id, one.columns) for one in client.objects()], len(client.log()))

        for name, (object, columns, why) in REFUSED.items():
            with pytest.raises(plainsong.InvalidRequest) as refused:
                client.add_columns(object, columns)  # type: ignore[arg-type]  # of several kinds
            assert why in str(refused.value), name

        after = ([(one.name, one.id, one.columns) for one in client.objects()], len(client.log()))
        assert after == before
        client.insert("t", [{"id": 3}])
        check_before(client, [(1, "a"), (2, None), (3, None)])


def test_whoever_watches_is_told_and_the_same_request_counts_once(tmp_path: Path) -> None:
    with deployed(tmp_path) as deployment, started(deployment) as client:
        build(client)
        with client.watch() as events:
            patience = threading.Timer(PATIENCE_S, events.close)
            patience.start()
            next(events)
            first = client.add_columns("t", {"note": "string"}, idempotency_key="mine")
            again = client.add_columns("t", {"note": "string"}, idempotency_key="mine")
            altered = next(event for event in events if isinstance(event, plainsong.ObjectAltered))
            patience.cancel()

        assert first == again == altered.object
        assert [record.text for record in client.log("main")].count("alter s1") == 1


AFTER_GROWING = ("shard-after-commit", 3)


def grow_through_a_kill(deployment: Deployment, point: str) -> None:
    """The writer of a table dies at ``point``, somewhere while it is made, grown and written; another takes over."""
    doomed, address = deployment.instance(1, failpoint=point)
    deployment.start()
    with deployment.client() as client:
        client.create_cluster("main", addresses=[address])

        def work() -> None:
            client.create_table("t", {"id": "bigint"}, idempotency_key="a")
            client.insert("t", [{"id": 1}], idempotency_key="b")
            client.add_columns("t", {"note": "string"}, idempotency_key="c")
            client.insert("t", [{"id": 2, "note": "new"}], idempotency_key="d")

        worker = threading.Thread(target=work, daemon=True)
        worker.start()
        assert doomed.wait() < 0, f"it did not pass {point}"
        deployment.instance(1, "--listen", address)
        worker.join(PATIENCE_S)

        assert not worker.is_alive()
        client.insert("t", [{"id": 3, "note": "later"}])
        assert read(client, "SELECT id, note FROM t ORDER BY id") == [(1, None), (2, "new"), (3, "later")]


@pytest.mark.parametrize(
    ("point", "passage"),
    [
        # The third commit is the one that adds the column.
        pytest.param(point, passage, marks=[] if (point, passage) == AFTER_GROWING else [pytest.mark.heavy])
        for point in ("shard-before-commit", "shard-after-commit")
        for passage in range(1, 5)
    ],
)
def test_a_writer_may_die_at_any_commit_of_a_table_that_grows(tmp_path: Path, point: str, passage: int) -> None:
    with deployed(tmp_path) as deployment:
        grow_through_a_kill(deployment, f"{point}:{passage}")


@pytest.mark.parametrize(
    "format", ["csv", pytest.param("json", marks=pytest.mark.heavy), pytest.param("parquet", marks=pytest.mark.heavy)]
)
def test_a_source_of_files_takes_a_column_that_was_added(tmp_path: Path, format: str) -> None:
    folder = tmp_path / "files"
    write_files(folder, format, [{**row, "note": "unseen"} for row in ROWS])
    with deployed(tmp_path) as deployment, started(deployment) as client:
        client.create_source("read", "files", {"id": "bigint", "name": "string"}, options=files(folder, format))
        client.create_view("seen", "SELECT * FROM read")
        client.create_index("seen", ["id"], cluster="main")
        old: Counter[tuple[object, ...]] = Counter((row["id"], row["name"]) for row in ROWS)
        until(client, lambda _: held(client, "read") == old)

        client.add_columns("read", {"note": "string", "more": "int"})
        write_files(folder, format, [{"id": 4, "name": "d", "note": "new"}], name="b")
        write_files(folder, format, [{"id": 5, "name": "e"}], name="c")
        noted: Counter[tuple[object, ...]] = Counter((*row, None, None) for row in old.elements())
        noted.update([(4, "d", "new", None), (5, "e", None, None)])
        until(client, lambda _: held(client, "read") == noted)
        until(
            client, lambda _: Counter(tuple(row) for row in client.peek("seen")) == old + Counter([(4, "d"), (5, "e")])
        )

        pid = deployment.replica_pid(1)
        deployment.kill()
        os.kill(pid, signal.SIGKILL)
        deployment.start()
        write_files(folder, format, [{"id": 6, "name": "f", "note": "after", "more": 7}], name="d")
        noted[6, "f", "after", 7] = 1
        until(client, lambda _: held(client, "read") == noted)
