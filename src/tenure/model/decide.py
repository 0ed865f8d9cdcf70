"""``decide``: the one place where a status changes.

A store passes the run, the update, and what only the store knows at that instant; it gets what is
to be written, or an error and nothing to write. ``judge`` checks whether an update may be written
at all; ``progress`` does steps and hosts; ``apply`` is for stores that keep whole snapshots.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, NamedTuple

from msgspec import UNSET
from msgspec.structs import replace

from tenure.model import status as transitions
from tenure.model.errors import (
    InvalidTransition,
    LeaseHeld,
    LeaseLost,
    StoreRejected,
    VersionConflict,
)
from tenure.model.progress import (
    Decision,
    StepDelta,
    Steps,
    change_steps,
    close_hosts,
    close_step,
    cut_short,
)
from tenure.model.snapshot import (
    Approval,
    CallbackError,
    ErrorInfo,
    HostState,
    RunSnapshot,
    RunSummary,
    StepState,
    Tally,
)
from tenure.model.status import (
    ENDED_HOST,
    ENDED_STEP,
    OPEN_HOST,
    TERMINAL_RUN,
    RunStatus,
    StepStatus,
    plain_members,
)
from tenure.model.update import (
    NO_RUN_CHANGE,
    CallbackFailure,
    Effect,
    Event,
    NewDelivery,
    NewRun,
    RunChange,
    Update,
)

# The checks, in the order that is part of the contract. The first one that returns a verdict or
# raises decides. The order is what makes the answers safe:
#
# 1. *ownership first*, before repetition: a replaced owner re-sends an intent that was applied;
#    told "ok" it would start the task beside its successor's. Fence **and** owner must match: a
#    restored database can hand out a fence number twice.
# 2. *repetition* before everything that depends on the base: after a lost answer the base is
#    stale by the writer's own success.
# 3. *same end*: ending a run twice the same way is agreement, not an error.
# 4. *released*: the run has no owner; its last one may repeat (2, 3) but not write anew.
# 5. *held*: under a live lease, as judged by the store in this statement, others may request a
#    cancel, approve, annotate and record a failed callback, and nothing else.
# 6. *base*, then 7. *transition*.


# Looked up once: on Python 3.11 naming a member costs nearly as much as a call.
_RUNNING = RunStatus.RUNNING


@plain_members
class Verdict(Enum):
    WRITE = "write"
    AGAIN = "again"
    """Applied before: the first answer is returned again."""
    NOTHING = "nothing"
    """Already so: the present state is returned, nothing written."""


class Circumstances(NamedTuple):
    """What only the store knows at the instant of the statement."""

    lease_live: bool = False
    """The run has an owner whose lease has not expired, by the store's clock."""
    applied_id: str | None = None
    """The ``update_id`` of journal row ``base_version + 1``; needed only for a stale base."""
    lease_expires_at: datetime | None = None


Check = Callable[[RunSnapshot, Update, Effect, Circumstances], Verdict | None]


def judge(
    run: RunSnapshot,
    update: Update,
    effect: Effect,
    circumstances: Circumstances,
    checks: tuple[Check, ...],
) -> Verdict:
    if checks is CHECKS and _beyond_doubt(run, update, effect):
        return _WRITE
    _check_form(update)
    for check in checks:
        verdict = check(run, update, effect, circumstances)
        if verdict is not None:
            return verdict
    return Verdict.WRITE


def _beyond_doubt(run: RunSnapshot, update: Update, effect: Effect) -> bool:
    """Shortcut for the common case: the owner's next update of its running run, which passes every
    check. A test compares this shortcut with them."""
    lease = update.lease
    return (
        lease is not None
        and lease.fence == run.fence
        and lease.owner_id == run.owner_id
        and update.base_version == run.version
        and run.status is _RUNNING
        and effect.changes.run.status is not _QUEUED
    )


def _check_form(update: Update) -> None:
    """``StoreRejected`` for an update that is malformed, whatever the run."""
    if update.lease is not None and update.base_version is None:
        raise StoreRejected(update.run_id, "an owner's update must name its base_version")
    if update.lease is None and update.release:
        raise StoreRejected(update.run_id, "only an owner can release")
    if update.base_version is None and update.effect.changes.run.journal_only:
        raise StoreRejected(update.run_id, "an update without changes must name its base_version")


def choose_effect(run: RunSnapshot, update: Update, lease_live: bool) -> Effect:
    """``if_unowned`` for an unfinished run without a live owner, else the plain effect."""
    if update.if_unowned is None or lease_live or run.status in TERMINAL_RUN:
        return update.effect
    return update.if_unowned


def check_ownership(
    run: RunSnapshot, update: Update, effect: Effect, circumstances: Circumstances
) -> Verdict | None:
    lease = update.lease
    if lease is None:
        return None
    if lease.fence != run.fence or (run.owner_id is not None and lease.owner_id != run.owner_id):
        raise LeaseLost(run.run_id, fence=run.fence, owner_id=run.owner_id)
    return None


