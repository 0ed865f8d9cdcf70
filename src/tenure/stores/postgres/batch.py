"""A batch of creations and updates: decided by the model, on the cached or the stored run, and
turned into the rows of one statement for many runs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from hashlib import sha256
from itertools import chain
from typing import Any

import msgspec
from msgspec.structs import replace

from tenure.model.codec import decode
from tenure.model.decide import NO_STEPS, Circumstances, WholeSteps, decide
from tenure.model.errors import RunNotFound, StoreUnavailable
from tenure.model.leases import check_repeated, create
from tenure.model.progress import Decision, StepDelta, Steps
from tenure.model.query import news
from tenure.model.snapshot import HostState, ItemState, RunSnapshot, StepState
from tenure.model.status import StepStatus
from tenure.model.update import (
    Event,
    LeaseRequest,
    NewDelivery,
    NewRun,
    Receipt,
    Update,
    Write,
    receipt,
    run_id_of,
)
from tenure.stores import rows
from tenure.stores.postgres.connection import Row, Session
from tenure.stores.postgres.rows import (
    ChangedRunRow,
    Head,
    NewDeliveryRow,
    NewRunRow,
    ProgressRow,
    ToWriteRow,
    detail_text,
    head_of,
    steps_of,
)
from tenure.stores.postgres.statements import Call
from tenure.stores.rows import HOST_ITSELF, added_hosts, bare, item_rows, started
from tenure.stores.run_cache import CachedRun, Recent

_created = msgspec.json.Decoder(list[tuple[int, int, datetime | None]])
updated = msgspec.json.Decoder(list[int])

_OWNER = Circumstances(lease_live=True)
"""All that an owner's update of the newest version needs."""
_Step = tuple[int, int, StepState, list[str] | None]
"""``i``, step, body, added hosts."""
_Task = tuple[int, int, int, str, ItemState]
"""``i``, step, item, host, body."""


class NotRemembered(Exception):
    """The write must be decided on the stored run."""


class RunCache(Recent[Head]):
    """The unfinished runs that this process wrote last."""

    def remember(self, head: Head, steps: tuple[StepState, ...]) -> CachedRun[Head]:
        known = CachedRun(head, steps, not_remembered)
        self.put(head.run.run_id, known)
        return known

    def forget_all_of(self, run_ids: Iterable[str]) -> None:
        for run_id in run_ids:
            self.forget(run_id)


def not_remembered(known: CachedRun[Head], step: int, name: str) -> HostState | None:
    raise NotRemembered


