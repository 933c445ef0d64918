"""Logging collections: what a replica tells of itself, by name, id and columns.

Each replica has its own. They are answered from what is so at the moment of the read, not from what was so at a step;
so a read names its replica, and nothing that is maintained can be made of them.
"""

from dataclasses import dataclass

from reconcile.ids import GlobalId

#: The name space of what belongs to the system.
NAMESPACE = "plainsong"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggingCollection:
    """One logging collection; ``columns`` are names with types of Spark SQL."""

    name: str
    id: GlobalId
    columns: tuple[tuple[str, str], ...]


def _collection(number: int, name: str, columns: str) -> LoggingCollection:
    pairs = [column.split(" ") for column in columns.split(", ")]
    return LoggingCollection(
        name=f"{NAMESPACE}.{name}",
        id=GlobalId("l", number),
        columns=tuple((column, type) for column, type in pairs),
    )


FRONTIERS = _collection(1, "frontiers", "id string, kind string, since bigint, upper bigint")
DATAFLOWS = _collection(
    2,
    "dataflows",
    "id string, exports string, imports string, as_of bigint, upper bigint, state string, error string",
)
ARRANGEMENTS = _collection(3, "arrangements", "dataflow string, object string, operator string, rows bigint")
STEPS = _collection(
    4, "steps", "dataflow string, lower bigint, upper bigint, rows_in bigint, rows_out bigint, duration_us bigint"
)
PEEKS = _collection(5, "peeks", "peek bigint, id string, at bigint")

LOGGING = {each.name: each for each in (FRONTIERS, DATAFLOWS, ARRANGEMENTS, STEPS, PEEKS)}
LOGGING_IDS = tuple(each.id for each in LOGGING.values())


def is_reserved(name: str) -> bool:
    """Whether a name belongs to the system, in whatever case it is written."""
    lowered = name.lower()
    return lowered == NAMESPACE or lowered.startswith(f"{NAMESPACE}.")
