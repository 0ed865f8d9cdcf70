"""Drives one run: asks what may happen next, makes it durable, then does it.

The engine pushes changes into the tracker and gets back nothing but a return or an exception; it
never reads the store. What ends a run early comes through ``stop``: a cancel request, the run's
time-out, a lease that can no longer be trusted, a process that wants to end. Tasks are then
cancelled and waited for, so that nothing of a run outlives its end in the record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

from tenure.model.errors import LeaseLost, Refused
from tenure.model.status import HostStatus, RunStatus
from tenure.model.update import Changes, HostChange, ItemChange
from tenure.ports.transport import Endpoint
from tenure.runtime.crew import Crew
from tenure.runtime.draft import Draft
from tenure.runtime.executor import Assignment, Executor, Outcome
from tenure.runtime.opening import item_unwanted
from tenure.runtime.recipe import Prepared
from tenure.runtime.refusal import failed_by_refusal, failed_inside
from tenure.runtime.stop import NOT_RENEWED, REQUESTED, EndedTask, Stop, not_trusted, timed_out
from tenure.runtime.tracker import RunTracker
from tenure.runtime.unfolding import Start, Unfolding
from tenure.workflow.variables import Exports

Begin = Callable[[Changes], Awaitable[Changes]]
"""Makes the first changes durable (the run's birth, or its new owner's first update) and returns
those that are left to be recorded."""


class Engine:
    """One run in this process. ``drive`` wants an asyncio task of its own."""

    def __init__(
        self,
        run_id: str,
        prepared: Prepared,
        exports: Exports,
        executor: Executor,
        tracker: RunTracker,
        *,
        folder: str | None = None,
        files: Mapping[str, bytes] | None = None,
        progress_interval: float = 0.0,
    ) -> None:
        self._run_id = run_id
        self._hosts = prepared.plan.hosts
        self._executor = executor
        self._tracker = tracker
        self._folder = folder
        self._files = files or {}
        self._progress_interval = progress_interval
        self._unfolding = Unfolding(prepared, exports)
        self._crew = Crew()
        self._attempts: dict[Start, int] = {}
        self._ended: list[EndedTask] = []
        """For the run's early end."""
        self._said = Changes()
        """The newest changes that went to the tracker."""

    def stop(self, why: Stop) -> None:
        """End the run early. The first reason stands; further ones change nothing."""
        self._crew.stop(why)

    async def drive(self, begin: Begin, at_most: float | None = None) -> RunStatus:
        """Run to the end and return it. Being cancelled ends every task and leaves the record as
        it is. ``LeaseLost`` if the run is somebody else's now: nothing of it runs here any more.
        What ``begin`` raises comes out as it is."""
        draft = Draft()
        self._unfolding.proceed(draft)
        left = await begin(draft.changes())
        alarm = None
        if at_most:
            alarm = asyncio.get_running_loop().call_later(at_most, self.stop, timed_out(at_most))
        try:
            return await self._drive(left)
        except LeaseLost:
            await self._crew.abandon()
            raise
        except Refused as refusal:
            results = await self._crew.abandon()
            # The store can never hold what we had to say; it shall at least say that much.
            await self._tracker.record(failed_by_refusal(refusal, self._said, results))
            return RunStatus.FAILED
        except Exception as error:
            results = await self._crew.abandon()
            with suppress(Exception):  # if that cannot be said either, the first error comes out
                await self._tracker.record(failed_inside(error, results))
            raise
        except BaseException:
            await self._crew.abandon()
            raise
        finally:
            if alarm is not None:
                alarm.cancel()

    async def _drive(self, left: Changes) -> RunStatus:
        draft = Draft()
        draft.take(left)
        if draft and self._unfolding.starts:
            await self._record(draft)
            draft = Draft()
        while True:
            if self._tracker.cancel_requested_at is not None:
                self.stop(REQUESTED)
            alone = self._launch()
            if alone is not None:
                await self._crew.do_here(alone, self._execute)
            elif not draft and not self._unfolding.impatient:
                await self._crew.anything_new()
            status = self._turn(draft)
            if draft:
                await self._record(draft)
                draft = Draft()
            if status is not None:
                return status

    async def _record(self, draft: Draft) -> None:
        self._said = draft.changes()
        await self._tracker.record(self._said)

    def _launch(self) -> Start | None:
        """Begin what started in the update that is now durable. A single short task of our own
        process is not worth an asyncio task: it is returned, to be done by the engine itself."""
        starts, self._unfolding.starts = self._unfolding.starts, []
        crew = self._crew
        if len(starts) == 1 and not crew.busy and crew.stopped is None and _short(starts[0]):
            return starts[0]
        for start in starts:
            doomed = start.course.doomed.get(start.host)
            if doomed is not None:
                crew.arrive(start, doomed)
            else:
                crew.begin(start, self._execute)
        return None

    def _turn(self, draft: Draft) -> RunStatus | None:
        """Take in what arrived and say what comes of it; the run's status if this is its end."""
        crew, unfolding = self._crew, self._unfolding
        if crew.lost is not None:
            raise crew.lost
        for start, outcome in crew.results():
            if outcome.status is HostStatus.INTERRUPTED:
                self.stop(not_trusted(NOT_RENEWED))
            unfolding.settle(start, outcome, draft)
            if outcome.cut_short:
                self._ended.append(EndedTask(start.course.recipe.name, start.host, outcome))
        if self._attempts:
            self._report_attempts(draft)
        if crew.stopped is not None:
            unfolding.halt()
        unfolding.proceed(draft)
        if unfolding.finished:
            return unfolding.end(draft)
        if crew.stopped is None or crew.busy:
            return None
        unfolding.cut_short(crew.stopped.outcome(), draft)
        draft.run_changes(crew.stopped.change(self._ended, crew.unconfirmed))
        return crew.stopped.status

    def _report_attempts(self, draft: Draft) -> None:
        for (course, host, position), attempt in self._attempts.items():
            if host not in course.running:
                continue
            if position is None:
                draft.host(course.index, host, HostChange(attempts=attempt))
            else:
                draft.item(course.index, host, position, ItemChange(attempts=attempt))
        self._attempts.clear()

    async def _execute(self, start: Start) -> Outcome:
        course, name, position = start
        scope = self._unfolding.scope(course, name)
        if position is not None and course.items is not None:
            if not course.items[name]:
                return Outcome(status=HostStatus.SKIPPED, message="the loop has no items")
            unwanted = item_unwanted(course.recipe, scope)
            if unwanted is not None:
                return unwanted
        assignment = Assignment(
            run_id=self._run_id,
            fence=self._tracker.fencing.fence,
            index=course.index,
            recipe=course.recipe,
            host=Endpoint(name=name, address=self._hosts[name].address),
            scope=scope,
            item=position,
            folder=self._folder,
            files=self._files,
        )
        return await self._executor.execute(assignment, lambda n: self._tried(start, n))

    def _tried(self, start: Start, attempt: int) -> None:
        self._attempts[start] = attempt
        if self._progress_interval:
            loop = asyncio.get_running_loop()
            loop.call_later(self._progress_interval, self._crew.wake)
        else:
            self._crew.wake()


def _short(start: Start) -> bool:
    """It starts no process and has one attempt: nothing is to be told of it before it ends."""
    course, host, _ = start
    recipe = course.recipe
    return (
        not recipe.action.spec.environment
        and recipe.retries.attempts == 1
        and host not in course.doomed
    )
