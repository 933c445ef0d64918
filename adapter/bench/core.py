"""Benchmark of the pure core: history, plan, reconciler and merge."""

import random
import statistics
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice

from adapter.bench.measure import Figure, median_seconds, seconds
from reconcile.compute_actions import CommandReceived, SessionOpened, UpperReported
from reconcile.compute_protocol import (
    AllowCompaction,
    CancelPeeks,
    ComputeCommand,
    CreateDataflows,
    CreateInstance,
    Hello,
    InitializationComplete,
    Peek,
    PeekRows,
)
from reconcile.dataflow import DataflowDescription, Index, ObjectToBuild
from reconcile.frontiers import CLOSED, Antichain
from reconcile.history import History
from reconcile.ids import Epoch, GlobalId, PeekId, ReplicaId, SessionId, Step
from reconcile.merge import (
    AnswerHeard,
    CollectionCreated,
    FrontierHeard,
    MergeEvent,
    PeekRequested,
    ReplicaJoined,
    ReplicaMerge,
    ReplicaSaid,
)
from reconcile.plan import plan
from reconcile.plan_tree import Node
from reconcile.reconciler import Reconciler

LIVE = 10_000
CHUNK = 10_000
Progress = Callable[[str], None]


def dataflow(number: int, *, predicate: str = "k > 3", as_of: int = 0, internal: int = 0) -> DataflowDescription:
    """An index over a filtered source, built through an internal collection."""
    id, inner = GlobalId("u", number), GlobalId("t", internal + number)
    scan = Node(op="filter", fields=(("input", GlobalId("s", number % 100)), ("predicate", predicate)))
    group = Node(op="group", fields=(("input", inner), ("by", ("k",)), ("aggregates", ("count",))))
    return DataflowDescription(
        imports=(GlobalId("s", number % 100),),
        objects=(ObjectToBuild(id=inner, plan=scan), ObjectToBuild(id=id, plan=group)),
        exports=(Index(id=id, key=("k",)),),
        as_of=Antichain.at(as_of),
    )


# --- history ----------------------------------------------------------------------------------------------


def log(seed: int) -> Iterator[ComputeCommand]:
    """An endless log over LIVE objects: 60 % compaction, 20 % peek and cancel, 10 % create, 10 % drop."""
    rng = random.Random(seed)
    live = list(range(LIVE))
    born, step, peeks = LIVE, 0, 0
    yield CreateInstance()
    for number in live:
        yield CreateDataflows(dataflows=(dataflow(number),))
    while True:
        step += 1
        for _ in range(6):
            yield AllowCompaction(id=GlobalId("u", rng.choice(live)), since=Antichain.at(step))
        peeks += 1
        yield Peek(peek=PeekId(peeks), id=GlobalId("u", rng.choice(live)), at=Step(step))
        yield CancelPeeks(peeks=(PeekId(peeks),))
        place = rng.randrange(LIVE)
        dropped, live[place] = live[place], born
        yield CreateDataflows(dataflows=(dataflow(born, as_of=step),))
        yield AllowCompaction(id=GlobalId("u", dropped), since=CLOSED)
        born += 1


class DictYardstick:
    """A bare loop that stores the same commands in dicts: the least that any history must do."""

    def __init__(self) -> None:
        self.stored: dict[object, ComputeCommand] = {}

    def handle(self, command: ComputeCommand) -> None:
        if type(command) is AllowCompaction:
            if command.since.is_closed:
                self.stored.pop(command.id, None)
                self.stored.pop((command.id, "since"), None)
            else:
                self.stored[command.id, "since"] = command
        elif type(command) is Peek:
            self.stored[command.peek] = command
        elif type(command) is CancelPeeks:
            for peek in command.peeks:
                self.stored.pop(peek, None)
        elif type(command) is CreateDataflows:
            self.stored[command.dataflows[0].exports[0].id] = command
        else:
            self.stored[type(command)] = command


def _log_rates(commands: int, progress: Progress) -> tuple[float, float]:
    """Commands a second of the history and of the yardstick, fed the same chunks in turn: medians of chunks."""
    history, yardstick = History(), DictYardstick()
    stream = log(seed=7)
    rates: list[tuple[float, float]] = []
    for fed in range(0, commands, CHUNK):
        chunk = list(islice(stream, CHUNK))
        rates.append(
            (CHUNK / seconds(partial(_feed, history, chunk)), CHUNK / seconds(partial(_feed, yardstick, chunk)))
        )
        progress(f"history: {fed + CHUNK:,} commands")
    return statistics.median(rate for rate, _ in rates), statistics.median(rate for _, rate in rates)


def _feed(machine: History | DictYardstick, chunk: list[ComputeCommand]) -> None:
    handle = machine.handle
    for command in chunk:
        handle(command)


