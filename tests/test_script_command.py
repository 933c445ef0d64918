"""``plainsong script`` prints what the machine did, and says by its exit code whether that was right."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from adapter.cli import app

RIGHT = """# A promise.
machine schedule

add-replica r1
create-source s1 singleton
----
run s1 on r1 writer-epoch=1
"""
WRONG = RIGHT.replace("on r1 writer", "on r2 writer")


def run(*arguments: str | Path) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["script", *map(str, arguments)])
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def script(tmp_path: Path) -> Path:
    return tmp_path / "case.txt"


def test_a_script_that_agrees_is_printed_and_exits_0(script: Path) -> None:
    script.write_text(RIGHT)

    code, out, _ = run(script)

    assert (code, out) == (0, RIGHT)


def test_a_script_that_differs_is_printed_with_the_actual_outputs_and_exits_1(script: Path) -> None:
    script.write_text(WRONG)

    code, out, err = run(script)

    assert (code, out) == (1, RIGHT)
    assert f"{script}:6: the outputs differ" in err
    assert "- run s1 on r2" in err
    assert "+ run s1 on r1" in err
    assert script.read_text() == WRONG


def test_rewrite_writes_the_actual_outputs_back(script: Path) -> None:
    script.write_text(WRONG)

    assert run("--rewrite", script)[0] == 0

    assert script.read_text() == RIGHT
    assert run(script)[0] == 0


def test_a_block_that_does_nothing_says_so(script: Path) -> None:
    script.write_text("machine schedule\n\nforget\n----\n")

    run("--rewrite", script)

    assert script.read_text() == "machine schedule\n\nforget\n----\n(nothing)\n"


def test_comments_stay_where_they_are(script: Path) -> None:
    text = "# one\nmachine schedule\n# two\n\nadd-replica r1\n# three\nshow\n----\n(nothing)\n# four\n\n# five\n"
    script.write_text(text)

    assert run(script)[:2] == (0, text)


def test_json_is_for_machines(script: Path) -> None:
    script.write_text(WRONG)

    code, out, _ = run("-o", "json", script)

    assert code == 1
    assert json.loads(out) == [
        {
            "file": str(script),
            "status": "differs",
            "blocks": 1,
            "differences": [
                {
                    "line": 6,
                    "expected": ["run s1 on r2 writer-epoch=1"],
                    "actual": ["run s1 on r1 writer-epoch=1"],
                }
            ],
        }
    ]


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("", None, "the file names no machine"),
        ("# only a comment\n", None, "the file names no machine"),
        ("mashine instance\n", 1, "expected 'machine NAME'"),
        ("machine\n", 1, "expected 'machine NAME'"),
        ("\nmachine loom\n", 2, "unknown machine 'loom'"),
        ("machine history\n\nshow\n", 3, "no '----'"),
        ("machine history\n\n----\nshow\n", 3, "no input line"),
        ("machine history\n\nshow\n----\nx\n----\ny\n", 6, "a second '----'"),
        ("machine history\n\nshow\nshwo\n----\n", 4, "unknown verb 'shwo'"),
        ("machine history\n\nshow now\n----\n", 3, "does not take 'now'"),
        ("machine history\n\nallow-compaction u1\n----\n", 3, "needs a frontier"),
        ("machine history\n\nallow-compaction u1 -3\n----\n", 3, "'-3' is not a number"),
        ("machine history\n\nallow-compaction q1 3\n----\n", 3, "'q1' is not a collection"),
        ("machine history\n\nallow-compaction u 3\n----\n", 3, "'u' is not a collection"),
        ("machine history\n\npeek p1 u1\n----\n", 3, "needs at="),
        ("machine history\n\npeek p1 u1 at=[]\n----\n", 3, "'[]' is not a number"),
        ("machine history\n\npeek x1 u1 at=1\n----\n", 3, "'x1' is not a peek"),
        ('machine history\n\ncreate-dataflow exports= imports= plan="" as_of=0\n----\n', 3, "at least one"),
        ('machine history\n\ncreate-dataflow exports=u1 imports= plan="a as_of=0\n----\n', 3, "not closed"),
        ("machine history\n\ncreate-dataflow exports=u1 imports= plan=a as_of=0\n----\n", 3, "not a text"),
        ('machine history\n\ncreate-dataflow exports=u1 imports= plan="" as_of=0 kind=heap\n----\n', 3, "not a kind"),
        ("machine history\n\nconnect epoch=1 session=a\n----\n", 3, "unknown verb 'connect'"),
        ("machine instance\n\nconnect epoch=1 epoch=2 session=a\n----\n", 3, "given twice"),
        ("machine instance\n\nconnect epoch=1 session=a\nconnect epoch=1 session=a\n----\n", 4, "was used before"),
        ("machine instance\n\n@a connect epoch=1 session=b\n----\n", 3, "leave out the @NAME"),
        ("machine instance\n\n@a upper u1 3\n----\n", 3, "unknown verb 'upper'"),
        ("machine merge\n\nr1: shout u1\n----\n", 3, "a replica does not say 'shout'"),
        ("machine merge\n\nr1: tail t1 0 5 x\n----\n", 3, "'x' is not an update"),
        ('machine storage\n\ncreate-source s1 def="a=1;a=2"\n----\n', 3, "not a new name=value"),
        ("machine schedule\n\ncreate-source s1 sometimes\n----\n", 3, "neither 'singleton' nor 'everywhere'"),
    ],
)
def test_what_is_no_script_is_refused_with_file_line_and_reason(
    script: Path, text: str, line: int | None, reason: str
) -> None:
    script.write_text(text)

    code, out, err = run("--rewrite", script)

    assert code == 2
    assert out == ""
    assert err.startswith(f"{script}:{line}: " if line else f"{script}: ")
    assert reason in err
    assert script.read_text() == text


def test_a_file_that_is_missing_or_no_text_is_refused(tmp_path: Path) -> None:
    binary = tmp_path / "binary.txt"
    binary.write_bytes(b"machine \xff\xfe")

    assert "cannot be read: No such file" in run(tmp_path / "none.txt")[2]
    assert "not UTF-8" in run(binary)[2]
    assert run(binary)[0] == run(tmp_path / "none.txt")[0] == 2


def test_one_bad_file_does_not_hide_the_others(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("nonsense\n")
    (tmp_path / "b.txt").write_text(WRONG)
    (tmp_path / "c.txt").write_text(RIGHT)

    code, out, err = run(tmp_path)

    assert code == 2
    assert out == RIGHT + RIGHT
    assert "1 agree, 1 differ, 1 cannot be read" in err


def test_a_folder_without_scripts_is_said(tmp_path: Path) -> None:
    assert run(tmp_path)[0] == 2
