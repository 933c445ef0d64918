"""Statements: what a user's request changes, decided against the state as it is.

Pure. A statement that cannot be carried out raises ``InvalidRequest`` and is nothing; one that can is a list of
changes that become durable together, and the commands that are told to replicas after that.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from controller.objects import CatalogObject, ObjectColumn, ObjectKind
from controller.planning import Relations
from controller.sql import (
    Column,
    UserFunction,
    compile_columns,
    compile_query,
    refuse_recomputed,
    validate_name,
)
from controller.state import ReplicaRecord, State
from controller.store.changes import (
    Change,
    ClusterDropped,
    ClusterPut,
    FunctionDropped,
    FunctionPut,
    IdsAllotted,
    ObjectDropped,
    ObjectPut,
    ReplicaDropped,
    ReplicaIdsAllotted,
    ReplicaPut,
)
from plainsong.logs import is_reserved
from plainsong.security import split_address
from reconcile.compute_protocol import AllowCompaction, AllowWrites, ComputeCommand, CreateDataflows
from reconcile.dataflow import DataflowDescription, Export, Index, MaterializedView, ObjectToBuild
from reconcile.errors import InvalidRequest
from reconcile.frontiers import CLOSED, Antichain
from reconcile.ids import GlobalId, ReplicaId, Step
from reconcile.limits import REPLICAS_MAX
from reconcile.plan_tree import PlanValue
from reconcile.source_types import checked_options
from reconcile.sources import SourceDescription
from reconcile.storage_history import LoggedStorageCommand
from reconcile.storage_protocol import AlterSources, CreateSources

Result = TypeVar("Result")

#: Columns of one table.
COLUMNS_MAX = 4_096
#: Functions that users registered.
FUNCTIONS_MAX = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement(Generic[Result]):
    """One statement, ready to be made durable."""

    result: Result
    changes: tuple[Change, ...] = ()
    compute: tuple[tuple[str, ComputeCommand], ...] = ()
    storage: tuple[tuple[str, LoggedStorageCommand], ...] = ()
    created: tuple[CatalogObject, ...] = ()
    altered: tuple[CatalogObject, ...] = ()
    dropped: tuple[CatalogObject, ...] = ()
    replicas_created: tuple[tuple[str, ReplicaRecord], ...] = ()
    replicas_dropped: tuple[tuple[str, ReplicaId], ...] = ()
    clusters_dropped: tuple[str, ...] = ()


# --- clusters ---------------------------------------------------------------------------------------------


def create_cluster(state: State, name: str, replicas: int, addresses: Sequence[str]) -> Statement[str]:
    validate_name(name)
    if name in state.clusters:
        raise InvalidRequest(f"there is a cluster named {name!r} already")
    if replicas and addresses:
        raise InvalidRequest("give a number of replicas or their addresses, not both")
    _check_count(replicas)
    records = _new_replicas(state, [*addresses, *[""] * replicas], already=0)
    return Statement(
        result=name,
        changes=(
            ClusterPut(name=name, definition=json.dumps({})),
            *(ReplicaPut(cluster=name, replica=one.id, definition=one.definition()) for one in records),
            ReplicaIdsAllotted(next=state.next_replica + len(records)),
        ),
        replicas_created=tuple((name, one) for one in records),
    )


def alter_cluster(state: State, name: str, replicas: int) -> Statement[str]:
    """Makes the number of replicas what it says; the newest go first."""
    record = state.cluster(name)
    if any(one.address for one in record.replicas.values()):
        raise InvalidRequest(
            f"the replicas of {name} run at fixed addresses", hint="add or drop replicas by their address"
        )
    _check_count(replicas)
    surplus = sorted(record.replicas, reverse=True)[: max(0, len(record.replicas) - replicas)]
    added = _new_replicas(state, [""] * max(0, replicas - len(record.replicas)), already=len(record.replicas))
    return Statement(
        result=name,
        changes=(
            *(ReplicaDropped(cluster=name, replica=one) for one in surplus),
            *(ReplicaPut(cluster=name, replica=one.id, definition=one.definition()) for one in added),
            ReplicaIdsAllotted(next=state.next_replica + len(added)),
        ),
        replicas_created=tuple((name, one) for one in added),
        replicas_dropped=tuple((name, one) for one in surplus),
    )


def drop_cluster(state: State, name: str, *, cascade: bool) -> Statement[str]:
    record = state.cluster(name)
    living = [object for object in state.catalog if object.cluster == name]
    if living and not cascade:
        raise InvalidRequest(
            f"{len(living)} objects live on cluster {name}",
            detail=f"{living[0].name} is one of them",
            hint="drop them first, or say cascade",
        )
    dropped = _with_readers(state, living)
    elsewhere = [object for object in dropped if object.cluster != name]
    return Statement(
        result=name,
        changes=(
            *(ObjectDropped(id=object.id) for object in dropped),
            *(ReplicaDropped(cluster=name, replica=one) for one in record.replicas),
            ClusterDropped(name=name),
        ),
        compute=_drop_dataflows(elsewhere),
        storage=_drop_sources(elsewhere),
        dropped=tuple(dropped),
        replicas_dropped=tuple((name, one) for one in record.replicas),
        clusters_dropped=(name,),
    )


def create_replica(state: State, cluster: str, address: str) -> Statement[ReplicaId]:
    already = len(state.cluster(cluster).replicas)
    (record,) = _new_replicas(state, [address], already=already)
    return Statement(
        result=record.id,
        changes=(
            ReplicaPut(cluster=cluster, replica=record.id, definition=record.definition()),
            ReplicaIdsAllotted(next=state.next_replica + 1),
        ),
        replicas_created=((cluster, record),),
    )


def drop_replica(state: State, cluster: str, replica: ReplicaId) -> Statement[ReplicaId]:
    known = state.cluster(cluster).replicas
    if replica not in known:
        raise InvalidRequest(
            f"cluster {cluster} has no replica {replica}", hint=f"it has {', '.join(map(str, known)) or 'none'}"
        )
    return Statement(
        result=replica,
        changes=(ReplicaDropped(cluster=cluster, replica=replica),),
        replicas_dropped=((cluster, replica),),
    )


def _check_count(replicas: int) -> None:
    """Before anything is made of a number that may be any."""
    if replicas > REPLICAS_MAX:
        raise InvalidRequest(f"a cluster has at most {REPLICAS_MAX} replicas", detail=f"{replicas} are asked for")


def _new_replicas(state: State, addresses: Sequence[str], *, already: int) -> list[ReplicaRecord]:
    _check_count(already + len(addresses))
    for address in addresses:
        if address:
            # Dialed for ever, by every controller to come: one that can never be dialed is not written down.
            split_address(validate_name(address))
    return [
        ReplicaRecord(id=ReplicaId(state.next_replica + place), address=address)
        for place, address in enumerate(addresses)
    ]


# --- objects ----------------------------------------------------------------------------------------------


def create_table(state: State, name: str, cluster: str, columns: Sequence[Column]) -> Statement[CatalogObject]:
    _require_free(state, name)
    state.cluster(cluster)
    if len(columns) > COLUMNS_MAX:
        raise InvalidRequest(f"{len(columns)} columns are too many for a table", hint=f"use at most {COLUMNS_MAX}")
    checked = compile_columns(columns)
    id = state.catalog.next_id("s")
    table = CatalogObject(id=id, name=name, kind=ObjectKind.TABLE, columns=_object_columns(checked), cluster=cluster)
    create = CreateSources(sources=(_described(table),))
    return Statement(result=table, changes=_put(table), storage=((cluster, create),), created=(table,))


def create_source(
    state: State, name: str, cluster: str, type: str, options: Mapping[str, str], columns: Sequence[Column]
) -> Statement[CatalogObject]:
    """A source that fills itself; ``columns`` are its own from here on, declared or not."""
    _require_free(state, name)
    state.cluster(cluster)
    checked_options(type, options)
    if len(columns) > COLUMNS_MAX:
        raise InvalidRequest(f"{len(columns)} columns are too many for a source", hint=f"use at most {COLUMNS_MAX}")
    checked = compile_columns(columns)
    source = CatalogObject(
        id=state.catalog.next_id("s"),
        name=name,
        kind=ObjectKind.SOURCE,
        columns=_object_columns(checked),
        cluster=cluster,
        options=(("type", type), *sorted(options.items())),
    )
    create = CreateSources(sources=(_described(source),))
    return Statement(result=source, changes=_put(source), storage=((cluster, create),), created=(source,))


def _described(object: CatalogObject) -> SourceDescription:
    """A table or source as its writer is told of it."""
    columns = json.dumps([[column.name, column.type, column.not_null] for column in object.columns])
    options = object.options or (("type", "table"),)
    return SourceDescription(id=object.id, definition=(*options, ("columns", columns)))


def add_columns(state: State, name: str, columns: Sequence[Column]) -> Statement[CatalogObject]:
    """Columns that rows which are there lack; whatever reads them already goes on with those it knows."""
    object = state.catalog.require(name, ObjectKind.TABLE, ObjectKind.SOURCE)
    if dict(object.options).get("type") == "generator":
        raise InvalidRequest(f"the columns of {name} are known by its flavour", hint="compute more of them in a view")
    added = compile_columns(columns)
    for column in added:
        _require_addable(object, column)
    if len(object.columns) + len(added) > COLUMNS_MAX:
        raise InvalidRequest(
            f"{len(object.columns) + len(added)} columns are too many for {name}", hint=f"use at most {COLUMNS_MAX}"
        )
    known_from = state.catalog.next_id("u").number
    more = (ObjectColumn(name=column.name, type=column.type, known_from=known_from) for column in added)
    grown = replace(object, columns=(*object.columns, *more))
    told = replace(_described(grown), alterable=("columns",))
    return Statement(
        result=grown,
        changes=(ObjectPut(id=grown.id, name=grown.name, kind=grown.kind, definition=grown.definition()),),
        storage=((grown.cluster, AlterSources(sources=(told,))),),
        altered=(grown,),
    )


def _require_addable(object: CatalogObject, column: Column) -> None:
    there = next((one for one in object.columns if one.name.lower() == column.name.lower()), None)
    if there is not None:
        same = there.type == column.type
        raise InvalidRequest(
            f"{object.name} has a column {there.name!r} already",
            detail="" if same else f"it is {there.type}, and no column changes its type",
            hint="give the new one another name",
        )
    if not column.nullable:
        raise InvalidRequest(
            f"column {column.name!r} cannot be added as not null",
            detail=f"in every row that {object.name} holds it would be null",
            hint="leave out not null",
        )


def create_view(state: State, name: str, sql: str, *, strict: bool = False) -> Statement[CatalogObject]:
    _require_free(state, name)
    compiled = compile_query(sql, Relations(state, None), allow_order=False, strict=strict, functions=state.functions)
    view = CatalogObject(
        id=state.catalog.next_id("u"),
        name=name,
        kind=ObjectKind.VIEW,
        columns=_object_columns(compiled.columns),
        sql=sql,
        reads=_named_reads(state, compiled.names),
        functions=compiled.functions,
        strict_incremental=strict,
    )
    return Statement(result=view, changes=_put(view), created=(view,))


def create_materialized_view(
    state: State, name: str, cluster: str, sql: str, as_of: Step, *, strict: bool = False
) -> Statement[CatalogObject]:
    _require_free(state, name)
    state.cluster(cluster)
    compiled = compile_query(
        sql, Relations(state, cluster), allow_order=False, strict=strict, functions=state.functions
    )
    id = state.catalog.next_id("u")
    view = CatalogObject(
        id=id,
        name=name,
        kind=ObjectKind.MATERIALIZED_VIEW,
        columns=_object_columns(compiled.columns),
        cluster=cluster,
        sql=sql,
        reads=_named_reads(state, compiled.names),
        functions=compiled.functions,
        imports=compiled.reads,
        strict_incremental=strict,
    )
    return _dataflow_statement(view, compiled.plan, MaterializedView(id=id), as_of, AllowWrites(id=id))


def create_index(
    state: State, name: str, cluster: str, on: str, key: Sequence[str], as_of: Step, *, strict: bool = False
) -> Statement[CatalogObject]:
    indexed = state.catalog.require(
        on, ObjectKind.TABLE, ObjectKind.SOURCE, ObjectKind.VIEW, ObjectKind.MATERIALIZED_VIEW
    )
    name = name or "_".join([on, "by", *key] if key else [on, "index"])
    _require_free(state, name)
    state.cluster(cluster)
    relation = Relations(state, cluster).relation(on)
    if strict:
        refuse_recomputed(relation.plan, on)
    columns = [column.name for column in indexed.columns]
    for column in key:
        if column not in columns:
            raise InvalidRequest(f"{on} has no column {column!r}", hint=f"it has {', '.join(columns)}")
    id = state.catalog.next_id("u")
    index = CatalogObject(
        id=id,
        name=name,
        kind=ObjectKind.INDEX,
        columns=indexed.columns,
        cluster=cluster,
        on=indexed.id,
        key=tuple(key) or tuple(columns),
        imports=relation.reads,
        strict_incremental=strict,
    )
    return _dataflow_statement(index, relation.plan, Index(id=id, key=index.key), as_of)


def create_function(state: State, function: UserFunction, *, replace: bool) -> Statement[UserFunction]:
    """A function for what is made from now on; what was made before keeps the version it has."""
    if function.name in state.functions and not replace:
        raise InvalidRequest(
            f"there is a function named {function.name} already", hint="choose another name, or say replace"
        )
    if function.name not in state.functions and len(state.functions) >= FUNCTIONS_MAX:
        raise InvalidRequest(f"there are {FUNCTIONS_MAX} functions already", hint="drop those that nobody needs")
    return Statement(result=function, changes=(FunctionPut(name=function.name, definition=function.definition()),))


def drop_function(state: State, name: str) -> Statement[str]:
    if name not in state.functions:
        known = ", ".join(sorted(state.functions)[:8]) or "none yet"
        raise InvalidRequest(f"there is no function named {name!r}", hint=f"functions are: {known}")
    return Statement(result=name, changes=(FunctionDropped(name=name),))


def drop_object(state: State, name: str, *, cascade: bool) -> Statement[tuple[str, ...]]:
    object = state.catalog.require(name)
    dropped = state.catalog.with_readers(object.id)
    # What only makes reading it faster goes with it without being asked for.
    others = [one for one in dropped if one.id != object.id and one.kind is not ObjectKind.INDEX]
    needed = [one for one in state.catalog.needed_by(object.id) if one.on != object.id]
    if (others or needed) and not cascade:
        first = (others or needed)[0]
        raise InvalidRequest(
            f"cannot drop {name}", detail=f"{first.name} reads it", hint="drop that first, or say cascade"
        )
    return Statement(
        result=tuple(one.name for one in dropped),
        changes=tuple(ObjectDropped(id=one.id) for one in dropped),
        compute=_drop_dataflows(dropped),
        storage=_drop_sources(dropped),
        dropped=tuple(dropped),
    )


def _dataflow_statement(
    object: CatalogObject, plan: PlanValue, export: Export, as_of: Step, *then: ComputeCommand
) -> Statement[CatalogObject]:
    description = DataflowDescription(
        imports=object.imports,
        objects=(ObjectToBuild(id=object.id, plan=plan),),
        exports=(export,),
        as_of=Antichain(as_of),
    )
    commands = (CreateDataflows(dataflows=(description,)), *then)
    return Statement(
        result=object,
        changes=_put(object),
        compute=tuple((object.cluster, command) for command in commands),
        created=(object,),
    )


def _require_free(state: State, name: str) -> None:
    validate_name(name)
    if is_reserved(name):
        raise InvalidRequest(
            f"the name {name!r} is reserved", detail="it belongs to the system", hint="choose another name"
        )
    existing = state.catalog.named(name)
    if existing is not None:
        raise InvalidRequest(f"there is a {existing.kind} named {name!r} already", hint="choose another name")


def _put(object: CatalogObject) -> tuple[Change, ...]:
    return (
        IdsAllotted(kind=object.id.kind, next=object.id.number + 1),
        ObjectPut(id=object.id, name=object.name, kind=object.kind, definition=object.definition()),
    )


def _object_columns(columns: Sequence[Column]) -> tuple[ObjectColumn, ...]:
    return tuple(ObjectColumn(name=column.name, type=column.type, not_null=not column.nullable) for column in columns)


def _named_reads(state: State, names: Sequence[str]) -> tuple[GlobalId, ...]:
    return tuple(object.id for name in names if (object := state.catalog.named(name)) is not None)


def _with_readers(state: State, objects: Sequence[CatalogObject]) -> list[CatalogObject]:
    order: dict[GlobalId, CatalogObject] = {}
    for object in objects:
        for reader in state.catalog.with_readers(object.id):
            order.setdefault(reader.id, reader)
    return list(order.values())


def _drop_dataflows(objects: Sequence[CatalogObject]) -> tuple[tuple[str, ComputeCommand], ...]:
    return tuple(
        (object.cluster, AllowCompaction(id=object.id, since=CLOSED)) for object in objects if object.has_dataflow
    )


def _drop_sources(objects: Sequence[CatalogObject]) -> tuple[tuple[str, LoggedStorageCommand], ...]:
    stored = (ObjectKind.TABLE, ObjectKind.SOURCE)
    return tuple(
        (object.cluster, AllowCompaction(id=object.id, since=CLOSED)) for object in objects if object.kind in stored
    )