def check_repetition(
    run: RunSnapshot, update: Update, effect: Effect, circumstances: Circumstances
) -> Verdict | None:
    base = update.base_version
    stale = base is not None and base < run.version
    return Verdict.AGAIN if stale and circumstances.applied_id == update.update_id else None


def check_same_end(
    run: RunSnapshot, update: Update, effect: Effect, circumstances: Circumstances
) -> Verdict | None:
    same = run.status in TERMINAL_RUN and effect.changes.run.status == run.status
    return Verdict.NOTHING if same else None


def check_released(
    run: RunSnapshot, update: Update, effect: Effect, circumstances: Circumstances
) -> Verdict | None:
    if update.lease is not None and run.owner_id is None:
        raise LeaseLost(run.run_id, fence=run.fence, owner_id=None)
    return None


def check_held(
    run: RunSnapshot, update: Update, effect: Effect, circumstances: Circumstances
) -> Verdict | None:
    if update.lease is None and circumstances.lease_live and _is_the_owners(effect):
        raise LeaseHeld(
            run.run_id, owner_id=run.owner_id, expires_at=circumstances.lease_expires_at
        )
    return None


def check_base(
    run: RunSnapshot, update: Update, effect: Effect, circumstances: Circumstances
) -> Verdict | None:
    if update.base_version is not None and update.base_version != run.version:
        raise VersionConflict(
            run.run_id,
            base_version=update.base_version,
            version=run.version,
            fence=run.fence,
            status=run.status,
            cancel_requested_at=run.cancel_requested_at,
        )
    return None


def check_transition(
    run: RunSnapshot, update: Update, effect: Effect, circumstances: Circumstances
) -> Verdict | None:
    changes = effect.changes
    status = changes.run.status
    if status is not UNSET and status != run.status and status not in transitions.RUN[run.status]:
        raise InvalidTransition(run.run_id, f"cannot go from {run.status} to {status}")
    if run.status in TERMINAL_RUN and (_is_the_owners(effect) or changes.run.approve is not UNSET):
        raise InvalidTransition(run.run_id, f"ended as {run.status}; only annotations may follow")
    if update.lease is None and changes.steps:
        raise InvalidTransition(run.run_id, "only its owner may change steps and hosts")
    return None


def _is_the_owners(effect: Effect) -> bool:
    """Whether the effect changes what only an owner may: everything except a cancel request,
    approval, annotations and failed callbacks.

    (A cancel request for an ended run is no error: the end stands and the answer says so.)
    """
    run = effect.changes.run
    return bool(effect.changes.steps) or not (
        run.status is UNSET
        and run.message is UNSET
        and run.error is UNSET
        and run.last_error is UNSET
        and run.interrupted_reason is UNSET
        and run.unconfirmed_hosts is UNSET
    )


CHECKS: tuple[Check, ...] = (
    check_ownership,
    check_repetition,
    check_same_end,
    check_released,
    check_held,
    check_base,
    check_transition,
)


# Approval. A run that asks for it is:
#
# ========  ==================================  ==================================================
# state     meaning                             allowed
# ========  ==================================  ==================================================
# waiting   queued, not approved, in time       approve, cancel; it cannot be claimed
# overdue   queued, not approved in time        cancel for that reason; it cannot be approved
# approved  approved; the first approval stays  claim; further approvals change nothing
# ========  ==================================  ==================================================
#
# A run is never owned while it waits: it cannot be claimed, nor created with an owner. Whether the
# time has passed is judged by the store's clock in the statement that writes, so that of an
# approval and an expiry at the same time one wins.


def waits_for_approval(run: RunSummary) -> bool:
    return run.approval.required and run.approval.at is None


def is_overdue(run: RunSummary, at: datetime) -> bool:
    """Not approved, and the time for it has passed."""
    until = run.approval.expires_at
    return waits_for_approval(run) and not run.ended and until is not None and until <= at


def born_approval(new: NewRun, at: datetime, now: datetime) -> Approval:
    """The approval state of a new run; its time counts from ``now``, by the store's clock.
    ``StoreRejected``."""
    given, run_id = new.snapshot.approval, new.snapshot.run_id
    if given.by is not None:
        return replace(given, at=at)
    if given.required and (new.lease or new.snapshot.status is not RunStatus.QUEUED):
        raise StoreRejected(run_id, "waits for approval: it is created queued, without an owner")
    if given.required and new.approval_seconds is not None:
        try:
            return replace(given, at=None, expires_at=now + timedelta(seconds=new.approval_seconds))
        except OverflowError:
            why = f"cannot wait {new.approval_seconds:g} seconds for approval"
            raise StoreRejected(run_id, why) from None
    return replace(given, at=None)


