"""What a group remembers, by columns: how it is stored, how it is added to, and which results it has.

A group is stored as one row: its key, how many rows it has, for each argument how many values there are and their sum,
and its least and greatest values. Adding is a matter of *elements*: each has a key and a step, and what it adds.
A stored group is an element too, at a step before all others.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types

from instance.arranged.fractions import NO_REST, Rest, added, from_bytes, to_bytes
from instance.arranged.limbs import TIMES_MAX, Limb, Part, bits_for, limbs_of, packed, unpacked
from instance.arranged.matching import BEFORE, Chains
from instance.arranged.totals import Summed, Total, total_of
from instance.memory.accumulators import accumulator
from instance.spine.consolidation import Numbers
from instance.spine.values import Flags, valid_of
from reconcile.errors import InvalidRequest

#: An aggregate: its name, its function, and the place of its argument; ``count`` of nothing counts rows.
Aggregate = tuple[str, str, int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Elements:
    """What is added to groups, element by element."""

    keys: Sequence[pa.Array]
    steps: Numbers
    #: Columns that are added up, in the order of ``Layout``; None is zero everywhere.
    added: Sequence[Limb | None]
    #: For each sum, what it adds beyond that, by place of the element.
    rests: Sequence[dict[int, Rest]]
    #: For each extreme, the value that is there, and the one that goes, if any.
    there: Sequence[pa.Array]
    gone: Sequence[pa.Array | None]

    def __len__(self) -> int:
        return len(self.steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighed:
    """What updates add to groups, before it is brought to the form of elements: as few numbers as can be."""

    keys: Sequence[pa.Array]
    steps: Numbers
    rows: Numbers
    #: For each summand.
    counts: Sequence[Numbers]
    #: For each sum.
    parts: Sequence[Sequence[Part]]
    rests: Sequence[dict[int, Rest]]
    #: For each extreme.
    there: Sequence[pa.Array]
    gone: Sequence[pa.Array | None]

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def columns(self) -> list[Limb]:
        """Everything that is added up."""
        return [self.rows, *self.counts, *(part for parts in self.parts for _, part in parts)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Summand:
    """An argument whose values are counted, and added up if there is a total."""

    argument: int
    total: Total | None
    #: Which of the added columns are its own: the count, then the limbs.
    begin: int

    @property
    def end(self) -> int:
        return self.begin + 1 + (0 if self.total is None else 2 * self.total.words)


@dataclass(frozen=True, slots=True, kw_only=True)
class Extreme:
    """An argument whose least or greatest value is kept."""

    argument: int
    greatest: bool
    type: pa.DataType


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The columns of a stored group. Its key has at least one column."""

    key_types: tuple[pa.DataType, ...]
    summands: tuple[Summand, ...]
    extremes: tuple[Extreme, ...]
    schema: pa.Schema
    #: How many columns are added up.
    width: int

    @property
    def key_names(self) -> list[str]:
        return [field.name for field in self.schema][: len(self.key_types)]


def layout_of(
    key_types: Sequence[pa.DataType], types: Sequence[pa.DataType], aggregates: Sequence[Aggregate]
) -> Layout:
    """What the aggregates need; ``types`` are those of the arguments."""
    fields = [pa.field(f"_key_{place}", type) for place, type in enumerate(key_types)]
    fields.append(pa.field("_rows", pa.int64()))
    summands, extremes, width = list[Summand](), list[Extreme](), 1
    for argument, type in enumerate(types):
        wanted = {function for _, function, place in aggregates if place == argument}
        if wanted & {"count", "sum", "avg"}:
            total = total_of(type) if wanted & {"sum", "avg"} else None
            summands.append(Summand(argument=argument, total=total, begin=width))
            width = summands[-1].end
            fields.append(pa.field(f"_count_{argument}", pa.int64()))
            words = 0 if total is None else total.words
            fields += [pa.field(f"_sum_{argument}_{word}", pa.int64()) for word in range(words)]
            if total is not None and total.has_rest:
                fields.append(pa.field(f"_rest_{argument}", pa.binary()))
        for function in sorted(wanted & {"min", "max"}):
            extremes.append(Extreme(argument=argument, greatest=function == "max", type=type))
            fields.append(pa.field(f"_{function}_{argument}", type))
    return Layout(
        key_types=tuple(key_types),
        summands=tuple(summands),
        extremes=tuple(extremes),
        schema=pa.schema(fields),
        width=width,
    )


# --- elements -------------------------------------------------------------------------------------------------


