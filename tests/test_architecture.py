"""The tree is the architecture diagram: who may import whom."""

import ast
import configparser
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

#: What each part of the project may import of the project.
ARROWS: dict[str, set[str]] = {
    "reconcile": {"reconcile"},
    "proto": {"reconcile", "plainsong"},
    "controller": {"reconcile", "plainsong", "controller"},
    "instance": {"reconcile", "plainsong", "instance"},
    "adapter": {"reconcile", "plainsong", "adapter"},
    "migrations": {"controller", "migrations"},
}
OURS = {*ARROWS, "plainsong"} - {"proto"}

#: Packages that only some parts may import, and which.
RESERVED: dict[str, tuple[str, ...]] = {
    "pyspark": ("instance/spark",),
    "sqlalchemy": ("controller/", "migrations/"),
    "alembic": ("controller/", "migrations/"),
    "grpc": ("proto/", "controller/", "instance/"),
}
#: Reading a clock, waiting, or drawing lots is not for the core.
IMPURE = {"time", "random", "uuid", "asyncio", "threading", "os", "logging", "secrets", "datetime", "subprocess"}


def modules() -> list[Path]:
    return sorted(path for part in ARROWS for path in (ROOT / part).rglob("*.py"))


def imports(path: Path) -> Iterator[str]:
    """The dotted names that a module imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            yield node.module or ""


def top_levels(path: Path) -> set[str]:
    return {name.partition(".")[0] for name in imports(path)}


def part_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0]


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_follow_the_arrows(path: Path) -> None:
    assert top_levels(path) & OURS <= ARROWS[part_of(path)]


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_reserved_packages_stay_in_their_place(path: Path) -> None:
    here = str(path.relative_to(ROOT))
    strays = {name for name, places in RESERVED.items() if name in top_levels(path) and not here.startswith(places)}
    assert strays == set()


@pytest.mark.parametrize("path", sorted((ROOT / "reconcile").rglob("*.py")), ids=lambda path: path.stem)
def test_the_core_imports_the_standard_library_only_and_nothing_impure(path: Path) -> None:
    foreign = top_levels(path) - {"reconcile"}

    assert foreign <= sys.stdlib_module_names
    assert foreign & IMPURE == set()


@pytest.mark.parametrize("path", sorted((ROOT / "reconcile").rglob("*.py")), ids=lambda path: path.stem)
def test_the_core_never_iterates_over_a_set(path: Path) -> None:
    """Order of iteration over a set depends on the hash seed; membership and comparison do not."""
    loops = [
        node.iter for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.For | ast.comprehension)
    ]

    assert [ast.unparse(loop) for loop in loops if isinstance(loop, ast.Set | ast.SetComp)] == []


def test_every_module_says_first_what_it_is() -> None:
    silent = [path for path in modules() if not ast.get_docstring(ast.parse(path.read_text()))]

    assert silent == []


def test_the_wire_is_a_source_root_and_not_a_package() -> None:
    assert not (ROOT / "proto" / "__init__.py").exists()


def test_the_tests_know_every_part_of_the_tree() -> None:
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}

    assert packages - {"tests"} <= set(ARROWS)


def test_every_package_is_installed() -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    installed = set(config["options"]["packages"].split())

    folders = {path.parent for path in modules() if path.parent.name != "proto"}
    packages = {".".join(folder.relative_to(ROOT).parts).removeprefix("proto.") for folder in folders}

    assert packages == installed
