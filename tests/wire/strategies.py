"""Random domain values of every kind that crosses the wire."""

from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types
from hypothesis import strategies as st

from plainsong.arrow_updates import ArrowUpdates
from plainsong.codec import NUMBER_MAX
from plainsong.types import schema, updates_schema
from reconcile.compatibility import (
    DependencyReplaced,
    ExportsDiffer,
    ImportsDiffer,
    KindDiffers,
    PlanDiffers,
    SincePastAsOf,
    TailNeverKept,
)
from reconcile.compute_protocol import (
    AllowCompaction,
    AllowWrites,
    CancelPeeks,
    Configuration,
    CreateDataflows,
    CreateInstance,
    DataflowStatus,
    DropInstance,
    Failed,
    FrontierChange,
    FrontierUppers,
    Heartbeat,
    Hello,
    Hydrating,
    InitializationComplete,
    InstalledExport,
    Inventory,
    Kept,
    Peek,
    PeekCanceled,
    PeekFailed,
    PeekRefusal,
    PeekRefused,
    PeekResponse,
    PeekRows,
    Replaced,
    TailResponse,
    UpdateConfiguration,
)
from reconcile.dataflow import DataflowDescription, ExportKind, Index, MaterializedView, ObjectToBuild, Tail
from reconcile.frontiers import CLOSED, Antichain, ChangeBatch
from reconcile.ids import GlobalId
from reconcile.limits import PLAN_DIFFERENCES_MAX
from reconcile.plan_tree import Node, PlanValue
from reconcile.sources import SourceDescription
from reconcile.storage_protocol import (
    AlterSources,
    Append,
    AppendResult,
    AppendSnapshot,
    CreateSources,
    OpenStep,
    RunSinks,
    SealTables,
    SourceAltered,
    SourceFailed,
    SourceKept,
    SourceRefused,
    SourceRunning,
    SourceSealed,
    SourceStatus,
    StepReport,
    TableSeal,
)

Strategy = st.SearchStrategy[Any]


def tuples_of(elements: Strategy, min_size: int = 0, max_size: int = 3) -> Strategy:
    return st.lists(elements, min_size=min_size, max_size=max_size).map(tuple)


NUMBERS: Strategy = st.one_of(st.integers(0, 9), st.integers(0, NUMBER_MAX), st.just(NUMBER_MAX))
TEXTS: Strategy = st.text(max_size=8)
IDS = st.builds(GlobalId, st.sampled_from("sutl"), NUMBERS)
FRONTIERS = st.one_of(st.builds(Antichain, NUMBERS), st.just(CLOSED))
WHOLES = st.one_of(st.integers(), st.integers(-(10**40), 10**40), st.integers(-(10**1000) + 1, -(10**999)))


def _containers(children: st.SearchStrategy[PlanValue]) -> st.SearchStrategy[PlanValue]:
    fields = st.lists(st.tuples(TEXTS, children), max_size=4, unique_by=lambda field: field[0]).map(tuple)
    return st.one_of(tuples_of(children, max_size=4), st.builds(Node, op=TEXTS, fields=fields))


PLANS: st.SearchStrategy[PlanValue] = st.recursive(
    st.one_of(st.none(), st.booleans(), WHOLES, TEXTS, st.binary(max_size=8), IDS), _containers, max_leaves=12
)

_UPDATES_SCHEMA = updates_schema(schema([("n", "bigint"), ("t", "string"), ("d", "double"), ("at", "timestamp")]))
_ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "n": st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)),
            "t": st.one_of(st.none(), TEXTS),
            "d": st.one_of(st.none(), st.floats()),
            "at": st.one_of(st.none(), st.integers(0, 2**50)),
            "_step": NUMBERS,
            "_diff": st.integers(-3, 3),
        }
    ),
    max_size=5,
)
TABLES: Strategy = _ROWS.map(lambda rows: pa.Table.from_pylist(rows, schema=_UPDATES_SCHEMA))
UPDATES = st.one_of(
    TABLES.map(ArrowUpdates.of),
    # Also what is no Arrow at all: the wire passes it on unopened.
    st.binary(max_size=16).map(ArrowUpdates.encoded),
)

DEFINITIONS = st.lists(st.tuples(TEXTS, TEXTS), max_size=3, unique_by=lambda field: field[0]).map(tuple)
CONFIGURATIONS = st.builds(
    Configuration,
    result_bytes_max=st.none() | NUMBERS,
    dataflows_concurrent_max=st.none() | NUMBERS,
    heartbeat_ms=st.none() | NUMBERS,
    spark_call_ms_max=st.none() | NUMBERS,
)
EXPORTS = st.one_of(
    st.builds(Index, id=IDS, key=tuples_of(TEXTS)),
    st.builds(MaterializedView, id=IDS),
    st.builds(Tail, id=IDS, snapshot=st.booleans()),
)
DATAFLOWS = st.builds(
    DataflowDescription,
    imports=tuples_of(IDS),
    objects=tuples_of(st.builds(ObjectToBuild, id=IDS, plan=PLANS)),
    exports=tuples_of(EXPORTS, min_size=1),
    as_of=FRONTIERS,
    until=FRONTIERS,
)
CHANGE_BATCHES = st.dictionaries(NUMBERS, st.integers(-(2**63), 2**63 - 1).filter(bool), max_size=3).map(
    lambda counts: ChangeBatch.of(counts.items())
)

