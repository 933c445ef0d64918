"""``plainsong bench``: measure, beside a yardstick in the same run."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from adapter.bench.core import core_figures
from adapter.bench.measure import Figure

bench_app = typer.Typer(no_args_is_help=True, help="Measure what each part costs, beside a yardstick in the same run.")


@bench_app.callback()
def bench() -> None:
    """Measure what each part costs, beside a yardstick in the same run."""


@bench_app.command("core")
def core(
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Also write the figures here.")
    ] = None,
    scale: Annotated[float, typer.Option(help="Shrink the work for a quick look.", min=0.001, max=1.0)] = 1.0,
) -> None:
    """Measure the pure core: history, plan, reconciler, merge.

    Example:

      plainsong bench core --json core.json
    """
    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("core", total=None)
        figures = core_figures(scale, lambda text: bar.update(task, description=text))
    Console().print(_table("pure core", figures))
    if json_file is not None:
        json_file.write_text(json.dumps([{**asdict(f), "reached": f.reached} for f in figures], indent=2) + "\n")
        console.print(f"figures written to {json_file}")


def _table(title: str, figures: list[Figure]) -> Table:
    table = Table(title=title)
    for column in ("figure", "measured", "target", "", "note"):
        table.add_column(column, justify="right" if column in ("measured", "target") else "left")
    for figure in figures:
        sign = "≥" if figure.at_least else "≤"
        mark = "[green]reached[/]" if figure.reached else "[red]missed[/]"
        table.add_row(
            figure.name,
            _shown(figure.value, figure.unit),
            f"{sign} {_shown(figure.target, figure.unit)}",
            mark,
            figure.note,
        )
    return table


def _shown(value: float, unit: str) -> str:
    return f"{value:,.0f} {unit}" if value >= 1_000 else f"{value:.2f} {unit}"
