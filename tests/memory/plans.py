"""Plans for tests: short ways to write them."""

from reconcile.ids import GlobalId
from reconcile.plan_tree import Node, PlanValue

Columns = tuple[tuple[str, str], ...]


def get(id: str, columns: Columns) -> Node:
    return Node(op="get", fields=(("id", GlobalId.parse(id)), ("columns", columns)))


def where(input: PlanValue, predicate: str) -> Node:
    return Node(op="filter", fields=(("input", input), ("predicate", predicate)))


def project(input: PlanValue, **columns: str) -> Node:
    return Node(op="project", fields=(("input", input), ("columns", tuple(columns.items()))))


def group(input: PlanValue, keys: dict[str, str], **aggregates: tuple[str, str | None]) -> Node:
    made = tuple((name, function, text) for name, (function, text) in aggregates.items())
    return Node(op="group", fields=(("input", input), ("keys", tuple(keys.items())), ("aggregates", made)))


def join(left: PlanValue, right: PlanValue, *on: tuple[str, str], kind: str = "inner") -> Node:
    return Node(op="join", fields=(("left", left), ("right", right), ("kind", kind), ("on", on)))


def union(*inputs: PlanValue) -> Node:
    return Node(op="union", fields=(("inputs", inputs),))


def distinct(input: PlanValue) -> Node:
    return Node(op="distinct", fields=(("input", input),))
