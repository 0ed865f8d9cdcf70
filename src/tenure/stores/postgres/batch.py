"""What one trip to the server writes: the rows of many runs, gathered.

A row for each run. What is kept as it is goes beside the rows, a line of JSON for each: the server
only looks where it ends, which is quick, and no NUL in somebody's output makes it stumble.
A callback names its write by ``i``: that of a refused one is then left out by the statement itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from hashlib import sha256

from tenure.model.apply import NO_STEPS
from tenure.model.deltas import StepDelta, Steps
from tenure.model.events import Event, record
from tenure.model.outbox import origin_of
from tenure.model.snapshot import RunSnapshot
from tenure.model.update import LeaseRequest, NewDelivery, NewRun
from tenure.stores import record_rows
from tenure.stores.postgres import alone
from tenure.stores.postgres.rows import Head, detail_text
from tenure.stores.postgres.session import Call
from tenure.stores.postgres.write_rows import ChangedRunRow, DeliveryRow, NewRunRow, ProgressRow
from tenure.stores.step_rows import ChangedRows, changed_rows


class Batch:
    """For creations or for updates."""

    def __init__(self) -> None:
        self._runs: list[NewRunRow | ChangedRunRow | ProgressRow] = []
        self._events: list[tuple[Event, ...] | None] = []
        """Beside each run."""
        self._progress: list[ChangedRows | None] = []
        """The same."""
        self._deliveries: list[DeliveryRow] = []
        self._digests: dict[str, str] = {}
        """Of the definitions that runs of this batch have: each goes along once."""
        self.may_seal = True
        """Whether a run that comes alone may be announced with its record."""

    def __bool__(self) -> bool:
        return bool(self._runs)

    def creation(self, aboard: Sequence[str] = ()) -> Call:
        """The statement that writes it. What there is no row for it does not mention: to begin with
        a table costs the server more than a row of it."""
        if self._deliveries:
            told = record_rows.text(self._deliveries)
            return ("create_runs", *self._of_runs(), told, list(aboard))
        run = self._runs[0]
        is_alone = len(self._runs) == 1 and self.may_seal
        if is_alone and isinstance(run, NewRunRow) and alone.waits(run):
            return alone.creation(run, record_rows.text(self._events[0]), aboard)
        return ("create_plain_runs", *self._of_runs(), list(aboard))

    def update(self) -> Call:
        if self._deliveries:
            told = record_rows.text(self._deliveries)
            return ("update_runs", *self._of_runs(), told)
        return ("update_quiet_runs", *self._of_runs())

    def beginning(self) -> Call:
        """As ``update``, of one run that nobody owned."""
        (run,) = self._runs
        if self._deliveries or not isinstance(run, ChangedRunRow):
            return self.update()
        (events,), (progress,) = self._events, self._progress
        return alone.beginning(
            run, record_rows.text(events), None if progress is None else record_rows.text(progress)
        )

    def _of_runs(self) -> tuple[str, ...]:
        lines = record_rows.lines
        return record_rows.text(self._runs), lines(self._events), lines(self._progress)

    def _add(self, run: NewRunRow | ChangedRunRow | ProgressRow) -> None:
        self._runs.append(run)
        self._events.append(None)
        self._progress.append(None)

    def create(self, i: int, new: NewRun, run: RunSnapshot, at: datetime) -> None:
        lease, definition, digest = new.lease, new.definition, None
        if definition is not None:
            digest = self._digests.get(definition)
            if digest is None:
                digest = self._digests[definition] = sha256(definition.encode()).hexdigest()
            else:
                definition = None
        self._add(
            NewRunRow(
                i=i,
                run_id=run.run_id,
                workflow_name=run.workflow_name,
                status=run.status,
                version=run.version,
                fence=run.fence,
                owner_id=run.owner_id,
                claim_id=lease.claim_id if lease else None,
                seconds=lease.seconds if lease else None,
                recovery=run.recovery,
                queue=run.queue,
                rank=-run.priority,
                ready_at=max(run.run_after or at, at),
                readiness=record_rows.readiness(run, at),
                approved=not run.approval.required or run.approval.at is not None,
                run_after=run.run_after,
                started_at=run.started_at,
                updated_at=at,
                counts=run.counts,
                detail=detail_text(run),
                digest=digest,
                definition=None if definition is None else record_rows.text(definition),
                summary=record_rows.text(record_rows.spec_summary(run)),
                callbacks=record_rows.text(run.callbacks) if run.callbacks else None,
                vars=record_rows.text(run.vars) if run.vars else None,
                plan=record_rows.plan_text(run.steps),
                labels=run.labels,
            )
        )

    def change(
        self,
        i: int,
        head: Head,
        run: RunSnapshot,
        at: datetime,
        lease: LeaseRequest | None = None,
        *,
        extends: bool = False,
    ) -> None:
        """``head`` as it was. ``lease``: the owner gets, or (``extends``) keeps it, for so long."""
        old = head.run
        failed = run.callback_error is not old.callback_error
        self._add(
            ChangedRunRow(
                i=i,
                seq=head.seq,
                base=old.version,
                base_fence=old.fence,
                base_owner=old.owner_id,
                status=run.status,
                version=run.version,
                fence=run.fence,
                owner_id=run.owner_id,
                claim_id=lease.claim_id if lease else None,
                seconds=lease.seconds if lease else None,
                extends=extends or None,
                takeovers=run.takeovers,
                takeovers_without_progress=run.takeovers_without_progress,
                readiness=record_rows.readiness(run, at),
                approved=not run.approval.required or run.approval.at is not None,
                cancel_requested_at=run.cancel_requested_at,
                started_at=run.started_at,
                finished_at=run.finished_at,
                updated_at=run.updated_at,
                counts=run.counts,
                detail=detail_text(run),
                callback_error=record_rows.text(run.callback_error) if failed else None,
            )
        )

    def progress(self, i: int, head: Head, run: RunSnapshot) -> None:
        """``head`` as it was: counts, version and its time are all that differs."""
        old = head.run
        self._add(
            ProgressRow(
                i,
                head.seq,
                old.version,
                old.fence,
                old.owner_id,
                run.version,
                run.updated_at,
                run.counts,
            )
        )

    def put_steps(self, deltas: Iterable[StepDelta], before: Steps = NO_STEPS) -> None:
        """Of the run that was added last; ``before``: its steps as they were."""
        changed = changed_rows(deltas, before)
        if any(changed):
            self._progress[-1] = changed

    def journal(
        self,
        i: int,
        run: RunSnapshot,
        update_id: str,
        events: tuple[Event, ...],
        deliveries: tuple[NewDelivery, ...],
        at: datetime,
    ) -> None:
        """The version's one journal row, with the run's own that was added last, and the
        callbacks its events owe."""
        self._runs[-1].update_id = update_id
        self._events[-1] = events
        if not deliveries:
            return
        origins = {target.name: origin_of(target) for target in run.callbacks}
        for new in deliveries:
            event = record(
                events[new.seq],
                run_id=run.run_id,
                version=run.version,
                seq=new.seq,
                at=run.updated_at or at,
                fence=run.fence,
            )
            told, origin = record_rows.text(event), origins[new.target]
            self._deliveries.append(DeliveryRow(i, new.id, new.target, new.seq, origin, told))
