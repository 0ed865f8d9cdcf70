"""Drives one run: asks what may happen next, makes it durable, then does it.

The engine pushes changes into the tracker and gets back nothing but a return or an exception; it
never reads the store. What ends a run early comes through ``stop``: a cancel request, the run's
time-out, a lease that can no longer be trusted, a process that wants to end. Tasks are then
cancelled and waited for, so that nothing of a run outlives its end in the record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any

from msgspec import UNSET, UnsetType

from tenure.model.errors import LeaseLost, Refused, TenureError
from tenure.model.snapshot import ErrorInfo, RunSnapshot
from tenure.model.status import ENDED_HOST, HostStatus, RunStatus, StepStatus
from tenure.model.update import Changes, HostChange, ItemChange, RunChange, StepChange
from tenure.ports.execution import NOTHING_SECRET, Masking
from tenure.runtime.executor import Assignment, Executor, FailedAttempt, Outcome
from tenure.runtime.recipe import Prepared, Recipe
from tenure.runtime.resume import UnknownTask, UnknownTasks, resume
from tenure.runtime.schedule import PendingChanges, Schedule, Start, change_of
from tenure.runtime.steps import item_unwanted
from tenure.runtime.stop import (
    NOT_RENEWED,
    REQUESTED,
    RUN_FAILED,
    EndedTask,
    Stop,
    not_trusted,
    timed_out,
)
from tenure.runtime.tasks import HostTasks, Result
from tenure.runtime.writer import RunTracker
from tenure.workflow.plan import Exports

# What is said of a run that cannot go on: the store can never hold a result of it, or its engine
# itself has failed.


def failed_by_refusal(
    refusal: Refused, refused: Changes, results: Iterable[Result], masks: Masking
) -> Changes:
    """Hosts whose result was in the ``refused`` changes fail with the run. ``results`` are those of
    other hosts, most of them ended for it. Of steps that would have begun there is nothing to say.
    """
    message = masks.text(f"the store refused a result: {refusal}")
    hosts: dict[int, dict[str, HostChange]] = {}
    for index, step in refused.steps.items():
        if step.status is StepStatus.RUNNING or step.plan is not None:
            continue
        for name, said in step.hosts.items():
            if _has_ended(said) or any(map(_has_ended, said.items.values())):
                hosts.setdefault(index, {})[name] = _failed(said, message)
    culprit = next((name for failed in hosts.values() for name in failed), None)
    return _failed_run(ErrorInfo(kind="rejected", message=message, host=culprit), hosts, results)


def failed_inside(error: Exception, results: Iterable[Result], masks: Masking) -> Changes:
    """Not the workflow's fault: the record shall not say that it runs for ever."""
    message = masks.text(f"the engine failed: {type(error).__name__}: {error}")[:2000]
    return _failed_run(ErrorInfo(kind="internal", message=message), {}, results)


def _failed_run(
    error: ErrorInfo, hosts: dict[int, dict[str, HostChange]], results: Iterable[Result]
) -> Changes:
    for start, outcome in results:
        hosts.setdefault(start.course.index, {}).setdefault(start.host, _result(start, outcome))
    return Changes(
        run=RunChange(
            status=RunStatus.FAILED, message=error.message, error=error, last_error=error
        ),
        steps={index: StepChange(hosts=each) for index, each in hosts.items()},
    )


def _result(start: Start, outcome: Outcome) -> HostChange:
    """A host that is well so far, in the midst of its loop, does not come to the end of it."""
    course, host, position = start
    if position is None or course.items is None or not course.items[host]:
        return change_of(HostChange, outcome)
    items = {position: change_of(ItemChange, outcome)}
    if outcome.status in (HostStatus.SUCCESS, HostStatus.SKIPPED):
        outcome = RUN_FAILED.outcome()
    return HostChange(status=outcome.status, message=outcome.message, items=items)


def _has_ended(change: ItemChange) -> bool:
    return change.status is not UNSET and change.status in ENDED_HOST


def _failed(said: HostChange, message: str) -> HostChange:
    items = {
        position: ItemChange(status=HostStatus.FAILED, message=message)
        for position, item in said.items.items()
        if _has_ended(item)
    }
    return HostChange(status=HostStatus.FAILED, message=message, items=items)


Begin = Callable[[Changes], Awaitable[Changes]]
"""Makes the first changes durable (the run's birth, or its new owner's first update) and returns
those that are left to be recorded."""


