"""Laws of table writes: each acknowledged write is there once, and what was sealed never changes.

The world is shards, writers that perform appends in order and know tokens again, and links that break anywhere:
what was sent may have been received or not, what was received may land long after its sender is gone. Every promise
is judged where it is made or broken, at the shard.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import assert_never

from hypothesis import given, settings
from hypothesis import strategies as st

from reconcile.frontiers import Antichain
from reconcile.ids import GlobalId, Step
from reconcile.storage_protocol import Append
from reconcile.table_writes import (
    Acknowledge,
    AppendResulted,
    OpenStepsThrough,
    RefuseWrite,
    SendAppend,
    StepsOpened,
    TableCreated,
    TableDropped,
    TableWriteAction,
    TableWriteEvent,
    TableWrites,
    TellSeals,
    WriteAbandoned,
    WriteRequested,
    WriterLost,
    WriterPlaced,
)
from reconcile.updates import Update, UpdateList

law = settings(max_examples=200, deadline=None)

TABLES_MAX = 3
#: Rounds after which a world without faults must be quiet; each round moves everything that waits.
ROUNDS_MAX = 60

# --- what happens -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Request:
    """Somebody writes so many rows under a new token."""

    table: int
    rows: int


@dataclass(frozen=True, slots=True)
class Retry:
    """Somebody sends a write again whose outcome nobody waits for: it was given up, or its reply was lost."""

    which: int


@dataclass(frozen=True, slots=True)
class Abandon:
    """Somebody gives up waiting."""

    which: int


@dataclass(frozen=True, slots=True)
class Open:
    """The steps asked for are durable."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Somebody else opens a step."""


@dataclass(frozen=True, slots=True)
class Receive:
    """The writer of a table receives what was sent next."""

    table: int


@dataclass(frozen=True, slots=True)
class Perform:
    """A writer performs what it received next; an old one can until the new one has begun."""

    table: int
    writer: int


@dataclass(frozen=True, slots=True)
class Deliver:
    """The next result of a table arrives."""

    table: int


@dataclass(frozen=True, slots=True)
class Work:
    """The writer of a table does all it was told, and says so."""

    table: int


@dataclass(frozen=True, slots=True)
class Lose:
    """The session to a writer ends; what it received it goes on with."""

    table: int


@dataclass(frozen=True, slots=True)
class Place:
    """A session to a writer begins: the same one, or another that will fence it."""

    table: int
    anew: bool


@dataclass(frozen=True, slots=True)
class Jump:
    """A shard stands further than anybody thought."""

    table: int


@dataclass(frozen=True, slots=True)
class Reign:
    """The controller is replaced; what it asked to be opened may have become so."""

    opened: bool


@dataclass(frozen=True, slots=True)
class Create:
    """A new table, as long as there are few."""


@dataclass(frozen=True, slots=True)
class Drop:
    """A table goes."""

    table: int


Happening = (
    Request
    | Retry
    | Abandon
    | Open
    | Tick
    | Receive
    | Perform
    | Deliver
    | Work
    | Lose
    | Place
    | Jump
    | Reign
    | Create
    | Drop
)
#: Mostly the same table, so that things happen to each other.
TABLES = (0, 0, 0, 1, 2)


def calm(choice: int) -> tuple[Happening, ...]:
    """What happens on a good day, each with one of its possible objects."""
    table = TABLES[choice % len(TABLES)]
    return (
        *[Request(table, (1, 1, 2, 0)[choice % 4])] * 4,
        *[Open()] * 4,
        Tick(),
        *[Receive(table)] * 2,
        *[Perform(table, (-1, -1, 0, 1)[choice % 4])] * 2,
        *[Deliver(table)] * 2,
        *[Work(table)] * 2,
    )


def breaking(choice: int) -> tuple[Happening, ...]:
    """The same, and sessions that end."""
    table = TABLES[choice % len(TABLES)]
    return (*calm(choice), *[Place(table, choice % 2 == 0)] * 3, *[Lose(table)] * 3)


def any_weather(choice: int) -> tuple[Happening, ...]:
    """The same, and everything else."""
    table = TABLES[choice % len(TABLES)]
    return (
        *breaking(choice),
        *[Abandon(choice)] * 2,
        *[Retry(choice)] * 2,
        Perform(table, choice % 4),
        Jump(table),
        Reign(choice % 2 == 0),
        Create(),
        Drop(table),
    )


