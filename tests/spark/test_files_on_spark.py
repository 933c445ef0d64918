"""A source of files on instances that run on Spark: large files are read by Spark, small ones are not."""

import os
import signal
from collections import Counter
from pathlib import Path

import pytest

from tests.processes.deployment import deployed
from tests.processes.source_models import held
from tests.processes.test_sources import files, rejected
from tests.processes.waiting import online, until

COLUMNS = {"id": "bigint not null", "name": "string", "price": "decimal(8,2)"}
LARGE = 60_000


def write(folder: Path, name: str, first: int, count: int, bad: str = "") -> list[int]:
    """A CSV file that is there as a whole at once; which ids are in it."""
    lines = "".join(f'{n},"name, {n}",{n % 1000}.25\n' for n in range(first, first + count))
    (folder / f".{name}").write_text(f"id,name,price\n{lines}{bad}")
    (folder / f".{name}").rename(folder / name)
    return list(range(first, first + count))


@pytest.mark.heavy
def test_large_files_are_read_by_spark_and_every_row_is_there_once(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    expected = [*write(folder, "small.csv", 0, 100), *write(folder, "large.csv", 1_000_000, LARGE)]
    expected += write(folder, "faulty.csv", 2_000_000, LARGE, bad="x,y,1\n")
    with deployed(tmp_path, "--runtime", "spark", "--spark-master", "local[1]", "--spark-file-mb", "1") as deployment:
        deployment.start()
        with deployment.client() as client:
            client.create_cluster("main", replicas=1)
            client.create_source("read", "files", COLUMNS, options=files(folder))

            def ids() -> Counter[object]:
                return Counter(row[0] for row in held(client, "read").elements())

            until(client, lambda _: ids() == Counter(expected))
            assert [(row["file"], row["line"], row["text"]) for row in rejected(deployment)] == [
                ("faulty.csv", LARGE + 2, "x,y,1")
            ]

            # Killed while it takes a large file: begun by Spark, it is gone on with by Spark.
            expected += write(folder, "later.csv", 3_000_000, 4 * LARGE)
            until(client, lambda _: len(ids()) > len(expected) - 4 * LARGE)
            os.kill(deployment.replica_pid(1), signal.SIGKILL)
            until(client, online(1))
            until(client, lambda _: len(ids()) >= len(expected))
            assert ids() == Counter(expected)
            row = client.query("SELECT id, name, price FROM read WHERE id = 3000007")[0]
            assert (row.id, row.name, str(row.price)) == (3_000_007, "name, 3000007", "7.25")

            client.drop("read")
            staged = deployment.data / "replicas" / "main-1" / "spark" / "scratch" / "files"
            until(client, lambda _: not list(staged.glob("*")))
        logs = deployment.logs()
        for name, by_spark in {"small": False, "large": True, "faulty": True, "later": True}.items():
            assert (f"/{name}.csv is read by Spark" in logs) == by_spark, name
        assert "Traceback" not in logs
