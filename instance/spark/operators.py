"""Operators that Spark computes: row by row, by touched keys, or anew."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types
import pyarrow.compute as pc  # type: ignore[import-untyped]
from sqlglot import exp, parse_one

from instance.memory.batch import Batch
from instance.memory.expression import column
from instance.memory.logic import together
from instance.memory.operators import Project
from instance.memory.rows import RowFormat, row_format
from instance.spark.evaluation import Evaluation, Prepare
from instance.spark.kept import Kept
from instance.spark.session import SparkHost
from instance.spine.spine import Spine
from plainsong.types import DIFF, STEP, type_name
from reconcile.errors import InvalidRequest

#: Key columns beside the user's own in what is kept.
_KEY = "_key"


class SparkLinear:
    """A SELECT that takes each row by itself: its change is itself over the change."""

    linear = True

    def __init__(
        self,
        host: SparkHost,
        scratch: Path,
        *,
        alias: str,
        text: str,
        format: RowFormat,
        prepare: Prepare = lambda _: None,
    ) -> None:
        self.format = format
        self._alias = alias
        at, by = (_unused(name, format.names) for name in ("_at", "_by"))
        with_steps = row_format((*format.names, at, by), (*format.types, pa.int64(), pa.int64()))
        self._evaluation = Evaluation(
            host,
            scratch,
            text=_with_steps(text, alias, at, by),
            aliases=[alias],
            format=with_steps,
            prepare=prepare,
        )

    async def applied(self, changes: Sequence[Batch], at: int) -> Batch:  # noqa: ARG002
        (batch,) = changes
        if len(batch) == 0:
            return Batch.nothing(self.format)
        found = await self._evaluation.rows(None, {self._alias: batch.consolidated().table})
        columns = found.drop_columns([DIFF]).rename_columns([*self.format.names, STEP, DIFF])
        return Batch.of_table(self.format, columns)


def _unused(name: str, names: Sequence[str]) -> str:
    """The name, longer if a column begins with it."""
    while any(other.startswith(name) for other in names):
        name = f"_{name}"
    return name


def _with_steps(text: str, alias: str, at: str, by: str) -> str:
    """The same SELECT with step and difference of each row at the end."""
    tree = parse_one(text, read="spark")
    if not isinstance(tree, exp.Select):
        raise InvalidRequest("not a SELECT that takes each row by itself", detail=text)
    for name, to in ((STEP, at), (DIFF, by)):
        tree = tree.select(exp.column(name, table=alias, quoted=True).as_(to), copy=False)
    return tree.sql(dialect="spark")


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlInput:
    """One input of a text: what it is called there, its columns, and the expressions by which it is keyed."""

    alias: str
    format: RowFormat
    key: tuple[str, ...]


class SparkSql:
    """Any text over its inputs: for each step the rows after less the rows before.

    With keys it is evaluated over the rows of touched keys only; without, over everything, and the rows before are
    remembered from the step before.
    """

    linear = False

    def __init__(
        self,
        host: SparkHost,
        scratch: Path,
        *,
        inputs: Sequence[SqlInput],
        text: str,
        format: RowFormat,
        prepare: Prepare = lambda _: None,
    ) -> None:
        self.format = format
        self._inputs = tuple(inputs)
        self._keyed = bool(inputs) and all(input.key for input in inputs)
        self._keys = _key_operators(self._inputs) if self._keyed else []
        self._key_names = self._keys[0].format.names[len(self._inputs[0].format.names) :] if self._keyed else ()
        self._evaluation = Evaluation(
            host, scratch, text=text, aliases=[input.alias for input in inputs], format=format, prepare=prepare
        )
        self._kept = [
            Kept((self._keys[place] if self._keyed else input).format.schema, self._key_names)
            for place, input in enumerate(self._inputs)
        ]
        #: What was last given, where it cannot be told from the touched keys.
        self._given: pa.Table | None = None
        self._begun = False

    @property
    def rows_kept(self) -> int:
        """Of all inputs, and what was last given where that is remembered."""
        return sum(kept.rows for kept in self._kept) + (self._given.num_rows if self._given is not None else 0)

    async def applied(self, changes: Sequence[Batch], at: int) -> Batch:
        batches = [
            (self._keys[place].apply([batch], at) if self._keyed else batch).table
            for place, batch in enumerate(changes)
        ]
        steps = sorted({step for table in batches for step in pc.unique(table[STEP]).to_pylist()})
        parts = list[pa.Table]()
        for step in steps or ([] if self._begun else [at]):
            stepped = [table.filter(pc.equal(table[STEP], pa.scalar(step, pa.int64()))) for table in batches]
            found = await (self._touched(stepped) if self._keyed else self._anew(stepped))
            parts.append(_at_step(found, step))
            self._begun = True
        return Batch.of_table(self.format, pa.concat_tables(parts)) if parts else Batch.nothing(self.format)

    async def _touched(self, changes: Sequence[pa.Table]) -> pa.Table:
        """The difference that ``changes`` of one step make to the rows of the keys in them."""
        keys = pa.concat_tables([table.select(list(self._key_names)) for table in changes])
        before = self._tables([kept.of_keys(keys) for kept in self._kept]) if self._begun else None
        for kept, change in zip(self._kept, changes, strict=True):
            await kept.insert(change)
        after = self._tables([kept.of_keys(keys) for kept in self._kept])
        return consolidated(await self._evaluation.rows(before, after), self.format)

    async def _anew(self, changes: Sequence[pa.Table]) -> pa.Table:
        for kept, change in zip(self._kept, changes, strict=True):
            await kept.insert(change)
        found = await self._evaluation.rows(None, self._tables([kept.contents() for kept in self._kept]))
        given, self._given = self._given, consolidated(found, self.format)
        if given is None:
            return self._given
        gone = given.set_column(given.num_columns - 1, DIFF, pc.negate(given[DIFF]))
        return consolidated(pa.concat_tables([self._given, gone]), self.format)

    def _tables(self, rows: Sequence[pa.Table]) -> dict[str, pa.Table]:
        return {
            input.alias: repeated(table.select([*input.format.names, DIFF]))
            for input, table in zip(self._inputs, rows, strict=True)
        }


def _key_operators(inputs: Sequence[SqlInput]) -> list[Project]:
    """Each gives the columns of its input and the keys after them, in types that all inputs share."""
    prefix = _unused(_KEY, [name for input in inputs for name in input.format.names])
    own = [_keyed(input, input.key, prefix) for input in inputs]
    shared = list[str]()
    for place in range(len(inputs[0].key)):
        types = [
            operator.format.types[len(input.format.names) + place] for operator, input in zip(own, inputs, strict=True)
        ]
        shared.append(type_name(together([column(0, type) for type in types])[0]))
    return [
        _keyed(input, [f"CAST({text} AS {type})" for text, type in zip(input.key, shared, strict=True)], prefix)
        for input in inputs
    ]


def _keyed(input: SqlInput, key: Sequence[str], prefix: str = _KEY) -> Project:
    columns = [(name, f"`{name.replace('`', '``')}`") for name in input.format.names]
    keys = [(f"{prefix}{place}", text) for place, text in enumerate(key)]
    return Project(input.format, [*columns, *keys], where="key")


def repeated(rows: pa.Table) -> pa.Table:
    """Each row as often as its ``_diff`` says, without it."""
    counts = rows[DIFF].to_numpy()
    plain = rows.drop_columns([DIFF])
    if (counts == 1).all():
        return plain
    return plain.take(pa.array(np.repeat(np.arange(len(counts)), np.maximum(counts, 0))))


def consolidated(rows: pa.Table, format: RowFormat) -> pa.Table:
    """The same differences with each row once, and none zero."""
    whole = Spine(format.schema, ())
    whole.insert(_at_step(rows, 0))
    return pa.concat_tables([_empty(format), *(piece.cast(_empty(format).schema) for piece in _pieces(whole))])


def _pieces(whole: Spine) -> list[pa.Table]:
    return [whole.changes_from(0).drop_columns([STEP])]


def _empty(format: RowFormat) -> pa.Table:
    return format.schema.append(pa.field(DIFF, pa.int64())).empty_table()


def _at_step(rows: pa.Table, step: int) -> pa.Table:
    return rows.append_column(STEP, pa.repeat(pa.scalar(step, pa.int64()), rows.num_rows))
