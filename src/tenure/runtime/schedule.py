"""How a run progresses: results go in; changes for the next update and tasks to start come out.

Pure: no task, no clock, no store. ``Engine`` feeds it and executes what it decides. One update
never sets two statuses of one thing, since the journal has to show every status: what starts and
ends without executing anything takes two turns.
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

Item = TypeVar("Item", HostChange, ItemChange)


_SUCCEEDED = HostChange(status=HostStatus.SUCCESS)


class PendingChanges:
    """The changes of the next update: results and starts that are ready at the same moment. Later
    changes of a step or host are merged into earlier ones; the engine never sets two statuses of
    one thing in one update, or the journal would miss one.

    ``changes`` returns what was gathered, not a copy: use a new object after it.
    """

    __slots__ = ("_steps", "run")

    def __init__(self) -> None:
        self._steps: dict[int, StepChange] = {}
        """Each has its own, mutable map of hosts."""
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
        """Merge changes that were gathered elsewhere."""
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
    """An outcome as a change of a host, or of one of its items. Defaults are left out, to keep rows
    and journal small."""
    if outcome == PLAIN_SUCCESS and kind is HostChange:
        return _SUCCEEDED  # the usual case
    given: dict[str, Any] = {"status": outcome.status}
    if outcome.message is not None or outcome.attempts != 1:  # else keep the earlier one
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
    """A task to execute (a step on one host, for one item) once its start is durable."""

    progress: StepProgress
    host: str
    position: int | None


class Schedule:
    def __init__(self, prepared: Prepared, exports: Exports) -> None:
        self._prepared = prepared
        self._exports = exports
        self._steps = len(prepared.plan.steps)
        """Number of steps, with the handlers that have run."""
        self._ready_steps = ReadySteps(prepared.order)
        self._open: dict[int, StepProgress] = {}
        self._failed_at_start: list[StepProgress] = []
        """Steps that fail without any task: they start in this turn and fail in the next."""
        self._failed_step: StepProgress | None = None
        """The first step whose failure fails the run: no further step starts, running ones
        finish."""
        self._halted = False
        self._handlers_due = False
        """A step starts with handlers, which wait for the next turn: a run is created with steps
        only."""
        self.starts: list[Start] = []

    @property
    def finished(self) -> bool:
        """Every step has ended, or a failure keeps the rest from starting."""
        return not self._open and (self._failed_step is not None or not self._ready_steps.left)

    @property
    def next_turn_due(self) -> bool:
        """Whether the next turn is due although no result will arrive."""
        return bool(self._failed_at_start) or (self._handlers_due and not self._halted)

    def halt(self) -> None:
        """Start nothing more; a step whose work is done still ends."""
        self._halted = True

    def cut_short(self, status: RunStatus, outcome: Outcome, pending: PendingChanges) -> None:
        """End the run as ``status``, with the steps that began and the hosts that are between two
        loop items. Every started step gets an end event, a handler before its step."""
        said, kind = outcome.message, outcome.kind
        for progress in reversed(self._open.values()):
            for host in progress.between_items:
                pending.host(progress.index, host, change_of(HostChange, outcome))
            name = progress.recipe.name
            error = ErrorInfo(kind=kind, message=said or "", step=name) if kind else UNSET
            pending.step(progress.index, STEP_CUT_SHORT[status], said, error)

    def scope(self, progress: StepProgress, host: str) -> Mapping[str, Any]:
        """The variables of a task; a handler's include the item its step notified it for, and what
        its host exported there."""
        step = progress.parent or progress
        item = NO_ITEM
        if step.items is not None and step.position is not None and step.items[host]:
            item = step.items[host][step.position]
        exported = None
        if progress.parent is not None:
            exported = step.exported.get(host) or step.past.done.get(host)
        return self._exports.scope(host, item, exported)

    def settle(self, start: Start, outcome: Outcome, pending: PendingChanges) -> None:
        progress, host, position = start
        end = progress.settle(host, outcome)
        if position is None:
            pending.host(progress.index, host, change_of(HostChange, outcome))
            return
        if _looped(progress, host):
            pending.item(progress.index, host, position, change_of(ItemChange, outcome))
            if outcome.truncated:
                pending.host(progress.index, host, HostChange(truncated=True))
        if end is not None:
            said = outcome.message if end is outcome.status else None
            kind = outcome.kind if end is outcome.status else None
            exported = progress.shown_exports(host)
            change = HostChange(status=end, message=said, kind=kind, **exported)
            pending.host(progress.index, host, change)

    def proceed(self, pending: PendingChanges) -> None:
        """After results were settled: start further hosts, waves, handlers, steps."""
        self._handlers_due = False
        if self._failed_at_start:
            failed_at_start, self._failed_at_start = self._failed_at_start, []
            for progress in failed_at_start:
                self._close(progress, pending)
        for progress in tuple(self._open.values()):
            if progress.index in self._open:  # not closed by another step meanwhile
                self._continue(progress, pending)
        while self._ready_steps.ready and not self._halted and self._failed_step is None:
            for index in self._ready_steps.take_ready():
                self._begin(self._course(index), pending)

    def _course(self, index: int) -> StepProgress:
        """Created when the step starts, so that a run holds only its running steps in memory."""
        prepared = self._prepared
        return StepProgress(
            index,
            prepared.recipes[index],
            prepared.plan.steps[index].hosts,
            prepared.past.get(index, NO_PAST),
            prepared.owed.get(index, {}),
            prepared.in_all[index],
        )

    def _begin(self, progress: StepProgress, pending: PendingChanges) -> None:
        opening = open_step(progress.recipe, progress.hosts, partial(self.scope, progress))
        if not opening.hosts and not progress.owed:
            if progress.past.done:
                self._exports.add(progress.past.done)
            pending.step(progress.index, _STEP_SKIPPED, opening.message)
            if progress.parent is None:
                self._ready_steps.ended(progress.index)
            return
        pending.step(progress.index, _STEP_RUNNING)
        for host in opening.skipped:
            pending.host(progress.index, host, _SKIPPED)
        self._open[progress.index] = progress
        if opening.trouble is not None:
            progress.trouble = opening.trouble
            self._failed_at_start.append(progress)
            return
        progress.unrunnable = opening.unrunnable
        progress.begin(opening.hosts, opening.items)
        if progress.owed:
            self._handlers_due = True
        self._fill(progress, pending)

    def _fill(self, progress: StepProgress, pending: PendingChanges) -> None:
        if self._halted:
            return
        position = progress.position
        for host in progress.start():
            if not position:
                pending.host(progress.index, host, _STARTED)
            if position is not None and _looped(progress, host):
                pending.item(progress.index, host, position, _ITEM_STARTED)
            self.starts.append(Start(progress, host, position))

    def _continue(self, progress: StepProgress, pending: PendingChanges) -> None:
        if progress.waiting:
            self._fill(progress, pending)
        if (
            progress.running
            or progress.waiting
            or progress.cut_short
            or progress.handler is not None
        ):
            return
        due = progress.handlers_due()
        if due:
            progress.handlers = iter(due)
            self._next_handler(progress, pending)
        else:
            self._next_wave(progress, pending)

    def _next_wave(self, progress: StepProgress, pending: PendingChanges) -> None:
        if progress.trouble is None and progress.next_wave():
            self._fill(progress, pending)
        else:
            self._close(progress, pending)

    def _next_handler(self, progress: StepProgress, pending: PendingChanges) -> None:
        """Handlers run one after another, in order; the step continues after the last."""
        while progress.trouble is None and (due := next(progress.handlers, None)) is not None:
            if self._halted:
                progress.cut_short = True
                return
            handler = self._add_handler(progress, *due, pending)
            self._begin(handler, pending)
            if handler.index in self._open:
                progress.handler = handler
                return
        progress.handler = None
        self._next_wave(progress, pending)

    def _add_handler(
        self, progress: StepProgress, name: str, hosts: tuple[str, ...], pending: PendingChanges
    ) -> StepProgress:
        recipe = self._prepared.handlers[name]
        handler = StepProgress(self._steps, recipe, hosts, parent=progress)
        self._steps += 1
        pending.added(
            StepState(
                index=handler.index,
                name=name,
                kind=StepKind.HANDLER,
                action=recipe.action.spec.name,
                notified_by=progress.index,
                hosts={host: HostState() for host in hosts},
            )
        )
        return handler

    def _close(self, progress: StepProgress, pending: PendingChanges) -> None:
        status = progress.verdict()
        failed = status is _STEP_FAILED
        message = progress.message()
        for host in progress.between_items:
            # Its step fails before all of its items are done.
            pending.host(
                progress.index, host, HostChange(status=HostStatus.FAILED, message=message)
            )
        if (progress.exported or progress.past.done) and progress.parent is None:
            note = self._exports.add(progress.exports())
            message = "; ".join(filter(None, (message, note))) or None
        pending.step(progress.index, status, message, progress.error() if failed else UNSET)
        del self._open[progress.index]
        if progress.parent is not None:
            self._handler_ended(progress, progress.parent, failed, pending)
            return
        self._ready_steps.ended(progress.index)
        if failed and not progress.recipe.continue_on_error:
            self._failed_step = self._failed_step or progress
        elif progress.failed or progress.trouble:
            pending.run_changes(RunChange(last_error=progress.error()))

    def _handler_ended(
        self, handler: StepProgress, progress: StepProgress, failed: bool, pending: PendingChanges
    ) -> None:
        progress.handler = None
        if failed:
            progress.trouble = Trouble(
                "handler", f"handler {handler.recipe.name!r} {handler.message() or 'failed'}"
            )
        self._next_handler(progress, pending)

    def end(self, pending: PendingChanges) -> RunStatus:
        """The status of a run that is ``finished``."""
        if self._failed_step is None:
            pending.run_changes(_SUCCESS)
            return RunStatus.SUCCESS
        error = self._failed_step.error()
        pending.run_changes(
            RunChange(status=RunStatus.FAILED, message=error.message, error=error, last_error=error)
        )
        return RunStatus.FAILED


def started_again(start: Start, attempt: int, pending: PendingChanges) -> None:
    """A task whose result is unknown starts again."""
    progress, host, position = start
    again = HostChange(status=HostStatus.RUNNING, attempts=attempt, message=None)
    if position is not None and _looped(progress, host):
        item = ItemChange(status=HostStatus.RUNNING, attempts=attempt)
        again = HostChange(status=HostStatus.RUNNING, message=None, items={position: item})
    pending.host(progress.index, host, again)


def _looped(progress: StepProgress, host: str) -> bool:
    return progress.items is not None and bool(progress.items[host])
