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
    found: dict[str, str] = {}
    for one in given:
        name, equals, value = one.partition("=")
        if not equals or not name.startswith("spark."):
            raise InvalidRequest(
                f"{one!r} is no setting of Spark", hint="give name=value, as in spark.driver.memory=2g"
            )
        found[name] = value
    return found
