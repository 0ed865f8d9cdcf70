"""Creations and updates, one transaction for one or for many.

The model decides; here is the order of the work: take the write lock, read the clocks, load what
the update concerns, ``decide``, store what is different then. Runs in the writer's thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import apsw
from msgspec.structs import replace

from tenure.model.codec import storable
from tenure.model.decide import NO_STEPS, Circumstances, choose_effect, decide
from tenure.model.errors import RunNotFound, StoreIncompatible, StoreRejected, TenureError
from tenure.model.leases import already_retried, check_repeated, create
from tenure.model.progress import StepDelta, concerns_steps
from tenure.model.snapshot import RunSnapshot
from tenure.model.update import Event, NewRun, Receipt, Update, Write, receipt, run_id_of
from tenure.stores.incoming import incoming
from tenure.stores.lease_clock import Instant, LeaseClock, LeaseEnd, shown
from tenure.stores.record_rows import SpecSummary
from tenure.stores.sqlite import rows
from tenure.stores.sqlite.database import DATA_ERRORS, savepoint, transaction
from tenure.stores.sqlite.loading import Loading
from tenure.stores.sqlite.reading import Reading
from tenure.stores.sqlite.rows import Head
from tenure.stores.sqlite.statements import Statements
from tenure.stores.sqlite.storing import Storing

_NOT_IN_HEAD: dict[str, Any] = {
    "steps": (),
    "callbacks": (),
    "vars": {},
    **{name: getattr(SpecSummary(), name) for name in SpecSummary.__struct_fields__},
}

_LIVE, _NOT_LIVE = Circumstances(lease_live=True), Circumstances()
"""Of an owner's update on the newest version; more need not be known about it."""


