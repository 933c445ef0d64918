"""Bad input: each refusal by its name, and the whole state of the machine before and after it.

A violation ends the session that broke the protocol, so the stage and the window are left out of the comparison;
a refused greeting changes not even those.
"""

from collections.abc import Mapping
from enum import Enum

import pytest

from reconcile.actions import EndSession, Refuse
from reconcile.compute_actions import CommandReceived, SessionClosed, SessionOpened
from reconcile.compute_protocol import (
    ComputeCommand,
    CreateDataflows,
    CreateInstance,
    Hello,
    InitializationComplete,
    Peek,
)
from reconcile.dataflow import DataflowDescription, Index, ObjectToBuild
from reconcile.errors import Violation
from reconcile.frontiers import CLOSED, MINIMUM, Antichain
from reconcile.ids import Epoch, GlobalId, PeekId, ReplicaId, SessionId, Step
from reconcile.reconciler import Reconciler
from reconcile.sessions import FencedBy, Identity, Refusal, Sessions, Stage, Stranger, SupersededBy
from reconcile.sources import SourceDescription
from reconcile.storage_actions import SetUnattended, StorageCommandReceived
from reconcile.storage_protocol import CreateSources, StorageCommand
from reconcile.storage_reconciler import StorageReconciler

A = SessionId("a")
S1, S2 = GlobalId("s", 1), GlobalId("s", 2)
U1, U2, U3, U9 = (GlobalId("u", number) for number in (1, 2, 3, 9))
OURS = Identity(deployment="ours", replica=ReplicaId(1))


def state(value: object, *, left_out: frozenset[str] = frozenset()) -> object:
    """Everything a machine remembers, down to the leaves, as plain values that can be compared."""
    if value is None or isinstance(value, str | int | float | bytes | Enum | type):
        return value
    if isinstance(value, Mapping):
        return [(state(key), state(one, left_out=left_out)) for key, one in value.items()]
    if isinstance(value, set | frozenset):
        return sorted(map(repr, value))
    if isinstance(value, tuple | list):
        return [state(one, left_out=left_out) for one in value]
    fields = [name for owner in type(value).__mro__ for name in getattr(owner, "__slots__", ())]
    fields += list(getattr(value, "__dict__", ()))
    return [
        (name, state(getattr(value, name), left_out=left_out))
        for name in sorted(fields)
        if name not in left_out and hasattr(value, name)
    ]


def hello(epoch: int = 3, session: str = "a", deployment: str = "ours", replica: int = 1, version: int = 1) -> Hello:
    return Hello(
        epoch=Epoch(epoch),
        session=SessionId(session),
        deployment=deployment,
        replica=ReplicaId(replica),
        protocol_version=version,
    )


def flow(*exports: GlobalId, imports: tuple[GlobalId, ...] = (S1,), as_of: Antichain = MINIMUM) -> CreateDataflows:
    objects = tuple(ObjectToBuild(id=id, plan="A") for id in exports)
    described = DataflowDescription(
        imports=imports, objects=objects, exports=tuple(Index(id=id) for id in exports), as_of=as_of
    )
    return CreateDataflows(dataflows=(described,))


def peek(number: int) -> Peek:
    return Peek(peek=PeekId(number), id=U1, at=Step(0))


def source(id: GlobalId) -> SourceDescription:
    return SourceDescription(id=id, definition=(("type", "table"),))


def running_compute() -> Reconciler:
    """An instance that runs u1 at 0, u2 at 4 and a peek, under reign 3."""
    reconciler = Reconciler(identity=OURS)
    reconciler.handle(SessionOpened(hello=hello()))
    running: tuple[ComputeCommand, ...] = (
        CreateInstance(),
        flow(U1),
        flow(U2, as_of=Antichain.at(4)),
        InitializationComplete(),
        peek(1),
    )
    for command in running:
        reconciler.handle(CommandReceived(session=A, command=command))
    return reconciler


def running_storage() -> StorageReconciler:
    reconciler = StorageReconciler(identity=OURS)
    reconciler.handle(SessionOpened(hello=hello()))
    running: tuple[StorageCommand, ...] = (
        CreateInstance(),
        CreateSources(sources=(source(S1),)),
        InitializationComplete(),
    )
    for command in running:
        reconciler.handle(StorageCommandReceived(session=A, command=command))
    return reconciler


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (flow(U1), Violation.DUPLICATE_EXPORT),
        (flow(U3, U3), Violation.DUPLICATE_EXPORT),
        (flow(U3, imports=(U9,)), Violation.UNKNOWN_IMPORT),
        (flow(U3, as_of=CLOSED), Violation.EMPTY_AS_OF),
        (flow(U3, imports=(U2,)), Violation.AS_OF_BEFORE_SINCE),
        (CreateDataflows(dataflows=(*flow(U3).dataflows, *flow(U1).dataflows)), Violation.DUPLICATE_EXPORT),
        (peek(1), Violation.DUPLICATE_PEEK),
        (hello(epoch=4), Violation.REPEATED_HELLO),
    ],
    ids=lambda value: value.value if isinstance(value, Violation) else "",
)
def test_a_running_instance_names_the_violation_and_keeps_its_state(command: ComputeCommand, why: Violation) -> None:
    reconciler = running_compute()
    before = state(reconciler, left_out=frozenset({"_stage"}))

    (ended,) = reconciler.handle(CommandReceived(session=A, command=command))

    assert isinstance(ended, EndSession)
    assert ended.violation.why is why
    reconciler.check()
    assert state(reconciler, left_out=frozenset({"_stage"})) == before
    assert reconciler.sessions.stage is Stage.ENDED


