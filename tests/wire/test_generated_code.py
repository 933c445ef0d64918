"""What is committed beside the ``.proto`` files is what they generate, and they keep to the rules of ``buf``."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
COMMITTED = ROOT / "proto"


def generated(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*_pb2*.py*"))}


def test_generated_code_is_current(tmp_path: Path) -> None:
    subprocess.run([sys.executable, COMMITTED / "generate.py", tmp_path], check=True, capture_output=True)

    fresh = generated(tmp_path)
    committed = {name: text for name, text in generated(COMMITTED).items() if "__pycache__" not in name}
    assert fresh.keys() == committed.keys(), "run proto/generate.py"
    assert [name for name in fresh if fresh[name] != committed[name]] == [], "run proto/generate.py"
    assert len(fresh) == 4 * len(list(COMMITTED.rglob("*.proto")))


def test_generated_code_names_no_machine() -> None:
    strays = [name for name, text in generated(COMMITTED).items() if str(ROOT).encode() in text]

    assert strays == []


def test_the_protos_keep_to_the_rules() -> None:
    linted = subprocess.run(
        [Path(sys.executable).parent / "buf", "lint"], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert (linted.stdout, linted.stderr, linted.returncode) == ("", "", 0)
