"""The asyncio tasks of one run: starting them, ending them early, collecting their results."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from traceback import format_exception

from msgspec.structs import replace

from tenure.aio import end, times_cancelled
from tenure.model.errors import LeaseLost
from tenure.model.status import HostStatus
from tenure.ports.execution import Masking
from tenure.runtime.executor import SUPERVISOR_LOST, Outcome
from tenure.runtime.schedule import Start
from tenure.runtime.stop import REQUESTED, RUN_FAILED, Stop

_log = logging.getLogger("tenure.runtime")

Result = tuple[Start, Outcome]
Execute = Callable[[Start], Awaitable[Outcome]]

_NOT_ENDED = frozenset({HostStatus.UNKNOWN, HostStatus.INTERRUPTED})
"""Of a task that may still run, or whose run has another owner."""
_LEASE_LOST = Outcome(status=HostStatus.INTERRUPTED, cut_short=True)


class HostTasks:
    """Used by one asyncio task, the engine's. Cancelling that one abandons the run."""

    def __init__(self, masks: Masking) -> None:
        self._masks = masks
        self._tasks: dict[Start, asyncio.Task[None]] = {}
        self._results: list[Result] = []
        self._wakeup = asyncio.Event()
        self._busy_here: asyncio.Task[object] | None = None
        self._stopped_here = False
        self.stopped: Stop | None = None
        self.lost: LeaseLost | None = None
        """Raised to a task by the store when it wrote its output."""
        self.unconfirmed: set[str] = set()
        """Hosts whose task was told to end and was not confirmed to have ended."""

    @property
    def busy(self) -> bool:
        return bool(self._tasks)

    def begin(self, start: Start, execute: Execute, *, first: bool = False) -> None:
        """Run in a task of its own. ``first``: it has had no attempt yet; if the run is handed over
        before it begins, this is recorded, so that the next owner does not treat it as unknown."""
        if self.stopped is not None:
            outcome = self.stopped.outcome()
            never = first and self.stopped.hands_over
            self.arrive(start, replace(outcome, attempts=0) if never else outcome)
        else:
            self._tasks[start] = asyncio.create_task(self._perform(start, execute))

    async def _perform(self, start: Start, execute: Execute) -> None:
        try:
            outcome = await execute(start)
            if outcome.status in _NOT_ENDED:
                outcome = self._not_ended(start, outcome)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  _raised decides
            outcome = self._raised(start, error, by_us=self.stopped is not None)
        del self._tasks[start]
        self.arrive(start, outcome)

    async def do_here(
        self, start: Start, execute: Execute, here: asyncio.Task[object] | None
    ) -> None:
        """Run in the engine's own task, ``here``. ``stop`` cancels that one once, which is taken
        back here; a cancellation by others is passed on."""
        self._busy_here = here
        try:
            outcome = await execute(start)
            if outcome.status in _NOT_ENDED:
                outcome = self._not_ended(start, outcome)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  _raised decides
            by_us = self._stopped_here and times_cancelled() == 1
            outcome = self._raised(start, error, by_us=by_us)
        finally:
            self._busy_here = None
            if self._stopped_here and here is not None:
                here.uncancel()
        self._results.append((start, outcome))

    def _not_ended(self, start: Start, outcome: Outcome) -> Outcome:
        if outcome.status is HostStatus.INTERRUPTED:
            return replace(outcome, cut_short=True)
        if outcome.kind == SUPERVISOR_LOST:
            return outcome
        self.unconfirmed.add(start.host)
        return replace(outcome, cut_short=self.stopped is not None)

    def _raised(self, start: Start, error: BaseException, *, by_us: bool) -> Outcome:
        """The outcome of a task that raised. A cancellation by others is raised again."""
        if isinstance(error, LeaseLost):
            self.lost = error
            return _LEASE_LOST
        if isinstance(error, asyncio.CancelledError) and times_cancelled():
            if self.stopped is None or not by_us:
                raise error
            return self.stopped.outcome(error)
        # Without an outcome the run would wait for the task for ever.
        trace = self._masks.text("".join(format_exception(error)))
        _log.error("host %s of step %r\n%s", start.host, start.progress.recipe.name, trace)
        message = self._masks.text(repr(error))[:2000]
        return Outcome(status=HostStatus.FAILED, kind="internal", message=message)

    def arrive(self, start: Start, outcome: Outcome) -> None:
        self._results.append((start, outcome))
        self._wakeup.set()

    def wake(self) -> None:
        """Wake the engine although nothing has ended."""
        self._wakeup.set()

    async def wait(self) -> None:
        await self._wakeup.wait()
        self._wakeup.clear()

    def results(self) -> list[Result]:
        results, self._results = self._results, []
        return results

    def take_back(self, results: list[Result]) -> None:
        """Put back results that were not settled."""
        self._results[:0] = results

    def stop(self, why: Stop) -> None:
        """Cancel every task. The first reason stands, unless it ``yields`` to a cancel request: its
        requester was told that the run would be canceled, and the next owner may take long."""
        if self.stopped is not None:
            if self.stopped.yields and why is REQUESTED:
                self.stopped = why
            return
        self.stopped = why
        for task in self._tasks.values():
            task.cancel()
        if self._busy_here is not None:
            self._stopped_here = True
            self._busy_here.cancel()
        self._wakeup.set()

    async def abandon(self) -> list[Result]:
        """End every task without grace; all results that were not taken before."""
        self.stopped = self.stopped or RUN_FAILED
        # Cancelled once, a task ends its processes gently; again, it kills them.
        await end(*self._tasks.values())
        return self.results()
