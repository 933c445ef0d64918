"""Rules for the operators that have their state in spines."""

from collections.abc import Callable, Mapping
from typing import Any

from instance.arranged.group import Group
from instance.arranged.join import Join
from instance.arranged.operator import SETTING, Setting
from instance.arranged.tending import Place
from instance.memory.rendering import Await, Renderer, Rule, Tree
from instance.memory.rows import RowFormat
from reconcile.errors import InvalidRequest

#: The place of the spines of an operator, given its name, which is the same whenever its plan is rendered.
PlaceForOperator = Callable[[str], Place]


def arranged_rules(place_for_operator: PlaceForOperator, setting: Setting = SETTING) -> Mapping[str, Rule]:
    """Renders ``group``, ``join`` and ``distinct``. What has no columns to arrange is left to memory."""

    def of(renderer: Renderer, kind: str) -> Setting:
        place = place_for_operator(renderer.operator_name(kind))
        return Setting(place=place, sizes=setting.sizes, hashing=setting.hashing)

    def group(renderer: Renderer, fields: Mapping[str, Any]) -> Tree:
        input = renderer.tree(fields["input"])
        keys, aggregates = fields["keys"], fields["aggregates"]
        if not keys and not aggregates:
            return renderer.group(fields)
        operator = Group(input.format, keys, aggregates, of(renderer, "group"))
        return Await(operator=operator, inputs=(input,))

    def distinct(renderer: Renderer, fields: Mapping[str, Any]) -> Tree:
        input = renderer.tree(fields["input"])
        if not input.format.names:
            return renderer.distinct(fields)
        return Await(operator=distinct_of(input.format, of(renderer, "distinct")), inputs=(input,))

    def join(renderer: Renderer, fields: Mapping[str, Any]) -> Tree:
        if fields["kind"] != "inner":
            raise InvalidRequest(f"a join of kind {fields['kind']!r} is not supported", hint="use an inner join")
        left, right = renderer.tree(fields["left"]), renderer.tree(fields["right"])
        if not left.format.names or not right.format.names:
            return renderer.join(fields)
        operator = Join(left.format, right.format, fields["on"], of(renderer, "join"))
        return Await(operator=operator, inputs=(left, right))

    return {"group": group, "distinct": distinct, "join": join}


def distinct_of(input: RowFormat, setting: Setting) -> Group:
    """Each row once, as long as it occurs: groups by all columns, without aggregates."""
    keys = [(name, "`" + name.replace("`", "``") + "`") for name in input.names]
    return Group(input, keys, (), setting)
