"""Calls: every verb of the controller as a request to send and a way to read the reply.

Pure, and the same for the client with threads and the one with asyncio: each function here is a method of both, with
the same parameters and this documentation. A call that changes something carries an idempotency key, made once for
the call, so that sending it again after a lost reply does nothing twice.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Generic, Literal, TypeAlias, TypeVar
from uuid import uuid4

from google.protobuf.message import Message

from plainsong import reading
from plainsong.answers import (
    Change,
    Cluster,
    Column,
    Event,
    Explanation,
    Frontiers,
    Function,
    LogRecord,
    Object,
    ObjectKind,
    Progress,
    Replica,
    Status,
    TailBatch,
    Written,
)
from plainsong.arrow_updates import to_ipc
from plainsong.cursors import Cursor, LogCursor, TailCursor, WatchCursor, as_batch, as_changes
from plainsong.errors import InvalidRequest
from plainsong.function_sources import source_of
from plainsong.retries import TIMEOUT_S
from plainsong.rows import Insertable, Rows, insertable
from plainsong.v1 import controller_pb2 as pb
from reconcile.limits import MESSAGE_BYTES_MAX, RESULT_BYTES_MAX

T = TypeVar("T")

#: A read sees everything acknowledged before it, or some complete step without waiting for anything.
Consistency: TypeAlias = Literal["strict serializable", "serializable"]
#: ``{"id": "bigint not null", "name": "string"}``, or columns, or pairs of name and type.
Columns: TypeAlias = Mapping[str, str] | Iterable[Column | tuple[str, str]]
#: What a key of an index can be made of.
KeyValue: TypeAlias = bool | int | str | bytes | float | Decimal | date | datetime | None

_CONSISTENCY = {
    "strict serializable": pb.CONSISTENCY_STRICT_SERIALIZABLE,
    "serializable": pb.CONSISTENCY_SERIALIZABLE,
}
#: The server must give up a little before the client does: only it can say what was late.
SERVER_GIVES_UP_EARLIER_S_MAX = 0.25
#: gRPC's own framing and the metadata beside a message.
_ENVELOPE_BYTES = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[T]):
    """One request, and how to read all the responses to it; there is exactly one unless it is ``streamed``."""

    method: str
    request: Message
    read: Callable[[Sequence[Any]], T]
    timeout: float
    streamed: bool = False

    def __post_init__(self) -> None:
        if not self.timeout > 0:
            raise InvalidRequest(f"timeout {self.timeout!r} leaves no time", hint="give seconds, more than 0")
        if (size := self.request.ByteSize()) > MESSAGE_BYTES_MAX - _ENVELOPE_BYTES:
            raise InvalidRequest(
                f"the request is too large: {size} bytes",
                detail=f"a message has at most {MESSAGE_BYTES_MAX} bytes",
                hint="send it in several parts",
            )

    def attempt(self, remaining_s: float) -> Message:
        """The request as it is sent with so much time left."""
        if "timeout_ms" not in self.request.DESCRIPTOR.fields_by_name:
            return self.request
        request = type(self.request)()
        request.CopyFrom(self.request)
        earlier = min(SERVER_GIVES_UP_EARLIER_S_MAX, remaining_s / 10)
        timeout_ms = min(2**32 - 1, max(1, int((remaining_s - earlier) * 1_000)))
        setattr(request, "timeout_ms", timeout_ms)  # noqa: B010  # of several types, each of which has the field
        return request


@dataclass(frozen=True, slots=True, kw_only=True)
class Streaming(Generic[T]):
    """A stream that goes on until its reader has enough; ``timeout`` is how long it may be without a server."""

    cursor: Cursor[T]
    timeout: float


def _unary(method: str, request: Message, read: Callable[[Any], T], timeout: float) -> Call[T]:
    return Call(method=method, request=request, read=lambda responses: read(responses[0]), timeout=timeout)


def _nothing(_: object) -> None:
    return None


def _key(given: str | None) -> str:
    return uuid4().hex if given is None else given


# --- clusters ---


def create_cluster(
    name: str,
    *,
    replicas: int = 1,
    addresses: Sequence[str] = (),
    timeout: float = TIMEOUT_S,
    idempotency_key: str | None = None,
) -> Call[Cluster]:
    """Makes a cluster of ``replicas`` that the controller starts, or of those that run at ``addresses`` already."""
    request = pb.CreateClusterRequest(
        name=name,
        replicas=0 if addresses else _natural("replicas", replicas),
        addresses=addresses,
        idempotency_key=_key(idempotency_key),
    )
    return _unary("CreateCluster", request, lambda reply: reading.cluster(reply.cluster), timeout)


def alter_cluster(
    name: str, *, replicas: int, timeout: float = TIMEOUT_S, idempotency_key: str | None = None
) -> Call[Cluster]:
    """Changes how many replicas a cluster has."""
    request = pb.AlterClusterRequest(
        name=name, replicas=_natural("replicas", replicas), idempotency_key=_key(idempotency_key)
    )
    return _unary("AlterCluster", request, lambda reply: reading.cluster(reply.cluster), timeout)


def drop_cluster(
    name: str, *, cascade: bool = False, timeout: float = TIMEOUT_S, idempotency_key: str | None = None
) -> Call[None]:
    """Drops a cluster; with ``cascade``, what runs on it too."""
    request = pb.DropClusterRequest(name=name, cascade=cascade, idempotency_key=_key(idempotency_key))
    return _unary("DropCluster", request, _nothing, timeout)


def clusters(*, timeout: float = TIMEOUT_S) -> Call[tuple[Cluster, ...]]:
    """All clusters with their replicas."""

    def read(reply: pb.ListClustersResponse) -> tuple[Cluster, ...]:
        return tuple(reading.cluster(each) for each in reply.clusters)

    return _unary("ListClusters", pb.ListClustersRequest(), read, timeout)


def create_replica(
    cluster: str, *, address: str = "", timeout: float = TIMEOUT_S, idempotency_key: str | None = None
) -> Call[Replica]:
    """Adds a replica, which the controller starts unless it runs at ``address`` already."""
    request = pb.CreateReplicaRequest(cluster=cluster, address=address, idempotency_key=_key(idempotency_key))
    return _unary("CreateReplica", request, lambda reply: reading.replica(reply.replica), timeout)


def drop_replica(
    cluster: str, replica: int, *, timeout: float = TIMEOUT_S, idempotency_key: str | None = None
) -> Call[None]:
    """Drops one replica of a cluster."""
    request = pb.DropReplicaRequest(
        cluster=cluster, replica=_natural("replica", replica), idempotency_key=_key(idempotency_key)
    )
    return _unary("DropReplica", request, _nothing, timeout)


# --- objects ---


def _object(method: str, request: Message, timeout: float) -> Call[Object]:
    return _unary(method, request, lambda reply: reading.catalog_object(reply.object), timeout)


def create_table(
    name: str,
    columns: Columns,
    *,
    cluster: str = "",
    if_not_exists: bool = False,
    timeout: float = TIMEOUT_S,
    idempotency_key: str | None = None,
) -> Call[Object]:
    """Makes a table, for example ``create_table("t", {"id": "bigint not null", "name": "string"})``."""
    request = pb.CreateTableRequest(
        name=name,
        cluster=cluster,
        columns=_columns(columns),
        if_not_exists=if_not_exists,
        idempotency_key=_key(idempotency_key),
    )
    return _object("CreateTable", request, timeout)


def create_source(
    name: str,
    type: str,
    columns: Columns = (),
    *,
    options: Mapping[str, str] | None = None,
    cluster: str = "",
    if_not_exists: bool = False,
    timeout: float = TIMEOUT_S,
    idempotency_key: str | None = None,
) -> Call[Object]:
    """Makes a source of the kind ``type``, with its options as it names them.

    Columns that are not declared are known by its type, or inferred once and then kept.
    """
    request = pb.CreateSourceRequest(
        name=name,
        cluster=cluster,
        type=type,
        options=options or {},
        columns=_columns(columns),
        if_not_exists=if_not_exists,
        idempotency_key=_key(idempotency_key),
    )
    return _object("CreateSource", request, timeout)


def create_view(
    name: str,
    sql: str,
    *,
    strict_incremental: bool = False,
    if_not_exists: bool = False,
    timeout: float = TIMEOUT_S,
    idempotency_key: str | None = None,
) -> Call[Object]:
    """Names a query; nothing is computed before something reads it.

    ``strict_incremental`` refuses a query of which a part would be computed anew with each change, and names it.
    """
    request = pb.CreateViewRequest(
        name=name,
        sql=sql,
        if_not_exists=if_not_exists,
        idempotency_key=_key(idempotency_key),
        strict_incremental=strict_incremental,
    )
    return _object("CreateView", request, timeout)


def create_materialized_view(
    name: str,
    sql: str,
    *,
    cluster: str = "",
    strict_incremental: bool = False,
    if_not_exists: bool = False,
    timeout: float = TIMEOUT_S,
    idempotency_key: str | None = None,
) -> Call[Object]:
    """Keeps the result of a query up to date, durably.

    ``strict_incremental`` refuses a query of which a part would be computed anew with each change, and names it.
    """
    request = pb.CreateMaterializedViewRequest(
        name=name,
        cluster=cluster,
        sql=sql,
        if_not_exists=if_not_exists,
        idempotency_key=_key(idempotency_key),
        strict_incremental=strict_incremental,
    )
    return _object("CreateMaterializedView", request, timeout)


def create_index(
    on: str,
    key: Sequence[str] = (),
    *,
    name: str = "",
    cluster: str = "",
    strict_incremental: bool = False,
    if_not_exists: bool = False,
    timeout: float = TIMEOUT_S,
    idempotency_key: str | None = None,
) -> Call[Object]:
    """Keeps ``on`` (a table, source or view) in the memory of a cluster, to be read by ``key``; none: all columns.

    ``strict_incremental`` refuses a view of which a part would be computed anew with each change, and names it.
    """
    request = pb.CreateIndexRequest(
        name=name,
        cluster=cluster,
        on=on,
        key=_texts("key", key),
        if_not_exists=if_not_exists,
        idempotency_key=_key(idempotency_key),
        strict_incremental=strict_incremental,
    )
    return _object("CreateIndex", request, timeout)


def add_columns(
    name: str, columns: Columns, *, timeout: float = TIMEOUT_S, idempotency_key: str | None = None
) -> Call[Object]:
    """Adds columns to a table or a source, for example ``add_columns("t", {"note": "string"})``.

    They may be null, and are in every row that is there. What was made before goes on with the columns it knows.
    """
    request = pb.AddColumnsRequest(name=name, columns=_columns(columns), idempotency_key=_key(idempotency_key))
    return _object("AddColumns", request, timeout)


def drop(
    name: str,
    *,
    cascade: bool = False,
    if_exists: bool = False,
    timeout: float = TIMEOUT_S,
    idempotency_key: str | None = None,
) -> Call[tuple[str, ...]]:
    """Drops an object; with ``cascade``, what reads it too. Returns the names of all that was dropped."""
    request = pb.DropObjectRequest(
        name=name, cascade=cascade, if_exists=if_exists, idempotency_key=_key(idempotency_key)
    )
    return _unary("DropObject", request, lambda reply: tuple(reply.dropped), timeout)


def objects(kinds: Iterable[ObjectKind | str] = (), *, timeout: float = TIMEOUT_S) -> Call[tuple[Object, ...]]:
    """The catalog; only these kinds, if any are given."""

    def read(reply: pb.ListObjectsResponse) -> tuple[Object, ...]:
        return tuple(reading.catalog_object(each) for each in reply.objects)

    try:
        wanted = [reading.KIND_NUMBERS[ObjectKind(kind)] for kind in kinds]
    except (ValueError, KeyError) as error:
        known = ", ".join(kind.value for kind in reading.KIND_NUMBERS)
        raise InvalidRequest(f"there is no kind {error.args[0]}", hint=f"use some of {known}") from error
    return _unary("ListObjects", pb.ListObjectsRequest(kinds=wanted), read, timeout)


# --- functions ---


def create_function(
    name: str,
    function: str | Callable[..., Any],
    *,
    args: Columns | Sequence[str] = (),
    returns: str | Columns,
    nondeterministic: bool = False,
    replace: bool = False,
    if_not_exists: bool = False,
    timeout: float = TIMEOUT_S,
    idempotency_key: str | None = None,
) -> Call[Function]:
    """Registers a function in Python, for queries on Spark: a ``def``, or source that defines ``name``.

    ``args`` are types, or names with types. ``returns`` is a type; or columns, and then the function gives rows and
    stands in FROM: ``LATERAL VIEW f(x)``. It must give the same for the same arguments always, and use nothing that
    is around it. Views keep the version that they were made with.
    """
    scalar = returns if isinstance(returns, str) else ""
    request = pb.CreateFunctionRequest(
        name=name,
        source=function if isinstance(function, str) else source_of(function, name),
        args=_arguments(args),
        returns=scalar,
        columns=() if isinstance(returns, str) else _columns(returns),
        nondeterministic=nondeterministic,
        replace=replace,
        if_not_exists=if_not_exists,
        idempotency_key=_key(idempotency_key),
    )
    return _unary("CreateFunction", request, lambda reply: reading.function(reply.function), timeout)


def drop_function(
    name: str, *, if_exists: bool = False, timeout: float = TIMEOUT_S, idempotency_key: str | None = None
) -> Call[None]:
    """Drops a function; what was made with it goes on with the version it has."""
    request = pb.DropFunctionRequest(name=name, if_exists=if_exists, idempotency_key=_key(idempotency_key))
    return _unary("DropFunction", request, _nothing, timeout)


def functions(*, timeout: float = TIMEOUT_S) -> Call[tuple[Function, ...]]:
    """All functions that were registered, by name."""

    def read(reply: pb.ListFunctionsResponse) -> tuple[Function, ...]:
        return tuple(reading.function(each) for each in reply.functions)

    return _unary("ListFunctions", pb.ListFunctionsRequest(), read, timeout)


# --- rows of tables ---


def insert(
    table: str,
    rows: Insertable,
    *,
    columns: Sequence[str] | None = None,
    timeout: float = TIMEOUT_S,
    idempotency_key: str | None = None,
) -> Call[Written]:
    """Inserts rows; when it returns they are durable, and every later read sees them.

    ``rows`` are dictionaries by column, tuples, or Arrow. All of them or none are inserted, at one step. Plain tuples
    are taken in the order of the table's columns, which costs a question to the server unless ``columns`` says it.
    """
    arrow = to_ipc(insertable(rows, columns))
    if len(arrow) > RESULT_BYTES_MAX:
        raise InvalidRequest(
            f"the rows are too many for one insert: {len(arrow)} bytes",
            detail=f"at most {RESULT_BYTES_MAX} are inserted at one step",
            hint="insert them in several parts",
        )
    request = pb.InsertRowsRequest(table=table, arrow=arrow, idempotency_key=_key(idempotency_key))
    return _unary("InsertRows", request, reading.written, timeout)


def update(
    table: str,
    set: Mapping[str, str],
    *,
    where: str,
    timeout: float = TIMEOUT_S,
    idempotency_key: str | None = None,
) -> Call[Written]:
    """Sets columns to SQL expressions where a condition holds: ``update("t", {"n": "n + 1"}, where="id = 7")``."""
    if not set:
        raise InvalidRequest("there is nothing to set", hint='for example {"n": "n + 1"}')
    request = pb.UpdateRowsRequest(table=table, set=set, where=_where(where), idempotency_key=_key(idempotency_key))
    return _unary("UpdateRows", request, reading.written, timeout)


def delete(table: str, *, where: str, timeout: float = TIMEOUT_S, idempotency_key: str | None = None) -> Call[Written]:
    """Deletes the rows where a condition holds: ``delete("t", where="id = 7")``."""
    request = pb.DeleteRowsRequest(table=table, where=_where(where), idempotency_key=_key(idempotency_key))
    return _unary("DeleteRows", request, reading.written, timeout)


# --- reads ---


def lookup(
    name: str,
    *key: KeyValue,
    consistency: Consistency = "strict serializable",
    step: int | None = None,
    timeout: float = TIMEOUT_S,
) -> Call[Rows]:
    """The rows of an index with this key: a value for each column of its key, in order. The fastest read."""
    request = pb.LookupRequest(
        name=name, key=[_value(each) for each in key], consistency=_consistency(consistency), step=step
    )
    return Call(method="Lookup", request=request, read=reading.rows, timeout=timeout)


def peek(
    name: str,
    *,
    columns: Sequence[str] = (),
    where: str = "",
    limit: int = 0,
    consistency: Consistency = "strict serializable",
    step: int | None = None,
    replica: int | None = None,
    timeout: float = TIMEOUT_S,
) -> Call[Rows]:
    """The contents of an index, or of what has one; ``limit`` 0 is all of them."""
    request = pb.PeekRequest(
        name=name,
        columns=_texts("columns", columns),
        where=where,
        limit=_natural("limit", limit),
        consistency=_consistency(consistency),
        step=step,
        replica=replica,
    )
    return Call(method="Peek", request=request, read=reading.rows, timeout=timeout, streamed=True)


def query(
    sql: str,
    *,
    cluster: str = "",
    consistency: Consistency = "strict serializable",
    step: int | None = None,
    replica: int | None = None,
    timeout: float = TIMEOUT_S,
) -> Call[Rows]:
    """The result of a SELECT."""
    request = pb.QueryRequest(
        sql=sql, cluster=cluster, consistency=_consistency(consistency), step=step, replica=replica
    )
    return Call(method="Query", request=request, read=reading.rows, timeout=timeout, streamed=True)


def tail(
    name: str,
    *,
    cluster: str = "",
    snapshot: bool = True,
    resume: int | None = None,
    as_of: int | None = None,
    replica: int | None = None,
    timeout: float = TIMEOUT_S,
) -> Streaming[Change | Progress]:
    """The changes of a collection as they happen: ``Change``\\ s, and after them a ``Progress``.

    Begins with the contents (``snapshot``) at the newest step or at ``as_of``; or goes on at ``resume``, the upper of
    a ``Progress`` seen earlier. A lost connection is made again and the tail goes on where it stood: no change is
    told twice and none is left out. Ends when the collection can never change again, or raises when no server could
    be reached for ``timeout`` seconds.
    """
    cursor = TailCursor(_tail_request(name, cluster, snapshot, resume, as_of, replica), as_changes)
    return Streaming(cursor=cursor, timeout=timeout)


def tail_batches(
    name: str,
    *,
    cluster: str = "",
    snapshot: bool = True,
    resume: int | None = None,
    as_of: int | None = None,
    replica: int | None = None,
    timeout: float = TIMEOUT_S,
) -> Streaming[TailBatch]:
    """Like ``tail``, in batches of Arrow: each goes on exactly where the one before ended."""
    cursor = TailCursor(_tail_request(name, cluster, snapshot, resume, as_of, replica), as_batch)
    return Streaming(cursor=cursor, timeout=timeout)


def _tail_request(
    name: str, cluster: str, snapshot: bool, resume: int | None, as_of: int | None, replica: int | None
) -> pb.TailRequest:
    if resume is not None and as_of is not None:
        raise InvalidRequest("a tail begins at a step or goes on from one, not both", hint="leave out resume or as_of")
    return pb.TailRequest(
        name=name, cluster=cluster, snapshot=snapshot and resume is None, resume=resume, as_of=as_of, replica=replica
    )


# --- how things stand ---


def explain(name: str | None = None, *, sql: str | None = None, timeout: float = TIMEOUT_S) -> Call[Explanation]:
    """How a view or index is computed, by name; or how a query would be, by its SQL."""
    if (name is None) == (sql is None):
        raise InvalidRequest("either a name or a query is explained", hint='explain("v") or explain(sql="select 1")')
    request = pb.ExplainRequest(name=name) if name is not None else pb.ExplainRequest(sql=sql or "")
    return _unary("Explain", request, reading.explanation, timeout)


def frontiers(*names: str, timeout: float = TIMEOUT_S) -> Call[Frontiers]:
    """How far objects are; all of them, if none is named."""
    return _unary("GetFrontiers", pb.GetFrontiersRequest(names=names), reading.frontiers, timeout)


def status(*, timeout: float = TIMEOUT_S) -> Call[Status]:
    """How the whole deployment stands."""
    return _unary("GetStatus", pb.GetStatusRequest(), reading.status, timeout)


def log(cluster: str = "", *, first_seqno: int = 0, timeout: float = TIMEOUT_S) -> Call[tuple[LogRecord, ...]]:
    """The durable command log of a cluster as it is now."""

    def read(replies: Sequence[pb.ReadLogResponse]) -> tuple[LogRecord, ...]:
        return tuple(record for reply in replies for record in reading.log_records(reply))

    request = pb.ReadLogRequest(cluster=cluster, first_seqno=_natural("first_seqno", first_seqno))
    return Call(method="ReadLog", request=request, read=read, timeout=timeout, streamed=True)


def follow_log(cluster: str = "", *, first_seqno: int = 0, timeout: float = TIMEOUT_S) -> Streaming[LogRecord]:
    """The durable command log of a cluster as it grows."""
    return Streaming(cursor=LogCursor(cluster, _natural("first_seqno", first_seqno)), timeout=timeout)


def watch(*, timeout: float = TIMEOUT_S) -> Streaming[Event]:
    """What happens, as it happens. ``Interrupted`` says that the connection was lost and events may be missing."""
    return Streaming(cursor=WatchCursor(), timeout=timeout)


# --- parameters ---


def _columns(columns: Columns) -> list[pb.Column]:
    if isinstance(columns, Mapping):
        columns = columns.items()
    return [_column(each) for each in columns]


def _arguments(args: Columns | Sequence[str]) -> list[pb.Column]:
    if isinstance(args, str):
        raise InvalidRequest("args must be a list", hint=f"[{args!r}]")
    listed = list(args.items() if isinstance(args, Mapping) else args)
    return _columns([(f"arg{place}", each) if isinstance(each, str) else each for place, each in enumerate(listed)])


def _column(given: Column | tuple[str, str]) -> pb.Column:
    if not isinstance(given, Column):
        name, type = given
        bare = type.strip()
        words = bare.lower().split()
        if words[-2:] == ["not", "null"]:
            # The type may hold blanks of its own, as in decimal(10, 2).
            bare = bare[: bare.lower().rindex("not")].strip()
        given = Column(name=name, type=bare, not_null=words[-2:] == ["not", "null"])
    return pb.Column(name=given.name, type=given.type, not_null=given.not_null)


def _value(value: KeyValue) -> pb.Value:
    match value:
        case None:
            return pb.Value()
        case bool():
            return pb.Value(boolean=value)
        case int():
            if not -(2**63) <= value < 2**63:
                raise InvalidRequest(f"{value} is not a key", detail="whole numbers have 64 bits")
            return pb.Value(whole=value)
        case bytes():
            return pb.Value(binary=value)
        case str():
            return pb.Value(text=value)
        case datetime() | date():
            return pb.Value(text=value.isoformat())
        case float() | Decimal():
            return pb.Value(text=str(value))
    raise InvalidRequest(f"a value of type {type(value).__name__} is not a key")


def _consistency(given: Consistency) -> pb.Consistency.ValueType:
    if (found := _CONSISTENCY.get(given)) is None:
        raise InvalidRequest(f"there is no consistency {given!r}", hint=f"use {' or '.join(_CONSISTENCY)}")
    return found


def _where(given: str) -> str:
    if not given.strip():
        raise InvalidRequest("there is no condition", hint='say where="true" if you mean all rows')
    return given


def _texts(what: str, given: Sequence[str]) -> Sequence[str]:
    """A list of texts; a single text is a list of letters to Python, and never what somebody means."""
    if isinstance(given, str):
        raise InvalidRequest(f"{what} must be a list", hint=f"[{given!r}]")
    return given


def _natural(what: str, given: int) -> int:
    if not 0 <= given < 2**32:
        raise InvalidRequest(f"{what} cannot be {given}")
    return given
