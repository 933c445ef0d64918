"""What the memory runtime promises: indexes, tails, views, peeks and failures."""

from collections import Counter
from decimal import Decimal

import pytest

from reconcile.compute_actions import Compact, Configure, Drop, SetWritable, StopPeek
from reconcile.compute_protocol import Configuration
from reconcile.dataflow import Index, MaterializedView, Tail
from reconcile.frontiers import CLOSED, Antichain
from reconcile.ids import GlobalId
from tests.memory.collections import Collection, Collections
from tests.memory.harness import running
from tests.memory.plans import distinct, get, group, join, project, union, where

pytestmark = pytest.mark.usefixtures("state")

S1 = (("k", "string"), ("v", "bigint"))
S2 = (("j", "string"), ("w", "int"))
U1, U2, U3 = (GlobalId("u", number) for number in (1, 2, 3))
T1 = GlobalId("t", 1)
SUMS = group(get("s1", S1), {"k": "k"}, n=("count", None), total=("sum", "v"))


def tables() -> tuple[Collections, Collection, Collection]:
    collections = Collections()
    return collections, collections.create("s1", S1), collections.create("s2", S2)


@pytest.mark.asyncio
async def test_an_index_holds_what_its_plan_gives_at_every_step() -> None:
    collections, s1, _ = tables()
    async with running(collections) as it:
        s1.append(0, ("a", 1), ("a", 2), ("b", 5))
        s1.advance(1)

        it.render(Index(id=U1, key=("k",)), objects={"u1": SUMS}, imports=("s1",))
        await it.upper("u1", 1)
        s1.append(1, ("a", 2), diff=-1)
        s1.append(2, ("b", 5), diff=-1)
        s1.advance(3)
        await it.upper("u1", 3)

        assert await it.peek("u1", 0) == Counter({("a", 2, 3): 1, ("b", 1, 5): 1})
        assert await it.peek("u1", 1) == Counter({("a", 1, 1): 1, ("b", 1, 5): 1})
        assert await it.peek("u1", 2) == Counter({("a", 1, 1): 1})


@pytest.mark.asyncio
async def test_uppers_are_told_from_as_of_on_and_end_closed_with_their_inputs() -> None:
    collections, s1, _ = tables()
    async with running(collections) as it:
        s1.append(3, ("a", 1))
        s1.advance(9)

        it.render(Index(id=U1), objects={"u1": get("s1", S1)}, imports=("s1",), as_of=5)
        await it.upper("u1", 9)
        s1.advance(None)
        await it.upper("u1", None)

        assert it.uppers == {U1: CLOSED}
        assert await it.peek("u1", 70) == Counter({("a", 1): 1})


@pytest.mark.asyncio
async def test_a_dataflow_stops_at_until() -> None:
    collections, s1, _ = tables()
    async with running(collections) as it:
        it.render(Index(id=U1), objects={"u1": get("s1", S1)}, imports=("s1",), until=Antichain.at(4))
        s1.append(2, ("a", 1))
        s1.append(4, ("b", 1))
        s1.advance(8)
        await it.upper("u1", 4)
        s1.advance(None)
        await it.quiet()

        assert it.uppers == {U1: Antichain.at(4)}
        assert await it.peek("u1", 3) == Counter({("a", 1): 1})


@pytest.mark.asyncio
async def test_a_step_is_processed_when_every_import_is_complete_through_it() -> None:
    collections, s1, s2 = tables()
    plan = join(get("s1", S1), get("s2", S2), ("k", "j"))
    async with running(collections) as it:
        it.render(Index(id=U1), objects={"u1": plan}, imports=("s1", "s2"))
        s1.append(0, ("a", 1), (None, 7))
        s1.append(4, ("a", 9))
        s1.advance(6)
        s2.append(0, ("a", 10), (None, 8))
        s2.advance(3)
        await it.upper("u1", 3)
        await it.quiet()

        assert it.uppers == {U1: Antichain.at(3)}
        assert await it.peek("u1", 2) == Counter({("a", 1, "a", 10): 1})

        s2.append(5, ("a", 10), diff=-1)
        s2.append(5, ("a", 11))
        s2.advance(6)
        await it.upper("u1", 6)

        assert await it.peek("u1", 4) == Counter({("a", 1, "a", 10): 1, ("a", 9, "a", 10): 1})
        assert await it.peek("u1", 5) == Counter({("a", 1, "a", 11): 1, ("a", 9, "a", 11): 1})


