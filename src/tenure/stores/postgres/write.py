"""Creations, updates and beginnings of runs: usually one trip and one commit for many.

An owner's next update is decided on the cached run (``RunCache``); the statement that writes it
checks that version, fence and owner are unchanged, and otherwise writes nothing of that run. All
others (an operator's change, a repetition, a refusal) are decided on the stored run: locked, read
and written in one transaction of two trips. A run that another transaction is writing is retried
separately from the others.

A waiting run is claimed and begun in one statement, which checks in the same way that it has not
changed since it was read.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from tenure.model.codec import checked, copied, decode, storable, without_repeats
from tenure.model.decide import WholeSteps, decide
from tenure.model.errors import (
    NotRunnable,
    RunNotFound,
    StoreRejected,
    StoreUnavailable,
    TenureError,
)
from tenure.model.leases import Beginning, WaitingRun, already_retried, taken_by
from tenure.model.progress import Steps, concerns_steps
from tenure.model.status import RunStatus
from tenure.model.update import NewRun, Receipt, Update, Write, receipt, run_id_of
from tenure.stores.postgres.batch import (
    Batch,
    NotRemembered,
    RunCache,
    RunRows,
    not_remembered,
    updated,
)
from tenure.stores.postgres.connection import PAUSES_S, Row, Session, locked, pause, pauses_for
from tenure.stores.postgres.errors import DATA_ERRORS, is_second_retry
from tenure.stores.postgres.notify import Announcer
from tenure.stores.postgres.pools import Connections, Purpose
from tenure.stores.postgres.rows import (
    Head,
    Record,
    ToWriteRow,
    can_exist,
    head_of,
    must_exist,
    readable,
    record_of,
    steps_of,
    to_write,
)
from tenure.stores.run_cache import CachedRun

Outcome = Receipt | TenureError
_Work = list[tuple[int, Write]]
"""Writes by their place in the call."""


class RunWrites:
    _connections: Connections
    _cache: RunCache
    _announcer: Announcer

    async def create_run(self, new: NewRun) -> Receipt:
        return await self._write_one(new)

    async def update_run(self, update: Update) -> Receipt:
        return await self._write_one(update)

    async def _write_one(self, write: Write) -> Receipt:
        (outcome,) = await self.update_runs([write])
        if isinstance(outcome, TenureError):
            raise outcome
        return outcome

    async def update_runs(self, writes: Sequence[Write]) -> list[Outcome]:
        """A data error fails the whole batch: it is halved until the write with the wrong value is
        alone. A run that stays locked gets ``StoreUnavailable``; other errors are raised for all.
        """
        outcomes: dict[int, Outcome] = {}
        work: _Work = []
        for i, write in enumerate(without_repeats(writes)):
            if isinstance(write, TenureError):
                outcomes[i] = write
            else:
                work.append((i, write))
        batches = [work]
        while batches:
            batch = [each for each in batches.pop() if each[0] not in outcomes]
            failure: Exception | None = None
            try:
                if batch:
                    async with self._connections.session(Purpose.WRITING) as session:
                        try:
                            await self._write_batch(session, batch, outcomes)
                        except DATA_ERRORS as error:
                            failure = error
            except BaseException:
                self._cache.forget_all_of(run_id_of(write) for _, write in batch)
                raise
            if failure is None:
                continue
            self._cache.forget_all_of(run_id_of(write) for _, write in batch)
            if len(batch) == 1:
                ((i, write),) = batch
                outcomes[i] = await self._refusal(write, failure)
            else:
                half = len(batch) // 2
                batches += [batch[half:], batch[:half]]
        return [outcomes[i] for i in range(len(writes))]

    async def _write_batch(
        self, session: Session, work: _Work, outcomes: dict[int, Outcome]
    ) -> None:
        left = await self._write_from_cache(session, work, outcomes)
        for seconds in pauses_for(len(work)):
            if not left:
                return
            await pause(seconds)
            left = await self._write_from_store(session, left, outcomes)
        for i, write in left:
            place = self._connections.address.place
            outcomes[i] = locked(f"run {run_id_of(write)}", place)

    async def _write_from_cache(
        self, session: Session, work: _Work, outcomes: dict[int, Outcome]
    ) -> _Work:
        """Returns the writes to be decided on the stored run."""
        at = await session.now()
        batch, left = Batch(self._cache), []
        for (i, _), write in zip(work, checked([write for _, write in work]), strict=True):
            if isinstance(write, TenureError):
                outcomes[i] = write
                continue
            try:
                batch.decide_from_cache(i, write, at)
            except NotRemembered:
                if can_exist(run_id_of(write)):
                    left.append((i, write))
                else:
                    outcomes[i] = RunNotFound(run_id_of(write))
            except TenureError as refusal:
                if isinstance(write, NewRun):
                    outcomes[i] = refusal
                else:
                    left.append((i, write))
        calls = batch.calls()
        if len(calls) == 1:
            ((name, *values),) = calls
            answers = [await session.all(name, *values)]
        else:
            answers = await session.together(*calls) if calls else []
        return left + self._written(session, work, batch, answers, outcomes)

    async def _write_from_store(
        self, session: Session, work: _Work, outcomes: dict[int, Outcome]
    ) -> _Work:
        """Returns the writes of runs that another transaction is writing."""
        async with session.undone_on_error():
            found, free = await _lock_runs(session, [write for _, write in work])
            batch, left = Batch(self._cache), []
            for i, write in work:
                run_id = run_id_of(write)
                if run_id in found and run_id not in free:
                    left.append((i, write))
                    continue
                try:
                    answer = batch.decide_from_store(i, write, found)
                except TenureError as refusal:
                    outcomes[i] = refusal
                else:
                    if answer is not None:
                        outcomes[i] = answer
            *answers, _ = await session.together(*batch.calls(), ("commit",))
        return left + self._written(session, work, batch, answers, outcomes)

    def _written(
        self,
        session: Session,
        work: _Work,
        batch: Batch,
        answers: Sequence[list[Row]],
        outcomes: dict[int, Outcome],
    ) -> _Work:
        """Take the receipts; returns the writes that the statement left out."""
        written = batch.receipts(session, answers)
        self._announcer.announce(batch.news_of(written))
        outcomes |= written
        refused = batch.refused(written)
        return [each for each in work if each[0] in refused] if refused else []

    async def _refusal(self, write: Write, failure: Exception) -> TenureError:
        if isinstance(write, NewRun) and write.snapshot.retry_of and is_second_retry(failure):
            retry_of = write.snapshot.retry_of
            async with self._connections.session(Purpose.WRITING) as session:
                active = await session.first("active_retry", retry_of)
            if active is not None:
                return already_retried(retry_of, *active)
            return StoreUnavailable(f"another retry of {retry_of} has just ended; send it again")
        reason = str(failure).splitlines()[0]
        return StoreRejected(run_id_of(write), f"cannot be stored: {reason}")

    # Beginnings.

    async def find_waiting(self, queues: Sequence[str], *, limit: int) -> list[WaitingRun]:
        async with self._connections.session(Purpose.READING) as session:
            found = await session.all("waiting_runs", sorted(set(queues)), limit)
        return [self._seen(record) for record in readable((text for (text,) in found), record_of)]

    def _seen(self, found: Record) -> WaitingRun:
        """Caches the run, because it is about to be begun."""
        head, snapshot, digest = found
        if snapshot.status is RunStatus.QUEUED:
            self._cache.remember(head, snapshot.steps)
        return WaitingRun(snapshot=copied(snapshot), definition_digest=digest)

    async def begin_run(self, beginning: Beginning) -> Receipt:
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
        for seconds in PAUSES_S:
            await pause(seconds)
            self._cache.forget(run_id)
            if found is None:
                found = await _read_to_begin(session, beginning)
            try:
                written = await self._claim_and_write(session, beginning, found)
            except NotRemembered:
                written = None
            except NotRunnable:
                if found.at is not None:
                    raise
                written = None  # perhaps by now: decide again by the server's clock
            if written is not None:
                return written
            found = None
        raise locked(f"run {run_id}", self._connections.address.place)

    def _remembered(self, beginning: Beginning) -> _ToBegin | None:
        known = self._cache.get(beginning.run_id)
        if known is None or known.head.run.version != beginning.base_version:
            return None
        return _ToBegin(known, known, None, None)

    async def _claim_and_write(
        self, session: Session, beginning: Beginning, found: _ToBegin
    ) -> Receipt | None:
        """``None``: it has changed, or another transaction is writing it."""
        known, steps, applied_id, at = found
        head, at = known.head, at or await session.now()
        taken = taken_by(head.run, beginning, at=at, applied_id=applied_id)
        if taken is None:
            await session.confirm()
            return receipt(head.run, beginning.base_version + 1, head.lease_expires_at)
        run, update = taken
        decision = decide(run, steps, update, at=at)
        after, effect = decision.own_fields(run), beginning.effect
        rows = RunRows()
        rows.change(0, head, after, at, beginning.lease)
        for delta in decision.steps.values():
            rows.put_step(0, delta, steps)
        rows.journal(0, after, beginning.update_id, effect.events, effect.deliveries, at)
        name, *values = rows.update()
        ((heard, accepted),) = await session.all(name, *values)
        session.heard(heard)
        if not decode(updated, accepted):
            return None
        # Not later than the stored one, which counts from the statement.
        until = at + timedelta(seconds=beginning.lease.seconds)
        owned = Head(head.seq, after, beginning.lease.claim_id, until, lease_live=True)
        known.advance(owned, decision.steps)
        self._cache.put(after.run_id, known)
        return receipt(after, decision.version, until)


class _ToBegin(NamedTuple):
    known: CachedRun[Head]
    steps: Steps
    applied_id: str | None
    at: datetime | None
    """Time of the read by the server's clock; ``None``: from the cache."""


