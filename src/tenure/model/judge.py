"""May this update be written? The checks, in the order that is part of the contract.

The first check with an opinion answers. The order is what makes the answers safe:

1. *ownership first*, before repetition: an owner that was replaced re-sends an intent which had
   been applied; told "ok" it would start the task beside its successor's. Fence **and** owner
   must match: a restored database can hand out a fence number twice.
2. *repetition* before everything that depends on the base: after a lost answer the base is
   stale by the writer's own success.
3. *same end*: ending a run twice the same way is agreement, not an error.
4. *released*: the run has nobody now; its last owner may repeat (2, 3) but not write anew.
5. *held*: under a live lease, as judged by the store in this statement, others may ask (cancel),
   approve, annotate and note a callback that failed, and nothing else.
6. *base*, then 7. *transition*.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from enum import Enum
from typing import NamedTuple

from msgspec import UNSET

from tenure.model import transitions
from tenure.model.errors import (
    InvalidTransition,
    LeaseHeld,
    LeaseLost,
    StoreRejected,
    VersionConflict,
)
from tenure.model.snapshot import RunSnapshot
from tenure.model.status import TERMINAL_RUN, RunStatus, plain_members
from tenure.model.update import Effect, Update

# Looked up once: on Python 3.11 naming a member costs nearly as much as a call.
_QUEUED = RunStatus.QUEUED
_RUNNING = RunStatus.RUNNING


@plain_members
class Verdict(Enum):
    WRITE = "write"
    AGAIN = "again"
    """Applied before: the first answer again."""
    NOTHING = "nothing"
    """Already so: present facts, nothing written."""


_WRITE = Verdict.WRITE


class Circumstances(NamedTuple):
    """What only the store knows at the instant of the statement."""

    lease_live: bool = False
    """The run has an owner whose lease has not expired, by the store's clock."""
    applied_id: str | None = None
    """The ``update_id`` of journal row ``base_version + 1``; only asked for on a stale base."""
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
    """The common case at a glance: the owner's next update of its running run. None of the checks
    has anything to say about it; a test holds this shortcut to them."""
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
    """What no well-made update looks like, whatever the run."""
    if update.lease is not None and update.base_version is None:
        raise StoreRejected(update.run_id, "an owner's update must name its base_version")
    if update.lease is None and update.release:
        raise StoreRejected(update.run_id, "only an owner can release")
    if update.base_version is None and update.effect.changes.run.journal_only:
        raise StoreRejected(update.run_id, "what is only told must name its base_version")


def choose_effect(run: RunSnapshot, update: Update, lease_live: bool) -> Effect:
    """``if_unowned`` for a live run that nobody holds, else the plain effect."""
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
    """Whether it changes what only an owner may: all but cancel request, approval,
    annotations and callbacks that failed.

    (A cancel request for an ended run is no mistake: the end stands and the answer says so.)
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
