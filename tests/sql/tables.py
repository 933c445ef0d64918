"""A small catalog for the tests of the compiler."""

from collections.abc import Iterable, Mapping

from controller.sql import Column, CompiledQuery, Relation, compile_query
from reconcile.ids import GlobalId

ORDERS, CUSTOMERS, EVENTS = GlobalId("s", 1), GlobalId("s", 2), GlobalId("u", 3)
NAMES: Mapping[GlobalId, str] = {ORDERS: "orders", CUSTOMERS: "customers", EVENTS: "events"}


def columns(*parts: str) -> tuple[Column, ...]:
    """Columns from ``name type``; with ``!`` behind the type none of their values is null."""
    split = [part.rsplit(" ", 1) for part in parts]
    return tuple(Column(name=name, type=type.rstrip("!"), nullable=not type.endswith("!")) for name, type in split)


class Tables:
    """A catalog that is a dictionary."""

    def __init__(self, relations: Mapping[str, Relation]) -> None:
        self._relations = relations

    def resolve(self, name: str) -> Relation | None:
        return self._relations.get(name)

    def names(self) -> Iterable[str]:
        return self._relations

    def and_view(self, name: str, sql: str) -> "Tables":
        compiled = compile_query(sql, self, allow_order=False)
        view = Relation(columns=compiled.columns, plan=compiled.plan, reads=compiled.reads)
        return Tables({**self._relations, name: view})


TABLES = Tables(
    {
        "orders": Relation(
            id=ORDERS, columns=columns("id int!", "customer int", "amount decimal(10,2)", "status string")
        ),
        "customers": Relation(id=CUSTOMERS, columns=columns("id bigint!", "name string", "joined date")),
        "events": Relation(
            id=EVENTS,
            columns=columns(
                "at timestamp", "size double", "small smallint", "ok boolean", "raw binary", "Mixed Case int"
            ),
        ),
    }
)


def compiled(sql: str, *, allow_order: bool = True) -> CompiledQuery:
    return compile_query(sql, TABLES, allow_order=allow_order)
