"""An owner's changes of steps, hosts and loop items: whether they are allowed, and their result."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Protocol, TypeVar

from msgspec import UNSET, Struct
from msgspec.structs import replace

from tenure.model import status
from tenure.model import status as transitions
from tenure.model.errors import InvalidTransition
from tenure.model.snapshot import HostState, ItemState, RunSnapshot, StepState, Tally, move
from tenure.model.status import (
    ENDED_HOST,
    ENDED_STEP,
    OPEN_HOST,
    TERMINAL_RUN,
    HostStatus,
    RunStatus,
    StepStatus,
)
from tenure.model.update import Effect, HostChange, ItemChange, StepChange


class InvalidReport(Exception):
    """An invalid change of a host or item; the caller adds which one. ``place`` names the item."""

    place = ""


def label(step: StepState) -> str:
    return f"step {step.index} ({step.name})" if step.name else f"step {step.index}"


# Changes as differences. A store that keeps whole records passes and gets snapshots (``apply``);
# one that keeps rows answers for single steps and hosts, and writes only what differs.


class Steps(Protocol):
    """The part of a run's steps that decisions read."""

    def step(self, index: int) -> StepState | None:
        """The step; the content of its ``hosts`` does not matter."""

    def host(self, index: int, name: str) -> HostState | None:
        """With its items. ``None`` if this step, which has not ended, does not have the host."""

    def open_hosts(self, index: int) -> dict[str, HostState]:
        """The running and unknown ones."""

    def unfinished(self) -> Iterable[StepState]:
        """Steps that the end of the run changes: running ones, and those with open hosts."""


def concerns_steps(effect: Effect) -> bool:
    """Whether an effect changes steps or ends the run."""
    return bool(effect.changes.steps) or effect.changes.run.status in TERMINAL_RUN


class StepDelta(Struct, gc=False):
    before: StepState | None
    """``None`` for an added step; its planned hosts are then those of ``after``."""
    after: StepState
    """The step's own fields; the same object as ``before`` if only hosts changed."""
    hosts: dict[str, HostState]
    """Changed hosts, in their new state."""


class Decision(Struct, frozen=True, gc=False):
    """What to write. Parts that have not started when their step or run ends are left out: their
    state follows from the end (``close_step``, ``close_hosts``) whenever they are read."""

    version: int
    """The version to report to the writer; for a repetition that of the first time."""
    effect: Effect | None = None
    """What to journal and to deliver; ``None`` if nothing is to be written."""
    at: datetime | None = None
    fields: dict[str, Any] = {}
    """Changed fields of the run itself, without version and ``updated_at``."""
    steps: dict[int, StepDelta] = {}

    def own_fields(self, run: RunSnapshot) -> RunSnapshot:
        """The run after the change, with its steps as before."""
        return replace(run, version=self.version, updated_at=self.at, **self.fields)


# What an end does to the parts: of a run to its steps, of a step to its hosts, of a host to its
# items. The tables are in ``status``.


def cut_short(
    run_id: str,
    steps: Steps,
    changed: dict[int, StepDelta],
    status: RunStatus,
    at: datetime,
    tally: Tally,
) -> list[str]:
    """End everything that still runs in a run that ended: updates ``changed``, returns the hosts
    that were stopped."""
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
    """``hosts``: those that were open or changed, in their present state; no other can run."""
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
    """Stop a running host with its run. Items of a host that stays unknown are closed too: the run
    has ended, and they will not be looked for again."""
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
    """How a step of an ended run reads: one that was not reached says why."""
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
    """How the hosts of an ended step read: those that did not start say why."""
    pending = [name for name, host in step.hosts.items() if host.status == _HOST_PENDING]
    if not pending:
        return step
    end = transitions.HOST_NOT_REACHED[step.status]
    closed = dict.fromkeys(pending, HostState(status=end, finished_at=step.finished_at))
    return replace(step, hosts=step.hosts | closed)


def close_items(host: HostState) -> HostState:
    """Close the items of a host that ended or became unknown."""
    items = list(host.items)
    for position, item in enumerate(items):
        end = item.status
        if item.status == _HOST_PENDING:
            end = transitions.ITEM_NOT_REACHED.get(host.status, item.status)
        elif item.status == _HOST_RUNNING:
            if host.status not in transitions.ITEM_CUT_SHORT:
                raise InvalidReport(f"cannot end: its item {position} is still running")
            end = transitions.ITEM_CUT_SHORT[host.status]
        if end is not item.status:
            items[position] = replace(item, status=end, finished_at=host.finished_at)
    return replace(host, items=tuple(items))


# Changes of steps, hosts and items as their owner reports them.

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
    """Change the step's own fields."""
    old, new = step.status, change.status
    if new is not UNSET and new is not old:
        if new not in status.STEP[old]:
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
        except InvalidReport as wrong:
            raise InvalidTransition(
                run_id, f"host {name!r} of {label(step)}{wrong.place} {wrong}"
            ) from None


def _change_host(host: HostState, change: HostChange, at: datetime) -> HostState:
    changed = _change_item(host, change, at)
    status = changed.status
    if change.items:
        changed = replace(changed, items=_change_items(host.items, change, at))
    if status is _HOST_PENDING:
        raise InvalidReport("has not started: nothing can be said of it yet")
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
            raise InvalidReport(f"has {len(items)} items, not {position + 1}")
        try:
            items[position] = _change_item(items[position], item_change, at)
        except InvalidReport as wrong:
            wrong.place = f", item {position},"
            raise
    return tuple(items)


def _change_item(item: _Item, change: ItemChange, at: datetime) -> _Item:
    old, new = item.status, change.status
    moves = new is not UNSET and new is not old
    if old in ENDED_HOST or (moves and new not in status.HOST[old]):
        wanted = "change" if new is UNSET else f"go to {new}"
        raise InvalidReport(f"is {old} and cannot {wanted}")
    fields: dict[str, Any] = {}
    if moves:
        fields["status"] = new
        if new is _HOST_RUNNING:
            fields["started_at"] = at
            fields["finished_at"] = None
        else:
            fields["finished_at"] = at
    # One by one, not in a loop: nothing else here runs as often.
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
