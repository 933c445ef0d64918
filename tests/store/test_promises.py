"""What every store promises, whatever it stands on."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from controller.store.bounds import FIELD_BYTES_MAX, REPLIES_MAX
from controller.store.changes import (
    Change,
    Channel,
    ClusterDropped,
    ClusterPut,
    FunctionDropped,
    FunctionPut,
    IdsAllotted,
    ObjectDropped,
    ReplicaDropped,
    ReplicaIdsAllotted,
    ReplicaPut,
    ReplyRemembered,
    StepOpened,
    WriterEpochAllotted,
)
from controller.store.interface import EMPTY_LOG, ChannelLog, Loaded, LogRecord
from reconcile.errors import Fenced, InvalidRequest, InvariantBroken, PlainsongError
from reconcile.ids import Epoch, GlobalId, ReplicaId, Seqno, Step, WriterEpoch
from tests.store.places import Place, beginning, command, reigning, seen_by_the_next, tail_of, view

pytestmark = pytest.mark.asyncio

MAIN = ReplicaPut(cluster="main", replica=ReplicaId(1), definition="{}")
REPLY = ReplyRemembered(key="k1", request_digest=b"digest", reply=b"reply")


async def test_a_new_place_is_empty(place: Place) -> None:
    loaded = await seen_by_the_next(place)

    assert loaded == Loaded(
        objects={},
        functions={},
        clusters={},
        replicas={},
        next_ids={"s": 1, "u": 1, "t": 1, "l": 1},
        next_replica=1,
        writer_epochs={},
        step=None,
        replies=(),
        next_reply=0,
        logs={},
        next_seqno=Seqno(1),
    )


async def test_the_next_controller_finds_everything_that_was_committed(place: Place) -> None:
    store = await reigning(place)
    await store.commit(
        [
            *beginning("main"),
            view(1, "a", '{"sql": "select 1"}'),
            FunctionPut(name="f", definition="1"),
            FunctionPut(name="g", definition=""),
            FunctionPut(name="f", definition="2"),
            FunctionDropped(name="g"),
            MAIN,
            WriterEpochAllotted(id=GlobalId("s", 3), epoch=WriterEpoch(4)),
            StepOpened(step=Step(17)),
            REPLY,
            command(b"\x00\xff"),
            command(b"", channel=Channel.STORAGE),
        ]
    )
    await store.close()

    loaded = await seen_by_the_next(place)

    assert loaded == Loaded(
        objects={GlobalId("u", 1): view(1, "a", '{"sql": "select 1"}')},
        functions={"f": "2"},
        clusters={"main": "{}"},
        replicas={ReplicaId(1): MAIN},
        next_ids={"s": 1_000, "u": 1_000, "t": 1, "l": 1},
        next_replica=1_000,
        writer_epochs={GlobalId("s", 3): WriterEpoch(4)},
        step=Step(17),
        replies=(REPLY,),
        next_reply=1,
        logs={
            ("main", Channel.COMPUTE): _tail(LogRecord(seqno=Seqno(1), epoch=Epoch(1), body=b"\x00\xff")),
            ("main", Channel.STORAGE): _tail(LogRecord(seqno=Seqno(2), epoch=Epoch(1), body=b"")),
        },
        next_seqno=Seqno(3),
    )


async def test_reigns_rise_and_the_deployment_stays(place: Place) -> None:
    first, second = await place.open(), None
    one = await first.open_reign("one")
    await first.close()
    second = await place.open()
    two = await second.open_reign("two")
    await second.close()

    assert (one.epoch, two.epoch) == (1, 2)
    assert one.deployment == two.deployment != ""


async def test_seqnos_are_dense_over_clusters_channels_and_reigns(place: Place) -> None:
    store = await reigning(place)
    await store.commit(beginning("main", "other"))
    first = await store.commit([command(b"a"), command(b"b", "other"), command(b"c", channel=Channel.STORAGE)])
    await store.close()
    store = await reigning(place)
    second = await store.commit([command(b"d")])
    await store.close()

    assert first + second == (1, 2, 3, 4)


async def test_statements_that_wait_together_keep_the_order_of_the_calls(place: Place) -> None:
    store = await reigning(place)
    await store.commit(beginning("main"))

    seqnos = await asyncio.gather(*(store.commit([command(b"%d" % n), command(b"%d'" % n)]) for n in range(300)))
    await store.close()

    assert seqnos == [(2 * n + 1, 2 * n + 2) for n in range(300)]
    bodies = [body for n in range(300) for body in (b"%d" % n, b"%d'" % n)]
    assert tail_of(await seen_by_the_next(place)) == list(enumerate(bodies, start=1))


async def test_an_empty_statement_changes_nothing(place: Place) -> None:
    store = await reigning(place)

    assert await store.commit([]) == ()
    await store.close()


async def test_a_deposed_store_writes_nothing_and_says_who_reigns(shared_place: Place) -> None:
    old = await reigning(shared_place, "old")
    await old.commit([*beginning("main"), command(b"before")])
    new = await reigning(shared_place, "the new one")
    before = await new.load()

    with pytest.raises(Fenced, match="epoch 2 of the new one began after our epoch 1"):
        await old.commit([command(b"after"), view(1, "a")])
    with pytest.raises(Fenced):
        await old.compact_log("main", Channel.COMPUTE, Seqno(1), [])
    with pytest.raises(Fenced):
        await old.heartbeat()
    with pytest.raises(Fenced):
        await old.load()

    assert await new.load() == before
    assert await new.commit([command(b"mine")]) == (2,)
    await old.close()
    await new.close()


@pytest.mark.parametrize("first", ["load", "heartbeat", "compact"])
async def test_a_deposed_store_learns_it_from_whatever_it_does_first(shared_place: Place, first: str) -> None:
    old = await reigning(shared_place, "old")
    await old.commit([*beginning("main"), command(b"1")])
    new = await reigning(shared_place, "new")
    before = await new.load()

    asked: dict[str, Callable[[], Awaitable[object]]] = {
        "load": old.load,
        "heartbeat": old.heartbeat,
        "compact": partial(old.compact_log, "main", Channel.COMPUTE, Seqno(1), []),
    }
    with pytest.raises(Fenced):
        await asked[first]()

    assert await new.load() == before
    await old.close()
    await new.close()


async def test_all_statements_that_wait_are_fenced_together(shared_place: Place) -> None:
    old = await reigning(shared_place, "old")
    await old.commit(beginning("main"))
    new = await reigning(shared_place, "new")

    outcomes = await asyncio.gather(*(old.commit([command(b"x")]) for _ in range(20)), return_exceptions=True)

    assert [type(outcome) for outcome in outcomes] == [Fenced] * 20
    assert tail_of(await new.load()) == []
    await old.close()
    await new.close()


REFUSED: dict[str, list[Change]] = {
    "a name in use": [view(8, "taken")],
    "an id that was never allotted": [view(1_000, "x")],
    "an unknown object": [ObjectDropped(id=GlobalId("u", 9))],
    "ids going back": [IdsAllotted(kind="u", next=999)],
    "replica ids going back": [ReplicaIdsAllotted(next=999)],
    "a replica that was never allotted": [ReplicaPut(cluster="main", replica=ReplicaId(1_000), definition="{}")],
    "a replica of an unknown cluster": [ReplicaPut(cluster="none", replica=ReplicaId(2), definition="{}")],
    "a replica that moves": [
        ClusterPut(name="other", definition="{}"),
        ReplicaPut(cluster="other", replica=ReplicaId(1), definition="{}"),
    ],
    "an unknown replica": [ReplicaDropped(cluster="main", replica=ReplicaId(7))],
    "an unknown cluster": [ClusterDropped(name="none")],
    "a command for an unknown cluster": [command(b"x", "none")],
    "a command for a cluster just dropped": [ClusterDropped(name="main"), command(b"x")],
    "a writer epoch twice": [WriterEpochAllotted(id=GlobalId("s", 1), epoch=WriterEpoch(5))],
    "a writer epoch going back": [WriterEpochAllotted(id=GlobalId("s", 1), epoch=WriterEpoch(4))],
    "a step going back": [StepOpened(step=Step(6))],
    "a step beyond 64 bits": [StepOpened(step=Step(2**63))],
    "a reply remembered twice": [ReplyRemembered(key="k1", request_digest=b"", reply=b"")],
    "a reply remembered twice at once": [ReplyRemembered(key="k", request_digest=b"", reply=b"")] * 2,
    "NUL in a name": [view(2, "a\0b")],
    "half a surrogate pair": [view(2, "\ud800")],
    "NUL in a definition": [view(2, "b", "\0")],
    "a name that is too long": [ClusterPut(name="n" * 256, definition="{}")],
    "a definition that is too large": [ClusterPut(name="n", definition="x" * (FIELD_BYTES_MAX + 1))],
    "a command that is too large": [command(b"x" * (FIELD_BYTES_MAX + 1))],
}


@pytest.mark.parametrize("bad", REFUSED.values(), ids=REFUSED.keys())
async def test_a_refused_statement_leaves_everything_as_it_was(place: Place, bad: list[Change]) -> None:
    store = await reigning(place)
    await store.commit(
        [
            *beginning("main"),
            view(1, "taken"),
            view(3, "other"),
            MAIN,
            WriterEpochAllotted(id=GlobalId("s", 1), epoch=WriterEpoch(5)),
            StepOpened(step=Step(7)),
            REPLY,
        ]
    )
    before = await store.load()
    good: list[Change] = [
        view(3, "renamed"),
        IdsAllotted(kind="t", next=50),
        StepOpened(step=Step(7)),
        command(b"good"),
        ReplyRemembered(key="fresh", request_digest=b"", reply=b""),
    ]

    with pytest.raises((InvariantBroken, InvalidRequest)) as refusal:
        await store.commit([*good, *bad])

    assert _well_put(refusal.value)
    assert await store.load() == before
    assert await store.commit([*good, view(2, "other")]) == (1,)
    await store.close()


async def test_a_name_is_free_again_once_its_object_is_dropped_or_renamed(place: Place) -> None:
    store = await reigning(place)
    await store.commit([*beginning(), view(1, "a"), view(2, "b")])

    await store.commit([ObjectDropped(id=GlobalId("u", 1)), view(3, "a"), view(2, "c"), view(4, "b"), view(2, "d")])
    await store.close()

    loaded = await seen_by_the_next(place)
    assert {str(id): put.name for id, put in loaded.objects.items()} == {"u2": "d", "u3": "a", "u4": "b"}


async def test_names_in_any_script_are_returned_exactly(place: Place) -> None:
    names = ["quo'te\"", "new\nline", "../up", "🎶" * 60, "%s ? :x", " ", "\ufb01", "\u00e9", "e\u0301"]
    store = await reigning(place)
    await store.commit([*beginning(), *(view(n, name, name) for n, name in enumerate(names))])
    await store.close()

    loaded = await seen_by_the_next(place)

    assert [(put.name, put.definition) for put in loaded.objects.values()] == [(name, name) for name in names]


async def test_a_dropped_object_takes_its_writer_epoch_along(place: Place) -> None:
    store = await reigning(place)
    epoch = WriterEpochAllotted(id=GlobalId("u", 1), epoch=WriterEpoch(1))
    await store.commit([*beginning(), view(1, "a"), epoch])
    await store.commit([ObjectDropped(id=GlobalId("u", 1))])
    await store.close()

    assert (await seen_by_the_next(place)).writer_epochs == {}


async def test_a_dropped_cluster_takes_its_replicas_and_logs_along(place: Place) -> None:
    store = await reigning(place)
    await store.commit([*beginning("main", "other"), MAIN, command(b"a"), command(b"b", "other"), command(b"c")])
    await store.compact_log("main", Channel.COMPUTE, Seqno(1), [b"reduced"])

    await store.commit([ClusterDropped(name="main")])
    await store.commit([ClusterPut(name="main", definition="again"), command(b"d")])
    await store.close()

    loaded = await seen_by_the_next(place)
    assert loaded.clusters == {"main": "again", "other": "{}"}
    assert loaded.replicas == {}
    assert loaded.logs == {
        ("main", Channel.COMPUTE): _tail(LogRecord(seqno=Seqno(4), epoch=Epoch(1), body=b"d")),
        ("main", Channel.STORAGE): EMPTY_LOG,
        ("other", Channel.COMPUTE): _tail(LogRecord(seqno=Seqno(2), epoch=Epoch(1), body=b"b")),
        ("other", Channel.STORAGE): EMPTY_LOG,
    }


async def test_a_cluster_that_lives_within_one_statement_leaves_nothing(place: Place) -> None:
    store = await reigning(place)
    seqnos = await store.commit([*beginning("main"), MAIN, command(b"a"), ClusterDropped(name="main")])
    await store.close()

    loaded = await seen_by_the_next(place)
    assert seqnos == (1,)
    assert (loaded.clusters, loaded.replicas, loaded.logs, loaded.next_seqno) == ({}, {}, {}, 2)


async def test_compaction_replaces_what_it_covers_and_nothing_else(place: Place) -> None:
    store = await reigning(place)
    await store.commit(beginning("main", "other"))
    await store.commit(
        [command(b"1"), command(b"2", channel=Channel.STORAGE), command(b"3", "other"), command(b"4"), command(b"5")]
    )

    await store.compact_log("main", Channel.COMPUTE, Seqno(1), [b"old"])
    await store.compact_log("main", Channel.COMPUTE, Seqno(4), [b"x", b"y"])
    await store.close()

    loaded = await seen_by_the_next(place)
    assert loaded.logs == {
        ("main", Channel.COMPUTE): ChannelLog(
            base=(b"x", b"y"),
            through=Seqno(4),
            tail=(LogRecord(seqno=Seqno(5), epoch=Epoch(1), body=b"5"),),
        ),
        ("main", Channel.STORAGE): _tail(LogRecord(seqno=Seqno(2), epoch=Epoch(1), body=b"2")),
        ("other", Channel.COMPUTE): _tail(LogRecord(seqno=Seqno(3), epoch=Epoch(1), body=b"3")),
        ("other", Channel.STORAGE): EMPTY_LOG,
    }


async def test_a_log_compacted_to_nothing_goes_on_at_its_place(place: Place) -> None:
    store = await reigning(place)
    await store.commit([*beginning("main"), command(b"1"), command(b"2")])
    await store.compact_log("main", Channel.COMPUTE, Seqno(2), [])
    await store.close()
    store = await reigning(place)

    assert await store.commit([command(b"3")]) == (3,)
    log = (await store.load()).logs["main", Channel.COMPUTE]
    assert log == ChannelLog(base=(), through=Seqno(2), tail=(LogRecord(seqno=Seqno(3), epoch=Epoch(2), body=b"3"),))
    await store.close()


async def test_a_log_is_not_compacted_beyond_its_ends(place: Place) -> None:
    store = await reigning(place)
    await store.commit([*beginning("main"), command(b"1"), command(b"2")])
    await store.compact_log("main", Channel.COMPUTE, Seqno(2), [b"r"])
    before = await store.load()

    for cluster, through in (("main", 1), ("main", 3), ("none", 1)):
        with pytest.raises(InvariantBroken):
            await store.compact_log(cluster, Channel.COMPUTE, Seqno(through), [])

    assert await store.load() == before
    await store.close()


async def test_the_newest_replies_are_remembered_and_a_forgotten_key_may_return(place: Place) -> None:
    replies = [ReplyRemembered(key=f"k{n}", request_digest=b"%d" % n, reply=b"r") for n in range(REPLIES_MAX + 5)]
    store = await reigning(place)
    await store.commit(replies[:7])
    await store.commit(replies[7:])
    again = ReplyRemembered(key="k0", request_digest=b"", reply=b"again")
    await store.commit([again])
    await store.close()

    loaded = await seen_by_the_next(place)
    assert loaded.replies == (*replies[6:], again)
    store = await reigning(place)
    with pytest.raises(InvariantBroken, match="remembered twice"):
        await store.commit([again])
    await store.close()


async def test_a_cancelled_commit_disturbs_nobody(place: Place) -> None:
    store = await reigning(place)
    await store.commit(beginning("main"))
    tasks = [asyncio.ensure_future(store.commit([command(b"%d" % n)])) for n in range(10)]
    await asyncio.sleep(0)

    tasks[4].cancel()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    await store.close()

    told = [outcome[0] for outcome in outcomes if isinstance(outcome, tuple)]
    assert set(told) <= {seqno for seqno, _ in tail_of(await seen_by_the_next(place))}
    assert len(told) >= 9


async def test_use_without_a_reign_or_after_the_end_is_our_mistake(place: Place) -> None:
    store = await place.open()
    with pytest.raises(InvariantBroken, match="before its reign"):
        await store.commit([])
    with pytest.raises(InvariantBroken, match="before its reign"):
        await store.heartbeat()
    await store.close()
    await store.close()

    with pytest.raises(InvariantBroken, match="after it was closed"):
        await store.load()
    with pytest.raises(InvariantBroken, match="after it was closed"):
        await store.commit([])


async def test_what_waits_when_the_store_is_closed_is_still_done(place: Place) -> None:
    store = await reigning(place)
    await store.commit(beginning("main"))
    tasks = [asyncio.ensure_future(store.commit([command(b"x")])) for _ in range(50)]
    await asyncio.sleep(0)

    await store.close()

    assert [await task for task in tasks] == [(n,) for n in range(1, 51)]
    assert len(tail_of(await seen_by_the_next(place))) == 50


def _tail(*records: LogRecord) -> ChannelLog:
    return ChannelLog(base=(), through=Seqno(0), tail=records)


def _well_put(error: PlainsongError) -> bool:
    return error.message == error.message[0].lower() + error.message[1:] and not error.message.endswith(".")
