"""Promises of the core that a script cannot show: what is not printed, and orders of effects."""

from dataclasses import replace

from reconcile.actions import Accept, PersistEpoch, Refuse, Reply
from reconcile.compatibility import KindDiffers, PlanDiffers, incompatibilities
from reconcile.compute_actions import (
    CommandReceived,
    ComputeAction,
    Configure,
    DataflowFailed,
    SessionClosed,
    SessionOpened,
    SetWritable,
)
from reconcile.compute_protocol import (
    AllowWrites,
    ComputeCommand,
    Configuration,
    CreateDataflows,
    CreateInstance,
    DataflowStatus,
    Failed,
    Hello,
    InitializationComplete,
    InstalledExport,
    Inventory,
    Peek,
    PeekFailed,
    PeekResponse,
    UpdateConfiguration,
)
from reconcile.dataflow import DataflowDescription, Index, MaterializedView, ObjectToBuild
from reconcile.frontiers import MINIMUM, Antichain
from reconcile.ids import Epoch, GlobalId, PeekId, ReplicaId, SessionId, Step
from reconcile.plan_tree import Node
from reconcile.reconciler import Reconciler
from reconcile.sessions import Identity, Stranger
from reconcile.sources import SourceDescription
from reconcile.storage_actions import AppendDurable, StorageCommandReceived, Write
from reconcile.storage_protocol import Append, AppendResult, CreateSources, OpenStep
from reconcile.storage_reconciler import StorageReconciler
from reconcile.updates import Update, UpdateList

U1, U2, S1 = GlobalId("u", 1), GlobalId("u", 2), GlobalId("s", 1)
A = SessionId("a")


def hello(epoch: int = 1, session: str = "a") -> SessionOpened:
    return SessionOpened(hello=Hello(epoch=Epoch(epoch), session=SessionId(session)))


def flow(*, plan: Node | str = "A", view: bool = False, inner: int = 1) -> DataflowDescription:
    export = MaterializedView(id=U1) if view else Index(id=U1, key=("k",))
    objects = (ObjectToBuild(id=GlobalId("t", inner), plan=plan),)
    return DataflowDescription(imports=(S1,), objects=objects, exports=(export,), as_of=MINIMUM)


def start(*commands: ComputeCommand, reconciler: Reconciler | None = None, session: str = "a") -> Reconciler:
    reconciler = reconciler or Reconciler()
    reconciler.handle(hello(session=session))
    for command in (CreateInstance(), *commands, InitializationComplete()):
        reconciler.handle(CommandReceived(session=SessionId(session), command=command))
    return reconciler


def said(actions: tuple[ComputeAction, ...]) -> list[object]:
    return [action.response for action in actions if isinstance(action, Reply)]


def test_an_epoch_is_durable_before_its_session_is_accepted() -> None:
    actions = Reconciler(epoch=Epoch(3)).handle(hello(epoch=4))

    assert actions == (
        PersistEpoch(epoch=Epoch(4)),
        Accept(session=A, epoch=Epoch(4)),
        Reply(session=A, response=Inventory(exports=())),
    )


def test_the_same_reign_again_costs_no_write() -> None:
    reconciler = Reconciler(epoch=Epoch(3))

    assert Accept(session=A, epoch=Epoch(3)) in reconciler.handle(hello(epoch=3))
    assert not any(isinstance(action, PersistEpoch) for action in reconciler.handle(hello(epoch=3, session="b")))


def test_a_stranger_with_a_high_epoch_changes_nothing() -> None:
    reconciler = Reconciler(identity=Identity(deployment="ours", replica=ReplicaId(2)))

    right = Hello(epoch=Epoch(99), session=A, deployment="ours", replica=ReplicaId(2))
    for wrong, field in [
        (replace(right, deployment="theirs"), "deployment"),
        (replace(right, replica=ReplicaId(3)), "replica"),
        (replace(right, protocol_version=99), "protocol version"),
    ]:
        (refuse,) = reconciler.handle(SessionOpened(hello=wrong))
        assert isinstance(refuse, Refuse)
        assert isinstance(refuse.refusal, Stranger)
        assert refuse.refusal.field == field
    assert reconciler.sessions.epoch == 0
    assert reconciler.sessions.live is None


def test_the_inventory_says_what_is_installed() -> None:
    reconciler = start(CreateDataflows(dataflows=(flow(),)))

    actions = reconciler.handle(hello(session="b"))

    assert said(actions) == [Inventory(exports=(InstalledExport(id=U1, since=MINIMUM, upper=MINIMUM),))]


def test_a_plan_that_differs_names_the_field() -> None:
    def grouped(by: str) -> Node:
        return Node(op="group", fields=(("input", Node(op="filter", fields=(("predicate", "k > 3"),))), ("by", (by,))))

    sinces = {U1: MINIMUM}
    reasons = list(incompatibilities(flow(plan=grouped("k")), sinces, flow(plan=grouped("j"), inner=7), sinces))

    assert reasons == [PlanDiffers(fields=("internal 0.group.by[0]",))]


