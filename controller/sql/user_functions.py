"""Functions that users registered: what they take and give, and how a plan carries them.

A function is known by its content: its version is a hash of source and signature, and a plan names the version and
carries the source. So what runs is never changed by a function that was replaced or dropped since.
"""

import ast
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from controller.sql.names import shown
from controller.sql.spark_functions import KNOWN
from plainsong.types import arrow_type, element_type, struct_of, type_name
from reconcile.errors import InvalidRequest
from reconcile.limits import FUNCTION_BYTES_MAX
from reconcile.plan_tree import Node, PlanValue

_NAME = re.compile(r"[a-z_][a-z0-9_]{0,99}", re.ASCII)
#: What Python gets and gives the same on every machine; a timestamp would be in the zone of whoever computes.
_FLAT = re.compile(r"boolean|tinyint|smallint|int|bigint|float|double|decimal\(\d+,\d+\)|string|binary|date")
_ARGUMENTS_MAX = 64
_OPS = ("sql", "sql_linear")


@dataclass(frozen=True, slots=True, kw_only=True)
class UserFunction:
    """One version of a function; of a table function ``returns`` is an array of structs, one for each row."""

    name: str
    args: tuple[tuple[str, str], ...]
    returns: str
    #: Of a table function: its columns.
    columns: tuple[tuple[str, str], ...] = ()
    source: str

    @property
    def is_table(self) -> bool:
        return bool(self.columns)

    @property
    def version(self) -> str:
        """Of the content: the same wherever and whenever it is made."""
        return hashlib.sha256(self.definition().encode()).hexdigest()[:16]

    @property
    def plan_name(self) -> str:
        """What plans and Spark call this version."""
        return f"{self.name}_{self.version}"

    def definition(self) -> str:
        """Everything, as it is stored."""
        fields = {
            "name": self.name,
            "args": self.args,
            "returns": self.returns,
            "columns": self.columns,
            "source": self.source,
        }
        return json.dumps(fields, sort_keys=True)

    def in_plan(self) -> PlanValue:
        return (self.plan_name, self.name, self.returns, self.columns, self.source)


def stored_function(definition: str) -> UserFunction:
    """The function that ``definition()`` stored."""
    fields = json.loads(definition)
    return UserFunction(
        name=fields["name"],
        args=tuple((name, type) for name, type in fields["args"]),
        returns=fields["returns"],
        columns=tuple((name, type) for name, type in fields["columns"]),
        source=fields["source"],
    )


# --- making one -------------------------------------------------------------------------------------------


def user_function(
    name: str,
    source: str,
    args: tuple[tuple[str, str], ...],
    returns: str,
    columns: tuple[tuple[str, str], ...],
) -> UserFunction:
    """The function as declared, checked; ``columns`` make it a table function. The source is read, never run."""
    _check_name(name)
    if bool(returns) == bool(columns):
        raise InvalidRequest(f"function {name} must say what it returns", hint="a type, or columns if it gives rows")
    if len(args) > _ARGUMENTS_MAX:
        raise InvalidRequest(f"{len(args)} arguments are too many", hint=f"use at most {_ARGUMENTS_MAX}")
    given = tuple((column, _flat(name, type)) for column, type in columns)
    for kind, listed in (("argument", args), ("column", given)):
        _check_different(name, kind, [each for each, _ in listed])
    function = UserFunction(
        name=name,
        args=tuple((argument, _type(name, type)) for argument, type in args),
        returns=f"array<{struct_of(given)}>" if given else _type(name, returns),
        columns=given,
        source=source,
    )
    _check_source(function)
    return function


def _check_name(name: str) -> None:
    if _NAME.fullmatch(name) is None:
        raise InvalidRequest(
            f"{shown(name)} cannot name a function", hint="use small letters, digits and _, at most 100 of them"
        )
    if name in KNOWN or not _is_free(name):
        raise InvalidRequest(f"{name} is a word or function of SQL already", hint="choose another name")


def _is_free(name: str) -> bool:
    """Whether the parser reads a call of it as one, and as nothing that it knows."""
    try:
        called = parse_one(f"SELECT {name}(1)", read="spark").expressions
    except SqlglotError:
        return False
    return len(called) == 1 and isinstance(called[0], exp.Anonymous) and str(called[0].this).lower() == name


