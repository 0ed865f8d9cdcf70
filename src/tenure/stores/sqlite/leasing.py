"""Claims, renewals and releases inside one transaction of the writer's thread."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import merge
from typing import NamedTuple

import apsw

from tenure.model.errors import NotRunnable, RunNotFound
from tenure.model.leasing import (
    OLDEST_EVERY,
    ClaimedRun,
    ClaimRequest,
    Lease,
    Purpose,
    Renewal,
    claim,
    release,
)
from tenure.model.query import RunFilter
from tenure.model.snapshot import RunSummary
from tenure.model.status import Recovery, RunStatus
from tenure.model.update import Fencing, LeaseRequest
from tenure.stores.lease_clock import Instant, LeaseClock, LeaseEnd, shown
from tenure.stores.sqlite import rows
from tenure.stores.sqlite.listing import runnable_conditions
from tenure.stores.sqlite.reading import Reading
from tenure.stores.sqlite.rows import Head
from tenure.stores.sqlite.statements import Row
from tenure.stores.sqlite.writing import Writing


class Candidate(NamedTuple):
    """A claimable run; sorts by claim order."""

    rank: int
    ready_at: int
    seq: int


def by_age(candidate: Candidate) -> tuple[int, int]:
    return (candidate.ready_at, candidate.seq)


class Leasing:
    def __init__(self, connection: apsw.Connection, clock: LeaseClock) -> None:
        self._clock = clock
        self._writing = Writing(connection, clock)
        self._sql = self._writing.sql
        self._reading = Reading(connection, clock)
        self._claims = 0

    # Claiming: write, commit, and only then read what is handed out

    def claim_one(self, run_id: str, request: LeaseRequest, purpose: Purpose) -> ClaimedRun:
        with self._writing.transaction() as instant:
            head = self._writing.loading.find(run_id)
            if head is None:
                raise RunNotFound(run_id)
            owner_id = head.run.owner_id
            held = owner_id is not None and (
                not request.expired
                or instant.is_live(head.lease_until)
                or (owner_id, head.claim_id) == (request.owner_id, request.claim_id)
            )
            self._claim(head, request, purpose, held, instant)
        return self._claimed(head.seq)

    def claim_many(self, request: ClaimRequest) -> list[ClaimedRun]:
        lease = LeaseRequest(
            owner_id=request.owner_id, seconds=request.seconds, claim_id=request.claim_id
        )
        with self._writing.transaction() as instant:
            found = self._sql.all("held_under_claim", request.owner_id, request.claim_id)
            repeated = [seq for (seq,) in found]
            taken = [
                seq
                for seq in repeated or self._pick(request, instant)
                if self._take(seq, lease, request.purpose, bool(repeated), instant)
            ]
        return [self._claimed(seq) for seq in taken]

    def _take(
        self, seq: int, lease: LeaseRequest, purpose: Purpose, held: bool, instant: Instant
    ) -> bool:
        """False for a run that an index offers and the model does not: it is left alone."""
        try:
            self._claim(self._writing.loading.head(seq), lease, purpose, held, instant)
        except NotRunnable:
            return False
        return True

    def _claim(
        self, head: Head, request: LeaseRequest, purpose: Purpose, held: bool, instant: Instant
    ) -> None:
        """What this owner holds already is renewed."""
        (summary,) = self._sql.one("spec_for_lists", head.seq)
        taken = claim(
            rows.with_spec(head.run, summary),
            request.owner_id,
            at=instant.now,
            lease_live=held,
            expires_at=shown(head.lease_until),
            purpose=purpose,
        )
        end = head.lease_until if taken.event is None else None
        self._writing.put_ownership(
            head,
            taken.snapshot,
            taken.event,
            request.claim_id,
            instant.now,
            request.claim_id,
            instant.extended(end, request.seconds),
        )

    def _claimed(self, seq: int) -> ClaimedRun:
        head, snapshot = self._reading.snapshot_by_seq(seq)
        expires_at = shown(head.lease_until) or self._clock.now()
        lease = Lease(
            run_id=snapshot.run_id,
            owner_id=snapshot.owner_id or "",
            fence=snapshot.fence,
            expires_at=expires_at,
        )
        return ClaimedRun(lease=lease, snapshot=snapshot)

    # Choosing

    def _pick(self, request: ClaimRequest, instant: Instant) -> list[int]:
        self._sql.do("promote_parked", rows.micros(instant.now))
        ended = self._ended_leases(request, instant)
        picked: dict[int, None] = {}
        while len(picked) < request.limit:
            room = min(request.limit - len(picked), OLDEST_EVERY - 1 - self._claims % OLDEST_EVERY)
            oldest = room == 0
            found = self._ready(request, ended, oldest, picked, max(room, 1))
            picked.update(dict.fromkeys(found))
            self._claims += len(found)
            if not found:
                break
        return list(picked)

    def _ready(
        self,
        request: ClaimRequest,
        ended: list[Candidate],
        oldest: bool,
        without: dict[int, None],
        limit: int,
    ) -> list[int]:
        """The next ones in order; what was picked a moment ago is still in the indexes."""
        wanted = limit + len(without)
        if request.purpose is Purpose.RECONCILE:
            sources = [self._candidates(self._sql.all("orphaned", wanted))]
        else:
            statement = "ready_by_age" if oldest else "ready_by_priority"
            sources = [
                self._candidates(self._sql.all(statement, queue, wanted))
                for queue in sorted(set(request.queues))
            ]
        key = by_age if oldest else None
        ordered = merge(*sources, sorted(ended, key=key), key=key)
        return [candidate.seq for candidate in ordered if candidate.seq not in without][:limit]

    @staticmethod
    def _candidates(found: list[Row]) -> list[Candidate]:
        return [Candidate(rank, ready_at, seq) for seq, rank, ready_at in found]

    def _ended_leases(self, request: ClaimRequest | None, instant: Instant) -> list[Candidate]:
        """Held by an owner whose lease has run out, or who is proven dead.

        Without a request: all that a worker could take over, whatever their queue.
        """
        purpose = request.purpose if request else Purpose.EXECUTE
        queues = set(request.queues) if request and purpose is Purpose.EXECUTE else None
        found: list[Row] = []
        if request is None or request.expired:
            found += self._sql.all("expired_leases", *instant.boot)
        for owner_id in request.dead_owners if request else ():
            found += self._sql.all("leases_of_owner", owner_id)
        return [
            Candidate(rank, ready_at, seq)
            for seq, rank, ready_at, queue, status, recovery in dict.fromkeys(found)
            if (queues is None or queue in queues)
            and _claimable(RunStatus(status), Recovery(recovery), purpose)
        ]

    def runnable(
        self, where: RunFilter, after: tuple[int, ...] | None, limit: int
    ) -> list[tuple[Candidate, RunSummary]]:
        """In claim order, for people. Reads only: nothing is promoted."""
        instant = self._clock.read()
        start = after or (-(1 << 62), 0, 0)
        queues = self._ready_queues() if where.queue is None else [where.queue]
        sources = [self._runnable_in(queue, where, start, limit) for queue in queues]
        few = self._candidates(self._sql.all("parked_due", rows.micros(instant.now)))
        few += self._ended_leases(None, instant)
        matching = sorted(
            candidate
            for candidate in few
            if candidate > start and where.matches(self._reading.summary(candidate.seq))
        )
        found = list(merge(*sources, matching))[:limit]
        return [(candidate, self._reading.summary(candidate.seq)) for candidate in found]

    def _ready_queues(self) -> list[str]:
        """One index look-up per queue, not one per run."""
        queues: list[str] = []
        while row := self._sql.first("next_ready_queue", queues[-1] if queues else ""):
            queues.append(row[0])
        return queues

    def _runnable_in(
        self, queue: str, where: RunFilter, start: tuple[int, ...], limit: int
    ) -> list[Candidate]:
        conditions, values = runnable_conditions(where)
        statement = (
            "select r.seq, r.rank, r.ready_at from runs r where r.readiness = 1 and r.queue = ? "
            f"and (r.rank, r.ready_at, r.seq) > (?, ?, ?){conditions} "
            "order by r.rank, r.ready_at, r.seq limit ?"
        )
        return self._candidates(self._sql.built(statement, (queue, *start, *values, limit)))

    # Renewing and releasing

    def renew(self, leases: Sequence[Lease], seconds: float) -> list[Renewal]:
        with self._writing.transaction() as instant:
            return [self._renew(lease, seconds, instant) for lease in leases]

    def _renew(self, lease: Lease, seconds: float, instant: Instant) -> Renewal:
        row = self._sql.first("renewal_facts", lease.run_id, lease.owner_id, lease.fence)
        if row is None:
            return Renewal(run_id=lease.run_id, ok=False)
        seq, boot_id, nanoseconds, wall, cancel_requested_at, version = row
        end = instant.extended(LeaseEnd(boot_id, nanoseconds, rows.moment(wall)), seconds)
        self._sql.do("renew_lease", *rows.lease_columns(end), seq)
        return Renewal(
            run_id=lease.run_id,
            ok=True,
            expires_at=end.wall,
            cancel_requested_at=rows.moment_or_none(cancel_requested_at),
            version=version,
        )

    def release(self, run_id: str, fencing: Fencing, update_id: str) -> None:
        with self._writing.transaction() as instant:
            head = self._writing.loading.find(run_id)
            if head is None:
                raise RunNotFound(run_id)
            given_back = release(head.run, fencing, instant.now)
            if given_back.event is not None:
                self._writing.put_ownership(
                    head, given_back.snapshot, given_back.event, update_id, instant.now
                )


def _claimable(status: RunStatus, recovery: Recovery, purpose: Purpose) -> bool:
    """Of a run whose lease has ended: whose business is it?"""
    if purpose is Purpose.RECONCILE:
        return recovery is Recovery.INTERRUPT
    return status is RunStatus.QUEUED or recovery is Recovery.RESUME
