"""What one trip to the server writes: the rows of many runs, gathered.

Every row but a run's own names its write by ``i``: what belongs to a refused one is then left out
by the statement itself. JSON that is kept as it is goes as text within the JSON of its row: taking
a row apart the server would otherwise stumble over a NUL in somebody's output.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from datetime import datetime

from msgspec import Struct

from tenure.model.events import Event, record
from tenure.model.outbox import origin_of
from tenure.model.snapshot import Counts, RunSnapshot
from tenure.model.update import LeaseRequest, NewDelivery, NewRun
from tenure.stores import record_rows
from tenure.stores.postgres.rows import Head, detail_text
from tenure.stores.postgres.session import Call
from tenure.stores.record_rows import Text
from tenure.stores.step_rows import ChangedStep


class _NewRun(Struct, gc=False, omit_defaults=True, kw_only=True):
    i: int
    run_id: str
    workflow_name: str
    status: str
    version: int
    fence: int
    owner_id: str | None = None
    claim_id: str | None = None
    seconds: float | None = None
    recovery: str
    queue: str
    rank: int
    ready_at: datetime
    readiness: int
    approved: bool
    run_after: datetime | None = None
    started_at: datetime | None = None
    updated_at: datetime
    counts: Counts
    detail: str | None = None
    digest: str | None = None
    definition: str | None = None
    summary: str
    callbacks: str | None = None
    vars: str | None = None
    plan: str
    labels: dict[str, str]


class _ChangedRun(Struct, gc=False, omit_defaults=True, kw_only=True):
    i: int
    seq: int
    base: int
    base_fence: int
    base_owner: str | None = None
    status: str
    version: int
    fence: int
    owner_id: str | None = None
    claim_id: str | None = None
    seconds: float | None = None
    extends: bool | None = None
    takeovers: int
    takeovers_without_progress: int
    readiness: int
    approved: bool
    cancel_requested_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    updated_at: datetime | None
    counts: Counts
    detail: str | None = None
    callback_error: str | None = None


class _Step(Struct, gc=False, omit_defaults=True):
    i: int
    step: int
    body: Text
    added: Text | None = None


class _Task(Struct, gc=False):
    i: int
    step: int
    host: str
    item: int
    body: Text


class _Journal(Struct, gc=False):
    i: int
    update_id: str
    events: str


class _Delivery(Struct, gc=False):
    i: int
    id: str
    target: str
    ordinal: int
    origin: str
    event: str


class Batch:
    """For creations or for updates."""

    def __init__(self) -> None:
        self._runs: list[_NewRun | _ChangedRun] = []
        self._steps: list[_Step] = []
        self._tasks: list[_Task] = []
        self._journal: list[_Journal] = []
        self._deliveries: list[_Delivery] = []

    def __bool__(self) -> bool:
        return bool(self._runs)

    def creation(self, aboard: Sequence[str] = ()) -> Call:
        """The statement that writes it. What there is no row for it does not mention: to begin with
        a table costs the server more than a row of it."""
        if self._steps or self._tasks or self._deliveries:
            return ("create_runs", *self._all(), list(aboard))
        return ("create_plain_runs", *self._texts(self._runs, self._journal), list(aboard))

    def update(self) -> Call:
        if self._deliveries:
            return ("update_runs", *self._all())
        rows = (self._runs, self._journal, self._steps, self._tasks)
        return ("update_quiet_runs", *self._texts(*rows))

    def _all(self) -> Iterator[str]:
        return self._texts(self._runs, self._journal, self._steps, self._tasks, self._deliveries)

    @staticmethod
    def _texts(*rows: object) -> Iterator[str]:
        return map(record_rows.text, rows)

    def create(self, i: int, new: NewRun, run: RunSnapshot, at: datetime) -> None:
        lease, definition = new.lease, new.definition
        digest = None if definition is None else hashlib.sha256(definition.encode()).hexdigest()
        self._runs.append(
            _NewRun(
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
        self._runs.append(
            _ChangedRun(
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

    def put_step(self, i: int, changed: ChangedStep) -> None:
        if changed.row is not None:
            step, body, added = changed.row
            self._steps.append(_Step(i, step, body, added))
        for step, host, item, body in changed.tasks:
            self._tasks.append(_Task(i, step, host, item, body))

    def journal(
        self,
        i: int,
        run: RunSnapshot,
        update_id: str,
        events: tuple[Event, ...],
        deliveries: tuple[NewDelivery, ...],
        at: datetime,
    ) -> None:
        """The version's one journal row, and the callbacks its events owe."""
        self._journal.append(_Journal(i, update_id, record_rows.text(events)))
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
            self._deliveries.append(_Delivery(i, new.id, new.target, new.seq, origin, told))
