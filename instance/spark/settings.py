"""Spark settings: what a session is started with, small-machine defaults first."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

#: Settings that decide results: pinned, because replicas must agree to the bit. Not for anybody to change.
PINNED: Mapping[str, str] = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.caseSensitive": "false",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSettings:
    """How the session of one instance is started."""

    master: str = "local[*]"
    name: str = "plainsong"
    #: One Spark call; beyond it Spark counts as dead and the instance ends, to be started again.
    call_ms_max: int = 120_000
    #: Calls that may be under way at once.
    threads: int = 4
    #: Where Spark would put tables of its own; it makes the folder, so never where the user happens to stand.
    warehouse: Path
    #: The user's own, over the defaults; pinned ones are refused.
    conf: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_local(self) -> bool:
        """Whether everything runs on this machine: in this process, or on a cluster on loopback."""
        return self.master.startswith(("local", "spark://127.0.0.1:", "spark://localhost:"))

    def all_conf(self) -> dict[str, str]:
        """Everything that the session is built with."""
        cores = os.cpu_count() or 1
        defaults = {
            "spark.driver.memory": "1g",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.shuffle.partitions": str(cores),
            "spark.default.parallelism": str(cores),
            # Planning a small step costs more than running it; re-planning it while it runs costs more still.
            "spark.sql.adaptive.enabled": "false",
            "spark.sql.execution.arrow.pyspark.enabled": "true",
            "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
            "spark.scheduler.mode": "FAIR",
            "spark.sql.catalogImplementation": "in-memory",
            "spark.sql.warehouse.dir": str(self.warehouse),
        }
        if self.is_local:
            # The host's own name may resolve to an address that refuses connections.
            defaults |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        return {**defaults, **self.conf, **PINNED}

    def refused(self) -> list[str]:
        """The user's settings that would change results."""
        return [name for name, value in self.conf.items() if name in PINNED and value != PINNED[name]]
