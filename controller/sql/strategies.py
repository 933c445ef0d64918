"""Strategies: how each node of a plan is kept up to date, and what that costs."""

from collections.abc import Iterator, Mapping, Sequence

from plainsong.errors import InvalidRequest
from reconcile.plan_tree import Node, PlanValue

LINEAR = "linear"
ACCUMULATE = "accumulate"
RECOMPUTE = "recompute"
_ACCUMULATED = ("count", "sum", "avg")
#: Characters of a part that are shown.
_SHOWN_MAX = 200


def strategy(node: Node) -> str:
    """What a change of the inputs costs: the change, the keys it touches, or everything; empty for what is read."""
    fields: Mapping[str, PlanValue] = dict(node.fields)
    match node.op, fields:
        case "get", _:
            return ""
        case "filter" | "project" | "union" | "sql_linear", _:
            return LINEAR
        case "group", {"keys": tuple() as keys, "aggregates": tuple() as aggregates}:
            functions = [item[1] for item in aggregates if isinstance(item, tuple)]
            if all(function in _ACCUMULATED for function in functions):
                return ACCUMULATE
            return _touched([item[1] for item in keys if isinstance(item, tuple)], "all rows as one")
        case "join", {"on": tuple() as on}:
            pairs = [" = ".join(map(str, pair)) for pair in on if isinstance(pair, tuple)]
            return _touched(pairs, "nothing")
        case "distinct", _:
            return _touched([], "all columns")
        case "top", _:
            return _touched([], "place in the order")
        case "sql", {"inputs": tuple() as inputs}:
            shared = _keys(inputs)
            return _touched(shared, "") if shared else RECOMPUTE
        case _:
            return RECOMPUTE


def _touched(keys: Sequence[PlanValue], otherwise: str) -> str:
    return f"touched keys by {', '.join(map(str, keys)) or otherwise}"


def _keys(inputs: tuple[PlanValue, ...]) -> list[str]:
    """The keys of the inputs, each as it is said of the first and of the others where they say it otherwise."""
    sides = [input[2] for input in inputs if isinstance(input, tuple) and isinstance(input[2], tuple)]
    if not sides or not all(sides):
        return []
    return [" = ".join(dict.fromkeys(map(str, key))) for key in zip(*sides, strict=True)]


def nodes(plan: PlanValue) -> Iterator[Node]:
    """The nodes of a plan, outermost first."""
    match plan:
        case Node(fields=fields):
            yield plan
            for _, value in fields:
                yield from nodes(value)
        case tuple():
            for item in plan:
                yield from nodes(item)
        case _:
            return


def recomputed(plan: PlanValue) -> tuple[str, ...]:
    """The parts of a plan that are computed anew with each change, outermost first, each with the reason."""
    found = (node for node in nodes(plan) if strategy(node) == RECOMPUTE)
    return tuple(dict.fromkeys(_part(dict(node.fields), node.op) for node in found))


def _part(fields: Mapping[str, PlanValue], op: str) -> str:
    text, why = str(fields.get("text", op)), fields.get("why")
    short = text if len(text) <= _SHOWN_MAX else f"{text[: _SHOWN_MAX - 3]}..."
    return f"{short}: {why}" if isinstance(why, str) and why else short


def refuse_recomputed(plan: PlanValue, what: str = "the query") -> None:
    """Refuses a plan of which a part would be computed anew with each change."""
    parts = recomputed(plan)
    if parts:
        raise InvalidRequest(
            f"{what} cannot be maintained incrementally",
            detail=f"computed anew with each change: {'; '.join(parts)}",
            hint="rewrite that part, or leave out strict incremental",
            reason="NOT_INCREMENTAL",
        )
