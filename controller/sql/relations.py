"""The values that go into the compiler and come out of it: relations, columns, compiled queries."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from reconcile.ids import GlobalId
from reconcile.plan_tree import Node, PlanValue

if TYPE_CHECKING:
    # Which names functions and columns may bear is decided together, and columns are made here.
    from controller.sql.user_functions import UserFunction


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of a relation; ``type`` is the Spark SQL name of its type in the one spelling that we write."""

    name: str
    type: str
    nullable: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """What a name in FROM stands for.

    A table, source, materialized view or index has an ``id`` to get; a view has none but a ``plan`` to inline, whose
    output has exactly ``columns``. ``reads`` are the ids that are got either way.
    """

    id: GlobalId | None = None
    columns: tuple[Column, ...]
    plan: PlanValue = None
    reads: tuple[GlobalId, ...] = ()


class Catalog(Protocol):
    """Where the compiler looks names up."""

    def resolve(self, name: str) -> Relation | None:
        """The relation of exactly this name, if there is one."""
        ...

    def names(self) -> Iterable[str]:
        """Every name that ``resolve`` knows; for spelling without regard to case, and for "did you mean"."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Ordering:
    """One part of an ORDER BY; ``expression`` is over the output columns."""

    expression: str
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledQuery:
    """A query as a plan.

    The output of ``plan`` has exactly ``columns``, in this order. ``reads`` are the ids that the plan gets, in
    order of first appearance; ``names`` are the relations that the text itself reads, as the catalog spells them, in
    order of first appearance. ``order`` and ``limit`` are not part of the plan: whoever answers the query applies
    them, ``order`` first. ``text`` compiles to an equal query.
    """

    plan: Node
    columns: tuple[Column, ...]
    reads: tuple[GlobalId, ...]
    names: tuple[str, ...]
    order: tuple[Ordering, ...] | None
    limit: int | None
    text: str
    #: Functions of users that the text itself calls.
    functions: "tuple[UserFunction, ...]" = ()
