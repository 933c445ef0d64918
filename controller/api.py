"""The API for adapters: each request asked of one controller, and its reply.

One method for each call of ``ControllerService``, by the same name; ``service`` puts them behind gRPC.
"""

import asyncio
import hashlib
import uuid
from collections.abc import AsyncIterator, Callable
from importlib.metadata import version
from typing import Any, TypeVar

from google.protobuf.message import Message

from controller import statements
from controller.api_values import (
    KINDS,
    columns_of,
    names_of,
    pb_cluster,
    pb_frontier,
    pb_function,
    pb_object,
    pb_replica,
    values_of,
)
from controller.chunks import chunks
from controller.controller import Controller
from controller.engine import Request
from controller.events import (
    Event,
    ObjectHasFailed,
    ObjectWasAltered,
    ObjectWasCreated,
    ObjectWasDropped,
    ReplicaHasChanged,
    UppersHaveRisen,
)
from controller.log_reading import read_log
from controller.objects import CatalogObject, ObjectKind
from controller.planning import Relations
from controller.reads import Answer, Consistency, ReadAt, lookup
from controller.source_columns import source_columns
from controller.sql import Column as SqlColumn
from controller.sql import (
    UserFunction,
    compile_expression,
    compile_predicate,
    compile_query,
    explain,
    recomputed,
    user_function,
)
from controller.state import State
from controller.statements import Statement
from plainsong.codec import to_pb_frontier
from plainsong.errors import InvalidRequest
from plainsong.logs import LOGGING
from plainsong.v1 import controller_pb2 as pb
from reconcile.errors import InvariantBroken
from reconcile.ids import GlobalId, ReplicaId, Step
from reconcile.plan_tree import Node, PlanValue
from reconcile.source_types import SOURCE_TYPES, checked_options

Reply = TypeVar("Reply", bound=Message)