@pytest.mark.asyncio
async def test_a_group_goes_with_its_last_row_and_null_keys_are_one_group() -> None:
    collections, s1, _ = tables()
    async with running(collections) as it:
        it.render(Index(id=U1), objects={"u1": SUMS}, imports=("s1",))
        s1.append(0, (None, 1), (None, 2), ("a", None))
        s1.append(1, (None, 1), ("a", None), diff=-1)
        s1.append(2, (None, 2), diff=-1)
        s1.advance(3)
        await it.upper("u1", 3)

        assert [await it.peek("u1", at) for at in range(3)] == [
            Counter({(None, 2, 3): 1, ("a", 1, None): 1}),
            Counter({(None, 1, 2): 1}),
            Counter(),
        ]


@pytest.mark.asyncio
async def test_an_aggregate_without_keys_always_has_one_row() -> None:
    collections, s1, _ = tables()
    plan = group(where(get("s1", S1), "v > 0"), {}, n=("count", None), most=("max", "v"), mean=("avg", "v"))
    async with running(collections) as it:
        s1.advance(5)
        it.render(Index(id=U1), objects={"u1": plan}, imports=("s1",), as_of=4)
        await it.upper("u1", 5)
        s1.append(5, ("a", 1), ("a", 2))
        s1.append(6, ("a", 1), ("a", 2), diff=-1)
        s1.advance(7)
        await it.upper("u1", 7)

        assert [await it.peek("u1", at) for at in (4, 5, 6)] == [
            Counter({(0, None, None): 1}),
            Counter({(2, 2, 1.5): 1}),
            Counter({(0, None, None): 1}),
        ]


@pytest.mark.parametrize("state", ["dicts"], indirect=True)
@pytest.mark.asyncio
async def test_ten_thousand_dataflows_on_one_table_read_it_once() -> None:
    collections, s1, _ = tables()
    ids = [GlobalId("u", number) for number in range(1, 10_001)]
    async with running(collections) as it:
        s1.advance(1)
        for id in ids:
            it.render(Index(id=id), objects={str(id): where(get("s1", S1), "v > 5")}, imports=("s1",))
        await it.until(lambda: len(it.uppers) == len(ids))
        s1.append(1, ("a", 9))
        s1.advance(2)
        await it.until(lambda: all(upper == Antichain.at(2) for upper in it.uppers.values()))

        assert (s1.snapshots_read, s1.changes_read) == (1, 1)
        assert await it.peek("u10000", 1) == Counter({("a", 9): 1})


# --- peeks ------------------------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_a_peek_waits_until_its_step_is_final() -> None:
    collections, s1, _ = tables()
    async with running(collections) as it:
        it.render(Index(id=U1), objects={"u1": get("s1", S1)}, imports=("s1",))
        peek = it.start_peek("u1", 4)
        s1.append(4, ("a", 1))
        s1.advance(4)
        await it.quiet()
        assert it.answers == {}

        s1.advance(5)
        await it.answer(peek)

        assert await it.peek("u1", 4) == Counter({("a", 1): 1})


@pytest.mark.asyncio
async def test_a_stopped_peek_is_never_answered() -> None:
    collections, s1, _ = tables()
    async with running(collections) as it:
        it.render(Index(id=U1), objects={"u1": get("s1", S1)}, imports=("s1",))
        waiting = it.start_peek("u1", 4)
        s1.advance(1)
        await it.upper("u1", 1)
        ready = it.start_peek("u1", 0)
        it.perform(StopPeek(peek=waiting), StopPeek(peek=ready))
        s1.advance(9)
        await it.upper("u1", 9)
        await it.quiet()

        assert it.answers == {}


@pytest.mark.asyncio
async def test_a_lookup_finds_the_rows_of_its_key_and_null_finds_null() -> None:
    collections, s1, _ = tables()
    async with running(collections) as it:
        s1.append(0, ("a", 1), ("a", 1), ("a", 2), (None, 3), ("b", None))
        s1.advance(1)
        it.render(Index(id=U1, key=("k",)), objects={"u1": get("s1", S1)}, imports=("s1",))
        it.render(Index(id=U2), objects={"u2": get("s1", S1)}, imports=("s1",))

        assert await it.peek("u1", 0, lookup=(("k", "a"),)) == Counter({("a", 1): 2, ("a", 2): 1})
        assert await it.peek("u1", 0, lookup=(("k", None),)) == Counter({(None, 3): 1})
        assert await it.peek("u1", 0, lookup=(("k", "z"),)) == Counter()
        assert await it.peek("u1", 0, lookup=(("v", 1),)) == Counter({("a", 1): 2})
        assert await it.peek("u2", 0, lookup=(("v", None), ("k", "b"))) == Counter({("b", None): 1})
        assert "'q' does not exist" in await it.refusal("u1", 0, lookup=(("q", 1),))
        assert "is not a bigint" in await it.refusal("u1", 0, lookup=(("v", "one"),))


