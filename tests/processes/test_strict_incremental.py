"""``strict_incremental``: what would be computed anew with each change is refused, with the part and the reason."""

import asyncio
from collections.abc import Callable, Iterator

import pytest

import plainsong
import plainsong.aio
from tests.processes.deployment import Deployment, deployed
from tests.processes.waiting import online, until

#: The rank of a row depends on all rows.
RANKED = "SELECT k, v, rank() OVER (ORDER BY v) AS n FROM t"
PART = "SELECT k, v, RANK() OVER (ORDER BY v) AS _w1 FROM _1"
TOTALS = "SELECT k, sum(v) AS total FROM t GROUP BY k"

Case = tuple[Deployment, plainsong.Client]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Case]:
    with deployed(tmp_path_factory.mktemp("strict")) as deployment:
        deployment.start()
        with deployment.client() as client:
            client.create_cluster("main", replicas=1)
            client.create_table("t", {"k": "int", "v": "bigint"})
            client.create_view("ranked", RANKED)
            client.create_view("of_ranked", "SELECT k, count(*) AS n FROM ranked GROUP BY k")
            client.insert("t", [{"k": 1, "v": 5}, {"k": 1, "v": 6}])
            until(client, online(1))
            yield deployment, client


REFUSED: dict[str, Callable[[plainsong.Client], object]] = {
    "view": lambda client: client.create_view("no", RANKED, strict_incremental=True),
    "materialized view": lambda client: client.create_materialized_view("no", RANKED, strict_incremental=True),
    "index": lambda client: client.create_index("ranked", name="no", strict_incremental=True),
    "index on what reads it": lambda client: client.create_index("of_ranked", name="no", strict_incremental=True),
    "view on what reads it": lambda client: client.create_view(
        "no", "SELECT n FROM of_ranked", strict_incremental=True
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_the_part_and_the_reason_are_named_and_nothing_is_made(running: Case, kind: str) -> None:
    _, client = running

    with pytest.raises(plainsong.InvalidRequest, match="cannot be maintained incrementally") as refused:
        REFUSED[kind](client)

    assert refused.value.reason == "NOT_INCREMENTAL"
    assert PART in refused.value.detail
    assert "a window without PARTITION BY sees all rows" in refused.value.detail
    assert "strict incremental" in refused.value.hint
    assert "no" not in [each.name for each in client.objects()]


def test_what_is_incremental_is_made_and_says_so_after_a_restart_too(running: Case) -> None:
    deployment, client = running
    made = [
        client.create_view("totals", TOTALS, strict_incremental=True),
        client.create_materialized_view("stored", TOTALS, strict_incremental=True),
        client.create_index("totals", ["k"], cluster="main", strict_incremental=True),
        client.create_index("t", ["k"], strict_incremental=True),
    ]

    deployment.kill()
    deployment.start()

    strict = {each.name: each.strict_incremental for each in client.objects()}
    assert [each.strict_incremental for each in made] == [True] * 4
    assert [strict[each.name] for each in made] == [True] * 4
    assert not strict["ranked"]
    assert [(row.k, row.total) for row in client.lookup("totals", 1)] == [(1, 11)]


def test_what_is_materialized_is_given_to_those_who_read_it(running: Case) -> None:
    _, client = running
    client.create_materialized_view("ranked_stored", RANKED)

    made = client.create_view(
        "of_stored", "SELECT k, count(*) AS n FROM ranked_stored GROUP BY k", strict_incremental=True
    )

    assert made.reads == ("ranked_stored",)


def test_explain_shows_operators_strategies_and_what_is_computed_anew(running: Case) -> None:
    _, client = running

    anew = client.explain("of_ranked")
    kept = client.explain(sql=TOTALS)

    assert [line.strip().partition(" ")[0] for line in anew.plan.splitlines()][:2] == ["group", "project"]
    assert "[accumulate]" in anew.plan
    assert "[recompute: " in anew.plan
    assert len(anew.recomputed) == 1
    assert PART in anew.recomputed[0]
    assert kept.recomputed == ()
    assert "[accumulate]" in kept.plan


def test_both_clients_have_it(running: Case) -> None:
    deployment, _ = running

    async def asked() -> None:
        async with plainsong.aio.connect(deployment.address) as client:
            await client.create_view("no", RANKED, strict_incremental=True)

    with pytest.raises(plainsong.InvalidRequest, match="cannot be maintained incrementally"):
        asyncio.run(asked())
