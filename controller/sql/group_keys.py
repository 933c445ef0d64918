"""The keys of a GROUP BY: listed, all, or in sets."""

import itertools
from collections.abc import Callable, Sequence

from sqlglot import exp

from controller.sql.binding import Binder, Bound, aggregates_in
from controller.sql.grouping import Item, Keys
from controller.sql.refusals import SqlText
from controller.sql.type_rules import VOID

_HINT = "group by what is aggregated over, or use a subquery in FROM"
_MANY = (exp.Rollup, exp.Cube, exp.GroupingSets)
#: Grouping sets in one query; CUBE doubles them with each key.
_SETS_MAX = 256


class GroupKeys:
    """Binds the GROUP BY of one SELECT."""

    def __init__(self, sql: SqlText, select: exp.Select, items: Sequence[Item], bind: Callable[[str], Binder]) -> None:
        self._sql = sql
        self._group = select.args.get("group")
        self._items = items
        self._bind = bind
        self._keys: dict[str, Bound] = {}

    def keys(self) -> Keys | None:
        """What is grouped by; none without a GROUP BY."""
        group = self._group
        if group is None:
            return None
        if group.args.get("all"):
            return Keys(keys=tuple(i.bound for i in self._items if not any(True for _ in aggregates_in(i.bound.tree))))
        if group.args.get("totals"):
            raise self._sql.not_yet(group, "WITH TOTALS is", hint="use ROLLUP")
        if not any(isinstance(node, _MANY) for node in group.expressions) and not any(
            group.args.get(kind) for kind in ("rollup", "cube", "grouping_sets")
        ):
            return Keys(keys=tuple(self._key(node) for node in group.expressions))
        sets = self._sets(group)
        places = {text: place for place, text in enumerate(self._keys)}
        chosen = tuple(tuple(sorted({places[text] for text in texts})) for texts in sets)
        return Keys(keys=tuple(self._keys.values()), sets=chosen)

    def _key(self, node: exp.Expr) -> Bound:
        if isinstance(node, exp.Literal) and not node.is_string:
            key = self._items[ordinal(self._sql, node, len(self._items), "GROUP BY")].bound
        else:
            key = self._bind("GROUP BY").bind(node)
        if any(True for _ in aggregates_in(key.tree)):
            raise self._sql.refusal(node, "an aggregate cannot be grouped by", hint=_HINT)
        if key.tree.find(exp.Window) is not None:
            raise self._sql.refusal(node, "a window cannot be grouped by", hint="compute it in a subquery in FROM")
        if key.type == VOID:
            raise self._sql.refusal(node, "NULL cannot be grouped by", hint="group by a column")
        if "map<" in key.type:
            raise self._sql.refusal(node, "maps cannot be grouped by", hint="use map_entries(m)")
        return key

    def _text(self, node: exp.Expr) -> str:
        key = self._key(node)
        self._keys.setdefault(key.text, key)
        return key.text

    def _sets(self, group: exp.Expr) -> list[list[str]]:
        """The grouping sets, as texts of their keys."""
        listed = [node for node in group.expressions if not isinstance(node, _MANY)]
        hive = [clause for kind in ("rollup", "cube") for clause in group.args.get(kind) or []]
        if hive and not hive[0].expressions:
            return self._expanded(type(hive[0]), [[self._text(node)] for node in listed])
        if group.args.get("grouping_sets"):
            for node in listed:
                self._text(node)
            return [chosen for clause in group.args["grouping_sets"] for chosen in self._of(clause)]
        parts = [self._of(node) for node in (*group.expressions, *hive)]
        count = 1
        for part in parts:
            count *= len(part)
        if count > _SETS_MAX:
            raise self._sql.refusal(group, f"{count} grouping sets are too many", hint=f"use at most {_SETS_MAX}")
        return [[text for chosen in choice for text in chosen] for choice in itertools.product(*parts)]

    def _of(self, node: exp.Expr) -> list[list[str]]:
        if isinstance(node, exp.GroupingSets):
            return [chosen for part in node.expressions for chosen in self._of(part)]
        if isinstance(node, exp.Rollup | exp.Cube):
            return self._expanded(type(node), [self._of(part)[0] for part in node.expressions])
        if isinstance(node, exp.Tuple):
            return [[self._text(part) for part in node.expressions]]
        return [[self._text(node.unnest())]]

    def _expanded(self, kind: type[exp.Expr], parts: list[list[str]]) -> list[list[str]]:
        if kind is exp.Rollup:
            chosen = [parts[:end] for end in range(len(parts), -1, -1)]
        else:
            if 2 ** len(parts) > _SETS_MAX:
                raise self._sql.refusal(self._group or 0, "CUBE of too many keys", hint=f"{_SETS_MAX} sets at most")
            sizes = range(len(parts), -1, -1)
            chosen = [list(choice) for size in sizes for choice in itertools.combinations(parts, size)]
        return [[text for part in choice for text in part] for choice in chosen]


def ordinal(sql: SqlText, node: exp.Expr, count: int, clause: str) -> int:
    """The place in the select list that a number in GROUP BY or ORDER BY means, from zero."""
    if not (node.name.isdigit() and len(node.name) <= 9 and 1 <= int(node.name) <= count):
        raise sql.refusal(node, f"{clause} {node.name} means no column", hint=f"there are columns 1 to {count}")
    return int(node.name) - 1
