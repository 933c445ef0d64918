"""A dumb interpreter of plans over lists of rows: what the nodes mean, with no thought of speed.

Numbers are Python's, texts are texts, null is None. It knows of types only what CAST needs.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import sqlglot
from sqlglot import exp

from reconcile.ids import GlobalId
from reconcile.plan_tree import Node

Row: TypeAlias = dict[str, Any]
Tables: TypeAlias = Mapping[GlobalId, list[Row]]


def run(node: Node, tables: Tables) -> list[Row]:
    """The rows of a plan, each as often as it occurs."""
    fields: dict[str, Any] = dict(node.fields)
    match node.op:
        case "get":
            names = [name for name, _ in fields["columns"]]
            return [{name: row[name] for name in names} for row in tables[fields["id"]]]
        case "filter":
            keep = parsed(fields["predicate"])
            return [row for row in run(fields["input"], tables) if value(keep, row) is True]
        case "project":
            columns = [(name, parsed(text)) for name, text in fields["columns"]]
            return [{name: value(tree, row) for name, tree in columns} for row in run(fields["input"], tables)]
        case "group":
            return _group(run(fields["input"], tables), fields["keys"], fields["aggregates"])
        case "join":
            return _join(run(fields["left"], tables), run(fields["right"], tables), fields["on"])
        case "union":
            parts = [run(input, tables) for input in fields["inputs"]]
            assert all([*row] == [*parts[0][0]] for part in parts for row in part if parts[0]), "columns differ"
            return [row for part in parts for row in part]
        case "distinct":
            return [dict(items) for items in dict.fromkeys(tuple(row.items()) for row in run(fields["input"], tables))]
        case other:
            raise AssertionError(f"no such node: {other}")


def _group(rows: list[Row], keys: Any, aggregates: Any) -> list[Row]:
    trees = [parsed(text) for _, text in keys]
    assert len({name for name, _ in keys}) == len(keys), "two keys share a name"
    groups: dict[tuple[Any, ...], list[Row]] = {} if keys else {(): []}
    for row in rows:
        groups.setdefault(tuple(value(tree, row) for tree in trees), []).append(row)
    out = []
    for key, members in groups.items():
        result = dict(zip([name for name, _ in keys], key, strict=True))
        for name, function, text in aggregates:
            assert name not in result
            values = [1 if text is None else value(parsed(text), row) for row in members]
            result[name] = _aggregated(function, [item for item in values if item is not None])
        out.append(result)
    return out


def _aggregated(function: str, values: list[Any]) -> Any:
    if function == "count":
        return len(values)
    if not values:
        return None
    functions: dict[str, Callable[[list[Any]], Any]] = {
        "sum": sum,
        "min": min,
        "max": max,
        "avg": lambda items: sum(items) / len(items),
    }
    return functions[function](values)


def _join(left: list[Row], right: list[Row], on: Any) -> list[Row]:
    pairs = [(parsed(ours), parsed(theirs)) for ours, theirs in on]
    out = []
    for ours in left:
        for theirs in right:
            assert not ours.keys() & theirs.keys(), "the sides share a name"
            keys = [(value(a, ours), value(b, theirs)) for a, b in pairs]
            if all(a is not None and a == b for a, b in keys):
                out.append({**ours, **theirs})
    return out


def parsed(text: str) -> exp.Expr:
    return sqlglot.parse_one(text, dialect="spark", into=exp.Condition)


def _strict(function: Callable[..., Any]) -> Callable[..., Any]:
    """Null if any argument is."""
    return lambda *arguments: None if any(argument is None for argument in arguments) else function(*arguments)


def _like(text: str, pattern: str) -> bool:
    parts = {"%": ".*", "_": "."}
    return re.fullmatch("".join(parts.get(one, re.escape(one)) for one in pattern), text, re.DOTALL) is not None


def _substring(text: str, start: int, length: int | None = None) -> str:
    assert start > 0
    return text[start - 1 :] if length is None else text[start - 1 : start - 1 + length]


def _remainder(a: int, b: int) -> int:
    return abs(a) % abs(b) * (-1 if a < 0 else 1)


_CALLS: dict[type[exp.Expr], Callable[..., Any]] = {
    exp.Add: lambda a, b: a + b,
    exp.Sub: lambda a, b: a - b,
    exp.Mul: lambda a, b: a * b,
    exp.Div: lambda a, b: a / b,
    exp.Mod: _remainder,
    exp.Neg: lambda a: -a,
    exp.EQ: lambda a, b: a == b,
    exp.NEQ: lambda a, b: a != b,
    exp.LT: lambda a, b: a < b,
    exp.LTE: lambda a, b: a <= b,
    exp.GT: lambda a, b: a > b,
    exp.GTE: lambda a, b: a >= b,
    exp.Not: lambda a: not a,
    exp.Like: _like,
    exp.Upper: str.upper,
    exp.Lower: str.lower,
    exp.Length: len,
    exp.Trim: lambda a: a.strip(" "),
    exp.Substring: _substring,
    exp.Concat: lambda *parts: "".join(parts),
    exp.Abs: abs,
}


def value(tree: exp.Expr, row: Row) -> Any:
    """The value of an expression in a row."""
    match tree:
        case exp.Column():
            return row[tree.name]
        case exp.Literal():
            return tree.name if tree.is_string else (float(tree.name) if "." in tree.name else int(tree.name))
        case exp.Null():
            return None
        case exp.Boolean():
            return tree.this
        case exp.Paren():
            return value(tree.this, row)
        case exp.And() | exp.Or():
            sides = {value(tree.this, row), value(tree.expression, row)}
            decisive = isinstance(tree, exp.Or)
            return decisive if decisive in sides else None if None in sides else not decisive
        case exp.Is():
            return value(tree.this, row) is None
        case exp.In():
            found = [_strict(_CALLS[exp.EQ])(value(tree.this, row), value(item, row)) for item in tree.expressions]
            return True if True in found else None if None in found else False
        case exp.Between():
            wanted, low, high = (value(tree.args[part], row) for part in ("this", "low", "high"))
            sides = {_strict(_CALLS[exp.GTE])(wanted, low), _strict(_CALLS[exp.LTE])(wanted, high)}
            return False if False in sides else None if None in sides else True
        case exp.Case():
            return _case(tree, row)
        case exp.Coalesce():
            values = [value(item, row) for item in (tree.this, *tree.expressions)]
            return next((item for item in values if item is not None), None)
        case exp.Cast():
            return _cast(tree, value(tree.this, row))
    return _strict(_CALLS[type(tree)])(*(value(argument, row) for argument in tree.iter_expressions()))


def _case(tree: exp.Expr, row: Row) -> Any:
    for branch in tree.args["ifs"]:
        test = value(branch.this, row)
        if test is True if tree.this is None else test is not None and test == value(tree.this, row):
            return value(branch.args["true"], row)
    default = tree.args.get("default")
    return None if default is None else value(default, row)


def _cast(tree: exp.Expr, item: Any) -> Any:
    if item is None:
        return None
    kind = tree.args["to"].sql(dialect="spark").partition("(")[0]
    return {"STRING": str, "INT": int, "BIGINT": int, "DOUBLE": float, "DECIMAL": float}[kind](item)
