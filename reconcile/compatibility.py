"""Compatibility: whether an installed dataflow can go on in place of a requested one, and every reason why not."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar

from reconcile.dataflow import DataflowDescription, ExportKind, normalised_objects
from reconcile.frontiers import Antichain
from reconcile.ids import GlobalId
from reconcile.limits import PLAN_DIFFERENCES_MAX
from reconcile.plan_tree import differences


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportsDiffer:
    """Not the same set of exports, as created."""

    name: ClassVar[str] = "exports-differ"
    installed: tuple[GlobalId, ...]
    requested: tuple[GlobalId, ...]

    def __str__(self) -> str:
        return f"it exports {_listed(self.installed)}, not {_listed(self.requested)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class KindDiffers:
    """An export is offered in another way."""

    name: ClassVar[str] = "kind-differs"
    export: GlobalId
    installed: ExportKind
    requested: ExportKind

    def __str__(self) -> str:
        return f"{self.export} is of kind {self.installed}, not {self.requested}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportsDiffer:
    """Not the same set of imports."""

    name: ClassVar[str] = "imports-differ"
    only_installed: tuple[GlobalId, ...]
    only_requested: tuple[GlobalId, ...]

    def __str__(self) -> str:
        parts = []
        if self.only_installed:
            parts.append(f"no longer imports {_listed(self.only_installed)}")
        if self.only_requested:
            parts.append(f"now imports {_listed(self.only_requested)}")
        return " and ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanDiffers:
    """Something else is computed; ``fields`` names where, at most ``PLAN_DIFFERENCES_MAX`` of them."""

    name: ClassVar[str] = "plan-differs"
    fields: tuple[str, ...]

    def __str__(self) -> str:
        return f"its plan differs in {', '.join(self.fields)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SincePastAsOf:
    """An export can no longer be read as early as requested."""

    name: ClassVar[str] = "since-past-as-of"
    export: GlobalId
    installed_since: Antichain
    requested_since: Antichain

    def __str__(self) -> str:
        return f"{self.export} is readable from {self.installed_since}, not from {self.requested_since}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DependencyReplaced:
    """It reads an export of this instance that is not kept, or that was rendered after it."""

    name: ClassVar[str] = "dependency-replaced"
    imports: tuple[GlobalId, ...]

    def __str__(self) -> str:
        return f"it reads {_listed(self.imports)}, rendered anew"


@dataclass(frozen=True, slots=True, kw_only=True)
class TailNeverKept:
    """A tail is cheap, and is rendered anew where its reader stands."""

    name: ClassVar[str] = "tail"

    def __str__(self) -> str:
        return "a tail starts anew where its reader stands"


Reason = ExportsDiffer | KindDiffers | ImportsDiffer | PlanDiffers | SincePastAsOf | DependencyReplaced | TailNeverKept

#: The order in which reasons are told.
REASONS: tuple[type[Reason], ...] = (
    ExportsDiffer,
    KindDiffers,
    ImportsDiffer,
    PlanDiffers,
    SincePastAsOf,
    DependencyReplaced,
    TailNeverKept,
)


def incompatibilities(
    installed: DataflowDescription,
    installed_sinces: Mapping[GlobalId, Antichain],
    requested: DataflowDescription,
    requested_sinces: Mapping[GlobalId, Antichain],
) -> Iterator[Reason]:
    """Every reason, seen from these two alone, why ``installed`` cannot serve as ``requested``.

    Whether its dependencies are kept is the business of ``plan``, which sees all dataflows.
    """
    if set(installed.export_ids) != set(requested.export_ids):
        yield ExportsDiffer(installed=installed.export_ids, requested=requested.export_ids)
    yield from _kinds(installed, requested)
    if set(installed.imports) != set(requested.imports):
        yield ImportsDiffer(
            only_installed=tuple(id for id in installed.imports if id not in requested.imports),
            only_requested=tuple(id for id in requested.imports if id not in installed.imports),
        )
    fields = tuple(islice(_plan_differences(installed, requested), PLAN_DIFFERENCES_MAX))
    if fields:
        yield PlanDiffers(fields=fields)
    for id, since in requested_sinces.items():
        if id in installed_sinces and installed_sinces[id] > since:
            yield SincePastAsOf(export=id, installed_since=installed_sinces[id], requested_since=since)
    if requested.is_tail:
        yield TailNeverKept()


def _kinds(installed: DataflowDescription, requested: DataflowDescription) -> Iterator[Reason]:
    if installed.exports == requested.exports:
        return
    ours = {export.id: export.kind for export in installed.exports}
    for export in requested.exports:
        if export.id in ours and ours[export.id] is not export.kind:
            yield KindDiffers(export=export.id, installed=ours[export.id], requested=export.kind)


def _plan_differences(installed: DataflowDescription, requested: DataflowDescription) -> Iterator[str]:
    """Names what is computed otherwise: objects, the keys of exports, the end."""
    if installed.objects != requested.objects:
        yield from _object_differences(installed, requested)
    if installed.exports != requested.exports:
        ours = {export.id: export for export in installed.exports}
        for export in requested.exports:
            other = ours.get(export.id)
            if other is not None and other.kind is export.kind and other != export:
                yield f"export {export.id}"
    if installed.until != requested.until:
        yield "until"


def _object_differences(installed: DataflowDescription, requested: DataflowDescription) -> Iterator[str]:
    ours, theirs = dict(normalised_objects(installed)), dict(normalised_objects(requested))
    if ours != theirs:
        for id in dict.fromkeys([*ours, *theirs]):
            if id not in ours or id not in theirs:
                yield str(id)
            elif ours[id] != theirs[id]:
                for path in differences(ours[id], theirs[id]):
                    yield f"{id}.{path}" if path else str(id)


def _listed(ids: tuple[GlobalId, ...]) -> str:
    return ", ".join(str(id) for id in ids) or "nothing"
