"""What an owner reports of steps, hosts and loop items: may it be, and how do they read then?"""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypeVar

from msgspec import UNSET
from msgspec.structs import replace

from tenure.model import transitions
from tenure.model.closing import check_hosts_ended, close_items
from tenure.model.deltas import StepDelta, Steps
from tenure.model.errors import InvalidTransition
from tenure.model.places import Wrong, label
from tenure.model.snapshot import HostState, ItemState, StepState
from tenure.model.status import ENDED_HOST, ENDED_STEP, HostStatus, StepStatus
from tenure.model.tally import Tally, move
from tenure.model.update import HostChange, ItemChange, StepChange

_Item = TypeVar("_Item", bound=ItemState)

# Looked up once: on Python 3.11 naming a member costs nearly as much as a call.
_HOST_PENDING = HostStatus.PENDING
_HOST_RUNNING = HostStatus.RUNNING
_STEP_PENDING = StepStatus.PENDING
_STEP_RUNNING = StepStatus.RUNNING


def change_steps(
    run_id: str, steps: Steps, changes: dict[int, StepChange], at: datetime, tally: Tally
) -> dict[int, StepDelta]:
    changed: dict[int, StepDelta] = {}
    for index in sorted(changes) if len(changes) > 1 else changes:
        change = changes[index]
        step = before = steps.step(index)
        if step is None:
            step = _added_step(run_id, index, change, tally.steps_total)
            tally.steps_total += 1
            tally.hosts_total += len(step.hosts)
        step = _change_step(run_id, step, change, at, tally)
        delta = changed[index] = StepDelta(before, step, {})
        if change.hosts:
            _change_hosts(run_id, steps, delta, change.hosts, at, tally)
        if step.status in ENDED_STEP:
            check_hosts_ended(run_id, steps, delta)
    return changed


def _added_step(run_id: str, index: int, change: StepChange, total: int) -> StepState:
    if change.plan is None or index != total:
        raise InvalidTransition(
            run_id, f"has no step {index}; a new one needs a plan and is number {total}"
        )
    plan = change.plan
    return StepState(
        index=index,
        name=plan.name,
        kind=plan.kind,
        action=plan.action,
        notified_by=plan.notified_by,
        hosts={name: HostState() for name in plan.hosts},
    )


def _change_step(
    run_id: str, step: StepState, change: StepChange, at: datetime, tally: Tally
) -> StepState:
    """Its own fields."""
    old, new = step.status, change.status
    if new is not UNSET and new is not old:
        if new not in transitions.STEP[old]:
            raise InvalidTransition(run_id, f"{label(step)} cannot go from {old} to {new}")
        move(tally.steps, old, new)
        if new is _STEP_RUNNING:
            step = replace(step, status=new, started_at=at)
        else:
            step = replace(step, status=new, finished_at=at)
    elif old in ENDED_STEP and (change.message is not UNSET or change.hosts):
        raise InvalidTransition(run_id, f"{label(step)} ended as {old}")
    return step if change.message is UNSET else replace(step, message=change.message)


def _change_hosts(
    run_id: str,
    steps: Steps,
    delta: StepDelta,
    changes: dict[str, HostChange],
    at: datetime,
    tally: Tally,
) -> None:
    step = delta.after
    index, counts = step.index, tally.hosts
    if step.status is _STEP_PENDING:
        raise InvalidTransition(run_id, f"{label(step)} has not started")
    for name, change in changes.items():
        host = step.hosts.get(name) if delta.before is None else steps.host(index, name)
        if host is None:
            raise InvalidTransition(run_id, f"step {index} does not plan host {name!r}")
        try:
            changed = delta.hosts[name] = _change_host(host, change, at)
            if changed.status is not host.status:
                move(counts, host.status, changed.status)
        except Wrong as wrong:
            raise InvalidTransition(
                run_id, f"host {name!r} of {label(step)}{wrong.place} {wrong}"
            ) from None


def _change_host(host: HostState, change: HostChange, at: datetime) -> HostState:
    changed = _change_item(host, change, at)
    status = changed.status
    if change.items:
        changed = replace(changed, items=_change_items(host.items, change, at))
    if status is _HOST_PENDING:
        raise Wrong("has not started: nothing can be said of it yet")
    if changed.items and status is not _HOST_RUNNING:
        changed = close_items(changed)
    return changed


def _change_items(
    known: tuple[ItemState, ...], change: HostChange, at: datetime
) -> tuple[ItemState, ...]:
    items = list(known)
    for position, item_change in sorted(change.items.items()):
        if position == len(items):
            items.append(ItemState())
        elif not 0 <= position < len(items):
            raise Wrong(f"has {len(items)} items, not {position + 1}")
        try:
            items[position] = _change_item(items[position], item_change, at)
        except Wrong as wrong:
            wrong.place = f", item {position},"
            raise
    return tuple(items)


def _change_item(item: _Item, change: ItemChange, at: datetime) -> _Item:
    old, new = item.status, change.status
    moves = new is not UNSET and new is not old
    if old in ENDED_HOST or (moves and new not in transitions.HOST[old]):
        wanted = "change" if new is UNSET else f"go to {new}"
        raise Wrong(f"is {old} and cannot {wanted}")
    fields: dict[str, Any] = {}
    if moves:
        fields["status"] = new
        if new is _HOST_RUNNING:
            fields["started_at"] = at
            fields["finished_at"] = None
        else:
            fields["finished_at"] = at
    # One by one: nothing else here runs as often.
    if change.message is not UNSET:
        fields["message"] = change.message
    if change.kind is not UNSET:
        fields["kind"] = change.kind
    if change.exit_code is not UNSET:
        fields["exit_code"] = change.exit_code
    if change.attempts is not UNSET:
        fields["attempts"] = change.attempts
    if change.changed is not UNSET:
        fields["changed"] = change.changed
    if change.stdout is not UNSET:
        fields["stdout"] = change.stdout
    if change.stderr is not UNSET:
        fields["stderr"] = change.stderr
    if change.truncated is not UNSET:
        fields["truncated"] = change.truncated
    if change.vars is not UNSET:
        fields["vars"] = change.vars
    if change.withheld is not UNSET:
        fields["withheld"] = change.withheld
    return replace(item, **fields)
