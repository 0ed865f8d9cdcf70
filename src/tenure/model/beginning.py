"""A queued run that nobody owns, taken and begun by one write.

A claim says who executes a run, the first update what starts: each durable before anything starts,
and nothing happens between them. So whoever has seen a run wait, and knows what of it would start,
may say both at once, in one version; as ``create`` does for a run that is born with its owner.

What was seen is proven by the base version: every claim, request and approval would have raised it.
Nothing is concluded about an owner: a run that has one, however long silent, is not begun this way.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from tenure.model.apply import Applied, apply
from tenure.model.compose import address, describe
from tenure.model.errors import LeaseHeld, LeaseLost, NotRunnable
from tenure.model.judge import Circumstances, check_base
from tenure.model.leasing import Purpose, claim, claimed
from tenure.model.snapshot import RunSnapshot
from tenure.model.status import RunStatus
from tenure.model.update import Changes, Effect, Fencing, LeaseRequest, Update


class WaitingRun(Struct, frozen=True, gc=False, kw_only=True):
    """A run as it was read: somebody else may have it by now."""

    snapshot: RunSnapshot
    definition_digest: str | None = None
    """As in ``ClaimedRun``."""


class Beginning(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """Take the run as it was at ``base_version``, and change it as its owner under ``fence``."""

    run_id: str
    update_id: str
    base_version: int
    fence: int
    lease: LeaseRequest
    effect: Effect = Effect()

    @property
    def fencing(self) -> Fencing:
        return Fencing(self.lease.owner_id, self.fence)


def beginning_of(
    run: RunSnapshot,
    changes: Changes,
    lease: LeaseRequest,
    update_id: str,
    delivery_ids: Iterator[str],
) -> Beginning:
    """The journal says first whose it is, then what starts."""
    fence = run.fence + 1
    taken = claimed(lease.owner_id, fence, Purpose.EXECUTE)
    events = (taken, *describe(run, changes))
    deliveries = address(run.callbacks, events, delivery_ids)
    return Beginning(
        run_id=run.run_id,
        update_id=update_id,
        base_version=run.version,
        fence=fence,
        lease=lease,
        effect=Effect(changes=changes, events=events, deliveries=deliveries),
    )


def begin(
    run: RunSnapshot, beginning: Beginning, *, at: datetime, applied_id: str | None = None
) -> Applied:
    """For whoever keeps whole records; the errors are those of ``taken_by``."""
    taken = taken_by(run, beginning, at=at, applied_id=applied_id)
    if taken is None:
        return Applied(run, beginning.base_version + 1, None)
    return apply(*taken, at=at)


def taken_by(
    run: RunSnapshot, beginning: Beginning, *, at: datetime, applied_id: str | None = None
) -> tuple[RunSnapshot, Update] | None:
    """The run in its owner's hands, and what that owner then writes; ``None`` if it had begun
    before. ``applied_id`` as in ``Circumstances``. ``LeaseLost`` if it had begun and somebody else
    has the run by now; ``LeaseHeld`` if somebody was faster, ``VersionConflict`` if anything else
    has happened to it, ``NotRunnable`` if it cannot begin."""
    fencing = beginning.fencing
    update = Update(
        run_id=run.run_id,
        update_id=beginning.update_id,
        base_version=beginning.base_version,
        lease=fencing,
        effect=beginning.effect,
    )
    if run.version > beginning.base_version and applied_id == beginning.update_id:
        if fencing != Fencing(run.owner_id or "", run.fence):
            raise LeaseLost(run.run_id, fence=run.fence, owner_id=run.owner_id)
        return None
    if run.owner_id is not None:
        raise LeaseHeld(run.run_id, owner_id=run.owner_id, expires_at=None)
    check_base(run, update, beginning.effect, Circumstances())
    if run.status is not RunStatus.QUEUED:
        raise NotRunnable(run.run_id, f"not to be begun: it is {run.status}")
    taken = claim(run, fencing.owner_id, at=at, lease_live=False).snapshot
    return replace(taken, version=run.version, updated_at=run.updated_at), update