class RunRows:
    """The rows of many runs, for one statement that creates or updates them.

    Each row names its write by ``i``, so that the statement leaves out the rows of a refused one.
    Bodies are passed beside the rows, as elements of a JSON array, which the server need not parse:
    a NUL in a task's output would be an error.
    """

    def __init__(self) -> None:
        self._runs: list[NewRunRow | ChangedRunRow | ProgressRow] = []
        self._events: list[tuple[Event, ...] | None] = []
        """Beside each run."""
        self._steps: list[_Step] = []
        self._tasks: list[_Task] = []
        self._deliveries: list[NewDeliveryRow] = []
        self._digests: dict[str, str] = {}
        """Of the definitions in this batch: each is sent once."""

    def __bool__(self) -> bool:
        return bool(self._runs)

    def creation(self) -> Call:
        """Without tables that get no rows: each costs the server more than a row."""
        if self._steps or self._tasks or self._deliveries:
            deliveries = rows.text(self._deliveries)
            return ("create_runs", *self._of_runs(), *self._of_steps(), deliveries)
        return ("create_plain_runs", *self._of_runs())

    def update(self) -> Call:
        if self._deliveries:
            deliveries = rows.text(self._deliveries)
            return ("update_runs", *self._of_runs(), *self._of_steps(), deliveries)
        return ("update_quiet_runs", *self._of_runs(), *self._of_steps())

    def _of_runs(self) -> tuple[str, ...]:
        return rows.text(self._runs), rows.text(self._events)

    def _of_steps(self) -> tuple[str, ...]:
        step_of, step, step_body, added = _columns(self._steps, 4)
        task_of, on, item, host, body = _columns(self._tasks, 5)
        return (
            _integers(step_of),
            _integers(step),
            rows.text(step_body),
            rows.text(added),
            _integers(task_of),
            _integers(on),
            _integers(item),
            rows.text(host),
            rows.text(body),
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
                readiness=rows.readiness(run, at),
                approved=not run.approval.required or run.approval.at is not None,
                run_after=run.run_after,
                started_at=run.started_at,
                updated_at=at,
                counts=run.counts,
                detail=detail_text(run),
                digest=digest,
                definition=None if definition is None else rows.text(definition),
                summary=rows.text(rows.spec_summary(run)),
                callbacks=rows.text(run.callbacks) if run.callbacks else None,
                vars=rows.text(run.vars) if run.vars else None,
                plan=rows.plan_text(run.steps),
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
        """``head``: as before. ``lease``: given to the owner, or extended (``extends``)."""
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
                readiness=rows.readiness(run, at),
                approved=not run.approval.required or run.approval.at is not None,
                cancel_requested_at=run.cancel_requested_at,
                started_at=run.started_at,
                finished_at=run.finished_at,
                updated_at=run.updated_at,
                counts=run.counts,
                detail=detail_text(run),
                callback_error=rows.text(run.callback_error) if failed else None,
            )
        )

    def progress(self, i: int, head: Head, run: RunSnapshot) -> None:
        """``head``: as before. Only counts, version and its time differ."""
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
        """``steps`` as they were before."""
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
        """The journal row of the run added last, and the callbacks of its events."""
        self._runs[-1].update_id = update_id
        self._events[-1] = events
        at = run.updated_at or at
        for new, origin, event in rows.delivery_events(run, events, deliveries, at):
            self._deliveries.append(NewDeliveryRow(i, new.id, new.target, new.seq, origin, event))