def happenings(kinds: Callable[[int], tuple[Happening, ...]], length_max: int) -> st.SearchStrategy[list[Happening]]:
    """Lists of every length alike: by itself Hypothesis prefers those too short for anything to go wrong.

    Drawn as two bytes each, which is many times faster than one by one.
    """

    def read(text: bytes) -> list[Happening]:
        return [kinds(choice)[kind % len(kinds(choice))] for kind, choice in zip(text[::2], text[1::2], strict=True)]

    lengths = st.integers(0, length_max)
    return lengths.flatmap(lambda length: st.binary(min_size=2 * length, max_size=2 * length)).map(read)


histories = happenings(any_weather, 80)

# --- the world --------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Shard:
    """What is durable of one table."""

    upper: int = 0
    #: Token, step and number of rows of each append with rows or without, in order of landing.
    landed: list[tuple[str, int, int]] = field(default_factory=list)
    #: The furthest seal told of it, in any reign.
    told: int = 0

    def knows(self, token: str) -> bool:
        return any(token == known for known, _, _ in self.landed)


@dataclass(slots=True)
class Writer:
    """One process that writes a table; it performs what it received whether its sender is there or not."""

    #: Appends received, each with the session that sent it.
    received: deque[tuple[int, Append]] = field(default_factory=deque)
    #: Appends below this are refused when they are received.
    accepted: int = 0


@dataclass(slots=True)
class Site:
    """All that there is of one table outside the controller."""

    shard: Shard = field(default_factory=Shard)
    #: Oldest first; the last one fences the others as soon as it performs anything.
    writers: list[Writer] = field(default_factory=list)
    session: int = 0
    connected: bool = False
    #: Sent and not received.
    link: deque[Append] = field(default_factory=deque)
    #: Results on their way, all of the current session.
    results: deque[AppendResulted] = field(default_factory=deque)


def far(frontier: Antichain) -> int:
    assert frontier.step is not None
    return frontier.step


