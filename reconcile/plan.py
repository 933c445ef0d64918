"""The plan: what an instance must do to turn what is installed into what is requested.

A pure function of two reduced states. What may be kept is kept and costs nothing but compaction; what cannot be
kept is dropped and rendered anew, with every reason that applies; what is not requested is dropped.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from reconcile.compatibility import REASONS, DependencyReplaced, Reason, incompatibilities
from reconcile.frontiers import Antichain
from reconcile.ids import GlobalId
from reconcile.live import LiveDataflow, LiveDataflows


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Keep:
    """``installed`` goes on as ``requested``."""

    installed: LiveDataflow
    requested: LiveDataflow


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Replace:
    """Something is installed for ``requested``, but cannot go on, for all these ``reasons``."""

    requested: LiveDataflow
    reasons: tuple[Reason, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Plan:
    """To be carried out in this order: drops, compactions, renders."""

    #: On the requested dataflows that match an installed one, in requested order.
    verdicts: tuple[Keep | Replace, ...]
    #: Installed dataflows that are replaced or not requested, newest first: readers before what they read.
    drops: tuple[LiveDataflow, ...]
    #: Exports of kept dataflows whose since moves, in requested order.
    compactions: tuple[tuple[GlobalId, Antichain], ...]
    #: Requested dataflows that nothing installed can stand for, in requested order: what is read before readers.
    renders: tuple[LiveDataflow, ...]

    @property
    def is_empty(self) -> bool:
        """Whether the instance already is as requested."""
        return not (self.drops or self.compactions or self.renders)


def plan(installed: LiveDataflows, requested: LiveDataflows) -> Plan:
    """Compares two states in which readers come after what they read."""
    verdicts: list[Keep | Replace] = []
    renders: list[LiveDataflow] = []
    #: For each export of a kept dataflow, the age of the installed dataflow that goes on with it.
    kept_ages: dict[GlobalId, int] = {}
    kept: dict[int, Keep] = {}
    for wanted in requested:
        matches = _matches(installed, wanted)
        reasons = _reasons(matches, wanted, kept_ages)
        if matches and not reasons:
            keep = Keep(installed=matches[0], requested=wanted)
            verdicts.append(keep)
            kept[keep.installed.age] = keep
            kept_ages.update(dict.fromkeys(wanted.sinces, keep.installed.age))
        else:
            if matches:
                verdicts.append(Replace(requested=wanted, reasons=reasons))
            renders.append(wanted)
    return Plan(
        verdicts=tuple(verdicts),
        drops=tuple(dataflow for dataflow in installed.newest_first() if dataflow.age not in kept),
        compactions=tuple(_compactions(kept.values())),
        renders=tuple(renders),
    )


def _matches(installed: LiveDataflows, wanted: LiveDataflow) -> tuple[LiveDataflow, ...]:
    """The installed dataflows that share an export with ``wanted``, each once."""
    found = (installed.get(id) for id in wanted.sinces)
    return tuple({dataflow.age: dataflow for dataflow in found if dataflow is not None}.values())


def _reasons(
    matches: tuple[LiveDataflow, ...], wanted: LiveDataflow, kept_ages: Mapping[GlobalId, int]
) -> tuple[Reason, ...]:
    """Every reason not to keep any of ``matches``, in the order of ``REASONS``."""
    reasons: list[Reason] = []
    for match in matches:
        reasons += incompatibilities(match.description, match.sinces, wanted.description, wanted.sinces)
        reasons += _dependency_reasons(match, wanted, kept_ages)
    if len(reasons) > 1:
        reasons.sort(key=lambda reason: REASONS.index(type(reason)))
    return tuple(reasons)


def _dependency_reasons(
    match: LiveDataflow, wanted: LiveDataflow, kept_ages: Mapping[GlobalId, int]
) -> Iterator[DependencyReplaced]:
    """An import is as it was when ``match`` was rendered only if it is kept and older."""
    replaced = tuple(
        id
        for id in wanted.description.imports
        if not (id.is_source or id.is_logging) and kept_ages.get(id, match.age) >= match.age
    )
    if replaced:
        yield DependencyReplaced(imports=replaced)


def _compactions(kept: Iterable[Keep]) -> Iterator[tuple[GlobalId, Antichain]]:
    for keep in kept:
        for id, since in keep.requested.sinces.items():
            if since > keep.installed.sinces[id]:
                yield id, since
