"""Generators: LATERAL VIEW, and explode in a select list; each row becomes as many as it holds."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from controller.sql.binding import Binder, Binding, Bound, Compiled, ScopeColumn
from controller.sql.general import user_call
from controller.sql.names import duplicate_name, shown, unused_name, validate_column_name
from controller.sql.relations import Column
from controller.sql.spark_functions import GENERATORS
from controller.sql.stages import alias, linear_stage, name_text
from plainsong.types import element_type, map_types, struct_fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Generated:
    """A generator over the rows of a FROM, with what it adds to them."""

    binding: Binding
    call: str
    bound: Bound
    outer: bool

    def applied(self, frame: Compiled) -> Compiled:
        added = tuple(Column(name=column.plan_name, type=column.type, nullable=True) for column in self.binding.columns)
        names = ", ".join(name_text(column.name) for column in (*frame.columns, *added))
        given = ", ".join(name_text(column.name) for column in added)
        view = "LATERAL VIEW OUTER" if self.outer else "LATERAL VIEW"
        text = f"SELECT {names} FROM {alias(1)} {view} {self.call.upper()}({self.bound.text}) _g AS {given}"
        return linear_stage(frame, text, (*frame.columns, *added), "each row by itself, taken apart")


def generator_name(node: exp.Expr) -> str:
    """Which generator a call is; empty if it is none."""
    if not isinstance(node, exp.Func):
        return ""
    name = node.name.lower() if isinstance(node, exp.Anonymous) else node.sql_name().lower()
    return name if name in GENERATORS else ""


def generated(binder: Binder, lateral: exp.Expr, taken: set[str]) -> Generated:
    """One LATERAL VIEW; ``taken`` are plan names in use, in lower case, and then has its own."""
    function = binder.functions.get(lateral.this.name.lower()) if isinstance(lateral.this, exp.Anonymous) else None
    if function is not None and function.is_table:
        bound = user_call(binder, lateral.this, function)
        return _generated(binder, lateral, taken, "inline", bound, function.columns)
    call = generator_name(lateral.this)
    if call.removesuffix("_outer") not in ("explode", "posexplode", "inline"):
        raise binder.sql.not_yet(
            lateral.this,
            f"{lateral.this.sql('spark')[:40]!r} as a generator is",
            hint="explode, posexplode, inline are",
        )
    arguments = list(lateral.this.iter_expressions())
    if len(arguments) != 1:
        raise binder.sql.refusal(lateral.this, f"{call} takes one argument", hint=f"as in {call}(items)")
    bound = binder.bind(arguments[0])
    columns = _columns(call, bound.type)
    if columns is None:
        raise binder.sql.refusal(
            lateral.this, f"{call} does not apply to {bound.type}", hint="it takes arrays and maps, inline of structs"
        )
    return _generated(binder, lateral, taken, call, bound, columns)


def _generated(
    binder: Binder, lateral: exp.Expr, taken: set[str], call: str, bound: Bound, columns: Sequence[tuple[str, str]]
) -> Generated:
    table = lateral.args.get("alias")
    given = [identifier.name for identifier in (table.args.get("columns") or [])] if table is not None else []
    if given and len(given) != len(columns):
        raise binder.sql.refusal(
            lateral, f"{len(given)} names are given to {len(columns)} columns", hint="name each of them"
        )
    names = given or [name for name, _ in columns]
    if (twice := duplicate_name(names)) is not None:
        raise binder.sql.refusal(lateral, f"two columns are named {shown(twice)}", hint="use another name")
    with binder.sql.placing(lateral):
        for name in names:
            validate_column_name(name)
    outer = bool(lateral.args.get("outer")) or call.endswith("_outer")
    table_name = table.this.name if table is not None and table.this is not None else None
    return Generated(
        binding=Binding(alias=table_name, columns=_scope_columns(names, columns, table_name, taken)),
        call=call.removesuffix("_outer"),
        bound=bound,
        outer=outer,
    )


def _scope_columns(
    names: Sequence[str], columns: Sequence[tuple[str, str]], table: str | None, taken: set[str]
) -> tuple[ScopeColumn, ...]:
    scope = []
    for name, (_, type) in zip(names, columns, strict=True):
        plan_name = unused_name(f"{table or 'lateral'}.{name}" if name.lower() in taken else name, taken)
        scope.append(ScopeColumn(name=name, type=type, nullable=True, plan_name=plan_name))
    return tuple(scope)


def _columns(call: str, type: str) -> list[tuple[str, str]] | None:
    """What a generator adds, under Spark's names for it."""
    if call.startswith("inline"):
        fields = struct_fields(element_type(type) or "")
        return list(fields) if fields else None
    place = [("pos", "int")] if call.startswith("pos") else []
    if (entry := map_types(type)) is not None:
        return [*place, ("key", entry[0]), ("value", entry[1])]
    element = element_type(type)
    return [*place, ("col", element)] if element is not None else None
