"""Each file of a folder is taken exactly once, whatever is interrupted."""

import json
import os
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from instance.storage import folder as folders
from instance.storage.feed import Batch
from instance.storage.file_reading import arrow_reader
from instance.storage.folder import BadInput, Folder
from plainsong.types import schema
from reconcile.errors import StorageFailed
from reconcile.ids import WriterEpoch
from reconcile.source_types import FileFormat, FilesOptions, OnBad

COLUMNS = schema([("id", "bigint", True)])


class Place:
    """A folder of files, and beside it what is kept of what was taken."""

    def __init__(self, root: Path) -> None:
        self.files = root / "files"
        self.beside = root / "beside"
        self.files.mkdir()
        self.notes: list[str] = []

    def opened(self, position: str = "", epoch: int = 1, on_bad: OnBad = OnBad.KEEP_ASIDE) -> Folder:
        """As a new process would."""
        options = FilesOptions(path=str(self.files), format=FileFormat.CSV, on_bad=on_bad)
        folder = Folder(
            options,
            arrow_reader(options, COLUMNS),
            COLUMNS,
            taken=self.beside / "taken",
            rejected=self.beside / "rejected",
            note=self.notes.append,
        )
        folder.open(position, WriterEpoch(epoch))
        return folder

    def write(self, name: str, *ids: object) -> None:
        (self.files / name).write_text("id\n" + "".join(f"{id}\n" for id in ids))

    def aside(self) -> list[dict[str, object]]:
        files = sorted((self.beside / "rejected").glob("*.jsonl"))
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def settled(folder: Folder) -> None:
    folder.look()
    folder.look()


def taken(folder: Folder) -> list[Batch]:
    batches = []
    while (batch := folder.take()) is not None:
        batches.append(batch)
    return batches


def ids(batches: list[Batch]) -> list[int]:
    return [id for batch in batches for id in batch.rows["id"].to_pylist()]


def test_files_are_taken_once_and_new_ones_as_they_come(place: Place) -> None:
    folder = place.opened()
    place.write("a.csv", 1, 2)

    settled(folder)
    assert ids(taken(folder)) == [1, 2]
    place.write("b.csv", 3)
    settled(folder)

    assert ids(taken(folder)) == [3]
    settled(folder)
    assert taken(folder) == []


def test_a_file_that_still_grows_is_not_taken(place: Place) -> None:
    folder = place.opened()
    place.write("a.csv", 1)

    assert not folder.look()
    place.write("a.csv", 1, 2)
    assert not folder.look()
    assert folder.take() is None
    assert folder.look()

    assert ids(taken(folder)) == [1, 2]


def test_a_file_that_is_only_touched_is_the_same_and_one_with_other_content_is_not(place: Place) -> None:
    folder = place.opened()
    place.write("a.csv", 1)
    settled(folder)
    taken(folder)

    os.utime(place.files / "a.csv", ns=(1, 1))
    settled(folder)
    assert taken(folder) == []
    place.write("a.csv", 7)
    settled(folder)

    assert ids(taken(folder)) == [7]


def test_hidden_files_other_names_and_folders_are_left_alone(place: Place) -> None:
    place.write(".a.csv", 1)
    place.write("_b.csv", 2)
    place.write("c.txt", 3)
    (place.files / "d.csv").mkdir()
    folder = place.opened()

    settled(folder)

    assert taken(folder) == []


def test_names_may_hold_anything(place: Place) -> None:
    names = ['a "b".csv', "new\nline.csv", "100%.csv", "\N{PILE OF POO}.csv", os.fsdecode(b"\xff.csv"), "..csv.csv"]
    for number, name in enumerate(names):
        place.write(name, number, "bad")
    folder = place.opened()

    settled(folder)
    (batch,) = taken(folder)

    assert sorted(ids([batch])) == [0, 1, 2, 3, 4]  # the last begins with a dot
    assert sorted(str(row["file"]) for row in place.aside()) == sorted(names[:5])
    again = place.opened(batch.position)
    settled(again)
    assert taken(again) == []


def test_what_was_not_committed_is_taken_again(place: Place) -> None:
    place.write("a.csv", 1)
    first = place.opened()
    settled(first)
    (committed,) = taken(first)
    place.write("b.csv", 2)
    settled(first)
    taken(first)  # never committed

    second = place.opened(committed.position, epoch=2)
    settled(second)

    assert ids(taken(second)) == [2]


def test_a_fenced_writer_spoils_nothing(place: Place) -> None:
    place.write("a.csv", 1)
    old = place.opened(epoch=1)
    settled(old)
    (committed,) = taken(old)
    new = place.opened(committed.position, epoch=2)
    place.write("b.csv", 2)
    settled(old)
    taken(old)

    settled(new)
    (theirs,) = taken(new)

    assert ids([theirs]) == [2]
    assert ids(taken(place.opened(theirs.position, epoch=3))) == []


