"""Ownership."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

from tenure.model.codec import copied
from tenure.model.leases import (
    OLDEST_EVERY,
    ClaimedRun,
    ClaimRequest,
    Lease,
    Purpose,
    Renewal,
    claim,
    holds,
    release,
    why_not_runnable,
)
from tenure.model.query import (
    Ownership,
    Page,
    RunFilter,
    bounded_limit,
    decode_cursor,
    encode_cursor,
    ownerships,
)
from tenure.model.snapshot import RunSummary, summarize
from tenure.model.update import Fencing, LeaseRequest
from tenure.stores.lease_clock import shown
from tenure.stores.memory.state import MemoryState, StoredRun


class MemoryLeases:
    """``LeaseStore`` and ``OwnerListing``."""

    def __init__(self, state: MemoryState) -> None:
        self._state = state
        self._claims = 0

    async def list_owners(self) -> list[Ownership]:
        with self._state.lock:
            unfinished = self._state.unfinished.values()
            return ownerships(self._state.seen(stored) for stored in unfinished)

    async def list_runnable(
        self, where: RunFilter = RunFilter(), *, limit: int = 50, cursor: str | None = None
    ) -> Page[RunSummary]:
        after = decode_cursor("runnable", cursor, 3) if cursor else None
        limit = bounded_limit(limit)
        with self._state.lock:
            at = self._state.clock.now()
            found = sorted(
                (stored for stored in self._free(at) if where.matches(stored.snapshot)),
                key=by_priority,
            )
            if after is not None:
                found = [stored for stored in found if by_priority(stored) > after]
            page = found[:limit]
            return Page(
                items=tuple(copied(summarize(self._state.seen(stored))) for stored in page),
                cursor=encode_cursor("runnable", *by_priority(page[-1]))
                if len(found) > limit
                else None,
            )

    async def claim_run(
        self, run_id: str, request: LeaseRequest, purpose: Purpose = Purpose.EXECUTE
    ) -> ClaimedRun:
        with self._state.lock:
            stored = self._state.find(run_id)
            held = stored.snapshot.owner_id is not None and (
                not self._is_over(stored, request.expired)
                or self._held_under(stored, request.owner_id, request.claim_id)
            )
            self._claim(stored, request, purpose, held)
            return self._claimed(stored)

    async def claim_runs(self, request: ClaimRequest) -> list[ClaimedRun]:
        with self._state.lock:
            repeated = [
                stored
                for stored in self._state.unfinished.values()
                if self._held_under(stored, request.owner_id, request.claim_id)
            ]
            lease = LeaseRequest(
                owner_id=request.owner_id, seconds=request.seconds, claim_id=request.claim_id
            )
            repeated.sort(key=by_priority)
            picked = repeated or self._pick(request)
            for stored in picked:
                self._claim(stored, lease, request.purpose, held=bool(repeated))
            return [self._claimed(stored) for stored in picked]

    def _pick(self, request: ClaimRequest) -> list[StoredRun]:
        free = self._free(self._state.clock.now(), request)
        waiting = [
            stored
            for stored in free
            if request.purpose is Purpose.RECONCILE or stored.snapshot.queue in request.queues
        ]
        picked: list[StoredRun] = []
        while waiting and len(picked) < request.limit:
            self._claims += 1
            key: Callable[[StoredRun], tuple[int, ...]]
            key = _by_age if self._claims % OLDEST_EVERY == 0 else by_priority
            chosen = min(waiting, key=key)
            waiting.remove(chosen)
            picked.append(chosen)
        return picked

    def _free(self, at: datetime, request: ClaimRequest | None = None) -> Iterable[StoredRun]:
        purpose = request.purpose if request else Purpose.EXECUTE
        for stored in list(self._state.unfinished.values()):
            if self._blocked(stored, request):
                continue
            if why_not_runnable(stored.snapshot, at, purpose) is None:
                yield stored

    def _blocked(self, stored: StoredRun, request: ClaimRequest | None) -> bool:
        owner = stored.snapshot.owner_id
        if owner is None or (request is not None and owner in request.dead_owners):
            return False
        return not self._is_over(stored, request is None or request.expired)

    def _is_over(self, stored: StoredRun, expired: bool) -> bool:
        """``expired`` false: only if nobody can come back to this lease."""
        instant = self._state.clock.read()
        if expired:
            return not instant.is_live(stored.lease_until)
        return instant.rebooted_since(stored.lease_until)

    def _claim(
        self, stored: StoredRun, request: LeaseRequest, purpose: Purpose, held: bool
    ) -> None:
        """What this owner holds already is renewed."""
        state = self._state
        instant = state.clock.read()
        taken = claim(
            stored.snapshot,
            request.owner_id,
            at=instant.now,
            lease_live=held,
            expires_at=shown(stored.lease_until),
            purpose=purpose,
        )
        end = stored.lease_until if taken.event is None else None
        until = instant.extended(end, request.seconds)
        if taken.event is not None:
            state.write(stored, taken.snapshot, request.claim_id, (taken.event,))
        stored.lease_until = until
        stored.claim_id = request.claim_id

    @staticmethod
    def _held_under(stored: StoredRun, owner_id: str, claim_id: str) -> bool:
        return stored.claim_id == claim_id and stored.snapshot.owner_id == owner_id

    def _claimed(self, stored: StoredRun) -> ClaimedRun:
        return ClaimedRun(
            lease=self._state.lease(stored),
            snapshot=copied(self._state.seen(stored)),
            definition_digest=stored.definition_digest,
        )

    async def renew_leases(self, leases: Sequence[Lease], seconds: float) -> list[Renewal]:
        with self._state.lock:
            return [self._renew(lease, seconds) for lease in leases]

    def _renew(self, lease: Lease, seconds: float) -> Renewal:
        state = self._state
        stored = state.runs.get(lease.run_id)
        if stored is None or not holds(stored.snapshot, lease.fencing):
            return Renewal(run_id=lease.run_id, ok=False)
        stored.lease_until = state.clock.read().extended(stored.lease_until, seconds)
        return Renewal(
            run_id=lease.run_id,
            ok=True,
            expires_at=shown(stored.lease_until),
            cancel_requested_at=stored.snapshot.cancel_requested_at,
            version=stored.snapshot.version,
        )

    async def release_lease(self, run_id: str, fencing: Fencing, update_id: str) -> None:
        with self._state.lock:
            stored = self._state.find(run_id)
            released = release(stored.snapshot, fencing, self._state.clock.now())
            if released.event is not None:
                self._state.write(stored, released.snapshot, update_id, (released.event,))


def _by_age(stored: StoredRun) -> tuple[int, ...]:
    """Oldest by the moment it could first have run; a ``run_after`` in the past changes nothing."""
    run = stored.snapshot
    moments = [moment for moment in (run.run_after, run.created_at) if moment is not None]
    return (int(max(moments).timestamp() * 1_000_000) if moments else 0, stored.seq)


def by_priority(stored: StoredRun) -> tuple[int, ...]:
    return (-stored.snapshot.priority, *_by_age(stored))
