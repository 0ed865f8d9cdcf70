"""Claims, renewals and releases; the claim order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Any, NamedTuple

from msgspec.structs import replace

from tenure.model.codec import copied
from tenure.model.errors import LeaseHeld, LeaseLost, NotRunnable, RunNotFound
from tenure.model.leases import (
    OLDEST_EVERY,
    Claimed,
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
)
from tenure.model.query import Page, RunFilter, bounded_limit, decode_cursor, encode_cursor, news
from tenure.model.snapshot import RunSnapshot, RunSummary
from tenure.model.update import Fencing, LeaseRequest, check_lease_seconds
from tenure.stores.postgres.batch import RunCache, RunRows
from tenure.stores.postgres.connection import (
    Busy,
    Row,
    Session,
    locked,
    pause,
    pauses_for,
    until_free,
)
from tenure.stores.postgres.errors import DATA_ERRORS
from tenure.stores.postgres.notify import Announcer
from tenure.stores.postgres.pools import Connections
from tenure.stores.postgres.pools import Purpose as Pool
from tenure.stores.postgres.read import conditions_of, status_and_workflow
from tenure.stores.postgres.rows import (
    Head,
    Record,
    can_exist,
    head_of,
    head_row,
    must_exist,
    readable,
    record_of,
    summary_of,
    to_write,
)
from tenure.stores.postgres.statements import FRAGMENTS, Call, Values

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_START = (-1000, _EPOCH - timedelta(days=365), 0)


class _Found(NamedTuple):
    head: Head
    at: datetime
    """When it was read, by the server's clock."""


class _Picked(NamedTuple):
    repeated: list[_Found]
    """Held under this claim already: then nothing else is taken."""
    claimable: list[_Found]


class ClaimOrder:
    """By priority, every tenth the oldest; each process counts its own claims."""

    def __init__(self) -> None:
        self._claims = 0

    def count(self, claims: int) -> None:
        self._claims += claims

    async def pick(self, session: Session, request: ClaimRequest) -> _Picked:
        """Begin a transaction; lock runs held under this claim already, and claimable ones, perhaps
        more than are taken. ``Busy`` if another transaction is writing one that is held: the answer
        to a repeated claim must be complete."""
        return await self._pick(session, request, ("begin",))

    async def pick_anew(self, session: Session, request: ClaimRequest) -> _Picked:
        """Pick again, after releasing the locks: owners may want to renew runs not taken."""
        return await self._pick(session, request, ("commit",), ("begin",))

    async def _pick(self, session: Session, request: ClaimRequest, *beginning: Call) -> _Picked:
        limit, dead = max(request.limit, 0), sorted(request.dead_owners)
        calls: list[Call] = [
            *beginning,
            ("carefully",),
            ("held_under_claim", request.owner_id, request.claim_id),
        ]
        if request.purpose is Purpose.RECONCILE:
            calls.append(("pick_abandoned", limit, request.expired, dead))
        else:
            queues, oldest = sorted(set(request.queues)), self._oldest_among(limit)
            calls.append(("promote_parked",))
            calls.append(("pick_by_priority", queues, limit, request.expired, dead))
            if oldest:
                calls.append(("pick_by_age", queues, oldest, request.expired, dead))
        _, held, *found = (await session.together(*calls))[len(beginning) :]
        if any(head is None for head, _ in held):
            raise Busy
        if request.purpose is Purpose.RECONCILE:
            return _Picked(_found(held), _found(found[0]))
        by_age = found[2] if len(found) > 2 else []
        return _Picked(_found(held), self._in_order(_found(found[1]), _found(by_age), limit))

    def _oldest_among(self, limit: int) -> int:
        return sum(self._is_the_oldests_turn(place) for place in range(limit))

    def _is_the_oldests_turn(self, place: int) -> bool:
        return (self._claims + place) % OLDEST_EVERY == OLDEST_EVERY - 1

    def _in_order(
        self, by_priority: list[_Found], by_age: list[_Found], limit: int
    ) -> list[_Found]:
        picked: dict[int, _Found] = {}
        while len(picked) < limit:
            first = by_age if self._is_the_oldests_turn(len(picked)) else by_priority
            found = _next(first, picked) or _next(by_priority, picked) or _next(by_age, picked)
            if found is None:
                break
            picked[found.head.seq] = found
        return list(picked.values())


