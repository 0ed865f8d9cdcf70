"""Going on with a run from its record: what its earlier owners did is played once more, on paper.

``Unfolding`` is a pure machine: given the same results in the same order it says the same. The
record has the results, and their times have the order: each accepted update moves a run's time
forward and holds one turn of its owner. So the machine is asked turn by turn what it would do, and
is told what the record says became of it, until it says something that the record does not have.
That is where the last owner was lost; from there on the machine goes on for real.

What had been started by then and has no result is *in doubt*: perhaps it ran, wholly, halfway, or
not at all. That is never guessed: the step's ``on_takeover`` decides.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple

from msgspec import UNSET
from msgspec.structs import replace

from tenure.model.errors import NotRunnable
from tenure.model.snapshot import HostState, ItemState, RunSnapshot, StepState
from tenure.model.status import ENDED_HOST, ENDED_STEP, HostStatus, RunStatus, StepStatus
from tenure.model.update import Changes, HostChange, ItemChange, StepChange
from tenure.runtime.draft import Draft
from tenure.runtime.executor import Outcome
from tenure.runtime.unfolding import Start, Unfolding

_PENDING = ItemState()
_NEVER = datetime.max.replace(tzinfo=UTC)
_UNKNOWN = HostChange(
    status=HostStatus.UNKNOWN, message="its worker was lost while it ran; nobody saw it end"
)


class Doubt(NamedTuple):
    """A task that was started, and of which nobody knows how it ended."""

    start: Start
    attempts: int
    """Made so far, the one in doubt included."""


class Resumed(NamedTuple):
    missing: Changes
    """What is to be recorded before anything else is done."""
    doubts: list[Doubt]


def resume(unfolding: Unfolding, run: RunSnapshot) -> Resumed:
    """Bring ``unfolding``, which has not begun, to where ``run`` is. What it wants to start then
    starts for the first time. ``NotRunnable`` if the record cannot come from this definition."""
    begun: dict[Start, ItemState] = {}
    draft = Draft()
    unfolding.proceed(draft)
    if run.status is RunStatus.QUEUED and (first := draft.changes()).steps:
        return Resumed(first, [])  # the record has nothing of it
    while not (missing := _missing(draft.changes(), run)).steps:
        begun.update((start, _state(run, start)) for start in _taken(unfolding))
        ended = _first_to_end(begun)
        draft = Draft()
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
        [Doubt(start, state.attempts) for start, state in begun.items()],
    )


def _taken(unfolding: Unfolding) -> list[Start]:
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
    draft = Draft()
    draft.take(missing)
    for (course, host, _), state in begun.items():
        if state.status is HostStatus.RUNNING:
            draft.host(course.index, host, _UNKNOWN)
    return draft.changes()
