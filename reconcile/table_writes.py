"""Table writes: which step each write to a table gets, when it is acknowledged, and how far tables are complete.

The controller is the upstream of every table. A write takes one step, is sent to the table's writer under a token,
and is acknowledged when the writer says that it is durable. While it is unknown what became of a write, its table
is complete only below that write's step; otherwise every table is complete below the next step to be opened, with
no commit for those that stood still.

Unknown is also everything that an earlier reign sent. So the first append to each writer of a reign, with rows or
without, is a barrier: when its result comes, all that was sent before it has landed or never will, because one
writer performs appends in order and a new writer epoch fences the old one.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import assert_never

from reconcile.errors import InvariantBroken
from reconcile.frontiers import MINIMUM, Antichain
from reconcile.ids import GlobalId, Step
from reconcile.storage_protocol import Append, TableSeal
from reconcile.updates import UpdateList, Updates

#: Changes to a table that have no step yet.
Rows = Callable[[Step], Updates]


# --- events -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCreated:
    """A table exists; what an earlier reign did to it is unknown."""

    id: GlobalId


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDropped:
    """A table is gone; writes that wait for it are refused."""

    id: GlobalId


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterPlaced:
    """A session to the writer of ``id`` is initialised; none of its predecessors can write any more."""

    id: GlobalId


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterLost:
    """The session to the writer of ``id`` ended."""

    id: GlobalId


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteRequested:
    """Somebody waits for ``rows`` to be durable; ``token`` names this write, also when it is sent again."""

    id: GlobalId
    token: str
    rows: Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteAbandoned:
    """Nobody waits for it any more; if it was sent it may take effect."""

    id: GlobalId
    token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepsOpened:
    """Every step through ``step`` is durably opened."""

    step: Step


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendResulted:
    """The writer of ``id`` says what became of an append."""

    id: GlobalId
    token: str
    upper: Antichain
    left_out: int


TableWriteEvent = (
    TableCreated
    | TableDropped
    | WriterPlaced
    | WriterLost
    | WriteRequested
    | WriteAbandoned
    | StepsOpened
    | AppendResulted
)

# --- actions ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenStepsThrough:
    """Make it durable that all steps through ``step`` are open; answered by ``StepsOpened``."""

    step: Step


@dataclass(frozen=True, slots=True, kw_only=True)
class SendAppend:
    """Send this to the writer of its table."""

    append: Append


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledge:
    """The write is durable at or before ``step``."""

    token: str
    step: Step


@dataclass(frozen=True, slots=True, kw_only=True)
class RefuseWrite:
    """The table of this write was dropped."""

    token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TellSeals:
    """Tell every replica how far these tables are complete."""

    seals: tuple[TableSeal, ...]


TableWriteAction = OpenStepsThrough | SendAppend | Acknowledge | RefuseWrite | TellSeals


@dataclass(slots=True, kw_only=True)
class _Write:
    token: str
    rows: Rows
    #: ``None`` while it waits for one.
    step: Step | None = None
    #: Whether somebody is told when it is durable.
    answered: bool = True


@dataclass(slots=True, kw_only=True)
class _Table:
    id: GlobalId
    placed: bool = False
    #: Whether something may still land that is not in ``sent``.
    in_doubt: bool = True
    #: Below this the shard is known to be complete.
    durable: Antichain = MINIMUM
    #: The upper of the last seal told.
    told: Antichain = MINIMUM
    #: Writes without a step, in order.
    waiting: list[_Write] = field(default_factory=list)
    #: Writes sent to the writer and not answered, in order of their steps.
    sent: dict[str, _Write] = field(default_factory=dict)

    @property
    def steps_wanted(self) -> int:
        if not self.placed:
            return 0
        return len(self.waiting) or int(self.in_doubt and not self.sent)

    def sealed(self, opened: Step) -> Antichain:
        if self.in_doubt:
            return self.told
        first = next((write.step for write in self.sent.values() if write.step is not None), None)
        return Antichain(first) if first is not None else Antichain.at(opened + 1)


Actions = Iterator[TableWriteAction]


class TableWrites:
    """The writes to all tables of one cluster."""

    def __init__(self, *, opened: Step) -> None:
        self._tables: dict[GlobalId, _Table] = {}
        self._opened = opened
        #: What was asked to be opened; at least ``_opened``.
        self._asked = opened
        self._barriers = 0

    @property
    def opened(self) -> Step:
        return self._opened

    def upper(self, id: GlobalId) -> Antichain | None:
        """How far a table is known to be complete."""
        table = self._tables.get(id)
        return None if table is None else table.told

    def seals(self) -> tuple[TableSeal, ...]:
        """How far all tables are complete, for a replica that joins."""
        return tuple(_seal(table) for table in self._tables.values() if table.told > MINIMUM)

    def handle(self, event: TableWriteEvent) -> tuple[TableWriteAction, ...]:
        return tuple(self._actions(event))

    def check(self) -> None:
        if self._asked < self._opened:
            raise InvariantBroken(f"asked for steps through {self._asked}, open through {self._opened}")
        for table in self._tables.values():
            steps = [write.step for write in table.sent.values()]
            if None in steps or any(step > self._opened for step in steps if step is not None):
                raise InvariantBroken(f"{table.id} was sent at steps that are not open: {steps}")
            if any(table.told > Antichain(step) for step in steps) and not table.in_doubt:
                raise InvariantBroken(f"{table.id} is sealed at {table.told} with writes under way at {steps}")
            tokens = [*table.sent, *(write.token for write in table.waiting)]
            if len(tokens) != len(set(tokens)):
                raise InvariantBroken(f"{table.id} has a write twice: {tokens}")
            if table.sent and not table.placed:
                raise InvariantBroken(f"{table.id} has writes under way and no writer")
            if table.durable > table.told and not table.in_doubt:
                raise InvariantBroken(f"{table.id} is durable through {table.durable}, told {table.told}")

    def _actions(self, event: TableWriteEvent) -> Actions:
        match event:
            case WriteRequested(id=id, token=token, rows=rows):
                yield from self._request(id, _Write(token=token, rows=rows))
            case AppendResulted():
                yield from self._result(event)
            case StepsOpened(step=step):
                yield from self._opened_through(step)
            case TableCreated(id=id):
                self._tables.setdefault(id, _Table(id=id))
            case TableDropped(id=id):
                dropped = self._tables.pop(id, None)
                if dropped is not None:
                    yield from _refusals([*dropped.sent.values(), *dropped.waiting])
            case WriterPlaced(id=id):
                # What was sent in an earlier session may land or not, and nobody will say so in this one.
                self._lose(self._tables.get(id))
                if id in self._tables:
                    self._tables[id].placed = True
            case WriterLost(id=id):
                self._lose(self._tables.get(id))
            case WriteAbandoned(id=id, token=token):
                self._abandon(self._tables.get(id), token)
            case _:
                assert_never(event)
        yield from self._ask()

    def _request(self, id: GlobalId, write: _Write) -> Actions:
        table = self._tables.get(id)
        if table is None:
            yield RefuseWrite(token=write.token)
        elif write.token in table.sent:
            # It was abandoned and is asked for again; its step stays known, because there it may still land.
            table.sent[write.token].answered = True
        else:
            table.waiting.append(write)

    def _abandon(self, table: _Table | None, token: str) -> None:
        if table is None:
            return
        table.waiting = [write for write in table.waiting if write.token != token]
        if token in table.sent:
            table.sent[token].answered = False

    def _lose(self, table: _Table | None) -> None:
        if table is None:
            return
        again = [write for write in table.sent.values() if write.answered]
        table.in_doubt = table.in_doubt or bool(table.sent)
        table.placed = False
        table.sent = {}
        for write in again:
            write.step = None
        table.waiting[:0] = again

    def _ask(self) -> Actions:
        """Asks for as many steps as the table with most writes can use; one request at a time."""
        wanted = max((table.steps_wanted for table in self._tables.values()), default=0)
        if wanted and self._asked == self._opened:
            self._asked = Step(self._opened + wanted)
            yield OpenStepsThrough(step=self._asked)

    def _opened_through(self, step: Step) -> Actions:
        first, self._opened = self._opened, max(self._opened, step)
        self._asked = max(self._asked, self._opened)
        for table in self._tables.values():
            if not table.steps_wanted:
                continue
            room = self._opened - first
            batch, table.waiting = table.waiting[:room], table.waiting[room:]
            if not batch and room:
                self._barriers += 1
                batch = [_Write(token=f"barrier-{self._opened}-{self._barriers}", rows=_no_rows, answered=False)]
            for place, write in enumerate(batch, start=1):
                write.step = Step(first + place)
                table.sent[write.token] = write
                upper = Antichain.at(write.step + 1)
                yield SendAppend(
                    append=Append(id=table.id, upper=upper, updates=write.rows(write.step), token=write.token)
                )
        yield from self._tell(self._tables.values())

    def _result(self, result: AppendResulted) -> Actions:
        table = self._tables.get(result.id)
        write = table.sent.pop(result.token, None) if table is not None else None
        if table is None or write is None or write.step is None:
            return
        landed, step = Antichain.at(write.step + 1), write.step
        if result.left_out:
            write.step = None
            if write.answered:
                table.waiting.insert(0, write)
        elif write.answered:
            yield Acknowledge(token=write.token, step=step)
        if not result.left_out and result.upper == landed:
            # The writer has performed it, and with it everything that was sent before.
            table.in_doubt = False
            table.durable = landed
        yield from self._tell([table])

    def _tell(self, tables: Iterable[_Table]) -> Actions:
        seals = []
        for table in tables:
            sealed = table.sealed(self._opened)
            if sealed > table.told:
                table.told = sealed
                seals.append(_seal(table))
        if seals:
            yield TellSeals(seals=tuple(seals))


def _seal(table: _Table) -> TableSeal:
    return TableSeal(id=table.id, durable=table.durable, upper=table.told)


def _no_rows(_: Step) -> Updates:
    return UpdateList()


def _refusals(writes: Iterable[_Write]) -> Actions:
    return (RefuseWrite(token=write.token) for write in writes if write.answered)