async def _read_to_begin(session: Session, beginning: Beginning) -> _ToBegin:
    run_id, base = beginning.run_id, beginning.base_version
    row = await session.first("runs_to_write", [run_id], [base], [True])
    if row is None:
        raise RunNotFound(run_id)
    found = to_write(row[0])
    head = head_of(found.head, found.callbacks)
    steps = steps_of(head.run, found)
    known = CachedRun(head, steps, not_remembered)
    return _ToBegin(known, WholeSteps(steps), found.applied_id, found.at)


async def _lock_runs(
    session: Session, writes: Sequence[Write]
) -> tuple[dict[str, ToWriteRow], set[str]]:
    """Begin a transaction, lock, and only then read. Returns the runs that exist, and the ids of
    those locked here."""
    ids = [run_id_of(write) for write in writes]
    bases = [write.base_version if isinstance(write, Update) else None for write in writes]
    whole = [isinstance(write, Update) and _concerns_steps(write) for write in writes]
    *_, locked_here, texts = await session.together(
        ("begin",), ("carefully",), ("lock_runs", ids), ("runs_to_write", ids, bases, whole)
    )
    seqs = {seq for (seq,) in locked_here}
    found = {row.head.run_id: row for row in (to_write(text) for (text,) in texts)}
    return found, {run_id for run_id, row in found.items() if row.head.seq in seqs}


def _concerns_steps(update: Update) -> bool:
    return (
        update.lease is not None
        or concerns_steps(update.effect)
        or (update.if_unowned is not None and concerns_steps(update.if_unowned))
    )
