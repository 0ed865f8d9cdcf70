"""What an end does to the rest: of a run to its steps, of a step to its hosts, of a host to its
items. Which end follows from which is in ``transitions``.
"""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from tenure.model import transitions
from tenure.model.deltas import StepDelta, Steps
from tenure.model.errors import InvalidTransition
from tenure.model.places import Wrong, label
from tenure.model.snapshot import HostState, StepState
from tenure.model.status import OPEN_HOST, HostStatus, RunStatus, StepStatus
from tenure.model.tally import Tally, move

# Looked up once: on Python 3.11 naming a member costs nearly as much as a call.
_HOST_PENDING = HostStatus.PENDING
_HOST_RUNNING = HostStatus.RUNNING
_STEP_PENDING = StepStatus.PENDING
_STEP_RUNNING = StepStatus.RUNNING


def cut_short(
    run_id: str,
    steps: Steps,
    changed: dict[int, StepDelta],
    status: RunStatus,
    at: datetime,
    tally: Tally,
) -> list[str]:
    """Nothing stays running in a run that ended: what ``changed`` then, and which hosts were
    stopped."""
    for step in steps.unfinished():
        if step.index not in changed:
            changed[step.index] = StepDelta(step, step, {})
    stopped: list[str] = []
    for index in sorted(changed):
        delta = changed[index]
        hosts = steps.open_hosts(index) | delta.hosts
        stopped += _cut_step(run_id, delta, hosts, status, at, tally)
    return stopped


def _cut_step(
    run_id: str,
    delta: StepDelta,
    hosts: dict[str, HostState],
    status: RunStatus,
    at: datetime,
    tally: Tally,
) -> list[str]:
    """``hosts`` that were open or changed, as they are now: no other can be running."""
    step = delta.after
    running = [name for name, host in hosts.items() if host.status == _HOST_RUNNING]
    if status == RunStatus.SUCCESS and (running or step.status == _STEP_RUNNING):
        what = f"host {running[0]!r}" if running else "the step"
        raise InvalidTransition(run_id, f"cannot succeed: {label(step)}: {what} is still running")
    for name, host in hosts.items():
        if host.status in OPEN_HOST:
            ended = delta.hosts[name] = _cut_host(host, status, at)
            move(tally.hosts, host.status, ended.status)
    if step.status == _STEP_RUNNING:
        move(tally.steps, _STEP_RUNNING, transitions.STEP_CUT_SHORT[status])
        delta.after = replace(step, status=transitions.STEP_CUT_SHORT[status], finished_at=at)
    return running


def _cut_host(host: HostState, status: RunStatus, at: datetime) -> HostState:
    """Stopped by the end of its run if it is running. Items of a host that stays unknown are
    closed too: the run ends, and nobody will look for them again."""
    if host.status == _HOST_RUNNING:
        host = replace(host, status=transitions.HOST_CUT_SHORT[status], finished_at=at)
    if not host.items:
        return host
    ends = {
        _HOST_PENDING: transitions.HOST_NOT_REACHED[transitions.STEP_NOT_REACHED[status]],
        _HOST_RUNNING: host.status,
    }
    items = tuple(
        replace(item, status=ends[item.status], finished_at=at) if item.status in ends else item
        for item in host.items
    )
    return replace(host, items=items)


def close_step(step: StepState, run_status: RunStatus, finished_at: datetime | None) -> StepState:
    """How a step of an ended run reads: what was never reached says why."""
    if step.status == _STEP_PENDING:
        step = replace(
            step, status=transitions.STEP_NOT_REACHED[run_status], finished_at=finished_at
        )
    return close_hosts(step)


def check_hosts_ended(run_id: str, steps: Steps, delta: StepDelta) -> None:
    opened, changed = steps.open_hosts(delta.after.index), delta.hosts
    running = _still_running(opened | changed if opened.keys() - changed else changed)
    if running is not None:
        raise InvalidTransition(
            run_id, f"{label(delta.after)} cannot end: host {running!r} is still running"
        )


def _still_running(hosts: dict[str, HostState]) -> str | None:
    for name, host in hosts.items():
        if host.status is _HOST_RUNNING:
            return name
    return None


def close_hosts(step: StepState) -> StepState:
    """How the hosts of an ended step read: those that never started say why."""
    pending = [name for name, host in step.hosts.items() if host.status == _HOST_PENDING]
    if not pending:
        return step
    end = transitions.HOST_NOT_REACHED[step.status]
    closed = dict.fromkeys(pending, HostState(status=end, finished_at=step.finished_at))
    return replace(step, hosts=step.hosts | closed)


def close_items(host: HostState) -> HostState:
    """The items of a host that ended, or of which nobody knows, follow it."""
    items = list(host.items)
    for position, item in enumerate(items):
        end = item.status
        if item.status == _HOST_PENDING:
            end = transitions.ITEM_NOT_REACHED.get(host.status, item.status)
        elif item.status == _HOST_RUNNING:
            if host.status not in transitions.ITEM_CUT_SHORT:
                raise Wrong(f"cannot end: its item {position} is still running")
            end = transitions.ITEM_CUT_SHORT[host.status]
        if end is not item.status:
            items[position] = replace(item, status=end, finished_at=host.finished_at)
    return replace(host, items=tuple(items))