def weighed(
    layout: Layout, keys: Sequence[pa.Array], arguments: Sequence[pa.Array], steps: Numbers, diffs: Numbers
) -> Weighed:
    """What updates add, given by their keys and arguments, all canonical."""
    counts, parts, rests = list[Numbers](), list[list[Part]](), list[dict[int, Rest]]()
    # As a double: what is far too large must not overflow here.
    times = len(diffs) if are_ones(diffs) else float(np.abs(diffs.astype(np.float64)).sum())
    for summand in layout.summands:
        values = arguments[summand.argument]
        counts.append(np.where(valid_of(values), diffs, 0) if values.null_count else diffs)
        if summand.total is None:
            continue
        weights: Limb | None = None if are_ones(counts[-1]) else counts[-1]
        if times > TIMES_MAX:
            weights = counts[-1].astype(object)
        bits = bits_for(min(times, TIMES_MAX))
        found, beyond = summand.total.weighed(values, diffs, weights, bits)
        parts.append(found)
        rests.append(beyond)
    absent = diffs <= 0
    retracts = bool(absent.any())
    there, gone = list[pa.Array](), list[pa.Array | None]()
    for extreme in layout.extremes:
        values = arguments[extreme.argument]
        there.append(_without(values, absent) if retracts else values)
        gone.append(_without(values, diffs >= 0) if retracts else None)
    return Weighed(keys=keys, steps=steps, rows=diffs, counts=counts, parts=parts, rests=rests, there=there, gone=gone)


def elements_of(layout: Layout, weighed: Weighed) -> Elements:
    """The same as elements."""
    found: list[Limb | None] = [weighed.rows]
    parts = iter(weighed.parts)
    for summand, counts in zip(layout.summands, weighed.counts, strict=True):
        found.append(counts)
        if summand.total is not None:
            found += limbs_of(next(parts), summand.total.words)
    return Elements(
        keys=weighed.keys,
        steps=weighed.steps,
        added=found,
        rests=weighed.rests,
        there=weighed.there,
        gone=weighed.gone,
    )


def are_ones(diffs: Numbers) -> bool:
    return bool((diffs == 1).all())


def _without(values: pa.Array, flags: Flags) -> pa.Array:
    """Null where a flag is."""
    return values.take(pa.array(np.arange(len(values)), mask=flags))


def stored(layout: Layout, table: pa.Table) -> Elements:
    """The elements that stored groups are, one each."""
    columns = [column.combine_chunks() for column in table.columns]
    taken = iter(columns)
    keys = [next(taken) for _ in layout.key_types]
    found: list[Limb | None] = [next(taken).to_numpy()]
    rests, there = [], list[pa.Array]()
    extremes = list(layout.extremes)
    for argument in _arguments(layout):
        for summand in layout.summands:
            if summand.argument != argument:
                continue
            found.append(next(taken).to_numpy())
            if summand.total is not None:
                found += unpacked([next(taken).to_numpy() for _ in range(summand.total.words)])
                rests.append(_rests(next(taken)) if summand.total.has_rest else {})
        there += [next(taken) for extreme in extremes if extreme.argument == argument]
    steps = np.full(table.num_rows, BEFORE, np.int64)
    return Elements(keys=keys, steps=steps, added=found, rests=rests, there=there, gone=[None] * len(there))


def _arguments(layout: Layout) -> list[int]:
    return sorted({each.argument for each in layout.summands} | {each.argument for each in layout.extremes})


def _rests(column: pa.Array) -> dict[int, Rest]:
    if not column.nbytes or column.buffers()[2] is None:
        return {}
    lengths = np.diff(np.frombuffer(column.buffers()[1], np.int32, len(column) + 1, 4 * column.offset))
    return {int(place): from_bytes(column[int(place)].as_py()) for place in np.flatnonzero(lengths)}


def joined(one: Elements, other: Elements) -> Elements:
    """Both, the one before the other."""
    if not len(one):
        return other
    count, more = len(one), len(other)
    return Elements(
        keys=[pa.concat_arrays(both) for both in zip(one.keys, other.keys, strict=True)],
        steps=np.concatenate([one.steps, other.steps]),
        added=[_both(*both, count, more) for both in zip(one.added, other.added, strict=True)],
        rests=[
            {**ours, **{place + count: rest for place, rest in theirs.items()}}
            for ours, theirs in zip(one.rests, other.rests, strict=True)
        ],
        there=[pa.concat_arrays(both) for both in zip(one.there, other.there, strict=True)],
        gone=[_gone(*both, count, more) for both in zip(one.gone, other.gone, one.there, strict=True)],
    )


def _both(ours: Limb | None, theirs: Limb | None, count: int, more: int) -> Limb | None:
    if ours is None and theirs is None:
        return None
    ours = np.zeros(count, np.int64) if ours is None else ours
    return np.concatenate([ours, np.zeros(more, np.int64) if theirs is None else theirs])


def _gone(ours: pa.Array | None, theirs: pa.Array | None, like: pa.Array, count: int, more: int) -> pa.Array | None:
    if ours is None and theirs is None:
        return None
    ours = pa.nulls(count, like.type) if ours is None else ours
    return pa.concat_arrays([ours, pa.nulls(more, like.type) if theirs is None else theirs])


