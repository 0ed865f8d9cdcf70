"""Drives one run: asks the schedule what may start, makes it durable, then starts it.

The engine pushes changes into the tracker, which returns or raises; it never reads the store.
``stop`` ends a run early: a cancel request, the run's time-out, a lease that is no longer trusted,
a process that ends. Tasks are then cancelled and awaited, so that no task outlives its run.
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
from tenure.runtime.executor import SUPERVISOR_LOST, Assignment, Executor, FailedAttempt, Outcome
from tenure.runtime.host_tasks import HostTasks, Result
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
from tenure.runtime.writer import RunTracker
from tenure.workflow.plan import Exports


def failed_by_refusal(
    refusal: Refused, refused: Changes, results: Iterable[Result], masks: Masking
) -> Changes:
    """The end of a run whose changes the store refused for good: hosts whose result was in
    ``refused`` fail with the run. ``results`` are those of other hosts, most of them cancelled for
    this reason. Steps that would have begun are left out."""
    message = masks.text(f"the store refused a result: {refusal}")
    hosts: dict[int, dict[str, HostChange]] = {}
    for index, step in refused.steps.items():
        if step.status is StepStatus.RUNNING or step.plan is not None:
            continue
        for name, said in step.hosts.items():
            if _has_ended(said) or any(map(_has_ended, said.items.values())):
                hosts.setdefault(index, {})[name] = _failed(said, message)
    first_failed = next((name for failed in hosts.values() for name in failed), None)
    return _failed_run(
        ErrorInfo(kind="rejected", message=message, host=first_failed), hosts, results
    )


def failed_inside(error: Exception, results: Iterable[Result], masks: Masking) -> Changes:
    """The end of a run whose engine raised: without it the record would stay ``running``."""
    message = masks.text(f"the engine failed: {type(error).__name__}: {error}")[:2000]
    return _failed_run(ErrorInfo(kind="internal", message=message), {}, results)


def _failed_run(
    error: ErrorInfo, hosts: dict[int, dict[str, HostChange]], results: Iterable[Result]
) -> Changes:
    for start, outcome in results:
        hosts.setdefault(start.progress.index, {}).setdefault(start.host, _result(start, outcome))
    return Changes(
        run=RunChange(
            status=RunStatus.FAILED, message=error.message, error=error, last_error=error
        ),
        steps={index: StepChange(hosts=each) for index, each in hosts.items()},
    )


def _result(start: Start, outcome: Outcome) -> HostChange:
    """A host that succeeded so far but has loop items left ends with the run's failure."""
    progress, host, position = start
    if position is None or progress.items is None or not progress.items[host]:
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
"""Makes the first changes durable (by creating the run, or in its new owner's first update) and
returns those that are left to be recorded."""

_INTERRUPTED = HostStatus.INTERRUPTED
_UNKNOWN = HostStatus.UNKNOWN
_RUNNING = RunStatus.RUNNING