@pytest.mark.asyncio
async def test_lookups_read_fractions_dates_and_timestamps_from_their_text() -> None:
    columns = (("d", "date"), ("t", "timestamp"), ("m", "decimal(6,2)"), ("f", "double"), ("b", "boolean"))
    collections = Collections()
    source = collections.create("s3", columns)
    async with running(collections) as it:
        format = source.format
        row = (19_723, 1_704_067_200_000_000, Decimal("1.50"), 0.25, True)
        source.append(0, row)
        source.advance(1)
        it.render(Index(id=U1, key=format.names), objects={"u1": get("s3", columns)}, imports=("s3",))
        texts = (("d", "2024-01-01"), ("t", "2024-01-01 00:00:00"), ("m", "1.5"), ("f", "0.25"), ("b", True))

        assert await it.peek("u1", 0, lookup=texts) == Counter({row: 1})


@pytest.mark.asyncio
async def test_a_peek_filters_projects_and_cuts_by_the_order_of_all_columns() -> None:
    collections, s1, _ = tables()
    async with running(collections) as it:
        s1.append(0, ("b", 2), ("a", 9), ("a", 9), ("c", None), (None, 4))
        s1.advance(1)
        it.render(Index(id=U1, key=("k",)), objects={"u1": get("s1", S1)}, imports=("s1",))

        assert await it.rows("u1", 0, limit=3) == [(None, 4), ("a", 9), ("a", 9)]
        assert await it.rows("u1", 0, limit=0) == []
        assert await it.peek("u1", 0, predicate="v > 3", columns=(("w", "v + 1"),)) == Counter({(10,): 2, (5,): 1})
        assert await it.peek("u1", 0, lookup=(("k", "b"),), columns=(("x", "v"), ("y", "k"))) == Counter({(2, "b"): 1})
        assert "division by zero" in await it.refusal("u1", 0, columns=(("x", "1 / 0"),))
        assert "'q' does not exist" in await it.refusal("u1", 0, predicate="q > 1")
        assert "'sort'" in await it.refusal("u1", 0, sort="k")


@pytest.mark.asyncio
async def test_a_result_over_the_limit_is_refused_and_a_smaller_one_is_not() -> None:
    collections, s1, _ = tables()
    async with running(collections) as it:
        s1.append(0, *((f"key {number}", number) for number in range(1000)))
        s1.advance(1)
        it.render(Index(id=U1, key=("k",)), objects={"u1": get("s1", S1)}, imports=("s1",))
        it.perform(Configure(configuration=Configuration(result_bytes_max=2_000)))

        assert "too large" in await it.refusal("u1", 0)
        assert await it.peek("u1", 0, lookup=(("k", "key 7"),)) == Counter({("key 7", 7): 1})


@pytest.mark.asyncio
async def test_a_large_index_is_read_at_its_step_while_new_steps_arrive() -> None:
    collections, s1, _ = tables()
    async with running(collections) as it:
        rows = [(f"key {number}", number) for number in range(10_000)]
        s1.append(0, *rows)
        s1.advance(1)
        it.render(Index(id=U1, key=("k",)), objects={"u1": get("s1", S1)}, imports=("s1",))
        await it.upper("u1", 1)

        peek = it.start_peek("u1", 0)
        s1.append(1, *rows[:5_000], diff=-1)
        s1.append(1, ("new", 1))
        s1.advance(2)
        await it.upper("u1", 2)
        await it.answer(peek)

        assert await it.peek("u1", 0) == Counter(dict.fromkeys(rows, 1))
        assert await it.peek("u1", 1) == Counter(dict.fromkeys([*rows[5_000:], ("new", 1)], 1))


@pytest.mark.asyncio
async def test_what_is_not_there_cannot_be_peeked() -> None:
    collections, s1, _ = tables()
    async with running(collections) as it:
        s1.advance(9)
        it.render(Index(id=U1), objects={"u1": get("s1", S1)}, imports=("s1",), as_of=5)
        await it.upper("u1", 9)
        it.perform(Compact(id=U1, since=Antichain.at(8)))

        assert "u7 is not kept here" in await it.refusal("u7", 0)
        assert "l1 is not kept here" in await it.refusal("l1", 0)
        assert "history before step 7 is gone" in await it.refusal("u1", 6)


