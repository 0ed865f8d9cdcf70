"""Creations and updates, one transaction for one or for many, in the writer's thread.

Take the write lock, read the clocks, load what the update concerns, let the model ``decide``, write
the rows that differ.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import apsw
from msgspec.structs import replace

from tenure.model.codec import incoming, storable
from tenure.model.decide import NO_STEPS, Circumstances, choose_effect, decide
from tenure.model.errors import RunNotFound, StoreIncompatible, StoreRejected, TenureError
from tenure.model.leases import already_retried, check_repeated, create
from tenure.model.progress import StepDelta, Steps, concerns_steps
from tenure.model.snapshot import HostState, RunSnapshot, StepState
from tenure.model.status import StepStatus
from tenure.model.update import (
    Event,
    NewDelivery,
    NewRun,
    Receipt,
    Update,
    Write,
    receipt,
    run_id_of,
)
from tenure.stores import rows as record_rows
from tenure.stores.lease_clock import Instant, LeaseClock, LeaseEnd, shown
from tenure.stores.rows import HOST_ITSELF, SpecSummary, added_hosts, bare, item_rows, started
from tenure.stores.run_cache import CachedRun, Recent
from tenure.stores.sqlite import rows
from tenure.stores.sqlite.connection import DATA_ERRORS, savepoint, transaction
from tenure.stores.sqlite.read import Reader
from tenure.stores.sqlite.rows import Head, Statements

_NOT_IN_HEAD: dict[str, Any] = {
    "steps": (),
    "callbacks": (),
    "vars": {},
    **{name: getattr(SpecSummary(), name) for name in SpecSummary.__struct_fields__},
}

_LIVE, _NOT_LIVE = Circumstances(lease_live=True), Circumstances()
"""All that an owner's update of the newest version needs."""


class Writer:
    def __init__(self, connection: apsw.Connection, clock: LeaseClock) -> None:
        self.connection = connection
        self._clock = clock
        self.sql = Statements(connection)
        self.reading = Reader(connection, clock)
        self.loading = RunLoader(self.sql, self.reading)
        self._storing = RowWriter(self.sql)
        self._created_at: datetime | None = None
        """Creation time of all runs of this transaction."""

    @contextmanager
    def transaction(self) -> Iterator[Instant]:
        """Takes the write lock; yields the time at which everything inside is decided."""
        try:
            with transaction(self.connection):
                self.loading.begin()
                self._created_at = None
                yield self._clock.read()
                self.sql.flush()
        except BaseException as error:
            # A refusal comes before anything is written or cached; all else was rolled back.
            if self.sql.drop() or not isinstance(error, TenureError):
                self.loading.recent.forget_all()
            raise

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
        """One commit for all that are accepted. If the database cannot store some value, all is
        repeated with a savepoint for each write."""
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
        """Never before the newest run's, so that the orders by time and by number agree."""
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
        """A claim or a release is a version with an event; without an event it is a renewal."""
        self.loading.recent.forget(run.run_id)
        self._storing.put_head(head, run, claim_id, until, at)
        if event is not None:
            self._storing.journal(head.seq, run, update_id, (event,), (), at)


def _without_spec(head: Head) -> Head:
    """As read from a row of ``runs`` alone."""
    return replace(head, run=replace(head.run, **_NOT_IN_HEAD))


def _rejected(write: Write, error: Exception) -> StoreRejected:
    return StoreRejected(run_id_of(write), f"cannot be stored: {error}")


