"""Laws of normalised plans: names inside a dataflow do not matter, names that others see do."""

from collections.abc import Mapping
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from reconcile.dataflow import DataflowDescription, Index, ObjectToBuild, normalised_objects
from reconcile.frontiers import MINIMUM
from reconcile.ids import GlobalId
from reconcile.plan_tree import Node, PlanValue

law = settings(max_examples=200, deadline=None)

SOURCES = (GlobalId("s", 1), GlobalId("u", 90), GlobalId("t", 90))
Names = Mapping[GlobalId, GlobalId]


def plans(readable: list[GlobalId]) -> st.SearchStrategy[PlanValue]:
    """Plan trees over these collections."""
    leaves: st.SearchStrategy[PlanValue] = st.one_of(
        st.sampled_from(readable), st.sampled_from(["a", "b"]), st.integers(2, 4), st.none()
    )

    def inner(parts: st.SearchStrategy[PlanValue]) -> st.SearchStrategy[PlanValue]:
        nodes: st.SearchStrategy[PlanValue] = st.builds(
            lambda op, inputs: Node(op=op, fields=tuple((f"f{place}", part) for place, part in enumerate(inputs))),
            st.sampled_from(["get", "join", "filter"]),
            st.lists(parts, max_size=3),
        )
        return nodes | st.lists(parts, max_size=3).map(tuple)

    return st.recursive(leaves, inner, max_leaves=6)


@st.composite
def descriptions(draw: st.DrawFn) -> DataflowDescription:
    """Dataflows that export their last object and perhaps others, under transient or lasting ids."""
    numbers = draw(st.lists(st.integers(1, 20), min_size=1, max_size=5, unique=True))
    ids = [GlobalId(draw(st.sampled_from(("t", "t", "u"))), number) for number in numbers]
    offered = [id for id in ids if id.kind == "u" or id == ids[-1] or draw(st.booleans())]
    objects = tuple(ObjectToBuild(id=id, plan=draw(plans([*SOURCES, *ids[:place]]))) for place, id in enumerate(ids))
    exports = tuple(Index(id=id) for id in offered)
    return DataflowDescription(imports=SOURCES, objects=objects, exports=exports, as_of=MINIMUM)


def renamed(value: PlanValue, names: Names) -> PlanValue:
    if isinstance(value, GlobalId):
        return names.get(value, value)
    if isinstance(value, Node):
        return Node(op=value.op, fields=tuple((name, renamed(part, names)) for name, part in value.fields))
    if type(value) is tuple:
        return tuple(renamed(part, names) for part in value)
    return value


def with_names(description: DataflowDescription, names: Names) -> DataflowDescription:
    """The same dataflow from a controller that allotted other ids."""

    def name(id: GlobalId) -> GlobalId:
        return names.get(id, id)

    return replace(
        description,
        imports=tuple(name(id) for id in description.imports),
        objects=tuple(
            ObjectToBuild(id=name(built.id), plan=renamed(built.plan, names)) for built in description.objects
        ),
        exports=tuple(Index(id=name(id)) for id in description.export_ids),
    )


def ids_read(value: PlanValue) -> set[GlobalId]:
    if isinstance(value, GlobalId):
        return {value}
    if isinstance(value, Node):
        return {id for _, part in value.fields for id in ids_read(part)}
    if type(value) is tuple:
        return {id for part in value for id in ids_read(part)}
    return set()


@law
@given(description=descriptions(), data=st.data())
def test_new_names_for_internal_objects_leave_a_plan_the_same(
    description: DataflowDescription, data: st.DataObject
) -> None:
    internal = [built.id for built in description.objects if built.id not in description.export_ids]
    free = [*internal, *(GlobalId("t", number) for number in range(30, 35))]
    names = dict(zip(internal, data.draw(st.permutations(free)), strict=False))

    assert normalised_objects(with_names(description, names)) == normalised_objects(description)


@law
@given(description=descriptions(), data=st.data())
def test_a_new_name_for_an_export_makes_another_plan(description: DataflowDescription, data: st.DataObject) -> None:
    export = data.draw(st.sampled_from(description.export_ids))
    names = {export: GlobalId(export.kind, 99)}

    assert normalised_objects(with_names(description, names)) != normalised_objects(description)


@law
@given(description=descriptions(), source=st.sampled_from(SOURCES))
def test_a_new_name_for_an_import_makes_another_plan_when_it_is_read(
    description: DataflowDescription, source: GlobalId
) -> None:
    read = any(source in ids_read(built.plan) for built in description.objects)
    names = {source: GlobalId(source.kind, 99)}

    assert (normalised_objects(with_names(description, names)) != normalised_objects(description)) == read