class Api:
    """Reads requests, asks the controller, writes replies; decides nothing."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    # --- clusters -----------------------------------------------------------------------------------------

    async def create_cluster(self, request: pb.CreateClusterRequest) -> pb.CreateClusterResponse:
        await self._execute(
            request,
            pb.CreateClusterResponse,
            lambda state: statements.create_cluster(state, request.name, request.replicas, list(request.addresses)),
        )
        return pb.CreateClusterResponse(cluster=self._cluster_now(request.name))

    async def alter_cluster(self, request: pb.AlterClusterRequest) -> pb.AlterClusterResponse:
        await self._execute(
            request,
            pb.AlterClusterResponse,
            lambda state: statements.alter_cluster(state, request.name, request.replicas),
        )
        return pb.AlterClusterResponse(cluster=self._cluster_now(request.name))

    def _cluster_now(self, name: str) -> pb.Cluster:
        """A cluster as it stands; one that was dropped since is only a name."""
        return pb_cluster(self._controller, name) if name in self._controller.state.clusters else pb.Cluster(name=name)

    async def drop_cluster(self, request: pb.DropClusterRequest) -> pb.DropClusterResponse:
        return await self._execute(
            request,
            pb.DropClusterResponse,
            lambda state: statements.drop_cluster(state, request.name, cascade=request.cascade),
        )

    async def list_clusters(self, _request: pb.ListClustersRequest) -> pb.ListClustersResponse:
        names = self._controller.state.clusters
        return pb.ListClustersResponse(clusters=[pb_cluster(self._controller, name) for name in names])

    async def create_replica(self, request: pb.CreateReplicaRequest) -> pb.CreateReplicaResponse:
        return await self._execute(
            request,
            pb.CreateReplicaResponse,
            lambda state: statements.create_replica(state, request.cluster, request.address),
            lambda made: pb.CreateReplicaResponse(
                replica=pb.Replica(id=made, address=request.address, state=pb.REPLICA_STATE_CONNECTING)
            ),
        )

    async def drop_replica(self, request: pb.DropReplicaRequest) -> pb.DropReplicaResponse:
        return await self._execute(
            request,
            pb.DropReplicaResponse,
            lambda state: statements.drop_replica(state, request.cluster, ReplicaId(request.replica)),
        )

    # --- objects ------------------------------------------------------------------------------------------

    async def create_table(self, request: pb.CreateTableRequest) -> pb.CreateTableResponse:
        columns = columns_of(request.columns)
        return await self._create(
            request,
            pb.CreateTableResponse,
            lambda state: statements.create_table(state, request.name, self._cluster(request.cluster), columns),
        )

    async def create_source(self, request: pb.CreateSourceRequest) -> pb.CreateSourceResponse:
        if request.type not in SOURCE_TYPES:
            raise InvalidRequest(
                f"there is no source of type {request.type!r}",
                hint=f"use {' or '.join(SOURCE_TYPES)}, or create a table and insert into it",
                reason="UNKNOWN_SOURCE_TYPE",
            )
        options = dict(request.options)
        meant = checked_options(request.type, options)
        columns = columns_of(request.columns)
        if not (request.if_not_exists and self._controller.state.catalog.named(request.name) is not None):
            # In a thread: columns that are not declared may be in a file.
            columns = await asyncio.to_thread(source_columns, meant, columns)
        return await self._create(
            request,
            pb.CreateSourceResponse,
            lambda state: statements.create_source(
                state, request.name, self._cluster(request.cluster), request.type, options, columns
            ),
        )

    async def create_view(self, request: pb.CreateViewRequest) -> pb.CreateViewResponse:
        return await self._create(
            request,
            pb.CreateViewResponse,
            lambda state: statements.create_view(state, request.name, request.sql, strict=request.strict_incremental),
        )

    async def create_materialized_view(
        self, request: pb.CreateMaterializedViewRequest
    ) -> pb.CreateMaterializedViewResponse:
        return await self._create(
            request,
            pb.CreateMaterializedViewResponse,
            lambda state: statements.create_materialized_view(
                state,
                request.name,
                self._cluster(request.cluster),
                request.sql,
                self._controller.engine.acknowledged,
                strict=request.strict_incremental,
            ),
        )

    async def create_index(self, request: pb.CreateIndexRequest) -> pb.CreateIndexResponse:
        return await self._create(
            request,
            pb.CreateIndexResponse,
            lambda state: statements.create_index(
                state,
                request.name,
                self._cluster(request.cluster, request.on),
                request.on,
                list(request.key),
                self._controller.engine.acknowledged,
                strict=request.strict_incremental,
            ),
        )

    async def add_columns(self, request: pb.AddColumnsRequest) -> pb.AddColumnsResponse:
        columns = columns_of(request.columns)
        return await self._execute(
            request,
            pb.AddColumnsResponse,
            lambda state: statements.add_columns(state, request.name, columns),
            lambda grown: pb.AddColumnsResponse(object=pb_object(self._controller, grown)),
        )

    async def drop_object(self, request: pb.DropObjectRequest) -> pb.DropObjectResponse:
        def plan(state: State) -> Statement[tuple[str, ...]]:
            if request.if_exists and state.catalog.named(request.name) is None:
                return Statement(result=())
            return statements.drop_object(state, request.name, cascade=request.cascade)

        return await self._execute(
            request, pb.DropObjectResponse, plan, lambda dropped: pb.DropObjectResponse(dropped=dropped)
        )

    async def list_objects(self, request: pb.ListObjectsRequest) -> pb.ListObjectsResponse:
        objects = [
            pb_object(self._controller, object)
            for object in self._controller.state.catalog
            if not request.kinds or KINDS[object.kind] in request.kinds
        ]
        return pb.ListObjectsResponse(objects=objects)

    # --- functions ----------------------------------------------------------------------------------------

    async def create_function(self, request: pb.CreateFunctionRequest) -> pb.CreateFunctionResponse:
        if request.nondeterministic:
            raise InvalidRequest(
                f"function {request.name} is declared as nondeterministic",
                detail="what is maintained must give the same answer on every replica and every time",
                hint="let a column hold what differs from time to time, and give it to the function",
                reason="NONDETERMINISTIC",
            )
        function = user_function(
            request.name,
            request.source,
            tuple((argument.name, argument.type) for argument in request.args),
            request.returns,
            tuple((column.name, column.type) for column in request.columns),
        )

        def plan(state: State) -> Statement[UserFunction]:
            existing = state.functions.get(request.name) if request.if_not_exists else None
            if existing is not None:
                return Statement(result=existing)
            return statements.create_function(state, function, replace=request.replace)

        return await self._execute(
            request,
            pb.CreateFunctionResponse,
            plan,
            lambda made: pb.CreateFunctionResponse(function=pb_function(made)),
        )

    async def drop_function(self, request: pb.DropFunctionRequest) -> pb.DropFunctionResponse:
        def plan(state: State) -> Statement[str]:
            if request.if_exists and request.name not in state.functions:
                return Statement(result="")
            return statements.drop_function(state, request.name)

        return await self._execute(request, pb.DropFunctionResponse, plan)

    async def list_functions(self, _request: pb.ListFunctionsRequest) -> pb.ListFunctionsResponse:
        functions = self._controller.state.functions
        return pb.ListFunctionsResponse(functions=[pb_function(functions[name]) for name in sorted(functions)])

    # --- rows ---------------------------------------------------------------------------------------------

    async def insert_rows(self, request: pb.InsertRowsRequest) -> pb.InsertRowsResponse:
        written = await self._controller.rows.insert(request.table, request.arrow, token=_token(request), timeout_ms=0)
        return pb.InsertRowsResponse(step=written.step, rows=written.rows)

    async def update_rows(self, request: pb.UpdateRowsRequest) -> pb.UpdateRowsResponse:
        written = await self._controller.rows.update(
            request.table, dict(request.set), request.where, token=_token(request), timeout_ms=0
        )
        return pb.UpdateRowsResponse(step=written.step, rows=written.rows)

    async def delete_rows(self, request: pb.DeleteRowsRequest) -> pb.DeleteRowsResponse:
        written = await self._controller.rows.delete(request.table, request.where, token=_token(request), timeout_ms=0)
        return pb.DeleteRowsResponse(step=written.step, rows=written.rows)

    # --- reads --------------------------------------------------------------------------------------------

    async def lookup(self, request: pb.LookupRequest) -> pb.LookupResponse:
        index = self._controller.reads.index_on(request.name)
        if index is None:
            raise InvalidRequest(f"{request.name} has no index", hint="create one on the columns you look up by")
        key = values_of(request.key)
        if len(key) != len(index.key):
            raise InvalidRequest(
                f"{index.name} is looked up by {', '.join(index.key)}", detail=f"{len(key)} values were given"
            )
        at = _read_at(request.consistency, request, None, request.timeout_ms)
        answer = await self._controller.reads.peek(index, lookup(index.key, key), at)
        return pb.LookupResponse(step=answer.step, arrow=answer.rows)

    async def peek(self, request: pb.PeekRequest) -> AsyncIterator[pb.ControllerServicePeekResponse]:
        replica = ReplicaId(request.replica) if request.HasField("replica") else None
        at = _read_at(request.consistency, request, replica, request.timeout_ms)
        if (log := LOGGING.get(request.name)) is not None:
            columns = tuple(SqlColumn(name=name, type=type) for name, type in log.columns)
            logged = await self._controller.reads.peek_log(log.id, _finishing(columns, request), at)
            for chunk in chunks(logged.rows):
                yield pb.ControllerServicePeekResponse(step=logged.step, arrow=chunk)
            return
        index = self._controller.reads.index_on(request.name)
        if index is None:
            raise InvalidRequest(
                f"{request.name} has no index", hint="create one, or read it by a query", reason="NO_INDEX"
            )
        columns = tuple(SqlColumn(name=c.name, type=c.type, nullable=not c.not_null) for c in index.columns)
        answer = await self._controller.reads.peek(index, _finishing(columns, request), at)
        for chunk in chunks(answer.rows):
            yield pb.ControllerServicePeekResponse(step=answer.step, arrow=chunk)

    async def query(self, request: pb.QueryRequest) -> AsyncIterator[pb.QueryResponse]:
        replica = ReplicaId(request.replica) if request.HasField("replica") else None
        at = _read_at(request.consistency, request, replica, request.timeout_ms)
        if replica is not None and not request.cluster:
            cluster = self._controller.reads.cluster_of(replica)
        else:
            cluster = self._cluster(request.cluster)
        compiled = self._controller.reads.compiled(request.sql, cluster)
        answer: Answer = await self._controller.reads.query(compiled, cluster, at)
        for chunk in chunks(answer.rows):
            yield pb.QueryResponse(step=answer.step, arrow=chunk)

    async def tail(self, request: pb.TailRequest) -> AsyncIterator[pb.ControllerServiceTailResponse]:
        if request.HasField("replica"):
            raise InvalidRequest("a tail follows all replicas", hint="leave the replica out", reason="NOT_YET")
        pieces = self._controller.reads.tail(
            request.name,
            self._cluster(request.cluster, request.name),
            snapshot=request.snapshot,
            resume=Step(request.resume) if request.HasField("resume") else None,
            as_of=Step(request.as_of) if request.HasField("as_of") else None,
        )
        async for piece in pieces:
            yield pb.ControllerServiceTailResponse(
                lower=to_pb_frontier(piece.lower), upper=to_pb_frontier(piece.upper), arrow=piece.updates
            )

    # --- how things stand ---------------------------------------------------------------------------------

    async def explain(self, request: pb.ExplainRequest) -> pb.ExplainResponse:
        state = self._controller.state
        relations = Relations(state, None)
        names = {object.id: object.name for object in state.catalog}
        if request.WhichOneof("what") == "name":
            object = state.catalog.require(request.name)
            plan, reads, columns = self._plan_of(object, relations)
        else:
            # Where it would run decides only which indexes it reads; with several clusters it reads none.
            only = next(iter(state.clusters)) if len(state.clusters) == 1 else None
            compiled = compile_query(request.sql, Relations(state, only, logging=True), functions=state.functions)
            plan, reads, columns = compiled.plan, compiled.reads, compiled.columns
        return pb.ExplainResponse(
            plan=explain(plan, names),
            reads=names_of(self._controller, reads),
            columns=[pb.Column(name=c.name, type=c.type, not_null=not c.nullable) for c in columns],
            recomputed=recomputed(plan),
        )

    def _plan_of(
        self, object: CatalogObject, relations: Relations
    ) -> tuple[PlanValue, tuple[GlobalId, ...], tuple[SqlColumn, ...]]:
        if object.has_dataflow:
            dataflow = self._controller.state.clusters[object.cluster].machine.history.dataflows.get(object.id)
            if dataflow is None:
                raise InvariantBroken(f"{object.name} is in the catalog and has no dataflow")
            description = dataflow.description
            columns = tuple(SqlColumn(name=c.name, type=c.type, nullable=not c.not_null) for c in object.columns)
            return description.objects[-1].plan, description.imports, columns
        relation = relations.relation(object.name)
        return relation.plan, relation.reads, relation.columns

    async def get_frontiers(self, request: pb.GetFrontiersRequest) -> pb.GetFrontiersResponse:
        catalog = self._controller.state.catalog
        objects = [catalog.require(name) for name in request.names] or [
            object for object in catalog if object.kind is not ObjectKind.VIEW
        ]
        return pb.GetFrontiersResponse(
            frontiers=[pb_frontier(self._controller, object) for object in objects],
            opened=self._controller.state.opened,
            acknowledged=self._controller.engine.acknowledged,
        )

    async def get_status(self, _request: pb.GetStatusRequest) -> pb.GetStatusResponse:
        controller = self._controller
        return pb.GetStatusResponse(
            version=version("plainsong"),
            deployment=controller.reign.deployment,
            epoch=controller.reign.epoch,
            clusters=[pb_cluster(controller, name) for name in controller.state.clusters],
            objects=[pb_object(controller, object) for object in controller.state.catalog],
            log_records=controller.engine.log_records,
            opened=controller.state.opened,
            acknowledged=controller.engine.acknowledged,
        )

    async def read_log(self, request: pb.ReadLogRequest) -> AsyncIterator[pb.ReadLogResponse]:
        if request.cluster:
            self._controller.state.cluster(request.cluster)
        first = request.first_seqno
        while True:
            grown = self._controller.engine.log_grown
            for batch, last in read_log(await self._controller.store.load(), request.cluster, first):
                yield batch
                first = max(first, last + 1)
            if not request.follow:
                return
            await grown.wait()

    async def watch(self, _request: pb.WatchRequest) -> AsyncIterator[pb.WatchResponse]:
        """Begins with how far everything is, so that whoever watches knows what came before."""
        catalog = self._controller.state.catalog
        with self._controller.engine.events.watch() as events:
            known = [pb_frontier(self._controller, object) for object in catalog if object.kind is not ObjectKind.VIEW]
            yield pb.WatchResponse(frontiers_rose=pb.FrontiersRose(frontiers=known))
            async for event in events:
                message = self._event(event)
                if message is not None:
                    yield message

    def _event(self, event: Event) -> pb.WatchResponse | None:
        controller = self._controller
        match event:
            case ObjectWasCreated(object=object):
                return pb.WatchResponse(object_created=pb.ObjectCreated(object=pb_object(controller, object)))
            case ObjectWasAltered(object=object):
                return pb.WatchResponse(object_altered=pb.ObjectAltered(object=pb_object(controller, object)))
            case ObjectWasDropped(name=name):
                return pb.WatchResponse(object_dropped=pb.ObjectDropped(name=name))
            case ReplicaHasChanged(cluster=cluster, replica=replica):
                record = controller.state.clusters.get(cluster)
                known = record is not None and replica in record.replicas
                described = pb_replica(controller, cluster, replica) if known else pb.Replica(id=replica)
                return pb.WatchResponse(replica_changed=pb.ReplicaChanged(cluster=cluster, replica=described))
            case ObjectHasFailed(name=name, replica=replica, error=error):
                return pb.WatchResponse(object_failed=pb.ObjectFailed(name=name, replica=replica, error=error))
            case UppersHaveRisen(uppers=uppers):
                found = [controller.state.catalog.get(id) for id, _ in uppers]
                frontiers = [pb_frontier(controller, object) for object in found if object is not None]
                if not frontiers:
                    return None
                return pb.WatchResponse(frontiers_rose=pb.FrontiersRose(frontiers=frontiers))

    # --- helpers ------------------------------------------------------------------------------------------

    async def _execute(
        self,
        request: Any,
        kind: type[Reply],
        plan: Callable[[State], Statement[Any]],
        encode: Callable[[Any], Reply] | None = None,
    ) -> Reply:
        """Carries out a statement, once; without ``encode`` its reply says nothing."""

        def encoded(result: Any) -> bytes:
            return (kind() if encode is None else encode(result)).SerializeToString()

        return kind.FromString(await self._controller.execute(plan, _identified(request), encoded))

    async def _create(
        self, request: Any, kind: type[Reply], plan: Callable[[State], Statement[CatalogObject]]
    ) -> Reply:
        """Creates an object, or finds that it is there already."""

        def unless_there(state: State) -> Statement[CatalogObject]:
            existing = state.catalog.named(request.name) if request.if_not_exists else None
            return plan(state) if existing is None else Statement(result=existing)

        def encoded(made: CatalogObject) -> bytes:
            return kind(object=pb_object(self._controller, made)).SerializeToString()

        return kind.FromString(await self._controller.execute(unless_there, _identified(request), encoded))

    def _cluster(self, name: str, object: str = "") -> str:
        """The cluster that is meant: by name, as the object's own, or because there is only one."""
        state = self._controller.state
        if name:
            return name
        own = state.catalog.require(object).cluster if object else ""
        if own:
            return own
        if len(state.clusters) == 1:
            return next(iter(state.clusters))
        known = ", ".join(state.clusters) or "none yet"
        raise InvalidRequest("which cluster?", hint=f"name one of: {known}")


