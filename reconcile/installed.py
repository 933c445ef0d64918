"""What an instance runs: its dataflows, peeks, logs and uppers, whoever asked for them.

Knows nothing of sessions. Each operation changes the state and yields its effects: actions for the runtime, and
the responses that a controller should get if one is listening; the reconciler decides whether one is.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from reconcile.compute_actions import (
    Compact,
    Configure,
    Drop,
    Render,
    SetLogging,
    SetWritable,
    StartPeek,
    StopPeek,
)
from reconcile.compute_protocol import (
    ComputeResponse,
    Configuration,
    DataflowStatus,
    Failed,
    FrontierChange,
    FrontierUppers,
    Hydrating,
    InstalledExport,
    Inventory,
    Kept,
    Peek,
    PeekCanceled,
    PeekFailed,
    PeekOutcome,
    PeekRefusal,
    PeekRefused,
    PeekResponse,
    PeekRows,
    Replaced,
    TailResponse,
)
from reconcile.dataflow import DataflowDescription, ExportKind
from reconcile.errors import InvariantBroken
from reconcile.frontiers import CLOSED, MINIMUM, Antichain
from reconcile.ids import GlobalId, PeekId
from reconcile.live import LiveDataflow, LiveDataflows, LivePeeks
from reconcile.plan import Keep, Plan, plan
from reconcile.updates import Updates
from reconcile.uppers import UpperTeller

Effect = Render | Drop | Compact | SetWritable | StartPeek | StopPeek | Configure | SetLogging | ComputeResponse
Effects = Iterator[Effect]


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledDataflow:
    """One dataflow as it is installed: what the manifest on the instance's disk remembers of it."""

    description: DataflowDescription
    sinces: tuple[tuple[GlobalId, Antichain], ...]
    uppers: tuple[tuple[GlobalId, Antichain], ...] = ()
    writable: tuple[GlobalId, ...] = ()
    error: str | None = None