def test_a_damaged_list_of_taken_files_is_an_error_and_not_a_fresh_start(place: Place) -> None:
    place.write("a.csv", 1)
    folder = place.opened()
    settled(folder)
    (batch,) = taken(folder)

    for file in (place.beside / "taken").iterdir():
        file.write_text("")

    with pytest.raises(StorageFailed, match="damaged"):
        place.opened(batch.position, epoch=2)


def test_a_large_file_is_taken_in_pieces_and_resumed_in_the_middle(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "_BATCH_ROWS", 1)
    monkeypatch.setattr("instance.storage.file_reading.PIECE_BYTES", 20)
    place.write("a.csv", *range(100))
    folder = place.opened()
    settled(folder)
    some = [folder.take() for _ in range(5)]
    batches = [batch for batch in some if batch is not None]

    again = place.opened(batches[-1].position, epoch=2)
    rest = taken(again)

    assert len(rest) > 5
    assert ids(batches) + ids(rest) == list(range(100))
    settled(again)
    assert taken(again) == []


def test_a_file_that_is_being_taken_is_not_found_again(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "_BATCH_ROWS", 3)
    monkeypatch.setattr("instance.storage.file_reading.PIECE_BYTES", 16)
    place.write("a.csv", *range(12))
    folder = place.opened()
    settled(folder)
    begun = folder.take()
    assert begun is not None

    settled(folder)

    assert ids([begun, *taken(folder)]) == list(range(12))


def test_a_file_that_changes_while_it_is_taken_is_trouble(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "_BATCH_ROWS", 1)
    monkeypatch.setattr("instance.storage.file_reading.PIECE_BYTES", 20)
    place.write("a.csv", *range(100))
    folder = place.opened()
    settled(folder)
    first = folder.take()
    assert first is not None

    place.write("a.csv", *range(100, 300))

    with pytest.raises(BadInput, match="changed while it was taken"):
        folder.take()
    with pytest.raises(BadInput, match="changed while it was taken"):
        place.opened(first.position, epoch=2)


def test_rows_that_do_not_fit_are_kept_aside_once_with_file_line_and_reason(place: Place) -> None:
    place.write("a.csv", 1, "x", 2, "")
    place.write("b.csv", "y")
    (place.files / "c.csv").write_text("other\n1\n")

    for epoch in (1, 2):  # the first is never committed
        folder = place.opened(epoch=epoch)
        settled(folder)
        (batch,) = taken(folder)
        assert ids([batch]) == [1, 2]

    aside = place.aside()
    assert [(row["file"], row["line"], row["text"]) for row in aside] == [
        ("a.csv", 3, "x"),
        ("b.csv", 2, "y"),
        ("c.csv", 1, ""),
    ]
    assert "none of the columns" in str(aside[2]["reason"])
    assert place.notes[-1].startswith("3 rows were kept aside in ")
    place.opened(batch.position, epoch=3)
    assert place.notes[-1].startswith("3 rows were kept aside in ")


def test_a_file_with_a_row_that_is_refused_is_not_taken_at_all_until_it_is_corrected(place: Place) -> None:
    place.write("a.csv", 1)
    os.utime(place.files / "a.csv", ns=(1, 1))
    place.write("b.csv", 2, "x")
    folder = place.opened(on_bad=OnBad.REFUSE)
    settled(folder)

    first = folder.take()
    assert first is not None
    assert ids([first]) == [1]
    with pytest.raises(BadInput, match=r"b.csv line 3 does not fit: .*'x'"):
        folder.take()

    place.write("b.csv", 2, 3)
    folder.open(first.position, WriterEpoch(1))
    settled(folder)
    assert ids(taken(folder)) == [2, 3]


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_every_row_is_taken_exactly_once_across_interruptions(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    place = Place(tmp_path_factory.mktemp("place"))
    committed: list[int] = []
    position, epoch, written = "", 1, 0
    folder = place.opened()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(folders, "_BATCH_ROWS", 3)
        patch.setattr("instance.storage.file_reading.PIECE_BYTES", 16)
        for _ in range(data.draw(st.integers(1, 12))):
            match data.draw(st.sampled_from(["write", "look", "take", "lose", "trouble"])):
                case "write":
                    rows = data.draw(st.integers(0, 12))
                    place.write(f"{data.draw(st.sampled_from('abc'))}{written}.csv", *range(written, written + rows))
                    written += rows
                case "look":
                    folder.look()
                case "take":
                    if (batch := folder.take()) is not None:
                        committed += ids([batch])
                        position = batch.position
                case "lose":
                    folder.take()
                    epoch += 1
                    folder = place.opened(position, epoch)
                case _:
                    folder.take()
                    folder.open(position, WriterEpoch(epoch))
        settled(folder)
        committed += ids(taken(folder))

    assert Counter(committed) == Counter(range(written))
