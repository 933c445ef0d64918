"""The dumb model: random plans, each with a plain Python function that computes its answer from scratch.

Nothing here is incremental, and nothing is shared with the runtime but the meaning of null and NaN.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction
from typing import Any

from hypothesis import strategies as st

from instance.memory.rows import Row
from reconcile.plan_tree import Node
from tests.memory.plans import Columns, distinct, get, join, union, where

Contents = Counter[Row]
Answer = Callable[[Mapping[str, Contents]], Contents]
#: Of a row by column name.
Compute = Callable[[Mapping[str, Any]], Any]

S1: Columns = (("a", "int"), ("b", "bigint"), ("c", "string"))
S2: Columns = (("x", "int"), ("y", "double"), ("z", "decimal(6,2)"))
SOURCES = {"s1": S1, "s2": S2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Modelled:
    """A plan, its columns, and its answer."""

    plan: Node
    columns: Columns
    answer: Answer

    def named(self, row: Row) -> dict[str, Any]:
        return dict(zip((name for name, _ in self.columns), row, strict=True))


_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "int": st.integers(-3, 3),
    "bigint": st.integers(-3, 3),
    "string": st.sampled_from(["", "a", "b", "Ab", "ß%"]),
    "double": st.sampled_from([0.0, 0.1, 0.2, 0.3, -1.5, 1e16, -1e16, math.nan, math.inf]),
    "decimal(6,2)": st.sampled_from([Decimal("0.00"), Decimal("0.01"), Decimal("-1.25"), Decimal("1234.56")]),
}


def rows(columns: Columns) -> st.SearchStrategy[Row]:
    return st.tuples(*(st.one_of(st.none(), _VALUES[type], _VALUES[type]) for _, type in columns))


# --- expressions ------------------------------------------------------------------------------------------


def _nullable(compute: Callable[[Any], Any], name: str) -> Compute:
    return lambda row: None if row[name] is None else compute(row[name])


def _predicates(columns: Columns) -> st.SearchStrategy[tuple[str, Compute]]:
    found: list[tuple[str, Compute]] = []
    for name, type in columns:
        found.append((f"{name} IS NULL", lambda row, name=name: row[name] is None))  # type: ignore[misc]
        if type in ("int", "bigint"):
            found.append((f"{name} > 0", _nullable(lambda value: value > 0, name)))
            found.append((f"{name} IN (1, 2, -1)", _nullable(lambda value: value in (1, 2, -1), name)))
            found.append((f"{name} <> 0 AND 6 / {name} > 2", _nullable(lambda v: v != 0 and 6 / v > 2, name)))
        if type == "double":
            found.append((f"{name} >= 0.2D", _nullable(lambda value: value != value or value >= 0.2, name)))
        if type == "string":
            found.append((f"{name} LIKE '%b'", _nullable(lambda value: value.endswith("b"), name)))
        if type.startswith("decimal"):
            found.append((f"{name} < 1", _nullable(lambda value: value < 1, name)))
    simple = st.sampled_from(found)
    both = st.tuples(simple, simple)
    return st.one_of(
        simple,
        simple.map(lambda one: (f"NOT ({one[0]})", lambda row: None if one[1](row) is None else not one[1](row))),
        both.map(lambda two: (f"({two[0][0]}) OR ({two[1][0]})", lambda row: _either(two[0][1](row), two[1][1](row)))),
        both.map(lambda two: (f"({two[0][0]}) AND ({two[1][0]})", lambda row: _both(two[0][1](row), two[1][1](row)))),
    )


def _either(one: bool | None, other: bool | None) -> bool | None:
    return True if one or other else None if one is None or other is None else False


def _both(one: bool | None, other: bool | None) -> bool | None:
    return False if one is False or other is False else None if one is None or other is None else True


def _computed(name: str, type: str) -> list[tuple[str, str, Compute]]:
    """Expressions over one column: text, type, meaning."""
    found: list[tuple[str, str, Compute]] = [(name, type, lambda row: row[name])]
    if type in ("int", "bigint"):
        found.append((f"{name} * 2 + 1", type, _nullable(lambda value: value * 2 + 1, name)))
        found.append((f"coalesce({name}, 7)", type, lambda row: 7 if row[name] is None else row[name]))
        found.append((f"{name} % 2", type, _nullable(lambda value: int(math.fmod(value, 2)), name)))
        found.append((f"{name} / 4", "double", _nullable(lambda value: value / 4, name)))
    if type == "string":
        found.append((f"upper({name})", type, _nullable(str.upper, name)))
        found.append((f"length({name})", "int", _nullable(len, name)))
    return found


# --- aggregates -------------------------------------------------------------------------------------------


def _known(values: list[Any]) -> list[Any]:
    return [value for value in values if value is not None]


def _order(value: Any) -> Any:
    return (value != value, 0 if value != value else value)


def _total(values: list[Any]) -> Any:
    values = _known(values)
    if not values:
        return None
    if not isinstance(values[0], float):
        return sum(values)
    if not all(map(math.isfinite, values)):
        special = sum(value for value in values if not math.isfinite(value))
        return math.nan if special != special else special
    return float(sum(map(Fraction, values)))


def _average(values: list[Any]) -> Any:
    known = _known(values)
    if not known:
        return None
    if isinstance(known[0], Decimal):
        return (sum(known) / len(known)).quantize(Decimal("0.000001"), rounding=ROUND_HALF_UP)
    if isinstance(known[0], int):
        return sum(known) / len(known)
    mean = _total(known) / len(known)
    return math.nan if mean != mean else mean


_SUM_TYPES = {"int": "bigint", "bigint": "bigint", "double": "double", "decimal(6,2)": "decimal(16,2)"}
_AVG_TYPES = {"int": "double", "bigint": "double", "double": "double", "decimal(6,2)": "decimal(10,6)"}


def _aggregates(name: str, type: str) -> list[tuple[str, str, str, Callable[[list[Any]], Any]]]:
    found: list[tuple[str, str, str, Callable[[list[Any]], Any]]] = [
        ("count", name, "bigint", lambda values: len(_known(values))),
        ("min", name, type, lambda values: min(_known(values), key=_order, default=None)),
        ("max", name, type, lambda values: max(_known(values), key=_order, default=None)),
    ]
    if type in _SUM_TYPES:
        found.append(("sum", name, _SUM_TYPES[type], _total))
        found.append(("avg", name, _AVG_TYPES[type], _average))
    return found


# --- plans ------------------------------------------------------------------------------------------------


def _source(id: str) -> Modelled:
    return Modelled(plan=get(id, SOURCES[id]), columns=SOURCES[id], answer=lambda tables: tables[id])


def _mapped(input: Modelled, plan: Node, columns: Columns, change: Callable[[Row], Row | None]) -> Modelled:
    def answer(tables: Mapping[str, Contents]) -> Contents:
        found: Contents = Counter()
        for row, count in input.answer(tables).items():
            changed = change(row)
            if changed is not None:
                found[changed] += count
        return found

    return Modelled(plan=plan, columns=columns, answer=answer)


@st.composite
def _filtered(draw: st.DrawFn, inputs: st.SearchStrategy[Modelled]) -> Modelled:
    input = draw(inputs)
    text, holds = draw(_predicates(input.columns))
    return _mapped(input, where(input.plan, text), input.columns, lambda row: row if holds(input.named(row)) else None)


@st.composite
def _projected(draw: st.DrawFn, inputs: st.SearchStrategy[Modelled]) -> Modelled:
    input = draw(inputs)
    possible = [choice for name, type in input.columns for choice in _computed(name, type)]
    chosen = draw(st.lists(st.sampled_from(possible), min_size=1, max_size=3))
    columns = tuple((f"p{place}", type) for place, (_, type, _) in enumerate(chosen))
    made = tuple((name, text) for (name, _), (text, _, _) in zip(columns, chosen, strict=True))
    plan = Node(op="project", fields=(("input", input.plan), ("columns", made)))
    return _mapped(input, plan, columns, lambda row: tuple(compute(input.named(row)) for _, _, compute in chosen))


@st.composite
def _grouped(draw: st.DrawFn, inputs: st.SearchStrategy[Modelled]) -> Modelled:
    input = draw(inputs)
    keys = draw(st.lists(st.sampled_from(input.columns), max_size=2, unique=True))
    possible = [choice for name, type in input.columns for choice in _aggregates(name, type)]
    chosen = draw(st.lists(st.sampled_from(possible), min_size=1, max_size=3))
    made = (
        ("n", "count", None),
        *((f"g{place}", function, text) for place, (function, text, _, _) in enumerate(chosen)),
    )
    columns = (*keys, ("n", "bigint"), *((f"g{place}", type) for place, (_, _, type, _) in enumerate(chosen)))
    columns = tuple((f"q{place}", type) for place, (_, type) in enumerate(columns))
    renamed = tuple(
        (name, function, text) for (name, _), (_, function, text) in zip(columns[len(keys) :], made, strict=True)
    )
    key_fields = tuple((columns[place][0], name) for place, (name, _) in enumerate(keys))
    plan = Node(op="group", fields=(("input", input.plan), ("keys", key_fields), ("aggregates", renamed)))

    def answer(tables: Mapping[str, Contents]) -> Contents:
        groups: dict[Row, list[dict[str, Any]]] = {} if keys else {(): []}
        for row in input.answer(tables).elements():
            named = input.named(row)
            groups.setdefault(tuple(named[name] for name, _ in keys), []).append(named)
        return Counter(
            (*key, len(members), *(compute([member[name] for member in members]) for _, name, _, compute in chosen))
            for key, members in groups.items()
        )

    return Modelled(plan=plan, columns=columns, answer=answer)


def _renamed(input: Modelled, prefix: str) -> Modelled:
    columns = tuple((f"{prefix}{place}", type) for place, (_, type) in enumerate(input.columns))
    made = tuple((new, old) for (new, _), (old, _) in zip(columns, input.columns, strict=True))
    plan = Node(op="project", fields=(("input", input.plan), ("columns", made)))
    return replace(input, plan=plan, columns=columns)


@st.composite
def _joined(draw: st.DrawFn, inputs: st.SearchStrategy[Modelled]) -> Modelled:
    left, right = _renamed(draw(inputs), "l"), _renamed(draw(inputs), "r")
    whole = ("int", "bigint")
    pairs = [
        (ours, theirs)
        for ours, (_, one) in enumerate(left.columns)
        for theirs, (_, other) in enumerate(right.columns)
        if one == other or (one in whole and other in whole)
    ]
    on = draw(st.lists(st.sampled_from(pairs), min_size=1, max_size=2)) if pairs else []
    names = [(left.columns[ours][0], right.columns[theirs][0]) for ours, theirs in on]

    def answer(tables: Mapping[str, Contents]) -> Contents:
        found: Contents = Counter()
        for one, count in left.answer(tables).items():
            for other, times in right.answer(tables).items():
                if all(one[o] is not None and (one[o],) == (other[t],) for o, t in on):
                    found[one + other] += count * times
        return found

    return Modelled(plan=join(left.plan, right.plan, *names), columns=(*left.columns, *right.columns), answer=answer)


@st.composite
def _united(draw: st.DrawFn, inputs: st.SearchStrategy[Modelled]) -> Modelled:
    one = draw(inputs)
    other = draw(_filtered(st.just(one)))
    return Modelled(
        plan=union(one.plan, other.plan),
        columns=one.columns,
        answer=lambda tables: one.answer(tables) + other.answer(tables),
    )


@st.composite
def _distinct(draw: st.DrawFn, inputs: st.SearchStrategy[Modelled]) -> Modelled:
    input = draw(inputs)
    return replace(
        input, plan=distinct(input.plan), answer=lambda tables: Counter(dict.fromkeys(input.answer(tables), 1))
    )


def plans(depth: int = 3) -> st.SearchStrategy[Modelled]:
    """Plans over both tables, at most ``depth`` operators high."""
    sources = st.sampled_from([_source(id) for id in SOURCES])
    if depth == 0:
        return sources
    smaller = plans(depth - 1)
    makers = (_filtered, _projected, _grouped, _joined, _united, _distinct)
    return st.one_of(sources, *(make(smaller) for make in makers))
