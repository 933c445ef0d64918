"""One of everything that crosses the wire, always the same: what the fuzzers damage."""

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types

from plainsong.arrow_updates import ArrowUpdates
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
    ComputeCommand,
    ComputeResponse,
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
from reconcile.frontiers import CLOSED, MINIMUM, Antichain, ChangeBatch
from reconcile.ids import Epoch, GlobalId, PeekId, ReplicaId, SessionId, Step, WriterEpoch
from reconcile.plan_tree import Node
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
    StorageCommand,
    StorageResponse,
    TableSeal,
)

S1, U2, U3, T4, L5 = (GlobalId.parse(text) for text in ("s1", "u2", "u300", "t4", "l5"))
AT_9 = Antichain.at(9)

UPDATES = ArrowUpdates.of(
    pa.table({"a": pa.array([1, None], pa.int64()), "b": ["x", "y"], "_step": [3, 4], "_diff": [1, -1]})
)

_GET = Node(op="get", fields=(("id", S1), ("columns", (("a", "bigint"), ("b", "string")))))
_PLAN = Node(
    op="group",
    fields=(
        ("input", Node(op="filter", fields=(("input", _GET), ("predicate", "a > 5")))),
        ("keys", (("b", "b"),)),
        ("aggregates", (("n", "count", None), ("s", "sum", "a"))),
        ("constants", (True, -12345678901234567890, b"\x00\xff", ())),
    ),
)
_DATAFLOW = DataflowDescription(
    imports=(S1, L5),
    objects=(ObjectToBuild(id=T4, plan=_PLAN), ObjectToBuild(id=U2, plan=None)),
    exports=(Index(id=U2, key=("b",)), MaterializedView(id=U3), Tail(id=T4, snapshot=False)),
    as_of=AT_9,
    until=Antichain.at(2**40),
)
_CONFIGURATION = Configuration(result_bytes_max=1 << 20, heartbeat_ms=0)
_HELLO = Hello(epoch=Epoch(3), session=SessionId("3-nonce"), deployment="here", replica=ReplicaId(0))

COMPUTE_COMMANDS: tuple[ComputeCommand, ...] = (
    _HELLO,
    CreateInstance(logging=(L5,), configuration=_CONFIGURATION),
    DropInstance(),
    UpdateConfiguration(configuration=_CONFIGURATION),
    CreateDataflows(dataflows=(_DATAFLOW,)),
    AllowCompaction(id=U2, since=AT_9),
    AllowCompaction(id=U3, since=CLOSED),
    AllowWrites(id=U3),
    Peek(peek=PeekId(77), id=U2, at=Step(12), finishing=Node(op="finish", fields=(("lookup", (("b", "x"),)),))),
    Peek(peek=PeekId(78), id=U2, at=Step(12)),
    CancelPeeks(peeks=(PeekId(77), PeekId(2**62))),
    InitializationComplete(),
)
_UPPERS = FrontierUppers(
    changes=(
        FrontierChange(id=U2, changes=ChangeBatch.between(MINIMUM, AT_9), upper=AT_9),
        FrontierChange(id=U3, changes=ChangeBatch.between(AT_9, CLOSED), upper=CLOSED),
    )
)
_REASONS = (
    ExportsDiffer(installed=(U2,), requested=(U2, U3)),
    KindDiffers(export=U2, installed=ExportKind.INDEX, requested=ExportKind.TAIL),
    ImportsDiffer(only_installed=(S1,), only_requested=()),
    PlanDiffers(fields=("u2.group.keys", "until")),
    SincePastAsOf(export=U2, installed_since=AT_9, requested_since=MINIMUM),
    DependencyReplaced(imports=(U3,)),
    TailNeverKept(),
)
COMPUTE_RESPONSES: tuple[ComputeResponse, ...] = (
    Inventory(exports=(InstalledExport(id=U2, since=MINIMUM, upper=CLOSED),)),
    _UPPERS,
    PeekResponse(peek=PeekId(1), outcome=PeekRows(rows=UPDATES.ipc)),
    PeekResponse(peek=PeekId(2), outcome=PeekFailed(error="division by zero")),
    PeekResponse(peek=PeekId(3), outcome=PeekRefused(refusal=PeekRefusal.NOT_READABLE)),
    PeekResponse(peek=PeekId(4), outcome=PeekCanceled()),
    TailResponse(id=T4, lower=MINIMUM, upper=AT_9, updates=UPDATES),
    DataflowStatus(exports=(U2, U3), status=Kept()),
    DataflowStatus(exports=(U2,), status=Replaced(reasons=_REASONS)),
    DataflowStatus(exports=(U2,), status=Hydrating(done=1, total=3)),
    DataflowStatus(exports=(U2,), status=Failed(error="overflow")),
    Heartbeat(sent_ms=1_700_000_000_000),
)
STORAGE_COMMANDS: tuple[StorageCommand, ...] = (
    _HELLO,
    CreateInstance(),
    CreateSources(
        sources=(
            SourceDescription(
                id=S1,
                definition=(("type", "table"), ("columns", '[["a", "bigint", true]]')),
                alterable=("columns",),
                writer_epoch=WriterEpoch(4),
            ),
        )
    ),
    AlterSources(
        sources=(SourceDescription(id=S1, definition=(("type", "table"), ("columns", "[]")), alterable=("columns",)),)
    ),
    AllowCompaction(id=S1, since=AT_9),
    Append(id=S1, upper=AT_9, updates=UPDATES, token="3-17"),
    AppendSnapshot(id=S1, upper=AT_9, rows=((1, "x"), (None, "y")), token="3-18"),
    RunSinks(sinks=((U2, (("type", "file"),)),)),
    OpenStep(step=Step(9), granted=Step(19), every_ms=1_000, checkpoint=True),
    SealTables(tables=(TableSeal(id=S1, durable=AT_9, upper=Antichain.at(12)),)),
    InitializationComplete(),
)
STORAGE_RESPONSES: tuple[StorageResponse, ...] = (
    _UPPERS,
    AppendResult(id=S1, token="3-17", upper=AT_9, left_out=2),
    SourceStatus(id=S1, status=SourceKept()),
    SourceStatus(id=S1, status=SourceAltered(fields=("columns",))),
    SourceStatus(id=S1, status=SourceRefused(fields=("type", "columns"))),
    SourceStatus(id=S1, status=SourceFailed(error="no route to host")),
    SourceStatus(id=S1, status=SourceRunning(note="3 rows were kept aside")),
    StepReport(id=S1, step=Step(9), received=1_000),
    SourceSealed(seal=TableSeal(id=S1, durable=AT_9, upper=Antichain.at(12))),
    Heartbeat(sent_ms=5),
)
