"""Laws of the store: whatever is asked of it, it is what the dumb model says."""

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path

from hypothesis import HealthCheck, given, settings

from controller.store.interface import Store
from reconcile.errors import InvariantBroken
from tests.store.model import BEGINNING, HISTORIES, Call, Commit, Compact, Model, Refused, Restart
from tests.store.places import MemoryPlace, Place, SqlitePlace, reigning


async def _follow(place: Place, history: Sequence[Call]) -> None:
    """Makes each call of the history to model and store; both take it or both refuse it."""
    store, taken = await reigning(place), [BEGINNING]
    calls: list[Call] = [*taken]
    await store.commit(BEGINNING.changes)
    for call in history:
        before = Model(calls)
        try:
            Model([*calls, call])
            accepted = True
        except Refused:
            accepted = False
        if isinstance(call, Restart):
            await store.close()
            store = await reigning(place)
            calls.append(call)
        elif await _asked(store, call, before.next_seqno) != accepted:
            raise AssertionError(f"the model says {accepted} to {call}")
        elif accepted:
            calls.append(call)
        assert await store.load() == Model(calls).loaded()
    await store.close()
    store = await reigning(place)
    assert await store.load() == Model(calls).loaded()
    await store.close()


async def _asked(store: Store, call: Commit | Compact, next_seqno: int) -> bool:
    try:
        if isinstance(call, Compact):
            await store.compact_log(call.cluster, call.channel, call.through, call.reduced)
        else:
            seqnos = await store.commit(call.changes)
            assert seqnos == tuple(range(next_seqno, next_seqno + len(seqnos)))
    except InvariantBroken:
        return False
    return True


async def _follow_in_groups(place: Place, history: Sequence[Call]) -> None:
    """Makes all acceptable commits at once, so that they share transactions."""
    calls: list[Call] = [BEGINNING]
    for call in history:
        try:
            Model([*calls, call])
        except Refused:
            continue
        if not isinstance(call, Restart):
            calls.append(call)
    store = await reigning(place)
    asked = [
        store.compact_log(call.cluster, call.channel, call.through, call.reduced)
        if isinstance(call, Compact)
        else store.commit(call.changes)
        for call in calls
        if not isinstance(call, Restart)
    ]

    await asyncio.gather(*asked)

    assert await store.load() == Model(calls).loaded()
    await store.close()


@settings(max_examples=300, deadline=None)
@given(HISTORIES)
def test_the_store_in_memory_is_its_model(history: list[Call]) -> None:
    asyncio.run(_follow(MemoryPlace(), history))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(history=HISTORIES)
def test_the_store_on_sqlite_is_its_model(template: Path, history: list[Call]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_follow(SqlitePlace(Path(folder) / "data", template), history))


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(history=HISTORIES)
def test_a_group_comes_to_what_its_statements_come_to_one_by_one(template: Path, history: list[Call]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_follow_in_groups(SqlitePlace(Path(folder) / "data", template), history))
