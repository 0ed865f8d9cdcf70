"""Continues a run from its record, by replaying what its earlier owners did.

``Schedule`` is pure: the same results in the same order lead to the same decisions. The record has
the results, and their times give the order: each accepted update moves the run's time forward and
holds one turn of its owner. So the schedule is fed the recorded results turn by turn until it
decides something that the record does not have: there the last owner was lost, and from there the
run continues.

A task that was started by then and has no result is *unknown*: it may have run wholly, in part or
not at all. The step's ``on_takeover`` decides what is done about it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from shlex import quote
from typing import NamedTuple

from msgspec import UNSET
from msgspec.structs import replace

from tenure.model.errors import NotRunnable
from tenure.model.snapshot import HostState, ItemState, RunSnapshot, StepState
from tenure.model.status import ENDED_HOST, ENDED_STEP, HostStatus, RunStatus, StepStatus
from tenure.model.update import Changes, HostChange, ItemChange, StepChange
from tenure.runtime.executor import Outcome
from tenure.runtime.host_tasks import Execute, HostTasks
from tenure.runtime.schedule import PendingChanges, Schedule, Start, started_again
from tenure.runtime.stop import REQUESTED, Stop, asked
from tenure.workflow.spec import OnTakeover
from tenure.workflow.wording import listed

_PENDING = ItemState()
_NEVER = datetime.max.replace(tzinfo=UTC)
_UNKNOWN = HostChange(
    status=HostStatus.UNKNOWN, message="its worker was lost while it ran; its end was not recorded"
)


class UnknownTask(NamedTuple):
    """A task that was started and has no result."""

    start: Start
    attempts: int
    """Made so far, the one without a result included."""
    lost: str = "worker"
    """With what its result was lost."""


class Resumed(NamedTuple):
    missing: Changes
    """Changes to record before anything else is done."""
    unknown_tasks: list[UnknownTask]


def resume(schedule: Schedule, run: RunSnapshot) -> Resumed:
    """Bring ``schedule``, which has not begun, to the state of ``run``. What it starts after that
    starts for the first time. Raises ``NotRunnable`` if the record cannot come from this
    definition."""
    begun: dict[Start, ItemState] = {}
    pending = PendingChanges()
    schedule.proceed(pending)
    if run.status is RunStatus.QUEUED and (first := pending.changes()).steps:
        return Resumed(first, [])  # nothing is recorded yet
    while not (missing := _missing(pending.changes(), run)).steps:
        begun.update((start, _state(run, start)) for start in _taken(schedule))
        ended = _first_to_end(begun)
        pending = PendingChanges()
        if not ended and not schedule.next_turn_due:
            break
        for start in ended:
            schedule.settle(start, _outcome(begun.pop(start)), pending)
        schedule.proceed(pending)
    for start in _taken(schedule):
        state = _state(run, start)
        if state.status is HostStatus.PENDING:
            schedule.starts.append(start)
        else:
            begun[start] = state
    if _first_to_end(begun) or any(state.status is HostStatus.PENDING for state in begun.values()):
        raise NotRunnable(run.run_id, "its record does not follow from its definition")
    return Resumed(
        _mark_unknown(missing, begun),
        [UnknownTask(start, state.attempts) for start, state in begun.items()],
    )


def _taken(schedule: Schedule) -> list[Start]:
    starts, schedule.starts = schedule.starts, []
    return starts


def _state(run: RunSnapshot, start: Start) -> ItemState:
    """The recorded state of a task."""
    progress, name, position = start
    if progress.index >= len(run.steps):
        return _PENDING
    host = run.steps[progress.index].hosts.get(name, _PENDING)
    if position is None or progress.items is None or not progress.items[name]:
        return host
    items = host.items if isinstance(host, HostState) else ()
    return items[position] if position < len(items) else _PENDING


def _first_to_end(begun: dict[Start, ItemState]) -> list[Start]:
    """Tasks that ended in the earliest update: its writer settled them together."""
    ended = [(start, state) for start, state in begun.items() if state.status in ENDED_HOST]
    if not ended:
        return []
    first = min(_end_of(state) for _, state in ended)
    return [start for start, state in ended if _end_of(state) == first]


def _end_of(state: ItemState) -> datetime:
    return state.finished_at or _NEVER  # (the store stamps every end)


def _outcome(state: ItemState) -> Outcome:
    """The recorded outcome; of exports that held a secret only the names were kept."""
    return Outcome(
        status=state.status,
        message=state.message,
        kind=state.kind,
        exit_code=state.exit_code,
        attempts=state.attempts,
        changed=state.changed,
        vars=state.vars,
        stdout=state.stdout,
        stderr=state.stderr,
        truncated=state.truncated,
    )


def _missing(changes: Changes, run: RunSnapshot) -> Changes:
    steps = dict(_missing_steps(changes, run))
    return Changes(run=changes.run, steps=steps) if steps else Changes()


def _missing_steps(changes: Changes, run: RunSnapshot) -> Iterator[tuple[int, StepChange]]:
    for index, change in changes.steps.items():
        if index >= len(run.steps):
            yield index, change
            continue
        step = run.steps[index]
        said = _step_is_there(step, change)
        hosts = {
            name: left
            for name, host in change.hosts.items()
            if (left := _missing_of_host(step.hosts.get(name, HostState()), host)) is not None
        }
        if not said:
            yield index, replace(change, hosts=hosts, plan=None)
        elif hosts:
            yield index, StepChange(hosts=hosts)


def _step_is_there(step: StepState, change: StepChange) -> bool:
    if change.status is UNSET:
        return True
    if change.status is StepStatus.RUNNING:
        return step.status is not StepStatus.PENDING
    return step.status in ENDED_STEP


def _missing_of_host(host: HostState, change: HostChange) -> HostChange | None:
    items = {
        position: item
        for position, item in change.items.items()
        if not _is_there(host.items[position] if position < len(host.items) else _PENDING, item)
    }
    if not _is_there(host, change):
        return replace(change, items=items)
    return HostChange(items=items) if items else None


def _is_there(state: ItemState, change: ItemChange) -> bool:
    if change.status is UNSET:
        return True
    if change.status is HostStatus.RUNNING:
        return state.status is not HostStatus.PENDING
    return state.status in ENDED_HOST


def _mark_unknown(missing: Changes, begun: dict[Start, ItemState]) -> Changes:
    """Also mark tasks without a result as unknown, unless an earlier owner did."""
    pending = PendingChanges()
    pending.take(missing)
    for (progress, host, _), state in begun.items():
        if state.status is HostStatus.RUNNING:
            pending.host(progress.index, host, _UNKNOWN)
    return pending.changes()


class UnknownTasks:
    """Tasks that were begun by a lost owner, or under a supervisor that was lost, handled as
    ``on_takeover`` of their step says:

    ========  =====================================================================================
    rerun     a further attempt
    verify    its probe runs and it stays ``unknown`` meanwhile; unless the work is done, a further
              attempt
    fail      it failed
    ask       the run ends as interrupted, for an operator to look
    ========  =====================================================================================

    If the run ends before that is decided, they stay ``unknown`` and their hosts are listed as
    unconfirmed. ``probe`` executes the probe of a task. A task that loses its supervisor more than
    ``max_takeovers`` times fails.
    """

    def __init__(self, tasks: HostTasks, schedule: Schedule, max_takeovers: int) -> None:
        self._tasks = tasks
        self._schedule = schedule
        self._max_takeovers = max_takeovers
        self._probed: dict[Start, UnknownTask] = {}
        """Tasks whose probe runs now."""
        self._losses: dict[Start, int] = {}
        """How often a task lost its supervisor here."""
        self._before: dict[Start, int] = {}

    def attempts(self, start: Start) -> int:
        """Attempts whose result was lost, and those before them."""
        return self._before.get(start, 0)

    def decide(
        self, unknown_tasks: Sequence[UnknownTask], probe: Execute, pending: PendingChanges
    ) -> None:
        for start, attempts, _ in unknown_tasks:
            recipe = start.progress.recipe
            if attempts and recipe.on_takeover is OnTakeover.ASK:
                self._tasks.stop(asked(recipe.name, start.host))
        for unknown in unknown_tasks:
            start, attempts, _ = unknown
            recipe = start.progress.recipe
            if self._tasks.stopped is not None:
                if attempts:
                    self._tasks.unconfirmed.add(start.host)
            elif not attempts:  # its owner was told to stop before it began
                self._again(start, attempts, pending)
            elif recipe.on_takeover is OnTakeover.FAIL:
                self._tasks.arrive(start, _failed(unknown))
            elif recipe.on_takeover is OnTakeover.VERIFY and recipe.probe is not None:
                self._probed[start] = unknown
                self._tasks.begin(start, probe)
            else:
                self._again(start, attempts, pending)

    def settled(self, start: Start, outcome: Outcome, pending: PendingChanges) -> bool:
        """Settle the result of a probe; false if ``start`` is not being probed."""
        unknown = self._probed.pop(start, None)
        if unknown is None:
            return False
        if outcome.cut_short or self._tasks.stopped is not None:
            self._tasks.unconfirmed.add(start.host)
        elif outcome.status is HostStatus.SUCCESS:
            self._schedule.settle(start, _found_done(unknown), pending)
        else:
            self._again(start, unknown.attempts, pending)
        return True

    def lost_supervisor(
        self, start: Start, outcome: Outcome, probe: Execute, pending: PendingChanges
    ) -> Outcome | None:
        """A task that is gone; its outcome, if it has no further attempt."""
        recipe, tasks = start.progress.recipe, self._tasks
        losses = self._losses[start] = self._losses.get(start, 0) + 1
        if recipe.on_takeover is OnTakeover.ASK:
            tasks.stop(asked(recipe.name, start.host, "supervisor"))
        if tasks.stopped is not None:
            return tasks.stopped.instead_of(outcome)
        if losses > self._max_takeovers:
            message = f"{outcome.message}; it lost {losses} supervisors, and may be what ends them"
            return replace(outcome, status=HostStatus.FAILED, message=message)
        self.decide([UnknownTask(start, outcome.attempts, "supervisor")], probe, pending)
        return None

    def _again(self, start: Start, attempts: int, pending: PendingChanges) -> None:
        self._before[start] = attempts
        started_again(start, attempts + 1, pending)
        self._schedule.starts.append(start)


def _failed(task: UnknownTask) -> Outcome:
    return Outcome(
        status=HostStatus.FAILED,
        kind="takeover",
        message=f"its {task.lost} was lost while it ran; on_takeover says fail",
        attempts=task.attempts,
    )


def _found_done(task: UnknownTask) -> Outcome:
    return Outcome(
        status=HostStatus.SUCCESS,
        message=f"its {task.lost} was lost while it ran; verify found the work done",
        attempts=task.attempts,
    )


_MIN_TIMEOUT_S = 0.001
_OPEN = (HostStatus.RUNNING, HostStatus.UNKNOWN)


def early_end(run: RunSnapshot, max_takeovers: int) -> Stop | None:
    """Why a claimed run ends at once: a cancel request, too many lost workers in a row, or a secret
    export that only the lost worker knew. ``None``: it continues."""
    if run.cancel_requested_at is not None:
        return REQUESTED
    lost = run.takeovers_without_progress
    if lost > max_takeovers:
        return cannot_go_on(
            f"its worker was lost {lost} times in a row before any host finished: it may be what "
            "ends them; look, then tenure retry"
        )
    for step in run.steps:
        withheld = sorted({name for host in step.hosts.values() for name in host.withheld})
        if withheld:
            return cannot_go_on(
                f"its worker was lost, and with it what step {step.name!r} exported as "
                f"{listed(withheld, 5)}: it held a secret, which is kept nowhere; "
                f"tenure retry {run.run_id} --again {quote(step.name)} exports it again"
            )
    return None


def cannot_go_on(why: str) -> Stop:
    return Stop(
        status=RunStatus.INTERRUPTED,
        kind="takeover",
        message=why,
        host_status=HostStatus.INTERRUPTED,
    )


def unconfirmed(run: RunSnapshot) -> set[str]:
    """Hosts with a task whose end is not recorded."""
    return {name for step in run.steps for name, host in step.hosts.items() if host.status in _OPEN}


def time_left(run: RunSnapshot) -> float | None:
    """Seconds left of the run's time-out, by the store's clock; ``None`` without one."""
    if run.timeout is None or run.started_at is None or run.updated_at is None:
        return run.timeout
    return max(run.timeout - (run.updated_at - run.started_at).total_seconds(), _MIN_TIMEOUT_S)