class Engine:
    """One run in this process. ``drive`` needs an asyncio task of its own."""

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
        max_takeovers: int = 5,
        masks: Masking = NOTHING_SECRET,
        now: Callable[[], datetime],
    ) -> None:
        """``resumes``: another worker continues the run if it is lost here. ``max_takeovers``: how
        often a task may lose its supervisor."""
        self._now = now
        self._run_id = run_id
        self._resumes = resumes
        self._endpoints = prepared.endpoints
        self._executor = executor
        self._tracker = tracker
        self._folder = folder
        self._files = files or {}
        self._progress_interval = progress_interval
        self._schedule = Schedule(prepared, exports)
        self._masks = masks
        self._tasks = HostTasks(masks)
        self._attempts: dict[Start, tuple[int, str | UnsetType]] = {}
        """The newest attempt of a task and its message, not recorded yet."""
        self._in_doubt = UnknownTasks(self._tasks, self._schedule, max_takeovers)
        self._ended: list[EndedTask] = []
        """Tasks that were cut short, for the run's error."""
        self._handed_over: dict[Start, Outcome] = {}
        """Tasks that were ended so that another worker can run them again."""
        self._newest_changes = Changes()
        """The changes last passed to the tracker."""
        self._own_lease_loss: LeaseLost | None = None
        """Raised by the engine itself when the lease is no longer trusted; the store did not say
        so, and perhaps no other owner has the run."""

    def stop(self, why: Stop) -> None:
        """End the run early. The first reason stands; a cancel request replaces one that
        ``yields``, until that is written."""
        self._tasks.stop(why)

    def lose(self, why: str) -> None:
        """The run may have another owner now: nothing of it may run here."""
        if self._resumes:
            fence = self._tracker.fencing.fence
            self._tasks.lost = self._own_lease_loss = LeaseLost(
                self._run_id, fence=fence, owner_id=None
            )
        self.stop(not_trusted(why))

    async def drive(
        self, begin: Begin, at_most: float | None = None, record: RunSnapshot | None = None
    ) -> RunStatus:
        """Run to the end and return the run's status, continuing from ``record`` if given.
        ``running``: it was handed over. Being cancelled ends every task and leaves the record as
        it is. Raises ``LeaseLost`` if the run has another owner, ``NotRunnable`` if it cannot
        continue from its record, and what ``begin`` raises."""
        unknown_tasks: Sequence[UnknownTask] = ()
        if record is None:
            pending = PendingChanges()
            self._schedule.proceed(pending)
            first = pending.changes()
            if not self._schedule.starts:
                self._tasks.wake()  # no task is started that would wake the loop
        else:
            first, unknown_tasks = resume(self._schedule, record)
            self._tasks.wake()
        left = await begin(first)
        alarm = None
        if at_most:
            alarm = asyncio.get_running_loop().call_later(at_most, self.stop, timed_out(at_most))
        try:
            return await self._drive(left, unknown_tasks)
        except LeaseLost as lost:
            results = await self._tasks.abandon()
            if lost is self._own_lease_loss:
                with suppress(TenureError):  # another owner has it, or the store is away
                    await self._record_results(results)
            raise
        except Refused as refusal:
            results = await self._tasks.abandon()
            # The store cannot hold these results, but it can hold that the run failed.
            await self._tracker.record(
                failed_by_refusal(refusal, self._newest_changes, results, self._masks)
            )
            return RunStatus.FAILED
        except Exception as error:
            results = await self._tasks.abandon()
            with suppress(Exception):  # if that cannot be recorded either, raise the first error
                await self._tracker.record(failed_inside(error, results, self._masks))
            raise
        except BaseException:
            await self._tasks.abandon()
            raise
        finally:
            if alarm is not None:
                alarm.cancel()

    async def _drive(self, left: Changes, unknown_tasks: Sequence[UnknownTask]) -> RunStatus:
        pending = PendingChanges()
        pending.take(left)
        if pending and self._schedule.starts:
            await self._record(pending)
            pending = PendingChanges()
        if unknown_tasks:
            if self._tracker.cancel_requested_at is not None:
                self.stop(REQUESTED)
            self._in_doubt.decide(unknown_tasks, self._probe, pending)
            if pending:
                await self._record(pending)
                pending = PendingChanges()
        here = asyncio.current_task()
        while True:
            if self._tracker.cancel_requested_at is not None:
                self.stop(REQUESTED)
            short_task = self._launch()
            if short_task is not None:
                await self._tasks.do_here(short_task, self._execute, here)
            elif not pending and not self._schedule.next_turn_due:
                await self._tasks.wait()
            status = self._process_results(pending)
            handed_over = status is _RUNNING
            if pending or handed_over:
                await self._record(pending, release=handed_over)
                pending = PendingChanges()
            if status is not None:
                return status

    async def _record_results(self, results: Sequence[Result]) -> None:
        """Record the tasks that ended before the run was lost: else the next owner would run them
        again."""
        pending = PendingChanges()
        for start, outcome in results:
            if outcome.cut_short or outcome.status is _UNKNOWN:
                continue
            if not self._in_doubt.settled(start, outcome, pending):
                self._schedule.settle(start, outcome, pending)
        if pending:
            await self._record(pending)

    def _record(self, pending: PendingChanges, *, release: bool = False) -> Awaitable[None]:
        self._newest_changes = pending.changes()
        return self._tracker.record(self._newest_changes, release=release)

    def _launch(self) -> Start | None:
        """Begin the tasks whose start is now durable. A single short task is returned instead: the
        engine runs it itself, without an asyncio task."""
        starts, self._schedule.starts = self._schedule.starts, []
        tasks = self._tasks
        if starts and tasks.stopped is None and not self._tracker.is_trusted:
            self.lose(NOT_RENEWED)
        short_task = len(starts) == 1 and not tasks.busy and tasks.stopped is None
        for start in starts:
            progress, host, _ = start
            if host in progress.unrunnable:
                tasks.arrive(start, progress.unrunnable[host])
            elif short_task and progress.recipe.short:
                return start
            else:
                tasks.begin(start, self._execute, first=not self._in_doubt.attempts(start))
        return None

    def _process_results(self, pending: PendingChanges) -> RunStatus | None:
        """Settle the results that arrived, into ``pending``; the run's status if it ends."""
        tasks, schedule = self._tasks, self._schedule
        if tasks.lost is not None:
            raise tasks.lost
        if self._attempts:  # before the results, which overwrite them
            self._report_attempts(pending)
        results = tasks.results()
        if any(outcome.status is _INTERRUPTED for _, outcome in results):
            self.lose(NOT_RENEWED)
            if self._own_lease_loss is not None:
                tasks.take_back(results)
                raise self._own_lease_loss
        for start, outcome in results:
            if self._in_doubt.settled(start, outcome, pending):
                continue
            if outcome.status is _UNKNOWN and outcome.kind == SUPERVISOR_LOST:
                ended = self._in_doubt.lost_supervisor(start, outcome, self._probe, pending)
                if ended is None:
                    continue
                outcome = ended
            schedule.settle(start, outcome, pending)
            if outcome.cut_short:
                self._ended.append(EndedTask(start.progress.recipe.name, start.host, outcome))
                if outcome.status is _UNKNOWN and start.host not in tasks.unconfirmed:
                    self._handed_over[start] = outcome
        if tasks.stopped is not None:
            schedule.halt()
        schedule.proceed(pending)
        if schedule.finished:
            if tasks.unconfirmed:
                pending.run_changes(RunChange(unconfirmed_hosts=tuple(sorted(tasks.unconfirmed))))
            return schedule.end(pending)
        if tasks.stopped is None or tasks.busy:
            return None
        if tasks.stopped.hands_over:
            return tasks.stopped.status
        for start, outcome in self._handed_over.items():  # no other worker continues them now
            schedule.settle(start, tasks.stopped.instead_of(outcome), pending)
        schedule.cut_short(tasks.stopped.status, tasks.stopped.outcome(), pending)
        pending.run_changes(tasks.stopped.change(self._ended, tasks.unconfirmed))
        return tasks.stopped.status

    def _report_attempts(self, pending: PendingChanges) -> None:
        for (progress, host, position), (attempt, said) in self._attempts.items():
            if host not in progress.running:
                continue
            if position is None:
                pending.host(progress.index, host, HostChange(attempts=attempt, message=said))
            else:
                told = ItemChange(attempts=attempt, message=said)
                pending.item(progress.index, host, position, told)
        self._attempts.clear()

    def _execute(self, start: Start) -> Awaitable[Outcome]:
        progress, name, position = start
        scope = self._schedule.scope(progress, name)
        if position is not None and progress.items is not None:
            if not progress.items[name]:
                return _known(Outcome(status=HostStatus.SKIPPED, message="the loop has no items"))
            unwanted = item_unwanted(progress.recipe, scope)
            if unwanted is not None:
                return _known(unwanted)
        assignment = self._assignment(start, progress.recipe, scope, self._in_doubt.attempts(start))
        return self._executor.execute(assignment, partial(self._note_attempt, start))

    def _probe(self, start: Start) -> Awaitable[Outcome]:
        recipe = start.progress.recipe
        scope = self._schedule.scope(start.progress, start.host)
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
        progress, name, position = start
        return Assignment(
            run_id=self._run_id,
            fence=self._tracker.fencing.fence,
            index=progress.index,
            recipe=recipe,
            host=self._endpoints[name],
            scope=scope,
            item=position,
            attempts=attempts,
            probe=probe,
            folder=self._folder,
            files=self._files,
        )

    def _note_attempt(self, start: Start, attempt: int, failed: FailedAttempt | None) -> None:
        self._attempts[start] = attempt, UNSET if failed is None else failed.message(self._now())
        if self._progress_interval:
            loop = asyncio.get_running_loop()
            loop.call_later(self._progress_interval, self._tasks.wake)
        else:
            self._tasks.wake()


async def _known(outcome: Outcome) -> Outcome:
    """An outcome that needs no execution."""
    return outcome
