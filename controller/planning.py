"""Planning: what a name means to a query on one cluster.

A stored collection is read from its shard. A view is computed in place, unless the cluster has an index on it: then
that is read, and the work is shared.
"""

from collections.abc import Iterable

from controller.objects import CatalogObject, ObjectKind
from controller.sql import Column, Relation, compile_query
from controller.state import State
from plainsong.logs import LOGGING, LoggingCollection
from reconcile.errors import InvalidRequest
from reconcile.ids import GlobalId
from reconcile.plan_tree import Node, PlanValue


class Relations:
    """The catalog as the compiler asks for it; a view that was made before knows the columns of that time."""

    def __init__(
        self, state: State, cluster: str | None, *, reader: GlobalId | None = None, logging: bool = False
    ) -> None:
        """With ``logging``, what replicas tell of themselves can be read too, as only a query can."""
        self._state = state
        self._cluster = cluster
        self._reader = reader
        self._logging = logging

    def names(self) -> Iterable[str]:
        return (object.name for object in self._state.catalog)

    def resolve(self, name: str) -> Relation | None:
        if (log := LOGGING.get(name.lower())) is not None:
            return self._logged(log)
        object = self._state.catalog.named(name)
        return None if object is None else self._relation(object)

    def relation(self, name: str) -> Relation:
        """What ``name`` means; refused with a hint if it means nothing. An index means what it offers."""
        return self._relation(self._state.catalog.require(name))

    def _logged(self, log: LoggingCollection) -> Relation:
        if not self._logging:
            raise InvalidRequest(
                f"{log.name} cannot be part of what is maintained",
                detail="each replica has its own, and it is true only for the moment",
                hint="read it with a query that names a replica",
            )
        return _collection(log.id, tuple(Column(name=name, type=type) for name, type in log.columns))

    def _relation(self, object: CatalogObject) -> Relation:
        columns = tuple(
            Column(name=column.name, type=column.type, nullable=not column.not_null)
            for column in object.columns_for(self._reader)
        )
        if object.kind is not ObjectKind.VIEW:
            return _collection(object.id, columns)
        for index in self._state.catalog.indexes_on(object.id):
            if index.cluster == self._cluster:
                return _collection(index.id, columns)
        # With the functions of its making: those that there are now are for what is made now.
        functions = {function.name: function for function in object.functions}
        known = Relations(self._state, self._cluster, reader=object.id)
        compiled = compile_query(object.sql, known, allow_order=False, functions=functions)
        return Relation(id=None, columns=columns, plan=compiled.plan, reads=compiled.reads)


def get_plan(id: GlobalId, columns: tuple[Column, ...]) -> PlanValue:
    return Node(op="get", fields=(("id", id), ("columns", tuple((column.name, column.type) for column in columns))))


def _collection(id: GlobalId, columns: tuple[Column, ...]) -> Relation:
    return Relation(id=id, columns=columns, plan=get_plan(id, columns), reads=(id,))