# --- compaction, dropping ---------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_dropping_a_dataflow_ends_its_peeks_and_closes_its_inputs() -> None:
    collections, s1, _ = tables()
    async with running(collections) as it:
        it.render(Index(id=U1), Tail(id=T1), objects={"u1": SUMS, "t1": SUMS}, imports=("s1",))
        peek = it.start_peek("u1", 4)
        await it.quiet()

        it.perform(Drop(exports=(U1, T1)))
        s1.advance(9)
        await it.quiet()

        assert "u1 was dropped" in str(await it.answer(peek))
        assert it.uppers == {}
        assert it.tail("t1") == []
        assert collections.open_inputs == Counter({GlobalId("s", 1): 0})


@pytest.mark.asyncio
async def test_freeing_one_export_leaves_the_others_running() -> None:
    collections, s1, _ = tables()
    objects = {
        "u1": get("s1", S1),
        "u2": group(get("u1", S1), {}, n=("count", None)),
        "u3": distinct(get("u2", (("n", "bigint"),))),
    }
    async with running(collections) as it:
        it.render(Index(id=U1), Index(id=U2), Index(id=U3), objects=objects, imports=("s1",))
        s1.append(0, ("a", 1), ("b", 2))
        s1.advance(1)
        await it.upper("u3", 1)
        assert await it.peek("u3", 0) == await it.peek("u2", 0) == Counter({(2,): 1})

        it.perform(Compact(id=U1, since=CLOSED))
        it.perform(Compact(id=U3, since=CLOSED))
        s1.append(1, ("c", 3))
        s1.advance(2)
        await it.upper("u2", 2)

        assert await it.peek("u2", 1) == Counter({(3,): 1})
        assert "u1 is not kept here" in await it.refusal("u1", 1)
        assert it.uppers == {U1: Antichain.at(1), U2: Antichain.at(2), U3: Antichain.at(1)}


@pytest.mark.asyncio
async def test_the_same_id_can_be_rendered_again_after_a_drop() -> None:
    collections, s1, _ = tables()
    async with running(collections) as it:
        s1.append(0, ("a", 1))
        s1.advance(1)
        it.render(Index(id=U1), objects={"u1": get("s1", S1)}, imports=("s1",))
        it.perform(Drop(exports=(U1,)))
        it.render(Index(id=U1), objects={"u1": project(get("s1", S1), v="v * 2")}, imports=("s1",))

        assert await it.peek("u1", 0) == Counter({(2,): 1})
        assert it.errors == {}


# --- index on index ---------------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_a_dataflow_follows_an_index_of_the_same_runtime() -> None:
    collections, s1, _ = tables()
    sums = (("k", "string"), ("n", "bigint"), ("total", "bigint"))
    async with running(collections) as it:
        s1.append(0, ("a", 1))
        s1.append(2, ("a", 4))
        s1.advance(4)
        it.render(Index(id=U1, key=("k",)), objects={"u1": SUMS}, imports=("s1",))
        await it.upper("u1", 4)
        it.perform(Compact(id=U1, since=Antichain.at(2)))

        it.render(Index(id=U2), objects={"u2": project(get("u1", sums), twice="total * 2")}, imports=("u1",), as_of=2)
        it.perform(Compact(id=U1, since=Antichain.at(4)))
        await it.upper("u2", 4)
        s1.append(5, ("a", 1), diff=-1)
        s1.append(6, ("a", 4), diff=-1)
        s1.advance(8)
        await it.upper("u2", 8)

        assert [await it.peek("u2", at) for at in (2, 3, 5, 6)] == [
            Counter({(10,): 1}),
            Counter({(10,): 1}),
            Counter({(8,): 1}),
            Counter(),
        ]
        assert collections.open_inputs == Counter({GlobalId("s", 1): 1})


@pytest.mark.asyncio
async def test_an_index_that_is_not_complete_yet_is_waited_for() -> None:
    collections, s1, _ = tables()
    async with running(collections) as it:
        it.render(Index(id=U1), objects={"u1": get("s1", S1)}, imports=("s1",), as_of=3)
        it.render(Index(id=U2), objects={"u2": distinct(get("u1", S1))}, imports=("u1",), as_of=3)
        s1.append(0, ("a", 1), ("a", 1))
        s1.advance(2)
        await it.quiet()
        assert it.uppers == {}

        s1.advance(4)
        await it.upper("u2", 4)

        assert await it.peek("u2", 3) == Counter({("a", 1): 1})


# --- tails ------------------------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_a_tail_begins_with_the_contents_and_goes_on_with_the_changes() -> None:
    collections, s1, _ = tables()
    async with running(collections) as it:
        s1.append(0, ("a", 1), ("b", 1))
        s1.append(2, ("b", 1), diff=-1)
        s1.advance(4)
        it.render(Tail(id=T1), objects={"t1": get("s1", S1)}, imports=("s1",), as_of=2)
        await it.upper("t1", 4)
        s1.append(5, ("c", 2))
        s1.advance(6)
        await it.upper("t1", 6)

        assert it.tail_updates("t1") == [(("a", 1), 2, 1), (("c", 2), 5, 1)]
        assert [(batch.lower.step, batch.upper.step) for batch in it.tail("t1")] == [(2, 3), (3, 4), (4, 6)]


