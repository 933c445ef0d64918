"""A spine: the rows of a collection by key, readable at every step from its horizon on.

It has the meaning of ``instance.memory.arrangement.Arrangement``: compacting to ``since`` leaves one step more than
asked for, because a reader that resumes at ``since`` must tell the changes *at* ``since`` from everything before it.
Here folding is lazy: history before the horizon can no longer be asked for at once, and goes when runs are merged.

Everything is called from one thread, but ``Merge.run``, which may run in any. An owner goes round like this::

    spine.insert(updates)
    while (merge := spine.merge_due()) is not None:
        spine.install(merge, await in_a_thread(merge.run))    # inserts, reads and further merges go on meanwhile

and, to be able to restart: ``saving()`` like ``merge_due()``, then ``manifest(upper)``, whose files are synced; once
the manifest is durable itself, ``obsolete(manifest)`` names the files that may be removed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count, pairwise

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow carries no types

from instance.spine.files import RunFiles, widths_of
from instance.spine.hashing import Hashing, row_hashes
from instance.spine.intake import Intake
from instance.spine.manifest import Manifest, RunNamed
from instance.spine.merging import Merge, merged_updates, window_due
from instance.spine.run import Part, Run
from instance.spine.sizes import SIZES, Sizes
from instance.spine.snapshot import Snapshot, Where
from reconcile.errors import InvariantBroken
from reconcile.frontiers import Antichain


class Spine:
    """Rows by key, multi-versioned. Readable at ``horizon`` and every later step that has been inserted."""

    def __init__(
        self,
        schema: pa.Schema,
        key: Sequence[str],
        place: RunFiles | None = None,
        *,
        sizes: Sizes = SIZES,
        hashing: Hashing = row_hashes,
    ) -> None:
        """``schema`` are the user's columns, ``key`` the names of those by which rows are found: none are all."""
        self._intake = Intake(schema, key, hashing)
        self._files = place
        self._numbers = count(1)
        self._sizes = sizes
        #: The oldest first; steps never go back from one to the next.
        self._runs: list[Run] = []
        #: The numbers of the runs that are being merged.
        self._merging: set[int] = set()
        #: Files that were written or restored and have not been told to be obsolete.
        self._written: set[str] = set()
        self._horizon = 0
        self._newest = 0

    # --- what there is ------------------------------------------------------------------------------------

    @property
    def schema(self) -> pa.Schema:
        return self._intake.schema

    @property
    def key(self) -> tuple[str, ...]:
        """The columns by which rows are found."""
        return self._intake.key

    @property
    def horizon(self) -> int:
        """Everything up to here counts as one change each."""
        return self._horizon

    @property
    def newest(self) -> int:
        """The latest step that was inserted."""
        return self._newest

    @property
    def rows(self) -> int:
        """How many updates are stored; no fewer than the rows that are readable."""
        return sum(run.rows for run in self._runs)

    @property
    def bytes(self) -> int:
        """In memory and in files."""
        return sum(run.bytes for run in self._runs)

    @property
    def bytes_in_memory(self) -> int:
        return sum(run.bytes for run in self._runs if run.file is None)

    @property
    def runs(self) -> int:
        return len(self._runs)

    # --- changing -----------------------------------------------------------------------------------------

    def insert(self, updates: pa.Table) -> None:
        """Takes in updates, none at a step before what was inserted; those before the horizon count as at the horizon.

        Raises ``InvalidRequest`` if it does not have the columns, and ``InvariantBroken`` if a step goes back.
        """
        for taken in self._intake.updates(updates, self._horizon):
            first, last = int(taken.steps.min()), int(taken.steps.max())
            if first < self._newest:
                raise InvariantBroken(f"an update at step {first} came after one at {self._newest}")
            self._newest = last
            if len(found := taken.consolidated(by_step=True, in_runs=False)):
                self._runs.append(Run.of(self._number(), [Part.of(found)], self._horizon))
                self._merge_small()

    def _number(self) -> int:
        return next(self._numbers) if self._files is None else self._files.number()

    def _merge_small(self) -> None:
        while (window := window_due(self._mergeable(), self._sizes.at_once_rows)) is not None:
            begin, end = window
            pieces = [part.between(0, len(part)) for run in self._runs[begin:end] for part in run.parts]
            found = merged_updates(pieces, self._horizon)
            self._runs[begin:end] = [Run.of(self._number(), [Part.of(found)], self._horizon)] if len(found) else []

    def _mergeable(self) -> list[int | None]:
        return [None if run.number in self._merging else run.rows for run in self._runs]

    def compact(self, since: Antichain) -> None:
        """Forgets what only reads before ``since`` need, one step less; everything if it is closed."""
        if since.step is None:
            self._runs.clear()
            self._merging.clear()
        else:
            self._horizon = max(self._horizon, since.step - 1)

    # --- merging ------------------------------------------------------------------------------------------

    def merge_due(self) -> Merge | None:
        """What should be merged now; its runs are left alone until it is installed or abandoned.

        Several may be under way. Sooner or later each ends with ``install`` or ``abandon``.
        """
        window = window_due(self._mergeable())
        if window is None:
            window = next(((place, place + 1) for place, run in enumerate(self._runs) if self._is_due(run)), None)
        return None if window is None else self._merge(*window)

    def _is_due(self, run: Run) -> bool:
        """Whether a run should be written anew by itself: to be in a file, or because half of it would fold."""
        if run.number in self._merging:
            return False
        is_folding = self._horizon >= run.last and 2 * run.later_changes > run.rows
        return is_folding or (self._files is not None and run.file is None and run.rows >= self._sizes.file_rows)

    def saving(self) -> Merge | None:
        """A merge that brings runs to files that are only in memory, as ``manifest`` needs; None if there are none."""
        unsaved = [place for place, run in enumerate(self._runs) if run.file is None]
        free = [place for place in unsaved if self._runs[place].number not in self._merging]
        if self._files is None or not free:
            return None
        begin = end = free[-1]
        while begin > 0 and begin - 1 in free:
            begin -= 1
        return self._merge(begin, end + 1, to_file=True)

    def _merge(self, begin: int, end: int, *, to_file: bool = False) -> Merge:
        runs = tuple(self._runs[begin:end])
        # What is in a file stays in one: an installed merge leaves nothing to save that was saved.
        was_in_file = any(run.file is not None for run in runs)
        to_file = to_file or was_in_file or sum(run.rows for run in runs) >= self._sizes.file_rows
        self._merging.update(run.number for run in runs)
        return Merge(
            number=self._number(),
            runs=runs,
            schema=self.schema,
            horizon=self._horizon,
            files=self._files if to_file else None,
            sizes=self._sizes,
        )

    def install(self, merge: Merge, run: Run | None) -> None:
        """Puts the result of a merge in the place of what was merged; of nothing, if that was forgotten meanwhile."""
        if run is not None and run.file is not None:
            self._written.add(run.file.name)
        wanted = [each.number for each in merge.runs]
        places = [place for place, each in enumerate(self._runs) if each.number in wanted]
        if places:
            begin, end = places[0], places[-1] + 1
            if [each.number for each in self._runs[begin:end]] != wanted:
                raise InvariantBroken(f"the runs {wanted} were changed while they were merged")
            self._runs[begin:end] = [] if run is None else [run]
        self._merging.difference_update(wanted)

    def abandon(self, merge: Merge) -> None:
        """The merge failed: its runs stay as they are, and may be merged again."""
        self._merging -= {run.number for run in merge.runs}

    # --- reading ------------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """What there is now, to be read later or in another thread; costs next to nothing."""
        return Snapshot(self._intake, tuple(self._runs), self._horizon, self._sizes.piece_rows)

    def lookup(self, keys: pa.Table, at: int | None = None) -> pa.Table:
        """See ``Snapshot``, as for everything that reads."""
        return self.snapshot().lookup(keys, at)

    def history(self, keys: pa.Table, lower: int) -> pa.Table:
        return self.snapshot().history(keys, lower)

    def contents(self, at: int | None = None, where: Where | None = None) -> Iterator[pa.Table]:
        """What happens to the spine after the call does not show."""
        return self.snapshot().contents(at, where)

    def range(
        self,
        low: pa.Scalar | None,
        high: pa.Scalar | None,
        at: int | None = None,
        *,
        low_included: bool = True,
        high_included: bool = False,
    ) -> Iterator[pa.Table]:
        return self.snapshot().range(low, high, at, low_included=low_included, high_included=high_included)

    def changes_from(self, step: int) -> pa.Table:
        return self.snapshot().changes_from(step)

    # --- files --------------------------------------------------------------------------------------------

    def manifest(self, upper: Antichain) -> Manifest:
        """The spine as it is now. Runs that are only in memory are written first: few and small after ``saving``."""
        if self._files is None:
            raise InvariantBroken("a spine in memory has no manifest")
        for place, run in enumerate(self._runs):
            if run.file is None:
                # It keeps its number: a merge that it is in finds it again.
                file = self._files.write(run.number, self.schema, widths_of([run], 0), run.parts)
                self._written.add(file.name)
                self._runs[place] = replace(run, parts=self._files.mapped(file, self.schema), file=file)
        return Manifest(
            schema=self.schema,
            key=self.key,
            horizon=self._horizon,
            newest=self._newest,
            upper=upper,
            runs=tuple(_named(run) for run in self._runs),
        )

    @classmethod
    def restore(
        cls,
        place: RunFiles,
        manifest: Manifest,
        *,
        kept: Sequence[Manifest] = (),
        whole: bool = False,
        sizes: Sizes = SIZES,
        hashing: Hashing = row_hashes,
    ) -> "Spine":
        """The spine that had this manifest. Removes files that neither it nor a manifest in ``kept`` names.

        Raises ``StorageFailed`` if a file is not what it was: its length and footer, with ``whole`` every byte.
        """
        spine = cls(manifest.schema, manifest.key, place, sizes=sizes, hashing=hashing)
        spine._horizon, spine._newest = manifest.horizon, manifest.newest
        for named in manifest.runs:
            parts = place.mapped(named.file, manifest.schema, whole=whole)
            if sum(len(part) for part in parts) != named.rows:
                raise InvariantBroken(f"{named.file.name} is whole, and yet does not have {named.rows} rows")
            spine._runs.append(_restored(place.number(), parts, named))
        spine._written = {name for each in (manifest, *kept) for name in each.files}
        place.remove_leftovers(spine._written)
        return spine

    def obsolete(self, *kept: Manifest) -> tuple[str, ...]:
        """The files that neither these manifests need nor the spine itself; each is told once.

        To be called when the last of them is durable and whoever kept others has forgotten them.
        """
        needed = {name for manifest in kept for name in manifest.files}
        needed |= {run.file.name for run in self._runs if run.file is not None}
        found = self._written - needed
        self._written -= found
        return tuple(sorted(found))

    def check(self) -> None:
        """Restates the invariants. Reads everything."""
        for older, younger in pairwise(self._runs):
            if max(older.last, self._horizon) > max(younger.first, self._horizon):
                raise InvariantBroken(f"run {younger.number} has earlier steps than run {older.number} before it")
        for run in self._runs:
            self._intake.check(run)
            if run.file is not None and run.file.name not in self._written:
                raise InvariantBroken(f"file {run.file.name} is not known as written")
            if run.last > max(self._newest, self._horizon):
                raise InvariantBroken(f"run {run.number} is later than step {self._newest}")
        numbers = [run.number for run in self._runs]
        if len(set(numbers)) < len(numbers) or not self._merging <= set(numbers):
            raise InvariantBroken(f"of the runs {numbers} these are being merged: {self._merging}")


def _named(run: Run) -> RunNamed:
    assert run.file is not None
    return RunNamed(file=run.file, rows=run.rows, first=run.first, last=run.last, later_changes=run.later_changes)


def _restored(number: int, parts: tuple[Part, ...], named: RunNamed) -> Run:
    return Run(
        number=number,
        parts=parts,
        rows=named.rows,
        first=named.first,
        last=named.last,
        later_changes=named.later_changes,
        file=named.file,
    )
