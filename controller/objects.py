"""Objects: what users name, as the catalog keeps it."""

import json
from dataclasses import dataclass
from enum import StrEnum

from controller.sql import UserFunction, stored_function
from reconcile.ids import GlobalId


class ObjectKind(StrEnum):
    TABLE = "table"
    SOURCE = "source"
    VIEW = "view"
    MATERIALIZED_VIEW = "materialized view"
    INDEX = "index"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectColumn:
    """One column: its type is a type of Spark SQL."""

    name: str
    type: str
    not_null: bool = False
    #: Of a column that was added: the number from which on views were made that know it. Columns are only ever added
    #: at the end, so what an older view means by ``*`` stays what it was.
    known_from: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogObject:
    """One object.

    A view is only a name for a query: it has no cluster, and nothing runs for it. ``reads`` are the objects in its
    definition, ``imports`` the collections that its dataflow reads.
    """

    id: GlobalId
    name: str
    kind: ObjectKind
    columns: tuple[ObjectColumn, ...]
    cluster: str = ""
    sql: str = ""
    #: Of an index: what it indexes, and by which columns.
    on: GlobalId | None = None
    key: tuple[str, ...] = ()
    reads: tuple[GlobalId, ...] = ()
    imports: tuple[GlobalId, ...] = ()
    #: Of a source: its type and options.
    options: tuple[tuple[str, str], ...] = ()
    #: Functions of users that its text calls, in the versions that there were.
    functions: tuple[UserFunction, ...] = ()
    #: Refused at creation unless nothing of it is computed anew; its plan is what it was then.
    strict_incremental: bool = False

    def columns_for(self, reader: GlobalId | None) -> tuple[ObjectColumn, ...]:
        """What ``reader`` knows of the columns; whoever asks now knows all."""
        return tuple(column for column in self.columns if reader is None or column.known_from <= reader.number)

    @property
    def is_stored(self) -> bool:
        """Whether it has a shard of its own."""
        return self.kind in (ObjectKind.TABLE, ObjectKind.SOURCE, ObjectKind.MATERIALIZED_VIEW)

    @property
    def has_dataflow(self) -> bool:
        return self.kind in (ObjectKind.INDEX, ObjectKind.MATERIALIZED_VIEW)

    @property
    def needs(self) -> tuple[GlobalId, ...]:
        """What must not be dropped while this is there."""
        return tuple(dict.fromkeys((*self.reads, *self.imports, *((self.on,) if self.on else ()))))

    def definition(self) -> str:
        """Everything but id, name and kind, as it is stored."""
        return json.dumps(
            {
                "columns": [
                    [column.name, column.type, column.not_null, *([column.known_from] if column.known_from else [])]
                    for column in self.columns
                ],
                "cluster": self.cluster,
                "sql": self.sql,
                "on": str(self.on) if self.on else None,
                "key": list(self.key),
                "reads": [str(id) for id in self.reads],
                "imports": [str(id) for id in self.imports],
                "options": [list(option) for option in self.options],
                "strict_incremental": self.strict_incremental,
                "functions": [function.definition() for function in self.functions],
            },
            sort_keys=True,
        )


def stored_object(id: GlobalId, name: str, kind: str, definition: str) -> CatalogObject:
    """The object that ``definition()`` stored."""
    fields = json.loads(definition)
    return CatalogObject(
        id=id,
        name=name,
        kind=ObjectKind(kind),
        columns=tuple(
            ObjectColumn(name=name, type=type, not_null=flag, known_from=next(iter(known_from), 0))
            for name, type, flag, *known_from in fields["columns"]
        ),
        cluster=fields["cluster"],
        sql=fields["sql"],
        on=GlobalId.parse(fields["on"]) if fields["on"] else None,
        key=tuple(fields["key"]),
        reads=tuple(GlobalId.parse(id) for id in fields["reads"]),
        imports=tuple(GlobalId.parse(id) for id in fields["imports"]),
        options=tuple((name, value) for name, value in fields["options"]),
        # Objects that are older than these do without.
        functions=tuple(stored_function(definition) for definition in fields.get("functions", ())),
        strict_incremental=fields.get("strict_incremental", False),
    )
