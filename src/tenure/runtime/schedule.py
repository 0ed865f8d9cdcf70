"""How a run unfolds: results go in; changes for the next update and tasks to start come out.

A pure machine: no task, no clock, no store. ``Engine`` feeds it and does what it says. One draft
never says two statuses of one thing, since the journal must show every status: what starts and ends
without anything being executed takes two turns.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple, TypeVar

from msgspec import UNSET, UnsetType
from msgspec.structs import asdict, replace

from tenure.model.snapshot import ErrorInfo, HostState, StepState
from tenure.model.status import STEP_CUT_SHORT, HostStatus, RunStatus, StepKind, StepStatus
from tenure.model.update import (
    NO_RUN_CHANGE,
    Changes,
    HostChange,
    ItemChange,
    RunChange,
    StepChange,
)
from tenure.runtime.executor import PLAIN_SUCCESS, Outcome
from tenure.runtime.recipe import Prepared, ReadySteps
from tenure.runtime.retry_history import NO_PAST
from tenure.runtime.steps import StepProgress, Trouble, open_step
from tenure.workflow.plan import NO_ITEM, Exports

# What will go into the next update: results and starts that are ready at the same moment.


Item = TypeVar("Item", HostChange, ItemChange)


_SUCCEEDED = HostChange(status=HostStatus.SUCCESS)


class PendingChanges:
    """Gathers changes. Of one step or host the later word is added to the earlier one; the engine
    never says two statuses of one thing in one draft, or the journal would miss one.

    ``changes`` gives out what was gathered, not a copy of it: then a new draft is begun.
    """

    __slots__ = ("_steps", "run")

    def __init__(self) -> None:
        self._steps: dict[int, StepChange] = {}
        """Each with a map of hosts that is ours to fill."""
        self.run = NO_RUN_CHANGE

    def __bool__(self) -> bool:
        return bool(self._steps) or self.run is not NO_RUN_CHANGE

    def step(
        self,
        index: int,
        status: StepStatus,
        message: str | None = None,
        error: ErrorInfo | UnsetType = UNSET,
    ) -> None:
        step = self._steps.get(index) or StepChange()
        said = step.message if message is None else message
        self._steps[index] = replace(step, status=status, message=said, error=error)

    def added(self, plan: StepState) -> None:
        self._steps[plan.index] = replace(self._steps.get(plan.index) or StepChange(), plan=plan)

    def host(self, index: int, host: str, change: HostChange) -> None:
        step = self._steps.get(index)
        if step is None:
            self._steps[index] = StepChange(hosts={host: change})
            return
        earlier = step.hosts.get(host)
        step.hosts[host] = change if earlier is None else _merged(earlier, change)

    def item(self, index: int, host: str, position: int, change: ItemChange) -> None:
        self.host(index, host, HostChange(items={position: change}))

    def run_changes(self, change: RunChange) -> None:
        self.run = change if self.run is NO_RUN_CHANGE else replace(self.run, **_given(change))

    def take(self, changes: Changes) -> None:
        """What was said elsewhere, as if it were said here."""
        for index, change in changes.steps.items():
            step = self._steps.get(index) or StepChange()
            both = {"hosts": step.hosts | change.hosts, "plan": change.plan or step.plan}
            self._steps[index] = replace(step, **_given(change) | both)
        if changes.run is not NO_RUN_CHANGE:
            self.run_changes(changes.run)

    def changes(self) -> Changes:
        return Changes(run=self.run, steps=self._steps)


def _merged(earlier: HostChange, later: HostChange) -> HostChange:
    items = {**earlier.items, **later.items}
    return replace(earlier, **_given(later) | {"items": items})


def _given(change: HostChange | StepChange | RunChange) -> dict[str, Any]:
    return {name: value for name, value in asdict(change).items() if value is not UNSET}


def change_of(kind: type[Item], outcome: Outcome) -> Item:
    """An outcome as a change of a host, or of an item of it. Only what is worth saying: defaults
    are left out of rows and journal."""
    if outcome == PLAIN_SUCCESS and kind is HostChange:
        return _SUCCEEDED  # there is nothing else to say, as of most
    given: dict[str, Any] = {"status": outcome.status}
    if outcome.message is not None or outcome.attempts != 1:  # else what an earlier one said stays
        given["message"] = outcome.message
    if outcome.exit_code is not None:
        given["exit_code"] = outcome.exit_code
    if outcome.attempts != 1:
        given["attempts"] = outcome.attempts
    if outcome.changed is not None:
        given["changed"] = outcome.changed
    if outcome.stdout is not None:
        given["stdout"] = outcome.stdout
    if outcome.stderr is not None:
        given["stderr"] = outcome.stderr
    if outcome.truncated:
        given["truncated"] = True
    if outcome.vars:
        given["vars"] = {
            name: value for name, value in outcome.vars.items() if name not in outcome.secret_vars
        }
    if outcome.secret_vars:
        given["withheld"] = tuple(sorted(outcome.secret_vars))
    if outcome.kind is not None:
        given["kind"] = outcome.kind
    return kind(**given)


_STARTED = HostChange(status=HostStatus.RUNNING, attempts=1)
_ITEM_STARTED = ItemChange(status=HostStatus.RUNNING, attempts=1)
_SKIPPED = HostChange(status=HostStatus.SKIPPED)
_SUCCESS = RunChange(status=RunStatus.SUCCESS)
_STEP_RUNNING = StepStatus.RUNNING
_STEP_SKIPPED = StepStatus.SKIPPED
_STEP_FAILED = StepStatus.FAILED


class Start(NamedTuple):
    """One host of one step, for one item, to be executed once this is durable."""

    course: StepProgress
    host: str
    position: int | None


class Schedule:
    def __init__(self, prepared: Prepared, exports: Exports) -> None:
        self._prepared = prepared
        self._exports = exports
        self._steps = len(prepared.plan.steps)
        """With the handlers that have run."""
        self._schedule = ReadySteps(prepared.order)
        self._open: dict[int, StepProgress] = {}
        self._broken: list[StepProgress] = []
        """Steps that were begun only to be seen failing in the next turn."""
        self._culprit: StepProgress | None = None
        """The first step whose failure fails the run: no further step begins, those that run come
        to their end."""
        self._halted = False
        self._handlers_first = False
        """A step has begun with handlers, which wait for the next turn: a run is born with steps
        only."""
        self.starts: list[Start] = []

    @property
    def finished(self) -> bool:
        """Every step has come to an end of its own, or a failure keeps the rest from beginning."""
        return not self._open and (self._culprit is not None or not self._schedule.left)

    @property
    def impatient(self) -> bool:
        """Whether the next turn is due although nothing will arrive."""
        return bool(self._broken) or (self._handlers_first and not self._halted)

    def halt(self) -> None:
        """Nothing starts any more; what has done all its work still comes to its end."""
        self._halted = True

    def cut_short(self, status: RunStatus, outcome: Outcome, draft: PendingChanges) -> None:
        """The run ends here as ``status``: so do steps that began and hosts that are between two
        items of their loop. Whoever was told that a step began hears of its end too, of a handler's
        before that of its step."""
        said, kind = outcome.message, outcome.kind
        for course in reversed(self._open.values()):
            for host in course.halfway:
                draft.host(course.index, host, change_of(HostChange, outcome))
            name = course.recipe.name
            error = ErrorInfo(kind=kind, message=said or "", step=name) if kind else UNSET
            draft.step(course.index, STEP_CUT_SHORT[status], said, error)

    def scope(self, course: StepProgress, host: str) -> Mapping[str, Any]:
        """The variables a task sees; a handler's include the item its step notified it for, and
        what its host exported there."""
        step = course.parent or course
        item = NO_ITEM
        if step.items is not None and step.position is not None and step.items[host]:
            item = step.items[host][step.position]
        exported = None
        if course.parent is not None:
            exported = step.exported.get(host) or step.past.done.get(host)
        return self._exports.scope(host, item, exported)

    # What ended

    def settle(self, start: Start, outcome: Outcome, draft: PendingChanges) -> None:
        course, host, position = start
        end = course.settle(host, outcome)
        if position is None:
            draft.host(course.index, host, change_of(HostChange, outcome))
            return
        if _looped(course, host):
            draft.item(course.index, host, position, change_of(ItemChange, outcome))
        if end is not None:
            said = outcome.message if end is outcome.status else None
            kind = outcome.kind if end is outcome.status else None
            exported = course.shown_exports(host)
            change = HostChange(status=end, message=said, kind=kind, **exported)
            draft.host(course.index, host, change)

    # What may start

    def proceed(self, draft: PendingChanges) -> None:
        """After results were settled: further hosts, waves, handlers, steps."""
        self._handlers_first = False
        if self._broken:
            broken, self._broken = self._broken, []
            for course in broken:
                self._close(course, draft)
        for course in tuple(self._open.values()):
            if course.index in self._open:  # no other has closed it meanwhile
                self._continue(course, draft)
        while self._schedule.ready and not self._halted and self._culprit is None:
            for index in self._schedule.take_ready():
                self._begin(self._course(index), draft)

    def _course(self, index: int) -> StepProgress:
        """Made when its turn comes: of the many runs in flight each holds only what goes on."""
        prepared = self._prepared
        return StepProgress(
            index,
            prepared.recipes[index],
            prepared.plan.steps[index].hosts,
            prepared.past.get(index, NO_PAST),
            prepared.owed.get(index, {}),
            prepared.in_all[index],
        )

    def _begin(self, course: StepProgress, draft: PendingChanges) -> None:
        opening = open_step(course.recipe, course.hosts, partial(self.scope, course))
        if not opening.hosts and not course.owed:
            if course.past.done:
                self._exports.add(course.past.done)
            draft.step(course.index, _STEP_SKIPPED, opening.message)
            if course.parent is None:
                self._schedule.ended(course.index)
            return
        draft.step(course.index, _STEP_RUNNING)
        for host in opening.skipped:
            draft.host(course.index, host, _SKIPPED)
        self._open[course.index] = course
        if opening.trouble is not None:
            course.trouble = opening.trouble
            self._broken.append(course)
            return
        course.doomed = opening.doomed
        course.begin(opening.hosts, opening.items)
        if course.owed:
            self._handlers_first = True
        self._fill(course, draft)

    def _fill(self, course: StepProgress, draft: PendingChanges) -> None:
        if self._halted:
            return
        position = course.position
        for host in course.start():
            if not position:
                draft.host(course.index, host, _STARTED)
            if position is not None and _looped(course, host):
                draft.item(course.index, host, position, _ITEM_STARTED)
            self.starts.append(Start(course, host, position))

    def _continue(self, course: StepProgress, draft: PendingChanges) -> None:
        if course.waiting:
            self._fill(course, draft)
        if course.running or course.waiting or course.cut_short or course.handler is not None:
            return
        due = course.handlers_due()
        if due:
            course.handlers = iter(due)
            self._next_handler(course, draft)
        else:
            self._next_wave(course, draft)

    def _next_wave(self, course: StepProgress, draft: PendingChanges) -> None:
        if course.trouble is None and course.next_wave():
            self._fill(course, draft)
        else:
            self._close(course, draft)

    def _next_handler(self, course: StepProgress, draft: PendingChanges) -> None:
        """One after another, in the order given; the step goes on when the last has ended."""
        while course.trouble is None and (due := next(course.handlers, None)) is not None:
            if self._halted:
                course.cut_short = True
                return
            handler = self._add_handler(course, *due, draft)
            self._begin(handler, draft)
            if handler.index in self._open:
                course.handler = handler
                return
        course.handler = None
        self._next_wave(course, draft)

    def _add_handler(
        self, course: StepProgress, name: str, hosts: tuple[str, ...], draft: PendingChanges
    ) -> StepProgress:
        recipe = self._prepared.handlers[name]
        handler = StepProgress(self._steps, recipe, hosts, parent=course)
        self._steps += 1
        draft.added(
            StepState(
                index=handler.index,
                name=name,
                kind=StepKind.HANDLER,
                action=recipe.action.spec.name,
                notified_by=course.index,
                hosts={host: HostState() for host in hosts},
            )
        )
        return handler

    # What has come to its end

    def _close(self, course: StepProgress, draft: PendingChanges) -> None:
        status = course.verdict()
        failed = status is _STEP_FAILED
        message = course.message()
        for host in course.halfway:
            # Its step fails between two of its items: it did not do all it should.
            draft.host(course.index, host, HostChange(status=HostStatus.FAILED, message=message))
        if (course.exported or course.past.done) and course.parent is None:
            note = self._exports.add(course.exports())
            message = "; ".join(filter(None, (message, note))) or None
        draft.step(course.index, status, message, course.error() if failed else UNSET)
        del self._open[course.index]
        if course.parent is not None:
            self._handler_ended(course, course.parent, failed, draft)
            return
        self._schedule.ended(course.index)
        if failed and not course.recipe.continue_on_error:
            self._culprit = self._culprit or course
        elif course.failed or course.trouble:
            draft.run_changes(RunChange(last_error=course.error()))

    def _handler_ended(
        self, handler: StepProgress, course: StepProgress, failed: bool, draft: PendingChanges
    ) -> None:
        course.handler = None
        if failed:
            course.trouble = Trouble(
                "handler", f"handler {handler.recipe.name!r} {handler.message() or 'failed'}"
            )
        self._next_handler(course, draft)

    def end(self, draft: PendingChanges) -> RunStatus:
        """The run's own end, once ``finished``."""
        if self._culprit is None:
            draft.run_changes(_SUCCESS)
            return RunStatus.SUCCESS
        error = self._culprit.error()
        draft.run_changes(
            RunChange(status=RunStatus.FAILED, message=error.message, error=error, last_error=error)
        )
        return RunStatus.FAILED


def started_again(start: Start, attempt: int, draft: PendingChanges) -> None:
    """A task that was begun before and is in doubt begins anew."""
    course, host, position = start
    again = HostChange(status=HostStatus.RUNNING, attempts=attempt, message=None)
    if position is not None and _looped(course, host):
        item = ItemChange(status=HostStatus.RUNNING, attempts=attempt)
        again = HostChange(status=HostStatus.RUNNING, message=None, items={position: item})
    draft.host(course.index, host, again)


def _looped(course: StepProgress, host: str) -> bool:
    return course.items is not None and bool(course.items[host])
