"""``apply``: the one place where a status changes.

A store hands in the run as it stands, the update, and what only the store can know at that
instant; it gets back the run as it must be written, or an error and nothing to write.

A store that keeps rows need not load the whole run: the run's own fields, the steps and hosts
the update names (a host with its items), the running hosts of a step that the update ends and,
when it ends the run, every step and host that is running or unknown. What it leaves out has ended
or is pending, and pending needs no row: how it reads after an end follows from the end
(``close_step``), whoever asks and whenever.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, NamedTuple, TypeVar

from msgspec import UNSET
from msgspec.structs import replace

from tenure.model import transitions
from tenure.model.errors import InvalidTransition, StoreRejected
from tenure.model.events import Event
from tenure.model.judge import CHECKS, Check, Circumstances, Verdict, choose_effect, judge
from tenure.model.snapshot import Counts, ErrorInfo, HostState, ItemState, RunSnapshot, StepState
from tenure.model.status import (
    ENDED_HOST,
    ENDED_STEP,
    TERMINAL_RUN,
    HostStatus,
    RunStatus,
    StepStatus,
)
from tenure.model.update import (
    NO_RUN_CHANGE,
    Effect,
    HostChange,
    ItemChange,
    NewDelivery,
    RunChange,
    StepChange,
    Update,
)

_TICK = timedelta(microseconds=1)
_PLAIN_RUN_FIELDS = (
    "message",
    "error",
    "last_error",
    "interrupted_reason",
    "unconfirmed_hosts",
)
_PLAIN_ITEM_FIELDS = (
    "message",
    "exit_code",
    "attempts",
    "changed",
    "stdout",
    "stderr",
    "truncated",
    "vars",
)
_Item = TypeVar("_Item", bound=ItemState)

# Looked up once: on Python 3.11 naming a member costs nearly as much as a call.
_HOST_PENDING = HostStatus.PENDING
_HOST_RUNNING = HostStatus.RUNNING
_STEP_PENDING = StepStatus.PENDING
_STEP_RUNNING = StepStatus.RUNNING


class Applied(NamedTuple):
    snapshot: RunSnapshot
    version: int
    """What the writer is told; for a repetition the version of the first time."""
    effect: Effect | None
    """What to journal and to deliver; ``None`` when nothing is to be written."""


def apply(
    run: RunSnapshot,
    update: Update,
    *,
    at: datetime,
    circumstances: Circumstances = Circumstances(),
    checks: tuple[Check, ...] = CHECKS,
) -> Applied:
    """The run after ``update``, or a ``Refused`` error that leaves no trace."""
    _check_form(update)
    effect = choose_effect(run, update, circumstances.lease_live)
    verdict = judge(run, update, effect, circumstances, checks)
    if verdict is Verdict.AGAIN:
        return Applied(run, (update.base_version or 0) + 1, None)
    if verdict is Verdict.NOTHING:
        return Applied(run, run.version, None)
    if effect.deliveries:
        check_deliveries(run, effect.events, effect.deliveries)
    at = moved_forward(run, at)
    fields = _run_fields(run, effect.changes.run, at)
    if effect.changes.steps:
        _change_steps(run, effect.changes.steps, at, fields)
    if not fields and update.lease is None:
        return Applied(run, run.version, None)
    status = fields.get("status", run.status)
    if status == RunStatus.QUEUED and effect.changes.steps:
        raise InvalidTransition(run.run_id, "is queued: its steps cannot start before it does")
    if status in TERMINAL_RUN and run.status not in TERMINAL_RUN:
        _close_run(run, status, at, fields)
        _explain_end(run, status, fields)
    if "status" in fields and update.lease is None:
        fields["fence"] = run.fence + 1
    if update.release or status in TERMINAL_RUN:
        fields["owner_id"] = None
    version = run.version + 1
    return Applied(replace(run, version=version, updated_at=at, **fields), version, effect)


def moved_forward(run: RunSnapshot, at: datetime) -> datetime:
    """``at``, or just behind the run's newest moment if the clock has been set back."""
    newest = run.updated_at
    return at if newest is None or at > newest else newest + _TICK


def _check_form(update: Update) -> None:
    """What no well-made update looks like, whatever the run."""
    if update.lease is not None and update.base_version is None:
        raise StoreRejected(update.run_id, "an owner's update must name its base_version")
    if update.lease is None and update.release:
        raise StoreRejected(update.run_id, "only an owner can release")


def check_deliveries(
    run: RunSnapshot, events: tuple[Event, ...], deliveries: tuple[NewDelivery, ...]
) -> None:
    """Each must tell of an event that is there, to a target the run has."""
    known = {target.name for target in run.callbacks}
    for delivery in deliveries:
        if delivery.target not in known:
            raise StoreRejected(run.run_id, f"has no callback target {delivery.target!r}")
        if not 0 <= delivery.seq < len(events):
            raise StoreRejected(
                run.run_id, f"callback {delivery.id} tells of event {delivery.seq}: there is none"
            )