class Installed:
    """The running state of one compute instance."""

    def __init__(self, restored: Iterable[InstalledDataflow] = ()) -> None:
        #: All and only dataflows with a Render and no Drop; their sinces are those last told to the runtime.
        self.dataflows = LiveDataflows()
        #: All and only peeks with a StartPeek, no StopPeek and no answer.
        self.peeks = LivePeeks()
        self.logging: tuple[GlobalId, ...] = ()
        self.configuration = Configuration()
        #: The error of each failed dataflow, by age.
        self._failed: dict[int, str] = {}
        #: The exports that are installed and not dropped, and the logging ids.
        self._uppers = UpperTeller()
        for dataflow in restored:
            self._restore(dataflow)

    def snapshot(self) -> tuple[InstalledDataflow, ...]:
        """The dataflows, oldest first; restoring from it gives the same state."""
        return tuple(
            InstalledDataflow(
                description=dataflow.description,
                sinces=tuple(dataflow.sinces.items()),
                uppers=tuple((id, self._uppers.upper(id)) for id in dataflow.sinces if id in self._uppers),
                writable=tuple(dataflow.writable),
                error=self._failed.get(dataflow.age),
            )
            for dataflow in self.dataflows
        )

    def inventory(self) -> Inventory:
        return Inventory(
            exports=tuple(
                InstalledExport(id=id, since=since, upper=self._uppers.upper(id))
                for dataflow in self.dataflows
                for id, since in dataflow.sinces.items()
                if not since.is_closed
            )
        )

    def check(self) -> None:
        for part in (self.dataflows, self.peeks, self._uppers):
            part.check()
        live = [id for dataflow in self.dataflows for id, since in dataflow.sinces.items() if not since.is_closed]
        if sorted(self._uppers) != sorted({*live, *self.logging}):
            raise InvariantBroken(f"uppers are kept of {sorted(self._uppers)}, installed are {sorted(live)}")
        if not self._failed.keys() <= {dataflow.age for dataflow in self.dataflows}:
            raise InvariantBroken(f"a dropped dataflow is remembered as failed: {self._failed}")

    # --- dataflows ----------------------------------------------------------------------------------------

    def render(self, description: DataflowDescription) -> Effects:
        """Starts a dataflow that admission let through."""
        self.dataflows.create(description)
        for id in description.export_ids:
            self._uppers.install(id, description.as_of)
        yield Render(description=description)

    def compact(self, id: GlobalId, since: Antichain) -> Effects:
        """Moves a since up; closing the last live export drops its dataflow."""
        dataflow = self.dataflows.advance(id, since)
        if dataflow is None:
            return
        if not since.is_closed:
            yield Compact(id=id, since=since)
            return
        for peek in self.peeks.pop_on(id):
            yield StopPeek(peek=peek.peek)
            yield _refused(peek, PeekRefusal.DROPPED)
        if dataflow.exports_live:
            yield Compact(id=id, since=since)
        else:
            self._failed.pop(dataflow.age, None)
            yield Drop(exports=dataflow.description.export_ids)
        change = self._uppers.close(id)
        if change is not None:
            yield FrontierUppers(changes=(change,))

    def set_writable(self, id: GlobalId, writable: bool) -> Effects:
        """Lets a materialized view write, or stops it; nothing else ever writes."""
        dataflow = self.dataflows.get(id)
        if dataflow is None or self.dataflows.since(id) is None or (id in dataflow.writable) == writable:
            return
        if _kind(dataflow, id) is ExportKind.VIEW:
            if writable:
                dataflow.writable[id] = None
            else:
                del dataflow.writable[id]
            yield SetWritable(id=id, writable=writable)

    def drop_all(self) -> Effects:
        """Ends everything: peeks in start order, dataflows newest first, logs."""
        yield from self.stop_peeks()
        for dataflow in tuple(self.dataflows.newest_first()):
            yield self._drop(dataflow)
        yield from self._set_logging(())

    def configure(self, configuration: Configuration) -> Effects:
        if configuration != self.configuration:
            self.configuration = configuration
            yield Configure(configuration=configuration)

    # --- peeks --------------------------------------------------------------------------------------------

    def start_peek(self, peek: Peek) -> Effects:
        """Starts a peek whose id is new, or answers at once why it cannot be started."""
        outcome = self._unanswerable(peek)
        if outcome is not None:
            yield PeekResponse(peek=peek.peek, outcome=outcome)
            return
        self.peeks.add(peek)
        yield StartPeek(peek=peek.peek, id=peek.id, at=peek.at, finishing=peek.finishing)

    def cancel_peeks(self, peeks: Iterable[PeekId]) -> Effects:
        for peek in peeks:
            if self.peeks.pop(peek) is not None:
                yield StopPeek(peek=peek)
                yield PeekResponse(peek=peek, outcome=PeekCanceled())

    def stop_peeks(self) -> Effects:
        """Forgets all peeks without an answer, in start order."""
        for peek in self.peeks.pop_all():
            yield StopPeek(peek=peek.peek)

    def _unanswerable(self, peek: Peek) -> PeekOutcome | None:
        if peek.id in self.logging:
            return None
        dataflow, since = self.dataflows.get(peek.id), self.dataflows.since(peek.id)
        if dataflow is None or since is None or _kind(dataflow, peek.id) is ExportKind.TAIL:
            return PeekRefused(refusal=PeekRefusal.UNKNOWN_COLLECTION)
        if not since.is_open_at(peek.at):
            return PeekRefused(refusal=PeekRefusal.NOT_READABLE)
        if dataflow.age in self._failed:
            return PeekFailed(error=self._failed[dataflow.age])
        return None

    # --- what the runtime reports -------------------------------------------------------------------------

    def upper_rose(self, id: GlobalId, upper: Antichain) -> Effects:
        if self._uppers.rise(id, upper):
            change = self._uppers.untold(id)
            if change is not None:
                yield FrontierUppers(changes=(change,))

    def peek_finished(self, peek: PeekId, outcome: PeekRows | PeekFailed) -> Effects:
        if self.peeks.pop(peek) is not None:
            yield PeekResponse(peek=peek, outcome=outcome)

    def tail_advanced(self, id: GlobalId, lower: Antichain, upper: Antichain, updates: Updates) -> Effects:
        dataflow = self.dataflows.get(id)
        if dataflow is not None and id in self._uppers and _kind(dataflow, id) is ExportKind.TAIL:
            yield TailResponse(id=id, lower=lower, upper=upper, updates=updates)

    def failed(self, id: GlobalId, error: str) -> Effects:
        """The dataflow of ``id`` stays installed as failed; its peeks answer with the error."""
        dataflow = self.dataflows.get(id)
        if dataflow is None or dataflow.age in self._failed:
            return
        self._failed[dataflow.age] = error
        yield DataflowStatus(exports=dataflow.description.export_ids, status=Failed(error=error))
        for export in dataflow.sinces:
            for peek in self.peeks.pop_on(export):
                yield StopPeek(peek=peek.peek)
                yield PeekResponse(peek=peek.peek, outcome=PeekFailed(error=error))

    def hydrating(self, id: GlobalId, done: int, total: int) -> Effects:
        dataflow = self.dataflows.get(id)
        if dataflow is not None:
            yield DataflowStatus(exports=dataflow.description.export_ids, status=Hydrating(done=done, total=total))

    # --- reconciliation -----------------------------------------------------------------------------------

    def reconcile(
        self,
        requested: LiveDataflows,
        peeks: Iterable[Peek],
        logging: tuple[GlobalId, ...],
        configuration: Configuration,
    ) -> Effects:
        """Makes this state the requested one, at the start of a term in which nothing has been told."""
        steps = plan(self.dataflows, requested)
        yield from self._verdicts(steps)
        yield from self.stop_peeks()
        for dataflow in steps.drops:
            yield self._drop(dataflow)
        yield from self.configure(configuration)
        yield from self._set_logging(logging)
        for id, since in steps.compactions:
            yield from self._compact_unsaid(id, since)
        for dataflow in steps.renders:
            yield from self.render(dataflow.reduced())
            for id, since in dataflow.sinces.items():
                yield from self._compact_unsaid(id, since)
        for dataflow in requested:
            for id in dataflow.sinces:
                yield from self.set_writable(id, id in dataflow.writable)
        self._uppers.begin_term({id: wanted.as_of for wanted in requested for id in wanted.sinces})
        for peek in peeks:
            yield from self.start_peek(peek)
        yield from self._corrections(requested)

    def _verdicts(self, steps: Plan) -> Effects:
        for verdict in steps.verdicts:
            exports = verdict.requested.description.export_ids
            if isinstance(verdict, Keep):
                yield DataflowStatus(exports=exports, status=Kept())
                error = self._failed.get(verdict.installed.age)
                if error is not None:
                    yield DataflowStatus(exports=exports, status=Failed(error=error))
            else:
                yield DataflowStatus(exports=exports, status=Replaced(reasons=verdict.reasons))

    def _corrections(self, requested: LiveDataflows) -> Effects:
        """From the minimum, which the controller believes, to where we are."""
        ids = [*self.logging, *(id for dataflow in requested for id in dataflow.sinces if id in self._uppers)]
        changes: list[FrontierChange] = []
        for id in ids:
            change = self._uppers.untold(id)
            if change is not None:
                changes.append(change)
        if changes:
            yield FrontierUppers(changes=tuple(changes))

    def _compact_unsaid(self, id: GlobalId, since: Antichain) -> Effects:
        """Compacts an export of a dataflow that lives on; a drop here is not acknowledged."""
        if self.dataflows.advance(id, since) is not None:
            if since == CLOSED:
                self._uppers.remove(id)
            yield Compact(id=id, since=since)

    def _drop(self, dataflow: LiveDataflow) -> Drop:
        self.dataflows.remove(dataflow)
        self._failed.pop(dataflow.age, None)
        for id in dataflow.sinces:
            self._uppers.remove(id)
        return Drop(exports=dataflow.description.export_ids)

    def _set_logging(self, logging: tuple[GlobalId, ...]) -> Effects:
        """A logging id that stays keeps its upper."""
        if logging == self.logging:
            return
        for id in self.logging:
            if id not in logging:
                self._uppers.remove(id)
        for id in logging:
            if id not in self._uppers:
                self._uppers.install(id, MINIMUM)
        self.logging = logging
        yield SetLogging(ids=logging)

    def _restore(self, remembered: InstalledDataflow) -> None:
        dataflow = self.dataflows.create(remembered.description)
        if dataflow is None:
            raise InvariantBroken(f"dataflow {remembered.description.export_ids} could never be read")
        for id in dataflow.sinces:
            self._uppers.install(id, remembered.description.as_of)
        for id, since in remembered.sinces:
            for _ in self._compact_unsaid(id, since):
                pass
        for id, upper in remembered.uppers:
            self._uppers.rise(id, upper)
        dataflow.writable.update(dict.fromkeys(remembered.writable))
        if remembered.error is not None:
            self._failed[dataflow.age] = remembered.error


def _kind(dataflow: LiveDataflow, id: GlobalId) -> ExportKind:
    return next(export.kind for export in dataflow.description.exports if export.id == id)


def _refused(peek: Peek, refusal: PeekRefusal) -> PeekResponse:
    return PeekResponse(peek=peek.peek, outcome=PeekRefused(refusal=refusal))
