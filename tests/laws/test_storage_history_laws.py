"""Laws of the storage history: it forgets how things came about, and nothing else."""

from collections.abc import Iterable
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from reconcile.compute_protocol import AllowCompaction
from reconcile.frontiers import CLOSED, MINIMUM, Antichain
from reconcile.ids import GlobalId
from reconcile.sources import SourceDescription
from reconcile.storage_history import LoggedStorageCommand, StorageHistory
from reconcile.storage_protocol import AlterSources, CreateSources

law = settings(max_examples=200, deadline=None)

ids = st.integers(1, 4).map(lambda number: GlobalId("s", number))
sources = st.builds(
    SourceDescription,
    id=ids,
    definition=st.sampled_from(["a", "b"]).map(lambda value: (("type", "table"), ("columns", value))),
)
sinces = st.one_of(st.integers(0, 6).map(Antichain.at), st.integers(0, 6).map(Antichain.at), st.just(CLOSED))
creations = st.lists(sources, max_size=3).map(tuple).map(lambda some: CreateSources(sources=some))
alterations = st.lists(sources, max_size=2).map(tuple).map(lambda some: AlterSources(sources=some))
compactions = st.builds(AllowCompaction, id=ids, since=sinces)
logs: st.SearchStrategy[list[LoggedStorageCommand]] = st.lists(
    st.one_of(creations, creations, alterations, compactions, compactions, compactions), max_size=40
)
State = list[tuple[SourceDescription, Antichain]]


def told(log: Iterable[LoggedStorageCommand]) -> StorageHistory:
    history = StorageHistory()
    for command in log:
        history.handle(command)
        history.check()
    return history


def state(history: StorageHistory) -> State:
    return [(source, history.since(source.id) or MINIMUM) for source in history]


@dataclass(frozen=True, slots=True)
class _Altered:
    source: SourceDescription

    @property
    def id(self) -> GlobalId:
        return self.source.id


def dumb_state(log: list[LoggedStorageCommand]) -> State:
    """What lives, found anew for each creation by reading the whole log."""
    flat: list[SourceDescription | _Altered | AllowCompaction] = []
    for command in log:
        match command:
            case CreateSources(sources=created):
                flat.extend(created)
            case AlterSources(sources=altered):
                flat.extend(_Altered(source) for source in altered)
            case AllowCompaction():
                flat.append(command)
    found: State = []
    for place, entry in enumerate(flat):
        if not isinstance(entry, SourceDescription):
            continue
        before = [one for one in flat[:place] if one.id == entry.id]
        closed = [at for at, one in enumerate(before) if isinstance(one, AllowCompaction) and one.since.is_closed]
        since_last_closed = before[closed[-1] + 1 :] if closed else before
        lives_already = any(isinstance(one, SourceDescription) for one in since_last_closed)
        later = [one.since for one in flat[place:] if isinstance(one, AllowCompaction) and one.id == entry.id]
        if not lives_already and CLOSED not in later:
            altered_to = [one.source for one in flat[place:] if isinstance(one, _Altered) and one.id == entry.id]
            found.append(([entry, *altered_to][-1], max([MINIMUM, *later])))
    return found


@law
@given(log=logs)
def test_what_lives_is_what_a_reading_of_the_whole_log_finds(log: list[LoggedStorageCommand]) -> None:
    history = told(log)

    expected = dumb_state(log)
    assert state(history) == expected
    assert len(history) == len(expected)
    for number in range(1, 5):
        id = GlobalId("s", number)
        assert (id in history) == (history.since(id) is not None) == (id in {source.id for source, _ in expected})
    assert all(history.source(source.id) is source for source in history)


@law
@given(log=logs, later=logs)
def test_the_reduced_log_leads_to_the_same_state_and_on_to_the_same_states(
    log: list[LoggedStorageCommand], later: list[LoggedStorageCommand]
) -> None:
    reduced = list(told(log).commands())

    assert state(told(reduced)) == state(told(log))
    assert state(told([*reduced, *later])) == state(told([*log, *later]))


@law
@given(log=logs)
def test_reducing_twice_is_reducing_once(log: list[LoggedStorageCommand]) -> None:
    once = list(told(log).commands())

    assert list(told(once).commands()) == once


@law
@given(log=logs)
def test_the_reduced_log_is_no_longer_than_what_lives(log: list[LoggedStorageCommand]) -> None:
    history = told(log)

    reduced = list(history.commands())

    moved = sum(since > MINIMUM for _, since in state(history))
    assert len(reduced) == len(history) + moved
    created = [command for command in reduced if isinstance(command, CreateSources)]
    assert [source for command in created for source in command.sources] == list(history)
    assert not any(isinstance(command, AllowCompaction) and command.since.is_closed for command in reduced)