def _run_fields(run: RunSnapshot, change: RunChange, at: datetime) -> dict[str, Any]:
    """The run's own fields that really change; an empty answer means "already so"."""
    fields: dict[str, Any] = {}
    if change is NO_RUN_CHANGE:
        return fields
    if change.status is not UNSET and change.status != run.status:
        fields["status"] = change.status
        if change.status == RunStatus.RUNNING:
            fields["started_at"] = at
        elif change.status in TERMINAL_RUN:
            fields["finished_at"] = at
    for name in _PLAIN_RUN_FIELDS:
        value = getattr(change, name)
        if value is not UNSET and value != getattr(run, name):
            fields[name] = value
    if change.cancel is not UNSET and run.cancel_requested_at is None and not run.ended:
        fields["cancel_requested_at"] = at
        fields["cancel_reason"] = change.cancel.reason
    if change.approve is not UNSET and run.approval.at is None:
        fields["approval"] = replace(run.approval, by=change.approve, at=at)
    if change.annotate:
        known = {note.id for note in run.annotations}
        new = tuple(replace(note, at=at) for note in change.annotate if note.id not in known)
        if new:
            fields["annotations"] = run.annotations + new
    return fields


def _explain_end(run: RunSnapshot, status: RunStatus, fields: dict[str, Any]) -> None:
    """A failed or interrupted run always says why, even if its writer did not."""
    if status not in (RunStatus.FAILED, RunStatus.INTERRUPTED):
        return
    error: ErrorInfo | None = fields.get("error", run.error)
    if error is None:
        said = fields.get("interrupted_reason", run.interrupted_reason)
        message = said or fields.get("message", run.message) or "no reason was given"
        error = fields["error"] = ErrorInfo(kind=status.value, message=message)
    if "last_error" not in fields:
        fields["last_error"] = error


def _change_steps(
    run: RunSnapshot, changes: dict[int, StepChange], at: datetime, fields: dict[str, Any]
) -> None:
    steps = {step.index: step for step in run.steps}
    tally = _Tally(run.counts)
    for index, change in sorted(changes.items()):
        step = steps.get(index)
        if step is None:
            step = _added_step(run, index, change, tally.steps_total)
            tally.steps_total += 1
            tally.hosts_total += len(step.hosts)
        steps[index] = _change_step(run.run_id, step, change, at, tally)
    fields["steps"] = tuple(steps.values())
    fields["counts"] = tally.counts()
    if tally.host_finished and run.takeovers_without_progress:
        fields["takeovers_without_progress"] = 0


def _added_step(run: RunSnapshot, index: int, change: StepChange, total: int) -> StepState:
    if change.plan is None or index != total:
        raise InvalidTransition(
            run.run_id, f"has no step {index}; a new one needs a plan and is number {total}"
        )
    plan = change.plan
    return StepState(
        index=index,
        name=plan.name,
        kind=plan.kind,
        action=plan.action,
        hosts={name: HostState() for name in plan.hosts},
    )


def _change_step(
    run_id: str, step: StepState, change: StepChange, at: datetime, tally: _Tally
) -> StepState:
    fields: dict[str, Any] = {}
    if change.message is not UNSET:
        fields["message"] = change.message
    if change.status is not UNSET and change.status != step.status:
        if change.status not in transitions.STEP[step.status]:
            raise InvalidTransition(
                run_id,
                f"{_label(step)} cannot go from {step.status} to {change.status}",
            )
        tally.step(step.status, change.status)
        fields["status"] = change.status
        if change.status == _STEP_RUNNING:
            fields["started_at"] = at
        else:
            fields["finished_at"] = at
    elif step.status in ENDED_STEP and (fields or change.hosts):
        raise InvalidTransition(run_id, f"{_label(step)} ended as {step.status}")
    if change.hosts:
        if fields.get("status", step.status) == _STEP_PENDING:
            raise InvalidTransition(run_id, f"{_label(step)} has not started")
        hosts = step.hosts.copy()
        for name, host_change in change.hosts.items():
            host = hosts.get(name)
            if host is None:
                raise InvalidTransition(run_id, f"step {step.index} does not plan host {name!r}")
            changed = _change_host(run_id, step, name, host, host_change, at)
            tally.host(host.status, changed.status)
            hosts[name] = changed
        fields["hosts"] = hosts
    changed_step = replace(step, **fields) if fields else step
    if changed_step.status in ENDED_STEP:
        _check_hosts_ended(run_id, changed_step)
        changed_step = close_hosts(changed_step)
    return changed_step


def _check_hosts_ended(run_id: str, step: StepState) -> None:
    for name, host in step.hosts.items():
        if host.status == _HOST_RUNNING:
            raise InvalidTransition(
                run_id, f"{_label(step)} cannot end: host {name!r} is still running"
            )


def _label(step: StepState) -> str:
    return f"step {step.index} ({step.name})" if step.name else f"step {step.index}"


