"""Which runs may be claimed, and in which order."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from tenure.model.leases import OLDEST_EVERY, ClaimRequest, Purpose
from tenure.model.query import Page, RunFilter, bounded_limit, decode_cursor, encode_cursor
from tenure.model.snapshot import RunSummary
from tenure.stores.postgres.connections import Connections
from tenure.stores.postgres.connections import Purpose as Lane
from tenure.stores.postgres.failures import DATA_ERRORS
from tenure.stores.postgres.listing import Values, conditions_of, status_and_workflow
from tenure.stores.postgres.patience import Busy
from tenure.stores.postgres.rows import Head, head_of, head_row, summary_of
from tenure.stores.postgres.session import Call, Session
from tenure.stores.postgres.statements import FRAGMENTS
from tenure.stores.postgres.unreadable import readable
from tenure.stores.postgres.watched import Row

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_START = (-1000, _EPOCH - timedelta(days=365), 0)


class Found(NamedTuple):
    head: Head
    at: datetime
    """When it was read, by the server's clock."""


class Picked(NamedTuple):
    repeated: list[Found]
    """Held under this very claim already: then nothing else is taken."""
    claimable: list[Found]


class Choosing:
    """Each process counts its own claims: of every ten the oldest goes first, whoever claims."""

    def __init__(self) -> None:
        self._claims = 0

    def count(self, claims: int) -> None:
        self._claims += claims

    async def pick(self, session: Session, request: ClaimRequest) -> Picked:
        """Begin a transaction; lock what is held under this very claim already, and what might be
        claimed. More may be locked than is taken: the commit lets go of it.

        ``Busy`` if somebody else is writing one that is held already. The others alone would be
        taken for all of them: whoever sent the claim again would never hear of that one."""
        return await self._pick(session, request, ("begin",))

    async def pick_anew(self, session: Session, request: ClaimRequest) -> Picked:
        """In place of what was picked before, and in the same trip lets go of it: whoever has what
        is not taken may want to renew it meanwhile."""
        return await self._pick(session, request, ("commit",), ("begin",))

    async def _pick(self, session: Session, request: ClaimRequest, *beginning: Call) -> Picked:
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
            return Picked(_found(held), _found(found[0]))
        by_age = found[2] if len(found) > 2 else []
        return Picked(_found(held), self._in_order(_found(found[1]), _found(by_age), limit))

    def _oldest_among(self, limit: int) -> int:
        return sum(self._is_the_oldests_turn(place) for place in range(limit))

    def _is_the_oldests_turn(self, place: int) -> bool:
        return (self._claims + place) % OLDEST_EVERY == OLDEST_EVERY - 1

    def _in_order(self, by_priority: list[Found], by_age: list[Found], limit: int) -> list[Found]:
        picked: dict[int, Found] = {}
        while len(picked) < limit:
            first = by_age if self._is_the_oldests_turn(len(picked)) else by_priority
            found = _next(first, picked) or _next(by_priority, picked) or _next(by_age, picked)
            if found is None:
                break
            picked[found.head.seq] = found
        return list(picked.values())


def _next(found: list[Found], picked: dict[int, Found]) -> Found | None:
    while found:
        first = found.pop(0)
        if first.head.seq not in picked:
            return first
    return None


def _found(rows: list[Row]) -> list[Found]:
    return [
        Found(head_of(row), at.astimezone(UTC))
        for text, at in rows
        for row in readable((text,), head_row)
    ]


async def runnable(
    connections: Connections, where: RunFilter, limit: int, cursor: str | None
) -> Page[RunSummary]:
    """What could be claimed now, in claim order."""
    limit = bounded_limit(limit)
    statement, values = runnable_statement(where, cursor, limit + 1)
    async with connections.session(Lane.READING) as session:
        try:
            found = await session.carefully(statement, values)
        except DATA_ERRORS:
            found = []  # what cannot be written down was never stored
    return Page(
        items=tuple(readable((text for *_, text in found[:limit]), summary_of)),
        cursor=encode_cursor("runnable", *found[limit - 1][:3]) if len(found) > limit else None,
    )


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
"""One ordered range per queue, the queues found by steps from one to the next; and the few that are
due or expired."""
