"""Which runs may be claimed, and in which order. Reads only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import islice
from typing import NamedTuple

from tenure.model.leases import OLDEST_EVERY, ClaimRequest, Purpose, why_not_runnable
from tenure.model.query import RunFilter
from tenure.model.snapshot import RunSummary
from tenure.stores.lease_clock import Instant
from tenure.stores.sqlite import rows
from tenure.stores.sqlite.listing import runnable_conditions
from tenure.stores.sqlite.reading import Reading
from tenure.stores.sqlite.statements import Row, Statements

_FROM_THE_START = (-(1 << 62), 0, 0)
_BEFORE_ANY_LEASE = -1
"""By this boot's clock: of the leases that ended, only those of other boots."""


class Candidate(NamedTuple):
    """Sorts by claim order."""

    rank: int
    ready_at: int
    seq: int


def by_age(candidate: Candidate) -> tuple[int, int]:
    return (candidate.ready_at, candidate.seq)


class Choosing:
    def __init__(self, sql: Statements, reading: Reading) -> None:
        self._sql = sql
        self._reading = reading

    def pick(self, request: ClaimRequest, instant: Instant) -> list[int]:
        """Runs to claim: by priority, every tenth the oldest. Parked runs that are due must have
        been promoted before."""
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
        """The next ones in order; what was picked a moment ago is still in the indexes."""
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
        """Held by an owner whose lease has run out or is of another boot, or who is proven dead."""
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
        """In claim order, for people: what is ready, has become due, or lost its owner."""
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
    """Beyond doubt. Else the wall clock has been set back, and ``run_after`` must be looked up."""
    return candidate.ready_at <= rows.micros(instant.now)
