"""Laws of the reduced history, against a model that remembers everything and reduces at the end."""

from dataclasses import replace

from hypothesis import given, settings

from reconcile.compute_protocol import (
    AllowCompaction,
    AllowWrites,
    CancelPeeks,
    ComputeCommand,
    Configuration,
    CreateDataflows,
    CreateInstance,
    DropInstance,
    InitializationComplete,
    Peek,
    UpdateConfiguration,
)
from reconcile.dataflow import DataflowDescription, ExportKind, Tail
from reconcile.frontiers import CLOSED, Antichain
from reconcile.history import History, reduce
from reconcile.ids import GlobalId, PeekId, Step
from tests.laws.commands import LOGS, described


class DumbState:
    """What a log means, by looking at all of it again after each command."""

    def __init__(self, log: list[ComputeCommand]) -> None:
        self.flows: list[DataflowDescription] = []
        self.since: dict[GlobalId, Antichain] = {}
        self.peeks: dict[PeekId, Peek] = {}
        self.writable: set[GlobalId] = set()
        self.configuration = Configuration()
        self.logging: tuple[GlobalId, ...] | None = None
        self.complete = False
        for command in log:
            self.apply(command)

    def apply(self, command: ComputeCommand) -> None:
        if isinstance(command, CreateInstance | DropInstance):
            self.__init__([])  # type: ignore[misc]
            if isinstance(command, CreateInstance):
                self.logging, self.configuration = command.logging, command.configuration
        elif self.logging is None:
            return
        elif isinstance(command, CreateDataflows):
            for flow in command.dataflows:
                if not any(id in self.since for id in flow.export_ids) and flow.as_of != CLOSED:
                    self.flows.append(flow)
                    self.since.update(dict.fromkeys(flow.export_ids, flow.as_of))
        elif isinstance(command, AllowCompaction):
            if command.id in self.since:
                self.since[command.id] = max(self.since[command.id], command.since)
        elif isinstance(command, AllowWrites):
            if self.since.get(command.id, CLOSED) != CLOSED:
                self.writable.add(command.id)
        elif isinstance(command, Peek):
            self.peeks.setdefault(command.peek, command)
        elif isinstance(command, CancelPeeks):
            self.peeks = {id: peek for id, peek in self.peeks.items() if id not in command.peeks}
        elif isinstance(command, UpdateConfiguration):
            self.configuration = self.configuration.merged(command.configuration)
        elif isinstance(command, InitializationComplete):
            self.complete = True
        self.forget_the_dead()

    def forget_the_dead(self) -> None:
        closed = [id for id, since in self.since.items() if since == CLOSED]
        self.peeks = {id: peek for id, peek in self.peeks.items() if peek.id not in closed}
        self.writable -= set(closed)
        for flow in [flow for flow in self.flows if all(self.since[id] == CLOSED for id in flow.export_ids)]:
            self.flows.remove(flow)
            for id in flow.export_ids:
                del self.since[id]

    def facts(self) -> object:
        """Everything that can be observed of it, with each ``as_of`` where its exports need it."""
        flows = []
        for flow in self.flows:
            as_of = min(self.since[id] for id in flow.export_ids)
            exports = [
                # A tail tells its snapshot where it was begun, and nowhere else.
                replace(each, snapshot=each.snapshot and as_of == flow.as_of) if isinstance(each, Tail) else each
                for each in flow.exports
            ]
            flows.append((flow.export_ids, flow.imports, flow.objects, exports, as_of))
        return (
            flows,
            self.since,
            list(self.peeks.values()),
            sorted(self.writable),
            self.configuration,
            self.logging,
            self.complete,
        )


def feed(history: History, log: list[ComputeCommand]) -> History:
    for command in log:
        history.handle(command)
        history.check()
    return history


@given(LOGS)
@settings(max_examples=400, deadline=None)
def test_a_reduced_history_leads_to_the_same_state(log: list[ComputeCommand]) -> None:
    assert DumbState(list(reduce(log))).facts() == DumbState(log).facts()


@given(LOGS)
@settings(max_examples=200, deadline=None)
def test_reducing_twice_changes_nothing(log: list[ComputeCommand]) -> None:
    assert reduce(reduce(log)) == reduce(log)


@given(LOGS, LOGS)
@settings(max_examples=200, deadline=None)
def test_what_comes_later_may_meet_the_reduced_history(log: list[ComputeCommand], later: list[ComputeCommand]) -> None:
    tail = later[1:]  # goes on in the same term

    assert reduce([*reduce(log), *tail]) == reduce([*log, *tail])


@given(LOGS)
@settings(max_examples=200, deadline=None)
def test_an_as_of_never_regresses_and_a_dataflow_goes_only_when_all_its_exports_are_closed(
    log: list[ComputeCommand],
) -> None:
    history = History()
    for command in log:
        before = {flow.age: flow.as_of for flow in history.dataflows}

        history.handle(command)

        after = {flow.age: flow.as_of for flow in history.dataflows}
        if not isinstance(command, CreateInstance):
            assert all(as_of <= after.get(age, CLOSED) for age, as_of in before.items())
            gone = before.keys() - after.keys()
            assert not gone or (isinstance(command, AllowCompaction) and command.since == CLOSED)


@given(LOGS)
@settings(max_examples=200, deadline=None)
def test_its_size_is_bounded_by_what_lives(log: list[ComputeCommand]) -> None:
    history = feed(History(), log)

    live_ids = sum(len(flow.sinces) for flow in history.dataflows)

    assert len(list(history.commands())) <= 4 + 4 * live_ids + len(history.peeks)


def test_its_memory_does_not_grow_with_the_log() -> None:
    def held(rounds: int) -> int:
        history = History()
        history.handle(CreateInstance())
        for number in range(rounds):
            flow = CreateDataflows(dataflows=(_numbered(number),))
            history.handle(flow)
            history.handle(Peek(peek=PeekId(number), id=GlobalId("u", number), at=Step(0)))
            history.handle(AllowCompaction(id=GlobalId("u", number), since=CLOSED))
        inner = (history.dataflows._by_age, history.dataflows._by_export, history.peeks._by_id)
        return sum(len(part) for part in inner) + len(history.peeks._by_collection)

    assert held(10) == held(1_000) == 0


def _numbered(number: int) -> DataflowDescription:
    return described([GlobalId("u", number)], [], "A", Antichain.at(0), ExportKind.INDEX)


def test_the_model_itself_can_tell_states_apart() -> None:
    """Guards the laws above against a model that sees nothing."""
    flow = CreateDataflows(dataflows=(_numbered(1),))
    log: list[ComputeCommand] = [CreateInstance(), flow]

    assert DumbState(log).facts() != DumbState([CreateInstance()]).facts()
