"""``plainsong bench``: measure, beside a yardstick in the same run."""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from adapter.bench.control import control_figures
from adapter.bench.core import core_figures
from adapter.bench.measure import Figure
from adapter.bench.shards import shards_figures

bench_app = typer.Typer(no_args_is_help=True, help="Measure what each part costs, beside a yardstick in the same run.")

JsonFile = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Also write the figures here.")]
Scale = Annotated[float, typer.Option(help="Shrink the work for a quick look.", min=0.001, max=1.0)]


@bench_app.callback()
def bench() -> None:
    """Measure what each part costs, beside a yardstick in the same run."""


@bench_app.command("core")
def core(json_file: JsonFile = None, scale: Scale = 1.0) -> None:
    """Measure the pure core: history, plan, reconciler, merge.

    Example:

      plainsong bench core --json core.json
    """
    _measure("pure core", core_figures, scale, json_file)


@bench_app.command("control")
def control(json_file: JsonFile = None, scale: Scale = 1.0) -> None:
    """Measure the control plane: log, peeks, restarts, commands; with real processes on loopback.

    Example:

      plainsong bench control --json control.json
    """
    _measure("control plane", control_figures, scale, json_file)


@bench_app.command("shards")
def shards(json_file: JsonFile = None, scale: Scale = 1.0) -> None:
    """Measure the shards: appends that stay fast, idle shards, acknowledged inserts, files (with Spark); minutes.

    Example:

      plainsong bench shards --json shards.json
    """
    _measure("shards", shards_figures, scale, json_file)


def _measure(
    title: str, measure: Callable[[float, Callable[[str], None]], list[Figure]], scale: float, json_file: Path | None
) -> None:
    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(title, total=None)
        figures = measure(scale, lambda text: bar.update(task, description=text))
    Console().print(_table(title, figures))
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
    shown = f"{value:,.0f}" if value >= 1_000 or not unit else f"{value:.2f}"
    return f"{shown} {unit}".rstrip()
