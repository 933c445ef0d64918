"""The step opener: when the next step is opened for the sake of sources.

A step is opened when enough records arrived over all sources, when at least one arrived and a while has passed, or
when the clock ticks. A write to a table opens steps by itself (``table_writes``); both ask for the same steps, and
whatever is opened counts for both.

Reports are cumulative for the step that a source will cut next: of one source the greatest counts, so a repeated
report adds nothing, and a step that was opened settles every report for it. Time enters as ``Tick``.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import assert_never

from reconcile.errors import InvariantBroken
from reconcile.ids import GlobalId, Step
from reconcile.table_writes import OpenStepsThrough, StepsOpened


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRules:
    """When steps are opened."""

    #: Records over all sources that open a step at once.
    records_max: int
    #: How long one record waits for others.
    linger_ms: int
    #: A step is opened this long after the last one, whatever happens; 0: never.
    tick_ms: int = 0


# --- events -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """It is ``now_ms``; the clock never goes back."""

    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsReported:
    """The writer of ``id`` holds ``received`` records that it will cut at ``step`` or later."""

    id: GlobalId
    step: Step
    received: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReporterLost:
    """The writer of ``id`` is gone, and what it held with it: its successor receives it again."""

    id: GlobalId


StepEvent = Tick | RecordsReported | ReporterLost | StepsOpened


@dataclass(frozen=True, slots=True, kw_only=True)
class _Report:
    step: Step
    received: int


class StepOpener:
    """Asks for steps, one request at a time; ``StepsOpened`` through what was asked for answers it."""

    def __init__(self, rules: StepRules, *, opened: Step) -> None:
        self._rules = rules
        self._opened = opened
        #: What was asked to be opened; greater than ``_opened`` exactly while a request is not answered.
        self._asked = opened
        self._now = 0
        #: When the last step was opened.
        self._opened_at = 0
        #: For steps after ``_opened`` only, none of nothing.
        self._reports: dict[GlobalId, _Report] = {}
        #: Since when records wait; there is one exactly while there are reports.
        self._waiting_since: int | None = None

    def handle(self, event: StepEvent) -> tuple[OpenStepsThrough, ...]:
        match event:
            case Tick(now_ms=now_ms):
                self._now = max(self._now, now_ms)
            case RecordsReported(id=id, step=step, received=received):
                self._report(id, _Report(step=step, received=received))
            case ReporterLost(id=id):
                self._reports.pop(id, None)
                if not self._reports:
                    self._waiting_since = None
            case StepsOpened(step=step):
                self._open(step)
            case _:
                assert_never(event)
        return tuple(self._ask())

    @property
    def due_ms(self) -> int | None:
        """When a ``Tick`` will ask for a step, as far as is known now."""
        if self._asked > self._opened:
            return None
        due = [] if self._waiting_since is None else [self._waiting_since + self._rules.linger_ms]
        if self._rules.tick_ms:
            due.append(self._opened_at + self._rules.tick_ms)
        return min(due, default=None)

    def check(self) -> None:
        if self._asked < self._opened:
            raise InvariantBroken(f"step {self._opened} is open, asked for was {self._asked}")
        if (self._waiting_since is None) != (not self._reports):
            raise InvariantBroken(f"records wait since {self._waiting_since}, reported are {self._reports}")
        for id, report in self._reports.items():
            if report.step <= self._opened or report.received <= 0:
                raise InvariantBroken(f"{id} is remembered with {report}, step {self._opened} is open")
        due = self.due_ms
        if due is not None and due <= self._now:
            raise InvariantBroken(f"a step was due at {due} and was not asked for at {self._now}")

    def _report(self, id: GlobalId, report: _Report) -> None:
        known = self._reports.get(id)
        if report.step <= self._opened or report.received <= 0:
            return
        if known is not None and (known.step, known.received) >= (report.step, report.received):
            return
        self._reports[id] = report
        if self._waiting_since is None:
            self._waiting_since = self._now

    def _open(self, step: Step) -> None:
        if step <= self._opened:
            return
        self._opened, self._opened_at = step, self._now
        self._asked = max(self._asked, step)
        self._reports = {id: report for id, report in self._reports.items() if report.step > step}
        self._waiting_since = self._now if self._reports else None

    def _ask(self) -> Iterator[OpenStepsThrough]:
        due = self.due_ms
        if self._asked > self._opened:
            return
        full = sum(report.received for report in self._reports.values()) >= self._rules.records_max
        if (self._reports and full) or (due is not None and due <= self._now):
            # A source that opened steps by itself is cut next where it stands: all before it is opened too.
            ahead = max((report.step for report in self._reports.values()), default=Step(0))
            self._asked = max(Step(self._opened + 1), ahead)
            yield OpenStepsThrough(step=self._asked)
