"""Claims, renewals and releases."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from time import monotonic

from msgspec.structs import replace

from tenure.model.codec import copied
from tenure.model.errors import LeaseHeld, LeaseLost, NotRunnable, RunNotFound, StoreUnavailable
from tenure.model.leases import (
    Claimed,
    ClaimedRun,
    ClaimRequest,
    Lease,
    Pace,
    Renewal,
    claim,
    release,
)
from tenure.model.leases import Purpose as ClaimPurpose
from tenure.model.query import news
from tenure.model.snapshot import RunSnapshot
from tenure.model.update import Fencing, LeaseRequest
from tenure.stores.postgres.announcing import Announcing
from tenure.stores.postgres.batch import Batch
from tenure.stores.postgres.choosing import Choosing, Found
from tenure.stores.postgres.connections import Connections, Purpose
from tenure.stores.postgres.deciding import Deciding
from tenure.stores.postgres.names import can_exist, must_exist
from tenure.stores.postgres.patience import PAUSES, Busy, pause, pauses_for
from tenure.stores.postgres.rows import Head, Record, head_of, record_of, to_write
from tenure.stores.postgres.session import Session
from tenure.stores.postgres.unreadable import readable


class Leasing:
    def __init__(
        self, connections: Connections, deciding: Deciding, announcing: Announcing
    ) -> None:
        self._connections = connections
        self._deciding = deciding
        self._announcing = announcing
        self._choosing = Choosing()
        self._pace = Pace()

    # Claiming: write, commit, and only then read what is handed out

    async def claim_one(
        self, run_id: str, request: LeaseRequest, purpose: ClaimPurpose
    ) -> ClaimedRun:
        asked_at = monotonic()
        async with self._connections.session(Purpose.WRITING) as session:
            for seconds in PAUSES:
                await pause(seconds)
                try:
                    return await self._claim_one(session, run_id, request, purpose, asked_at)
                except Busy:
                    continue
        raise self._locked(f"run {run_id}")

    async def _claim_one(
        self,
        session: Session,
        run_id: str,
        request: LeaseRequest,
        purpose: ClaimPurpose,
        asked_at: float,
    ) -> ClaimedRun:
        async with session.undone_on_error():
            head, at = await self._lock(session, run_id)
            request = self._pace.in_time(request, asked_at, monotonic())
            owner_id = head.run.owner_id
            held = owner_id is not None and (
                head.lease_live
                or not request.expired
                or (owner_id, head.claim_id) == (request.owner_id, request.claim_id)
            )
            batch = Batch()
            _take(batch, 0, head, request, purpose, held, at)
            texts = await self._write_and_read(session, batch, [head])
        for one in self._handed_out(map(record_of, texts), [head], request.owner_id):
            return one
        raise LeaseLost(run_id, fence=head.run.fence + 1, owner_id=None)

    async def claim_many(self, request: ClaimRequest) -> list[ClaimedRun]:
        asked_at = monotonic()
        async with self._connections.session(Purpose.WRITING) as session:
            for seconds in PAUSES:
                await pause(seconds)
                try:
                    return await self._claim_many(session, request, asked_at)
                except Busy:
                    continue
        raise self._locked("a run of this claim, which was sent again,")

    async def _claim_many(
        self, session: Session, request: ClaimRequest, asked_at: float
    ) -> list[ClaimedRun]:
        lease = LeaseRequest(
            owner_id=request.owner_id, seconds=request.seconds, claim_id=request.claim_id
        )
        async with session.undone_on_error():
            repeated, picked = await self._choosing.pick(session, request)
            careful = self._pace.in_time(request, asked_at, monotonic())
            if not careful.expired:
                free = [each for each in picked if _is_free(each.head.run, request)]
                if len(free) < len(picked) == request.limit and not repeated:
                    # The expired ones were in the way of others.
                    repeated, free = await self._choosing.pick_anew(session, careful)
                picked = free
            batch = Batch()
            taken: list[Head] = []
            for head, at in repeated or picked:
                try:
                    _take(batch, len(taken), head, lease, request.purpose, bool(repeated), at)
                except (NotRunnable, LeaseHeld):
                    continue  # an index offers it and the model does not: it is left alone
                taken.append(head)
            texts = await self._write_and_read(session, batch, taken)
        claimed = self._handed_out(readable(texts, record_of), taken, request.owner_id)
        if not repeated:
            self._choosing.count(len(claimed))
        return claimed

    async def _write_and_read(
        self, session: Session, batch: Batch, heads: Sequence[Head]
    ) -> list[str]:
        """One trip: the reading is a statement after the commit, and sees what it sealed."""
        if not heads:
            await session.all("commit")
            return []
        self._deciding.forget(head.run.run_id for head in heads)
        *_, texts = await session.together(
            batch.update(),
            ("commit",),
            ("runs_by_seq", [head.seq for head in heads]),
        )
        return [text for (text,) in texts]

    def _handed_out(
        self, records: Iterable[Record], heads: Sequence[Head], owner_id: str
    ) -> list[ClaimedRun]:
        """Not what was taken away or ended in between."""
        claimed: dict[int, ClaimedRun] = {}
        for record in records:
            head = record.head
            if head.run.owner_id == owner_id and head.lease_expires_at is not None:
                claimed[head.seq] = self._claimed(record, owner_id, head.lease_expires_at)
        return [claimed[head.seq] for head in heads if head.seq in claimed]

    def _claimed(self, record: Record, owner_id: str, expires_at: datetime) -> ClaimedRun:
        """The owner will write this run next, so it is remembered as it was read."""
        head, snapshot, digest = record
        self._deciding.remember(head, snapshot.steps)
        lease = Lease(
            run_id=snapshot.run_id, owner_id=owner_id, fence=snapshot.fence, expires_at=expires_at
        )
        return ClaimedRun(lease=lease, snapshot=copied(snapshot), definition_digest=digest)

    # Renewing and releasing

    async def renew(self, leases: Sequence[Lease], seconds: float) -> list[Renewal]:
        """On a connection that does nothing else. A run locked by somebody else's transaction is
        neither waited for long nor given up, and never said to be renewed: who believed that would
        work on beside its successor."""
        answers = [Renewal(run_id=lease.run_id, ok=False) for lease in leases]
        left = [i for i, lease in enumerate(leases) if can_exist(lease.run_id)]
        async with self._connections.session(Purpose.KEEPING) as session:
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
            known = self._deciding.recent.get(run_id)
            if known is not None:
                known.head = replace(known.head, lease_expires_at=expires_at)
        return answers

    async def release(self, run_id: str, fencing: Fencing, update_id: str) -> None:
        async with self._connections.session(Purpose.WRITING) as session:
            for seconds in PAUSES:
                await pause(seconds)
                try:
                    await self._release(session, run_id, fencing, update_id)
                except Busy:
                    continue
                return
        raise self._locked(f"run {run_id}")

    async def _release(
        self, session: Session, run_id: str, fencing: Fencing, update_id: str
    ) -> None:
        async with session.undone_on_error():
            head, at = await self._lock(session, run_id)
            given_back = release(head.run, fencing, at)
            if given_back.event is None:
                await session.all("commit")
                return
            batch = Batch()
            _put(batch, 0, head, given_back, update_id, at)
            self._deciding.forget((run_id,))
            await session.together(batch.update(), ("commit",))
        self._announcing.announce(news(head.run, given_back.snapshot, at))

    async def _lock(self, session: Session, run_id: str) -> Found:
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
        return Found(head_of(row.head, row.callbacks), row.at)

    def _locked(self, which: str) -> StoreUnavailable:
        return StoreUnavailable(
            f"{which} is locked in {self._connections.address.place} by somebody else's "
            "transaction; nothing was written, send it again"
        )


def _is_free(run: RunSnapshot, request: ClaimRequest) -> bool:
    """Whatever its lease says: nobody can come back to it."""
    return run.owner_id is None or run.owner_id in request.dead_owners


def _take(
    batch: Batch,
    i: int,
    head: Head,
    request: LeaseRequest,
    purpose: ClaimPurpose,
    held: bool,
    at: datetime,
) -> None:
    """What this owner holds already is renewed."""
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
    batch: Batch,
    i: int,
    head: Head,
    claimed: Claimed,
    update_id: str,
    at: datetime,
    lease: LeaseRequest | None = None,
) -> None:
    """A claim or a release: a version of its own, with its event. Without one: a renewal."""
    run, event = claimed
    batch.change(i, head, run, at, lease, extends=event is None)
    if event is not None:
        batch.journal(i, run, update_id, (event,), (), at)
