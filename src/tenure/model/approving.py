"""Approval: what a run that asks for one waits for, and who may say what meanwhile.

========  ====================================  =================================================
it is     which means                           who may do what
========  ====================================  =================================================
waiting   queued, nobody approved, in time      anybody approves or cancels; nobody claims it
overdue   queued, nobody approved in time       anybody cancels it for that; nobody approves it
approved  somebody did; the first one stands    whoever claims it runs it; further yeses are no-ops
========  ====================================  =================================================

A run is never owned while it waits: it cannot be claimed, nor be born with an owner. Whether the
time has passed is judged by the store's clock in the statement that writes, so that an approval
and an expiry that meet have one winner.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec import UNSET
from msgspec.structs import replace

from tenure.model.errors import InvalidTransition, StoreRejected
from tenure.model.snapshot import Approval, RunSummary
from tenure.model.status import RunStatus
from tenure.model.update import NewRun, RunChange


def waits_for_approval(run: RunSummary) -> bool:
    return run.approval.required and run.approval.at is None


def is_overdue(run: RunSummary, at: datetime) -> bool:
    """Nobody approved it while there was time."""
    until = run.approval.expires_at
    return waits_for_approval(run) and not run.ended and until is not None and until <= at


def born_approval(new: NewRun, at: datetime, now: datetime) -> Approval:
    """As the store writes it: its own clock counts the time there is, from ``now`` on.
    ``StoreRejected``."""
    given, run_id = new.snapshot.approval, new.snapshot.run_id
    if given.by is not None:
        return replace(given, at=at)
    if given.required and (new.lease or new.snapshot.status is not RunStatus.QUEUED):
        raise StoreRejected(run_id, "waits for approval: it is born queued, and nobody's")
    if given.required and new.approval_seconds is not None:
        try:
            return replace(given, at=None, expires_at=now + timedelta(seconds=new.approval_seconds))
        except OverflowError:
            why = f"cannot wait {new.approval_seconds:g} seconds for approval"
            raise StoreRejected(run_id, why) from None
    return replace(given, at=None)


def check_approval(run: RunSummary, change: RunChange, at: datetime) -> None:
    """``InvalidTransition`` for what approval, or the lack of it, does not allow."""
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
