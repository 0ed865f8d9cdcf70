"""Leases that go on, and what owners are told by the way: that a run is no longer theirs, or that
somebody wants it to stop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from tenure.gateway.calls import Answer, Call
from tenure.gateway.leasing import leases_of
from tenure.gateway.parts import Parts
from tenure.gateway.problems import Refusal
from tenure.gateway.reaching import check_holds
from tenure.model.errors import LeaseLost, StoreUnavailable
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
    if renewal.busy:
        raise StoreUnavailable(
            f"the lease of run {run_id} was not renewed, for the run is just being written; it is "
            "still yours, and ends when it would have: send it again"
        )
    return Answer(value=renewal)


async def renew_leases(call: Call[RenewalsQuery, RenewalsRequest]) -> Answer:
    store, parts = leases_of(call), call.parts
    mine = {
        number: _lease(parts, held.run_id, held.owner_id, held.fence)
        for number, held in enumerate(call.body.leases)
        if await parts.queues.reaches(call.caller, held.run_id, Fencing(held.owner_id, held.fence))
    }
    known = dict(zip(mine, await _renewed(call, store, list(mine.values())), strict=True))
    renewals = (
        known.get(number) or Renewal(run_id=held.run_id, ok=False)
        for number, held in enumerate(call.body.leases)
    )
    return Answer(value=Renewals(renewals=tuple(renewals)))


async def _renewed(
    call: Call[RenewalsQuery, RenewalsRequest], store: LeaseStore, leases: Sequence[Lease]
) -> list[Renewal]:
    """As soon as there is something to tell, or time is up. Nothing is waited for before they are
    renewed."""
    time, seconds = asyncio.get_running_loop().time, call.body.lease_seconds
    until = time() + min(call.query.wait, seconds * _SHARE)
    heard: str | None = None
    while True:
        renewals = await store.renew_leases(leases, seconds)
        left = until - time()
        done = not leases or left <= 0 or call.parts.closing.is_set()
        if done or any(map(_tells, renewals)):
            return renewals
        heard = await _news(call, leases, heard, left)


async def _news(
    call: Call[Any, Any], leases: Sequence[Lease], heard: str | None, left: float
) -> str | None:
    """Once there may be some; where nobody is told, after a while."""
    hearing, topics = call.parts.hearing, {topic_of_owner(lease.owner_id) for lease in leases}
    if hearing.hears:
        with suppress(Refusal):  # too many wait: they are renewed all the same
            return await hearing.news(call.caller.token_id, sorted(topics), heard, left)
    await happens_within(call.parts.closing, min(left, _LOOK))
    return None


def _tells(renewal: Renewal) -> bool:
    return not renewal.ok or renewal.busy or renewal.cancel_requested_at is not None


def _lease(parts: Parts, run_id: str, owner_id: str, fence: int) -> Lease:
    """When it ends is the store's to say."""
    return Lease(run_id=run_id, owner_id=owner_id, fence=fence, expires_at=parts.now())
