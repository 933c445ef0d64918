"""Plan trees: what a dataflow computes, as plain values that can be compared field by field.

A plan is never compared as bytes. Two plans are the same when their trees are equal after the transient ids that
are internal to a dataflow were renumbered by first appearance, because those are allotted anew by every
controller and mean nothing outside. Fractional numbers enter as their exact text: floats do not compare safely.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from reconcile.ids import GlobalId


class Internal(NamedTuple):
    """Stands in a normalised plan for the n-th internal transient id."""

    place: int

    def __str__(self) -> str:
        return f"internal {self.place}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One operator: its name and its named fields, inputs among them, in the operator's own order."""

    op: str
    fields: tuple[tuple[str, "PlanValue"], ...] = ()


PlanValue: TypeAlias = "bool | int | str | bytes | GlobalId | Internal | tuple[PlanValue, ...] | Node | None"


def substitute(value: PlanValue, names: Mapping[GlobalId, Internal]) -> PlanValue:
    """``value`` with each id in ``names`` replaced; the value itself where nothing is."""
    match value:
        case GlobalId():
            return names.get(value, value)
        case Internal():
            return value
        case tuple():
            return tuple(substitute(item, names) for item in value)
        case Node(op=op, fields=fields):
            return Node(op=op, fields=tuple((name, substitute(item, names)) for name, item in fields))
        case _:
            return value


def differences(installed: PlanValue, requested: PlanValue, path: str = "") -> Iterator[str]:
    """The paths of the fields in which two plans differ, outermost first, e.g. ``filter.predicate``."""
    if installed == requested:
        return
    match installed, requested:
        case Node(op=op), Node(op=other) if op == other:
            yield from _field_differences(installed, requested, f"{path}{op}.")
        case (GlobalId() | Internal(), _) | (_, GlobalId() | Internal()):
            yield path.rstrip(".")
        case tuple(), tuple() if len(installed) == len(requested):
            for place, (ours, theirs) in enumerate(zip(installed, requested, strict=True)):
                yield from differences(ours, theirs, f"{path.rstrip('.')}[{place}].")
        case _:
            yield path.rstrip(".")


def _field_differences(installed: Node, requested: Node, path: str) -> Iterator[str]:
    ours, theirs = dict(installed.fields), dict(requested.fields)
    for name in dict.fromkeys([*ours, *theirs]):
        if name not in ours or name not in theirs:
            yield f"{path}{name}"
        else:
            yield from differences(ours[name], theirs[name], f"{path}{name}.")