class Writing:
    def __init__(self, connection: apsw.Connection, clock: LeaseClock) -> None:
        self.connection = connection
        self._clock = clock
        self.sql = Statements(connection)
        self.reading = Reading(connection, clock)
        self.loading = Loading(self.sql, self.reading)
        self._storing = Storing(self.sql)
        self._created_at: datetime | None = None
        """When the runs of this transaction were created."""

    @contextmanager
    def transaction(self) -> Iterator[Instant]:
        """The write lock, and the one instant at which all within is judged: while the lock is
        held nobody else can change what was true then."""
        try:
            with transaction(self.connection):
                self.loading.begin()
                self._created_at = None
                yield self._clock.read()
                self.sql.flush()
        except BaseException as error:
            self._undone(error)
            raise

    def _undone(self, error: BaseException) -> None:
        """A refusal comes before anything is written or remembered. Whatever else happened: it was
        rolled back, and what we gathered and remember of it never was."""
        if self.sql.drop() or not isinstance(error, TenureError):
            self.loading.recent.forget_all()

    def now(self) -> datetime:
        return self._clock.now()

    def one(self, write: Write) -> Receipt:
        write = storable(run_id_of(write), write)
        try:
            with self.transaction() as instant:
                return self._write(write, instant)
        except DATA_ERRORS as error:
            raise _rejected(write, error) from error

    def many(self, writes: Sequence[Write]) -> list[Receipt | TenureError]:
        """One commit for all that are accepted. If the database cannot hold some value, nobody
        knows yet whose: all is done again, each write apart from the others."""
        given = incoming(writes)
        try:
            with self.transaction() as instant:
                return [self._one_of_many(write, instant) for write in given]
        except DATA_ERRORS:
            with self.transaction() as instant:
                return [self._apart(write, instant) for write in given]

    def _one_of_many(self, write: Write | TenureError, instant: Instant) -> Receipt | TenureError:
        try:
            return write if isinstance(write, TenureError) else self._write(write, instant)
        except TenureError as error:
            return error

    def _apart(self, write: Write | TenureError, instant: Instant) -> Receipt | TenureError:
        if isinstance(write, TenureError):
            return write
        try:
            with savepoint(self.connection):
                receipt = self._write(write, instant)
                self.sql.flush()
                return receipt
        except TenureError as error:
            return error
        except DATA_ERRORS as error:
            self.sql.drop()
            self.loading.recent.forget_all()
            return _rejected(write, error)

    def _write(self, write: Write, instant: Instant) -> Receipt:
        if isinstance(write, Update):
            return self._update(write, instant)
        return self._create(write, instant)

    def _create(self, new: NewRun, instant: Instant) -> Receipt:
        at = self._creation_time(instant)
        run = create(new, at, instant.now)
        root = None
        if run.retry_of is not None:
            if self.loading.find(run.run_id) is not None:
                return self._created_before(new)
            root = self._retry_root(run.retry_of)
        lease = new.lease
        claim_id, until = (lease.claim_id, instant.until(lease.seconds)) if lease else (None, None)
        head = self._storing.insert_run(run, new.definition, claim_id, until, at, root)
        if head is None:
            return self._created_before(new)
        self._storing.journal(head.seq, run, new.update_id, new.events, new.deliveries, at)
        if lease is not None:
            self.loading.remember(_without_spec(head), run.steps)
        return receipt(run, 1, shown(until))

    def _retry_root(self, retry_of: str) -> str:
        """``NotRunnable`` if a retry of that chain is active."""
        self.sql.flush()  # one may have ended in this very transaction
        known = self.sql.first("retry_root", retry_of)
        root: str = known[0] if known else retry_of
        active = self.sql.first("active_retry", root)
        if active is not None:
            raise already_retried(retry_of, *active)
        return root

    def _created_before(self, new: NewRun) -> Receipt:
        existing = self.loading.find(new.snapshot.run_id)
        if existing is None:
            raise StoreIncompatible("a run's name is taken, and the run is not there")
        check_repeated(existing.run, self.loading.update_id_of(existing.seq, 1), new)
        return receipt(existing.run, 1, shown(existing.lease_until))

    def _creation_time(self, instant: Instant) -> datetime:
        """Never before the newest run's: lists by time and lists by number then agree."""
        if self._created_at is None:
            newest = self.sql.first("newest_created_at")
            self._created_at = max(instant.now, rows.moment(newest[0])) if newest else instant.now
        return self._created_at

    def _update(self, update: Update, instant: Instant) -> Receipt:
        head = self.loading.find(update.run_id)
        if head is None:
            raise RunNotFound(update.run_id)
        circumstances = self._circumstances(head, update, instant)
        effect = choose_effect(head.run, update, circumstances.lease_live)
        run = self.loading.with_callbacks(head) if effect.deliveries else head.run
        steps = self.loading.steps(head) if concerns_steps(effect) else NO_STEPS
        decision = decide(run, steps, update, at=instant.now, circumstances=circumstances)
        if decision.effect is None:
            return receipt(head.run, decision.version, shown(head.lease_until))
        after = decision.own_fields(run)
        until = head.lease_until if after.owner_id is not None else None
        now = self._storing.put_head(head, after, head.claim_id, until, instant.now)
        for delta in decision.steps.values():
            self._storing.put_step(head.seq, delta, steps)
        self._storing.journal(
            head.seq, after, update.update_id, effect.events, effect.deliveries, instant.now
        )
        self._remember(now, after, decision.steps)
        return receipt(after, decision.version, shown(until))

    def _circumstances(self, head: Head, update: Update, instant: Instant) -> Circumstances:
        base, run = update.base_version, head.run
        live = run.owner_id is not None and instant.is_live(head.lease_until)
        if base == run.version and update.lease is not None:
            return _LIVE if live else _NOT_LIVE
        stale = base is not None and base < run.version
        return Circumstances(
            lease_live=live,
            applied_id=self.loading.update_id_of(head.seq, (base or 0) + 1) if stale else None,
            lease_expires_at=shown(head.lease_until),
        )

    def _remember(self, head: Head, after: RunSnapshot, changed: dict[int, StepDelta]) -> None:
        known = self.loading.recent.get(after.run_id)
        if known is None:
            return
        if after.ended:
            self.loading.recent.forget(after.run_id)
            return
        if after.callbacks:
            head = replace(head, run=replace(after, callbacks=()))
        known.advance(head, changed)

    def put_ownership(
        self,
        head: Head,
        run: RunSnapshot,
        event: Event | None,
        update_id: str,
        at: datetime,
        claim_id: str | None = None,
        until: LeaseEnd | None = None,
    ) -> None:
        """A claim or a release: a version of its own, with its event. Without one: a renewal."""
        self.loading.recent.forget(run.run_id)
        self._storing.put_head(head, run, claim_id, until, at)
        if event is not None:
            self._storing.journal(head.seq, run, update_id, (event,), (), at)


def _without_spec(head: Head) -> Head:
    """As a row of ``runs`` reads: what lives in other tables is not part of it."""
    return replace(head, run=replace(head.run, **_NOT_IN_HEAD))


def _rejected(write: Write, error: Exception) -> StoreRejected:
    return StoreRejected(run_id_of(write), f"cannot be stored: {error}")
