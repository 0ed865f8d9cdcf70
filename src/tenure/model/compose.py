"""Build complete updates, so that no writer forgets an event or a callback.

Every status an update sets becomes an event, and every event of a kind that a callback target asked
for becomes a delivery. All changes of a run (by owner, reconciler, operator) are built by
``effect_of``, which adds both.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from tenure.model.snapshot import Annotation, CallbackTarget, ErrorInfo, RunSnapshot
from tenure.model.status import HostStatus, RunStatus, StepStatus
from tenure.model.update import (
    CallbackFailure,
    CancelRequest,
    Changes,
    Consent,
    Effect,
    Event,
    HostChange,
    LeaseRequest,
    NewDelivery,
    NewRun,
    RunChange,
    Update,
)

OPERATOR_EVENTS = frozenset(
    {"cancel.requested", "run.approved", "run.annotated", "callback.redelivered"}
)
"""Events of actions by operators, not by the owner."""
_ERROR_STATUSES = frozenset({"failed", "unreachable", "unknown", "interrupted"})
"""Statuses of a step or host whose events carry an error."""


def effect_of(
    snapshot: RunSnapshot, changes: Changes, delivery_ids: Iterator[str], *extra: Event
) -> Effect:
    """The changes with every event they imply and every callback for those events."""
    events = describe(snapshot, changes) + extra
    return Effect(
        changes=changes,
        events=events,
        deliveries=address(snapshot.callbacks, events, delivery_ids),
    )


def new_run(
    snapshot: RunSnapshot,
    update_id: str,
    delivery_ids: Iterator[str],
    *,
    by: str | None = None,
    definition: str | None = None,
    lease: LeaseRequest | None = None,
    approval_seconds: float | None = None,
) -> NewRun:
    """A creation with its first events; ``by`` names the submitter. A run's life begins with
    ``queued``, also if it is running when it is created."""
    queued = _run_event(RunChange(status=RunStatus.QUEUED))
    first = replace(queued, data={"by": by}) if by else queued
    events = (first, *_born_running(snapshot))
    return NewRun(
        snapshot=snapshot,
        update_id=update_id,
        definition=definition,
        lease=lease,
        approval_seconds=approval_seconds,
        events=events,
        deliveries=address(snapshot.callbacks, events, delivery_ids),
    )


def cancel(
    snapshot: RunSnapshot,
    update_id: str,
    delivery_ids: Iterator[str],
    *,
    reason: str | None = None,
    by: str | None = None,
) -> Update:
    """Ask the owner to stop; without a live owner, end the run in the same write."""
    request = CancelRequest(reason=reason, by=by)
    asked = Event(type="cancel.requested", message=reason, data={"by": by} if by else None)
    ended = RunChange(
        status=RunStatus.CANCELED,
        message=reason or "canceled before anybody was running it",
        cancel=request,
    )
    return Update(
        run_id=snapshot.run_id,
        update_id=update_id,
        effect=Effect(changes=Changes(run=RunChange(cancel=request)), events=(asked,)),
        if_unowned=effect_of(snapshot, Changes(run=ended), delivery_ids, asked),
    )


def annotate(run_id: str, annotation: Annotation) -> Update:
    """The annotation's id is the update's id too: sent twice, it is stored once."""
    said = Event(type="run.annotated", data={"by": annotation.by, "data": annotation.data})
    return Update(
        run_id=run_id,
        update_id=annotation.id,
        effect=Effect(changes=Changes(run=RunChange(annotate=(annotation,))), events=(said,)),
    )


def callback_failed(
    run_id: str, base_version: int, update_id: str, failure: CallbackFailure
) -> Update:
    """Record that a callback without an outbox was given up.

    Two equal failures are two failures, so the update names its base: after ``VersionConflict`` it
    is sent again on the newer version, and after a lost answer it is recognised.
    """
    said = Event(
        type="callback.failed",
        message=failure.error,
        data={"target": failure.target, "event": failure.event, "attempts": failure.attempts},
    )
    return Update(
        run_id=run_id,
        update_id=update_id,
        base_version=base_version,
        effect=Effect(changes=Changes(run=RunChange(callback_failed=failure)), events=(said,)),
    )


def redelivered(
    run_id: str, base_version: int, update_id: str, by: str | None, **what: str
) -> Update:
    """A request to send a callback again. It names its base, as ``callback_failed`` does."""
    said = Event(type="callback.redelivered", data={"by": by, **what})
    return Update(
        run_id=run_id,
        update_id=update_id,
        base_version=base_version,
        effect=Effect(changes=Changes(run=RunChange(journal_only=True)), events=(said,)),
    )


def approve(run_id: str, update_id: str, by: str, note: str | None = None) -> Update:
    """Approve on any base: the first approval stands, and repeating it changes nothing."""
    said = Event(type="run.approved", message=note, data={"by": by})
    yes = RunChange(approve=Consent(by=by, note=note))
    return Update(
        run_id=run_id,
        update_id=update_id,
        effect=Effect(changes=Changes(run=yes), events=(said,)),
    )


def expire(snapshot: RunSnapshot, update_id: str, delivery_ids: Iterator[str]) -> Update:
    """End a run that was not approved in time; refused while it can be approved, or if it was."""
    ended = RunChange(
        status=RunStatus.CANCELED,
        message="canceled: not approved in time",
        if_overdue=True,
    )
    return Update(
        run_id=snapshot.run_id,
        update_id=update_id,
        base_version=snapshot.version,
        effect=effect_of(snapshot, Changes(run=ended), delivery_ids),
    )


def describe(snapshot: RunSnapshot, changes: Changes) -> tuple[Event, ...]:
    """One event for each status the changes set. A parent's start comes before its parts' events,
    its end after them.

    ``snapshot`` is used for names only; it may be older than the update.
    """
    events: list[Event] = []
    run, planned = changes.run, snapshot.steps
    for index, step in changes.steps.items():
        plan = step.plan or (planned[index] if index < len(planned) else None)
        name = plan.name if plan is not None else None
        before = len(events)
        for host, change in step.hosts.items():
            if change.status is not UNSET:
                events.append(_host_event(name, index, host, change.status, change))
        if step.status is not UNSET:
            place = before if step.status == "running" else len(events)
            events.insert(place, _step_event(name, index, step.status, step.message, step.error))
    if run.status is not UNSET:
        events.insert(0 if run.status == "running" else len(events), _run_event(run))
    return tuple(events)


def _run_event(run: RunChange) -> Event:
    return Event(
        type=f"run.{run.status}",
        status=str(run.status),
        message=run.message or None,
        error=run.error or None,
    )


def _step_event(
    name: str | None,
    index: int,
    status: StepStatus,
    message: str | UnsetType | None,
    error: ErrorInfo | UnsetType = UNSET,
) -> Event:
    said = None if message is UNSET else message
    return Event(
        type="step." + status,
        status=str(status),
        step=name,
        step_index=index,
        message=said,
        error=error or (_error(status, said, step=name) if status in _ERROR_STATUSES else None),
    )


def _host_event(
    step: str | None, index: int, host: str, status: HostStatus, change: HostChange = HostChange()
) -> Event:
    return Event(
        type="host." + status,
        status=status,
        step=step,
        step_index=index,
        host=host,
        message=change.message or None,
        error=_host_error(step, host, change) if status in _ERROR_STATUSES else None,
    )


def _host_error(step: str | None, host: str, change: HostChange) -> ErrorInfo:
    return _error(
        change.status,
        change.message or None,
        kind=change.kind or None,
        step=step,
        host=host,
        exit_code=change.exit_code or None,
    )


def _error(
    status: object, message: str | None, *, kind: str | None = None, **where: Any
) -> ErrorInfo:
    return ErrorInfo(kind=kind or str(status), message=message or str(status), **where)


def address(
    callbacks: tuple[CallbackTarget, ...], events: tuple[Event, ...], delivery_ids: Iterator[str]
) -> tuple[NewDelivery, ...]:
    """The callbacks these events owe: one per event and target that asked for its kind."""
    if not callbacks:
        return ()
    return tuple(
        NewDelivery(id=next(delivery_ids), target=target.name, seq=seq)
        for seq, event in enumerate(events)
        if event.status is not None
        for target in callbacks
        if event.kind in target.events
    )


def _born_running(snapshot: RunSnapshot) -> list[Event]:
    """What has begun in the snapshot of a creation: the run itself, and its first intents."""
    if snapshot.status is RunStatus.QUEUED:
        return []
    events = [_run_event(RunChange(status=snapshot.status))]
    for step in snapshot.steps:
        if step.status == "pending":
            continue
        events.append(_step_event(step.name, step.index, step.status, step.message))
        for name, host in step.hosts.items():
            if host.status != "pending":
                events.append(_host_event(step.name, step.index, name, host.status))
    return events