def _change_host(
    run_id: str, step: StepState, name: str, host: HostState, change: HostChange, at: datetime
) -> HostState:
    try:
        changed = _change_item(host, change, at)
        if change.items:
            changed = replace(changed, items=_change_items(host.items, change, at))
        _check_started(changed)
        if changed.items and changed.status != _HOST_RUNNING:
            changed = _close_items(changed)
    except _Wrong as wrong:
        raise InvalidTransition(
            run_id, f"host {name!r} of {_label(step)}{wrong.place} {wrong}"
        ) from None
    return changed


def _check_started(host: HostState) -> None:
    if host.status == _HOST_PENDING:
        raise _Wrong("has not started: nothing can be said of it yet")


class _Wrong(Exception):
    """What is wrong with a host or an item; the caller knows whose it is."""

    place = ""


def _change_items(
    known: tuple[ItemState, ...], change: HostChange, at: datetime
) -> tuple[ItemState, ...]:
    items = list(known)
    for position, item_change in sorted(change.items.items()):
        if position == len(items):
            items.append(ItemState())
        elif not 0 <= position < len(items):
            raise _Wrong(f"has {len(items)} items, not {position + 1}")
        try:
            items[position] = _change_item(items[position], item_change, at)
        except _Wrong as wrong:
            wrong.place = f", item {position},"
            raise
    return tuple(items)


def _close_items(host: HostState) -> HostState:
    """The items of a host that ended, or of which nobody knows, follow it."""
    items = list(host.items)
    for position, item in enumerate(items):
        end = item.status
        if item.status == _HOST_PENDING:
            end = transitions.ITEM_NOT_REACHED.get(host.status, item.status)
        elif item.status == _HOST_RUNNING:
            if host.status not in transitions.ITEM_CUT_SHORT:
                raise _Wrong(f"cannot end: its item {position} is still running")
            end = transitions.ITEM_CUT_SHORT[host.status]
        if end is not item.status:
            items[position] = replace(item, status=end, finished_at=host.finished_at)
    return replace(host, items=tuple(items))


def _change_item(item: _Item, change: ItemChange, at: datetime) -> _Item:
    status = change.status
    if item.status in ENDED_HOST or (
        status is not UNSET
        and status != item.status
        and status not in transitions.HOST[item.status]
    ):
        wanted = "change" if status is UNSET else f"go to {status}"
        raise _Wrong(f"is {item.status} and cannot {wanted}")
    fields: dict[str, Any] = {}
    for name in _PLAIN_ITEM_FIELDS:
        value = getattr(change, name)
        if value is not UNSET:
            fields[name] = value
    if status is not UNSET and status != item.status:
        fields["status"] = status
        if status == _HOST_RUNNING:
            fields["started_at"] = at
            fields["finished_at"] = None
        else:
            fields["finished_at"] = at
    return replace(item, **fields)


def _close_run(run: RunSnapshot, status: RunStatus, at: datetime, fields: dict[str, Any]) -> None:
    """Nothing stays pending or running in a run that ended."""
    steps: tuple[StepState, ...] = fields.get("steps", run.steps)
    tally = _Tally(fields.get("counts", run.counts))
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
    tally: _Tally,
    cut_short: list[str],
) -> StepState:
    running = [name for name, host in step.hosts.items() if host.status == _HOST_RUNNING]
    if status == RunStatus.SUCCESS and (running or step.status == _STEP_RUNNING):
        what = f"host {running[0]!r}" if running else "the step"
        raise InvalidTransition(run_id, f"cannot succeed: {_label(step)}: {what} is still running")
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


def close_hosts(step: StepState) -> StepState:
    """How the hosts of an ended step read: those that never started say why."""
    pending = [name for name, host in step.hosts.items() if host.status == _HOST_PENDING]
    if not pending:
        return step
    end = transitions.HOST_NOT_REACHED[step.status]
    closed = dict.fromkeys(pending, HostState(status=end, finished_at=step.finished_at))
    return replace(step, hosts=step.hosts | closed)


class _Tally:
    """Counts of what was reached, moved along as statuses move."""

    def __init__(self, counts: Counts) -> None:
        self.steps = counts.steps.copy()
        self.hosts = counts.hosts.copy()
        self.steps_total = counts.steps_total
        self.hosts_total = counts.hosts_total
        self.host_finished = False

    def step(self, old: StepStatus, new: StepStatus) -> None:
        _move(self.steps, None if old == _STEP_PENDING else old, new)

    def host(self, old: HostStatus, new: HostStatus) -> None:
        if old != new:
            _move(self.hosts, None if old == _HOST_PENDING else old, new)
            if new in ENDED_HOST:
                self.host_finished = True

    def counts(self) -> Counts:
        return Counts(
            steps=self.steps,
            hosts=self.hosts,
            steps_total=self.steps_total,
            hosts_total=self.hosts_total,
        )


_Key = TypeVar("_Key")


def _move(counts: dict[_Key, int], old: _Key | None, new: _Key) -> None:
    """Pending is not counted: nothing is taken away for it."""
    if old is not None:
        left = counts[old] - 1
        if left:
            counts[old] = left
        else:
            del counts[old]
    counts[new] = counts.get(new, 0) + 1