@pytest.mark.asyncio
async def test_a_resumed_tail_tells_what_changes_at_its_beginning_and_nothing_from_before() -> None:
    collections, s1, _ = tables()
    async with running(collections) as it:
        s1.append(0, ("a", 1))
        s1.append(3, ("a", 5))
        s1.append(4, ("b", 2))
        s1.advance(5)
        it.render(Tail(id=T1, snapshot=False), objects={"t1": SUMS}, imports=("s1",), as_of=3)
        await it.upper("t1", 5)

        updates = it.tail_updates("t1")
        assert Counter(updates) == Counter([(("a", 1, 1), 3, -1), (("a", 2, 6), 3, 1), (("b", 1, 2), 4, 1)])
        assert it.tail("t1")[0].lower == Antichain.at(3)


@pytest.mark.asyncio
async def test_a_tail_resumed_at_the_very_beginning_tells_everything() -> None:
    collections, s1, _ = tables()
    count = group(get("s1", S1), {}, n=("count", None))
    async with running(collections) as it:
        s1.append(0, ("a", 1))
        s1.append(1, ("a", 1))
        s1.advance(2)
        it.render(Tail(id=T1, snapshot=False), objects={"t1": count}, imports=("s1",), as_of=0)
        await it.upper("t1", 2)

        assert Counter(it.tail_updates("t1")) == Counter([((1,), 0, 1), ((1,), 1, -1), ((2,), 1, 1)])


@pytest.mark.asyncio
async def test_a_linear_tail_resumes_without_contents_and_a_grouping_one_cannot() -> None:
    collections, s1, _ = tables()
    linear = union(where(get("s1", S1), "v > 1"), project(get("s1", S1), k="upper(k)", v="v"))
    async with running(collections) as it:
        s1.append(0, ("a", 1))
        s1.append(3, ("b", 2))
        s1.advance(5)
        s1.compact(3)
        it.render(Tail(id=T1, snapshot=False), objects={"t1": linear}, imports=("s1",), as_of=3)
        it.render(Index(id=U1), Tail(id=U2, snapshot=False), objects={"u1": SUMS, "u2": SUMS}, imports=("s1",), as_of=3)
        await it.upper("t1", 5)

        assert Counter(it.tail_updates("t1")) == Counter([(("b", 2), 3, 1), (("B", 2), 3, 1)])
        assert s1.snapshots_read == 0
        assert "history before step 3 is gone" in await it.failure("u1")


@pytest.mark.asyncio
async def test_a_tail_on_an_index_resumes_at_the_since_of_that_index() -> None:
    collections, s1, _ = tables()
    sums = (("k", "string"), ("n", "bigint"), ("total", "bigint"))
    async with running(collections) as it:
        s1.append(0, ("a", 1))
        s1.append(3, ("a", 5))
        s1.advance(5)
        it.render(Index(id=U1, key=("k",)), objects={"u1": SUMS}, imports=("s1",))
        await it.upper("u1", 5)
        it.perform(Compact(id=U1, since=Antichain.at(3)))

        it.render(Tail(id=T1, snapshot=False), objects={"t1": get("u1", sums)}, imports=("u1",), as_of=3)
        counts = group(get("u1", sums), {}, n=("sum", "n"))
        it.render(Tail(id=U2, snapshot=False), objects={"u2": counts}, imports=("u1",), as_of=3)
        await it.upper("t1", 5)
        await it.upper("u2", 5)

        assert Counter(it.tail_updates("t1")) == Counter([(("a", 1, 1), 3, -1), (("a", 2, 6), 3, 1)])
        assert Counter(it.tail_updates("u2")) == Counter([((1,), 3, -1), ((2,), 3, 1)])


@pytest.mark.asyncio
async def test_a_tail_does_not_resume_where_its_index_begins() -> None:
    collections, s1, _ = tables()
    async with running(collections) as it:
        s1.append(0, ("a", 1))
        s1.append(4, ("b", 1))
        s1.advance(6)
        it.render(Index(id=U1), objects={"u1": get("s1", S1)}, imports=("s1",), as_of=3)
        await it.upper("u1", 6)
        it.render(Tail(id=T1, snapshot=False), objects={"t1": get("u1", S1)}, imports=("u1",), as_of=3)
        it.render(Tail(id=U2, snapshot=False), objects={"u2": get("u1", S1)}, imports=("u1",), as_of=4)
        it.render(Tail(id=U3, snapshot=False), objects={"u3": distinct(get("u1", S1))}, imports=("u1",), as_of=4)

        assert "history before step 3 is gone" in await it.failure("t1")
        await it.upper("u2", 6)
        await it.upper("u3", 6)
        assert it.tail_updates("u2") == it.tail_updates("u3") == [(("b", 1), 4, 1)]


