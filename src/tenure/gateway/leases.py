"""Leases over HTTP, for workers that do not use the store directly: claim, renew, release."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

from tenure.aio import wait_for_event
from tenure.gateway.auth import (
    check_holds,
    check_queue,
    check_reaches,
    check_unlimited,
    lease_token_of,
    not_held,
)
from tenure.gateway.calls import Answer, Call, GatewayState
from tenure.gateway.problems import Refusal
from tenure.model.errors import LeaseLost, NotSupported, StoreUnavailable
from tenure.model.leases import ClaimedRun, ClaimRequest, Lease, Purpose, Renewal
from tenure.model.query import MAX_PAGE, RunFilter, topic_of_owner
from tenure.model.tokens import Role
from tenure.model.update import Fencing, LeaseRequest
from tenure.ports.leases import LeaseStore, Presence, WorkerRegistry
from tenure.system import are_neighbours, new_update_id
from tenure.wire.leases import (
    Claims,
    GivenLease,
    GivenLeases,
    LeaseClaim,
    LeaseRenewal,
    ReleaseQuery,
    Renewals,
    RenewalsQuery,
    RenewalsRequest,
)
from tenure.wire.runs import NoQuery

_MAX_PROCESS_LOOKUPS = 20
"""Processes of this machine looked up for one request: each costs a look at all of them."""


async def claim_runs(call: Call[NoQuery, Claims]) -> Answer:
    store, asked = leases_of(call), call.body
    _check_queues(call)
    request = ClaimRequest(
        owner_id=asked.owner_id,
        seconds=asked.lease_seconds,
        claim_id=asked.claim_id or new_update_id(),
        limit=await _bounded(call, store),
        queues=asked.queues,
        purpose=asked.purpose,
        expired=asked.expired,
        dead_owners=await _dead(call),
        token_id=lease_token_of(call.caller),
    )
    claimed = await store.claim_runs(request)
    return Answer(value=GivenLeases(leases=tuple(map(_given, claimed))))


async def _bounded(call: Call[NoQuery, Claims], store: LeaseStore) -> int:
    """As many runs as one answer may hold, should they be the largest of those that wait; at least
    one. They are counted before they are claimed: what is large shall not even be read."""
    asked, left = call.body, call.parts.limits.claimed_hosts
    if asked.limit == 1 or asked.purpose is not Purpose.EXECUTE:
        return asked.limit
    sizes: list[int] = []
    for queue in asked.queues:
        page = await store.list_runnable(RunFilter(queue=queue), limit=asked.limit)
        sizes += [run.counts.hosts_total for run in page.items]
    for number, size in enumerate(sorted(sizes, reverse=True)[: asked.limit]):
        left -= size
        if left < 0:
            return max(number, 1)
    return asked.limit


async def claim_run(call: Call[NoQuery, LeaseClaim]) -> Answer:
    store, asked, run_id = leases_of(call), call.body, await check_reaches(call)
    request = LeaseRequest(
        owner_id=asked.owner_id,
        seconds=asked.lease_seconds,
        claim_id=asked.claim_id or new_update_id(),
        expired=asked.expired,
        token_id=lease_token_of(call.caller),
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
    """Workers may claim from their queues only; reconciling covers all queues."""
    if call.body.purpose is Purpose.RECONCILE:
        check_unlimited(call.caller, "reconciling looks at all runs")
    for queue in call.body.queues:
        check_queue(call.caller, queue)


async def _dead(call: Call[NoQuery, Claims]) -> frozenset[str]:
    """The owners reported dead that may be believed: those that the client's machine can have seen
    and this one does not see, and all of whose leases are the token's own. An admin is believed;
    for reconciling the gateway looks itself."""
    asked, store, presence = call.body, call.parts.store, call.parts.presence
    if call.caller.role is Role.ADMIN or not asked.dead_owners:
        return frozenset(asked.dead_owners)
    if asked.purpose is not Purpose.EXECUTE:
        return frozenset()
    near = {owner for owner in asked.dead_owners if are_neighbours(owner, asked.owner_id)}
    workers = await store.list_workers() if isinstance(store, WorkerRegistry) else []
    listed = near.intersection(worker.owner_id for worker in workers)
    gone = (
        each for each in islice(listed, _MAX_PROCESS_LOOKUPS) if presence(each) is Presence.GONE
    )
    dead = islice({*(near - listed), *gone}, _MAX_PROCESS_LOOKUPS)
    return frozenset([owner for owner in dead if await _has_mine_only(call, owner)])


async def _has_mine_only(call: Call[Any, Any], owner_id: str) -> bool:
    held = RunFilter(owner_id=owner_id, held=True)
    runs = (await call.parts.store.list_runs(held, limit=MAX_PAGE)).items
    leases = {run.run_id: Fencing(owner_id, run.fence) for run in runs}
    return len(runs) < MAX_PAGE and not await not_held(call, leases)


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


# Renewing also tells owners that a run is no longer theirs, or that it shall be canceled.


_POLL_INTERVAL_S = 1.0
"""Seconds between two polls of a store without wake-ups."""
_MAX_WAIT_SHARE = 0.5
"""The largest part of the lease time for which an answer is held back."""


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
            f"the lease of run {run_id} was not renewed because the run is being written; it is "
            "still yours, and ends when it would have: send it again"
        )
    return Answer(value=renewal)


async def renew_leases(call: Call[RenewalsQuery, RenewalsRequest]) -> Answer:
    store, parts = leases_of(call), call.parts
    asked = {held.run_id: Fencing(held.owner_id, held.fence) for held in call.body.leases}
    refused = await not_held(call, asked)
    mine = {
        number: _lease(parts, held.run_id, held.owner_id, held.fence)
        for number, held in enumerate(call.body.leases)
        if held.run_id not in refused
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
    """Renew at once, then again until there is something to report or time is up."""
    time, seconds = asyncio.get_running_loop().time, call.body.lease_seconds
    until = time() + min(call.query.wait, seconds * _MAX_WAIT_SHARE)
    heard: str | None = None
    while True:
        renewals = await store.renew_leases(leases, seconds)
        left = until - time()
        done = not leases or left <= 0 or call.parts.closing.is_set()
        if done or any(map(_is_news, renewals)):
            return renewals
        heard = await _news(call, leases, heard, left)


async def _news(
    call: Call[Any, Any], leases: Sequence[Lease], heard: str | None, left: float
) -> str | None:
    """Wait for a hint; without wake-ups, for the poll interval."""
    hearing, topics = call.parts.hearing, {topic_of_owner(lease.owner_id) for lease in leases}
    if hearing.hears:
        with suppress(Refusal):  # too many subscriptions: the leases are renewed all the same
            return await hearing.news(call.caller.token_id, sorted(topics), heard, left)
    await wait_for_event(call.parts.closing, min(left, _POLL_INTERVAL_S))
    return None


def _is_news(renewal: Renewal) -> bool:
    return not renewal.ok or renewal.busy or renewal.cancel_requested_at is not None


def _lease(parts: GatewayState, run_id: str, owner_id: str, fence: int) -> Lease:
    """``expires_at`` is not used: the store decides."""
    return Lease(run_id=run_id, owner_id=owner_id, fence=fence, expires_at=parts.now())
