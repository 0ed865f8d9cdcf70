"""Asking the store for runs to execute."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from contextlib import suppress

from msgspec.structs import replace

from tenure.model.errors import StoreUnavailable, TenureError
from tenure.model.leasing import ClaimedRun, ClaimRequest
from tenure.model.status import Recovery
from tenure.model.update import LeaseRequest
from tenure.ports.lease_store import LeaseStore
from tenure.ports.workers import WorkerRegistry
from tenure.runtime.embedded import Claim
from tenure.runtime.in_touch import InTouch
from tenure.runtime.owners import owned_runs
from tenure.runtime.patience import ENDLESS, surely
from tenure.runtime.session import Session
from tenure.worker.neighbours import Neighbours

_log = logging.getLogger("tenure.worker")


class Claims:
    def __init__(
        self,
        session: Session,
        store: LeaseStore,
        queues: tuple[str, ...],
        touch: InTouch,
    ) -> None:
        self._session = session
        self._store = store
        self._queues = queues
        self._touch = touch
        self._out_of_touch = False
        self._neighbours = Neighbours(session.identity.presence)

    async def look_for_the_dead(self) -> bool:
        """Whether runs have an owner whose process is gone for certain: such leases count as ended
        at once."""
        owners = {
            each.owner_id
            for each in await owned_runs(self._session.store)
            if each.owner_id is not None and each.recovery is Recovery.RESUME
        }
        ours = {self._session.identity.owner_id}
        self._neighbours.meet((owners | await self._workers()) - ours)
        return not owners.isdisjoint(self._neighbours.gone)

    def a_neighbour_died(self) -> bool:
        """Since the last look, as far as can be seen without asking the store."""
        return self._neighbours.look()

    async def _workers(self) -> set[str]:
        """They may have runs by the time they die. (Where somebody else attends to the store, it
        costs too much to ask for all of them: those that have runs must do.)"""
        store = self._session.store
        if self._session.attended or not isinstance(store, WorkerRegistry):
            return set()
        return {worker.owner_id for worker in await store.list_workers()}

    async def next(self, limit: int) -> list[Claim]:
        """Up to ``limit`` runs that are ours from now on. Sent again after an error it is the same
        claim, and takes no expired lease: their owners may have met that error too."""
        identity = self._session.identity
        request = ClaimRequest(
            owner_id=identity.owner_id,
            seconds=self._session.lease_seconds,
            claim_id=identity.new_id(),
            limit=limit,
            queues=self._queues,
            expired=self._touch.long_enough,
            dead_owners=self._neighbours.gone,
        )

        def be_careful(error: StoreUnavailable) -> None:
            nonlocal request
            request = replace(request, expired=False)
            self._note_trouble(error)

        def send() -> Awaitable[list[ClaimedRun]]:
            return self._touch.asked(self._store.claim_runs(request))

        sent_at = asyncio.get_running_loop().time()
        self._touch.asks()
        claimed = await surely(send, ENDLESS, be_careful)
        if claimed or request.expired:
            self._answered()
        return [Claim(run, sent_at) for run in claimed]

    async def this_one(self, run_id: str) -> Claim:
        """``RunNotFound``, ``LeaseHeld``, ``NotRunnable``, and ``StoreUnavailable`` at once: it is
        found again."""
        identity = self._session.identity
        request = LeaseRequest(
            owner_id=identity.owner_id,
            seconds=self._session.lease_seconds,
            claim_id=identity.new_id(),
            expired=self._touch.long_enough,
        )
        sent_at = asyncio.get_running_loop().time()
        try:
            claimed = await self._touch.asked(self._store.claim_run(run_id, request))
        except StoreUnavailable as error:
            self._note_trouble(error)
            raise
        return Claim(claimed, sent_at)

    async def give_back(self, claims: Sequence[Claim]) -> None:
        """Those we got when nobody wanted them any more: for others to claim at once."""
        for lease in (claim.run.lease for claim in claims):
            with suppress(TenureError):  # else they wait for the lease to end
                new_id = self._session.identity.new_id()
                await self._store.release_lease(lease.run_id, lease.fencing, new_id)

    def _note_trouble(self, error: StoreUnavailable) -> None:
        if not self._out_of_touch:
            self._out_of_touch = True
            _log.warning("the store does not answer (%s); nothing is claimed until it does", error)

    def _answered(self) -> None:
        """A claim that took nothing and left expired leases alone is no sign of it: it wrote
        nothing, and of a full disk that goes well."""
        if self._out_of_touch:
            self._out_of_touch = False
            _log.warning("the store answers again")
