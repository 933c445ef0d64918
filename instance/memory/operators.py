"""Operators: each turns the changes of its inputs into the change of its output.

An operator is told the changes of its inputs for one range of steps after the other, first of all (with ``at`` the
step at which its dataflow begins) their contents there. Every row keeps its own step. Operators that need nothing
but the change are *linear*; the others keep state, and are in files of their own.
"""

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types

from instance.memory.batch import Batch, concat
from instance.memory.casts import cast
from instance.memory.expression import Expression, column
from instance.memory.expressions import compile_expression, compile_predicate
from instance.memory.logic import together
from instance.memory.rows import RowFormat, row_format
from instance.memory.type_rules import NULL
from reconcile.errors import InvalidRequest


class Operator(Protocol):
    """One operator with its state. ``apply`` gives the output change that belongs to the input changes."""

    @property
    def format(self) -> RowFormat: ...

    @property
    def linear(self) -> bool:
        """Whether the output change depends on nothing but the input change."""
        ...

    def apply(self, changes: Sequence[Batch], at: int) -> Batch:
        """``at`` is the first step of the range that ``changes`` cover; raises ``InvalidRequest`` for bad rows."""
        ...


class AwaitedOperator(Protocol):
    """An operator that computes elsewhere, so that its output has to be waited for; one range at a time."""

    @property
    def format(self) -> RowFormat: ...

    @property
    def linear(self) -> bool: ...

    async def applied(self, changes: Sequence[Batch], at: int) -> Batch:
        """As ``Operator.apply``; also called when nothing changed."""
        ...


class Filter:
    """The rows for which the predicate is true."""

    linear = True

    def __init__(self, input: RowFormat, predicate: str) -> None:
        self.format = input
        self._text = predicate
        self._predicate = compile_predicate(predicate, input)

    def apply(self, changes: Sequence[Batch], at: int) -> Batch:  # noqa: ARG002
        (batch,) = changes
        if len(batch) == 0:
            return batch
        batch, kept = evaluated(batch, "filter", [(self._text, self._predicate)])
        return Batch.of_arrow(self.format, batch.arrow.filter(kept[0]))


class Project:
    """Computed columns."""

    linear = True

    def __init__(self, input: RowFormat, columns: Sequence[tuple[str, str]], *, where: str = "project") -> None:
        self._where = where
        self._columns = [(text, compile_expression(text, input)) for _, text in columns]
        for name, (text, expression) in zip((name for name, _ in columns), self._columns, strict=True):
            if expression.type == NULL:
                raise InvalidRequest(f"column {name!r} is always null", detail=text, hint="cast it to a type")
        self.format = _format_of([name for name, _ in columns], [expression for _, expression in self._columns])

    @property
    def places(self) -> list[int] | None:
        """Which input columns these are, if they are nothing but that."""
        places = [expression.column for _, expression in self._columns if expression.column is not None]
        return places if len(places) == len(self._columns) else None

    def apply(self, changes: Sequence[Batch], at: int) -> Batch:  # noqa: ARG002
        (batch,) = changes
        if len(batch) == 0:
            return Batch.nothing(self.format)
        batch, columns = evaluated(batch, self._where, self._columns)
        timing = batch.arrow.columns[-2:]
        return Batch.of_arrow(
            self.format, pa.RecordBatch.from_arrays([*columns, *timing], schema=self.format.updates_schema)
        )


class Union:
    """The rows of all inputs."""

    linear = True

    def __init__(self, inputs: Sequence[RowFormat]) -> None:
        from_first = inputs[0]
        if any(sorted(input.names) != sorted(from_first.names) for input in inputs):
            detail = "; ".join(", ".join(input.names) for input in inputs)
            raise InvalidRequest("the inputs of a union have different columns", detail=detail)
        types = [_common_type(name, inputs) for name in from_first.names]
        self.format = row_format(from_first.names, tuple(types))
        self._columns = [
            None if input is self.format else [
                (name, cast(column(input.places[name], input.types[input.places[name]]), type))
                for name, type in zip(self.format.names, self.format.types, strict=True)
            ]
            for input in inputs
        ]  # fmt: skip

    def apply(self, changes: Sequence[Batch], at: int) -> Batch:  # noqa: ARG002
        return concat(
            self.format, [self._fitted(batch, columns) for batch, columns in zip(changes, self._columns, strict=True)]
        )

    def _fitted(self, batch: Batch, columns: Sequence[tuple[str, Expression]] | None) -> Batch:
        if columns is None or len(batch) == 0:
            return batch
        batch, arrays = evaluated(batch, "union", columns)
        arrays += batch.arrow.columns[-2:]
        return Batch.of_arrow(self.format, pa.RecordBatch.from_arrays(arrays, schema=self.format.updates_schema))


def _common_type(name: str, inputs: Sequence[RowFormat]) -> pa.DataType:
    try:
        return together([column(0, input.types[input.places[name]]) for input in inputs])[0]
    except InvalidRequest as error:
        raise InvalidRequest(f"column {name!r} has no common type in a union", detail=str(error)) from error


def _format_of(names: Sequence[str], expressions: Sequence[Expression]) -> RowFormat:
    return row_format(tuple(names), tuple(expression.type for expression in expressions))


def evaluated(batch: Batch, where: str, columns: Sequence[tuple[str, Expression]]) -> tuple[Batch, list[pa.Array]]:
    """The values of ``columns`` for each row of ``batch``, and the batch they are for.

    If a row makes one fail, it may be one that comes and goes within a step and is not there at all: so the batch
    that counts then is the consolidated one.
    """
    try:
        return batch, _arrays(batch, columns)
    except (InvalidRequest, pa.ArrowException, ArithmeticError):
        batch = batch.consolidated()
    if len(batch) == 0:
        return Batch.nothing(batch.format), [pa.array([], expression.type) for _, expression in columns]
    for text, expression in columns:
        try:
            expression.array(batch.arrow)
        except (InvalidRequest, pa.ArrowException, ArithmeticError) as error:
            raise InvalidRequest(f"{where} failed", detail=f"{text}: {_reason(error)}") from error
    return batch, _arrays(batch, columns)


def _arrays(batch: Batch, columns: Sequence[tuple[str, Expression]]) -> list[pa.Array]:
    return [expression.array(batch.arrow) for _, expression in columns]


def _reason(error: Exception) -> str:
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    return "division by zero" if text == "divide by zero" else text