def _next(found: list[_Found], picked: dict[int, _Found]) -> _Found | None:
    while found:
        first = found.pop(0)
        if first.head.seq not in picked:
            return first
    return None


def _found(rows: list[Row]) -> list[_Found]:
    return [
        _Found(head_of(row), at.astimezone(UTC))
        for text, at in rows
        for row in readable((text,), head_row)
    ]


class Leases:
    _connections: Connections
    _cache: RunCache
    _announcer: Announcer
    _claim_order: ClaimOrder
    _pace: LateAnswers

    async def list_runnable(
        self, where: RunFilter = RunFilter(), *, limit: int = 50, cursor: str | None = None
    ) -> Page[RunSummary]:
        """What could be claimed now, in claim order."""
        limit = bounded_limit(limit)
        statement, values = runnable_statement(where, cursor, limit + 1)
        async with self._connections.session(Pool.READING) as session:
            try:
                found = await session.carefully(statement, values)
            except DATA_ERRORS:
                found = []  # what cannot be written down was never stored
        return Page(
            items=tuple(readable((text for *_, text in found[:limit]), summary_of)),
            cursor=encode_cursor("runnable", *found[limit - 1][:3]) if len(found) > limit else None,
        )

    # Claiming: write, commit, and only then read the claimed runs.

    async def claim_run(
        self, run_id: str, request: LeaseRequest, purpose: Purpose = Purpose.EXECUTE
    ) -> ClaimedRun:
        asked_at = monotonic()
        async with self._connections.session(Pool.WRITING) as session:
            return await until_free(
                lambda: self._claim_one(session, run_id, request, purpose, asked_at),
                locked(f"run {run_id}", self._connections.address.place),
            )

    async def _claim_one(
        self,
        session: Session,
        run_id: str,
        request: LeaseRequest,
        purpose: Purpose,
        asked_at: float,
    ) -> ClaimedRun:
        async with session.undone_on_error():
            head, at = await self._lock_run(session, run_id)
            request = self._pace.in_time(request, asked_at, monotonic())
            owner_id = head.run.owner_id
            held = owner_id is not None and (
                head.lease_live
                or not request.expired
                or (owner_id, head.claim_id) == (request.owner_id, request.claim_id)
            )
            if held and owner_id == request.owner_id:
                await self._check_same_token(session, head, request)
            batch = RunRows()
            _take(batch, 0, head, request, purpose, held, at)
            texts = await self._write_and_read(session, batch, [head], request.token_id)
        for one in self._still_held(map(record_of, texts), [head], request.owner_id):
            return one
        raise LeaseLost(run_id, fence=head.run.fence + 1, owner_id=None)

    async def _check_same_token(self, session: Session, head: Head, request: LeaseRequest) -> None:
        """``LeaseHeld``."""
        if request.token_id is None:
            return
        mine = await session.all("tokens_of_held", [head.seq], request.token_id)
        bound = LeaseToken(head.run.fence, request.token_id) if mine else None
        check_same_token(head.run, bound, request)

    async def claim_runs(self, request: ClaimRequest) -> list[ClaimedRun]:
        asked_at = monotonic()
        place = self._connections.address.place
        async with self._connections.session(Pool.WRITING) as session:
            return await until_free(
                lambda: self._claim_many(session, request, asked_at),
                locked("a run of this claim, which was sent again,", place),
            )

    async def _claim_many(
        self, session: Session, request: ClaimRequest, asked_at: float
    ) -> list[ClaimedRun]:
        lease = request.lease
        async with session.undone_on_error():
            repeated, picked = await self._claim_order.pick(session, request)
            if repeated and request.token_id is not None:
                seqs = [each.head.seq for each in repeated]
                mine = await session.all("tokens_of_held", seqs, request.token_id)
                repeated = [each for each in repeated if (each.head.seq,) in mine]
            careful = self._pace.in_time(request, asked_at, monotonic())
            if not careful.expired:
                free = [each for each in picked if _is_free(each.head.run, request)]
                if len(free) < len(picked) == request.limit and not repeated:
                    # The expired ones took the place of others.
                    repeated, free = await self._claim_order.pick_anew(session, careful)
                picked = free
            batch = RunRows()
            taken: list[Head] = []
            for head, at in repeated or picked:
                try:
                    _take(batch, len(taken), head, lease, request.purpose, bool(repeated), at)
                except (NotRunnable, LeaseHeld):
                    continue  # in a claim index but not claimable
                taken.append(head)
            texts = await self._write_and_read(session, batch, taken, request.token_id)
        claimed = self._still_held(readable(texts, record_of), taken, request.owner_id)
        if not repeated:
            self._claim_order.count(len(claimed))
        return claimed

    async def _write_and_read(
        self, session: Session, batch: RunRows, heads: Sequence[Head], token_id: str | None
    ) -> list[str]:
        """One trip; the read is a statement after the commit."""
        if not heads:
            await session.all("commit")
            return []
        self._cache.forget_all_of(head.run.run_id for head in heads)
        seqs = [head.seq for head in heads]
        bound: list[Call] = [] if token_id is None else [("bind_leases", seqs, token_id)]
        *_, texts = await session.together(
            batch.update(), *bound, ("commit",), ("runs_by_seq", seqs)
        )
        return [text for (text,) in texts]

    def _still_held(
        self, records: Iterable[Record], heads: Sequence[Head], owner_id: str
    ) -> list[ClaimedRun]:
        """Without runs that ended or lost this owner since."""
        claimed: dict[int, ClaimedRun] = {}
        for record in records:
            head = record.head
            if head.run.owner_id == owner_id and head.lease_expires_at is not None:
                claimed[head.seq] = self._claimed(record, owner_id, head.lease_expires_at)
        return [claimed[head.seq] for head in heads if head.seq in claimed]

    def _claimed(self, record: Record, owner_id: str, expires_at: datetime) -> ClaimedRun:
        """Caches the run, because its owner will write it next."""
        head, snapshot, digest = record
        self._cache.remember(head, snapshot.steps)
        lease = Lease(
            run_id=snapshot.run_id, owner_id=owner_id, fence=snapshot.fence, expires_at=expires_at
        )
        return ClaimedRun(lease=lease, snapshot=copied(snapshot), definition_digest=digest)

    # Renewing and releasing.

    async def renew_leases(self, leases: Sequence[Lease], seconds: float) -> list[Renewal]:
        """On a connection of its own. A run that another transaction locks for long is answered as
        ``busy``: neither lost nor renewed."""
        check_lease_seconds(seconds)
        answers = [Renewal(run_id=lease.run_id, ok=False) for lease in leases]
        left = [i for i, lease in enumerate(leases) if can_exist(lease.run_id)]
        async with self._connections.session(Pool.KEEPING) as session:
            for wait in pauses_for(len(leases)):
                await pause(wait)
                found = await self._renew(session, [leases[i] for i in left], seconds)
                for i, answer in zip(left, found, strict=True):
                    answers[i] = answer
                left = [i for i in left if answers[i].busy]
                if not left:
                    break
        return answers

    async def _renew(
        self, session: Session, leases: Sequence[Lease], seconds: float
    ) -> list[Renewal]:
        given = (
            [lease.run_id for lease in leases],
            [lease.owner_id for lease in leases],
            [lease.fence for lease in leases],
        )
        rows, found = await session.together(
            ("renew_leases", *given, seconds), ("lease_facts", *given)
        )
        renewed = set(rows)
        answers = [Renewal(run_id=lease.run_id, ok=False) for lease in leases]
        for i, seq, expires_at, cancel_requested_at, version in found:
            run_id = leases[i - 1].run_id
            answers[i - 1] = Renewal(
                run_id=run_id,
                ok=True,
                busy=(seq,) not in renewed,
                expires_at=expires_at,
                cancel_requested_at=cancel_requested_at,
                version=version,
            )
            known = self._cache.get(run_id)
            if known is not None:
                known.head = replace(known.head, lease_expires_at=expires_at)
        return answers

    async def release_lease(self, run_id: str, fencing: Fencing, update_id: str) -> None:
        async with self._connections.session(Pool.WRITING) as session:
            await until_free(
                lambda: self._release(session, run_id, fencing, update_id),
                locked(f"run {run_id}", self._connections.address.place),
            )

    async def _release(
        self, session: Session, run_id: str, fencing: Fencing, update_id: str
    ) -> None:
        async with session.undone_on_error():
            head, at = await self._lock_run(session, run_id)
            released = release(head.run, fencing, at)
            if released.event is None:
                await session.all("commit")
                return
            batch = RunRows()
            _put(batch, 0, head, released, update_id, at)
            self._cache.forget(run_id)
            await session.together(batch.update(), ("commit",))
        self._announcer.announce(news(head.run, released.snapshot, at))

    async def _lock_run(self, session: Session, run_id: str) -> _Found:
        """Begins the transaction. ``RunNotFound``, ``Busy``."""
        *_, locked, texts = await session.together(
            ("begin",),
            ("carefully",),
            ("lock_runs", [must_exist(run_id)]),
            ("runs_to_write", [run_id], [None], [False]),
        )
        if not texts:
            raise RunNotFound(run_id)
        row = to_write(texts[0][0])
        if (row.head.seq,) not in locked:
            raise Busy
        return _Found(head_of(row.head, row.callbacks), row.at)


