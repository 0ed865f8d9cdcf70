"""What an end does to the rest: of a run to its steps, of a step to its hosts, of a host to its
items. Which end follows from which is in ``transitions``.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec.structs import replace

from tenure.model import transitions
from tenure.model.errors import InvalidTransition
from tenure.model.places import Wrong, label
from tenure.model.snapshot import HostState, RunSnapshot, StepState
from tenure.model.status import HostStatus, RunStatus, StepStatus
from tenure.model.tally import Tally

# Looked up once: on Python 3.11 naming a member costs nearly as much as a call.
_HOST_PENDING = HostStatus.PENDING
_HOST_RUNNING = HostStatus.RUNNING
_STEP_PENDING = StepStatus.PENDING
_STEP_RUNNING = StepStatus.RUNNING


def close_run(run: RunSnapshot, status: RunStatus, at: datetime, fields: dict[str, Any]) -> None:
    """Nothing stays pending or running in a run that ended."""
    steps: tuple[StepState, ...] = fields.get("steps", run.steps)
    tally = Tally(fields.get("counts", run.counts))
    cut_short: list[str] = []
    closed = tuple(_cut_step(run.run_id, step, status, at, tally, cut_short) for step in steps)
    fields["steps"] = closed
    fields["counts"] = tally.counts()
    if cut_short and status == RunStatus.CANCELED:
        confirmed_not = fields.get("unconfirmed_hosts", run.unconfirmed_hosts)
        fields["unconfirmed_hosts"] = tuple(sorted({*confirmed_not, *cut_short}))


def _cut_step(
    run_id: str,
    step: StepState,
    status: RunStatus,
    at: datetime,
    tally: Tally,
    cut_short: list[str],
) -> StepState:
    running = [name for name, host in step.hosts.items() if host.status == _HOST_RUNNING]
    if status == RunStatus.SUCCESS and (running or step.status == _STEP_RUNNING):
        what = f"host {running[0]!r}" if running else "the step"
        raise InvalidTransition(run_id, f"cannot succeed: {label(step)}: {what} is still running")
    hosts = {name: _cut_host(host, status, at) for name, host in step.hosts.items()}
    for name in running:
        tally.host(_HOST_RUNNING, hosts[name].status)
    cut_short += running
    step = replace(step, hosts=hosts)
    if step.status == _STEP_RUNNING:
        tally.step(_STEP_RUNNING, transitions.STEP_CUT_SHORT[status])
        step = replace(step, status=transitions.STEP_CUT_SHORT[status], finished_at=at)
    return close_step(step, status, at)


def _cut_host(host: HostState, status: RunStatus, at: datetime) -> HostState:
    """Stopped by the end of its run if it was running. Items of a host that stays unknown are
    closed too: the run ends, and nobody will look for them again."""
    if host.status == _HOST_RUNNING:
        host = replace(host, status=transitions.HOST_CUT_SHORT[status], finished_at=at)
    elif host.status != HostStatus.UNKNOWN:
        return host
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


def check_hosts_ended(run_id: str, step: StepState) -> None:
    for name, host in step.hosts.items():
        if host.status == _HOST_RUNNING:
            raise InvalidTransition(
                run_id, f"{label(step)} cannot end: host {name!r} is still running"
            )


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
