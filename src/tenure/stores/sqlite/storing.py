"""Write what changed of a run, row by row. Decides nothing; the transaction is the caller's."""

from __future__ import annotations

import hashlib
from datetime import datetime

from tenure.model.decide import NO_STEPS
from tenure.model.outbox import origin_of
from tenure.model.progress import StepDelta, Steps
from tenure.model.snapshot import RunSnapshot
from tenure.model.status import StepStatus
from tenure.model.update import Event, NewDelivery, record
from tenure.stores import record_rows
from tenure.stores.lease_clock import LeaseEnd
from tenure.stores.sqlite import rows
from tenure.stores.sqlite.rows import Head
from tenure.stores.sqlite.statements import Statements
from tenure.stores.step_rows import HOST_ITSELF, added_hosts, bare, item_rows, started


class Storing:
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
        """A new run with its spec and the steps that start with it; ``None``, and nothing is
        written, if there is one of that name."""
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
        """The run's own row, and how it now reads. SQLite rewrites an index when a statement merely
        names one of its columns, so plain progress has a statement of its own that names none."""
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
        """``run_after`` lives in the spec; it is asked for only where it could matter."""
        ready = record_rows.readiness(run, at)
        if ready != record_rows.READY:
            return ready
        (summary,) = self._sql.one("spec_for_lists", seq)
        return record_rows.readiness(record_rows.with_spec(run, summary), at)

    def put_step(self, seq: int, delta: StepDelta, steps: Steps = NO_STEPS) -> None:
        """``steps`` as they were."""
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
        """The version's one journal row, and the callbacks its events owe."""
        moment = run.updated_at or at
        stamp, body = rows.micros(moment), record_rows.text(events)
        self._sql.later("insert_journal", seq, run.version, stamp, run.fence, update_id, body)
        if not deliveries:
            return
        origins = {target.name: origin_of(target) for target in run.callbacks}
        for new in deliveries:
            event = record(
                events[new.seq],
                run_id=run.run_id,
                version=run.version,
                seq=new.seq,
                at=moment,
                fence=run.fence,
            )
            self._sql.later(
                "insert_delivery",
                new.id,
                seq,
                new.target,
                run.version,
                new.seq,
                run.status,
                rows.micros(at),
                record_rows.text(event),
                origins[new.target],
            )
