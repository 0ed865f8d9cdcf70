"""Ownership of runs: ``LeaseStore``."""

from __future__ import annotations

from collections.abc import Sequence

from tenure.client.line import Line, encoded
from tenure.client.listings import listed
from tenure.client.runs import known
from tenure.model.errors import RunNotFound
from tenure.model.leasing import ClaimedRun, ClaimRequest, Lease, Purpose, Renewal
from tenure.model.query import Page, RunFilter
from tenure.model.snapshot import RunSummary
from tenure.model.update import Fencing, LeaseRequest
from tenure.wire.leases import (
    MOST_CLAIMED,
    MOST_RENEWED,
    Claims,
    GivenLease,
    GivenLeases,
    HeldLease,
    LeaseClaim,
    Renewals,
    RenewalsRequest,
)

_MOST_DEAD = 10_000


class LeasesOverHttp:
    def __init__(self, line: Line) -> None:
        self._line = line

    async def list_runnable(
        self, where: RunFilter = RunFilter(), *, limit: int = 50, cursor: str | None = None
    ) -> Page[RunSummary]:
        return await listed(self._line, "/v1/runnable", where, limit, cursor)

    async def claim_run(
        self, run_id: str, request: LeaseRequest, purpose: Purpose = Purpose.EXECUTE
    ) -> ClaimedRun:
        asked = LeaseClaim(
            owner_id=request.owner_id,
            lease_seconds=request.seconds,
            claim_id=request.claim_id,
            purpose=purpose,
            expired=request.expired,
        )
        path = f"/v1/runs/{known(run_id)}/lease"
        return _claimed(await self._line.ask("POST", path, GivenLease, body=encoded(asked)))

    async def claim_runs(self, request: ClaimRequest) -> list[ClaimedRun]:
        asked = Claims(
            owner_id=request.owner_id,
            lease_seconds=request.seconds,
            claim_id=request.claim_id,
            limit=min(request.limit, MOST_CLAIMED),
            queues=request.queues,
            purpose=request.purpose,
            expired=request.expired,
            dead_owners=tuple(sorted(request.dead_owners))[:_MOST_DEAD],
        )
        given = await self._line.ask("POST", "/v1/claims", GivenLeases, body=encoded(asked))
        return [_claimed(lease) for lease in given.leases]

    async def renew_leases(self, leases: Sequence[Lease], seconds: float) -> list[Renewal]:
        sent = [_held(lease) for lease in leases if _may_exist(lease.run_id)]
        renewals: list[Renewal] = []
        for first in range(0, len(sent), MOST_RENEWED):
            some = tuple(sent[first : first + MOST_RENEWED])
            body = encoded(RenewalsRequest(leases=some, lease_seconds=seconds))
            answer = await self._line.ask("POST", "/v1/renewals", Renewals, body=body, apart=True)
            renewals += answer.renewals
        answers = iter(renewals)
        return [
            next(answers) if _may_exist(lease.run_id) else Renewal(run_id=lease.run_id, ok=False)
            for lease in leases
        ]

    async def release_lease(self, run_id: str, fencing: Fencing, update_id: str) -> None:
        query = [
            ("owner_id", fencing.owner_id),
            ("fence", str(fencing.fence)),
            ("update_id", update_id),
        ]
        await self._line.ask("DELETE", f"/v1/runs/{known(run_id)}/lease", dict, query=query)


def _claimed(given: GivenLease) -> ClaimedRun:
    lease = Lease(
        run_id=given.run_id,
        owner_id=given.owner_id,
        fence=given.fence,
        expires_at=given.expires_at,
    )
    return ClaimedRun(
        lease=lease, snapshot=given.snapshot, definition_digest=given.definition_digest
    )


def _may_exist(run_id: str) -> bool:
    try:
        known(run_id)
    except RunNotFound:
        return False
    return True


def _held(lease: Lease) -> HeldLease:
    return HeldLease(run_id=lease.run_id, owner_id=lease.owner_id, fence=lease.fence)