class World:
    """Tables, their writers, and the controller of the current reign."""

    def __init__(self) -> None:
        self.opened = 0
        #: Steps through here were asked to be opened.
        self.asked: int | None = None
        self.sites: dict[GlobalId, Site] = {}
        self.dropped: dict[GlobalId, Site] = {}
        #: Rows and table of every token there ever was.
        self.tokens: dict[str, tuple[int, GlobalId]] = {}
        #: Tokens that somebody waits for.
        self.waited: set[str] = set()
        self.writes = TableWrites(opened=Step(0))
        for _ in range(2):
            self.create()
        self.settle()

    # --- the controller -----------------------------------------------------------------------------------

    def tell(self, event: TableWriteEvent) -> tuple[TableWriteAction, ...]:
        actions = self.writes.handle(event)
        self.writes.check()
        for action in actions:
            self.judge(action)
        return actions

    def judge(self, action: TableWriteAction) -> None:
        match action:
            case OpenStepsThrough(step=step):
                assert self.asked is None, "one request at a time"
                assert step > self.opened
                self.asked = step
            case SendAppend(append=append):
                site = self.sites[append.id]
                assert site.connected
                assert far(append.upper) <= self.opened + 1, "a step is used before it is open"
                assert isinstance(append.updates, UpdateList)
                assert append.token in self.waited or not len(append.updates), "nobody waits for this"
                assert {update.step for update in append.updates.updates} <= {far(append.upper) - 1}
                site.link.append(append)
            case Acknowledge(token=token, step=step):
                assert token in self.waited, "nobody waits for this"
                self.waited.remove(token)
                rows, table = self.tokens[token]
                landed = [(at, count) for known, at, count in self.sites[table].shard.landed if known == token]
                assert rows == 0 or (len(landed) == 1 and landed[0][0] <= step and landed[0][1] == rows)
            case RefuseWrite(token=token):
                assert token in self.waited, "nobody waits for this"
                self.waited.remove(token)
                assert self.tokens[token][1] in self.dropped
            case TellSeals(seals=seals):
                assert len({seal.id for seal in seals}) == len(seals) > 0
                for seal in seals:
                    shard = self.sites[seal.id].shard
                    assert shard.told < far(seal.upper) <= self.opened + 1
                    assert far(seal.durable) <= shard.upper, "readers would wait for what may never come"
                    below = [step for _, step, rows in shard.landed if rows and step < far(seal.upper)]
                    assert all(step < far(seal.durable) for step in below), "readers would miss what is there"
                    shard.told = far(seal.upper)
            case _:
                assert_never(action)

    def request(self, token: str) -> None:
        rows, table = self.tokens[token]
        self.waited.add(token)

        def stamped(step: Step) -> UpdateList:
            return UpdateList(tuple(Update(step=step, row=(token, place)) for place in range(rows)))

        self.tell(WriteRequested(id=table, token=token, rows=stamped))

    def open(self) -> None:
        if self.asked is not None:
            self.opened, self.asked = self.asked, None
            self.tell(StepsOpened(step=Step(self.opened)))

    def tick(self) -> None:
        self.opened += 1
        if self.asked is not None and self.asked <= self.opened:
            self.asked = None
        self.tell(StepsOpened(step=Step(self.opened)))

    def create(self) -> None:
        id = GlobalId("s", len(self.sites) + len(self.dropped) + 1)
        self.sites[id] = Site()
        self.tell(TableCreated(id=id))

    def drop(self, table: GlobalId) -> None:
        self.dropped[table] = self.sites.pop(table)
        pending = {token for token in self.waited if self.tokens[token][1] == table}
        actions = self.tell(TableDropped(id=table))
        refused = [action.token for action in actions if isinstance(action, RefuseWrite)]
        assert sorted(refused) == sorted(pending)

    def reign(self, *, opened: bool) -> None:
        """Nobody waits any more: those who did have lost their connection and may try again."""
        if self.asked is not None and opened:
            self.opened = self.asked
        self.asked = None
        self.waited.clear()
        for site in self.sites.values():
            self.disconnect(site)
        self.writes = TableWrites(opened=Step(self.opened))
        for table in self.sites:
            self.tell(TableCreated(id=table))

    # --- writers ------------------------------------------------------------------------------------------

    def disconnect(self, site: Site) -> None:
        site.connected = False
        site.session += 1
        site.link.clear()
        site.results.clear()

    def lose(self, table: GlobalId) -> None:
        if self.sites[table].connected:
            self.disconnect(self.sites[table])
            self.tell(WriterLost(id=table))

    def place(self, table: GlobalId, *, anew: bool) -> None:
        site = self.sites[table]
        self.disconnect(site)
        site.connected = True
        if anew or not site.writers:
            site.writers.append(Writer())
        self.tell(WriterPlaced(id=table))

    def receive(self, table: GlobalId) -> bool:
        site = self.sites[table]
        if not site.link:
            return False
        append, writer = site.link.popleft(), site.writers[-1]
        if far(append.upper) <= writer.accepted:
            self.answer(table, site.session, append, upper=writer.accepted, left_out=len(append.updates))
        else:
            writer.accepted = far(append.upper)
            writer.received.append((site.session, append))
        return True

    def perform(self, table: GlobalId, which: int) -> bool:
        """A known token is not written again, and what comes below the upper not at all."""
        site = self.sites[table]
        if not site.writers:
            return False
        place = which % len(site.writers)
        writer, shard = site.writers[place], site.shard
        if place == len(site.writers) - 1:
            del site.writers[:-1]
            writer.accepted = max(writer.accepted, shard.upper)
        if not writer.received:
            return False
        session, append = writer.received.popleft()
        upper = far(append.upper)
        if upper <= shard.upper:
            self.answer(table, session, append, upper=shard.upper, left_out=len(append.updates))
            return True
        if not shard.knows(append.token):
            step = upper - 1
            assert step >= shard.told or not len(append.updates), "a sealed prefix changes"
            shard.landed.append((append.token, step, len(append.updates)))
        shard.upper = upper
        self.answer(table, session, append, upper=upper, left_out=0)
        return True

    def answer(self, table: GlobalId, session: int, append: Append, *, upper: int, left_out: int) -> None:
        site = self.sites[table]
        if session == site.session and site.connected:
            result = AppendResulted(id=table, token=append.token, upper=Antichain.at(upper), left_out=left_out)
            site.results.append(result)

    def deliver(self, table: GlobalId) -> bool:
        results = self.sites[table].results
        if not results:
            return False
        self.tell(results.popleft())
        return True

    def work(self, table: GlobalId) -> None:
        for once in (self.receive, lambda table: self.perform(table, -1), self.deliver):
            while once(table):
                pass

    # --- all of it ----------------------------------------------------------------------------------------

    def happen(self, happening: Happening) -> None:
        match happening:
            case Open():
                self.open()
            case Tick():
                self.tick()
            case Reign(opened=opened):
                self.reign(opened=opened)
            case Create():
                if len(self.sites) < TABLES_MAX:
                    self.create()
            case Retry(which=which):
                self.among([token for token in self.tokens if token not in self.waited], which, self.request)
            case Abandon(which=which):
                self.among(sorted(self.waited), which, self.abandon)
            case _ if self.sites:
                self.happen_to(list(self.sites)[happening.table % len(self.sites)], happening)
            case _:
                pass

    def happen_to(
        self,
        table: GlobalId,
        happening: Request | Receive | Perform | Deliver | Work | Lose | Place | Jump | Drop,
    ) -> None:
        match happening:
            case Request(rows=rows):
                token = f"w{len(self.tokens)}"
                self.tokens[token] = (rows, table)
                self.request(token)
            case Receive():
                self.receive(table)
            case Perform(writer=writer):
                self.perform(table, writer)
            case Deliver():
                self.deliver(table)
            case Work():
                self.work(table)
            case Lose():
                self.lose(table)
            case Place(anew=anew):
                self.place(table, anew=anew)
            case Jump():
                self.sites[table].shard.upper = max(self.sites[table].shard.upper, self.opened + 1)
            case Drop():
                self.drop(table)
            case _:
                assert_never(happening)

    def among(self, tokens: list[str], which: int, act: Callable[[str], None]) -> None:
        if tokens:
            act(tokens[which % len(tokens)])

    def abandon(self, token: str) -> None:
        self.waited.remove(token)
        self.tell(WriteAbandoned(id=self.tokens[token][1], token=token))

    def settle(self) -> None:
        """All is well from now on: everybody is there and everything arrives."""
        for table, site in self.sites.items():
            if not site.connected:
                self.place(table, anew=not site.writers)
        for _ in range(ROUNDS_MAX):
            self.open()
            for table in self.sites:
                self.work(table)
            if self.asked is None:
                return
        raise AssertionError("it goes on for ever")