class Batch:
    """Creations and updates of one trip to the server, and their receipts."""

    def __init__(self, cache: RunCache) -> None:
        self.creations = RunRows()
        self.updates = RunRows()
        self._cache = cache
        self._created: dict[int, tuple[RunSnapshot, LeaseRequest | None]] = {}
        self._accepted: dict[int, tuple[CachedRun[Head], RunSnapshot, Decision]] = {}
        """Updates: the run before and after."""
        self._news: dict[int, tuple[str, ...]] = {}

    # Deciding.

    def decide_from_cache(self, i: int, write: Write, at: datetime) -> None:
        """Raises ``NotRemembered``; a refusal of an update may be due to an outdated cache."""
        if isinstance(write, NewRun):
            self._create(i, write, at)
            return
        known = self._cache.get(write.run_id)
        if known is None or write.lease is None or write.if_unowned is not None:
            raise NotRemembered
        if self._update(i, write, known, known, _OWNER, at) is not None:
            raise NotRemembered

    def decide_from_store(
        self, i: int, write: Write, found: dict[str, ToWriteRow]
    ) -> Receipt | None:
        """The receipt, if there is nothing to write. Decided at the time the run was read, after it
        was locked."""
        run_id = run_id_of(write)
        self._cache.forget(run_id)
        row = found.get(run_id)
        if isinstance(write, NewRun):
            return _created_before(write, row)
        if row is None:
            raise RunNotFound(run_id)
        head = head_of(row.head, row.callbacks)
        steps = steps_of(head.run, row)
        known = CachedRun(head, steps, not_remembered)
        if write.lease is not None and not head.run.ended:
            self._cache.put(run_id, known)
        base, run = write.base_version, head.run
        stale = base is not None and base < run.version
        circumstances = Circumstances(
            lease_live=head.lease_live,
            applied_id=row.applied_id if stale else None,
            lease_expires_at=head.lease_expires_at,
        )
        return self._update(i, write, known, WholeSteps(steps), circumstances, row.at)

    def _create(self, i: int, new: NewRun, at: datetime) -> None:
        run = create(new, at)
        self.creations.create(i, new, run, at)
        for step in run.steps:
            if step.status is not StepStatus.PENDING:
                self.creations.put_step(i, started(step))
        self.creations.journal(i, run, new.update_id, new.events, new.deliveries, at)
        self._news[i] = news(None, run, at)
        self._created[i] = run, new.lease

    def _update(
        self,
        i: int,
        update: Update,
        known: CachedRun[Head],
        steps: Steps,
        circumstances: Circumstances,
        at: datetime,
    ) -> Receipt | None:
        head = known.head
        run = head.run
        decision = decide(run, steps, update, at=at, circumstances=circumstances)
        effect, fields = decision.effect, decision.fields
        if effect is None:
            return receipt(run, decision.version, head.lease_expires_at)
        after = decision.own_fields(run)
        if not fields or (len(fields) == 1 and "counts" in fields):  # of steps and hosts alone
            self.updates.progress(i, head, after)
        else:
            self.updates.change(i, head, after, at)
            self._news[i] = news(run, after, at)
        for delta in decision.steps.values():
            self.updates.put_step(i, delta, steps)
        self.updates.journal(i, after, update.update_id, effect.events, effect.deliveries, at)
        self._accepted[i] = known, after, decision
        return None

    # Writing.

    def calls(self) -> list[Call]:
        calls: list[Call] = []
        if self.creations:
            calls.append(self.creations.creation())
        if self.updates:
            calls.append(self.updates.update())
        return calls

    def receipts(self, session: Session, answers: Sequence[list[Row]]) -> dict[int, Receipt]:
        """From the answers to ``calls``, once they are committed."""
        receipts: dict[int, Receipt] = {}
        left = list(answers)
        if self._created:
            ((at, text),) = left.pop(0)
            session.heard(at)
            for i, seq, end in decode(_created, text):
                receipts[i] = self._receipt_created(*self._created[i], seq, end)
        if self._accepted:
            ((at, text),) = left.pop(0)
            session.heard(at)
            for i in decode(updated, text):
                receipts[i] = self._receipt_updated(*self._accepted[i])
            for i in self._accepted.keys() - receipts.keys():
                self._cache.forget(self._accepted[i][1].run_id)
        return receipts

    def refused(self, written: Collection[int]) -> set[int]:
        """Those that the statement left out."""
        return {*self._created, *self._accepted} - {*written}

    def news_of(self, written: Collection[int]) -> Iterable[str]:
        """The hints to announce for these."""
        return chain.from_iterable(topics for i, topics in self._news.items() if i in written)

    def _receipt_created(
        self,
        run: RunSnapshot,
        lease: LeaseRequest | None,
        seq: int,
        lease_expires_at: datetime | None,
    ) -> Receipt:
        if lease is not None:
            without = replace(run, steps=(), vars={})
            head = Head(seq, without, lease.claim_id, lease_expires_at, True)
            self._cache.remember(head, run.steps)
        return receipt(run, 1, lease_expires_at)

    def _receipt_updated(
        self, known: CachedRun[Head], after: RunSnapshot, decision: Decision
    ) -> Receipt:
        head = known.head
        if after.ended:
            self._cache.forget(after.run_id)
        else:
            moved = Head(head.seq, after, head.claim_id, head.lease_expires_at, head.lease_live)
            known.advance(moved, decision.steps)
        until = head.lease_expires_at if after.owner_id is not None else None
        return receipt(after, decision.version, until)


def _created_before(new: NewRun, row: ToWriteRow | None) -> Receipt:
    if row is None:
        raise StoreUnavailable(
            f"run {new.snapshot.run_id} was removed at the same moment; send it again"
        )
    head = head_of(row.head)
    check_repeated(head.run, row.first_id, new)
    return receipt(head.run, 1, head.lease_expires_at)


def _columns(rows: Sequence[tuple[Any, ...]], count: int) -> Iterable[tuple[Any, ...]]:
    """Empty columns if there is no row."""
    return zip(*rows, strict=True) if rows else ((),) * count


def _integers(values: Sequence[int]) -> str:
    """As an array literal."""
    return "{" + rows.text(values)[1:-1] + "}"
