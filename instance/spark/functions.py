"""Functions of users in a Spark session, each version registered once.

Their source is never run in this process: it travels to the Python workers of Spark as text, with the text of
``function_worker`` that runs it, because a worker on another machine need not have our packages.
"""

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

from reconcile.errors import InvalidRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFunction:
    """One version of a function as a plan carries it; ``plan_name`` is what texts call it."""

    plan_name: str
    name: str
    returns: str
    columns: tuple[tuple[str, str], ...]
    source: str


def plan_functions(value: Any) -> tuple[PlanFunction, ...]:
    """Reads the field of a node; raises ``ValueError`` or ``TypeError`` if it is none."""
    return tuple(
        PlanFunction(plan_name=plan_name, name=name, returns=returns, columns=columns, source=source)
        for plan_name, name, returns, columns, source in value
    )


class Functions:
    """What a session has registered; used by threads of ours at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._registered: set[str] = set()
        self._worker = (files("instance.spark") / "function_worker.py").read_text()

    def register(self, session: SparkSession, functions: Iterable[PlanFunction]) -> None:
        with self._lock:
            for function in functions:
                if function.plan_name not in self._registered:
                    self._register(session, function)
                    self._registered.add(function.plan_name)

    def _register(self, session: SparkSession, function: PlanFunction) -> None:
        call = _call(self._worker, function.name, function.source, function.returns, function.columns)
        try:
            session.udf.register(function.plan_name, udf(call, returnType=function.returns, useArrow=False))
        except (TypeError, ValueError) as error:
            raise InvalidRequest(f"function {function.name} cannot be registered", detail=str(error)) from error


def _call(
    worker: str, name: str, source: str, returns: str, columns: tuple[tuple[str, str], ...]
) -> Callable[..., Any]:
    """Loads the function when it is first called in a worker, and calls it."""
    made: list[Callable[..., Any]] = []

    # Inside of another function, and with nothing of this module: so it is pickled whole, not by the name of a module.
    def call(*args: Any) -> Any:
        if not made:
            space: dict[str, Any] = {"__name__": "plainsong_function_worker"}
            exec(worker, space)  # our own text
            made.append(space["loaded"](name, source, returns, columns))
        return made[0](*args)

    return call
