"""GROUP BY: the node that groups, and the rest of the query over the output of that node.

Counts, sums, averages, least and greatest values are a ``group`` node, which accumulates. Any other aggregate makes
the whole grouping an ``sql`` node, computed for touched groups.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from controller.sql import plans
from controller.sql.aggregates import steady_basic
from controller.sql.binding import (
    AGGREGATE,
    ARGUMENT,
    GENERAL,
    OVER,
    TYPE,
    Bound,
    Compiled,
    aggregates_in,
    is_simple,
    sql_text,
)
from controller.sql.functions import AGGREGATES
from controller.sql.names import column_reference, shown, unused_name
from controller.sql.refusals import SqlText
from controller.sql.relations import Column
from controller.sql.stages import alias, name_text, projected, sql_stage
from controller.sql.type_rules import UNKNOWN
from plainsong.types import is_nested

#: Characters of a name that is made from the text of an expression.
_MADE_NAME_MAX = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One output column of a SELECT; ``node`` is where it was written."""

    name: str
    bound: Bound
    node: exp.Expr


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """What a query groups by; ``sets`` are places in ``keys``, none for a plain GROUP BY."""

    keys: tuple[Bound, ...]
    sets: tuple[tuple[int, ...], ...] | None = None

    @property
    def common(self) -> tuple[Bound, ...]:
        """The keys of every set: the output for one value of them depends on nothing else."""
        if self.sets is None:
            return self.keys
        return tuple(key for place, key in enumerate(self.keys) if all(place in chosen for chosen in self.sets))