def check_approval(run: RunSummary, change: RunChange, at: datetime) -> None:
    """``InvalidTransition`` for a change that needs approval, or comes too late for it."""
    if change.status is RunStatus.RUNNING and waits_for_approval(run):
        raise InvalidTransition(run.run_id, "waits for approval: it cannot begin")
    if change.approve is not UNSET and run.approval.at is None:
        if not run.approval.required:
            raise InvalidTransition(run.run_id, "does not ask for approval")
        if is_overdue(run, at):
            raise InvalidTransition(run.run_id, f"could be approved {_until(run)}, not later")
    if change.if_overdue and not is_overdue(run, at):
        still = f"may be approved {_until(run)}" if waits_for_approval(run) else "is approved"
        raise InvalidTransition(run.run_id, f"{still}: it does not expire")


def _until(run: RunSummary) -> str:
    until = run.approval.expires_at
    return f"until {until:%Y-%m-%d %H:%M:%S} UTC" if until is not None else "at any time"


# The decision itself, and its use on whole snapshots (``apply``).

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
    """What ``update`` changes, or a ``Refused`` error. Of ``run`` only its own fields are read, and
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
    """``at``, or just after the run's newest moment if the clock has been set back."""
    newest = run.updated_at
    return at if newest is None or at > newest else newest + _TICK


def check_deliveries(
    run: RunSnapshot, events: tuple[Event, ...], deliveries: tuple[NewDelivery, ...]
) -> None:
    """``StoreRejected`` for a delivery without an event of this update or a target of this run."""
    known = {target.name for target in run.callbacks}
    for delivery in deliveries:
        if delivery.target not in known:
            raise StoreRejected(run.run_id, f"has no callback target {delivery.target!r}")
        if not 0 <= delivery.seq < len(events):
            raise StoreRejected(
                run.run_id, f"callback {delivery.id} tells of event {delivery.seq}: there is none"
            )


def _a_host_ended(changed: dict[int, StepDelta]) -> bool:
    """In this update: a host that had ended before cannot change."""
    hosts = (host for delta in changed.values() for host in delta.hosts.values())
    return any(host.status in ENDED_HOST for host in hosts)


def _run_fields(run: RunSnapshot, change: RunChange, at: datetime) -> dict[str, Any]:
    """The run's own fields that really change; empty means "already so"."""
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
    """A failed or interrupted run always has an error, even if its writer gave none; a canceled one
    says on which hosts something may still be running."""
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


class Applied(NamedTuple):
    """A whole run after an update."""

    snapshot: RunSnapshot
    version: int
    """The version to report to the writer; for a repetition that of the first time."""
    effect: Effect | None
    """What to journal and to deliver; ``None`` if nothing is to be written."""


def apply(
    run: RunSnapshot,
    update: Update,
    *,
    at: datetime,
    circumstances: Circumstances = Circumstances(),
    checks: tuple[Check, ...] = CHECKS,
) -> Applied:
    """The run after ``update``, or a ``Refused`` error. For stores that keep whole runs."""
    steps = WholeSteps(run.steps)
    decision = decide(run, steps, update, at=at, circumstances=circumstances, checks=checks)
    if decision.effect is None:
        return Applied(run, decision.version, None)
    after = decision.own_fields(run)
    if decision.steps or after.ended:
        after = replace(after, steps=steps.after(after, decision))
    return Applied(after, decision.version, decision.effect)


class WholeSteps:
    """``Steps`` of a whole snapshot."""

    def __init__(self, steps: tuple[StepState, ...]) -> None:
        self._steps = {step.index: step for step in steps}
        self.step = self._steps.get

    def host(self, index: int, name: str) -> HostState | None:
        step = self._steps.get(index)
        return None if step is None else step.hosts.get(name)

    def open_hosts(self, index: int) -> dict[str, HostState]:
        step = self._steps.get(index)
        hosts = {} if step is None else step.hosts
        return {name: host for name, host in hosts.items() if host.status in OPEN_HOST}

    def unfinished(self) -> Iterable[StepState]:
        return [
            step
            for index, step in self._steps.items()
            if step.status is StepStatus.RUNNING or self.open_hosts(index)
        ]

    def after(self, run: RunSnapshot, decision: Decision) -> tuple[StepState, ...]:
        """The steps after ``decision``; ``run`` has its own fields already changed."""
        steps = self._steps
        for index, delta in decision.steps.items():
            step = delta.after
            if delta.hosts:
                step = replace(step, hosts=step.hosts | delta.hosts)
            steps[index] = close_hosts(step) if step.status in ENDED_STEP else step
        if "status" in decision.fields and run.status in TERMINAL_RUN:
            return tuple(close_step(step, run.status, run.finished_at) for step in steps.values())
        return tuple(steps.values())


NO_STEPS: Steps = WholeSteps(())
"""For an effect that does not concern steps."""