@pytest.mark.asyncio
async def test_one_dataflow_serves_an_index_and_tails_of_both_kinds() -> None:
    collections, s1, _ = tables()
    objects = {"u1": SUMS, "u2": get("u1", (("k", "string"), ("n", "bigint"), ("total", "bigint"))), "t1": SUMS}
    async with running(collections) as it:
        s1.append(0, ("a", 1))
        s1.append(2, ("a", 2))
        s1.advance(4)
        it.render(Index(id=U1), Tail(id=U2), Tail(id=T1, snapshot=False), objects=objects, imports=("s1",), as_of=2)
        await it.upper("t1", 4)

        assert await it.peek("u1", 2) == await it.peek("u1", 3) == Counter({("a", 2, 3): 1})
        assert it.tail_updates("u2") == [(("a", 2, 3), 2, 1)]
        assert Counter(it.tail_updates("t1")) == Counter([(("a", 1, 1), 2, -1), (("a", 2, 3), 2, 1)])
        assert it.tail("u2")[0].lower == it.tail("t1")[0].lower == Antichain.at(2)


# --- materialized views -----------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_a_view_writes_once_it_may_and_reports_the_upper_of_its_shard() -> None:
    collections, s1, _ = tables()
    async with running(collections) as it:
        s1.append(0, ("a", 1))
        s1.advance(2)
        it.render(MaterializedView(id=U1), objects={"u1": SUMS}, imports=("s1",), as_of=1)
        await it.quiet()
        assert it.uppers == {}

        it.perform(SetWritable(id=U1, writable=True))
        await it.upper("u1", 2)
        s1.append(2, ("a", 2))
        s1.advance(3)
        await it.upper("u1", 3)
        it.perform(SetWritable(id=U1, writable=False))
        s1.append(3, ("b", 1))
        s1.advance(4)
        await it.quiet()

        shard = collections["u1"]
        assert [shard.contents(at) for at in (1, 2, 3)] == [
            Counter({("a", 1, 1): 1}),
            Counter({("a", 2, 3): 1}),
            Counter({("a", 2, 3): 1}),
        ]
        assert it.uppers == {U1: Antichain.at(3)}
        assert await it.peek("u1", 2, lookup=(("k", "a"),)) == Counter({("a", 2, 3): 1})


@pytest.mark.asyncio
async def test_of_two_writers_each_step_is_written_once() -> None:
    collections, s1, _ = tables()
    async with running(collections) as one, running(collections) as other:
        for it in (one, other):
            it.render(MaterializedView(id=U1), objects={"u1": SUMS}, imports=("s1",))
            it.perform(SetWritable(id=U1, writable=True))
        for step in range(20):
            s1.append(step, ("a", step), (f"k{step}", 1))
            if step % 3:
                s1.advance(step + 1)
                await one.upper("u1", step + 1)
        s1.advance(20)
        await one.upper("u1", 20)
        await other.upper("u1", 20)

        expected = Counter({("a", 20, 190): 1, **{(f"k{step}", 1, 1): 1 for step in range(20)}})
        assert collections["u1"].contents(19) == expected
        assert all(count == 1 for at in range(20) for count in collections["u1"].contents(at).values())


@pytest.mark.asyncio
async def test_a_view_that_begins_after_its_shard_ends_replaces_what_the_shard_holds() -> None:
    collections, s1, _ = tables()
    shard = collections.create("u1", (("k", "string"), ("n", "bigint"), ("total", "bigint")))
    shard.append(0, ("a", 1, 1), ("gone", 1, 1))
    shard.advance(2)
    async with running(collections) as it:
        s1.append(0, ("a", 1))
        s1.append(4, ("b", 2))
        s1.advance(7)
        it.render(MaterializedView(id=U1), objects={"u1": SUMS}, imports=("s1",), as_of=5)
        it.perform(SetWritable(id=U1, writable=True))
        await it.upper("u1", 7)

        assert shard.contents(1) == Counter({("a", 1, 1): 1, ("gone", 1, 1): 1})
        assert shard.contents(5) == shard.contents(6) == Counter({("a", 1, 1): 1, ("b", 1, 2): 1})