def test_a_kind_that_differs_names_the_export() -> None:
    (reason,) = incompatibilities(flow(), {U1: MINIMUM}, flow(view=True), {U1: MINIMUM})

    assert isinstance(reason, KindDiffers)
    assert str(reason) == "u1 is of kind index, not view"


def test_an_index_by_another_key_is_another_plan() -> None:
    other = DataflowDescription(
        imports=(S1,), objects=flow().objects, exports=(Index(id=U1, key=("j",)),), as_of=MINIMUM
    )

    assert list(incompatibilities(flow(), {U1: MINIMUM}, other, {U1: MINIMUM})) == [PlanDiffers(fields=("export u1",))]


def test_a_failed_dataflow_stays_installed_and_its_failure_is_told_again() -> None:
    reconciler = start(CreateDataflows(dataflows=(flow(),)))
    failed = DataflowStatus(exports=(U1,), status=Failed(error="boom"))

    assert said(reconciler.handle(DataflowFailed(id=U1, error="boom"))) == [failed]
    peek = Peek(peek=PeekId(1), id=U1, at=Step(0))
    answer = PeekResponse(peek=PeekId(1), outcome=PeekFailed(error="boom"))
    assert said(reconciler.handle(CommandReceived(session=A, command=peek))) == [answer]

    reconciler.handle(SessionClosed(session=A))
    reconciler.handle(hello(session="b"))
    for command in (CreateInstance(), CreateDataflows(dataflows=(flow(),))):
        reconciler.handle(CommandReceived(session=SessionId("b"), command=command))
    actions = reconciler.handle(CommandReceived(session=SessionId("b"), command=InitializationComplete()))
    assert failed in said(actions)


def test_a_view_writes_only_while_the_current_controller_allows_it() -> None:
    allow = AllowWrites(id=U1)
    create = CreateDataflows(dataflows=(flow(view=True),))
    reconciler = start(create)

    assert reconciler.handle(CommandReceived(session=A, command=allow)) == (SetWritable(id=U1, writable=True),)
    assert reconciler.handle(CommandReceived(session=A, command=allow)) == ()

    reconciler.handle(hello(session="b"))
    for command in (CreateInstance(), create):
        reconciler.handle(CommandReceived(session=SessionId("b"), command=command))
    actions = reconciler.handle(CommandReceived(session=SessionId("b"), command=InitializationComplete()))
    assert SetWritable(id=U1, writable=False) in actions


def test_an_index_is_never_allowed_to_write() -> None:
    reconciler = start(CreateDataflows(dataflows=(flow(),)))

    assert reconciler.handle(CommandReceived(session=A, command=AllowWrites(id=U1))) == ()


def test_configuration_is_merged_field_by_field() -> None:
    reconciler = start(UpdateConfiguration(configuration=Configuration(heartbeat_ms=100)))
    update = UpdateConfiguration(configuration=Configuration(result_bytes_max=9))

    (action,) = reconciler.handle(CommandReceived(session=A, command=update))

    assert action == Configure(configuration=Configuration(heartbeat_ms=100, result_bytes_max=9))


def test_hello_is_said_once() -> None:
    reconciler = start()

    (end,) = reconciler.handle(CommandReceived(session=A, command=Hello(epoch=Epoch(9), session=SessionId("x"))))

    assert "repeated-hello" in str(end)
    assert reconciler.sessions.epoch == 1


# --- storage ------------------------------------------------------------------------------------------------


def storing() -> StorageReconciler:
    reconciler = StorageReconciler()
    reconciler.handle(hello())
    source = SourceDescription(id=S1, definition=(("kind", "table"),))
    for command in (CreateInstance(), CreateSources(sources=(source,)), InitializationComplete()):
        reconciler.handle(StorageCommandReceived(session=A, command=command))
    return reconciler


def test_an_append_is_answered_when_it_is_durable_and_says_what_was_left_out() -> None:
    reconciler = storing()
    early = UpdateList((Update(step=Step(0), row="x"),))
    both = UpdateList((Update(step=Step(1), row="late"), Update(step=Step(4), row="new")))

    def append(upper: int, updates: UpdateList, token: str) -> tuple[object, ...]:
        command = Append(id=S1, upper=Antichain.at(upper), updates=updates, token=token)
        return reconciler.handle(StorageCommandReceived(session=A, command=command))

    append(3, early, "one")
    (write,) = append(5, both, "two")
    assert write == Write(id=S1, upper=Antichain.at(5), updates=UpdateList(both.updates[1:]), token="two")
    (reply,) = reconciler.handle(AppendDurable(id=S1, token="two"))
    assert reply == Reply(session=A, response=AppendResult(id=S1, token="two", upper=Antichain.at(5), left_out=1))
    assert append(5, early, "three") == (
        Reply(session=A, response=AppendResult(id=S1, token="three", upper=Antichain.at(5), left_out=1)),
    )


def test_opened_steps_never_go_back() -> None:
    reconciler = storing()

    def opened(step: int) -> int:
        command = OpenStep(step=Step(step), granted=Step(step + 5), every_ms=100)
        return len(reconciler.handle(StorageCommandReceived(session=A, command=command)))

    assert [opened(3), opened(3), opened(2), opened(4)] == [1, 0, 0, 1]