_INTERRUPTED = HostStatus.INTERRUPTED
_UNKNOWN = HostStatus.UNKNOWN
_RUNNING = RunStatus.RUNNING


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
        resumes: bool = False,
        masks: Masking = NOTHING_SECRET,
        now: Callable[[], datetime],
    ) -> None:
        """``resumes``: if it is lost here somebody else goes on with it."""
        self._now = now
        self._run_id = run_id
        self._resumes = resumes
        self._endpoints = prepared.endpoints
        self._executor = executor
        self._tracker = tracker
        self._folder = folder
        self._files = files or {}
        self._progress_interval = progress_interval
        self._unfolding = Schedule(prepared, exports)
        self._masks = masks
        self._crew = HostTasks(masks)
        self._attempts: dict[Start, tuple[int, str | UnsetType]] = {}
        """That there is another one, and what to say of it."""
        self._doubts: UnknownTasks | None = None
        """Of a run that somebody else began."""
        self._ended: list[EndedTask] = []
        """For the run's early end."""
        self._handed_over: dict[Start, Outcome] = {}
        """Tasks that were ended so that others could go on with them."""
        self._said = Changes()
        """The newest changes that went to the tracker."""
        self._distrust: LeaseLost | None = None
        """What we say ourselves when we no longer trust our lease: perhaps nobody has the run."""

    def stop(self, why: Stop) -> None:
        """End the run early. The first reason stands; a cancel request also replaces one that
        yields to it, until that is written."""
        self._crew.stop(why)

    def lose(self, why: str) -> None:
        """The run may be somebody else's now: nothing of it may run here."""
        if self._resumes:
            fence = self._tracker.fencing.fence
            self._crew.lost = self._distrust = LeaseLost(self._run_id, fence=fence, owner_id=None)
        self.stop(not_trusted(why))

    async def drive(
        self, begin: Begin, at_most: float | None = None, record: RunSnapshot | None = None
    ) -> RunStatus:
        """Run to the end and return it, from ``record`` on if earlier owners left one. Handed over,
        it has not ended. Being cancelled ends every task and leaves the record as it is.
        ``LeaseLost`` if the run is somebody else's now: nothing of it runs here any more.
        ``NotRunnable`` if it cannot go on from its record. What ``begin`` raises comes out as it
        is."""
        doubts: Sequence[UnknownTask] = ()
        if record is None:
            draft = PendingChanges()
            self._unfolding.proceed(draft)
            first = draft.changes()
            if not self._unfolding.starts:
                self._crew.wake()  # nothing begins whose end would
        else:
            first, doubts = resume(self._unfolding, record)
            self._crew.wake()
        left = await begin(first)
        alarm = None
        if at_most:
            alarm = asyncio.get_running_loop().call_later(at_most, self.stop, timed_out(at_most))
        try:
            return await self._drive(left, doubts)
        except LeaseLost as lost:
            results = await self._crew.abandon()
            if lost is self._distrust:
                with suppress(TenureError):  # somebody does have it, or it cannot be said
                    await self._leave(results)
            raise
        except Refused as refusal:
            results = await self._crew.abandon()
            # The store can never hold what we had to say; it shall at least say that much.
            await self._tracker.record(failed_by_refusal(refusal, self._said, results, self._masks))
            return RunStatus.FAILED
        except Exception as error:
            results = await self._crew.abandon()
            with suppress(Exception):  # if that cannot be said either, the first error comes out
                await self._tracker.record(failed_inside(error, results, self._masks))
            raise
        except BaseException:
            await self._crew.abandon()
            raise
        finally:
            if alarm is not None:
                alarm.cancel()

    async def _drive(self, left: Changes, doubts: Sequence[UnknownTask]) -> RunStatus:
        draft = PendingChanges()
        draft.take(left)
        if draft and self._unfolding.starts:
            await self._record(draft)
            draft = PendingChanges()
        if doubts:
            if self._tracker.cancel_requested_at is not None:
                self.stop(REQUESTED)
            self._doubts = UnknownTasks(self._crew, self._unfolding, self._probe)
            self._doubts.decide(doubts, draft)
            if draft:
                await self._record(draft)
                draft = PendingChanges()
        here = asyncio.current_task()
        while True:
            if self._tracker.cancel_requested_at is not None:
                self.stop(REQUESTED)
            alone = self._launch()
            if alone is not None:
                await self._crew.do_here(alone, self._execute, here)
            elif not draft and not self._unfolding.impatient:
                await self._crew.anything_new()
            status = self._turn(draft)
            handed_over = status is _RUNNING
            if draft or handed_over:
                await self._record(draft, release=handed_over)
                draft = PendingChanges()
            if status is not None:
                return status

    async def _leave(self, results: Sequence[Result]) -> None:
        """Write down what came to its end before the run was given up: whoever goes on would have
        to do it again."""
        draft = PendingChanges()
        for start, outcome in results:
            if outcome.cut_short or outcome.status is _UNKNOWN:
                continue
            if self._doubts is None or not self._doubts.settled(start, outcome, draft):
                self._unfolding.settle(start, outcome, draft)
        if draft:
            await self._record(draft)

    def _record(self, draft: PendingChanges, *, release: bool = False) -> Awaitable[None]:
        self._said = draft.changes()
        return self._tracker.record(self._said, release=release)

    def _launch(self) -> Start | None:
        """Begin what started in the update that is now durable. A single short task of our own
        process is not worth an asyncio task: it is returned, to be done by the engine itself."""
        starts, self._unfolding.starts = self._unfolding.starts, []
        crew = self._crew
        if starts and crew.stopped is None and not self._tracker.is_trusted:
            self.lose(NOT_RENEWED)
        alone = len(starts) == 1 and not crew.busy and crew.stopped is None
        for start in starts:
            course, host, _ = start
            if host in course.doomed:
                crew.arrive(start, course.doomed[host])
            elif alone and course.recipe.short:
                return start
            else:
                crew.begin(start, self._execute, first=not self._made(start))
        return None

    def _made(self, start: Start) -> int:
        """Attempts of it by earlier owners."""
        return 0 if self._doubts is None else self._doubts.attempts(start)

    def _turn(self, draft: PendingChanges) -> RunStatus | None:
        """Take in what arrived and say what comes of it; the run's status if this is its end."""
        crew, unfolding = self._crew, self._unfolding
        if crew.lost is not None:
            raise crew.lost
        if self._attempts:  # before the ends: those have the last word
            self._report_attempts(draft)
        results = crew.results()
        if any(outcome.status is _INTERRUPTED for _, outcome in results):
            self.lose(NOT_RENEWED)
            if self._distrust is not None:
                crew.take_back(results)
                raise self._distrust
        for start, outcome in results:
            if self._doubts is not None and self._doubts.settled(start, outcome, draft):
                continue
            unfolding.settle(start, outcome, draft)
            if outcome.cut_short:
                self._ended.append(EndedTask(start.course.recipe.name, start.host, outcome))
                if outcome.status is _UNKNOWN and start.host not in crew.unconfirmed:
                    self._handed_over[start] = outcome
        if crew.stopped is not None:
            unfolding.halt()
        unfolding.proceed(draft)
        if unfolding.finished:
            if crew.unconfirmed:
                draft.run_changes(RunChange(unconfirmed_hosts=tuple(sorted(crew.unconfirmed))))
            return unfolding.end(draft)
        if crew.stopped is None or crew.busy:
            return None
        if crew.stopped.hands_over:
            return crew.stopped.status
        for start, outcome in self._handed_over.items():  # nobody is to go on with them now
            unfolding.settle(start, crew.stopped.instead_of(outcome), draft)
        unfolding.cut_short(crew.stopped.status, crew.stopped.outcome(), draft)
        draft.run_changes(crew.stopped.change(self._ended, crew.unconfirmed))
        return crew.stopped.status

    def _report_attempts(self, draft: PendingChanges) -> None:
        for (course, host, position), (attempt, said) in self._attempts.items():
            if host not in course.running:
                continue
            if position is None:
                draft.host(course.index, host, HostChange(attempts=attempt, message=said))
            else:
                told = ItemChange(attempts=attempt, message=said)
                draft.item(course.index, host, position, told)
        self._attempts.clear()

    def _execute(self, start: Start) -> Awaitable[Outcome]:
        course, name, position = start
        scope = self._unfolding.scope(course, name)
        if position is not None and course.items is not None:
            if not course.items[name]:
                return _known(Outcome(status=HostStatus.SKIPPED, message="the loop has no items"))
            unwanted = item_unwanted(course.recipe, scope)
            if unwanted is not None:
                return _known(unwanted)
        assignment = self._assignment(start, course.recipe, scope, self._made(start))
        return self._executor.execute(assignment, partial(self._tried, start))

    def _probe(self, start: Start) -> Awaitable[Outcome]:
        recipe = start.course.recipe
        scope = self._unfolding.scope(start.course, start.host)
        probe = self._assignment(start, recipe.probe or recipe, scope, probe=True)
        return self._executor.execute(probe)

    def _assignment(
        self,
        start: Start,
        recipe: Recipe,
        scope: Mapping[str, Any],
        attempts: int = 0,
        *,
        probe: bool = False,
    ) -> Assignment:
        course, name, position = start
        return Assignment(
            run_id=self._run_id,
            fence=self._tracker.fencing.fence,
            index=course.index,
            recipe=recipe,
            host=self._endpoints[name],
            scope=scope,
            item=position,
            attempts=attempts,
            probe=probe,
            folder=self._folder,
            files=self._files,
        )

    def _tried(self, start: Start, attempt: int, failed: FailedAttempt | None) -> None:
        self._attempts[start] = attempt, UNSET if failed is None else failed.told(self._now())
        if self._progress_interval:
            loop = asyncio.get_running_loop()
            loop.call_later(self._progress_interval, self._crew.wake)
        else:
            self._crew.wake()


async def _known(outcome: Outcome) -> Outcome:
    """Of what need not be executed."""
    return outcome
