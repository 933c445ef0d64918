"""Laws of compaction: history goes as early as nobody minds, and never earlier."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.compaction import Compactable, Holds, allowed_sinces
from reconcile.errors import InvariantBroken
from reconcile.frontiers import CLOSED, Antichain
from reconcile.ids import GlobalId, Step

law = settings(max_examples=200, deadline=None)

COUNT_MAX = 8
steps = st.integers(0, 12)
frontiers = st.one_of(steps.map(Antichain.at), steps.map(Antichain.at), steps.map(Antichain.at), st.just(CLOSED))
names = st.integers(0, COUNT_MAX - 1).map(lambda number: GlobalId("u", number))
holds_taken = st.lists(st.tuples(names, steps.map(Step)), max_size=6)
pins = st.dictionaries(names, steps.map(Step), max_size=2)


@st.composite
def collections_created(draw: st.DrawFn) -> list[Compactable]:
    """Collections in order of creation, each of which reads some that were there before it."""
    created: list[Compactable] = []
    for number in range(draw(st.integers(0, COUNT_MAX))):
        before = [collection.id for collection in created]
        imports = draw(st.lists(st.sampled_from(before), max_size=3, unique=True)) if before else []
        created.append(
            Compactable(id=GlobalId("u", number), since=draw(frontiers), upper=draw(frontiers), imports=tuple(imports))
        )
    return created


def taken(held: list[tuple[GlobalId, Step]]) -> Holds:
    holds = Holds()
    for id, step in held:
        holds.acquire(id, step)
    return holds


def obstacles(
    collection: Compactable,
    sinces: dict[GlobalId, Antichain],
    collections: list[Compactable],
    retained: int,
    held: list[tuple[GlobalId, Step]],
    pinned: dict[GlobalId, Step],
) -> list[Antichain]:
    """All that the since of a collection may not pass, each by itself, when the others are at ``sinces``."""
    readers = [one for one in collections if collection.id in one.imports and not one.since.is_closed]
    last = [] if collection.upper.step is None else [Antichain.at(max(collection.upper.step - 1, 0))]
    return [
        Antichain.at(retained),
        *last,
        *(Antichain(step) for id, step in held if id == collection.id),
        *(Antichain(step) for id, step in pinned.items() if id == collection.id),
        *(sinces[reader.id] for reader in readers),
    ]


@law
@given(collections=collections_created(), retained=steps, held=holds_taken, pinned=pins)
def test_a_since_rises_as_far_as_nothing_is_in_its_way(
    collections: list[Compactable],
    retained: int,
    held: list[tuple[GlobalId, Step]],
    pinned: dict[GlobalId, Step],
) -> None:
    risen = list(allowed_sinces(collections, retained=Step(retained), holds=taken(held), pinned=pinned))

    now = {collection.id: collection.since for collection in collections} | dict(risen)
    for collection in collections:
        since = now[collection.id]
        assert since >= collection.since
        if collection.since.is_closed:
            continue
        in_the_way = obstacles(collection, now, collections, retained, held, pinned)
        assert since == collection.since or all(since <= obstacle for obstacle in in_the_way)
        assert since.step is not None
        further = Antichain.at(since.step + 1)
        assert any(further > obstacle for obstacle in in_the_way), "it could have gone further"


@law
@given(collections=collections_created(), retained=steps, held=holds_taken)
def test_all_that_reads_a_collection_however_indirectly_can_be_rendered_where_it_stands(
    collections: list[Compactable], retained: int, held: list[tuple[GlobalId, Step]]
) -> None:
    # Given a state as earlier rounds leave it: whatever is read is readable where its readers are.
    earlier: dict[GlobalId, Antichain] = {}
    for collection in reversed(collections):
        readers = [earlier[one.id] for one in collections if collection.id in one.imports]
        earlier[collection.id] = min([collection.since, *readers])
    settled = [replace(collection, since=earlier[collection.id]) for collection in collections]

    now = earlier | dict(allowed_sinces(settled, retained=Step(retained), holds=taken(held)))

    read_by = {collection.id: {one.id for one in settled if collection.id in one.imports} for collection in settled}
    for id in now:
        reached: set[GlobalId] = set()
        ahead = [id]
        while ahead:
            for reader in read_by[ahead.pop()] - reached:
                reached.add(reader)
                ahead.append(reader)
        assert all(now[id] <= now[reader] for reader in reached)


@law
@given(collections=collections_created(), retained=steps, held=holds_taken)
def test_sinces_that_rise_are_told_once_readers_first_and_none_is_left_for_a_second_round(
    collections: list[Compactable], retained: int, held: list[tuple[GlobalId, Step]]
) -> None:
    risen = list(allowed_sinces(collections, retained=Step(retained), holds=taken(held)))

    order = {collection.id: place for place, collection in enumerate(collections)}
    places = [order[id] for id, _ in risen]
    assert places == sorted(set(places), reverse=True)
    assert all(since > collections[order[id]].since for id, since in risen)
    after = [replace(collection, since=dict(risen).get(collection.id, collection.since)) for collection in collections]
    assert list(allowed_sinces(after, retained=Step(retained), holds=taken(held))) == []


@law
@given(turns=st.lists(st.tuples(st.booleans(), st.sampled_from(["u1", "u2"]), st.integers(0, 4)), max_size=40))
def test_the_least_hold_is_that_of_everybody_who_still_reads(turns: list[tuple[bool, str, int]]) -> None:
    holds = Holds()
    readers: Counter[tuple[GlobalId, Step]] = Counter()

    for acquire, name, number in turns:
        id, step = GlobalId.parse(name), Step(number)
        if acquire:
            holds.acquire(id, step)
            readers[id, step] += 1
        elif readers[id, step]:
            holds.release(id, step)
            readers[id, step] -= 1
        else:
            with pytest.raises(InvariantBroken):
                holds.release(id, step)

        for one in (GlobalId("u", 1), GlobalId("u", 2)):
            reading = [step for (id, step), count in readers.items() if id == one and count]
            assert holds.least(one) == min(reading, default=None)
