"""``decide``: the one place where a status changes. ``judge`` says whether an update may be written
at all, ``progress`` knows steps and hosts, ``closing`` what an end does to the rest.

A store asks with the run as it stands, the update, and what only the store can know at that
instant; it gets what is to be written, or an error and nothing to write.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from tenure.model.approving import check_approval
from tenure.model.closing import cut_short
from tenure.model.deltas import Decision, StepDelta, Steps
from tenure.model.errors import InvalidTransition, StoreRejected
from tenure.model.events import Event
from tenure.model.judge import CHECKS, Check, Circumstances, Verdict, choose_effect, judge
from tenure.model.progress import change_steps
from tenure.model.snapshot import CallbackError, ErrorInfo, RunSnapshot
from tenure.model.status import ENDED_HOST, TERMINAL_RUN, RunStatus
from tenure.model.tally import Tally
from tenure.model.update import (
    NO_RUN_CHANGE,
    CallbackFailure,
    NewDelivery,
    RunChange,
    Update,
)

# Looked up once: on Python 3.11 naming a member costs nearly as much as a call.
_QUEUED = RunStatus.QUEUED
_WRITE = Verdict.WRITE

_TICK = timedelta(microseconds=1)
_PLAIN_RUN_FIELDS = (
    "message",
    "error",
    "last_error",
    "interrupted_reason",
    "unconfirmed_hosts",
)


def decide(
    run: RunSnapshot,
    steps: Steps,
    update: Update,
    *,
    at: datetime,
    circumstances: Circumstances = Circumstances(),
    checks: tuple[Check, ...] = CHECKS,
) -> Decision:
    """What ``update`` changes, or a ``Refused`` error. Of ``run`` its own fields are asked, of
    its callbacks only if there are deliveries."""
    effect = update.effect
    if update.if_unowned is not None:
        effect = choose_effect(run, update, circumstances.lease_live)
    verdict = judge(run, update, effect, circumstances, checks)
    if verdict is not _WRITE:
        again = verdict is Verdict.AGAIN
        return Decision((update.base_version or 0) + 1 if again else run.version)
    change, changes = effect.changes.run, effect.changes.steps
    if change is not NO_RUN_CHANGE:
        check_approval(run, change, at)
    if effect.deliveries:
        check_deliveries(run, effect.events, effect.deliveries)
    at = moved_forward(run, at)
    fields = {} if change is NO_RUN_CHANGE else _run_fields(run, change, at)
    changed: dict[int, StepDelta] = {}
    tally: Tally | None = None
    if changes:
        tally = Tally.of(run.counts)
        changed = change_steps(run.run_id, steps, changes, at, tally)
        if run.takeovers_without_progress and _a_host_ended(changed):
            fields["takeovers_without_progress"] = 0
    elif not fields and update.lease is None and not change.journal_only:
        return Decision(run.version)
    status = fields.get("status", run.status)
    if changes and status is _QUEUED:
        raise InvalidTransition(run.run_id, "is queued: its steps cannot start before it does")
    if status in TERMINAL_RUN:
        fields["owner_id"] = None
        if run.status not in TERMINAL_RUN:
            tally = tally or Tally.of(run.counts)
            stopped = cut_short(run.run_id, steps, changed, status, at, tally)
            _explain_end(run, status, stopped, fields)
    elif update.release:
        fields["owner_id"] = None
    if tally is not None:
        fields["counts"] = tally.counts()
    if "status" in fields and update.lease is None:
        fields["fence"] = run.fence + 1
    return Decision(run.version + 1, effect, at, fields, changed)


def moved_forward(run: RunSnapshot, at: datetime) -> datetime:
    """``at``, or just behind the run's newest moment if the clock has been set back."""
    newest = run.updated_at
    return at if newest is None or at > newest else newest + _TICK


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


def _a_host_ended(changed: dict[int, StepDelta]) -> bool:
    """Just now: one that ended before cannot change."""
    hosts = (host for delta in changed.values() for host in delta.hosts.values())
    return any(host.status in ENDED_HOST for host in hosts)


def _run_fields(run: RunSnapshot, change: RunChange, at: datetime) -> dict[str, Any]:
    """The run's own fields that really change; an empty answer means "already so"."""
    fields: dict[str, Any] = {}
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


def _explain_end(
    run: RunSnapshot, status: RunStatus, stopped: list[str], fields: dict[str, Any]
) -> None:
    """A failed or interrupted run always says why, even if its writer did not; a canceled one on
    which hosts something may still be going on."""
    if stopped and status == RunStatus.CANCELED:
        confirmed_not = fields.get("unconfirmed_hosts", run.unconfirmed_hosts)
        fields["unconfirmed_hosts"] = tuple(sorted({*confirmed_not, *stopped}))
    if status not in (RunStatus.FAILED, RunStatus.INTERRUPTED):
        return
    error: ErrorInfo | None = fields.get("error", run.error)
    if error is None:
        said = fields.get("interrupted_reason", run.interrupted_reason)
        message = said or fields.get("message", run.message) or "no reason was given"
        error = fields["error"] = ErrorInfo(kind=status.value, message=message)
    if "last_error" not in fields:
        fields["last_error"] = error