class RowWriter:
    def __init__(self, sql: Statements) -> None:
        self._sql = sql

    def insert_run(
        self,
        run: RunSnapshot,
        definition: str | None,
        claim_id: str | None,
        until: LeaseEnd | None,
        at: datetime,
        retry_root: str | None,
    ) -> Head | None:
        """A new run with its spec and started steps; ``None``, with nothing written, if its id is
        taken."""
        created_at = rows.micros(at)
        counts, detail = record_rows.text(run.counts), rows.detail_text(run)
        inserted = self._sql.written(
            "insert_run",
            run.run_id,
            run.workflow_name,
            retry_root,
            run.status,
            run.version,
            run.fence,
            run.owner_id,
            claim_id,
            *rows.lease_columns(until),
            run.takeovers,
            run.takeovers_without_progress,
            run.recovery,
            run.queue,
            -run.priority,
            rows.ready_at(run, at),
            record_rows.readiness(run, at),
            None,
            created_at,
            rows.micros_or_none(run.started_at),
            None,
            created_at,
            counts,
            detail,
        )
        if inserted is None:
            return None
        (seq,) = inserted
        self._insert_spec(seq, run, definition)
        for step in run.steps:
            if step.status is not StepStatus.PENDING:
                self.put_step(seq, started(step))
        return Head(seq, run, claim_id, until, counts, detail)

    def _insert_spec(self, seq: int, run: RunSnapshot, definition: str | None) -> None:
        digest = None
        if definition is not None:
            digest = hashlib.sha256(definition.encode()).hexdigest()
            self._sql.later("insert_definition", digest, definition)
        self._sql.later(
            "insert_spec",
            seq,
            digest,
            record_rows.text(record_rows.spec_summary(run)),
            record_rows.text(run.callbacks) if run.callbacks else None,
            record_rows.text(run.vars) if run.vars else None,
            record_rows.plan_text(run.steps),
        )
        for key, value in run.labels.items():
            self._sql.later("insert_label", key, value, seq)

    def put_head(
        self,
        head: Head,
        run: RunSnapshot,
        claim_id: str | None,
        until: LeaseEnd | None,
        at: datetime,
    ) -> Head:
        """Write the run's row and return it. SQLite rewrites an index when a statement names one of
        its columns, so plain progress has a statement that names none."""
        old = head.run
        counts, detail = rows.counts_text(run, head), rows.detail_text(run, head)
        if (
            run.status is old.status
            and run.owner_id == old.owner_id
            and run.fence == old.fence
            and run.approval is old.approval
            and until is head.lease_until
            and claim_id == head.claim_id
        ):
            self._sql.later(
                "update_progress",
                run.version,
                run.takeovers_without_progress,
                rows.micros_or_none(run.cancel_requested_at),
                rows.micros(run.updated_at or at),
                counts,
                detail,
                head.seq,
            )
            return Head(head.seq, run, claim_id, until, counts, detail)
        if run.owner_id is None:
            claim_id = None
        self._sql.later(
            "update_run",
            run.status,
            run.version,
            run.fence,
            run.owner_id,
            claim_id,
            *rows.lease_columns(until),
            run.takeovers,
            run.takeovers_without_progress,
            self._readiness(head.seq, run, at),
            rows.micros_or_none(run.cancel_requested_at),
            rows.micros_or_none(run.started_at),
            rows.micros_or_none(run.finished_at),
            rows.micros(run.updated_at or at),
            counts,
            detail,
            head.seq,
        )
        return Head(head.seq, run, claim_id, until, counts, detail)

    def _readiness(self, seq: int, run: RunSnapshot, at: datetime) -> int:
        """``run_after`` is in the spec, which is read only where it could matter."""
        ready = record_rows.readiness(run, at)
        if ready != record_rows.READY:
            return ready
        (summary,) = self._sql.one("spec_for_lists", seq)
        return record_rows.readiness(record_rows.with_spec(run, summary), at)

    def put_step(self, seq: int, delta: StepDelta, steps: Steps = NO_STEPS) -> None:
        """``steps`` as they were before."""
        step, index = delta.after, delta.after.index
        if step is not delta.before:
            body, hosts = record_rows.text(bare(step)), added_hosts(delta)
            added = None if hosts is None else record_rows.text(hosts)
            self._sql.later("put_step", seq, index, body, added)
        for name, host in delta.hosts.items():
            rows = item_rows(steps, delta, name, host) if host.items else ((HOST_ITSELF, host),)
            for item, value in rows:
                self._sql.later("put_task", seq, index, name, item, record_rows.text(value))

    def journal(
        self,
        seq: int,
        run: RunSnapshot,
        update_id: str,
        events: tuple[Event, ...],
        deliveries: tuple[NewDelivery, ...],
        at: datetime,
    ) -> None:
        """The version's journal row, and the callbacks of its events."""
        moment = run.updated_at or at
        stamp, body = rows.micros(moment), record_rows.text(events)
        self._sql.later("insert_journal", seq, run.version, stamp, run.fence, update_id, body)
        for new, origin, event in record_rows.delivery_events(run, events, deliveries, moment):
            self._sql.later(
                "insert_delivery",
                new.id,
                seq,
                new.target,
                run.version,
                new.seq,
                run.status,
                rows.micros(at),
                event,
                origin,
            )


class RunLoader:
    def __init__(self, sql: Statements, reading: Reader) -> None:
        self._sql = sql
        self._reading = reading
        self.recent: Recent[Head] = Recent()
        self._data_version = -1

    def begin(self) -> None:
        """At the start of a transaction: notice writes of other connections."""
        self._data_version = self._sql.one("data_version")[0]

    def remember(self, head: Head, steps: Iterable[StepState]) -> CachedRun[Head]:
        known = CachedRun(head, steps, self._ended_host)
        known.seen_in = self._data_version
        self.recent.put(head.run.run_id, known)
        return known

    def find(self, run_id: str) -> Head | None:
        known = self.recent.get(run_id)
        if known is not None:
            if known.seen_in == self._data_version:
                return known.head
            head = rows.current(known.head, self._sql.first("mark", known.head.seq))
            if head is not None:
                known.head, known.seen_in = head, self._data_version
                return head
            self.recent.forget(run_id)
        row = self._sql.first("head_by_id", run_id)
        return rows.head_of(row) if row else None

    def head(self, seq: int) -> Head:
        return rows.head_of(self._sql.one("head_by_seq", seq))

    def update_id_of(self, seq: int, version: int) -> str | None:
        row = self._sql.first("update_id_of", seq, version)
        return row[0] if row else None

    def with_callbacks(self, head: Head) -> RunSnapshot:
        (callbacks,) = self._sql.one("callbacks", head.seq)
        return replace(head.run, callbacks=record_rows.callbacks_of(callbacks))

    def steps(self, head: Head) -> CachedRun[Head]:
        """From the cache, or read."""
        known = self.recent.get(head.run.run_id)
        if known is not None:
            return known
        steps = self._reading.steps(head)
        if head.run.ended:
            return CachedRun(head, steps, self._ended_host)
        return self.remember(head, steps)

    def _ended_host(self, known: CachedRun[Head], step: int, name: str) -> HostState | None:
        row = self._sql.first("host", known.head.seq, step, name)
        return record_rows.host_of(row[0]) if row is not None else None
