"""Errors cross the wire whole: kind, reason, message, detail and hint."""

from typing import Any

import grpc
import pytest
from google.rpc import status_pb2  # type: ignore[import-untyped]  # not marked as typed
from hypothesis import given
from hypothesis import strategies as st

import plainsong
from plainsong import errors
from plainsong.errors import DETAILS_KEY, from_rpc, kind_reason, reason_of, to_status
from reconcile import errors as core
from tests.client.serving import Controller, serving

#: What a client with default settings accepts of metadata, all together.
METADATA_BYTES_MAX = 8 * 1024

CORE = [
    core.InvalidRequest("m\n\0é", detail="d\r\n\0", hint="h\0"),
    core.Fenced("m", detail="d", hint="h"),
    core.StorageFailed("m", detail="d", hint="h"),
    core.InvariantBroken("m", detail="d", hint="h"),
    core.ProtocolViolation(core.Violation.TOO_LARGE, detail="d"),
]
OURS = [
    kind("m", detail="d", hint="h")
    for kind in (
        errors.InvalidRequest,
        errors.Unavailable,
        errors.NotReigning,
        errors.TimedOut,
        errors.Unauthenticated,
        errors.PermissionDenied,
    )
]


class Failed(grpc.RpcError):
    """A failed call, as a channel would raise it."""

    def __init__(self, code: grpc.StatusCode, details: str, metadata: Any) -> None:
        super().__init__()
        self._answers = code, details, metadata

    def code(self) -> grpc.StatusCode:
        return self._answers[0]

    def details(self) -> str:
        return self._answers[1]

    def trailing_metadata(self) -> Any:
        return self._answers[2]


def sent(error: core.PlainsongError) -> errors.PlainsongError:
    return from_rpc(Failed(*to_status(error)))


@pytest.mark.parametrize("error", [*CORE, *OURS], ids=lambda error: type(error).__name__)
@pytest.mark.asyncio
async def test_every_kind_of_error_reaches_the_client_as_what_it_is(error: core.PlainsongError) -> None:
    async with serving(Controller(ListClusters=error)) as address, plainsong.aio.connect(address) as client:
        with pytest.raises(plainsong.PlainsongError) as raised:
            await client.clusters(timeout=0.3)

    got = raised.value
    assert type(got) is getattr(errors, type(error).__name__)
    assert isinstance(got, type(error))
    assert (got.message, got.hint, got.reason) == (error.message, error.hint, reason_of(error))
    assert got.detail.startswith(error.detail)


def test_a_violation_keeps_its_name() -> None:
    got = sent(core.ProtocolViolation(core.Violation.DUPLICATE_PEEK, detail="p7"))

    assert isinstance(got, core.ProtocolViolation)
    assert got.why is core.Violation.DUPLICATE_PEEK


def test_a_reason_of_its_own_survives_also_if_the_client_does_not_know_it() -> None:
    got = sent(errors.InvalidRequest("there is no table t", reason="UNKNOWN_TABLE"))

    assert type(got) is errors.InvalidRequest
    assert got.reason == "UNKNOWN_TABLE"


def test_reasons_are_the_names_of_kinds() -> None:
    assert kind_reason(core.InvalidRequest) == "INVALID_REQUEST"
    assert kind_reason(errors.NotReigning) == "NOT_REIGNING"


def test_every_kind_knows_a_status_of_grpc() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, core.PlainsongError)]

    assert [kind for kind in kinds if kind.code not in grpc.StatusCode.__members__] == []


texts = st.text(max_size=3_000) | st.text(alphabet="é\0\n\udcff", max_size=5_000)


@given(message=texts, detail=texts, hint=texts)
def test_any_text_makes_a_status_that_every_client_accepts(message: str, detail: str, hint: str) -> None:
    error = core.InvalidRequest(message, detail=detail, hint=hint)

    code, plain, metadata = to_status(error)

    ((_, rich),) = metadata
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert plain.isascii()
    assert plain.isprintable()
    assert len(rich) * 4 / 3 + len(plain) + 200 < METADATA_BYTES_MAX
    got = sent(error)
    for ours, theirs in ((message, got.message), (detail, got.detail), (hint, got.hint)):
        clean = ours.encode(errors="replace").decode()
        assert theirs == clean or theirs[:100] == clean[:100]


@given(metadata=st.binary(max_size=200), code=st.sampled_from(list(grpc.StatusCode)))
def test_a_damaged_status_leaves_what_grpc_said(metadata: bytes, code: grpc.StatusCode) -> None:
    got = from_rpc(Failed(code, "what grpc said", ((DETAILS_KEY, metadata),)))

    assert isinstance(got, plainsong.PlainsongError)


def test_a_status_without_a_reason_leaves_what_grpc_said() -> None:
    bare = status_pb2.Status(code=3, message="other").SerializeToString()

    got = from_rpc(Failed(grpc.StatusCode.INVALID_ARGUMENT, "what grpc said", ((DETAILS_KEY, bare),)))

    assert (type(got), got.message) == (errors.InvalidRequest, "what grpc said")


@pytest.mark.asyncio
async def test_a_handler_that_fails_by_itself_is_no_bare_grpc_error() -> None:
    async def broken(_request: object, _context: object) -> object:
        raise RuntimeError("secret")

    async with serving(Controller(GetStatus=broken)) as address, plainsong.aio.connect(address) as client:
        with pytest.raises(plainsong.Unexpected):
            await client.status()
