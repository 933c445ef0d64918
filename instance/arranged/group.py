"""The group operator over spines: aggregates by key, of which only those of touched keys are computed.

Its spine ``groups`` has a row for each key. With ``min`` and ``max`` there is ``rows`` too, the values by key, which is
read only for the keys whose extreme may have gone.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types

from instance.arranged.accumulation import (
    Elements,
    Groups,
    accumulated,
    columns_of,
    joined,
    layout_of,
    result_types,
    results,
    stored,
    weighed,
)
from instance.arranged.extremes import Ranked, Rows, found_anew, harmed, running
from instance.arranged.matching import BEFORE, Chains, chained, numbers_of, together
from instance.arranged.operator import SETTING, ArrangedOperator, Setting
from instance.arranged.thinning import thinned
from instance.memory.batch import Batch
from instance.memory.group import Aggregate
from instance.memory.operators import Project
from instance.memory.rows import RowFormat, row_format
from instance.spine.consolidation import Numbers
from instance.spine.values import Flags, Places, canonical, rows_equal, valid_of
from plainsong.types import DIFF, STEP
from reconcile.errors import InvalidRequest

_NO_KEY = pa.int8()


class Change:
    """The updates of one range of steps: their keys and arguments, canonical."""

    __slots__ = ("arguments", "diffs", "keys", "steps")

    def __init__(self, columns: Sequence[pa.Array], width: int, steps: Numbers, diffs: Numbers) -> None:
        found = [canonical(column) for column in columns]
        #: Without keys, all rows have the same.
        self.keys = found[:width] or [pa.repeat(pa.scalar(0, _NO_KEY), len(steps))]
        self.arguments = found[width:]
        self.steps = steps
        self.diffs = diffs

    def __len__(self) -> int:
        return len(self.steps)


class Group(ArrangedOperator):
    """One row for each key that occurs; without keys, always exactly one row.

    A key occurs as long as one of its rows does. Nulls are one key.
    """

    def __init__(
        self,
        input: RowFormat,
        keys: Sequence[tuple[str, str]],
        aggregates: Sequence[Aggregate],
        setting: Setting = SETTING,
    ) -> None:
        texts = list(dict.fromkeys(text for _, _, text in aggregates if text is not None))
        for name, function, text in aggregates:
            if text is None and function != "count":
                raise InvalidRequest(f"{function} of {name!r} needs an expression")
        columns = [(f"_{kind}_{place}", text) for kind, each in (("key", [text for _, text in keys]), ("value", texts))
                   for place, text in enumerate(each)]  # fmt: skip
        self._project = Project(input, columns, where="group") if columns else None
        types = self._project.format.types if self._project else ()
        self._width = len(keys)
        key_types, argument_types = types[: self._width], types[self._width :]
        self._aggregates = [
            (name, function, None if text is None else texts.index(text)) for name, function, text in aggregates
        ]
        result = [*key_types, *result_types(argument_types, self._aggregates)]
        self.format = row_format((*(name for name, _ in keys), *(name for name, _, _ in aggregates)), tuple(result))
        self._layout = layout_of(key_types or (_NO_KEY,), argument_types, self._aggregates)
        #: The arguments of which extremes are kept.
        self._kept = sorted({extreme.argument for extreme in self._layout.extremes})
        schemas = {"groups": (self._layout.schema, self._layout.key_names)}
        if self._kept:
            values = [pa.field(f"_value_{place}", argument_types[place]) for place in self._kept]
            fields = [*self._layout.schema][: len(self._layout.key_types)] + values
            schemas["rows"] = pa.schema(fields), self._layout.key_names
        super().__init__(schemas, setting)

    def apply(self, changes: Sequence[Batch], at: int) -> Batch:
        change = self._change(changes[0], at)
        if change is None:
            return Batch.nothing(self.format)
        layout = self._layout
        elements = thinned(layout, weighed(layout, change.keys, change.arguments, change.steps, change.diffs))
        groups = self._spines["groups"]
        if groups.rows:
            keys = pa.table(list(elements.keys), names=layout.key_names)
            elements = joined(stored(layout, groups.lookup(keys).drop_columns([DIFF])), elements)
        chains = chained(elements.keys, elements.steps, self._hashing)
        found = accumulated(layout, elements, chains, is_keyed=self._width > 0)
        if layout.extremes:
            found = replace(found, extremes=self._extremes(elements, chains, change))
        output = self._output(elements, chains, found)
        self._remember(elements, chains, found, change)
        return output

    def _change(self, batch: Batch, at: int) -> Change | None:
        """The updates; the one group without keys begins with one of nothing."""
        begins = not self._width and not self._spines["groups"].rows
        if not len(batch):
            if not begins:
                return None
            types = self._project.format.types if self._project else ()
            nothing = [pa.nulls(1, type) for type in types]
            return Change(nothing, 0, np.array([at]), np.zeros(1, np.int64))
        if self._project is not None:
            batch = self._project.apply([batch], at)
        *columns, steps, diffs = batch.arrow.columns
        if self._project is None:
            columns = []
        if begins:
            columns = [pa.concat_arrays([pa.nulls(1, column.type), column]) for column in columns]
            moments = np.concatenate([[at], steps.to_numpy()])
            return Change(columns, 0, moments, np.concatenate([[0], diffs.to_numpy()]))
        return Change(columns, self._width, steps.to_numpy(), diffs.to_numpy()) if len(batch) else None

    # --- extremes -----------------------------------------------------------------------------------------

    def _extremes(self, elements: Elements, chains: Chains, change: Change) -> list[pa.Array]:
        """The extremes at each point."""
        found, hurt = list[pa.Array](), np.zeros(len(chains.points), np.bool_)
        count = len(elements)
        for place, extreme in enumerate(self._layout.extremes):
            there, gone = elements.there[place], elements.gone[place]
            if chains.is_plain and gone is None:
                found.append(there.take(pa.array(chains.order)))
                continue
            pool = there if gone is None else pa.concat_arrays([there, gone])
            ranked = Ranked.of(pool, greatest=extreme.greatest)
            least = running(ranked.ranks[:count], chains)
            found.append(ranked.values(least))
            if gone is not None:
                hurt |= harmed(least, ranked.ranks[count:], ranked.none, chains)
        if not hurt.any():
            return found
        return self._found_anew(found, self._asked(chains, hurt), elements, chains, change)

    @staticmethod
    def _asked(chains: Chains, hurt: Flags) -> Places:
        """The points to be looked at: in a chain that is hurt all that are not from before."""
        chain = np.cumsum(chains.first) - 1
        affected = np.zeros(int(chain[-1]) + 1, np.bool_)
        affected[chain[hurt]] = True
        return np.flatnonzero(affected[chain] & (chains.steps != BEFORE))

    def _found_anew(
        self, found: Sequence[pa.Array], asked: Places, elements: Elements, chains: Chains, change: Change
    ) -> list[pa.Array]:
        """The extremes, with those at some points from the rows of their keys."""
        wanted = [key.take(pa.array(chains.elements[asked])) for key in elements.keys]
        before = self._spines["rows"].lookup(pa.table(wanted, names=self._layout.key_names))
        kept = [column.combine_chunks() for column in before.columns]
        width = len(wanted)
        numbers = numbers_of(together([wanted, kept[:width], change.keys]), self._hashing)
        known = np.zeros(int(numbers.max()) + 1, np.bool_)
        known[numbers[: len(asked)]] = True
        keys = numbers[len(asked) :]
        steps = np.concatenate([np.full(before.num_rows, BEFORE), change.steps])
        diffs = np.concatenate([kept[-1].to_numpy(), change.diffs])
        places = np.flatnonzero(known[keys])
        places = places[np.lexsort((steps[places], keys[places]))]
        rows = Rows(keys=keys[places], steps=steps[places], diffs=diffs[places])
        values = {
            argument: pa.concat_arrays([kept[width + at], change.arguments[argument]]).take(pa.array(places))
            for at, argument in enumerate(self._kept)
        }
        columns = [(values[extreme.argument], extreme.greatest) for extreme in self._layout.extremes]
        anew = found_anew(rows, columns, numbers[: len(asked)], chains.steps[asked])
        chosen = np.arange(len(chains.points))
        chosen[asked] = len(chosen) + np.arange(len(asked))
        return [pa.concat_arrays([old, new]).take(pa.array(chosen)) for old, new in zip(found, anew, strict=True)]

    # --- what comes of it ---------------------------------------------------------------------------------

    def _output(self, elements: Elements, chains: Chains, groups: Groups) -> Batch:
        """The rows of each point in the place of those of the point before."""
        aggregates = results(self._layout, self._aggregates, groups)
        is_new = chains.steps != BEFORE
        alive = groups.rows > 0 if self._width else np.ones(len(chains.points), np.bool_)
        had = np.zeros(len(alive), np.bool_)
        had[1:] = alive[:-1]
        had &= ~chains.first
        both = np.flatnonzero(had & alive & is_new)
        same = np.zeros(len(alive), np.bool_)
        if len(both):
            same[both] = rows_equal(aggregates, both - 1, both) if aggregates else True
        gone = np.flatnonzero(had & is_new & ~same)
        come = np.flatnonzero(alive & is_new & ~same)
        steps = np.concatenate([chains.steps[gone], chains.steps[come]])
        diffs = np.repeat(np.array([-1, 1]), [len(gone), len(come)])
        points = np.concatenate([gone - 1, come])
        keys = elements.keys if self._width else ()
        at = pa.array(chains.elements[points])
        columns = [key.take(at) for key in keys] + [each.take(pa.array(points)) for each in aggregates]
        arrays = [*columns, pa.array(steps), pa.array(diffs)]
        return Batch.of_arrow(self.format, pa.RecordBatch.from_arrays(arrays, schema=self.format.updates_schema))

    def _remember(self, elements: Elements, chains: Chains, groups: Groups, change: Change) -> None:
        """Puts the newest of each group in the place of the one before, all at the last step: nobody asks earlier."""
        newest = int(chains.steps.max())
        old = np.flatnonzero(chains.steps == BEFORE)
        new = np.flatnonzero(chains.last & ((groups.rows != 0) | (not self._width)))
        points = np.concatenate([old, new])
        at = pa.array(chains.elements[points])
        columns = [key.take(at) for key in elements.keys]
        columns += [column.take(pa.array(points)) for column in columns_of(self._layout, groups)]
        diffs = np.repeat(np.array([-1, 1]), [len(old), len(new)])
        self._insert("groups", columns, newest, diffs)
        if self._kept:
            values = [change.arguments[argument] for argument in self._kept]
            some = np.zeros(len(change), np.bool_)
            for value in values:
                some |= valid_of(value)
            columns, diffs = [*change.keys, *values], change.diffs
            if not some.all():
                columns = [column.filter(pa.array(some)) for column in columns]
                diffs = diffs[some]
            self._insert("rows", columns, newest, diffs)

    def _insert(self, name: str, columns: Sequence[pa.Array], step: int, diffs: Numbers) -> None:
        spine = self._spines[name]
        steps = np.full(len(diffs), step)
        arrays = [*columns, pa.array(steps), pa.array(diffs)]
        spine.insert(pa.table(arrays, names=[*spine.schema.names, STEP, DIFF]))
