"""Room is bounded and fair."""

import asyncio

import pytest

from controller.store.room import Room

pytestmark = pytest.mark.asyncio


async def test_no_more_is_taken_than_there_is() -> None:
    room = Room(2)

    assert [room.try_take() for _ in range(3)] == [True, True, False]


async def test_who_waits_is_served_in_the_order_of_asking() -> None:
    room, order, inside = Room(2), [], 0

    async def visit(number: int) -> None:
        nonlocal inside
        await room.take()
        inside += 1
        assert inside <= 2
        order.append(number)
        await asyncio.sleep(0)
        inside -= 1
        room.give_back()

    await asyncio.gather(*(visit(number) for number in range(20)))

    assert order == list(range(20))
    assert [room.try_take() for _ in range(3)] == [True, True, False]


async def test_a_newcomer_does_not_overtake_one_who_was_woken() -> None:
    room = Room(1)
    await room.take()
    waiter = asyncio.ensure_future(room.take())
    await asyncio.sleep(0)

    room.give_back()

    assert not room.try_take()
    await waiter


@pytest.mark.parametrize("woken", [False, True])
async def test_one_who_gives_up_passes_its_place_on(woken: bool) -> None:
    room = Room(1)
    await room.take()
    first, second = (asyncio.ensure_future(room.take()) for _ in range(2))
    await asyncio.sleep(0)

    if woken:
        room.give_back()
    first.cancel()
    if not woken:
        room.give_back()

    await second
    assert not room.try_take()
    assert (await asyncio.gather(first, return_exceptions=True))[0].__class__ is asyncio.CancelledError
