"""Ownership of runs, for workers that do not talk to the store themselves."""

from __future__ import annotations

from itertools import islice
from typing import Any

from tenure.gateway.calls import Answer, Call
from tenure.gateway.reaching import check_holds, check_queue, check_reaches, check_unlimited
from tenure.model.access import Role
from tenure.model.errors import NotSupported
from tenure.model.leasing import ClaimedRun, ClaimRequest, Purpose
from tenure.model.update import Fencing, LeaseRequest
from tenure.ports.lease_store import LeaseStore
from tenure.ports.liveness import Presence
from tenure.ports.workers import WorkerRegistry
from tenure.system import are_neighbours, new_update_id
from tenure.wire.leases import Claims, GivenLease, GivenLeases, LeaseClaim, ReleaseQuery
from tenure.wire.listings import NoQuery

_MOST_LOOKS = 20
"""At processes of this machine, for one request: each is a look at all of them."""


async def claim_runs(call: Call[NoQuery, Claims]) -> Answer:
    store, asked = leases_of(call), call.body
    _check_queues(call)
    request = ClaimRequest(
        owner_id=asked.owner_id,
        seconds=asked.lease_seconds,
        claim_id=asked.claim_id or new_update_id(),
        limit=asked.limit,
        queues=asked.queues,
        purpose=asked.purpose,
        expired=asked.expired,
        dead_owners=await _dead(call),
    )
    claimed = await store.claim_runs(request)
    return Answer(value=GivenLeases(leases=tuple(map(_given, claimed))))


async def claim_run(call: Call[NoQuery, LeaseClaim]) -> Answer:
    store, asked, run_id = leases_of(call), call.body, await check_reaches(call)
    request = LeaseRequest(
        owner_id=asked.owner_id,
        seconds=asked.lease_seconds,
        claim_id=asked.claim_id or new_update_id(),
        expired=asked.expired,
    )
    claimed = await store.claim_run(run_id, request, asked.purpose)
    return Answer(value=_given(claimed))


async def release_lease(call: Call[ReleaseQuery, None]) -> Answer:
    store, asked = leases_of(call), call.query
    fencing = Fencing(asked.owner_id, asked.fence)
    run_id = await check_holds(call, fencing)
    await store.release_lease(run_id, fencing, asked.update_id or new_update_id())
    return Answer(status=204)


def leases_of(call: Call[Any, Any]) -> LeaseStore:
    if isinstance(call.parts.store, LeaseStore):
        return call.parts.store
    raise NotSupported(f"{type(call.parts.store).__name__} keeps no leases: nothing can be claimed")


def _check_queues(call: Call[NoQuery, Claims]) -> None:
    """Whoever reconciles takes what it finds, in whatever queue."""
    if call.body.purpose is Purpose.RECONCILE:
        check_unlimited(call.caller, "reconciling looks at all runs")
    for queue in call.body.queues:
        check_queue(call.caller, queue)


async def _dead(call: Call[NoQuery, Claims]) -> frozenset[str]:
    """Of those said to be gone, whom the asker's machine can have seen and nobody sees any more. An
    admin is believed; what is reconciled, the gateway looks at for itself."""
    asked, store, presence = call.body, call.parts.store, call.parts.presence
    if call.caller.role is Role.ADMIN or not asked.dead_owners:
        return frozenset(asked.dead_owners)
    if asked.purpose is not Purpose.EXECUTE:
        return frozenset()
    near = {owner for owner in asked.dead_owners if are_neighbours(owner, asked.owner_id)}
    workers = await store.list_workers() if isinstance(store, WorkerRegistry) else []
    listed = near.intersection(worker.owner_id for worker in workers)
    gone = (each for each in islice(listed, _MOST_LOOKS) if presence(each) is Presence.GONE)
    return frozenset({*(near - listed), *gone})


def _given(claimed: ClaimedRun) -> GivenLease:
    lease = claimed.lease
    return GivenLease(
        run_id=lease.run_id,
        owner_id=lease.owner_id,
        fence=lease.fence,
        expires_at=lease.expires_at,
        snapshot=claimed.snapshot,
        definition_digest=claimed.definition_digest,
    )
