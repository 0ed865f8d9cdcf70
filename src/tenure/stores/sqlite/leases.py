"""Claims, renewals and releases, each one transaction of the writer's thread; the claim order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from itertools import islice
from time import monotonic
from typing import NamedTuple

from msgspec.structs import replace

from tenure.model.codec import copied
from tenure.model.errors import NotRunnable, RunNotFound
from tenure.model.leases import (
    OLDEST_EVERY,
    ClaimedRun,
    ClaimRequest,
    LateAnswers,
    Lease,
    LeaseToken,
    Purpose,
    Renewal,
    check_same_token,
    claim,
    release,
    why_not_runnable,
)
from tenure.model.query import RunFilter
from tenure.model.snapshot import RunSummary
from tenure.model.update import Fencing, LeaseRequest
from tenure.stores import rows as record_rows
from tenure.stores.lease_clock import Instant, LeaseEnd, shown
from tenure.stores.sqlite import rows
from tenure.stores.sqlite.connection import one_view
from tenure.stores.sqlite.read import Reader, runnable_conditions
from tenure.stores.sqlite.rows import Head, Row, Statements
from tenure.stores.sqlite.write import Writer


class Leases:
    def __init__(self, writing: Writer) -> None:
        self._writing = writing
        self._connection = writing.connection
        self._sql = writing.sql
        self._loading = writing.loading
        self._reading = writing.reading
        self._choosing = ClaimOrder(writing.sql, writing.reading)
        self._pace = LateAnswers()

    # Claiming: write, commit, and only then read the claimed runs.

    def claim_one(
        self, run_id: str, request: LeaseRequest, purpose: Purpose, asked_at: float
    ) -> ClaimedRun:
        """``asked_at`` by ``monotonic``: another process may have locked the file since."""
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
        lease = request.lease
        with self._writing.transaction() as instant:
            request = self._pace.in_time(request, asked_at, monotonic())
            found = self._sql.all("held_under_claim", request.owner_id, request.claim_id)
            repeated = [seq for seq, token_id in found if request.token_id in (None, token_id)]
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
        """False for a run that is in a claim index but not claimable."""
        try:
            self._claim(self._loading.head(seq), lease, purpose, held, instant)
        except NotRunnable:
            return False
        return True

    def _claim(
        self, head: Head, request: LeaseRequest, purpose: Purpose, held: bool, instant: Instant
    ) -> None:
        """Renews a run that this owner already holds."""
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
        if taken.event is None and request.token_id is not None:
            bound = self._sql.one("lease_token", head.seq)
            check_same_token(taken.snapshot, LeaseToken(*bound), request)
        self._writing.put_ownership(
            head,
            taken.snapshot,
            taken.event,
            request.claim_id,
            instant.now,
            request.claim_id,
            instant.extended(end, request.seconds),
        )
        if request.token_id is not None:
            self._sql.later("bind_lease", request.token_id, taken.snapshot.fence, head.seq)

    def _claimed(self, seq: int) -> ClaimedRun:
        """Caches the run, because its owner will write it next."""
        with one_view(self._connection):
            head, snapshot = self._reading.snapshot_by_seq(seq)
            digest = self._reading.definition_digest(seq)
        if not snapshot.ended:
            self._loading.remember(head, snapshot.steps)
            snapshot = copied(snapshot)  # the cached one is not shared with the caller
        lease = Lease(
            run_id=snapshot.run_id,
            owner_id=snapshot.owner_id or "",
            fence=snapshot.fence,
            expires_at=shown(head.lease_until) or self._writing.now(),
        )
        return ClaimedRun(lease=lease, snapshot=snapshot, definition_digest=digest)

    # Renewing and releasing.

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
            released = release(head.run, fencing, instant.now)
            if released.event is not None:
                self._writing.put_ownership(
                    head, released.snapshot, released.event, update_id, instant.now
                )

    def _found(self, run_id: str) -> Head:
        head = self._loading.find(run_id)
        if head is None:
            raise RunNotFound(run_id)
        return head


_FROM_THE_START = (-(1 << 62), 0, 0)
_BEFORE_ANY_LEASE = -1
"""As a time of this boot's clock: selects only leases of other boots."""


class Candidate(NamedTuple):
    """Sorts by claim order."""

    rank: int
    ready_at: int
    seq: int


def by_age(candidate: Candidate) -> tuple[int, int]:
    return (candidate.ready_at, candidate.seq)