@pytest.mark.asyncio
async def test_a_view_that_is_computed_again_writes_only_what_its_shard_lacks() -> None:
    collections, s1, _ = tables()
    shard = collections.create("u1", (("k", "string"), ("n", "bigint"), ("total", "bigint")))
    shard.append(2, ("a", 1, 1))
    shard.advance(5)
    async with running(collections) as it:
        s1.advance(1)
        it.render(MaterializedView(id=U1), objects={"u1": SUMS}, imports=("s1",))
        it.perform(SetWritable(id=U1, writable=True))
        await it.upper("u1", 5)
        s1.append(2, ("a", 1))
        for step in (3, 5):
            s1.advance(step)
            await it.quiet()
        s1.append(5, ("b", 2))
        s1.advance(6)
        await it.upper("u1", 6)

        assert shard.contents(4) == Counter({("a", 1, 1): 1})
        assert shard.contents(5) == Counter({("a", 1, 1): 1, ("b", 1, 2): 1})


@pytest.mark.asyncio
async def test_a_view_that_may_not_write_follows_its_shard_and_does_not_grow() -> None:
    collections, s1, _ = tables()
    async with running(collections) as reader, running(collections) as writer:
        for it in (reader, writer):
            it.render(MaterializedView(id=U1), objects={"u1": SUMS}, imports=("s1",))
        for step in range(10):
            s1.append(step, ("a", 1))
            s1.advance(step + 1)
            reader.perform(Compact(id=U1, since=Antichain.at(step)))
            await reader.quiet()
        writer.perform(SetWritable(id=U1, writable=True))
        await writer.upper("u1", 10)
        s1.append(10, ("a", 1))
        s1.advance(11)
        await writer.upper("u1", 11)
        writer.perform(SetWritable(id=U1, writable=False))
        reader.perform(SetWritable(id=U1, writable=True))
        s1.append(11, ("a", 1))
        s1.advance(12)
        await reader.upper("u1", 12)

        assert collections["u1"].contents(9) == Counter({("a", 10, 10): 1})
        assert collections["u1"].contents(11) == Counter({("a", 12, 12): 1})


@pytest.mark.asyncio
async def test_what_a_shard_holds_and_nobody_computed_is_corrected_by_the_next_write() -> None:
    collections, s1, _ = tables()
    shard = collections.create("u1", (("k", "string"), ("n", "bigint"), ("total", "bigint")))
    shard.append(0, ("a", 1, 99), ("orphan", 1, 1))
    shard.advance(3)
    async with running(collections) as it:
        s1.append(0, ("a", 1))
        s1.advance(1)
        it.render(MaterializedView(id=U1), objects={"u1": SUMS}, imports=("s1",))
        it.perform(SetWritable(id=U1, writable=True))
        s1.append(3, ("b", 2))
        s1.advance(4)
        await it.upper("u1", 4)
        # Another replica that computes something else comes first.
        shard.append(4, ("b", 1, 2), diff=-1)
        shard.append(4, ("b", 1, 77))
        shard.advance(5)
        s1.append(4, ("b", 1))
        s1.advance(6)
        await it.upper("u1", 6)

        assert shard.contents(3) == Counter({("a", 1, 1): 1, ("b", 1, 2): 1})
        assert shard.contents(4) == Counter({("a", 1, 1): 1, ("b", 1, 77): 1})
        assert shard.contents(5) == Counter({("a", 1, 1): 1, ("b", 2, 3): 1})


# --- failures ---------------------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_a_row_that_cannot_be_computed_fails_its_dataflow_and_nothing_else() -> None:
    collections, s1, _ = tables()
    async with running(collections) as it:
        it.render(Index(id=U1), objects={"u1": project(get("s1", S1), x="10 / v")}, imports=("s1",))
        it.render(Index(id=U2), objects={"u2": get("s1", S1)}, imports=("s1",))
        s1.append(0, ("a", 1))
        s1.advance(1)
        await it.upper("u1", 1)
        waiting = it.start_peek("u1", 1)
        s1.append(1, ("b", 0))
        s1.advance(2)
        await it.upper("u2", 2)

        error = await it.failure("u1")
        assert error == "cannot compute u1: project failed; 10 / v: division by zero"
        assert error in str(await it.answer(waiting))
        assert await it.refusal("u1", 0) == error
        assert await it.peek("u2", 1) == Counter({("a", 1): 1, ("b", 0): 1})
        assert collections.open_inputs == Counter({GlobalId("s", 1): 1})

        it.perform(Drop(exports=(U1,)))
        s1.append(2, ("b", 0), diff=-1)
        s1.advance(3)
        it.render(Index(id=U1), objects={"u1": project(get("s1", S1), x="10 / v")}, imports=("s1",), as_of=2)
        assert await it.peek("u1", 2) == Counter({(10.0,): 1})


