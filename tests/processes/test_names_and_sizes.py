"""Names and texts of every kind and size: kept exactly or refused with a reason, and never a path, SQL or code."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types
import pytest

import plainsong
from reconcile.limits import NAME_CHARACTERS_MAX, PLAN_BYTES_MAX, RESULT_BYTES_MAX
from tests.processes.deployment import Deployment, deployed
from tests.processes.waiting import online, until

Case = tuple[Deployment, plainsong.Client]

#: Strange, and as good as any other.
ACCEPTED = {
    "single quote": "it's",
    "double quote": 'say "it"',
    "backtick": "a`b``c",
    "backslash": "a\\b\\",
    "blank": " ",
    "parent folder": "../../../../etc/passwd",
    "absolute path": "/etc/passwd",
    "two dots": "..",
    "one dot": ".",
    "option": "--help",
    "home": "~root",
    "url": "file:///etc/passwd?a=b&c=%00#d",
    "bracket": "[0]",
    "glob": "*?[a-z]{1,2}",
    "shell": "$(touch /tmp/x); `id` | cat && ${HOME}",
    "format": "{0} {self.__class__} %s %(name)s",
    "injection": "Robert'); DROP TABLE plainly; --",
    "backtick injection": "x` FROM plainly; DROP VIEW y; --",
    "statement": "SELECT",
    "comment": "/* no end",
    "semicolon": "a;b",
    "comma and equals": "a,b=c{d}(e)",
    "json": '{"name": ["a", null]}',
    "emoji": "😀👩‍👩‍👧",
    "right to left": "\u202eabc\u202c שלום",
    "combining": "e\u0301\u0323",
    "zero width": "a\u200bb",
    "not a character": "\ufffe",
    "longest": "n" * NAME_CHARACTERS_MAX,
    "longest in bytes": "😀" * NAME_CHARACTERS_MAX,
    "number": "007",
    "null word": "null",
}
#: Refused as names; as values they are texts like all others.
REFUSED = {
    "nothing": "",
    "nul": "a\0b",
    "newline": "a\nb",
    "carriage return": "a\rb",
    "tab": "a\tb",
    "escape": "\x1b[2J",
    "line separator": "a\u2028b",
    "too long": "n" * (NAME_CHARACTERS_MAX + 1),
    "ten megabytes": "n" * 10_000_000,
}
EVERY = {**ACCEPTED, **REFUSED}


def outside(deployment: Deployment) -> set[Path]:
    """All files around the data folder, but for logs of the processes themselves."""
    around = deployment.folder.parent
    return {path for path in around.rglob("*") if not path.is_relative_to(deployment.data) and path.suffix != ".log"}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Case]:
    folder = tmp_path_factory.mktemp("names") / "here"
    folder.mkdir()
    with deployed(folder) as deployment:
        deployment.start()
        with deployment.client() as client:
            before = outside(deployment)
            client.create_cluster("main", replicas=1)
            client.create_table("plainly", {"id": "bigint", "text": "string"}, cluster="main")
            client.create_index("plainly", ["text"], name="by_text")
            client.create_table("single", {"id": "int"}, cluster="main")
            client.insert("single", [{"id": 1}])
            until(client, online(1))
            yield deployment, client
            members = next(each.replicas for each in client.clusters() if each.name == "main")
            assert [(one.state, one.incarnation) for one in members] == [(plainsong.ReplicaState.ONLINE, 1)]
        assert outside(deployment) == before
        assert "Traceback" not in deployment.logs()


def ticked(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


# --- names ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ACCEPTED)
def test_a_strange_name_is_a_name_everywhere(running: Case, kind: str) -> None:
    _, client = running
    name = ACCEPTED[kind]
    others = len(client.objects())

    check_names(client, name, f"c{name}"[:NAME_CHARACTERS_MAX] if name.startswith(".") else name)

    assert name in client.drop(name, cascade=True)
    assert len(client.objects()) == others


@pytest.mark.parametrize("column", [".", "..", ".a", "../b"])
def test_a_column_may_begin_with_a_dot(running: Case, column: str) -> None:
    _, client = running

    try:
        check_names(client, "dotted", column)
    finally:
        client.drop("dotted", cascade=True)


def check_names(client: plainsong.Client, name: str, column: str) -> None:
    """Does with a table of this name and a column of that all that can be done with names."""
    table = client.create_table(name, {column: "string", "n": "int"}, cluster="main")
    client.insert(name, [{column: name, "n": 1}, {column: "other", "n": 2}])
    client.create_index(name, [column], name=f"{name}!"[-NAME_CHARACTERS_MAX:])
    view = client.create_view(f"{name}?"[-NAME_CHARACTERS_MAX:], f"SELECT n, {ticked(column)} FROM {ticked(name)}")

    assert (table.name, table.columns[0].name, view.reads) == (name, column, (name,))
    assert [tuple(row) for row in client.lookup(name, name)] == [(name, 1)]
    assert client.query(f"SELECT * FROM {ticked(view.name)}", cluster="main").columns == ("n", column)
    assert client.update(name, {column: "'changed'"}, where=f"{ticked(column)} = 'other'").rows == 1
    assert client.delete(name, where=f"{ticked(column)} = 'changed'").rows == 1
    assert [each.name for each in client.frontiers(name).objects] == [name]


@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_a_name_is_refused_with_a_reason(running: Case, kind: str) -> None:
    _, client = running
    name = REFUSED[kind]
    before, log = client.objects(), client.log()

    attempts: list[Callable[[], object]] = [
        lambda: client.create_cluster(name, replicas=0),
        lambda: client.create_table(name, {"id": "int"}, cluster="main"),
        lambda: client.create_table("good", {name: "int"}, cluster="main"),
        lambda: client.create_view(name, "SELECT id FROM plainly"),
        lambda: client.create_materialized_view(name, "SELECT id FROM plainly", cluster="main"),
    ]
    for attempt in attempts:
        with pytest.raises(plainsong.InvalidRequest, match="name") as refused:
            attempt()
        assert refused.value.detail or refused.value.hint

    assert (client.objects(), client.log()) == (before, log)


@pytest.mark.parametrize("kind", EVERY)
def test_a_name_that_names_nothing_is_said_to_name_nothing(running: Case, kind: str) -> None:
    _, client = running
    name = EVERY[kind]

    for attempt in (
        lambda: client.drop(name),
        lambda: client.drop_cluster(name),
        lambda: client.create_replica(name, address="127.0.0.1:1"),
        lambda: client.lookup(name, 1),
        lambda: client.explain(name),
        lambda: client.insert(name, [{"id": 1}]),
        lambda: client.create_index("plainly", [name], name="ix", cluster="main"),
    ):
        with pytest.raises(plainsong.InvalidRequest, match=r"there is no|has no|too long"):
            attempt()


def test_a_cluster_of_a_strange_name_runs_inside_the_data_folder(running: Case) -> None:
    deployment, client = running
    names = ["../../outside", "/etc", "$(id)", "😀" * NAME_CHARACTERS_MAX]

    for name in names:
        client.create_cluster(name, replicas=1)
        until(client, online(1, cluster=name))
        client.create_table("on it", {"id": "int"}, cluster=name)
        client.insert("on it", [{"id": 7}])

        assert [row.id for row in client.query("SELECT id FROM `on it`", cluster=name)] == [7]
        folders = sorted(path.name for path in (deployment.data / "replicas").iterdir())
        assert len(folders) == 2
        client.drop_cluster(name, cascade=True)


# --- values -----------------------------------------------------------------------------------------------


def test_texts_are_returned_exactly(running: Case) -> None:
    _, client = running
    texts = [text for text in EVERY.values() if len(text) < 10_000_000]
    rows = [{"id": number, "text": text} for number, text in enumerate(texts)]

    client.insert("plainly", rows)

    found = {row.id: row.text for row in client.query("SELECT id, text FROM plainly", cluster="main")}
    assert found == dict(enumerate(texts))
    for number, text in enumerate(texts):
        assert [row.id for row in client.lookup("by_text", text)] == [number]
    assert client.delete("plainly", where="true").rows == len(texts)


def test_ten_megabytes_are_a_value_like_any_other(running: Case) -> None:
    _, client = running
    large = "ab😀" * 1_700_000

    client.insert("plainly", [{"id": 1, "text": large}])

    assert [row.text for row in client.peek("plainly", where="id = 1")] == [large]
    assert client.delete("plainly", where="id = 1").rows == 1


@pytest.mark.parametrize("kind", EVERY)
def test_a_text_in_a_statement_is_a_text(running: Case, kind: str) -> None:
    """As a literal, its quotes and backslashes doubled; nothing in it is read as SQL."""
    _, client = running
    text = EVERY[kind]
    literal = "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"

    if len(text) > PLAN_BYTES_MAX or "\0" in text:
        with pytest.raises(plainsong.InvalidRequest, match=r"too long|NUL"):
            client.query(f"SELECT {literal} AS it FROM single", cluster="main")
    else:
        assert [row.it for row in client.query(f"SELECT {literal} AS it FROM single", cluster="main")] == [text]


@pytest.mark.parametrize("kind", EVERY)
def test_an_idempotency_key_is_any_text_or_refused(running: Case, kind: str) -> None:
    _, client = running
    key = EVERY[kind]

    for _ in range(2 if key else 1):
        client.insert("plainly", [{"id": 1, "text": kind}], idempotency_key=key)
    if len(key) > NAME_CHARACTERS_MAX or "\0" in key:
        with pytest.raises(plainsong.InvalidRequest) as refused:
            client.create_view("keyed", "SELECT id FROM plainly", idempotency_key=key)
        assert refused.value.detail
    else:
        for _ in range(2 if key else 1):
            client.create_view("keyed", "SELECT id FROM plainly", idempotency_key=key)
        client.drop("keyed")

    assert client.delete("plainly", where="true").rows == 1
    assert client.status().epoch == 1


def test_a_key_that_is_used_for_another_write_loses_nothing(running: Case) -> None:
    _, client = running

    client.insert("plainly", [{"id": 1, "text": "one"}], idempotency_key="used")
    client.insert("plainly", [{"id": 2, "text": "two"}], idempotency_key="used")
    client.insert("plainly", [{"id": 2, "text": "two"}], idempotency_key="used")

    assert sorted(row.id for row in client.query("SELECT id FROM plainly", cluster="main")) == [1, 2]
    assert client.delete("plainly", where="true").rows == 2


ADDRESSES = ["nonsense", "host:", "host:99999", "127.0.0.1:1\n", "a\0b:1", ":::1", "x" * 10_000_000]


@pytest.mark.parametrize("address", ADDRESSES, ids=lambda address: ascii(address)[:20])
def test_what_can_never_be_dialed_is_not_an_address(running: Case, address: str) -> None:
    _, client = running
    before = client.clusters()

    with pytest.raises(plainsong.InvalidRequest, match=r"address|name"):
        client.create_cluster("far", addresses=[address])
    with pytest.raises(plainsong.InvalidRequest, match=r"address|name"):
        client.create_replica("main", address=address)

    assert [(each.name, len(each.replicas)) for each in client.clusters()] == [
        (each.name, len(each.replicas)) for each in before
    ]


def test_more_replicas_or_columns_than_there_may_be_are_refused_at_once(running: Case) -> None:
    _, client = running

    for replicas in (65, 2**32 - 1):
        with pytest.raises(plainsong.InvalidRequest, match="at most 64 replicas"):
            client.create_cluster("crowd", replicas=replicas)
        with pytest.raises(plainsong.InvalidRequest, match="at most 64 replicas"):
            client.alter_cluster("main", replicas=replicas)
    with pytest.raises(plainsong.InvalidRequest, match="too many for a table"):
        client.create_table("wide", {f"c{number}": "int" for number in range(100_000)}, cluster="main")


# --- plans ------------------------------------------------------------------------------------------------


def nested(levels: int) -> str:
    sql = "SELECT id FROM plainly"
    for _ in range(levels):
        sql = f"SELECT id + 1 AS id FROM ({sql}) WHERE id > 0"
    return sql


def large(bytes: int) -> str:
    return f"SELECT id, '{'x' * bytes}' AS text FROM plainly"


TOO_LARGE = {
    "the text": f"SELECT id FROM plainly WHERE text = '{'x' * PLAN_BYTES_MAX}'",
    "the plan": f"{large(PLAN_BYTES_MAX * 6 // 10)} UNION ALL SELECT * FROM half",
    "the depth": nested(80),
    "the depth of the text": nested(2_000),
    "brackets": f"SELECT {'(' * 5_000}1{')' * 5_000} AS x",
}


@pytest.mark.parametrize("what", TOO_LARGE)
def test_a_plan_that_is_too_large_is_refused_before_it_is_logged(running: Case, what: str) -> None:
    _, client = running
    client.create_view("half", large(PLAN_BYTES_MAX // 2), if_not_exists=True)
    before, log = client.objects(), client.log()

    for attempt in (
        lambda: client.create_view("big", TOO_LARGE[what]),
        lambda: client.create_materialized_view("big", TOO_LARGE[what], cluster="main"),
        lambda: client.query(TOO_LARGE[what], cluster="main"),
        lambda: client.explain(sql=TOO_LARGE[what]),
    ):
        with pytest.raises(plainsong.InvalidRequest, match=r"too large|too long|too deeply") as refused:
            attempt()
        assert refused.value.hint

    assert (client.objects(), client.log()) == (before, log)


def granted(attempt: Callable[[], object]) -> object | None:
    """The answer, or nothing if it was refused as too deep."""
    try:
        return attempt()
    except plainsong.InvalidRequest as refused:
        if "too deeply" not in refused.message:
            raise
        return None


def test_views_on_views_end_where_a_plan_ends(running: Case) -> None:
    """Each is small; what they mean together is not. The last one that is granted can be used in every way."""
    _, client = running
    client.insert("plainly", [{"id": 1, "text": "deep"}])
    deepest, log = "plainly", client.log()

    for level in range(100):
        answer = granted(partial(client.create_view, f"level{level}", f"SELECT id + 1 AS id, text FROM {deepest}"))
        if answer is None:
            break
        deepest = f"level{level}"
    grown = client.log()
    attempts: list[Callable[[], object]] = [
        lambda: client.query(f"SELECT * FROM {deepest}", cluster="main"),
        lambda: client.query(f"SELECT * FROM {deepest} ORDER BY text, id DESC", cluster="main"),
        lambda: client.query(f"SELECT text, count(*) AS n FROM {deepest} GROUP BY text ORDER BY n", cluster="main"),
        lambda: client.create_index(deepest, ["id"], cluster="main", name="deep_index"),
        lambda: client.peek("deep_index", columns=["id"], where="id > 0"),
        lambda: next(client.tail_batches(deepest, cluster="main")),
    ]
    answers = [granted(attempt) for attempt in attempts]

    assert answer is None
    assert grown == log
    assert answers[0] is not None
    assert answers[-1] is not None
    client.drop("level0", cascade=True)
    assert client.delete("plainly", where="true").rows == 1


def test_a_read_that_is_too_large_to_send_is_refused(running: Case) -> None:
    _, client = running
    many = [f"concat('{'x' * 900_000}', '{number}')" for number in range(20)]

    with pytest.raises(plainsong.InvalidRequest, match="too large"):
        client.peek("plainly", columns=many)
    with pytest.raises(plainsong.InvalidRequest, match="too large"):
        client.lookup("by_text", "x" * 10_000_000)
    with pytest.raises(plainsong.InvalidRequest, match="too large"):
        client.update("plainly", {"text": many[0], "id": f"length('{'y' * 900_000}')"}, where="true")


def test_rows_that_grow_too_large_are_refused(running: Case) -> None:
    """A table's types may take far more than those that were sent, and each row bears its step."""
    _, client = running
    client.create_table("growing", {"d": "decimal(38,0)", "b": "boolean"}, cluster="main")
    small = pa.table({"d": pa.array([1] * 2_000_000, pa.int8())})
    flags = pa.table({"b": pa.array([True] * (RESULT_BYTES_MAX // 8), pa.bool_())})

    for rows in (small, flags):
        with pytest.raises(plainsong.InvalidRequest, match="too many for one step"):
            client.insert("growing", rows)

    client.insert("growing", [{"d": 1, "b": True}])
    assert [tuple(row) for row in client.query("SELECT * FROM growing", cluster="main")] == [(1, True)]


def test_an_insert_of_many_small_pieces_is_one_insert(running: Case) -> None:
    _, client = running
    client.create_table("pieces", {"id": "bigint"}, cluster="main")
    batches = [pa.record_batch({"id": pa.array([number], pa.int64())}) for number in range(5_000)]

    assert client.insert("pieces", pa.Table.from_batches(batches)).rows == 5_000
    (row,) = client.query("SELECT count(*) AS n, sum(id) AS s FROM pieces", cluster="main")
    assert tuple(row) == (5_000, sum(range(5_000)))
