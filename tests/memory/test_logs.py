"""What a runtime tells of itself is what is so when it is asked."""

from collections import Counter
from collections.abc import Mapping

import pytest

from controller.sql import Relation, compile_query
from instance.arranged.rendering import arranged_rules
from instance.arranged.tending import in_memory
from instance.memory.logs import STEPS_MAX
from instance.memory.rendering import Rule
from plainsong.logs import ARRANGEMENTS, DATAFLOWS, FRONTIERS, LOGGING_IDS, PEEKS, STEPS
from reconcile.compute_actions import Compact, Drop, SetLogging
from reconcile.dataflow import Index
from reconcile.frontiers import Antichain
from reconcile.ids import GlobalId
from tests.memory.collections import Collections
from tests.memory.harness import running
from tests.memory.plans import distinct, get, group, join
from tests.sql.tables import Tables, columns

S1 = (("k", "string"), ("v", "bigint"))
RELATION = Relation(id=GlobalId("s", 1), columns=columns("k string", "v bigint"))
U1, U2 = GlobalId("u", 1), GlobalId("u", 2)


@pytest.mark.asyncio
async def test_a_peek_that_waits_is_told_and_the_one_that_asks_is_not() -> None:
    collections = Collections()
    s1 = collections.create("s1", S1)
    async with running(collections) as it:
        it.perform(SetLogging(ids=LOGGING_IDS))
        it.render(Index(id=U1), objects={"u1": get("s1", S1)}, imports=("s1",))
        waiting = it.start_peek("u1", 4)

        assert await it.rows(str(PEEKS.id), 0) == [(waiting, "u1", 4)]
        s1.advance(5)
        await it.answer(waiting)
        assert await it.rows(str(PEEKS.id), 0) == []


@pytest.mark.asyncio
async def test_dataflows_hydrate_run_fail_and_go() -> None:
    collections = Collections()
    s1 = collections.create("s1", S1)
    async with running(collections) as it:
        it.perform(SetLogging(ids=LOGGING_IDS))
        it.render(Index(id=U1), objects={"u1": get("s1", S1)}, imports=("s1",), as_of=3)
        it.render(Index(id=U2), objects={"u2": get("s9", S1)}, imports=("s1",))
        failure = await it.failure("u2")
        failed = ("u2", "u2", "s1", 0, None, "failed", failure)

        assert await it.rows(str(DATAFLOWS.id), 0) == [("u1", "u1", "s1", 3, 4, "hydrating", None), failed]
        s1.advance(7)
        await it.upper("u1", 7)
        assert await it.rows(str(DATAFLOWS.id), 0) == [("u1", "u1", "s1", 3, 7, "running", None), failed]
        it.perform(Drop(exports=(U1,)), Drop(exports=(U2,)))
        assert await it.rows(str(DATAFLOWS.id), 0) == []


@pytest.mark.asyncio
async def test_frontiers_follow_steps_and_compaction() -> None:
    collections = Collections()
    s1 = collections.create("s1", S1)
    async with running(collections) as it:
        it.perform(SetLogging(ids=LOGGING_IDS))
        it.render(Index(id=U1), objects={"u1": get("s1", S1)}, imports=("s1",), as_of=2)
        s1.advance(9)
        await it.upper("u1", 9)

        assert await it.rows(str(FRONTIERS.id), 0) == [("u1", "index", 2, 9)]
        it.perform(Compact(id=U1, since=Antichain.at(6)))
        assert await it.rows(str(FRONTIERS.id), 0) == [("u1", "index", 6, 9)]
        s1.advance(None)
        await it.upper("u1", None)
        assert await it.rows(str(FRONTIERS.id), 0) == [("u1", "index", 6, None)]


