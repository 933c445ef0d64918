"""The runtimes that a replica may have, as they are named on command lines."""

from collections.abc import Iterable
from enum import Enum

from reconcile.errors import InvalidRequest


class RuntimeKind(Enum):
    """What computes the dataflows of a replica."""

    MEMORY = "memory"
    SPARK = "spark"


def spark_settings(given: Iterable[str]) -> dict[str, str]:
    """Settings of Spark from ``name=value``; raises ``InvalidRequest`` for anything else."""
    found = name_values(given, "a setting of Spark")
    for name in found:
        if not name.startswith("spark."):
            raise InvalidRequest(f"{name!r} is not a setting of Spark", hint="as in spark.driver.memory=2g")
    return found


def name_values(given: Iterable[str], what: str) -> dict[str, str]:
    """Reads ``name=value``, each of which is ``what``."""
    found: dict[str, str] = {}
    for one in given:
        name, equals, value = one.partition("=")
        if not equals or not name:
            raise InvalidRequest(f"{one!r} is not {what}", hint="give name=value")
        found[name] = value
    return found
