"""What one trip to the server writes: the rows of many runs, gathered.

Every row but a run's own names its write by ``i``: what belongs to a refused one is then left out
by the statement itself. What is kept as it is goes beside the rows, as the elements of one JSON
array: the server only looks where each ends, which is quick, and no NUL in somebody's output makes
it stumble.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from hashlib import sha256
from typing import Any

from tenure.model.decide import NO_STEPS
from tenure.model.outbox import origin_of
from tenure.model.progress import StepDelta, Steps
from tenure.model.snapshot import ItemState, RunSnapshot, StepState
from tenure.model.update import Event, LeaseRequest, NewDelivery, NewRun, record
from tenure.stores import record_rows
from tenure.stores.postgres import alone
from tenure.stores.postgres.rows import Head, detail_text
from tenure.stores.postgres.session import Call
from tenure.stores.postgres.write_rows import ChangedRunRow, DeliveryRow, NewRunRow, ProgressRow
from tenure.stores.step_rows import HOST_ITSELF, added_hosts, bare, item_rows

_Step = tuple[int, int, StepState, list[str] | None]
"""``i``, step, body, added hosts."""
_Task = tuple[int, int, int, str, ItemState]
"""``i``, step, item, host, body."""


class Batch:
    """For creations or for updates."""

    def __init__(self) -> None:
        self._runs: list[NewRunRow | ChangedRunRow | ProgressRow] = []
        self._events: list[tuple[Event, ...] | None] = []
        """Beside each run."""
        self._steps: list[_Step] = []
        self._tasks: list[_Task] = []
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
        if self._steps or self._tasks or self._deliveries:
            told = record_rows.text(self._deliveries)
            return ("create_runs", *self._of_runs(), *self._of_steps(), told, list(aboard))
        run = self._runs[0]
        is_alone = len(self._runs) == 1 and self.may_seal
        if is_alone and isinstance(run, NewRunRow) and alone.waits(run):
            return alone.creation(run, record_rows.text(self._events[0]), aboard)
        return ("create_plain_runs", *self._of_runs(), list(aboard))

    def update(self) -> Call:
        if self._deliveries:
            told = record_rows.text(self._deliveries)
            return ("update_runs", *self._of_runs(), *self._of_steps(), told)
        return ("update_quiet_runs", *self._of_runs(), *self._of_steps())

    def beginning(self) -> Call:
        """As ``update``, of one run that nobody owned."""
        (run,) = self._runs
        if self._deliveries or not isinstance(run, ChangedRunRow):
            return self.update()
        _, *steps, _, on, item, host, body = self._of_steps()
        return alone.beginning(
            run, record_rows.text(self._events[0]), (*steps, on, item, host, body)
        )

    def _of_runs(self) -> tuple[str, ...]:
        return record_rows.text(self._runs), record_rows.text(self._events)

    def _of_steps(self) -> tuple[str, ...]:
        step_of, step, step_body, added = _columns(self._steps, 4)
        task_of, on, item, host, body = _columns(self._tasks, 5)
        return (
            _integers(step_of),
            _integers(step),
            record_rows.text(step_body),
            record_rows.text(added),
            _integers(task_of),
            _integers(on),
            _integers(item),
            record_rows.text(host),
            record_rows.text(body),
        )

    def _add(self, run: NewRunRow | ChangedRunRow | ProgressRow) -> None:
        self._runs.append(run)
        self._events.append(None)

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
                retry_of=run.retry_of,
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

    def put_step(self, i: int, delta: StepDelta, steps: Steps = NO_STEPS) -> None:
        """``steps`` as they were."""
        step, index = delta.after, delta.after.index
        if step is not delta.before:
            self._steps.append((i, index, bare(step), added_hosts(delta)))
        for name, host in delta.hosts.items():
            if not host.items:
                self._tasks.append((i, index, HOST_ITSELF, name, host))
                continue
            for item, value in item_rows(steps, delta, name, host):
                self._tasks.append((i, index, item, name, value))

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


def _columns(rows: Sequence[tuple[Any, ...]], count: int) -> Iterable[tuple[Any, ...]]:
    """Empty ones if there is no row."""
    return zip(*rows, strict=True) if rows else ((),) * count


def _integers(values: Sequence[int]) -> str:
    """As the server writes an array."""
    return "{" + record_rows.text(values)[1:-1] + "}"