class ClaimOrder:
    def __init__(self, sql: Statements, reading: Reader) -> None:
        self._sql = sql
        self._reading = reading

    def pick(self, request: ClaimRequest, instant: Instant) -> list[int]:
        """Runs to claim: by priority, every tenth the oldest. Promote parked runs first."""
        ended = self._ended_leases(request, instant)
        (claims,) = self._sql.one("claims_made")
        picked: dict[int, None] = {}
        while len(picked) < request.limit:
            before_the_tenth = OLDEST_EVERY - 1 - (claims + len(picked)) % OLDEST_EVERY
            room = min(request.limit - len(picked), max(before_the_tenth, 1))
            found = self._next(request, ended, before_the_tenth == 0, picked, room, instant)
            if not found:
                break
            picked.update(dict.fromkeys(found))
        return list(picked)

    def _next(
        self,
        request: ClaimRequest,
        ended: list[Candidate],
        oldest: bool,
        without: dict[int, None],
        limit: int,
        instant: Instant,
    ) -> list[int]:
        """The next ones in order, except ``without``: picked already, but still in the indexes."""
        if request.purpose is Purpose.RECONCILE:
            sources = [_candidates(self._sql.each("orphaned"))]
        else:
            order = "ready_by_age" if oldest else "ready_by_priority"
            sources = [
                _candidates(self._sql.each(order, queue)) for queue in sorted(set(request.queues))
            ]
        key = by_age if oldest else None
        held = {candidate.seq for candidate in ended}
        in_order = (
            candidate.seq
            for candidate in merge(*sources, sorted(ended, key=key), key=key)
            if candidate.seq not in without
            and (
                (candidate.seq not in held and _due(candidate, instant))
                or self._claimable(candidate.seq, request.purpose, instant)
            )
        )
        return list(islice(in_order, limit))

    def _ended_leases(self, request: ClaimRequest, instant: Instant) -> list[Candidate]:
        """Runs whose lease has ended or is of another boot, or whose owner is proven dead."""
        reconciling = request.purpose is Purpose.RECONCILE
        expired = "expired_to_end" if reconciling else "expired_resumable"
        owners = "to_end_of_owner" if reconciling else "leases_of_owner"
        boot_id, until = instant.boot
        found = self._sql.all(expired, boot_id, until if request.expired else _BEFORE_ANY_LEASE)
        for owner_id in request.dead_owners:
            found += self._sql.all(owners, owner_id)
        return [
            Candidate(rank, ready_at, seq)
            for seq, rank, ready_at, queue in dict.fromkeys(found)
            if reconciling or queue in request.queues
        ]

    def _claimable(self, seq: int, purpose: Purpose, instant: Instant) -> bool:
        return why_not_runnable(self._reading.summary(seq), instant.now, purpose) is None

    def runnable(
        self, where: RunFilter, after: tuple[int, ...] | None, limit: int, instant: Instant
    ) -> list[tuple[Candidate, RunSummary]]:
        """For lists: runs that are ready, parked and due, or without a live owner, in claim
        order."""
        start = after or _FROM_THE_START
        queues = self._ready_queues() if where.queue is None else [where.queue]
        sources = [self._ready_in(queue, where, start, instant) for queue in queues]
        few = list(_candidates(self._sql.each("parked_due", rows.micros(instant.now))))
        expired = self._sql.all("expired_resumable", *instant.boot)
        few += [Candidate(rank, ready_at, seq) for seq, rank, ready_at, _ in expired]
        found = islice(merge(*sources, self._runnable_of(few, where, start, instant)), limit)
        return [(candidate, self._reading.summary(candidate.seq)) for candidate in found]

    def _runnable_of(
        self, few: list[Candidate], where: RunFilter, start: tuple[int, ...], instant: Instant
    ) -> Iterator[Candidate]:
        for candidate in sorted(few):
            if candidate > start:
                run = self._reading.summary(candidate.seq)
                if where.matches(run) and why_not_runnable(run, instant.now) is None:
                    yield candidate

    def _ready_queues(self) -> list[str]:
        """One index look-up per queue, not one per run."""
        queues: list[str] = []
        while row := self._sql.first("next_ready_queue", queues[-1] if queues else ""):
            queues.append(row[0])
        return queues

    def _ready_in(
        self, queue: str, where: RunFilter, start: tuple[int, ...], instant: Instant
    ) -> Iterator[Candidate]:
        conditions, values = runnable_conditions(where)
        statement = (
            "select r.seq, r.rank, r.ready_at from runs r where r.readiness = 1 and r.queue = ? "
            f"and (r.rank, r.ready_at, r.seq) > (?, ?, ?){conditions} "
            "order by r.rank, r.ready_at, r.seq"
        )
        for candidate in _candidates(self._sql.each_built(statement, (queue, *start, *values))):
            if _due(candidate, instant) or self._claimable(candidate.seq, Purpose.EXECUTE, instant):
                yield candidate


def _candidates(found: Iterable[Row]) -> Iterator[Candidate]:
    return (Candidate(rank, ready_at, seq) for seq, rank, ready_at in found)


def _due(candidate: Candidate, instant: Instant) -> bool:
    """If false, the wall clock has been set back, and ``run_after`` must be read."""
    return candidate.ready_at <= rows.micros(instant.now)