@pytest.mark.parametrize("command", [flow(U3), peek(2), InitializationComplete()], ids=lambda one: type(one).__name__)
def test_a_command_before_create_instance_is_named_and_changes_nothing(command: ComputeCommand) -> None:
    reconciler = running_compute()
    reconciler.handle(SessionOpened(hello=hello(session="b")))
    before = state(reconciler, left_out=frozenset({"_stage"}))

    (ended,) = reconciler.handle(CommandReceived(session=SessionId("b"), command=command))

    assert isinstance(ended, EndSession)
    assert ended.violation.why is Violation.BEFORE_CREATE_INSTANCE
    assert state(reconciler, left_out=frozenset({"_stage"})) == before


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (CreateSources(sources=(source(S1),)), Violation.DUPLICATE_SOURCE),
        (CreateSources(sources=(source(S2), source(S2))), Violation.DUPLICATE_SOURCE),
        (hello(epoch=4), Violation.REPEATED_HELLO),
    ],
    ids=["there already", "twice at once", "repeated-hello"],
)
def test_a_storage_instance_names_the_violation_and_keeps_its_state(command: StorageCommand, why: Violation) -> None:
    reconciler = running_storage()
    before = state(reconciler, left_out=frozenset({"_stage"}))

    ended, alone = reconciler.handle(StorageCommandReceived(session=A, command=command))

    assert isinstance(ended, EndSession)
    assert ended.violation.why is why
    assert alone == SetUnattended(unattended=True)
    reconciler.check()
    assert state(reconciler, left_out=frozenset({"_stage"})) == before
    assert reconciler.sessions.stage is Stage.ENDED


@pytest.mark.parametrize("machine", [running_compute, running_storage])
@pytest.mark.parametrize(
    ("greeting", "refusal"),
    [
        (hello(epoch=2, session="old"), FencedBy(epoch=Epoch(3))),
        (hello(epoch=9, deployment="theirs"), Stranger(field="deployment", ours="ours", theirs="theirs")),
        (hello(epoch=9, replica=2), Stranger(field="replica", ours="1", theirs="2")),
        (hello(epoch=9, version=2), Stranger(field="protocol version", ours="1", theirs="2")),
    ],
    ids=["epoch goes back", "deployment", "replica", "version"],
)
def test_a_refused_greeting_changes_nothing_at_all(
    machine: "type[Reconciler] | type[StorageReconciler]", greeting: Hello, refusal: Refusal
) -> None:
    reconciler = machine()
    before = state(reconciler)

    assert reconciler.handle(SessionOpened(hello=greeting)) == (
        Refuse(session=greeting.session, epoch=greeting.epoch, refusal=refusal),
    )
    assert state(reconciler) == before
    assert reconciler.sessions.live == A


def test_what_a_superseded_session_says_changes_nothing_at_all() -> None:
    reconciler = running_compute()
    reconciler.handle(SessionOpened(hello=hello(session="b")))
    before = state(reconciler)

    for command in (flow(U3), flow(U1), hello(epoch=9)):
        refused = reconciler.handle(CommandReceived(session=A, command=command))
        assert refused == (Refuse(session=A, epoch=None, refusal=SupersededBy(session=SessionId("b"))),)
    assert reconciler.handle(SessionClosed(session=A)) == ()
    assert state(reconciler) == before


def test_a_session_name_used_twice_supersedes_as_a_new_one_does() -> None:
    reconciler = running_compute()
    for session in ("b", "a"):
        reconciler.handle(SessionOpened(hello=hello(session=session)))
        reconciler.check()

    refused = reconciler.handle(CommandReceived(session=SessionId("b"), command=CreateInstance()))

    assert refused == (Refuse(session=SessionId("b"), epoch=None, refusal=SupersededBy(session=A)),)


def test_the_comparison_sees_what_a_machine_remembers() -> None:
    reconciler = running_compute()
    before = state(reconciler)

    reconciler.handle(CommandReceived(session=A, command=flow(U3)))

    assert state(reconciler) != before
    assert state(Sessions()) != state(Sessions(epoch=Epoch(1)))
