"""Random SELECTs over random tables: small parts, put together in every way the grammar here allows.

Each has exactly one right answer as a bag of rows: what takes rows by place has an order over all columns.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from tests.spark.random_tables import RandomTable

_INTEGERS = ("tinyint", "smallint", "int", "bigint")
_FRACTIONS = ("float", "double")


def _is_decimal(type: str) -> bool:
    return type.startswith("decimal")


def _kind(type: str) -> str:
    """Types that can be used in the same places."""
    if type in _INTEGERS:
        return "int"
    if type in _FRACTIONS:
        return "double"
    return "decimal" if _is_decimal(type) else type


@dataclass(frozen=True, slots=True)
class Named:
    """Something that can be named in an expression; its type matters only by kind."""

    text: str
    type: str

    @property
    def kind(self) -> str:
        return _kind(self.type)

    @property
    def is_comparable(self) -> bool:
        return "map<" not in self.type


@dataclass(frozen=True, slots=True)
class Query:
    """A query and the columns that it gives."""

    sql: str
    columns: tuple[Named, ...]


class Maker:
    """Makes queries over some tables."""

    def __init__(self, random: Random, tables: Sequence[RandomTable]) -> None:
        self._random = random
        self._tables = tables
        self._names = 0

    # --- choices -------------------------------------------------------------------------------------------

    def _chance(self, share: float) -> bool:
        return self._random.random() < share

    def _one(self, *makers: Callable[[], str]) -> str:
        return self._random.choice(makers)()

    def _fresh(self, what: str) -> str:
        self._names += 1
        return f"{what}{self._names}"

    # --- expressions ---------------------------------------------------------------------------------------

    def _column(self, scope: Sequence[Named], kind: str) -> str | None:
        found = [named.text for named in scope if named.kind == kind]
        return self._random.choice(found) if found else None

    def value(self, scope: Sequence[Named], kind: str, depth: int = 2) -> str:
        """An expression of a kind; whatever the rows, it does not fail."""
        column = self._column(scope, kind)
        if column is not None and (depth <= 0 or self._chance(0.6)):
            return column
        made = self._computed(scope, kind, depth - 1) if depth > 0 else None
        return made or column or self._literal(kind)

    def _literal(self, kind: str) -> str:
        random = self._random
        match kind:
            case "int":
                return str(random.choice([0, 1, 2, 3]))
            case "double":
                return random.choice(["0.5D", "1.5D", "CAST(0 AS DOUBLE)"])
            case "decimal":
                return random.choice(["0.10", "1.25"])
            case "string":
                return random.choice(["''", "'x'", "'zz'", "'é'"])
            case "boolean":
                return random.choice(["TRUE", "FALSE"])
            case "date":
                return "DATE'2024-02-29'"
            case "timestamp":
                return "TIMESTAMP'2026-01-01 00:00:00'"
            case "binary":
                return "CAST('x' AS BINARY)"
            case _:
                return f"CAST(NULL AS {kind})"

    def _computed(self, scope: Sequence[Named], kind: str, depth: int) -> str | None:
        def of(kind: str) -> str:
            return self.value(scope, kind, depth)

        forms: list[Callable[[], str]] = [
            lambda: f"CASE WHEN {self.condition(scope, depth)} THEN {of(kind)} ELSE {of(kind)} END",
            lambda: f"coalesce({of(kind)}, {of(kind)})",
            lambda: f"if({self.condition(scope, depth)}, {of(kind)}, NULL)",
        ]
        match kind:
            case "int":
                forms += [
                    lambda: f"CAST({of('int')} % 5 AS INT) + {self._random.choice([1, 2])}",
                    lambda: f"length({of('string')})",
                    lambda: f"abs(CAST({of('int')} % 7 AS INT))",
                    lambda: f"year({of('date')})",
                    lambda: f"day({of('timestamp')})",
                    lambda: f"nullif({of('int')}, 1)",
                    lambda: f"pmod({of('int')}, 3)",
                ]
                for named in scope:
                    if named.type.startswith(("array<", "map<")):
                        forms.append(lambda named=named: f"size({named.text})")  # type: ignore[misc]
                    if named.type == "struct<x:int,y:string>":
                        forms.append(lambda named=named: f"{named.text}.x")  # type: ignore[misc]
                    if named.type == "map<string,int>":
                        forms.append(lambda named=named: f"{named.text}['a']")  # type: ignore[misc]
            case "string":
                forms += [
                    lambda: f"upper({of('string')})",
                    lambda: f"concat({of('string')}, '-', {of('string')})",
                    lambda: f"substring({of('string')}, 1, 1)",
                    lambda: f"CAST({of('int')} AS STRING)",
                    lambda: f"CAST({of('date')} AS STRING)",
                    lambda: f"reverse({of('string')})",
                    lambda: f"trim({of('string')})",
                ]
            case "double":
                forms += [lambda: f"{of('double')} + 0.5D", lambda: f"CAST({of('int')} AS DOUBLE) * 2"]
            case "decimal":
                forms += [
                    lambda: f"CAST(CAST({of('int')} % 100 AS INT) AS DECIMAL(12,3))",
                    lambda: f"CAST({of('decimal')} AS DECIMAL(24,4)) + 1.5",
                ]
            case "date":
                forms += [lambda: f"date_add({of('date')}, 1)", lambda: f"CAST({of('timestamp')} AS DATE)"]
            case "timestamp":
                forms += [
                    lambda: f"date_trunc('DAY', {of('timestamp')})",
                    lambda: f"{of('timestamp')} + INTERVAL 1 DAY",
                ]
            case "boolean":
                return self.condition(scope, depth)
            case _:
                pass
        return self._one(*forms)

    def condition(self, scope: Sequence[Named], depth: int = 1) -> str:
        kinds = [named.kind for named in scope if named.is_comparable] or ["int"]
        kind = self._random.choice(kinds)

        def of(kind: str) -> str:
            return self.value(scope, kind, depth - 1)

        sign = self._random.choice(["=", "<>", "<", ">=", "<=>"])
        forms: list[Callable[[], str]] = [
            lambda: f"{of(kind)} {sign} {of(kind)}",
            lambda: f"{of(kind)} {sign} {of(kind)}",
            lambda: f"{of(kind)} IS {self._random.choice(['', 'NOT '])}NULL",
            lambda: f"{of('int')} > {self._literal('int')}",
            lambda: f"{of('int')} IN (1, 2, {of('int')})",
            lambda: f"{of('string')} LIKE '%x%'",
            lambda: f"{of('int')} NOT BETWEEN 0 AND {of('int')}",
        ]
        if depth > 0:
            forms += [
                lambda: f"({self.condition(scope, depth - 1)} OR {self.condition(scope, depth - 1)})",
                lambda: f"NOT ({self.condition(scope, depth - 1)})",
            ]
        return self._one(*forms)

    # --- FROM ----------------------------------------------------------------------------------------------

    def _table(self) -> tuple[str, tuple[Named, ...]]:
        table = self._random.choice(self._tables)
        alias = self._fresh("q")
        return f"{table.name} AS {alias}", tuple(Named(f"{alias}.{c.name}", c.type) for c in table.columns)

    def _source(self, depth: int) -> tuple[str, tuple[Named, ...]]:
        if depth <= 0 or self._chance(0.6):
            return self._table()
        query = self.query(depth - 1)
        alias = self._fresh("q")
        return f"({query.sql}) AS {alias}", tuple(Named(f"{alias}.{c.text}", c.type) for c in query.columns)

    def _pair(self, left: Sequence[Named], right: Sequence[Named]) -> tuple[Named, Named] | None:
        pairs = [
            (ours, theirs)
            for ours in left
            for theirs in right
            if ours.kind == theirs.kind and ours.is_comparable and (ours.type == theirs.type or ours.kind == "int")
        ]
        return self._random.choice(pairs) if pairs else None

    def _from(self, depth: int) -> tuple[str, tuple[Named, ...]]:
        text, scope = self._source(depth)
        for _ in range(self._random.choice([0, 0, 1, 1, 2])):
            other, columns = self._source(depth - 1)
            kind = self._random.choice(["JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "SEMI", "ANTI"])
            conditions = self._meeting(scope, columns)
            if not conditions:
                text, scope = f"{text} CROSS JOIN {other}", (*scope, *columns)
                continue
            word = f"LEFT {kind} JOIN" if kind in ("SEMI", "ANTI") else kind
            text = f"{text} {word} {other} ON {' AND '.join(conditions)}"
            if kind not in ("SEMI", "ANTI"):
                scope = (*scope, *columns)
        return text, scope

    def _meeting(self, left: Sequence[Named], right: Sequence[Named]) -> list[str]:
        conditions = []
        for _ in range(self._random.choice([1, 1, 2])):
            pair = self._pair(left, right)
            if pair is not None:
                sign = "<=>" if self._chance(0.12) else "="
                conditions.append(f"{pair[0].text} {sign} {pair[1].text}")
        if self._chance(0.25):
            conditions.append(self.condition((*left, *right), 1))
        if self._chance(0.1):
            conditions.append(self.condition(right, 1))
        return conditions

    def _where(self, scope: Sequence[Named], depth: int) -> str:
        conditions = [self.condition(scope) for _ in range(self._random.choice([0, 0, 1, 2]))]
        if depth > 0 and self._chance(0.35):
            conditions.append(self._subquery(scope))
        return f" WHERE {' AND '.join(conditions)}" if conditions else ""

    def _subquery(self, scope: Sequence[Named]) -> str:
        """A condition with a query in it."""
        source, columns = self._table()
        pair = self._pair(scope, columns)
        link = f" WHERE {pair[0].text} = {pair[1].text}" if pair and self._chance(0.7) else ""
        own = self.condition(columns, 0) if self._chance(0.5) else ""
        also = f"{' AND' if link else ' WHERE'} {own}" if own else ""
        cross = self.condition((*scope, *columns), 0)
        both = f"{link} AND {cross}" if link and self._chance(0.3) else f"{link}{also}"
        number = next(column.text for column in columns if column.kind == "int")
        forms = [
            lambda: f"EXISTS (SELECT 1 FROM {source}{both})",
            lambda: f"NOT EXISTS (SELECT 1 FROM {source}{both})",
            lambda: f"{self.value(scope, 'int', 1)} > (SELECT min({number}) FROM {source}{link}{also})",
            lambda: f"{self.value(scope, 'int', 1)} <= (SELECT count(*) FROM {source}{link}{also})",
        ]
        if pair is not None:
            word = self._random.choice(["IN", "NOT IN"])
            rows = f"SELECT {pair[1].text} FROM {source}{f' WHERE {own}' if own else ''}"
            forms.append(lambda: f"{pair[0].text} {word} ({rows})")
        return self._one(*forms)

    # --- queries -------------------------------------------------------------------------------------------

    def query(self, depth: int = 2) -> Query:
        forms = [self._rows, self._rows, self._groups, self._groups, self._distinct, self._windows]
        if depth > 0:
            forms += [self._first, self._set_operation, self._generated, self._with]
        return self._random.choice(forms)(depth)

    def _selected(self, scope: Sequence[Named], count: int) -> list[Named]:
        """Some values of the scope, each of its own type."""
        kinds = sorted({named.kind for named in scope})
        found = []
        for place in range(count):
            if place == 0 or self._chance(0.6):
                # There is always something to compare.
                found.append(self._random.choice([named for named in scope if place or named.is_comparable]))
            else:
                kind = self._random.choice(kinds)
                found.append(Named(self.value(scope, kind), kind))
        return found

    def _listed(self, values: Sequence[Named]) -> tuple[str, tuple[Named, ...]]:
        names = [self._fresh("v") for _ in values]
        text = ", ".join(f"{value.text} AS {name}" for value, name in zip(values, names, strict=True))
        return text, tuple(Named(name, value.type) for name, value in zip(names, values, strict=True))

    def _rows(self, depth: int) -> Query:
        source, scope = self._from(depth)
        items, columns = self._listed(self._selected(scope, self._random.randint(1, 4)))
        return Query(f"SELECT {items} FROM {source}{self._where(scope, depth)}", columns)

    def _distinct(self, depth: int) -> Query:
        source, scope = self._from(depth)
        scope = tuple(named for named in scope if named.is_comparable)
        items, columns = self._listed(self._selected(scope, self._random.randint(1, 3)))
        return Query(f"SELECT DISTINCT {items} FROM {source}{self._where(scope, depth)}", columns)

    def aggregate(self, scope: Sequence[Named]) -> Named:
        def of(kind: str) -> str:
            return self.value(scope, kind, 1)

        some = self._random.choice([named for named in scope if named.is_comparable])
        ordered = "" if some.type == "binary" else some.type
        forms = [
            Named("count(*)", "bigint"),
            Named(f"count({some.text})", "bigint"),
            Named(f"count(DISTINCT {some.text})", "bigint"),
            Named(f"sum({of('int')})", "bigint"),
            Named(f"sum({of('decimal')})", "decimal"),
            Named(f"sum({of('double')})", "double"),
            Named(f"avg({of('int')})", "double"),
            Named(f"avg({of('decimal')})", "decimal"),
            Named(f"avg({of('double')})", "double"),
            Named(f"min({some.text})", some.type),
            Named(f"max({some.text})", some.type),
            Named(f"max({of('timestamp')})", "timestamp"),
            Named(f"min({of('string')})", "string"),
            Named(f"bool_or({self.condition(scope)})", "boolean"),
            Named(f"count_if({self.condition(scope)})", "bigint"),
            Named(f"sum({of('int')}) FILTER (WHERE {self.condition(scope)})", "bigint"),
            Named(f"count(*) FILTER (WHERE {self.condition(scope)})", "bigint"),
            Named(f"sort_array(collect_list({of('int')}))", "array<int>"),
            Named(f"sort_array(collect_set({of('string')}))", "array<string>"),
            Named(f"stddev({of('int')})", "double"),
            Named(f"var_pop({of('int')})", "double"),
            Named(f"percentile({of('int')}, 0.5)", "double"),
            Named(f"bit_xor(CAST({of('int')} % 100 AS INT))", "int"),
        ]
        if ordered:
            forms.append(Named(f"max_by({some.text}, {some.text})", some.type))
        return self._random.choice(forms)

    def _groups(self, depth: int) -> Query:
        source, scope = self._from(depth)
        keyable = [named for named in self._selected(scope, 4) if named.is_comparable]
        keys = [named for named in keyable if not named.text.startswith("CAST(NULL")][
            : self._random.choice([0, 1, 1, 2])
        ]
        aggregates = [self.aggregate(scope) for _ in range(self._random.randint(1, 3))]
        items, columns = self._listed([*keys, *aggregates])
        text = f"SELECT {items} FROM {source}{self._where(scope, depth)}"
        if keys:
            by = ", ".join(str(place + 1) for place in range(len(keys)))
            text += f" GROUP BY {by}"
        if self._chance(0.2):
            known = f"min({keys[0].text}) IS NOT NULL" if keys else "count(*) > 0"
            text += f" HAVING {self._random.choice(['count(*) > 1', 'count(*) < 4', known])}"
        return Query(text, columns)

    def _windows(self, depth: int) -> Query:
        source, scope = self._source(depth)
        scope = tuple(named for named in scope if named.is_comparable)
        everything = ", ".join(named.text for named in scope)
        partition = f"PARTITION BY {self._random.choice(scope).text}" if self._chance(0.85) else ""
        by = self._random.choice(scope).text
        number = self.value(scope, "int", 1)
        some = self._random.choice(scope)
        forms = [
            Named(f"row_number() OVER ({partition} ORDER BY {everything})", "int"),
            Named(f"rank() OVER ({partition} ORDER BY {by})", "int"),
            Named(f"dense_rank() OVER ({partition} ORDER BY {by} DESC)", "int"),
            Named(f"sum({number}) OVER ({partition} ORDER BY {by})", "bigint"),
            Named(f"sum({self.value(scope, 'double', 0)}) OVER ({partition} ORDER BY {by})", "double"),
            Named(f"count(*) OVER ({partition})", "bigint"),
            Named(f"max({some.text}) OVER ({partition})", some.type),
            Named(f"lag({some.text}) OVER ({partition} ORDER BY {everything})", some.type),
            Named(f"first_value({some.text}) OVER ({partition} ORDER BY {everything})", some.type),
            Named(
                f"sum({number}) OVER ({partition} ORDER BY {everything} ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)",
                "bigint",
            ),
        ]
        windows = [self._random.choice(forms) for _ in range(self._random.choice([1, 1, 2]))]
        items, columns = self._listed([*self._selected(scope, self._random.randint(1, 3)), *windows])
        if self._chance(0.3):
            inner = f"SELECT {items} FROM {source}{self._where(scope, 0)}"
            return Query(f"SELECT * FROM ({inner}) WHERE {self.condition(columns)}", columns)
        return Query(f"SELECT {items} FROM {source}{self._where(scope, 0)}", columns)

    def _comparable(self, depth: int) -> Query:
        """A query whose columns can all be compared."""
        query = self.query(depth)
        kept = [named for named in query.columns if named.is_comparable]
        if len(kept) == len(query.columns):
            return query
        if not kept:
            return self._comparable(depth)
        return Query(f"SELECT {', '.join(named.text for named in kept)} FROM ({query.sql})", tuple(kept))

    def _first(self, depth: int) -> Query:
        query = self._comparable(depth - 1)
        names = [named.text for named in query.columns]
        self._random.shuffle(names)
        order = ", ".join(f"{name}{self._random.choice(['', ' DESC', ' NULLS LAST'])}" for name in names)
        offset = " OFFSET 1" if self._chance(0.2) else ""
        limited = f"SELECT * FROM ({query.sql}) ORDER BY {order} LIMIT {self._random.randint(1, 5)}{offset}"
        return Query(f"SELECT * FROM ({limited})", query.columns)

    def _set_operation(self, depth: int) -> Query:
        word = self._random.choice(
            ["UNION ALL", "UNION ALL", "UNION", "INTERSECT", "EXCEPT", "INTERSECT ALL", "EXCEPT ALL"]
        )
        kinds = self._random.sample(
            ["int", "string", "decimal", "date", "double", "timestamp"], self._random.randint(1, 3)
        )
        sides = []
        for _ in range(2):
            source, scope = self._source(depth - 1)
            values = [Named(self.value(scope, kind, 1), kind) for kind in kinds]
            items, columns = self._listed(values)
            sides.append(Query(f"SELECT {items} FROM {source}{self._where(scope, 0)}", columns))
        return Query(f"({sides[0].sql}) {word} ({sides[1].sql})", sides[0].columns)

    def _generated(self, depth: int) -> Query:
        tables = [table for table in self._tables if any(c.type.startswith("array<") for c in table.columns)]
        if not tables:
            return self._rows(depth)
        table = self._random.choice(tables)
        array = next(c for c in table.columns if c.type.startswith("array<"))
        scope = tuple(Named(f"{table.name}.{c.name}", c.type) for c in table.columns)
        name = self._fresh("e")
        outer = self._random.choice(["", "OUTER "])
        element = Named(name, array.type[len("array<") : -1])
        items, columns = self._listed([element, *self._selected(scope, 2)])
        view = f"LATERAL VIEW {outer}explode({table.name}.{array.name}) {self._fresh('l')} AS {name}"
        return Query(f"SELECT {items} FROM {table.name} {view}", columns)

    def _with(self, depth: int) -> Query:
        """A query that is read twice."""
        query = self._comparable(depth - 1)
        name = self._fresh("w")
        left, right = (
            tuple(Named(f"{alias}.{named.text}", named.type) for named in query.columns) for alias in ("x", "y")
        )
        pair = self._pair(left, right)
        assert pair is not None
        kind = self._random.choice(["JOIN", "LEFT JOIN"])
        items, columns = self._listed(self._selected((*left, *right), 3))
        return Query(
            f"WITH {name} AS ({query.sql}) SELECT {items} FROM {name} AS x {kind} {name} AS y"
            f" ON {pair[0].text} = {pair[1].text}",
            columns,
        )
