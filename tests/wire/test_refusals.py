"""Every way in which a message can fail to mean something is refused by name."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from plainsong import codec
from plainsong.v1 import common_pb2, compute_pb2, storage_pb2
from reconcile.compatibility import PlanDiffers
from reconcile.compute_protocol import (
    AllowCompaction,
    AllowWrites,
    CreateDataflows,
    CreateInstance,
    DataflowStatus,
    FrontierUppers,
    Heartbeat,
    Hello,
    Inventory,
    Kept,
    Peek,
    PeekCanceled,
    PeekResponse,
    PeekRows,
    Replaced,
    TailResponse,
)
from reconcile.dataflow import DataflowDescription, Index, ObjectToBuild
from reconcile.errors import InvariantBroken, ProtocolViolation, Violation
from reconcile.frontiers import CLOSED, MINIMUM, Antichain
from reconcile.ids import Epoch, GlobalId, PeekId, SessionId, Step
from reconcile.limits import PLAN_BYTES_MAX, PLAN_DEPTH_MAX, PLAN_DIFFERENCES_MAX
from reconcile.plan_tree import Internal, Node, PlanValue
from reconcile.sources import SourceDescription
from reconcile.storage_protocol import Append, AppendSnapshot, CreateSources, OpenStep, RunSinks, StepReport
from reconcile.updates import Update, UpdateList

U7 = common_pb2.GlobalId(kind=common_pb2.COLLECTION_KIND_USER, number=7)
AT_3 = common_pb2.Frontier(step=3)
OPEN = common_pb2.Frontier()
BEYOND = codec.NUMBER_MAX + 1
INDEX = compute_pb2.Export(index=compute_pb2.Index(id=U7))
NODE = common_pb2.PlanNode


def item(**kind: Any) -> common_pb2.PlanItem:
    return common_pb2.PlanItem(**kind)


def compute_command(**kind: Any) -> compute_pb2.ComputeServiceSessionRequest:
    return compute_pb2.ComputeServiceSessionRequest(commands=[compute_pb2.ComputeCommand(**kind)])


def storage_command(**kind: Any) -> storage_pb2.StorageServiceSessionRequest:
    return storage_pb2.StorageServiceSessionRequest(commands=[storage_pb2.StorageCommand(**kind)])


def compute_response(**kind: Any) -> compute_pb2.ComputeServiceSessionResponse:
    return compute_pb2.ComputeServiceSessionResponse(responses=[compute_pb2.ComputeResponse(**kind)])


def storage_response(**kind: Any) -> storage_pb2.StorageServiceSessionResponse:
    return storage_pb2.StorageServiceSessionResponse(responses=[storage_pb2.StorageResponse(**kind)])


def dataflow(**changed: Any) -> compute_pb2.ComputeServiceSessionRequest:
    """A right dataflow, but for what is changed."""
    fields: dict[str, Any] = {"exports": [INDEX], "as_of": AT_3, "until": OPEN} | changed
    described = compute_pb2.DataflowDescription(**{name: field for name, field in fields.items() if field is not None})
    return compute_command(create_dataflows=compute_pb2.CreateDataflows(dataflows=[described]))


def plan(*items: common_pb2.PlanItem) -> compute_pb2.ComputeServiceSessionRequest:
    return dataflow(objects=[compute_pb2.ObjectToBuild(id=U7, plan=items)])


def finishing(*items: common_pb2.PlanItem) -> compute_pb2.ComputeServiceSessionRequest:
    return compute_command(peek=compute_pb2.Peek(peek=1, id=U7, at=3, finishing=items))


def uppers(*changes: tuple[int, int]) -> compute_pb2.ComputeServiceSessionResponse:
    steps = [common_pb2.StepChange(step=step, change=change) for step, change in changes]
    change = common_pb2.FrontierChange(id=U7, changes=steps, upper=AT_3)
    return compute_response(frontier_uppers=common_pb2.FrontierUppers(changes=[change]))


def status(**kind: Any) -> compute_pb2.ComputeServiceSessionResponse:
    return compute_response(dataflow_status=compute_pb2.DataflowStatus(exports=[U7], **kind))


def reason(**kind: Any) -> compute_pb2.ComputeServiceSessionResponse:
    return status(replaced=compute_pb2.Replaced(reasons=[compute_pb2.ReplaceReason(**kind)]))


def definition(*names: str) -> list[storage_pb2.DefinitionField]:
    return [storage_pb2.DefinitionField(name=name, value="x") for name in names]


def source(**fields: Any) -> storage_pb2.StorageServiceSessionRequest:
    described = storage_pb2.SourceDescription(**fields)
    return storage_command(create_sources=storage_pb2.CreateSources(sources=[described]))


#: Each is wrong in one thing only; the test below shows that it is right without it.
COMPUTE_REQUESTS: dict[str, compute_pb2.ComputeServiceSessionRequest] = {
    "a command of no kind": compute_command(),
    "a time beyond all": compute_pb2.ComputeServiceSessionRequest(sent_ms=BEYOND),
    "an epoch beyond all": compute_command(hello=common_pb2.Hello(epoch=BEYOND)),
    "a replica beyond all": compute_command(hello=common_pb2.Hello(replica=BEYOND)),
    "no configuration to begin with": compute_command(create_instance=common_pb2.CreateInstance()),
    "a parameter beyond all": compute_command(
        create_instance=common_pb2.CreateInstance(configuration=common_pb2.Configuration(heartbeat_ms=BEYOND))
    ),
    "a logging id of no kind": compute_command(
        create_instance=common_pb2.CreateInstance(
            configuration=common_pb2.Configuration(), logging=[common_pb2.GlobalId(number=3)]
        )
    ),
    "no configuration to update": compute_command(update_configuration=compute_pb2.UpdateConfiguration()),
    "no id to compact": compute_command(allow_compaction=common_pb2.AllowCompaction(since=AT_3)),
    "no since to compact to": compute_command(allow_compaction=common_pb2.AllowCompaction(id=U7)),
    "a since beyond all": compute_command(
        allow_compaction=common_pb2.AllowCompaction(id=U7, since=common_pb2.Frontier(step=BEYOND))
    ),
    "an id of a kind from the future": compute_command(
        allow_writes=compute_pb2.AllowWrites(id=common_pb2.GlobalId(kind=99, number=1))  # type: ignore[arg-type]
    ),
    "an id beyond all": compute_command(
        allow_writes=compute_pb2.AllowWrites(id=common_pb2.GlobalId(kind=U7.kind, number=BEYOND))
    ),
    "no id to write": compute_command(allow_writes=compute_pb2.AllowWrites()),
    "a peek beyond all": compute_command(peek=compute_pb2.Peek(peek=BEYOND, id=U7, at=3)),
    "a peek at a step beyond all": compute_command(peek=compute_pb2.Peek(peek=1, id=U7, at=BEYOND)),
    "a peek at nothing": compute_command(peek=compute_pb2.Peek(peek=1, at=3)),
    "a cancelled peek beyond all": compute_command(cancel_peeks=compute_pb2.CancelPeeks(peeks=[1, BEYOND])),
    "a dataflow without exports": dataflow(exports=[]),
    "a dataflow without as_of": dataflow(as_of=None),
    "a dataflow without until": dataflow(until=None),
    "an export of no kind": dataflow(exports=[INDEX, compute_pb2.Export()]),
    "an export of nothing": dataflow(exports=[compute_pb2.Export(tail=compute_pb2.Tail())]),
    "an import of no kind": dataflow(imports=[common_pb2.GlobalId(number=1)]),
    "an object without id": dataflow(objects=[compute_pb2.ObjectToBuild(plan=[item(boolean=True)])]),
    "an object without plan": plan(),
    "an item of no kind": plan(item()),
    "two plans in one": plan(item(boolean=True), item(boolean=True)),
    "a list that ends too early": plan(item(list=2), item(boolean=True)),
    "a list that claims to be endless": plan(item(list=2**32 - 1)),
    "a node that ends too early": plan(item(node=NODE(op="get", fields=["id"]))),
    "a node with a field twice": plan(
        item(node=NODE(op="get", fields=["id", "id"])), item(boolean=True), item(boolean=True)
    ),
    "a node's id of no kind": plan(item(id=common_pb2.GlobalId(number=1))),
    "a whole number without digits": plan(item(whole="")),
    "a whole number that is none": plan(item(whole="1.5")),
    "a whole number with a blank": plan(item(whole=" 1")),
    "a whole number in other digits": plan(item(whole="\u0661")),
    "a whole number that is written in two ways": plan(item(whole="-0")),
    "a whole number with a leading zero": plan(item(whole="01")),
    "a whole number without end": plan(item(whole="1" * 1_001)),
    "a finishing of no kind": finishing(item()),
}
COMPUTE_RESPONSES: dict[str, compute_pb2.ComputeServiceSessionResponse] = {
    "a response of no kind": compute_response(),
    "an accepted epoch beyond all": compute_pb2.ComputeServiceSessionResponse(
        accepted=common_pb2.SessionAccepted(epoch=BEYOND)
    ),
    "a heartbeat beyond all": compute_response(heartbeat=common_pb2.Heartbeat(sent_ms=BEYOND)),
    "an installed export without since": compute_response(
        inventory=compute_pb2.Inventory(exports=[compute_pb2.InstalledExport(id=U7, upper=AT_3)])
    ),
    "an installed export without upper": compute_response(
        inventory=compute_pb2.Inventory(exports=[compute_pb2.InstalledExport(id=U7, since=AT_3)])
    ),
    "a frontier change without upper": compute_response(
        frontier_uppers=common_pb2.FrontierUppers(changes=[common_pb2.FrontierChange(id=U7)])
    ),
    "a frontier change without id": compute_response(
        frontier_uppers=common_pb2.FrontierUppers(changes=[common_pb2.FrontierChange(upper=AT_3)])
    ),
    "a change that is none": uppers((1, 0)),
    "a change that is told twice": uppers((1, 1), (1, 1)),
    "changes out of order": uppers((2, 1), (1, 1)),
    "a change at a step beyond all": uppers((BEYOND, 1)),
    "a peek's outcome of no kind": compute_response(peek_response=compute_pb2.PeekResponse(peek=1)),
    "an answered peek beyond all": compute_response(peek_response=compute_pb2.PeekResponse(peek=BEYOND, rows=b"")),
    "a peek refused for no reason": compute_response(
        peek_response=compute_pb2.PeekResponse(peek=1, refused=compute_pb2.PEEK_REFUSAL_UNSPECIFIED)
    ),
    "a peek refused for a reason from the future": compute_response(
        peek_response=compute_pb2.PeekResponse(peek=1, refused=99)  # type: ignore[arg-type]
    ),
    "a tail without lower": compute_response(
        tail_response=compute_pb2.TailResponse(id=U7, upper=AT_3, updates=common_pb2.Updates())
    ),
    "a tail without upper": compute_response(
        tail_response=compute_pb2.TailResponse(id=U7, lower=AT_3, updates=common_pb2.Updates())
    ),
    "a tail without updates": compute_response(tail_response=compute_pb2.TailResponse(id=U7, lower=AT_3, upper=AT_3)),
    "a tail of nothing": compute_response(
        tail_response=compute_pb2.TailResponse(lower=AT_3, upper=AT_3, updates=common_pb2.Updates())
    ),
    "a status of no kind": status(),
    "a status of exports of no kind": compute_response(
        dataflow_status=compute_pb2.DataflowStatus(exports=[common_pb2.GlobalId()], kept=compute_pb2.Kept())
    ),
    "hydrated beyond all": status(hydrating=compute_pb2.Hydrating(done=1, total=BEYOND)),
    "a reason of no kind": reason(),
    "an export of no kind that differs": reason(
        kind_differs=compute_pb2.KindDiffers(export=U7, installed=compute_pb2.EXPORT_KIND_INDEX)
    ),
    "an export of a kind from the future that differs": reason(
        kind_differs=compute_pb2.KindDiffers(
            export=U7,
            installed=99,  # type: ignore[arg-type]
            requested=compute_pb2.EXPORT_KIND_INDEX,
        )
    ),
    "a since past nothing": reason(since_past_as_of=compute_pb2.SincePastAsOf(export=U7, installed_since=AT_3)),
    "a dependency of no kind": reason(
        dependency_replaced=compute_pb2.DependencyReplaced(imports=[common_pb2.GlobalId()])
    ),
}
STORAGE_REQUESTS: dict[str, storage_pb2.StorageServiceSessionRequest] = {
    "a command of no kind": storage_command(),
    "a time beyond all": storage_pb2.StorageServiceSessionRequest(sent_ms=BEYOND),
    "a source without id": source(definition=definition("a")),
    "a source with a field twice": source(id=U7, definition=definition("a", "b", "a")),
    "a writer epoch beyond all": source(id=U7, writer_epoch=BEYOND),
    "an append to nothing": storage_command(append=storage_pb2.Append(upper=AT_3, updates=common_pb2.Updates())),
    "an append without upper": storage_command(append=storage_pb2.Append(id=U7, updates=common_pb2.Updates())),
    "an append without updates": storage_command(append=storage_pb2.Append(id=U7, upper=AT_3)),
    "a snapshot without rows": storage_command(append_snapshot=storage_pb2.AppendSnapshot(id=U7, upper=AT_3)),
    "a snapshot of one value": storage_command(
        append_snapshot=storage_pb2.AppendSnapshot(id=U7, upper=AT_3, rows=[item(text="x")])
    ),
    "a snapshot of an id": storage_command(
        append_snapshot=storage_pb2.AppendSnapshot(id=U7, upper=AT_3, rows=[item(id=U7)])
    ),
    "a snapshot without upper": storage_command(append_snapshot=storage_pb2.AppendSnapshot(id=U7, rows=[item(list=0)])),
    "a sink of nothing": storage_command(run_sinks=storage_pb2.RunSinks(sinks=[storage_pb2.SinkDescription()])),
    "a sink with a field twice": storage_command(
        run_sinks=storage_pb2.RunSinks(sinks=[storage_pb2.SinkDescription(id=U7, definition=definition("a", "a"))])
    ),
    "a step beyond all": storage_command(open_step=storage_pb2.OpenStep(step=BEYOND)),
    "a grant beyond all": storage_command(open_step=storage_pb2.OpenStep(granted=BEYOND)),
    "a seal without durable": storage_command(
        seal_tables=storage_pb2.SealTables(tables=[storage_pb2.TableSeal(id=U7, upper=AT_3)])
    ),
    "a seal without upper": storage_command(
        seal_tables=storage_pb2.SealTables(tables=[storage_pb2.TableSeal(id=U7, durable=AT_3)])
    ),
}
STORAGE_RESPONSES: dict[str, storage_pb2.StorageServiceSessionResponse] = {
    "a response of no kind": storage_response(),
    "an accepted epoch beyond all": storage_pb2.StorageServiceSessionResponse(
        accepted=common_pb2.SessionAccepted(epoch=BEYOND)
    ),
    "an append result without upper": storage_response(append_result=storage_pb2.AppendResult(id=U7)),
    "more left out than can be": storage_response(
        append_result=storage_pb2.AppendResult(id=U7, upper=AT_3, left_out=BEYOND)
    ),
    "a source status of no kind": storage_response(source_status=storage_pb2.SourceStatus(id=U7)),
    "a source status of nothing": storage_response(
        source_status=storage_pb2.SourceStatus(kept=storage_pb2.SourceKept())
    ),
    "a report of a step beyond all": storage_response(step_report=storage_pb2.StepReport(id=U7, step=BEYOND)),
}
MALFORMED: list[Any] = [
    pytest.param(decode, message, id=f"{decode.__name__}: {what}")
    for decode, messages in (
        (codec.decode_compute_request, COMPUTE_REQUESTS),
        (codec.decode_compute_response, COMPUTE_RESPONSES),
        (codec.decode_storage_request, STORAGE_REQUESTS),
        (codec.decode_storage_response, STORAGE_RESPONSES),
    )
    for what, message in messages.items()
]


@pytest.mark.parametrize(("decode", "message"), MALFORMED)
def test_what_means_nothing_is_refused(decode: Callable[[Any], Any], message: Any) -> None:
    with pytest.raises(ProtocolViolation) as refused:
        decode(message)

    assert refused.value.why is Violation.MALFORMED
    assert refused.value.detail
    with pytest.raises(ProtocolViolation):
        decode(message.SerializeToString())


def test_the_messages_are_right_but_for_the_one_thing() -> None:
    codec.decode_compute_request(dataflow())
    codec.decode_compute_request(plan(item(list=2), item(boolean=True), item(whole="-1")))
    codec.decode_compute_request(plan(item(node=NODE(op="get", fields=["id"])), item(id=U7)))
    codec.decode_compute_request(finishing())
    codec.decode_compute_response(uppers((1, -1), (3, 1)))
    codec.decode_compute_response(status(kept=compute_pb2.Kept()))
    codec.decode_compute_response(reason(tail_never_kept=compute_pb2.TailNeverKept()))
    codec.decode_storage_request(source(id=U7, definition=definition("a", "b")))


@pytest.mark.parametrize("damaged", [b"\xff", b"\x0a\x05", b"\x0b\x0b\x0b"], ids=lambda damaged: damaged.hex())
def test_bytes_that_are_no_message_are_refused(damaged: bytes) -> None:
    decoders: list[Callable[[bytes], object]] = [
        codec.decode_compute_request,
        codec.decode_compute_response,
        codec.decode_storage_request,
        codec.decode_storage_response,
        codec.decode_command,
    ]

    for decode in decoders:
        with pytest.raises(ProtocolViolation):
            decode(damaged)


def test_text_that_is_not_unicode_is_refused() -> None:
    frame = compute_command(hello=common_pb2.Hello(epoch=1, session="sess")).SerializeToString()

    with pytest.raises(ProtocolViolation):
        codec.decode_compute_request(frame.replace(b"sess", b"s\xffss"))


def test_a_command_of_an_unknown_kind_is_refused_and_not_ignored() -> None:
    """Field 99 of a command, as a newer controller might send it: to us the oneof looks unset."""
    unknown = compute_pb2.ComputeCommand.FromString(b"\x9a\x06\x00")
    frame = compute_pb2.ComputeServiceSessionRequest(
        commands=[compute_pb2.ComputeCommand(drop_instance=compute_pb2.DropInstance()), unknown]
    )

    with pytest.raises(ProtocolViolation, match="unknown kind"):
        codec.decode_compute_request(frame.SerializeToString())
    with pytest.raises(ProtocolViolation, match="unknown kind"):
        codec.decode_command(b"\x9a\x06\x00")
    with pytest.raises(ProtocolViolation, match="unknown kind"):
        codec.decode_command(b"")


def test_a_command_on_the_wrong_stream_is_refused() -> None:
    compute = codec.encode_compute_commands([Peek(peek=PeekId(1), id=GlobalId("u", 1), at=Step(1))])
    storage = codec.encode_storage_commands([OpenStep(step=Step(1), granted=Step(1), every_ms=1)])

    with pytest.raises(ProtocolViolation):
        codec.decode_storage_request(compute.SerializeToString())
    with pytest.raises(ProtocolViolation):
        codec.decode_compute_request(storage.SerializeToString())


# --- bounds -----------------------------------------------------------------------------------------------


def flow(value: PlanValue, exports: Iterable[Index] = (Index(id=GlobalId("u", 1)),)) -> CreateDataflows:
    built = ObjectToBuild(id=GlobalId("t", 1), plan=value)
    return CreateDataflows(
        dataflows=(DataflowDescription(imports=(), objects=(built,), exports=tuple(exports), as_of=MINIMUM),)
    )


def nested(levels: int, node: bool) -> PlanValue:
    value: PlanValue = 7
    for _ in range(levels):
        value = Node(op="not", fields=(("input", value),)) if node else (value,)
    return value


@pytest.mark.parametrize("node", [True, False], ids=["nodes", "lists"])
def test_the_deepest_plan_passes_and_a_deeper_one_is_refused_by_both_sides(node: bool) -> None:
    deepest = flow(nested(PLAN_DEPTH_MAX, node))
    level = item(node=NODE(op="not", fields=["input"])) if node else item(list=1)
    deeper = plan(*[level] * (PLAN_DEPTH_MAX + 1), item(whole="7"))

    assert codec.decode_command(codec.encode_command(deepest)) == deepest
    assert refusal(codec.encode_command, flow(nested(PLAN_DEPTH_MAX + 1, node))) is Violation.TOO_LARGE
    assert refusal(codec.decode_compute_request, deeper) is Violation.TOO_LARGE


def test_a_plan_that_is_too_large_is_refused_by_both_sides() -> None:
    large = "x" * PLAN_BYTES_MAX

    assert refusal(codec.encode_command, flow(large)) is Violation.TOO_LARGE
    assert refusal(codec.decode_compute_request, plan(item(text=large))) is Violation.TOO_LARGE
    peek = Peek(peek=PeekId(1), id=GlobalId("u", 1), at=Step(0), finishing=large)
    assert refusal(codec.encode_command, peek) is Violation.TOO_LARGE
    assert refusal(codec.decode_compute_request, finishing(item(text=large))) is Violation.TOO_LARGE
    almost = flow("x" * (PLAN_BYTES_MAX - 100))
    assert codec.decode_command(codec.encode_command(almost)) == almost


def test_more_differing_fields_than_are_ever_named_are_refused_by_both_sides() -> None:
    names = ("x",) * (PLAN_DIFFERENCES_MAX + 1)
    told = DataflowStatus(exports=(), status=Replaced(reasons=(PlanDiffers(fields=names),)))

    assert refusal(codec.encode_compute_responses, [told]) is Violation.TOO_LARGE
    heard = reason(plan_differs=compute_pb2.PlanDiffers(fields=names))
    assert refusal(codec.decode_compute_response, heard) is Violation.TOO_LARGE


def test_what_could_not_be_read_is_not_written() -> None:
    s1 = GlobalId("s", 1)
    twice = (("a", "1"), ("a", "2"))

    assert refusal(codec.encode_command, flow(1, exports=())) is Violation.MALFORMED
    assert refusal(codec.encode_command, flow(10**1_000)) is Violation.TOO_LARGE
    assert refusal(codec.encode_command, flow(Node(op="x", fields=(("a", 1), ("a", 2))))) is Violation.MALFORMED
    sources = CreateSources(sources=(SourceDescription(id=s1, definition=twice),))
    assert refusal(codec.encode_command, sources) is Violation.MALFORMED
    assert refusal(codec.encode_command, RunSinks(sinks=((s1, twice),))) is Violation.MALFORMED
    beyond = AllowCompaction(id=s1, since=Antichain.at(BEYOND))
    assert refusal(codec.encode_command, beyond) is Violation.MALFORMED
    assert refusal(codec.encode_command, AllowWrites(id=GlobalId("u", BEYOND))) is Violation.MALFORMED
    report = StepReport(id=s1, step=Step(-1), received=0)
    assert refusal(codec.encode_storage_responses, [report]) is Violation.MALFORMED
    assert refusal(codec.encode_compute_responses, [Heartbeat(sent_ms=BEYOND)]) is Violation.MALFORMED
    versioned = Hello(epoch=Epoch(1), session=SessionId("x"), protocol_version=2**32)
    assert refusal(codec.encode_command, versioned) is Violation.MALFORMED


def test_what_is_no_value_of_the_wire_is_our_own_fault() -> None:
    u1 = GlobalId("u", 1)
    updates = UpdateList((Update(step=Step(1), row="x"),))

    for command in (
        flow(Internal(1)),
        flow(1.5),  # type: ignore[arg-type]
        Append(id=u1, upper=CLOSED, updates=updates),
        AppendSnapshot(id=u1, upper=CLOSED, rows=(frozenset(),)),
    ):
        with pytest.raises(InvariantBroken):
            codec.encode_command(command)
    for response in (
        PeekResponse(peek=PeekId(1), outcome=PeekRows(rows=("x",))),
        TailResponse(id=u1, lower=MINIMUM, upper=CLOSED, updates=updates),
    ):
        with pytest.raises(InvariantBroken):
            codec.encode_compute_responses([response])
    with pytest.raises(InvariantBroken):
        codec.encode_storage_commands([AllowWrites(id=u1)])  # type: ignore[list-item]


def test_an_empty_list_of_updates_is_sent_as_none() -> None:
    tail = TailResponse(id=GlobalId("t", 1), lower=MINIMUM, upper=CLOSED, updates=UpdateList())

    (heard,) = codec.decode_compute_response(codec.encode_compute_responses([tail])).responses

    assert isinstance(heard, TailResponse)
    assert len(heard.updates) == 0


def test_small_things_are_there_though_they_are_all_defaults() -> None:
    responses = (
        Inventory(exports=()),
        FrontierUppers(changes=()),
        Heartbeat(sent_ms=0),
        PeekResponse(peek=PeekId(0), outcome=PeekRows(rows=b"")),
        PeekResponse(peek=PeekId(0), outcome=PeekCanceled()),
        DataflowStatus(exports=(), status=Kept()),
    )

    heard = codec.decode_compute_response(codec.encode_compute_responses(responses).SerializeToString())

    assert heard.responses == responses
    assert codec.decode_command(codec.encode_command(CreateInstance())) == CreateInstance()


def refusal(call: Any, *arguments: Any) -> Violation:
    """How ``call`` refuses."""
    with pytest.raises(ProtocolViolation) as refused:
        call(*arguments)
    return refused.value.why
