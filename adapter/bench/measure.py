"""Measuring: medians of repetitions, and the targets they are held against."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measured figure beside its target; ``at_least`` says on which side of the target it should be."""

    name: str
    value: float
    unit: str
    target: float
    at_least: bool
    note: str = ""

    @property
    def reached(self) -> bool:
        return self.value >= self.target if self.at_least else self.value <= self.target


def seconds(work: Callable[[], object]) -> float:
    """How long ``work`` takes once."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def median_seconds(prepare: Callable[[], Callable[[], object]], repetitions: int) -> float:
    """The median of fresh repetitions; preparing is not measured."""
    return statistics.median(seconds(prepare()) for _ in range(repetitions))