@pytest.mark.asyncio
async def test_arrangements_count_the_rows_that_are_kept() -> None:
    collections = Collections()
    s1, s2 = collections.create("s1", S1), collections.create("s2", (("j", "string"), ("w", "int")))
    plan = join(distinct(get("s1", S1)), get("s2", (("j", "string"), ("w", "int"))), ("k", "j"))
    async with running(collections) as it:
        it.perform(SetLogging(ids=LOGGING_IDS))
        s1.append(0, ("a", 1), ("a", 1), ("b", 2))
        s2.append(0, ("a", 5))
        s1.advance(1)
        s2.advance(1)
        sums = group(plan, {"k": "k"}, n=("count", None))
        it.render(Index(id=U1), objects={"u1": sums}, imports=("s1", "s2"))
        await it.upper("u1", 1)

        assert Counter(await it.rows(str(ARRANGEMENTS.id), 0)) == Counter(
            [("u1", "u1", "index", 1), ("u1", "u1", "group", 1), ("u1", "u1", "join", 3), ("u1", "u1", "distinct", 2)]
        )


@pytest.mark.parametrize(
    ("rules", "kept"),
    [
        ({}, {("index", 1), ("top", 3)}),
        (arranged_rules(lambda _: in_memory), {("index", 1), ("top", 3)}),
    ],
    ids=["memory", "arranged"],
)
@pytest.mark.asyncio
async def test_the_first_rows_are_kept_with_all_others(rules: Mapping[str, Rule], kept: set[tuple[str, int]]) -> None:
    collections = Collections()
    s1 = collections.create("s1", S1)
    query = compile_query("SELECT k FROM s1 ORDER BY v DESC LIMIT 1", Tables({"s1": RELATION}), allow_order=False)
    async with running(collections, rules) as it:
        it.perform(SetLogging(ids=LOGGING_IDS))
        s1.append(0, ("a", 1), ("b", 2), ("c", 3))
        s1.advance(1)
        it.render(Index(id=U1), objects={"u1": query.plan}, imports=("s1",))
        await it.upper("u1", 1)

        assert {row[2:] for row in await it.rows(str(ARRANGEMENTS.id), 0)} == kept


@pytest.mark.asyncio
async def test_state_in_spines_is_counted_too() -> None:
    collections = Collections()
    s1 = collections.create("s1", S1)
    async with running(collections, arranged_rules(lambda _: in_memory)) as it:
        it.perform(SetLogging(ids=LOGGING_IDS))
        s1.append(0, ("a", 1), ("a", 2), ("b", 2))
        s1.advance(1)
        sums = group(get("s1", S1), {"k": "k"}, n=("count", None))
        it.render(Index(id=U1), objects={"u1": sums}, imports=("s1",))
        await it.upper("u1", 1)

        assert {row[2:] for row in await it.rows(str(ARRANGEMENTS.id), 0)} == {("index", 2), ("group", 2)}


@pytest.mark.asyncio
async def test_steps_are_those_that_cost_something_and_the_newest() -> None:
    collections = Collections()
    s1 = collections.create("s1", S1)
    async with running(collections) as it:
        it.perform(SetLogging(ids=LOGGING_IDS))
        s1.append(0, ("a", 1))
        s1.advance(1)
        it.render(Index(id=U1), objects={"u1": get("s1", S1)}, imports=("s1",))
        await it.upper("u1", 1)
        s1.append(1, ("b", 1), ("c", 1))
        s1.advance(2)
        await it.upper("u1", 2)
        s1.advance(3)
        await it.upper("u1", 3)

        told = await it.rows(str(STEPS.id), 0)
        assert [row[:-1] for row in told] == [("u1", 0, 1, 1, 1), ("u1", 1, 2, 2, 2)]
        assert all(row[-1] >= 0 for row in told)
        for step in range(3, STEPS_MAX + 10):
            s1.append(step, ("d", step))
            s1.advance(step + 1)
            await it.upper("u1", step + 1)
        assert len(await it.rows(str(STEPS.id), 0)) == STEPS_MAX


@pytest.mark.asyncio
async def test_what_was_not_asked_for_is_not_offered() -> None:
    async with running(Collections()) as it:
        assert "cannot be read" in await it.refusal(str(PEEKS.id), 0)
        it.perform(SetLogging(ids=(PEEKS.id,)))

        it.render(Index(id=U1), objects={"u1": get(str(STEPS.id), STEPS.columns)}, imports=(str(STEPS.id),))

        assert await it.rows(str(PEEKS.id), 0) == []
        assert "no logging collection l4" in await it.failure("u1")
