"""Files of runs are whole or recognised as damaged, and a crash leaves nothing behind that stays."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from instance.spine import files as files_module
from instance.spine.files import RunFiles
from instance.spine.manifest import Manifest
from instance.spine.sizes import Sizes
from instance.spine.spine import Spine
from plainsong.types import schema
from reconcile.errors import InvariantBroken, StorageFailed
from reconcile.frontiers import CLOSED, Antichain
from tests.spine.model import SMALL, counted, merge_all, save, table_of

ROOT = Path(__file__).parents[2]
COLUMNS = schema([("key", "bigint"), ("value", "string")])


def rows(step: int, count: int, diff: int = 1) -> pa.Table:
    return table_of(COLUMNS, [((number, f"v{number}"), step, diff) for number in range(count)])


def filled(folder: Path, steps: int = 6) -> tuple[Spine, RunFiles]:
    files = RunFiles(folder)
    spine = Spine(COLUMNS, ["key"], files, sizes=SMALL)
    for step in range(steps):
        spine.insert(rows(step, 5))
        merge_all(spine)
    return spine, files


def test_a_manifest_brings_everything_back(tmp_path: Path) -> None:
    spine, _ = filled(tmp_path)
    spine.compact(Antichain.at(3))
    save(spine)
    text = json.dumps(spine.manifest(Antichain.at(6)).to_json())

    manifest = Manifest.from_json(json.loads(text))
    restored = Spine.restore(RunFiles(tmp_path), manifest, whole=True)

    assert (restored.key, restored.horizon, restored.newest, manifest.upper) == (("key",), 2, 5, Antichain.at(6))
    assert restored.schema.equals(COLUMNS)
    assert restored.bytes_in_memory == 0
    for at in range(2, 7):
        assert counted(restored.contents(at)) == counted(spine.contents(at))
    assert json.dumps(restored.manifest(Antichain.at(6)).to_json()) == text


def test_a_closed_upper_and_an_empty_spine_survive_too(tmp_path: Path) -> None:
    manifest = Spine(COLUMNS, (), RunFiles(tmp_path)).manifest(CLOSED)

    restored = Spine.restore(RunFiles(tmp_path), Manifest.from_json(manifest.to_json()))

    assert (manifest.upper, restored.rows, manifest.files) == (CLOSED, 0, ())


def test_a_spine_in_memory_writes_nothing_and_has_no_manifest() -> None:
    spine = Spine(COLUMNS, ())
    spine.insert(rows(1, 5))

    assert spine.saving() is None
    with pytest.raises(InvariantBroken, match="in memory"):
        spine.manifest(Antichain.at(2))


def test_large_runs_are_in_files_and_small_ones_after_saving(tmp_path: Path) -> None:
    spine, files = filled(tmp_path, steps=10)
    assert 0 < spine.bytes_in_memory < spine.bytes

    save(spine)

    assert spine.bytes_in_memory == 0
    named = set(spine.manifest(Antichain.at(10)).files)
    assert named <= set(files.names())


def test_a_file_is_obsolete_once_no_manifest_that_is_kept_names_it(tmp_path: Path) -> None:
    spine, files = filled(tmp_path)
    save(spine)
    old = spine.manifest(Antichain.at(6))
    files.remove(spine.obsolete(old))
    assert set(files.names()) == set(old.files)

    for step in range(6, 30):
        spine.insert(rows(step, 5))
        merge_all(spine)
    save(spine)
    new = spine.manifest(Antichain.at(30))
    between = spine.obsolete(old, new)
    assert between
    assert not set(between) & {*old.files, *new.files}
    files.remove(between)
    files.remove(spine.obsolete(new))

    assert set(files.names()) == set(new.files)
    assert spine.obsolete(new) == ()
    restored = Spine.restore(RunFiles(tmp_path), new)
    assert counted(restored.contents()) == counted(spine.contents())


def test_files_of_a_manifest_that_is_kept_for_later_are_not_leftovers(tmp_path: Path) -> None:
    spine, _ = filled(tmp_path)
    old = spine.manifest(Antichain.at(6))
    before = counted(spine.contents())
    for step in range(6, 30):
        spine.insert(rows(step, 5))
        merge_all(spine)
    new = spine.manifest(Antichain.at(30))

    Spine.restore(RunFiles(tmp_path), new, kept=[old])

    assert counted(Spine.restore(RunFiles(tmp_path), old).contents()) == before


@given(st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_byte_that_changed_is_recognised_when_all_is_read(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("runs")
    spine, _ = filled(folder)
    save(spine)
    manifest = spine.manifest(Antichain.at(6))
    path = folder / data.draw(st.sampled_from(manifest.files))
    content = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)

    with pytest.raises(StorageFailed):
        Spine.restore(RunFiles(folder), manifest, whole=True)


@pytest.mark.parametrize("damage", ["cut", "longer", "footer", "empty", "missing", "exchanged", "noise"])
def test_a_file_that_is_not_the_one_that_was_written_is_recognised_at_once(tmp_path: Path, damage: str) -> None:
    spine, files = filled(tmp_path)
    save(spine)
    manifest = spine.manifest(Antichain.at(6))
    path = tmp_path / manifest.files[0]
    content = path.read_bytes()

    if damage == "cut":
        path.write_bytes(content[: len(content) // 2])
    elif damage == "longer":
        path.write_bytes(content + b"\0" * 8)
    elif damage == "footer":
        path.write_bytes(content[:-40] + bytes([content[-40] ^ 1]) + content[-39:])
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "missing":
        path.unlink()
    elif damage == "exchanged":
        other = Spine(schema([("other", "int")]), (), files, sizes=Sizes(file_rows=1))
        other.insert(table_of(other.schema, [((1,), 1, 1)]))
        merge_all(other)
        (tmp_path / other.manifest(Antichain.at(2)).files[0]).rename(path)
    else:
        path.write_bytes(os.urandom(len(content)))

    with pytest.raises(StorageFailed):
        Spine.restore(RunFiles(tmp_path), manifest)


@pytest.mark.parametrize("change", [{"format": 2}, {"hashes": 99}, {"schema": "!"}, {"runs": [{}]}, {"horizon": None}])
def test_a_manifest_that_is_damaged_or_of_another_version_is_refused(tmp_path: Path, change: dict[str, object]) -> None:
    spine, _ = filled(tmp_path)
    whole = spine.manifest(Antichain.at(6)).to_json()

    with pytest.raises(StorageFailed):
        Manifest.from_json({**whole, **change})
    with pytest.raises(StorageFailed):
        Manifest.from_json({name: whole[name] for name in whole if name not in change})


def test_a_merge_that_the_disk_has_no_room_for_changes_nothing(tmp_path: Path) -> None:
    spine, _ = filled(tmp_path / "runs")
    before = counted(spine.contents())
    merge = spine.saving()
    assert merge is not None
    # A folder that is gone stands for every disk that cannot be written to, also for root.
    (tmp_path / "runs").rename(tmp_path / "elsewhere")

    with pytest.raises(StorageFailed, match="cannot write"):
        merge.run()
    spine.abandon(merge)
    (tmp_path / "elsewhere").rename(tmp_path / "runs")

    assert counted(spine.contents()) == before
    save(spine)
    assert spine.bytes_in_memory == 0
    spine.check()


@pytest.mark.parametrize("point", ["spine-part-written", "spine-part-written:3", "spine-synced", "spine-renamed"])
def test_a_process_that_is_killed_while_it_writes_loses_nothing_that_a_manifest_names(
    tmp_path: Path, point: str
) -> None:
    spine, _ = filled(tmp_path)
    save(spine)
    manifest = spine.manifest(Antichain.at(6))
    (tmp_path / "manifest.json").write_text(json.dumps(manifest.to_json()))
    expected = counted(spine.contents())

    environment = {**os.environ, "PLAINSONG_FAILPOINT": point, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'proto'}"}
    command = [sys.executable, "-P", "-m", "tests.spine.victim", str(tmp_path)]
    killed = subprocess.run(command, env=environment, cwd=ROOT, check=False, capture_output=True, timeout=60)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    assert len(list(tmp_path.iterdir())) > 1 + len(manifest.files)

    restored = Spine.restore(RunFiles(tmp_path), manifest, whole=True)
    assert counted(restored.contents()) == expected
    assert {path.name for path in tmp_path.iterdir()} == {"manifest.json", *manifest.files}
    restored.insert(rows(6, 5))
    save(restored)
    restored.check()


def test_a_file_is_synced_before_it_has_its_name_and_its_name_before_anybody_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spine, _ = filled(tmp_path)
    synced: list[tuple[Path, set[str]]] = []
    sync = files_module.sync

    def names() -> set[str]:
        return {path.name for path in tmp_path.iterdir()}

    def told(path: Path) -> None:
        synced.append((path, names()))
        sync(path)

    monkeypatch.setattr(files_module, "sync", told)
    before = names()
    merge = spine.saving()
    assert merge is not None
    run = merge.run()

    assert run is not None
    assert run.file is not None
    name = run.file.name
    assert synced == [(tmp_path / f"{name}.new", before | {f"{name}.new"}), (tmp_path, before | {name})]