# --- groups ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """The state of groups at the points of their chains."""

    rows: Numbers
    #: For each summand; one without a total has no words.
    summed: Sequence[Summed]
    #: For each extreme.
    extremes: Sequence[pa.Array] = field(default_factory=tuple)


def accumulated(layout: Layout, elements: Elements, chains: Chains, *, is_keyed: bool) -> Groups:
    """What the elements up to each point of a chain add up to, but for the extremes."""
    count = len(chains.points)
    sums = [_running(each, chains) for each in elements.added]
    rows = sums[0]
    assert rows is not None
    wanted = rows > 0 if is_keyed else np.ones(count, np.bool_)
    summed, totals = list[Summed](), 0
    for summand in layout.summands:
        counts = sums[summand.begin]
        assert counts is not None
        words, rests = [], dict[int, Rest]()
        if summand.total is not None:
            words = packed(sums[summand.begin + 1 : summand.end], summand.total.words, count)
            rests = _running_rests(elements.rests[totals], chains)
            totals += 1
        summed.append(Summed(words=words, rests=rests, counts=counts, wanted=wanted))
    return Groups(rows=rows, summed=summed)


def _running(values: Limb | None, chains: Chains) -> Limb | None:
    """The sums up to each point, within its chain."""
    if values is None:
        return None
    ordered = values[chains.order]
    if chains.is_plain:
        return ordered
    # What overflows here is taken off again below.
    sums: Limb = np.cumsum(ordered)
    starts = chains.starts[chains.points]
    found: Limb = sums[chains.points] - (sums[starts] - ordered[starts])
    return found


def _running_rests(rests: dict[int, Rest], chains: Chains) -> dict[int, Rest]:
    """The same for what few elements have."""
    if not rests:
        return {}
    places = np.array(list(rests), np.int64)
    position = np.empty(len(chains.order), np.int64)
    position[chains.order] = np.arange(len(chains.order))
    found: dict[int, Rest] = {}
    last = np.flatnonzero(chains.last)
    for place, at in zip(places, position[places], strict=True):
        begin = int(np.searchsorted(chains.points, at))
        end = int(last[np.searchsorted(last, begin)])
        for point in range(begin, end + 1):
            found[point] = added(found.get(point, NO_REST), rests[int(place)])
    return found


def results(layout: Layout, aggregates: Sequence[Aggregate], groups: Groups) -> list[pa.Array]:
    """The aggregates of each group. Raises ``InvalidRequest`` that names one which cannot be."""
    found = []
    for name, function, argument in aggregates:
        try:
            found.append(_result(layout, function, argument, groups))
        except InvalidRequest as error:
            raise InvalidRequest(f"group failed in {name!r}", detail=str(error)) from error
    return found


def _result(layout: Layout, function: str, argument: int | None, groups: Groups) -> pa.Array:
    if argument is None:
        return pa.array(groups.rows)
    if function in ("min", "max"):
        places = [(extreme.argument, extreme.greatest) for extreme in layout.extremes]
        return groups.extremes[places.index((argument, function == "max"))]
    place = [summand.argument for summand in layout.summands].index(argument)
    summed, total = groups.summed[place], layout.summands[place].total
    if function == "count":
        return pa.array(summed.counts)
    assert total is not None, "somebody wants the sum"
    return total.sum(summed) if function == "sum" else total.avg(summed)


def columns_of(layout: Layout, groups: Groups) -> list[pa.Array]:
    """The groups as they are stored, without their keys."""
    found = [pa.array(groups.rows)]
    for argument in _arguments(layout):
        for summand, summed in zip(layout.summands, groups.summed, strict=True):
            if summand.argument != argument:
                continue
            found += [pa.array(summed.counts), *map(pa.array, summed.words)]
            if summand.total is not None and summand.total.has_rest:
                found.append(_rest_column(summed.rests, len(groups.rows)))
        for extreme, values in zip(layout.extremes, groups.extremes, strict=True):
            if extreme.argument == argument:
                found.append(values)
    return found


def _rest_column(rests: Mapping[int, Rest], count: int) -> pa.Array:
    if not rests:
        empty = pa.py_buffer(np.zeros(count + 1, np.int32))
        return pa.Array.from_buffers(pa.binary(), count, [None, empty, pa.py_buffer(b"")])
    return pa.array([to_bytes(rests.get(place, NO_REST)) for place in range(count)], pa.binary())


def result_types(types: Sequence[pa.DataType], aggregates: Sequence[Aggregate]) -> list[pa.DataType]:
    """Raises ``InvalidRequest`` if there is no such aggregate of such values."""
    return [accumulator(function, None if place is None else types[place])[0] for _, function, place in aggregates]
