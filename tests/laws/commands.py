"""Random command sequences, as a right controller would send them or as anyone might."""

from collections.abc import Callable
from dataclasses import dataclass, field

from hypothesis import strategies as st

from reconcile.compute_protocol import (
    AllowCompaction,
    AllowWrites,
    CancelPeeks,
    ComputeCommand,
    Configuration,
    CreateDataflows,
    CreateInstance,
    InitializationComplete,
    Peek,
    UpdateConfiguration,
)
from reconcile.dataflow import DataflowDescription, Export, ExportKind, Index, MaterializedView, ObjectToBuild, Tail
from reconcile.frontiers import CLOSED, Antichain
from reconcile.ids import GlobalId, PeekId, Step

STEPS = st.integers(0, 12)
SINCES = st.one_of(st.builds(Antichain.at, STEPS), st.just(CLOSED))
USER_IDS = st.builds(GlobalId, st.just("u"), st.integers(1, 6))
IMPORTS = st.builds(GlobalId, st.sampled_from(["s", "l", "u"]), st.integers(1, 6))
PEEKS = st.builds(PeekId, st.integers(1, 6))
KINDS = st.sampled_from([*ExportKind, ExportKind.INDEX, ExportKind.INDEX])


def export(kind: ExportKind, id: GlobalId) -> Export:
    if kind is ExportKind.INDEX:
        return Index(id=id)
    return MaterializedView(id=id) if kind is ExportKind.VIEW else Tail(id=id)


def described(
    exports: list[GlobalId], imports: list[GlobalId], plan: str, as_of: Antichain, kind: ExportKind, internal: int = 0
) -> DataflowDescription:
    """A dataflow that computes ``plan`` in an internal collection and offers it."""
    return DataflowDescription(
        imports=tuple(imports),
        objects=(ObjectToBuild(id=GlobalId("t", internal), plan=plan),),
        exports=tuple(export(kind, id) for id in exports),
        as_of=as_of,
    )


DESCRIPTIONS = st.builds(
    described,
    st.lists(USER_IDS, min_size=1, max_size=3, unique=True),
    st.lists(IMPORTS, max_size=2, unique=True),
    st.sampled_from(["A", "B"]),
    SINCES,
    KINDS,
    st.integers(0, 9),
)

#: Anything a controller could say inside a term, right or wrong.
COMMANDS: st.SearchStrategy[ComputeCommand] = st.one_of(
    st.builds(AllowCompaction, id=USER_IDS, since=SINCES),
    st.builds(AllowCompaction, id=USER_IDS, since=SINCES),
    st.builds(CreateDataflows, dataflows=st.lists(DESCRIPTIONS, min_size=1, max_size=2).map(tuple)),
    st.builds(CreateDataflows, dataflows=st.lists(DESCRIPTIONS, min_size=1, max_size=1).map(tuple)),
    st.builds(Peek, peek=PEEKS, id=USER_IDS, at=STEPS.map(Step)),
    st.builds(CancelPeeks, peeks=st.lists(PEEKS, max_size=2, unique=True).map(tuple)),
    st.builds(AllowWrites, id=USER_IDS),
    st.builds(UpdateConfiguration, configuration=st.builds(Configuration, heartbeat_ms=st.integers(1, 3))),
)
LOGS: st.SearchStrategy[list[ComputeCommand]] = st.lists(
    st.one_of(
        COMMANDS,
        COMMANDS,
        COMMANDS,
        st.builds(InitializationComplete),
        st.builds(CreateInstance, logging=st.lists(IMPORTS, max_size=1).map(tuple)),
    ),
    max_size=30,
).map(lambda commands: [CreateInstance(), *commands])


