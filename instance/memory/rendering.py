"""Rendering: the plan of a dataflow becomes operators, each with its own state."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from instance.memory.batch import Batch
from instance.memory.distinct import Distinct
from instance.memory.group import Group
from instance.memory.join import Join
from instance.memory.operators import AwaitedOperator, Filter, Operator, Project, Union
from instance.memory.rows import RowFormat, declared_format
from instance.memory.top import Top
from reconcile.dataflow import DataflowDescription
from reconcile.errors import InvalidRequest
from reconcile.ids import GlobalId
from reconcile.plan_tree import Node, PlanValue


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """Reads an import or an earlier object."""

    id: GlobalId
    format: RowFormat


@dataclass(frozen=True, slots=True, kw_only=True)
class Apply:
    """An operator on what its inputs give."""

    operator: Operator
    inputs: "tuple[Tree, ...]"

    @property
    def format(self) -> RowFormat:
        return self.operator.format


@dataclass(frozen=True, slots=True, kw_only=True)
class Await:
    """As ``Apply``, with an operator that computes elsewhere."""

    operator: AwaitedOperator
    inputs: "tuple[Tree, ...]"

    @property
    def format(self) -> RowFormat:
        return self.operator.format


Tree = Read | Apply | Await


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltObject:
    """One collection that a dataflow computes."""

    id: GlobalId
    tree: Tree
    #: The imports and earlier objects that it reads, and in which format.
    reads: Mapping[GlobalId, RowFormat]

    async def change(self, changes: Mapping[GlobalId, Batch], at: int) -> Batch:
        """Its change in a range of steps that begins with ``at``, given the changes of what it reads, if any."""
        return await _change(self.tree, changes, at)


async def _change(tree: Tree, changes: Mapping[GlobalId, Batch], at: int) -> Batch:
    if isinstance(tree, Read):
        change = changes.get(tree.id)
        return Batch.nothing(tree.format) if change is None else change
    inputs = [await _change(input, changes, at) for input in tree.inputs]
    return tree.operator.apply(inputs, at) if isinstance(tree, Apply) else await tree.operator.applied(inputs, at)


def is_linear(tree: Tree) -> bool:
    """Whether every operator in it needs nothing but the change."""
    return isinstance(tree, Read) or (tree.operator.linear and all(is_linear(input) for input in tree.inputs))


#: The format in which an imported id can be read, given the columns that the plan says it has.
FormatOf = Callable[[GlobalId, RowFormat], RowFormat]


def render(
    description: DataflowDescription, format_of: FormatOf, more: "Mapping[str, Rule]" = MappingProxyType({})
) -> tuple[BuiltObject, ...]:
    """The objects of a dataflow, in building order; raises ``InvalidRequest`` that names the one that cannot be.

    ``more`` are rules for operators that only some runtimes have; they count before ours.
    """
    renderer = Renderer(frozenset(description.imports), format_of, {**_RULES, **more})
    for built in description.objects:
        try:
            renderer.build(built.id, built.plan)
        except InvalidRequest as error:
            raise InvalidRequest(f"cannot compute {built.id}", detail=str(error)) from error
    return tuple(renderer.built.values())


class Renderer:
    """Renders the objects of one dataflow."""

    def __init__(self, imports: frozenset[GlobalId], format_of: FormatOf, rules: "Mapping[str, Rule]") -> None:
        self._rules = rules
        self.built: dict[GlobalId, BuiltObject] = {}
        self._imports = imports
        self._format_of = format_of
        self._reads: dict[GlobalId, RowFormat] = {}
        self._building: GlobalId | None = None
        self._named = 0

    def build(self, id: GlobalId, plan: PlanValue) -> None:
        self._reads = {}
        self._building, self._named = id, 0
        tree = self.tree(plan)
        self.built[id] = BuiltObject(id=id, tree=tree, reads=self._reads)

    def operator_name(self, kind: str) -> str:
        """A name for the next operator with state: no other in the dataflow has it, and the same plan has it again."""
        self._named += 1
        return f"{self._building}-{self._named}-{kind}"

    def tree(self, plan: PlanValue) -> Tree:
        if not isinstance(plan, Node):
            raise InvalidRequest("the plan is not an operator", detail=f"{plan!r}")
        fields: dict[str, Any] = dict(plan.fields)
        try:
            rule = self._rules[plan.op]
        except KeyError:
            if called := fields.get("functions"):
                raise InvalidRequest(
                    f"function {called[0][1]} is in Python, which this runtime does not run",
                    hint="use a cluster that runs on Spark",
                ) from None
            raise InvalidRequest(
                f"operator {plan.op!r} is not supported by this runtime", hint="use a cluster that runs on Spark"
            ) from None
        try:
            return rule(self, fields)
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidRequest(f"operator {plan.op!r} is not well formed", detail=str(error)) from error

    def get(self, fields: Mapping[str, Any]) -> Tree:
        id, declared = fields["id"], declared_format(fields["columns"])
        if id in self.built:
            actual = self.built[id].tree.format
        elif id in self._imports:
            actual = self._format_of(id, declared)
        else:
            raise InvalidRequest(f"{id} is neither imported nor built before")
        self._reads[id] = actual
        read = Read(id=id, format=actual)
        if actual.names == declared.names:
            return read
        missing = [name for name in declared.names if name not in actual.places]
        if missing:
            raise InvalidRequest(f"{id} has no column {missing[0]!r}", detail=f"it has {', '.join(actual.names)}")
        return self.apply(Project(actual, [(name, _quoted(name)) for name in declared.names]), read)

    def apply(self, operator: Operator, *inputs: Tree) -> Tree:
        return Apply(operator=operator, inputs=inputs)

    def filter(self, fields: Mapping[str, Any]) -> Tree:
        input = self.tree(fields["input"])
        return self.apply(Filter(input.format, fields["predicate"]), input)

    def project(self, fields: Mapping[str, Any]) -> Tree:
        input = self.tree(fields["input"])
        return self.apply(Project(input.format, fields["columns"]), input)

    def group(self, fields: Mapping[str, Any]) -> Tree:
        input = self.tree(fields["input"])
        return self.apply(Group(input.format, fields["keys"], fields["aggregates"]), input)

    def join(self, fields: Mapping[str, Any]) -> Tree:
        if fields["kind"] != "inner":
            raise InvalidRequest(f"a join of kind {fields['kind']!r} is not supported", hint="use an inner join")
        left, right = self.tree(fields["left"]), self.tree(fields["right"])
        return self.apply(Join(left.format, right.format, fields["on"]), left, right)

    def union(self, fields: Mapping[str, Any]) -> Tree:
        inputs: Sequence[Tree] = [self.tree(input) for input in fields["inputs"]]
        if not inputs:
            raise InvalidRequest("a union needs at least one input")
        return self.apply(Union([input.format for input in inputs]), *inputs)

    def distinct(self, fields: Mapping[str, Any]) -> Tree:
        input = self.tree(fields["input"])
        return self.apply(Distinct(input.format), input)

    def top(self, fields: Mapping[str, Any]) -> Tree:
        input = self.tree(fields["input"])
        order = [(name, way == "desc", nulls == "first") for name, way, nulls in fields["order"]]
        limit, offset, columns = fields["limit"], fields["offset"], fields["columns"]
        return self.apply(Top(input.format, order=order, limit=limit, offset=offset, columns=columns), input)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


#: Renders one kind of operator, given its fields.
Rule = Callable[[Renderer, Mapping[str, Any]], Tree]

_RULES: dict[str, Rule] = {
    "get": Renderer.get,
    "filter": Renderer.filter,
    "project": Renderer.project,
    "group": Renderer.group,
    "join": Renderer.join,
    "union": Renderer.union,
    "distinct": Renderer.distinct,
    "top": Renderer.top,
}