def _is_free(run: RunSnapshot, request: ClaimRequest) -> bool:
    """Whatever its lease: it has no owner, or a dead one."""
    return run.owner_id is None or run.owner_id in request.dead_owners


def _take(
    batch: RunRows,
    i: int,
    head: Head,
    request: LeaseRequest,
    purpose: Purpose,
    held: bool,
    at: datetime,
) -> None:
    """Renews a run that this owner already holds."""
    taken = claim(
        head.run,
        request.owner_id,
        at=at,
        lease_live=held,
        expires_at=head.lease_expires_at,
        purpose=purpose,
    )
    _put(batch, i, head, taken, request.claim_id, at, request)


def _put(
    batch: RunRows,
    i: int,
    head: Head,
    claimed: Claimed,
    update_id: str,
    at: datetime,
    lease: LeaseRequest | None = None,
) -> None:
    """A claim or a release is a version with an event; without an event it is a renewal."""
    run, event = claimed
    batch.change(i, head, run, at, lease, extends=event is None)
    if event is not None:
        batch.journal(i, run, update_id, (event,), (), at)


def runnable_statement(where: RunFilter, cursor: str | None, limit: int) -> tuple[str, list[Any]]:
    after = _START
    if cursor is not None:
        rank, micros, seq = decode_cursor("runnable", cursor, 3)
        after = (rank, _EPOCH + micros * _MICROSECOND, seq)
    values = Values()
    rank_, ready_at_, seq_ = (values.bind(part) for part in after)
    conditions = "".join(
        f" and {each}"
        for each in (
            f"(r.rank, r.ready_at, r.seq) > ({rank_}::smallint, {ready_at_}, {seq_})",
            *conditions_of(where, values),
            *status_and_workflow(where, values),
        )
    )
    statement = _RUNNABLE.format(
        conditions=conditions, limit=values.bind(limit), head=FRAGMENTS["head"]
    )
    return statement, values.all