class Grouping:
    """One grouping of a query: what it groups by, and every aggregate that the query asks for.

    A key or aggregate that is an output column as it stands bears the name of that column, so that a query whose
    select list is its keys and aggregates needs no projection above.
    """

    def __init__(self, sql: SqlText, keys: Keys, items: Sequence[Item], asked: Sequence[exp.Expr]) -> None:
        """``asked`` are trees beside the select list that name keys and aggregates, such as HAVING."""
        self._sql = sql
        self._sets = keys
        outputs: dict[str, str] = {}
        for item in items:
            outputs.setdefault(item.bound.text, item.name)
        taken = {item.name.lower() for item in items}
        #: Column names of the grouping by the texts of what they hold, over its input.
        self._names: dict[str, str] = {}
        #: What kinds of syntax these are, since comparing texts at every node of a long condition takes long.
        self._kinds: set[type[exp.Expr]] = set()
        self._keys: list[tuple[str, Bound]] = []
        self._aggregates: list[tuple[str, exp.Expr]] = []
        #: Columns that are joined to the groups, such as those of subqueries.
        self.beside: set[str] = set()
        for key in keys.keys:
            if key.text not in self._names:
                self._keys.append((self._name(key.tree, outputs, taken), key))
        for tree in [*(item.bound.tree for item in items), *asked]:
            for aggregate in aggregates_in(tree):
                if sql_text(aggregate) not in self._names:
                    self._aggregates.append((self._name(aggregate, outputs, taken), aggregate))

    def _name(self, tree: exp.Expr, outputs: dict[str, str], taken: set[str]) -> str:
        text = sql_text(tree)
        name = outputs.get(text) or unused_name(text.lower()[:_MADE_NAME_MAX], taken)
        self._names[text] = name
        self._kinds.add(type(tree))
        return name

    # --- the node ------------------------------------------------------------------------------------------

    def grouped(self, input: Compiled) -> Compiled:
        """The groups of the input, a column for each key and each aggregate."""
        self._check_sets()
        if self._sets.sets is None and all(_is_basic(tree) for _, tree in self._aggregates):
            return self._accumulated(input)
        argument = self._distinct_argument()
        if argument is not None:
            return self._of_distinct(input, argument)
        return self._computed(input)

    def _check_sets(self) -> None:
        for _, tree in self._aggregates:
            if isinstance(tree, exp.Grouping | exp.GroupingId) and self._sets.sets is None:
                raise self._sql.refusal(tree, "there are no grouping sets", hint="use ROLLUP, CUBE or GROUPING SETS")

    def _columns(self) -> tuple[Column, ...]:
        nulled = self._sets.sets is not None
        keys = (Column(name=name, type=key.type, nullable=nulled or key.nullable) for name, key in self._keys)
        aggregates = (
            Column(name=name, type=tree.meta[AGGREGATE], nullable=not isinstance(tree, exp.Count))
            for name, tree in self._aggregates
        )
        return (*keys, *aggregates)

    def _accumulated(self, input: Compiled) -> Compiled:
        keys = [key.tree for _, key in self._keys]
        arguments = [None if isinstance(tree.this, exp.Star) else tree.this for _, tree in self._aggregates]
        computed = [tree for tree in (*keys, *arguments) if tree is not None and not is_simple(tree)]
        if computed:
            input, keys, arguments = self._with_columns(input, keys, arguments)
        node = plans.group(
            input.node,
            tuple((name, sql_text(tree)) for (name, _), tree in zip(self._keys, keys, strict=True)),
            tuple(
                (name, AGGREGATES[type(tree)], None if argument is None else sql_text(argument))
                for (name, tree), argument in zip(self._aggregates, arguments, strict=True)
            ),
        )
        return Compiled(node=node, columns=self._columns())

    def _with_columns(
        self, input: Compiled, keys: list[exp.Expr], arguments: list[exp.Expr | None]
    ) -> tuple[Compiled, list[exp.Expr], list[exp.Expr | None]]:
        """The input reduced to what is grouped by and aggregated, as columns."""
        taken: set[str] = set()
        items: dict[str, tuple[Column, exp.Expr]] = {}
        types = {sql_text(key.tree): key.type for _, key in self._keys}
        for tree in (*keys, *(argument for argument in arguments if argument is not None)):
            text = sql_text(tree)
            if text in items:
                continue
            name = unused_name(tree.name if isinstance(tree, exp.Column) else f"_k{len(items) + 1}", taken)
            type = types.get(text) or next((c.type for c in input.columns if c.name == tree.name), "") or _type_of(tree)
            items[text] = (Column(name=name, type=type), tree)
        frame = projected(input, list(items.values()))
        by_text = {text: column_reference(column.name) for text, (column, _) in items.items()}
        return (
            frame,
            [by_text[sql_text(key)] for key in keys],
            [None if argument is None else by_text[sql_text(argument)] for argument in arguments],
        )

    def _distinct_argument(self) -> exp.Expr | None:
        """What all aggregates are of the different values of, if it is one thing."""
        if self._sets.sets is not None or not self._aggregates:
            return None
        arguments = {}
        for _, tree in self._aggregates:
            distinct = tree.this
            if type(tree) not in AGGREGATES or not isinstance(distinct, exp.Distinct) or len(distinct.expressions) != 1:
                return None
            arguments[sql_text(distinct.expressions[0])] = distinct.expressions[0]
        return next(iter(arguments.values())) if len(arguments) == 1 else None

    def _of_distinct(self, input: Compiled, argument: exp.Expr) -> Compiled:
        """The groups of the different rows: they change only when a value comes or goes."""
        keys = [key.tree for _, key in self._keys]
        frame, keys, [value] = self._with_columns(input, keys, [argument])
        wanted = {sql_text(tree) for tree in (*keys, value) if tree is not None}
        frame = projected(frame, [(c, column_reference(c.name)) for c in frame.columns if name_text(c.name) in wanted])
        node = plans.group(
            plans.distinct(frame.node),
            tuple((name, sql_text(tree)) for (name, _), tree in zip(self._keys, keys, strict=True)),
            tuple(
                (name, AGGREGATES[type(tree)], sql_text(value) if value is not None else None)
                for name, tree in self._aggregates
            ),
        )
        return Compiled(node=node, columns=self._columns())

    def _computed(self, input: Compiled) -> Compiled:
        keys = [_unambiguous(key.tree) for _, key in self._keys]
        parts = [f"{text} AS {name_text(name)}" for (name, _), text in zip(self._keys, keys, strict=True)]
        parts += [f"{sql_text(_ordered_free(tree))} AS {name_text(name)}" for name, tree in self._aggregates]
        text = f"SELECT {', '.join(parts)} FROM {alias(1)}"
        if keys:
            text += f" GROUP BY {', '.join(keys)}"
        if self._sets.sets is not None:
            sets = [f"({', '.join(keys[place] for place in chosen)})" for chosen in self._sets.sets]
            text += f" GROUPING SETS ({', '.join(sets)})"
        common = self._sets.common
        if common:
            keys = [_unambiguous(key.tree) for key in common]
            why = f"the rows of one group decide its aggregates: {', '.join(keys)}"
        elif self._sets.sets is not None:
            why = "the grouping sets have no key in common; group by each in a view of its own"
        else:
            why = "one of these aggregates over all rows cannot be accumulated; group by something"
        return sql_stage([(input, common)], text, self._columns(), why)

    # --- above it ------------------------------------------------------------------------------------------

    def above(self, tree: exp.Expr) -> exp.Expr:
        """An expression over the output of the grouping."""

        def replace(node: exp.Expr) -> exp.Expr:
            if OVER in node.meta:
                # The function of a window is computed above, though an aggregate of the same text be here.
                return node
            name = self._names.get(sql_text(node)) if type(node) in self._kinds else None
            if name is not None:
                return column_reference(name)
            if isinstance(node, exp.Column) and node.name not in self.beside:
                raise self._sql.refusal(
                    node,
                    f"column {shown(node.name)} is neither grouped nor aggregated",
                    hint="add it to GROUP BY, or put it in an aggregate such as max",
                )
            return node

        return tree.copy().transform(replace)


def _is_basic(tree: exp.Expr) -> bool:
    return (
        type(tree) in AGGREGATES
        and GENERAL not in tree.meta
        and not isinstance(tree.this, exp.Distinct)
        and not (is_nested(tree.meta[AGGREGATE]))
    )


def _type_of(tree: exp.Expr) -> str:
    """The type of an argument that only Spark computes, as its binding noted it."""
    return str(tree.meta.get(TYPE, UNKNOWN))


def _unambiguous(tree: exp.Expr) -> str:
    """The text of a key; a number would be read as the place of a column."""
    if isinstance(tree, exp.Literal) and not tree.is_string:
        return f"CAST({sql_text(tree)} AS {'INT' if tree.name.isdigit() else 'DOUBLE'})"
    return sql_text(tree)


def _ordered_free(tree: exp.Expr) -> exp.Expr:
    """A sum or average beside other aggregates, in a form that no order of rows changes."""
    if not isinstance(tree, exp.Sum | exp.Avg):
        return tree
    distinct = isinstance(tree.this, exp.Distinct)
    argument = tree.this.expressions[0] if distinct else tree.this
    type = argument.meta.get(TYPE) if distinct else tree.meta.get(ARGUMENT)
    value = Bound(tree=argument, type=str(type or UNKNOWN), nullable=True)
    steady = steady_basic("sum" if isinstance(tree, exp.Sum) else "avg", value, distinct=distinct)
    return steady.tree if steady is not None else tree
