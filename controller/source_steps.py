"""The step opener with its clock: asks for steps when it is time, by a timer on the event loop."""

import asyncio
from collections.abc import Callable

from controller.settings import Settings
from reconcile.ids import Step
from reconcile.steps import StepEvent, StepOpener, StepRules, Tick


class SourceSteps:
    """Runs one step opener; ``ask`` is called with each step that shall be opened."""

    def __init__(self, settings: Settings, *, opened: Step, ask: Callable[[Step], None]) -> None:
        rules = StepRules(
            records_max=settings.step_records_max, linger_ms=settings.step_linger_ms, tick_ms=settings.step_tick_ms
        )
        self._opener = StepOpener(rules, opened=opened)
        self._ask = ask
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._begin_s = self._loop.time()
        self._set_timer()

    def handle(self, event: StepEvent) -> None:
        for one in (Tick(now_ms=self._now_ms()), event):
            for action in self._opener.handle(one):
                self._ask(action.step)
        self._set_timer()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _now_ms(self) -> int:
        return int((self._loop.time() - self._begin_s) * 1000)

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        due_ms = self._opener.due_ms
        self._timer = None if due_ms is None else self._loop.call_at(self._begin_s + due_ms / 1000, self._ring)

    def _ring(self) -> None:
        # Timers may ring a moment early, and a tick too early would ring at once again.
        due_ms = self._opener.due_ms
        self.handle(Tick(now_ms=max(self._now_ms(), due_ms or 0)))
