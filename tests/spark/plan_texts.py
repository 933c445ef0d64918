"""Plans as Spark SQL: each node a query over those of its inputs.

With ``parts``, every node that can be computed in parts is: an ``sql`` node with keys for the keys of each part by
themselves, an ``sql_linear`` node for each half of its rows. By the laws of these nodes the answer is the same.
"""

from typing import Any

from controller.sql.names import column_reference
from reconcile.plan_tree import Node


def quoted(name: str) -> str:
    return column_reference(name).sql(dialect="spark")


def plan_text(node: Node, *, parts: int = 1) -> str:
    fields: dict[str, Any] = dict(node.fields)
    match node.op:
        case "get":
            names = ", ".join(quoted(name) for name, _ in fields["columns"])
            return f"SELECT {names} FROM input_{fields['id']}"
        case "filter":
            return f"SELECT * FROM ({plan_text(fields['input'], parts=parts)}) WHERE {fields['predicate']}"
        case "project":
            items = ", ".join(f"{text} AS {quoted(name)}" for name, text in fields["columns"])
            return f"SELECT {items} FROM ({plan_text(fields['input'], parts=parts)})"
        case "group":
            return _group(fields, plan_text(fields["input"], parts=parts))
        case "join":
            sides = [plan_text(fields[side], parts=parts) for side in ("left", "right")]
            on = " AND ".join(f"({left}) = ({right})" for left, right in fields["on"]) or "TRUE"
            return f"SELECT * FROM ({sides[0]}) JOIN ({sides[1]}) ON {on}"
        case "union":
            return " UNION ALL ".join(f"({plan_text(input, parts=parts)})" for input in fields["inputs"])
        case "distinct":
            return f"SELECT DISTINCT * FROM ({plan_text(fields['input'], parts=parts)})"
        case "top":
            names = ", ".join(map(quoted, fields["columns"]))
            order = ", ".join(f"{quoted(name)} {way} NULLS {nulls}" for name, way, nulls in fields["order"])
            rows = plan_text(fields["input"], parts=parts)
            bounds = f"LIMIT {fields['limit']} OFFSET {fields['offset']}"
            return f"SELECT * FROM (SELECT {names} FROM ({rows}) ORDER BY {order} {bounds})"
        case "sql":
            inputs = [(alias, plan_text(input, parts=parts), keys) for alias, input, keys in fields["inputs"]]
            return _in_parts(inputs, fields["text"], parts if inputs[0][2] else 1)
        case "sql_linear":
            alias, input = fields["input"]
            halves = [f"to_json(struct({quoted(name)}))" for name in _names(input)]
            return _in_parts([(alias, plan_text(input, parts=parts), halves)], fields["text"], parts)
        case other:
            raise AssertionError(f"no such node: {other}")


def _names(node: Node) -> list[str]:
    fields: dict[str, Any] = dict(node.fields)
    match node.op:
        case "get" | "project" | "sql" | "sql_linear":
            return [column[0] for column in fields["columns"]]
        case "filter" | "distinct":
            return _names(fields["input"])
        case "top":
            return list(fields["columns"])
        case "group":
            return [item[0] for item in (*fields["keys"], *fields["aggregates"])]
        case "join":
            return [*_names(fields["left"]), *_names(fields["right"])]
        case _:
            return _names(fields["inputs"][0])


def _in_parts(inputs: list[tuple[str, str, Any]], text: str, parts: int) -> str:
    if parts == 1:
        given = ", ".join(f"{alias} AS ({input})" for alias, input, _ in inputs)
        return f"WITH {given} {text}"
    queries = []
    for part in range(parts):
        given = ", ".join(
            f"{alias} AS (SELECT * FROM ({input}) WHERE pmod(hash({', '.join(keys)}), {parts}) = {part})"
            for alias, input, keys in inputs
        )
        queries.append(f"SELECT * FROM (WITH {given} {text})")
    return " UNION ALL ".join(queries)


def _group(fields: dict[str, Any], input: str) -> str:
    items = [f"{text} AS {quoted(name)}" for name, text in fields["keys"]]
    items += [
        f"{function}({'*' if text is None else text}) AS {quoted(name)}"
        for name, function, text in fields["aggregates"]
    ]
    by = ", ".join(text for _, text in fields["keys"])
    return f"SELECT {', '.join(items)} FROM ({input}){f' GROUP BY {by}' if by else ''}"