HELLOS = st.builds(
    Hello,
    epoch=NUMBERS,
    session=TEXTS,
    deployment=TEXTS,
    replica=st.none() | NUMBERS,
    protocol_version=st.integers(0, 2**32 - 1),
)
SHARED_COMMANDS: dict[type, Strategy] = {
    Hello: HELLOS,
    CreateInstance: st.builds(CreateInstance, logging=tuples_of(IDS), configuration=CONFIGURATIONS),
    AllowCompaction: st.builds(AllowCompaction, id=IDS, since=FRONTIERS),
    InitializationComplete: st.builds(InitializationComplete),
}
COMPUTE_COMMANDS: dict[type, Strategy] = {
    **SHARED_COMMANDS,
    DropInstance: st.builds(DropInstance),
    UpdateConfiguration: st.builds(UpdateConfiguration, configuration=CONFIGURATIONS),
    CreateDataflows: st.builds(CreateDataflows, dataflows=tuples_of(DATAFLOWS)),
    AllowWrites: st.builds(AllowWrites, id=IDS),
    Peek: st.builds(Peek, peek=NUMBERS, id=IDS, at=NUMBERS, finishing=PLANS),
    CancelPeeks: st.builds(CancelPeeks, peeks=tuples_of(NUMBERS)),
}
SOURCES = st.builds(
    SourceDescription,
    id=IDS,
    definition=DEFINITIONS,
    alterable=tuples_of(TEXTS),
    writer_epoch=st.none() | NUMBERS,
)
STORAGE_COMMANDS: dict[type, Strategy] = {
    **SHARED_COMMANDS,
    CreateSources: st.builds(CreateSources, sources=tuples_of(SOURCES)),
    AlterSources: st.builds(AlterSources, sources=tuples_of(SOURCES)),
    Append: st.builds(Append, id=IDS, upper=FRONTIERS, updates=UPDATES, token=TEXTS),
    AppendSnapshot: st.builds(AppendSnapshot, id=IDS, upper=FRONTIERS, rows=tuples_of(PLANS), token=TEXTS),
    RunSinks: st.builds(RunSinks, sinks=tuples_of(st.tuples(IDS, DEFINITIONS))),
    OpenStep: st.builds(OpenStep, step=NUMBERS, granted=NUMBERS, every_ms=NUMBERS, checkpoint=st.booleans()),
    SealTables: st.builds(
        SealTables, tables=tuples_of(st.builds(TableSeal, id=IDS, durable=FRONTIERS, upper=FRONTIERS))
    ),
}

REASONS = st.one_of(
    st.builds(ExportsDiffer, installed=tuples_of(IDS), requested=tuples_of(IDS)),
    st.builds(KindDiffers, export=IDS, installed=st.sampled_from(ExportKind), requested=st.sampled_from(ExportKind)),
    st.builds(ImportsDiffer, only_installed=tuples_of(IDS), only_requested=tuples_of(IDS)),
    st.builds(PlanDiffers, fields=tuples_of(TEXTS, max_size=PLAN_DIFFERENCES_MAX)),
    st.builds(SincePastAsOf, export=IDS, installed_since=FRONTIERS, requested_since=FRONTIERS),
    st.builds(DependencyReplaced, imports=tuples_of(IDS)),
    st.builds(TailNeverKept),
)
STATUSES = st.one_of(
    st.builds(Kept),
    st.builds(Replaced, reasons=tuples_of(REASONS)),
    st.builds(Hydrating, done=NUMBERS, total=NUMBERS),
    st.builds(Failed, error=TEXTS),
)
OUTCOMES = st.one_of(
    st.builds(PeekRows, rows=st.binary(max_size=16)),
    st.builds(PeekFailed, error=TEXTS),
    st.builds(PeekRefused, refusal=st.sampled_from(PeekRefusal)),
    st.builds(PeekCanceled),
)
SHARED_RESPONSES: dict[type, Strategy] = {
    FrontierUppers: st.builds(
        FrontierUppers,
        changes=tuples_of(st.builds(FrontierChange, id=IDS, changes=CHANGE_BATCHES, upper=FRONTIERS)),
    ),
    Heartbeat: st.builds(Heartbeat, sent_ms=NUMBERS),
}
COMPUTE_RESPONSES: dict[type, Strategy] = {
    **SHARED_RESPONSES,
    Inventory: st.builds(
        Inventory, exports=tuples_of(st.builds(InstalledExport, id=IDS, since=FRONTIERS, upper=FRONTIERS))
    ),
    PeekResponse: st.builds(PeekResponse, peek=NUMBERS, outcome=OUTCOMES),
    TailResponse: st.builds(TailResponse, id=IDS, lower=FRONTIERS, upper=FRONTIERS, updates=UPDATES),
    DataflowStatus: st.builds(DataflowStatus, exports=tuples_of(IDS), status=STATUSES),
}
STORAGE_RESPONSES: dict[type, Strategy] = {
    **SHARED_RESPONSES,
    AppendResult: st.builds(AppendResult, id=IDS, token=TEXTS, upper=FRONTIERS, left_out=NUMBERS),
    SourceStatus: st.builds(
        SourceStatus,
        id=IDS,
        status=st.one_of(
            st.builds(SourceKept),
            st.builds(SourceAltered, fields=tuples_of(TEXTS)),
            st.builds(SourceRefused, fields=tuples_of(TEXTS)),
            st.builds(SourceFailed, error=TEXTS),
            st.builds(SourceRunning, note=TEXTS),
        ),
    ),
    StepReport: st.builds(StepReport, id=IDS, step=NUMBERS, received=NUMBERS),
    SourceSealed: st.builds(SourceSealed, seal=st.builds(TableSeal, id=IDS, durable=FRONTIERS, upper=FRONTIERS)),
}
