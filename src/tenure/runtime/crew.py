"""The tasks of one run in this process: begins them, ends them early, gathers their results."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection

from msgspec.structs import replace

from tenure.model.errors import LeaseLost
from tenure.model.status import HostStatus
from tenure.runtime.executor import Outcome, times_cancelled
from tenure.runtime.stop import RUN_FAILED, Stop
from tenure.runtime.unfolding import Start

_log = logging.getLogger("tenure.runtime")

Result = tuple[Start, Outcome]
Execute = Callable[[Start], Awaitable[Outcome]]

_IMPATIENCE = 0.1

_LEASE_LOST = Outcome(status=HostStatus.INTERRUPTED, cut_short=True)


class Crew:
    """Used by one asyncio task, the engine's. Who cancels that one wants no more of the run."""

    def __init__(self) -> None:
        self._tasks: dict[Start, asyncio.Task[None]] = {}
        self._results: list[Result] = []
        self._news = asyncio.Event()
        self._busy_here: asyncio.Task[object] | None = None
        self._stopped_here = False
        self.stopped: Stop | None = None
        self.lost: LeaseLost | None = None
        """What a task was told when it wanted to write its output."""
        self.unconfirmed: set[str] = set()
        """Hosts whose task was told to end, and nobody saw it end."""

    @property
    def busy(self) -> bool:
        return bool(self._tasks)

    def begin(self, start: Start, execute: Execute) -> None:
        """In a task of its own."""
        if self.stopped is not None:
            self.arrive(start, self.stopped.outcome())
        else:
            self._tasks[start] = asyncio.create_task(self._perform(start, execute))

    async def _perform(self, start: Start, execute: Execute) -> None:
        try:
            outcome = await self._outcome(start, execute)
        except asyncio.CancelledError as error:
            if self.stopped is None:
                raise
            outcome = self.stopped.outcome(error)
        del self._tasks[start]
        self.arrive(start, outcome)

    async def do_here(self, start: Start, execute: Execute) -> None:
        """In the engine's own task. ``stop`` reaches it by cancelling that one, once,
        and takes it back; a cancel of others goes through."""
        here = self._busy_here = asyncio.current_task()
        try:
            outcome = await self._outcome(start, execute)
        except asyncio.CancelledError as error:
            if self.stopped is None or not self._stopped_here or times_cancelled() > 1:
                raise
            outcome = self.stopped.outcome(error)
        finally:
            self._busy_here = None
            if self._stopped_here and here is not None:
                here.uncancel()
        self._results.append((start, outcome))

    async def _outcome(self, start: Start, execute: Execute) -> Outcome:
        """``CancelledError`` only if this very task was cancelled."""
        try:
            outcome = await execute(start)
        except LeaseLost as lost:
            self.lost = lost
            return _LEASE_LOST
        except (Exception, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) and times_cancelled():
                raise
            # A task that is lost would leave its run waiting.
            _log.exception("host %s of step %r", start.host, start.course.recipe.name)
            return Outcome(status=HostStatus.FAILED, kind="internal", message=repr(error)[:2000])
        if outcome.status is HostStatus.UNKNOWN:
            self.unconfirmed.add(start.host)
            return replace(outcome, cut_short=self.stopped is not None)
        if outcome.status is HostStatus.INTERRUPTED:
            return replace(outcome, cut_short=True)
        return outcome

    def arrive(self, start: Start, outcome: Outcome) -> None:
        self._results.append((start, outcome))
        self._news.set()

    def wake(self) -> None:
        """There is something to tell although nothing has ended."""
        self._news.set()

    async def anything_new(self) -> None:
        await self._news.wait()
        self._news.clear()

    def results(self) -> list[Result]:
        results, self._results = self._results, []
        return results

    def stop(self, why: Stop) -> None:
        """End every task. The first reason stands; further ones change nothing."""
        if self.stopped is not None:
            return
        self.stopped = why
        for task in self._tasks.values():
            task.cancel()
        if self._busy_here is not None:
            self._stopped_here = True
            self._busy_here.cancel()
        self._news.set()

    async def abandon(self) -> list[Result]:
        """End every task without grace; what they came to, and whatever was not taken before."""
        self.stopped = self.stopped or RUN_FAILED
        left: Collection[asyncio.Task[None]] = list(self._tasks.values())
        while left:
            # Cancelled once, a task ends its processes gently; again, it kills them.
            for task in left:
                task.cancel()
            _, left = await asyncio.wait(left, timeout=_IMPATIENCE)
        return self.results()
