"""Plan values on the wire: a tree as the flat list of its items, each followed by what it contains.

``PLAN_DEPTH_MAX`` bounds how many lists and nodes may be inside each other, on both sides.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from plainsong.v1 import common_pb2
from plainsong.wire.values import malformed, put_id, take_id, too_large
from reconcile.errors import InvariantBroken
from reconcile.ids import GlobalId
from reconcile.limits import PLAN_DEPTH_MAX
from reconcile.plan_tree import Node, PlanValue

#: Far beyond what any type of Spark can hold, and below what Python refuses to convert.
WHOLE_DIGITS_MAX = 1_000

_WHOLE = re.compile(rf"0|-?[1-9][0-9]{{0,{WHOLE_DIGITS_MAX - 1}}}")
_WHOLE_BOUND = 10**WHOLE_DIGITS_MAX

#: The items not yet read.
Rest = Iterator[common_pb2.PlanItem]


def put_plan(value: PlanValue, items: Any, depth: int = 0) -> None:
    """Appends ``value`` to ``items``, a repeated field."""
    try:
        put = _PUT[type(value)]
    except KeyError:
        raise InvariantBroken(f"a {type(value).__name__} is not a plan value and cannot be sent") from None
    put(value, items, depth)


def take_plan(items: Iterable[common_pb2.PlanItem]) -> PlanValue:
    """The one value that ``items`` spell."""
    rest = iter(items)
    value = _take(rest, 0)
    if next(rest, None) is not None:
        raise malformed("a plan value goes on after its end")
    return value


def _put_null(_: None, items: Any, __: int) -> None:
    items.add().null.SetInParent()


def _put_boolean(value: bool, items: Any, _: int) -> None:
    items.add().boolean = value


def _put_whole(value: int, items: Any, _: int) -> None:
    if not -_WHOLE_BOUND < value < _WHOLE_BOUND:
        raise too_large(f"a number in a plan has more than {WHOLE_DIGITS_MAX} digits")
    items.add().whole = str(value)


def _put_text(value: str, items: Any, _: int) -> None:
    items.add().text = value


def _put_binary(value: bytes, items: Any, _: int) -> None:
    items.add().binary = value


def _put_global_id(value: GlobalId, items: Any, _: int) -> None:
    put_id(value, items.add().id)


def _put_list(value: tuple[PlanValue, ...], items: Any, depth: int) -> None:
    inside = _deeper(depth)
    items.add().list = len(value)
    for item in value:
        put_plan(item, items, inside)


def _put_node(value: Node, items: Any, depth: int) -> None:
    inside = _deeper(depth)
    node = items.add().node
    node.op = value.op
    node.fields.extend(_distinct([name for name, _ in value.fields]))
    for _, item in value.fields:
        put_plan(item, items, inside)


_PUT: dict[type, Callable[[Any, Any, int], None]] = {
    type(None): _put_null,
    bool: _put_boolean,
    int: _put_whole,
    str: _put_text,
    bytes: _put_binary,
    GlobalId: _put_global_id,
    tuple: _put_list,
    Node: _put_node,
}


def _take(rest: Rest, depth: int) -> PlanValue:
    item = next(rest, None)
    if item is None:
        raise malformed("a plan value ends too early")
    kind = item.WhichOneof("item")
    match kind:
        case "null":
            return None
        case "boolean":
            return item.boolean
        case "whole":
            return _take_whole(item.whole)
        case "text":
            return item.text
        case "binary":
            return item.binary
        case "id":
            return take_id(item.id)
        case "list":
            inside = _deeper(depth)
            # No count is believed beforehand: a false one runs out of items, not of memory.
            return tuple([_take(rest, inside) for _ in range(item.list)])
        case "node":
            inside = _deeper(depth)
            names = _distinct(list(item.node.fields))
            return Node(op=item.node.op, fields=tuple([(name, _take(rest, inside)) for name in names]))
        case None:
            raise malformed("an item of a plan is of an unknown kind")


def _take_whole(digits: str) -> int:
    if _WHOLE.fullmatch(digits) is None:
        raise malformed(f"{digits[:40]!r} is not a whole number")
    return int(digits)


def _deeper(depth: int) -> int:
    if depth >= PLAN_DEPTH_MAX:
        raise too_large(f"a plan is nested deeper than {PLAN_DEPTH_MAX} levels")
    return depth + 1


def _distinct(names: list[str]) -> list[str]:
    if len(set(names)) < len(names):
        raise malformed("a node of a plan has a field twice")
    return names
