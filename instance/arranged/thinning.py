"""Thinning of what updates add: many of one key and step become few, by Arrow's own aggregation.

Only for speed: whatever is left apart that belongs together comes together in the chains.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types

from instance.arranged.accumulation import Elements, Layout, Weighed, elements_of, joined
from instance.arranged.extremes import from_sortable, has_nan, sortable
from instance.arranged.limbs import Limb
from instance.spine.values import Places

#: Fewer are as fast without.
ROWS_MIN = 1 << 14


def thinned(layout: Layout, weighed: Weighed) -> Elements:
    """Elements that add the same to each key at each step; perhaps fewer."""
    is_plain = all(each.dtype == np.int64 for each in weighed.columns)
    if len(weighed) < ROWS_MIN or not is_plain or any(map(pa.types.is_nested, layout.key_types)):
        return elements_of(layout, weighed)
    special = sorted({place for rests in weighed.rests for place in rests})
    if not special:
        return elements_of(layout, _aggregated(layout, weighed))
    others = _taken(weighed, np.delete(np.arange(len(weighed)), special))
    kept = elements_of(layout, _taken(weighed, np.array(special)))
    return joined(kept, elements_of(layout, _aggregated(layout, others)))


def _taken(weighed: Weighed, places: Places) -> Weighed:
    chosen = pa.array(places)
    where = {int(place): at for at, place in enumerate(places)}
    return Weighed(
        keys=[key.take(chosen) for key in weighed.keys],
        steps=weighed.steps[places],
        rows=weighed.rows[places],
        counts=[counts[places] for counts in weighed.counts],
        parts=[[(bit, part[places]) for bit, part in parts] for parts in weighed.parts],
        rests=[{where[place]: rest for place, rest in rests.items() if place in where} for rests in weighed.rests],
        there=[each.take(chosen) for each in weighed.there],
        gone=[None if each is None else each.take(chosen) for each in weighed.gone],
    )


def _aggregated(layout: Layout, weighed: Weighed) -> Weighed:
    if not len(weighed):
        return weighed
    steps = weighed.steps
    keys = {f"key{place}": key for place, key in enumerate(weighed.keys)}
    if (steps != steps[0]).any():
        keys["step"] = pa.array(steps)
    sums = _distinct(weighed.columns)
    extremes: dict[str, tuple[pa.Array, bool]] = {}
    for place, extreme in enumerate(layout.extremes):
        extremes[f"there{place}"] = weighed.there[place], extreme.greatest
        if weighed.gone[place] is not None:
            extremes[f"gone{place}"] = weighed.gone[place], extreme.greatest
    columns = {**keys, **{name: pa.array(limb) for name, limb in sums.items()}}
    sorted_as = {id(values): sortable(values) if has_nan(values) else values for values, _ in extremes.values()}
    columns |= {name: sorted_as[id(values)] for name, (values, _) in extremes.items()}
    wanted = [(name, "sum") for name in sums]
    wanted += [(name, "max" if greatest else "min") for name, (_, greatest) in extremes.items()]
    # In one thread: each of several makes groups of its own, and others have work for the other cores.
    found = pa.table(columns).group_by(list(keys), use_threads=False).aggregate(wanted)
    named = dict(zip((name for name, _ in wanted), (f"{name}_{how}" for name, how in wanted), strict=True))
    arrays = {name: _whole(found.column(named.get(name, name))) for name in columns}
    added = {id(limb): arrays[name].to_numpy() for name, limb in sums.items()}
    ends = {name: from_sortable(arrays[name], values.type) for name, (values, _) in extremes.items()}
    places = range(len(layout.extremes))
    return replace(
        weighed,
        keys=[arrays[f"key{place}"] for place in range(len(weighed.keys))],
        steps=arrays["step"].to_numpy() if "step" in keys else np.full(found.num_rows, steps[0]),
        rows=added[id(weighed.rows)],
        counts=[added[id(counts)] for counts in weighed.counts],
        parts=[[(bit, added[id(part)]) for bit, part in parts] for parts in weighed.parts],
        there=[ends[f"there{place}"] for place in places],
        gone=[ends.get(f"gone{place}") for place in places],
    )


def _distinct(columns: Sequence[Limb]) -> dict[str, Limb]:
    """Each column once, with a name: what has no nulls is counted as its rows are."""
    return {f"sum{place}": column for place, column in enumerate({id(each): each for each in columns}.values())}


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)