def _type(name: str, given: str) -> str:
    type = type_name(arrow_type(given))
    element = element_type(type)
    if element is None or _FLAT.fullmatch(element) is None:
        return _flat(name, given)
    return type


def _flat(name: str, given: str) -> str:
    type = type_name(arrow_type(given))
    if _FLAT.fullmatch(type) is None:
        hint = "pass unix_micros(t), a bigint" if type == "timestamp" else "use several arguments, or text as JSON"
        raise InvalidRequest(f"function {name} cannot take or give a {type}", hint=hint)
    return type


def _check_different(name: str, kind: str, names: list[str]) -> None:
    lowered = [each.lower() for each in names]
    for each in names:
        if not each.isidentifier():
            raise InvalidRequest(f"{shown(each)} cannot name an {kind} of {name}", hint="use letters, digits and _")
        if lowered.count(each.lower()) > 1:
            raise InvalidRequest(f"two {kind}s of {name} are named {shown(each)}", hint="use another name")


def _check_source(function: UserFunction) -> None:
    name = function.name
    try:
        size = len(function.source.encode())
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"the source of {name} is not valid Unicode") from error
    if size > FUNCTION_BYTES_MAX:
        raise InvalidRequest(
            f"the source of {name} is too large",
            detail=f"it has {size} bytes",
            hint=f"use at most {FUNCTION_BYTES_MAX}",
        )
    try:
        body = ast.parse(function.source).body
    except SyntaxError as error:
        detail = f"{error.msg} in line {error.lineno}"
        raise InvalidRequest(f"the source of {name} is not Python", detail=detail) from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise InvalidRequest(f"the source of {name} is not Python", detail=str(error)) from error
    made = [statement for statement in body if name in _bound(statement)]
    if not made:
        raise InvalidRequest(f"the source of {name} defines no {name}", hint=f"as in def {name}(...): ...")
    if isinstance(made[-1], ast.AsyncFunctionDef):
        raise InvalidRequest(f"{name} cannot be async", hint="use a plain def")
    if isinstance(made[-1], ast.FunctionDef):
        _check_parameters(function, made[-1].args)


def _bound(statement: ast.stmt) -> list[str]:
    match statement:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            return [name]
        case ast.Assign(targets=targets):
            return [target.id for target in targets if isinstance(target, ast.Name)]
        case _:
            return []


def _check_parameters(function: UserFunction, written: ast.arguments) -> None:
    positional = len(written.posonlyargs) + len(written.args)
    required = positional - len(written.defaults)
    keywords = sum(default is None for default in written.kw_defaults)
    count = len(function.args)
    if keywords or count < required or (count > positional and written.vararg is None):
        raise InvalidRequest(
            f"{function.name} is declared with {count} arguments, and its def takes others",
            hint="declare one argument for each parameter, in order",
        )


# --- in plans ---------------------------------------------------------------------------------------------


def with_functions(plan: Node, functions: Mapping[str, UserFunction]) -> tuple[Node, tuple[UserFunction, ...]]:
    """The plan with the functions that its texts call beside them, and these; what was inlined has its own."""
    if not functions:
        return plan, ()
    carrying = _Carrying(functions)
    carried = carrying.of(plan)
    assert isinstance(carried, Node), "a node stays one"
    return carried, tuple(carrying.used)


class _Carrying:
    """Puts functions into the nodes that call them; what is shared stays shared."""

    def __init__(self, functions: Mapping[str, UserFunction]) -> None:
        self._functions = functions
        self.used: dict[UserFunction, None] = {}
        self._done: dict[int, PlanValue] = {}

    def of(self, value: PlanValue) -> PlanValue:
        if not isinstance(value, Node) and type(value) is not tuple:
            return value
        if id(value) not in self._done:
            self._done[id(value)] = self._node(value) if isinstance(value, Node) else tuple(map(self.of, value))
        return self._done[id(value)]

    def _node(self, node: Node) -> Node:
        fields = tuple((name, self.of(value)) for name, value in node.fields)
        known = dict(node.fields)
        called = () if node.op not in _OPS or "functions" in known else self._called(str(known["text"]))
        self.used.update(dict.fromkeys(called))
        if called:
            fields = (*fields, ("functions", tuple(function.in_plan() for function in called)))
        return Node(op=node.op, fields=fields)

    def _called(self, text: str) -> tuple[UserFunction, ...]:
        lowered = text.lower()
        return tuple(each for each in self._functions.values() if f"{each.plan_name}(" in lowered)
