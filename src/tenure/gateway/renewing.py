"""Leases that go on, and what owners are told by the way: that a run is no longer theirs, or that
somebody wants it to stop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tenure.gateway.calls import Answer, Call
from tenure.gateway.leasing import leases_of
from tenure.gateway.parts import Parts
from tenure.gateway.reaching import check_holds
from tenure.model.errors import LeaseLost
from tenure.model.leasing import Lease, Renewal
from tenure.model.update import Fencing
from tenure.model.wakeups import topic_of_owner
from tenure.ports.lease_store import LeaseStore
from tenure.runtime.waiting import happens_within
from tenure.wire.leases import LeaseRenewal, Renewals, RenewalsQuery, RenewalsRequest
from tenure.wire.listings import NoQuery

_LOOK = 1.0
"""Seconds between two looks at a store that wakes nobody."""
_SHARE = 0.5
"""Of the leases' time an answer is held back at most."""


async def renew_lease(call: Call[NoQuery, LeaseRenewal]) -> Answer:
    store, asked = leases_of(call), call.body
    run_id = await check_holds(call, Fencing(asked.owner_id, asked.fence))
    lease = _lease(call.parts, run_id, asked.owner_id, asked.fence)
    (renewal,) = await store.renew_leases([lease], asked.lease_seconds)
    if not renewal.ok:
        run = await call.parts.store.get_run(run_id)
        raise LeaseLost(run_id, fence=run.fence, owner_id=run.owner_id)
    return Answer(value=renewal)


async def renew_leases(call: Call[RenewalsQuery, RenewalsRequest]) -> Answer:
    store, parts, seconds = leases_of(call), call.parts, call.body.lease_seconds
    mine = {
        number: _lease(parts, held.run_id, held.owner_id, held.fence)
        for number, held in enumerate(call.body.leases)
        if await parts.queues.reaches(call.caller, held.run_id, Fencing(held.owner_id, held.fence))
    }
    leases, wait = list(mine.values()), min(call.query.wait, seconds * _SHARE)
    renewed = await _renewed(parts, store, leases, seconds, wait)
    known = dict(zip(mine, renewed, strict=True))
    renewals = (
        known.get(number) or Renewal(run_id=held.run_id, ok=False)
        for number, held in enumerate(call.body.leases)
    )
    return Answer(value=Renewals(renewals=tuple(renewals)))


async def _renewed(
    parts: Parts, store: LeaseStore, leases: Sequence[Lease], seconds: float, wait: float
) -> list[Renewal]:
    """As soon as there is something to tell; after ``wait`` seconds at the latest."""
    time = asyncio.get_running_loop().time
    until = time() + wait
    topics = sorted({topic_of_owner(lease.owner_id) for lease in leases})
    heard = await parts.hearing.position(topics, wait) if wait and leases else None
    while True:
        renewals = await store.renew_leases(leases, seconds)
        left = until - time()
        done = not leases or left <= 0 or parts.closing.is_set()
        if done or any(map(_tells, renewals)):
            return renewals
        if heard is None:
            await happens_within(parts.closing, min(left, _LOOK))
        else:
            heard = await parts.hearing.news(topics, heard, left)


def _tells(renewal: Renewal) -> bool:
    return not renewal.ok or renewal.cancel_requested_at is not None


def _lease(parts: Parts, run_id: str, owner_id: str, fence: int) -> Lease:
    """When it ends is the store's to say."""
    return Lease(run_id=run_id, owner_id=owner_id, fence=fence, expires_at=parts.now())
