"""Runs that wait, and beginning one of them: a statement that looks, and one that claims it with
its first changes. Between the two nothing is locked; that nothing has happened meanwhile is found
out by the second."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from tenure.model.codec import copied, storable
from tenure.model.decide import WholeSteps, decide
from tenure.model.errors import NotRunnable, RunNotFound, StoreRejected, StoreUnavailable
from tenure.model.leases import Beginning, WaitingRun, taken_by
from tenure.model.progress import Steps
from tenure.model.status import RunStatus
from tenure.model.update import Receipt, receipt
from tenure.stores.postgres.batch import Batch
from tenure.stores.postgres.connections import Connections, Purpose
from tenure.stores.postgres.deciding import Deciding, NotRemembered, not_remembered
from tenure.stores.postgres.failures import DATA_ERRORS
from tenure.stores.postgres.names import must_exist
from tenure.stores.postgres.offers import Offers
from tenure.stores.postgres.patience import PAUSES, pause
from tenure.stores.postgres.rows import Head, Record, head_of, record_of, steps_of, to_write
from tenure.stores.postgres.session import Session
from tenure.stores.postgres.unreadable import readable
from tenure.stores.postgres.watched import Row
from tenure.stores.recent import Known


class _Found(NamedTuple):
    known: Known[Head]
    steps: Steps
    """As far as they are known, for whoever decides."""
    applied_id: str | None
    at: datetime | None
    """When it was read, by the server's clock; ``None``: it is remembered."""


class Beginnings:
    def __init__(self, connections: Connections, deciding: Deciding, offers: Offers) -> None:
        self._connections = connections
        self._deciding = deciding
        self._offers = offers

    def offered(self, queues: Sequence[str]) -> WaitingRun | None:
        """Whom a hint is for anybody can change who hears it, and send it on; the queue is in the
        record, which nobody can."""
        record = self._offers.only_one(queues)
        found = None if record is None else self._seen(record_of(record))
        return found if found is not None and found.snapshot.queue in queues else None

    async def waiting(self, queues: Sequence[str], limit: int) -> list[WaitingRun]:
        offered = self.offered(queues)
        if offered is not None:
            return [offered]
        self._offers.look(queues)
        found: list[Row] | None = None
        try:
            async with self._connections.session(Purpose.READING) as session:
                found = await session.all("waiting_runs", sorted(set(queues)), limit)
        finally:
            if found is None or len(found) >= limit:
                self._offers.found_more(queues)
        texts = (text for (text,) in found)
        return [self._seen(record) for record in readable(texts, record_of)]

    def _seen(self, record: Record) -> WaitingRun:
        """What is seen is remembered: who looks is about to begin it."""
        head, snapshot, digest = record
        if snapshot.status is RunStatus.QUEUED:
            self._deciding.remember(head, snapshot.steps)
        return WaitingRun(snapshot=copied(snapshot), definition_digest=digest)

    async def begin(self, beginning: Beginning) -> Receipt:
        run_id = must_exist(beginning.run_id)
        beginning = storable(run_id, beginning)
        async with self._connections.session(Purpose.WRITING) as session:
            try:
                return await self._begin(session, beginning)
            except DATA_ERRORS as error:
                reason = str(error).splitlines()[0]
                raise StoreRejected(run_id, f"cannot be stored: {reason}") from error

    async def _begin(self, session: Session, beginning: Beginning) -> Receipt:
        run_id = beginning.run_id
        found = self._remembered(beginning)
        for seconds in PAUSES:
            await pause(seconds)
            self._deciding.forget((run_id,))
            if found is None:
                found = await self._read(session, beginning)
            try:
                written = await self._write(session, beginning, found)
            except NotRemembered:
                written = None
            except NotRunnable:
                if found.at is not None:
                    raise
                written = None  # its time may have come: the server's clock is to say
            if written is not None:
                return written
            found = None
        raise self._locked(run_id)

    def _locked(self, run_id: str) -> StoreUnavailable:
        return StoreUnavailable(
            f"run {run_id} is locked in {self._connections.address.place} by somebody else's "
            "transaction; nothing was written, send it again"
        )

    def _remembered(self, beginning: Beginning) -> _Found | None:
        known = self._deciding.recent.get(beginning.run_id)
        if known is None or known.head.run.version != beginning.base_version:
            return None
        return _Found(known, known, None, None)

    async def _read(self, session: Session, beginning: Beginning) -> _Found:
        run_id, base = beginning.run_id, beginning.base_version
        row = await session.first("runs_to_write", [run_id], [base], [True])
        if row is None:
            raise RunNotFound(run_id)
        found = to_write(row[0])
        head = head_of(found.head, found.callbacks)
        steps = steps_of(head.run, found)
        known = Known(head, steps, not_remembered)
        return _Found(known, WholeSteps(steps), found.applied_id, found.at)

    async def _write(self, session: Session, beginning: Beginning, found: _Found) -> Receipt | None:
        """``None``: it is not as it was known, or somebody else is writing it."""
        known, steps, applied_id, at = found
        head, at = known.head, at or await session.now()
        taken = taken_by(head.run, beginning, at=at, applied_id=applied_id)
        if taken is None:
            await session.confirm()
            return receipt(head.run, beginning.base_version + 1, head.lease_expires_at)
        run, update = taken
        decision = decide(run, steps, update, at=at)
        after, effect = decision.own_fields(run), beginning.effect
        batch = Batch()
        batch.change(0, head, after, at, beginning.lease)
        for delta in decision.steps.values():
            batch.put_step(0, delta, steps)
        batch.journal(0, after, beginning.update_id, effect.events, effect.deliveries, at)
        name, *values = batch.beginning()
        ((heard, accepted),) = await session.all(name, *values)
        session.heard(heard)
        if accepted != "[0]":
            return None
        until = _at_least_until(at, beginning.lease.seconds)
        owned = Head(head.seq, after, beginning.lease.claim_id, until, lease_live=True)
        known.advance(owned, decision.steps)
        self._deciding.recent.put(after.run_id, known)
        return receipt(after, decision.version, until)


def _at_least_until(at: datetime, seconds: float) -> datetime:
    """The lease counts from the statement, which came later than ``at``."""
    return at + timedelta(seconds=seconds)