def _identified(request: Any) -> Request:
    return Request(
        key=request.idempotency_key,
        digest=hashlib.sha256(type(request).__name__.encode() + request.SerializeToString(deterministic=True)).digest(),
    )


def _token(request: Any) -> str:
    """Names a write for ever; without a key, by a name that nobody repeats.

    Made from all of the request: another write under the same key is another write, never taken for done.
    """
    return _identified(request).digest.hex() if request.idempotency_key else uuid.uuid4().hex


def _read_at(consistency: int, request: Any, replica: ReplicaId | None, timeout_ms: int) -> ReadAt:
    serializable = consistency == pb.CONSISTENCY_SERIALIZABLE
    return ReadAt(
        consistency=Consistency.SERIALIZABLE if serializable else Consistency.STRICT_SERIALIZABLE,
        step=Step(request.step) if request.HasField("step") else None,
        replica=replica,
        timeout_ms=timeout_ms,
    )


def _finishing(columns: tuple[SqlColumn, ...], request: pb.PeekRequest) -> PlanValue:
    fields: list[tuple[str, PlanValue]] = []
    if request.where:
        fields.append(("predicate", compile_predicate(request.where, columns)))
    if request.columns:
        wanted = []
        for text in request.columns:
            expression, _ = compile_expression(text, columns)
            wanted.append((text, expression))
        fields.append(("columns", tuple(wanted)))
    if request.limit:
        fields.append(("limit", request.limit))
    return Node(op="finish", fields=tuple(fields)) if fields else None
