"""Explaining: a plan as an indented tree for people, with how each operator is kept up to date."""

from collections.abc import Iterator, Mapping
from typing import assert_never

from controller.sql.strategies import strategy
from reconcile.ids import GlobalId
from reconcile.plan_tree import Internal, Node, PlanValue


def explain(plan: PlanValue, names: Mapping[GlobalId, str], *, strategies: bool = True) -> str:
    """One operator a line, its inputs below it and further in; ids bear their names where these are known.

    Behind an operator stands its strategy in brackets, and for what Spark computes the reason.
    """
    return "\n".join(_lines(plan, names, "", strategies))


def _lines(value: PlanValue, names: Mapping[GlobalId, str], indent: str, strategies: bool) -> Iterator[str]:
    if not isinstance(value, Node):
        yield f"{indent}{_shown(value, names)}"
        return
    fields = dict(value.fields)
    yield f"{indent}{_headline(value.op, fields, names)}{_strategy(value) if strategies else ''}"
    for _, field in value.fields:
        for input in _inputs(field):
            yield from _lines(input, names, f"{indent}  ", strategies)


def _inputs(field: PlanValue) -> Iterator[Node]:
    """The nodes in a field, however deep in lists."""
    if isinstance(field, Node):
        yield field
    elif isinstance(field, tuple) and not isinstance(field, GlobalId | Internal):
        for item in field:
            yield from _inputs(item)


def _strategy(node: Node) -> str:
    chosen = strategy(node)
    why = dict(node.fields).get("why")
    return f"  [{chosen}{f': {why}' if isinstance(why, str) else ''}]" if chosen else ""


def _headline(op: str, fields: Mapping[str, PlanValue], names: Mapping[GlobalId, str]) -> str:
    match op, fields:
        case "get", {"id": id, "columns": tuple() as columns}:
            return f"get {_shown(id, names)} ({', '.join(_parts(column)[0] for column in columns)})"
        case "filter", {"predicate": str() as predicate}:
            return f"filter {predicate}"
        case "project", {"columns": tuple() as columns}:
            return f"project {', '.join(_named(column) for column in columns)}"
        case "group", {"keys": tuple() as keys, "aggregates": tuple() as aggregates}:
            by = f"by {', '.join(_named(key) for key in keys)}" if keys else "all rows as one"
            computed = ", ".join(_aggregate(aggregate) for aggregate in aggregates)
            return f"group {by}{': ' if computed else ''}{computed}"
        case "join", {"on": tuple() as on, "kind": str() as kind}:
            pairs = [tuple(map(str, pair)) for pair in on if isinstance(pair, tuple)]
            if not pairs:
                return "join every row with every row"
            return f"{kind} join on {' and '.join(' = '.join(pair) for pair in pairs)}"
        case "union", _:
            return "union all"
        case "distinct", _:
            return "distinct"
        case "top", {"order": tuple() as order, "limit": int() as limit, "offset": int() as offset}:
            by = ", ".join(" ".join(_parts(part)[:2]) for part in order)
            return f"first {limit} rows{f' behind {offset}' if offset else ''} by {by}"
        case "sql" | "sql_linear", {"text": str() as text}:
            return f"sql {text}"
        case _:
            rest = [f"{name}={_shown(value, names)}" for name, value in fields.items() if not isinstance(value, Node)]
            return " ".join([op, *rest])


def _parts(value: PlanValue) -> list[str]:
    """The parts of a list in a plan as texts; of a count of rows the part that is missing is ``*``."""
    items = value if isinstance(value, tuple) else (value,)
    return [item if isinstance(item, str) else "*" if item is None else repr(item) for item in items]


def _named(column: PlanValue) -> str:
    name, *texts = _parts(column)
    return name if texts in ([name], [f"`{name}`"]) else f"{' '.join(texts)} as {name}"


def _aggregate(aggregate: PlanValue) -> str:
    name, function, *arguments = [*_parts(aggregate), "", ""][:3]
    call = f"{function}({', '.join(arguments)})"
    return name if name == call else f"{call} as {name}"


def _shown(value: PlanValue, names: Mapping[GlobalId, str]) -> str:
    match value:
        case GlobalId():
            return f"{names[value]} ({value})" if value in names else str(value)
        case Internal():
            return str(value)
        case tuple():
            return f"({', '.join(_shown(item, names) for item in value)})"
        case Node(op=op):
            return op
        case str() | bytes() | int() | None:
            return repr(value)
        case _:
            assert_never(value)
