"""Thinning of elements: many of one key and step become few, by Arrow's own aggregation.

Only for speed: whatever is left apart that belongs together comes together in the chains.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types

from instance.arranged.accumulation import Elements, Layout, joined
from instance.arranged.extremes import from_sortable, sortable
from instance.arranged.limbs import Limb
from instance.spine.values import Places

#: Fewer elements are as fast without.
ROWS_MIN = 1 << 14


def thinned(layout: Layout, elements: Elements) -> Elements:
    """Elements that add the same to each key at each step; perhaps fewer."""
    is_plain = all(each is None or each.dtype == np.int64 for each in elements.added)
    if len(elements) < ROWS_MIN or not is_plain or any(map(pa.types.is_nested, layout.key_types)):
        return elements
    special = sorted({place for rests in elements.rests for place in rests})
    if not special:
        return _aggregated(layout, elements)
    others = np.delete(np.arange(len(elements)), special)
    return joined(_taken(elements, np.array(special)), _aggregated(layout, _taken(elements, others)))


def _taken(elements: Elements, places: Places) -> Elements:
    chosen = pa.array(places)
    where = {int(place): at for at, place in enumerate(places)} if any(elements.rests) else {}
    return Elements(
        keys=[key.take(chosen) for key in elements.keys],
        steps=elements.steps[places],
        added=[None if each is None else each[places] for each in elements.added],
        rests=[{where[place]: rest for place, rest in rests.items() if place in where} for rests in elements.rests],
        there=[each.take(chosen) for each in elements.there],
        gone=[None if each is None else each.take(chosen) for each in elements.gone],
    )


def _aggregated(layout: Layout, elements: Elements) -> Elements:
    steps, count = elements.steps, len(elements)
    if not count:
        return elements
    names, columns = [f"k{place}" for place in range(len(elements.keys))], list(elements.keys)
    has_steps = bool((steps != steps[0]).any())
    if has_steps:
        names.append("step")
        columns.append(pa.array(steps))
    keys = tuple(names)
    wanted: list[tuple[str, str]] = []
    sums = _distinct(elements.added)
    for place, limb in sums.items():
        names.append(f"a{place}")
        columns.append(pa.array(limb))
        wanted.append((f"a{place}", "sum"))
    for place, extreme in enumerate(layout.extremes):
        for kind, values in (("t", elements.there[place]), ("g", elements.gone[place])):
            if values is not None:
                names.append(f"{kind}{place}")
                columns.append(sortable(values))
                wanted.append((f"{kind}{place}", "max" if extreme.greatest else "min"))
    found = pa.table(columns, names=names).group_by(list(keys)).aggregate(wanted).combine_chunks()

    def column(name: str) -> pa.Array:
        chunks = found.column(name).chunks
        return chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks)

    function = {name: f"{name}_{function}" for name, function in wanted}
    added = {id(limb): column(function[f"a{place}"]).to_numpy() for place, limb in sums.items()}
    return Elements(
        keys=[column(f"k{place}") for place in range(len(elements.keys))],
        steps=column("step").to_numpy() if has_steps else np.full(found.num_rows, steps[0]),
        added=[None if each is None else added[id(each)] for each in elements.added],
        rests=[{} for _ in elements.rests],
        there=[
            from_sortable(column(function[f"t{place}"]), extreme.type) for place, extreme in enumerate(layout.extremes)
        ],
        gone=[
            None if elements.gone[place] is None else from_sortable(column(function[f"g{place}"]), extreme.type)
            for place, extreme in enumerate(layout.extremes)
        ],
    )  # fmt: skip


def _distinct(columns: Sequence[Limb | None]) -> dict[int, Limb]:
    """Each column once, by a place where it is: one that has no nulls is counted as its rows are."""
    found: dict[int, tuple[int, Limb]] = {}
    for place, column in enumerate(columns):
        if column is not None:
            found.setdefault(id(column), (place, column))
    return dict(found.values())
