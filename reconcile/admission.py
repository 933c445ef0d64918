"""Admission: whether dataflows may be created beside those that are alive.

Checks that ``CreateDataflows`` keeps its promises; each raises before anything has changed.
"""

from collections.abc import Iterable

from reconcile.dataflow import DataflowDescription
from reconcile.errors import ProtocolViolation, Violation
from reconcile.frontiers import Antichain
from reconcile.ids import GlobalId
from reconcile.live import LiveDataflows


def require_creatable(dataflows: Iterable[DataflowDescription], beside: LiveDataflows) -> None:
    """Raises unless all exports are new, all imports known and no ``as_of`` empty."""
    fresh: set[GlobalId] = set()
    for description in dataflows:
        exports = description.export_ids
        for place, id in enumerate(exports):
            if id in exports[:place] or id in fresh or beside.get(id) is not None:
                raise ProtocolViolation(Violation.DUPLICATE_EXPORT, detail=f"{id} exists already")
        if description.as_of.is_closed:
            raise ProtocolViolation(Violation.EMPTY_AS_OF, detail=f"{exports[0]} could never be read")
        for id in description.imports:
            known = id.is_source or id.is_logging or id in fresh or beside.since(id) is not None
            if not known:
                raise ProtocolViolation(Violation.UNKNOWN_IMPORT, detail=f"{exports[0]} reads {id}")
        fresh.update(exports)


def require_readable(dataflows: Iterable[DataflowDescription], beside: LiveDataflows) -> None:
    """Raises unless each dataflow's imports can be read at its ``as_of``; call after ``require_creatable``."""
    fresh: dict[GlobalId, Antichain] = {}
    for description in dataflows:
        for id in description.imports:
            if not (id.is_source or id.is_logging):
                since = fresh.get(id) or beside.since(id)
                if since is None or description.as_of < since:
                    detail = f"{description.export_ids[0]} reads {id} at {description.as_of}, readable from {since}"
                    raise ProtocolViolation(Violation.AS_OF_BEFORE_SINCE, detail=detail)
        fresh.update(dict.fromkeys(description.export_ids, description.as_of))
