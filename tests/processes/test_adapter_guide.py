"""The adapter in ``docs/adapters.md``, run as its readers would."""

import re
import subprocess
import sys
from pathlib import Path

from tests.processes.deployment import PATIENCE_S, deployed

GUIDE = Path(__file__).parents[2] / "docs" / "adapters.md"


def program() -> str:
    """The one complete program in the guide."""
    found: str
    (found,) = [
        block for block in re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL) if "def main" in block
    ]
    return found


def test_the_adapter_in_the_guide_works_and_goes_on_over_a_restart(tmp_path: Path) -> None:
    with deployed(tmp_path) as deployment:
        deployment.start()
        (tmp_path / "adapter.py").write_text(program())
        (tmp_path / "orders.csv").write_text("id,customer,amount\n1,ann,5\n2,bob,7\n3,ann,10\n")
        command = [sys.executable, "adapter.py", deployment.address, "orders.csv", "4"]
        adapter = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
        assert adapter.stdout is not None
        lines = [adapter.stdout.readline().strip() for _ in range(3)]

        deployment.kill()
        deployment.start()
        with deployment.client() as client:
            client.insert("orders", [{"id": 4, "customer": "ann", "amount": 100}])
        rest, _ = adapter.communicate(timeout=PATIENCE_S)

        assert lines[0] == "ann has 15"
        assert sorted(line.partition(": ")[2] for line in lines[1:]) == ["+ ann 15", "+ bob 7"]
        assert sorted(line.partition(": ")[2] for line in rest.splitlines()) == ["+ ann 115", "- ann 15"]
        assert adapter.returncode == 0


def test_the_guide_imports_the_client_alone() -> None:
    modules = {
        line.split()[1].partition(".")[0] for line in program().splitlines() if re.match(r"(import|from) ", line)
    }

    assert modules - sys.stdlib_module_names == {"plainsong"}
