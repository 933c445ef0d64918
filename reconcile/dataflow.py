"""Dataflow descriptions: what one dataflow reads, builds and offers, and from when on it must be right."""

from dataclasses import dataclass
from enum import StrEnum

from reconcile.frontiers import CLOSED, Antichain
from reconcile.ids import GlobalId
from reconcile.plan_tree import Internal, PlanValue, substitute


class ExportKind(StrEnum):
    """How an export is offered: kept for reads, written to a shard, or streamed to a reader."""

    INDEX = "index"
    VIEW = "view"
    TAIL = "tail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """Offers a collection as an arrangement by ``key``, for peeks and for other dataflows."""

    id: GlobalId
    key: tuple[str, ...] = ()

    @property
    def kind(self) -> ExportKind:
        return ExportKind.INDEX


@dataclass(frozen=True, slots=True, kw_only=True)
class MaterializedView:
    """Writes a collection to its shard, once ``AllowWrites`` has said so."""

    id: GlobalId

    @property
    def kind(self) -> ExportKind:
        return ExportKind.VIEW


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """Streams the changes of a collection; with ``snapshot``, its contents at ``as_of`` first."""

    id: GlobalId
    snapshot: bool = True

    @property
    def kind(self) -> ExportKind:
        return ExportKind.TAIL


Export = Index | MaterializedView | Tail


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectToBuild:
    """One collection that the dataflow computes; exported, or internal with a transient id."""

    id: GlobalId
    plan: PlanValue


@dataclass(frozen=True, slots=True, kw_only=True)
class DataflowDescription:
    """Everything an instance needs to render one dataflow.

    ``exports`` has at least one element. ``objects`` are in building order: each reads imports and earlier
    objects only. The outputs are right at ``as_of`` and every later step before ``until``.
    """

    imports: tuple[GlobalId, ...]
    objects: tuple[ObjectToBuild, ...]
    exports: tuple[Export, ...]
    as_of: Antichain
    until: Antichain = CLOSED

    @property
    def export_ids(self) -> tuple[GlobalId, ...]:
        return tuple(export.id for export in self.exports)

    @property
    def is_tail(self) -> bool:
        return any(export.kind is ExportKind.TAIL for export in self.exports)


def normalised_objects(description: DataflowDescription) -> tuple[tuple[GlobalId | Internal, PlanValue], ...]:
    """The objects to build with internal transient ids renumbered by first appearance.

    Internal is what this dataflow builds under a transient id and does not export. An object appears when it is
    built, which is before anything reads it, so building order is order of appearance.
    """
    exported = set(description.export_ids)
    names: dict[GlobalId, Internal] = {}
    for built in description.objects:
        if built.id.is_transient and built.id not in exported and built.id not in names:
            names[built.id] = Internal(len(names))
    return tuple((names.get(built.id, built.id), substitute(built.plan, names)) for built in description.objects)