# --- the laws ---------------------------------------------------------------------------------------------


@law
@given(happens=histories)
def test_what_is_acknowledged_is_there_once_and_what_is_sealed_stays(happens: list[Happening]) -> None:
    world = World()

    for happening in happens:
        world.happen(happening)

    for site in [*world.sites.values(), *world.dropped.values()]:
        tokens = [token for token, _, _ in site.shard.landed]
        assert len(tokens) == len(set(tokens)), "a write landed twice"


@law
@given(happens=histories)
def test_when_all_is_well_every_write_is_acknowledged_and_every_table_sealed(happens: list[Happening]) -> None:
    world = World()
    for happening in happens:
        world.happen(happening)

    world.settle()

    assert world.waited == set()
    sealed = Antichain.at(world.opened + 1)
    assert {id: world.writes.upper(id) for id in world.sites} == dict.fromkeys(world.sites, sealed)
    assert {(seal.id, seal.upper) for seal in world.writes.seals()} == {(id, sealed) for id in world.sites}


@law
@given(happens=happenings(breaking, 60))
def test_writes_land_in_the_order_in_which_they_were_requested_however_often_sessions_end(
    happens: list[Happening],
) -> None:
    world = World()
    for happening in happens:
        world.happen(happening)

    world.settle()

    for id, site in world.sites.items():
        landed = [token for token, _, _ in site.shard.landed if token in world.tokens]
        assert landed == [token for token, (_, table) in world.tokens.items() if table == id]
        steps = [step for _, step, _ in site.shard.landed]
        assert steps == sorted(set(steps))


@law
@given(happens=histories, table=st.integers(0, TABLES_MAX - 1))
def test_a_dropped_table_refuses_its_writes_and_all_later_ones(happens: list[Happening], table: int) -> None:
    world = World()
    for happening in happens:
        world.happen(happening)
    world.happen(Create())
    gone = list(world.sites)[table % len(world.sites)]
    world.happen_to(gone, Request(table, 1))
    last = f"w{len(world.tokens) - 1}"

    world.drop(gone)
    assert last not in world.waited
    world.request(last)

    assert last not in world.waited
    assert world.writes.upper(gone) is None
    assert gone not in {seal.id for seal in world.writes.seals()}
