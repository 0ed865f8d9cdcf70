"""``apply``: the one way by which a status changes. ``progress`` knows steps and hosts, ``closing``
what an end does to the rest.

A store hands in the run as it stands, the update, and what only the store can know at that
instant; it gets back the run as it must be written, or an error and nothing to write.

A store that keeps rows need not load the whole run: the run's own fields, the steps and hosts
the update names (a host with its items), the running hosts of a step that the update ends and,
when it ends the run, every step and host that is running or unknown. What it leaves out has ended
or is pending, and pending needs no row: how it reads after an end follows from the end
(``closing.close_step``), whoever asks and whenever.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, NamedTuple

from msgspec import UNSET
from msgspec.structs import replace

from tenure.model.approving import check_approval
from tenure.model.closing import close_run
from tenure.model.errors import InvalidTransition, StoreRejected
from tenure.model.events import Event
from tenure.model.judge import CHECKS, Check, Circumstances, Verdict, choose_effect, judge
from tenure.model.progress import change_steps
from tenure.model.snapshot import CallbackError, ErrorInfo, RunSnapshot
from tenure.model.status import TERMINAL_RUN, RunStatus
from tenure.model.update import (
    NO_RUN_CHANGE,
    CallbackFailure,
    Effect,
    NewDelivery,
    RunChange,
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
    if effect.changes.run is not NO_RUN_CHANGE:
        check_approval(run, effect.changes.run, at)
    if effect.deliveries:
        check_deliveries(run, effect.events, effect.deliveries)
    at = moved_forward(run, at)
    fields = _run_fields(run, effect.changes.run, at)
    if effect.changes.steps:
        change_steps(run, effect.changes.steps, at, fields)
    if not fields and update.lease is None:
        return Applied(run, run.version, None)
    status = fields.get("status", run.status)
    if status == RunStatus.QUEUED and effect.changes.steps:
        raise InvalidTransition(run.run_id, "is queued: its steps cannot start before it does")
    if status in TERMINAL_RUN and run.status not in TERMINAL_RUN:
        close_run(run, status, at, fields)
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
        yes = change.approve
        fields["approval"] = replace(run.approval, by=yes.by, note=yes.note, at=at)
    if change.annotate:
        known = {note.id for note in run.annotations}
        new = tuple(replace(note, at=at) for note in change.annotate if note.id not in known)
        if new:
            fields["annotations"] = run.annotations + new
    if change.callback_failed is not UNSET:
        fields["callback_error"] = _callback_error(change.callback_failed, at)
    return fields


def _callback_error(failure: CallbackFailure, at: datetime) -> CallbackError:
    return CallbackError(
        target=failure.target,
        event=failure.event,
        error=failure.error,
        attempts=failure.attempts,
        at=at,
    )


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