@dataclass
class RightController:
    """Draws only what a right controller says: it knows what lives, what it reads and what it must hold."""

    draw: st.DrawFn
    internal: int
    #: The since of each live export.
    sinces: dict[GlobalId, int] = field(default_factory=dict)
    dataflows: list[DataflowDescription] = field(default_factory=list)
    peeks: dict[PeekId, tuple[GlobalId, int]] = field(default_factory=dict)
    last_peek: int = 0
    last_id: int = 0

    def create(self, exports: list[GlobalId] | None = None) -> CreateDataflows:
        readable = [
            GlobalId("s", 1),
            GlobalId("s", 2),
            *(id for id in self.sinces if self._kind(id) != ExportKind.TAIL),
        ]
        imports = self.draw(st.lists(st.sampled_from(readable), max_size=2, unique=True))
        least = max([0, *(self.sinces[id] for id in imports if id in self.sinces)])
        as_of = self.draw(st.integers(least, least + 3))
        if exports is None:
            count = self.draw(st.integers(1, 2))
            exports = [GlobalId("u", self.last_id + number) for number in range(1, count + 1)]
            self.last_id += count
        self.internal += 1
        plan, kind = self.draw(st.sampled_from(["A", "B"])), self.draw(KINDS)
        description = described(exports, imports, plan, Antichain.at(as_of), kind, self.internal)
        self.dataflows.append(description)
        self.sinces.update(dict.fromkeys(exports, as_of))
        return CreateDataflows(dataflows=(description,))

    def compact(self) -> AllowCompaction | None:
        """Never past the ``as_of`` of a reader, nor past a peek; never drops what is read."""
        if not self.sinces:
            return None
        id = self.draw(st.sampled_from(sorted(self.sinces)))
        readers = [flow for flow in self.dataflows if id in flow.imports and self._lives(flow)]
        if not readers and self.draw(st.booleans()):
            del self.sinces[id]
            self.peeks = {peek: read for peek, read in self.peeks.items() if read[0] != id}
            return AllowCompaction(id=id, since=CLOSED)
        holds = [min(self.sinces[e] for e in flow.export_ids if e in self.sinces) for flow in readers]
        holds += [at for target, at in self.peeks.values() if target == id]
        since = self.draw(st.integers(self.sinces[id], self.sinces[id] + 4))
        self.sinces[id] = max(self.sinces[id], min([since, *holds]))
        return AllowCompaction(id=id, since=Antichain.at(self.sinces[id]))

    def peek(self) -> Peek | None:
        readable = [id for id in self.sinces if self._kind(id) != ExportKind.TAIL]
        if not readable:
            return None
        id = self.draw(st.sampled_from(sorted(readable)))
        self.last_peek += 1
        at = self.sinces[id] + self.draw(st.integers(0, 3))
        self.peeks[PeekId(self.last_peek)] = (id, at)
        return Peek(peek=PeekId(self.last_peek), id=id, at=Step(at))

    def cancel(self) -> CancelPeeks | None:
        if not self.peeks:
            return None
        peek = self.draw(st.sampled_from(sorted(self.peeks)))
        del self.peeks[peek]
        return CancelPeeks(peeks=(peek,))

    def say(self) -> ComputeCommand | None:
        choices: list[Callable[[], ComputeCommand | None]] = [self.create, self.compact, self.peek, self.cancel]
        return choices[self.draw(st.sampled_from([0, 0, 1, 1, 2, 3]))]()

    def _lives(self, flow: DataflowDescription) -> bool:
        return any(id in self.sinces for id in flow.export_ids)

    def _kind(self, id: GlobalId) -> ExportKind:
        return next(e.kind for flow in reversed(self.dataflows) for e in flow.exports if e.id == id)


@st.composite
def right_logs(draw: st.DrawFn, internal: int = 0, max_size: int = 12) -> list[ComputeCommand]:
    """What a right controller says in one term, without its ``InitializationComplete``."""
    controller = RightController(draw, internal)
    said = [controller.say() for _ in range(draw(st.integers(0, max_size)))]
    return [CreateInstance(logging=(GlobalId("l", 1),)), *(command for command in said if command is not None)]
