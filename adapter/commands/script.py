"""``plainsong script``: run text scripts against the pure machines."""

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from adapter.script.document import ScriptError
from adapter.script.runner import Difference, find_scripts, read_script, run_text

EXAMPLES = """
Examples:

  plainsong script tests/scripts                 all scripts below a folder

  plainsong script my_case.txt                   one; prints it with what the machine really did

  plainsong script --rewrite my_case.txt         write the actual outputs into the file

  plainsong script -o json tests/scripts         for machines
"""

AGREE, DIFFER, UNREADABLE = 0, 1, 2


class Output(StrEnum):
    TEXT = "text"
    JSON = "json"


def script(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Script files, or folders of *.txt files.")],
    rewrite: Annotated[bool, typer.Option("--rewrite", help="Write the actual outputs back into the files.")] = False,
    output: Annotated[Output, typer.Option("-o", "--output", help="What to print.")] = Output.TEXT,
) -> None:
    """Run scripts against the pure machines and compare what they do with what the files say.

    Prints each file with the actual outputs. Exits 0 if all agree (or were rewritten), 1 if any differs,
    2 if a file cannot be read as a script.
    """
    results = [_run(path, rewrite, output) for path in find_scripts(files)]
    if not results:
        typer.echo("plainsong script: no *.txt file found there", err=True)
        raise typer.Exit(UNREADABLE)
    if output is Output.JSON:
        typer.echo(json.dumps([report for _, report in results], indent=2))
    else:
        counts = [sum(code == status for code, _ in results) for status in (AGREE, DIFFER, UNREADABLE)]
        typer.echo("{} agree, {} differ, {} cannot be read".format(*counts), err=True)
    raise typer.Exit(max(code for code, _ in results))


script.__doc__ = f"{script.__doc__}\n{EXAMPLES}"


def _run(path: Path, rewrite: bool, output: Output) -> tuple[int, dict[str, Any]]:
    """Runs one file; its exit code and a report on it."""
    try:
        before = read_script(path)
        outcome = run_text(before)
        if rewrite and outcome.text != before:
            _write(path, outcome.text)
    except ScriptError as error:
        place = f"{path}:{error.line}" if error.line else str(path)
        typer.echo(f"{place}: {error.reason}", err=True)
        return UNREADABLE, {"file": str(path), "status": "unreadable", "line": error.line, "reason": error.reason}
    if output is Output.TEXT:
        typer.echo(outcome.text, nl=False)
    agrees = outcome.agrees or rewrite
    for difference in () if agrees else outcome.differences:
        typer.echo(_explained(path, difference), err=True)
    return (AGREE if agrees else DIFFER), {
        "file": str(path),
        "status": "agrees" if agrees else "differs",
        "blocks": outcome.blocks,
        "differences": [
            {"line": found.line, "expected": list(found.expected), "actual": list(found.actual)}
            for found in outcome.differences
        ],
    }


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ScriptError(0, f"the file cannot be written: {error.strerror}") from error


def _explained(path: Path, difference: Difference) -> str:
    lines = [f"{path}:{difference.line}: the outputs differ"]
    lines += [f"  - {line}" for line in difference.expected]
    lines += [f"  + {line}" for line in difference.actual]
    return "\n".join(lines)
