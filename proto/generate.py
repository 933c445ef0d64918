"""Generates the Python code of the wire from its ``.proto`` files.

``python proto/generate.py [FOLDER]`` writes beside the ``.proto`` files, or below FOLDER. The result depends only on
those files and on the versions of grpcio-tools and mypy-protobuf; a test compares it with what is committed.
"""

import sys
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc  # type: ignore[import-untyped]  # grpcio-tools carries no types

ROOT = Path(__file__).resolve().parent


def protos() -> list[str]:
    """The files to generate from, as they name each other."""
    return sorted(str(path.relative_to(ROOT)) for path in ROOT.rglob("*.proto"))


def generate(folder: Path) -> None:
    """Writes messages, services and the types of both below ``folder``; raises ``RuntimeError`` if protoc fails."""
    beside = Path(sys.executable).parent
    status = protoc.main(
        [
            "protoc",
            f"-I{ROOT}",
            f"-I{files('grpc_tools') / '_proto'}",
            f"--plugin=protoc-gen-mypy={beside / 'protoc-gen-mypy'}",
            f"--plugin=protoc-gen-mypy_grpc={beside / 'protoc-gen-mypy_grpc'}",
            f"--python_out={folder}",
            f"--grpc_python_out={folder}",
            f"--mypy_out={folder}",
            f"--mypy_grpc_out={folder}",
            *protos(),
        ]
    )
    if status != 0:
        raise RuntimeError(f"protoc ended with status {status}")


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)
