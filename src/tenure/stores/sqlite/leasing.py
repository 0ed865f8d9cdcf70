"""Claims, renewals and releases inside one transaction of the writer's thread."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic

from msgspec.structs import replace

from tenure.model.codec import copied
from tenure.model.errors import NotRunnable, RunNotFound
from tenure.model.leases import (
    ClaimedRun,
    ClaimRequest,
    Lease,
    Pace,
    Purpose,
    Renewal,
    claim,
    release,
)
from tenure.model.update import Fencing, LeaseRequest
from tenure.stores import record_rows
from tenure.stores.lease_clock import Instant, LeaseEnd, shown
from tenure.stores.sqlite import rows
from tenure.stores.sqlite.choosing import Choosing
from tenure.stores.sqlite.database import one_view
from tenure.stores.sqlite.rows import Head
from tenure.stores.sqlite.writing import Writing


class Leasing:
    def __init__(self, writing: Writing) -> None:
        self._writing = writing
        self._connection = writing.connection
        self._sql = writing.sql
        self._loading = writing.loading
        self._reading = writing.reading
        self._choosing = Choosing(writing.sql, writing.reading)
        self._pace = Pace()

    # Claiming: write, commit, and only then read what is handed out

    def claim_one(
        self, run_id: str, request: LeaseRequest, purpose: Purpose, asked_at: float
    ) -> ClaimedRun:
        """``asked_at`` by ``monotonic``: another process may have kept us from the file since."""
        with self._writing.transaction() as instant:
            request = self._pace.in_time(request, asked_at, monotonic())
            head = self._found(run_id)
            owner_id = head.run.owner_id
            held = owner_id is not None and (
                instant.is_live(head.lease_until)
                or not (request.expired or instant.rebooted_since(head.lease_until))
                or (owner_id, head.claim_id) == (request.owner_id, request.claim_id)
            )
            self._claim(head, request, purpose, held, instant)
        return self._claimed(head.seq)

    def claim_many(self, request: ClaimRequest, asked_at: float) -> list[ClaimedRun]:
        lease = LeaseRequest(
            owner_id=request.owner_id, seconds=request.seconds, claim_id=request.claim_id
        )
        with self._writing.transaction() as instant:
            request = self._pace.in_time(request, asked_at, monotonic())
            found = self._sql.all("held_under_claim", request.owner_id, request.claim_id)
            repeated = [seq for (seq,) in found]
            if not repeated:
                self._sql.do("promote_parked", rows.micros(instant.now))
            taken = [
                seq
                for seq in repeated or self._choosing.pick(request, instant)
                if self._take(seq, lease, request.purpose, bool(repeated), instant)
            ]
            if not repeated:
                self._sql.later("count_claims", len(taken))
        return [self._claimed(seq) for seq in taken]

    def _take(
        self, seq: int, lease: LeaseRequest, purpose: Purpose, held: bool, instant: Instant
    ) -> bool:
        """False for a run that an index offers and the model does not: it is left alone."""
        try:
            self._claim(self._loading.head(seq), lease, purpose, held, instant)
        except NotRunnable:
            return False
        return True

    def _claim(
        self, head: Head, request: LeaseRequest, purpose: Purpose, held: bool, instant: Instant
    ) -> None:
        """What this owner holds already is renewed."""
        (summary,) = self._sql.one("spec_for_lists", head.seq)
        taken = claim(
            record_rows.with_spec(head.run, summary),
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
        """The owner will write this run next, so it is remembered as it was read."""
        with one_view(self._connection):
            head, snapshot = self._reading.snapshot_by_seq(seq)
            digest = self._reading.definition_digest(seq)
        if not snapshot.ended:
            self._loading.remember(head, snapshot.steps)
            snapshot = copied(snapshot)  # what is remembered is nobody else's
        lease = Lease(
            run_id=snapshot.run_id,
            owner_id=snapshot.owner_id or "",
            fence=snapshot.fence,
            expires_at=shown(head.lease_until) or self._writing.now(),
        )
        return ClaimedRun(lease=lease, snapshot=snapshot, definition_digest=digest)

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
        self._sql.later("renew_lease", *rows.lease_columns(end), seq)
        known = self._loading.recent.get(lease.run_id)
        if known is not None:
            known.head = replace(known.head, lease_until=end)
        return Renewal(
            run_id=lease.run_id,
            ok=True,
            expires_at=end.wall,
            cancel_requested_at=rows.moment_or_none(cancel_requested_at),
            version=version,
        )

    def release(self, run_id: str, fencing: Fencing, update_id: str) -> None:
        with self._writing.transaction() as instant:
            head = self._found(run_id)
            given_back = release(head.run, fencing, instant.now)
            if given_back.event is not None:
                self._writing.put_ownership(
                    head, given_back.snapshot, given_back.event, update_id, instant.now
                )

    def _found(self, run_id: str) -> Head:
        head = self._loading.find(run_id)
        if head is None:
            raise RunNotFound(run_id)
        return head
