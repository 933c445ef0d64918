"""Sources: what fills a collection from outside, and how two definitions of one compare."""

from dataclasses import dataclass

from reconcile.ids import GlobalId, WriterEpoch


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceDescription:
    """One source as requested.

    ``definition`` maps field names to values, in any order, none twice. ``alterable`` are the fields in which it
    may differ from an installed one. A singleton source carries the writer epoch that lets it write its shard.
    """

    id: GlobalId
    definition: tuple[tuple[str, str], ...]
    alterable: tuple[str, ...] = ()
    writer_epoch: WriterEpoch | None = None


def is_table(source: SourceDescription) -> bool:
    """Whether the controller is its upstream: then appends advance it, not steps."""
    return dict(source.definition).get("type") == "table"


def differing_fields(installed: SourceDescription, requested: SourceDescription) -> tuple[str, ...]:
    """The fields that differ, a field that only one side has among them."""
    ours, theirs = dict(installed.definition), dict(requested.definition)
    return tuple(name for name in dict.fromkeys([*ours, *theirs]) if ours.get(name) != theirs.get(name))