@pytest.mark.asyncio
async def test_a_row_that_comes_and_goes_within_a_step_fails_nothing() -> None:
    collections, s1, _ = tables()
    async with running(collections) as it:
        it.render(Index(id=U1), objects={"u1": project(get("s1", S1), x="10 / v")}, imports=("s1",))
        s1.append(0, ("a", 0), ("a", 5))
        s1.append(0, ("a", 0), diff=-1)
        s1.append(1, ("a", 0))
        s1.append(1, ("a", 0), diff=-1)
        s1.advance(1)
        await it.upper("u1", 1)
        s1.advance(2)
        await it.upper("u1", 2)

        assert await it.peek("u1", 1) == Counter({(2.0,): 1})


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("plan", "error"),
    [
        (where(get("s1", S1), "v >"), "cannot read the expression 'v >'"),
        (where(get("s1", S1), "v + 1"), "a filter needs a boolean, not bigint"),
        (where(get("s1", S1), "q > 1"), "column 'q' does not exist"),
        (project(get("s1", S1), x="rand()"), "RAND() is not supported"),
        (project(get("s1", S1), x="NULL"), "column 'x' is always null"),
        (project(get("s1", S1), _step="v"), "column '_step' has a reserved name"),
        (group(get("s1", S1), {"k": "k"}, x=("median", "v")), "aggregate 'median' is not supported"),
        (group(get("s1", S1), {"k": "k"}, x=("sum", "k")), "sum is not defined for string"),
        (group(get("s1", S1), {"k": "k"}, x=("sum", None)), "sum of 'x' needs an expression"),
        (join(get("s1", S1), get("s1", S1), ("k", "k")), "both sides of a join have a column 'k'"),
        (join(get("s1", S1), get("s2", S2), ("k", "j"), kind="left"), "a join of kind 'left' is not supported"),
        (union(get("s1", S1), get("s2", S2)), "different columns"),
        (union(), "a union needs at least one input"),
        (get("s9", S1), "s9 is neither imported nor built before"),
        (get("s1", (("k", "varchar"),)), "type 'varchar' is unknown"),
        (None, "the plan is not an operator"),
    ],
)
async def test_what_cannot_be_rendered_fails_with_the_reason(plan: object, error: str) -> None:
    collections, s1, _ = tables()
    async with running(collections) as it:
        it.render(Index(id=U1), objects={"u1": plan}, imports=("s1", "s2"))  # type: ignore[dict-item]
        s1.advance(1)

        assert error in await it.failure("u1")
        assert error in await it.refusal("u1", 0)
        assert collections.open_inputs.total() == 0


@pytest.mark.asyncio
async def test_an_index_by_a_column_that_is_not_there_fails() -> None:
    collections, _, _ = tables()
    async with running(collections) as it:
        it.render(Index(id=U1, key=("q",)), objects={"u1": get("s1", S1)}, imports=("s1",))

        assert "cannot index u1 by 'q'" in await it.failure("u1")


@pytest.mark.asyncio
async def test_a_sum_that_leaves_bigint_fails_and_names_the_aggregate() -> None:
    collections, s1, _ = tables()
    async with running(collections) as it:
        s1.append(0, ("a", 2**63 - 1))
        s1.append(1, ("a", 1))
        s1.append(1, ("b", -1))
        s1.advance(1)
        it.render(Index(id=U1), objects={"u1": SUMS}, imports=("s1",))
        await it.upper("u1", 1)
        s1.advance(2)

        assert "group failed in 'total'; overflow" in await it.failure("u1")


@pytest.mark.asyncio
async def test_reading_before_the_since_of_an_input_fails_with_that_since() -> None:
    collections, s1, _ = tables()
    async with running(collections) as it:
        s1.advance(9)
        s1.compact(6)
        it.render(Index(id=U1), objects={"u1": get("s1", S1)}, imports=("s1",), as_of=4)

        assert "history before step 6 is gone" in await it.failure("u1")


@pytest.mark.asyncio
async def test_nothing_is_reported_after_close() -> None:
    collections, s1, _ = tables()
    async with running(collections) as it:
        it.render(Index(id=U1), MaterializedView(id=U2), objects={"u1": SUMS, "u2": SUMS}, imports=("s1",))
        it.perform(SetWritable(id=U2, writable=True))
        it.start_peek("u1", 3)
        s1.advance(1)
        await it.upper("u2", 1)
        reported = len(it.events)

        await it.runtime.close()
        s1.advance(9)
        await it.quiet()

        assert len(it.events) == reported
        assert collections.open_inputs.total() == 0
