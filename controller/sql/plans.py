"""Plan nodes: how each is built, what a plan reads, and how large it is."""

from collections.abc import Iterator, Sequence

from controller.sql.relations import Column
from reconcile.errors import InvalidRequest
from reconcile.ids import GlobalId
from reconcile.limits import PLAN_BYTES_MAX, PLAN_DEPTH_MAX
from reconcile.plan_tree import Node, PlanValue

#: Names with the texts of what they are computed from.
Named = tuple[tuple[str, str], ...]


def get(id: GlobalId, columns: Sequence[Column]) -> Node:
    return Node(op="get", fields=(("id", id), ("columns", tuple((column.name, column.type) for column in columns))))


def filtered(input: Node, predicate: str) -> Node:
    return Node(op="filter", fields=(("input", input), ("predicate", predicate)))


def project(input: Node, columns: Named) -> Node:
    return Node(op="project", fields=(("input", input), ("columns", columns)))


def group(input: Node, keys: Named, aggregates: tuple[tuple[str, str, str | None], ...]) -> Node:
    return Node(op="group", fields=(("input", input), ("keys", keys), ("aggregates", aggregates)))


def join(left: Node, right: Node, on: Named) -> Node:
    return Node(op="join", fields=(("left", left), ("right", right), ("kind", "inner"), ("on", on)))


def union(inputs: Sequence[Node]) -> Node:
    return Node(op="union", fields=(("inputs", tuple(inputs)),))


def distinct(input: Node) -> Node:
    return Node(op="distinct", fields=(("input", input),))


def top(
    input: Node, order: tuple[tuple[str, str, str], ...], limit: int, offset: int, columns: Sequence[Column]
) -> Node:
    """The first rows. ``order`` names every column of the input, each with ``asc`` or ``desc``, and where nulls are."""
    return Node(
        op="top",
        fields=(
            ("input", input),
            ("order", order),
            ("limit", limit),
            ("offset", offset),
            ("columns", tuple(column.name for column in columns)),
        ),
    )


def sql(inputs: tuple[tuple[str, Node, tuple[str, ...]], ...], text: str, columns: Sequence[Column], why: str) -> Node:
    """What ``text`` gives over its inputs, computed by Spark.

    With keys, which all inputs have or none: the output for one key depends only on the input rows with that key,
    nulls being equal. Without, it is computed anew whenever an input changes.
    """
    keyed = bool(inputs) and all(keys for _, _, keys in inputs)
    given = inputs if keyed else tuple((alias, node, ()) for alias, node, _ in inputs)
    return Node(
        op="sql",
        fields=(
            ("inputs", given),
            ("text", text),
            ("columns", tuple((column.name, column.type) for column in columns)),
            ("why", why),
        ),
    )


def sql_linear(alias: str, input: Node, text: str, columns: Sequence[Column], why: str) -> Node:
    """What ``text``, a SELECT that takes each row by itself, gives over its input, computed by Spark."""
    return Node(
        op="sql_linear",
        fields=(
            ("input", (alias, input)),
            ("text", text),
            ("columns", tuple((column.name, column.type) for column in columns)),
            ("why", why),
        ),
    )


def reads(plan: PlanValue) -> Iterator[GlobalId]:
    """The ids that a plan gets, in order of appearance, with repetitions; only for plans of admitted size."""
    match plan:
        case Node(fields=fields):
            for _, value in fields:
                yield from reads(value)
        case GlobalId():
            yield plan
        case tuple():
            for item in plan:
                yield from reads(item)
        case _:
            return


class _Measure:
    """Measures plans; what is shared, such as a view that is read twice, is walked once but counts each time."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, int]] = {}

    def of(self, value: PlanValue) -> tuple[int, int]:
        """Bytes, as on the wire and a little overestimated, and nesting."""
        match value:
            case GlobalId():
                return 16, 1
            case str():
                return len(value.encode()) + 8, 1
            case bytes():
                return len(value) + 8, 1
            case Node() | tuple():
                known = self._known.get(id(value))
                if known is None:
                    known = self._known[id(value)] = self._inner(value)
                return known
            case _:
                return 16, 1

    def _inner(self, value: Node | tuple[PlanValue, ...]) -> tuple[int, int]:
        if isinstance(value, Node):
            inner = [self.of(item) for _, item in value.fields]
            bytes = 16 + len(value.op) + sum(len(name.encode()) + 12 for name, _ in value.fields)
        else:
            inner = [self.of(item) for item in value]
            bytes = 12
        return (
            bytes + sum(size for size, _ in inner),
            1 + max((depth for _, depth in inner), default=0),
        )


def check_size(plan: Node) -> None:
    """Refuses a plan that could not be sent, before anything else walks it."""
    try:
        bytes, depth = _Measure().of(plan)
    except RecursionError as error:
        raise _too_deep() from error
    if bytes > PLAN_BYTES_MAX:
        raise InvalidRequest(
            "the plan is too large",
            detail=f"it needs about {bytes} bytes of at most {PLAN_BYTES_MAX}",
            hint="materialize parts of the query as views of their own",
        )
    if depth > PLAN_DEPTH_MAX:
        raise _too_deep()


def _too_deep() -> InvalidRequest:
    return InvalidRequest("the plan is nested too deeply", hint="materialize parts of the query as views of their own")
