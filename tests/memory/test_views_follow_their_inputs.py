"""Whatever the plan and the history: what is maintained is what a computation from scratch would give."""

import asyncio
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from instance.memory.rows import Row
from reconcile.compute_actions import Compact
from reconcile.dataflow import Index, Tail
from reconcile.frontiers import Antichain
from reconcile.ids import GlobalId
from tests.memory.collections import Collection, Collections
from tests.memory.harness import Running, running
from tests.memory.model import S1, S2, SOURCES, Modelled, plans, rows
from tests.memory.plans import get

pytestmark = pytest.mark.usefixtures("state")

U1, U2, T1, T2, T3 = GlobalId("u", 1), GlobalId("u", 2), GlobalId("t", 1), GlobalId("t", 2), GlobalId("t", 3)
STEPS = 6
#: What one step does to a table: rows to insert, and places (modulo what is there) of rows to delete.
Change = tuple[list[Row], list[int]]


def histories(columns: tuple[tuple[str, str], ...]) -> st.SearchStrategy[list[Change]]:
    change = st.tuples(st.lists(rows(columns), max_size=4), st.lists(st.integers(0, 20), max_size=3))
    return st.lists(change, min_size=STEPS, max_size=STEPS)


def play(table: Collection, history: list[Change]) -> list[Counter[Row]]:
    """Puts all steps of a history in, none final yet; returns the contents at each."""
    there: list[Row] = []
    found = []
    for step, (added, removed) in enumerate(history):
        for place in removed:
            if there:
                table.append(step, there.pop(place % len(there)), diff=-1)
        table.append(step, *added)
        there += added
        found.append(Counter(there))
    return found


async def expect(it: Running, id: str, plan: Modelled, tables: list[dict[str, Counter[Row]]], steps: range) -> None:
    for at in steps:
        assert await it.peek(id, at) == plan.answer(tables[at]), f"at step {at}"


def accumulated(updates: list[tuple[Row, int, int]], at: int) -> Counter[Row]:
    found: Counter[Row] = Counter()
    for row, step, diff in updates:
        if step <= at:
            found[row] += diff
    assert all(count >= 0 for count in found.values())
    return +found


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    plan=plans(),
    histories=st.tuples(histories(S1), histories(S2)),
    as_of=st.integers(0, STEPS - 1),
    paces=st.lists(st.tuples(st.sampled_from(sorted(SOURCES)), st.integers(1, STEPS)), max_size=6),
    since=st.integers(0, STEPS - 1),
)
def test_indexes_and_tails_equal_the_plan_computed_from_scratch_at_every_step(
    plan: Modelled,
    histories: tuple[list[Change], list[Change]],
    as_of: int,
    paces: list[tuple[str, int]],
    since: int,
) -> None:
    async def scenario() -> None:
        collections = Collections()
        sources = {id: collections.create(id, columns) for id, columns in SOURCES.items()}
        played = [play(source, history) for source, history in zip(sources.values(), histories, strict=True)]
        tables = [{"s1": played[0][at], "s2": played[1][at]} for at in range(STEPS)]
        objects = {"u1": plan.plan, "t1": get("u1", plan.columns), "t2": plan.plan, "u2": get("u1", plan.columns)}
        async with running(collections) as it:
            it.render(
                Index(id=U1, key=(plan.columns[0][0],)), Tail(id=T1), Tail(id=T2, snapshot=False),
                objects={id: objects[id] for id in ("u1", "t1", "t2")}, imports=("s1", "s2"), as_of=as_of,
            )  # fmt: skip
            it.render(Index(id=U2), objects={"u2": objects["u2"]}, imports=("u1",), as_of=as_of)
            for id, upper in paces:
                if Antichain.at(upper) > sources[id].upper:
                    sources[id].advance(upper)
                    await it.quiet()
            for source in sources.values():
                source.advance(STEPS)
            await it.upper("u2", STEPS)
            assert it.errors == {}

            await expect(it, "u1", plan, tables, range(as_of, STEPS))
            await expect(it, "u2", plan, tables, range(as_of, STEPS))
            for at in range(as_of, STEPS):
                assert accumulated(it.tail_updates("t1"), at) == +plan.answer(tables[at])
            if as_of:
                before = [(row, 0, count) for row, count in plan.answer(tables[as_of - 1]).items()]
                assert all(step >= as_of for _, step, _ in it.tail_updates("t2"))
                for at in range(as_of, STEPS):
                    assert accumulated([*before, *it.tail_updates("t2")], at) == +plan.answer(tables[at])

            it.perform(Compact(id=U1, since=Antichain.at(since)), Compact(id=U2, since=Antichain.at(since)))
            await expect(it, "u1", plan, tables, range(max(as_of, since), STEPS))
            it.render(Tail(id=T3), objects={"t3": get("u1", plan.columns)}, imports=("u1",), as_of=max(as_of, since))
            await it.upper("t3", STEPS)
            for at in range(max(as_of, since), STEPS):
                assert accumulated(it.tail_updates("t3"), at) == +plan.answer(tables[at])

    asyncio.run(scenario())


@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
@given(plan=plans(2), histories=st.tuples(histories(S1), histories(S2)))
def test_reads_at_old_steps_stay_right_while_new_steps_arrive(
    plan: Modelled, histories: tuple[list[Change], list[Change]]
) -> None:
    async def scenario() -> None:
        collections = Collections()
        sources = {id: collections.create(id, columns) for id, columns in SOURCES.items()}
        played = [play(source, history) for source, history in zip(sources.values(), histories, strict=True)]
        tables = [{"s1": played[0][at], "s2": played[1][at]} for at in range(STEPS)]
        async with running(collections) as it:
            it.render(Index(id=U1), objects={"u1": plan.plan}, imports=("s1", "s2"))
            for upper in range(1, STEPS + 1):
                for source in sources.values():
                    source.advance(upper)
                await it.upper("u1", upper)
                it.perform(Compact(id=U1, since=Antichain.at(upper // 2)))
                await expect(it, "u1", plan, tables, range(upper // 2, upper))

    asyncio.run(scenario())
