"""GROUP BY: the group node of a query, and its select list over the output of that node."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from controller.sql import plans
from controller.sql.binding import Bound, sql_text
from controller.sql.functions import AGGREGATES
from controller.sql.names import column_reference, shown, unused_name
from controller.sql.refusals import SqlText
from reconcile.plan_tree import Node

#: Characters of a name that is made from the text of an expression.
_MADE_NAME_MAX = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One output column of a SELECT; ``node`` is where it was written."""

    name: str
    bound: Bound
    node: exp.Expr


class Grouping:
    """One grouping of a query: what it groups by, and every aggregate that the query asks for.

    A key or aggregate that is an output column as it stands bears the name of that column, so that a query whose
    select list is its keys and aggregates needs no projection above.
    """

    def __init__(self, sql: SqlText, keys: Sequence[Bound], items: Sequence[Item], having: Bound | None) -> None:
        self._sql = sql
        outputs: dict[str, str] = {}
        for item in items:
            outputs.setdefault(item.bound.text, item.name)
        taken = {item.name.lower() for item in items}
        #: Column names of the group node by the texts of what they hold, over its input.
        self._names: dict[str, str] = {}
        #: What kinds of syntax these are, since comparing texts at every node of a long condition takes long.
        self._kinds: set[type[exp.Expr]] = set(AGGREGATES)
        self._keys: list[tuple[str, str]] = []
        self._aggregates: list[tuple[str, str, str | None]] = []
        for key in keys:
            self._kinds.add(type(key.tree))
            if key.text not in self._names:
                self._keys.append((self._name(key.text, outputs, taken), key.text))
        for tree in [*(item.bound.tree for item in items), *([having.tree] if having else [])]:
            for aggregate in tree.find_all(*AGGREGATES, bfs=False):
                self._add_aggregate(aggregate, outputs, taken)

    def _name(self, text: str, outputs: dict[str, str], taken: set[str]) -> str:
        name = outputs.get(text) or unused_name(text.lower()[:_MADE_NAME_MAX], taken)
        self._names[text] = name
        return name

    def _add_aggregate(self, aggregate: exp.Expr, outputs: dict[str, str], taken: set[str]) -> None:
        text = sql_text(aggregate)
        if text not in self._names:
            argument = None if isinstance(aggregate.this, exp.Star) else sql_text(aggregate.this)
            self._aggregates.append((self._name(text, outputs, taken), AGGREGATES[type(aggregate)], argument))

    def node(self, input: Node) -> Node:
        return plans.group(input, tuple(self._keys), tuple(self._aggregates))

    @property
    def names(self) -> list[str]:
        """The output columns of the group node."""
        return [*(name for name, _ in self._keys), *(name for name, _, _ in self._aggregates)]

    def above(self, tree: exp.Expr) -> str:
        """The text of an expression over the output of the group node."""

        def replace(node: exp.Expr) -> exp.Expr:
            name = self._names.get(sql_text(node)) if type(node) in self._kinds else None
            if name is not None:
                return column_reference(name)
            if isinstance(node, exp.Column):
                raise self._sql.refusal(
                    node,
                    f"column {shown(node.name)} is neither grouped nor aggregated",
                    hint="add it to GROUP BY, or put it in an aggregate such as max",
                )
            return node

        return sql_text(tree.copy().transform(replace))
