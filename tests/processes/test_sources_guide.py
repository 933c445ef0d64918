"""The program in ``docs/sources.md``, run as its readers would."""

import re
import subprocess
import sys
from pathlib import Path

from controller.settings import Settings
from instance.storage.stepped import BUFFER_BYTES_MAX, BUFFER_ROWS_MAX
from reconcile.source_types import FilesOptions, GeneratorOptions
from tests.processes.deployment import PATIENCE_S, deployed
from tests.processes.source_models import finished, held, made_by
from tests.processes.waiting import until

GUIDE = Path(__file__).parents[2] / "docs" / "sources.md"
MADE = {"flavour": "orders", "rows": "5000", "update_fraction": "0.2"}


def blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)


def test_the_program_in_the_guide_works(tmp_path: Path) -> None:
    folder = tmp_path / "people"
    folder.mkdir()
    (folder / "a.csv").write_text("id,name,born\n1,ann,2001-02-03\n2,bob,\nthree,eve,\n")
    begin, generator, files, shown, grown, total = blocks()
    with deployed(tmp_path) as deployment:
        deployment.start()
        given = f"address, folder = {deployment.address!r}, {str(folder)!r}\n"
        run(tmp_path, given + begin + generator + files)
        with deployment.client() as client:
            finished(client, "orders")
            until(client, lambda _: len(held(client, "people")) == 2)

        connected = given + "import plainsong\nclient = plainsong.connect(address)\n"
        said = run(tmp_path, connected + shown + grown + total)
        (folder / "b.csv").write_text("id,nickname\n3,dodo\n")
        with deployment.client() as client:
            until(client, lambda _: held(client, "people")[3, None, None, "dodo"] == 1)

    status, *rows, count = said.splitlines()
    assert status.startswith("running: 1 row was kept aside in ")
    assert status.endswith("rejected/s2")
    assert rows == ["1 ann", "2 bob"]
    assert int(count) == made_by(MADE).total()


def run(folder: Path, program: str) -> str:
    (folder / "program.py").write_text(program)
    command = [sys.executable, "program.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_guide_names_every_option_and_the_defaults_that_hold() -> None:
    text = GUIDE.read_text()

    for options in (GeneratorOptions, FilesOptions):
        for name in options.__dataclass_fields__:
            assert f"`{name}`" in text
    settings = Settings()
    for name, values in {
        "--step-records-max": settings.step_records_max,
        "--step-linger-ms": settings.step_linger_ms,
        "--step-tick-ms": settings.step_tick_ms,
        "--grant-every-ms": f"{settings.grant_steps}, {settings.grant_every_ms}",
    }.items():
        (row,) = [line for line in text.splitlines() if line.startswith("|") and f"`{name}`" in line]
        assert row.endswith(f"| {values} |")
    assert f"{BUFFER_ROWS_MAX:,} rows or {BUFFER_BYTES_MAX // 2**20} MB" in text
