"""Going on with a run from its record: what its earlier owners did is played once more, on paper.

``Schedule`` is a pure machine: given the same results in the same order it says the same. The
record has the results, and their times have the order: each accepted update moves a run's time
forward and holds one turn of its owner. So the machine is asked turn by turn what it would do, and
is told what the record says became of it, until it says something that the record does not have.
That is where the last owner was lost; from there on the machine goes on for real.

What had been started by then and has no result is *in doubt*: perhaps it ran, wholly, halfway, or
not at all. That is never guessed: the step's ``on_takeover`` decides.
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
from tenure.runtime.schedule import PendingChanges, Schedule, Start, started_again
from tenure.runtime.stop import REQUESTED, Stop, asked
from tenure.runtime.tasks import Execute, HostTasks
from tenure.workflow.spec import OnTakeover
from tenure.workflow.wording import listed

_PENDING = ItemState()
_NEVER = datetime.max.replace(tzinfo=UTC)
_UNKNOWN = HostChange(
    status=HostStatus.UNKNOWN, message="its worker was lost while it ran; nobody saw it end"
)


class UnknownTask(NamedTuple):
    """A task that was started, and of which nobody knows how it ended."""

    start: Start
    attempts: int
    """Made so far, the one in doubt included."""


class Resumed(NamedTuple):
    missing: Changes
    """What is to be recorded before anything else is done."""
    doubts: list[UnknownTask]


def resume(unfolding: Schedule, run: RunSnapshot) -> Resumed:
    """Bring ``unfolding``, which has not begun, to where ``run`` is. What it wants to start then
    starts for the first time. ``NotRunnable`` if the record cannot come from this definition."""
    begun: dict[Start, ItemState] = {}
    draft = PendingChanges()
    unfolding.proceed(draft)
    if run.status is RunStatus.QUEUED and (first := draft.changes()).steps:
        return Resumed(first, [])  # the record has nothing of it
    while not (missing := _missing(draft.changes(), run)).steps:
        begun.update((start, _state(run, start)) for start in _taken(unfolding))
        ended = _first_to_end(begun)
        draft = PendingChanges()
        if not ended and not unfolding.impatient:
            break
        for start in ended:
            unfolding.settle(start, _outcome(begun.pop(start)), draft)
        unfolding.proceed(draft)
    for start in _taken(unfolding):
        state = _state(run, start)
        if state.status is HostStatus.PENDING:
            unfolding.starts.append(start)
        else:
            begun[start] = state
    if _first_to_end(begun) or any(state.status is HostStatus.PENDING for state in begun.values()):
        raise NotRunnable(run.run_id, "its record does not follow from its definition")
    return Resumed(
        _with_doubts(missing, begun),
        [UnknownTask(start, state.attempts) for start, state in begun.items()],
    )


def _taken(unfolding: Schedule) -> list[Start]:
    starts, unfolding.starts = unfolding.starts, []
    return starts


def _state(run: RunSnapshot, start: Start) -> ItemState:
    """What the record has of one task."""
    course, name, position = start
    if course.index >= len(run.steps):
        return _PENDING
    host = run.steps[course.index].hosts.get(name, _PENDING)
    if position is None or course.items is None or not course.items[name]:
        return host
    items = host.items if isinstance(host, HostState) else ()
    return items[position] if position < len(items) else _PENDING


def _first_to_end(begun: dict[Start, ItemState]) -> list[Start]:
    """Those that ended in the earliest update: its writer took them in together."""
    ended = [(start, state) for start, state in begun.items() if state.status in ENDED_HOST]
    if not ended:
        return []
    first = min(_end_of(state) for _, state in ended)
    return [start for start, state in ended if _end_of(state) == first]


def _end_of(state: ItemState) -> datetime:
    return state.finished_at or _NEVER  # (the store stamps every end)


def _outcome(state: ItemState) -> Outcome:
    """(Of an export that held a secret only its name was kept.)"""
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


# What of a turn the record does not have


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


def _with_doubts(missing: Changes, begun: dict[Start, ItemState]) -> Changes:
    """Also say of what is in doubt that it is, unless an earlier owner did."""
    draft = PendingChanges()
    draft.take(missing)
    for (course, host, _), state in begun.items():
        if state.status is HostStatus.RUNNING:
            draft.host(course.index, host, _UNKNOWN)
    return draft.changes()


# Tasks that were begun by an owner that is lost: what is done about each, as its step says.
#
# ========  ======================================================================================
# rerun     it begins anew, as a further attempt
# verify   its probe is asked, and stays ``unknown`` meanwhile: done, it is a success; else it begins
#           anew
# fail      it failed
# ask       the run ends as interrupted: a person looks
# ========  ======================================================================================
#
# Where the run is to end before that is decided, they stay ``unknown``, and their hosts are listed
# as unconfirmed.


class UnknownTasks:
    """``probe`` executes the probe of what is in doubt."""

    def __init__(self, crew: HostTasks, unfolding: Schedule, probe: Execute) -> None:
        self._crew = crew
        self._unfolding = unfolding
        self._probe = probe
        self._probed: dict[Start, int] = {}
        """Those that are looked at now, and how many attempts they have had."""
        self._before: dict[Start, int] = {}

    def attempts(self, start: Start) -> int:
        """That earlier owners made of it."""
        return self._before.get(start, 0)

    def decide(self, doubts: Sequence[UnknownTask], draft: PendingChanges) -> None:
        for start, attempts in doubts:
            recipe = start.course.recipe
            if attempts and recipe.on_takeover is OnTakeover.ASK:
                self._crew.stop(asked(recipe.name, start.host))
        for start, attempts in doubts:
            recipe = start.course.recipe
            if self._crew.stopped is not None:
                if attempts:
                    self._crew.unconfirmed.add(start.host)
            elif not attempts:  # it was to begin when its owner was told to stop
                self._again(start, attempts, draft)
            elif recipe.on_takeover is OnTakeover.FAIL:
                self._crew.arrive(start, _failed(attempts))
            elif recipe.on_takeover is OnTakeover.VERIFY and recipe.probe is not None:
                self._probed[start] = attempts
                self._crew.begin(start, self._probe)
            else:
                self._again(start, attempts, draft)

    def settled(self, start: Start, outcome: Outcome, draft: PendingChanges) -> bool:
        """Take in what a probe says; whether it was one."""
        attempts = self._probed.pop(start, None)
        if attempts is None:
            return False
        if outcome.cut_short or self._crew.stopped is not None:
            self._crew.unconfirmed.add(start.host)
        elif outcome.status is HostStatus.SUCCESS:
            self._unfolding.settle(start, _found_done(attempts), draft)
        else:
            self._again(start, attempts, draft)
        return True

    def _again(self, start: Start, attempts: int, draft: PendingChanges) -> None:
        self._before[start] = attempts
        started_again(start, attempts + 1, draft)
        self._unfolding.starts.append(start)


def _failed(attempts: int) -> Outcome:
    return Outcome(
        status=HostStatus.FAILED,
        kind="takeover",
        message="its worker was lost while it ran; on_takeover says fail",
        attempts=attempts,
    )


def _found_done(attempts: int) -> Outcome:
    return Outcome(
        status=HostStatus.SUCCESS,
        message="its worker was lost while it ran; verify found the work done",
        attempts=attempts,
    )


# What whoever claims a run decides before going on with it: may it go on at all, and how long?


_LEAST = 0.001
_OPEN = (HostStatus.RUNNING, HostStatus.UNKNOWN)


def early_end(run: RunSnapshot, max_takeovers: int) -> Stop | None:
    """How it ends at once: somebody wants it canceled, it has cost one worker after another, or it
    needs what only the lost one knew."""
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
    """Hosts with a task that nobody saw end."""
    return {name for step in run.steps for name, host in step.hosts.items() if host.status in _OPEN}


def time_left(run: RunSnapshot) -> float | None:
    """Of the run's own time-out, by the store's clock."""
    if run.timeout is None or run.started_at is None or run.updated_at is None:
        return run.timeout
    return max(run.timeout - (run.updated_at - run.started_at).total_seconds(), _LEAST)