def _peak_bytes(commands: int) -> int:
    tracemalloc.start()
    history = History()
    for command in islice(log(seed=7), commands):
        history.handle(command)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def history_figures(commands: int, progress: Progress) -> list[Figure]:
    ours, yardstick = _log_rates(commands, progress)
    progress("history: memory of a tenth of the log")
    small = _peak_bytes(commands // 10)
    progress("history: memory of the whole log")
    large = _peak_bytes(commands)
    return [
        Figure(name="history", value=ours, unit="commands/s", target=300_000, at_least=True),
        Figure(
            name="history / yardstick",
            value=ours / yardstick,
            unit="x",
            target=1 / 5,
            at_least=True,
            note=f"yardstick {yardstick:,.0f} commands/s",
        ),
        Figure(
            name="history: peak memory, whole log / a tenth",
            value=large / small,
            unit="x",
            target=1.1,
            at_least=False,
            note=f"{large / 2**20:.1f} MiB",
        ),
    ]


# --- plan, reconciler, merge ------------------------------------------------------------------------------


def _state(size: int, *, internal: int = 0, changed: int = 0) -> History:
    state = History()
    state.handle(CreateInstance())
    for number in range(size):
        predicate = "k > 4" if number < changed else "k > 3"
        state.handle(CreateDataflows(dataflows=(dataflow(number, predicate=predicate, internal=internal),)))
    return state


def plan_seconds(size: int, repetitions: int) -> float:
    """Planning ``size`` dataflows of which 1 % changed and all got other transient ids."""
    installed, requested = _state(size), _state(size, internal=size, changed=size // 100)
    return median_seconds(lambda: lambda: plan(installed.dataflows, requested.dataflows), repetitions)


def plan_figures(size: int, repetitions: int, progress: Progress) -> list[Figure]:
    progress(f"plan: {size:,} dataflows")
    small = plan_seconds(size, repetitions)
    progress(f"plan: {10 * size:,} dataflows")
    large = plan_seconds(10 * size, max(1, repetitions // 3))
    return [
        Figure(name=f"plan of {size:,} dataflows, 1 % changed", value=small, unit="s", target=0.5, at_least=False),
        Figure(
            name=f"plan of {10 * size:,} / of {size:,}",
            value=large / small,
            unit="x",
            target=12,
            at_least=False,
            note=f"{large:.2f} s",
        ),
    ]


def _session(name: str, epoch: int, size: int, internal: int) -> list[CommandReceived | SessionOpened]:
    session = SessionId(name)
    commands: list[ComputeCommand] = [CreateInstance()]
    commands += [CreateDataflows(dataflows=(dataflow(number, internal=internal),)) for number in range(size)]
    commands.append(InitializationComplete())
    hello = SessionOpened(hello=Hello(epoch=Epoch(epoch), session=session))
    return [hello, *(CommandReceived(session=session, command=command) for command in commands)]


def _reconnection(size: int) -> Callable[[], object]:
    """A reconciler with ``size`` running dataflows, about to meet a restarted controller."""
    reconciler = Reconciler()
    for event in _session("a", 1, size, 0):
        reconciler.handle(event)
    for number in range(size):
        reconciler.handle(UpperReported(id=GlobalId("u", number), upper=Antichain.at(9)))
    events = _session("b", 2, size, size)

    def reconnect() -> None:
        for event in events:
            reconciler.handle(event)

    return reconnect


def reconciler_figure(size: int, repetitions: int, progress: Progress) -> Figure:
    progress(f"reconciler: {size:,} kept dataflows")
    value = median_seconds(lambda: _reconnection(size), repetitions)
    name = f"reconciler, Hello to corrections, {size:,} kept"
    return Figure(name=name, value=value, unit="s", target=1.0, at_least=False)


def _responses(rounds: int) -> tuple[ReplicaMerge, list[MergeEvent], int]:
    """A merge of 3 replicas, and what they say: per round 100 frontiers each and the answers to 10 peeks."""
    merge = ReplicaMerge()
    replicas = [ReplicaId(number) for number in (1, 2, 3)]
    for replica in replicas:
        merge.handle(ReplicaJoined(replica=replica))
    for number in range(100):
        merge.handle(CollectionCreated(id=GlobalId("u", number), as_of=Antichain.at(0)))
    events: list[MergeEvent] = []
    said: list[FrontierHeard | AnswerHeard] = []
    responses = 0
    for step in range(1, rounds + 1):
        peeks = [PeekId(10 * step + number) for number in range(10)]
        events += [PeekRequested(peek=peek) for peek in peeks]
        said = [FrontierHeard(id=GlobalId("u", number), upper=Antichain.at(step)) for number in range(100)]
        said += [AnswerHeard(peek=peek, outcome=PeekRows(rows="rows")) for peek in peeks]
        for replica in replicas:
            incarnation = merge.incarnation(replica)
            assert incarnation is not None
            events += [ReplicaSaid(replica=replica, incarnation=incarnation, said=word) for word in said]
            responses += len(said)
    return merge, events, responses


def merge_figure(rounds: int, repetitions: int, progress: Progress) -> Figure:
    progress("merge: responses of 3 replicas")

    def run() -> float:
        merge, events, responses = _responses(rounds)

        def feed() -> None:
            for event in events:
                merge.handle(event)

        return responses / seconds(feed)

    value = statistics.median(run() for _ in range(repetitions))
    return Figure(name="merge, 3 replicas", value=value, unit="responses/s", target=200_000, at_least=True)


def core_figures(scale: float, progress: Progress) -> list[Figure]:
    """All figures of the core; ``scale`` shrinks the work for a quick look, targets stay."""
    size = max(100, int(10_000 * scale))
    commands = max(20 * CHUNK, int(1_000_000 * scale))
    return [
        *history_figures(commands, progress),
        *plan_figures(size, 7, progress),
        reconciler_figure(size, 7, progress),
        merge_figure(max(20, int(500 * scale)), 7, progress),
    ]