_RUNNABLE = """
with recursive queues(queue) as (
  (select r.queue from tenure.runs r where r.readiness = 1 order by r.queue limit 1)
  union all
  select (
    select r.queue from tenure.runs r where r.readiness = 1 and r.queue > q.queue
    order by r.queue limit 1)
  from queues q where q.queue is not null
)
select r.rank, (extract(epoch from r.ready_at) * 1000000)::bigint, r.seq,
  json_build_array({head}, s.summary)::text
from (
  select p.* from queues q, lateral (
    select * from tenure.runs r where r.readiness = 1 and r.queue = q.queue{conditions}
    order by r.rank, r.ready_at, r.seq limit {limit}) p
  union all
  select * from tenure.runs r
  where r.readiness = 2 and r.ready_at <= (select tenure.clock()){conditions}
  union all
  select * from tenure.runs r
  where r.owner_id is not null and r.lease_expires_at <= (select tenure.clock())
    and (r.status = 'queued' or r.recovery = 'resume') and r.approved
    and (r.run_after is null or r.run_after <= (select tenure.clock())){conditions}
) r, lateral (select * from tenure.run_specs where seq = r.seq limit 1) s
order by r.rank, r.ready_at, r.seq limit {limit}
"""
"""One ordered range per queue, and the few that are due or expired."""
