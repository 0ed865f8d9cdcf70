"""Conversion between rows and the model's values, and of texts that PostgreSQL cannot store."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from tenure.model.codec import decode
from tenure.model.errors import InvalidRunId, RunNotFound, StoreIncompatible
from tenure.model.ids import check_run_id
from tenure.model.leases import present
from tenure.model.outbox import Delivery
from tenure.model.snapshot import (
    CallbackError,
    CallbackTarget,
    Counts,
    RunSnapshot,
    RunSummary,
    StepState,
    summarize,
)
from tenure.model.status import DeliveryState, Recovery, RunStatus
from tenure.model.update import RecordedEvent
from tenure.stores.rows import (
    Detail,
    Kept,
    PlannedStep,
    SpecSummary,
    StepRow,
    TaskRow,
    Text,
    assembled,
    target_of,
    text,
)

T = TypeVar("T")

_log = logging.getLogger("tenure.stores")

# Runs as read.

_NO_DETAIL = Detail()
_details = attrgetter(*(name for name in Detail.__struct_fields__ if name != "callback_error"))


class HeadRow(Struct, array_like=True, frozen=True, gc=False):
    """A row of ``runs``: the fragment ``head``."""

    seq: int
    run_id: str
    workflow_name: str
    status: RunStatus
    version: int
    fence: int
    owner_id: str | None
    claim_id: str | None
    lease_expires_at: datetime | None
    lease_live: bool | None
    takeovers: int
    takeovers_without_progress: int
    recovery: Recovery
    queue: str
    rank: int
    ready_at: datetime
    run_after: datetime | None
    cancel_requested_at: datetime | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    updated_at: datetime
    counts: Counts
    detail: Detail | None
    callback_error: CallbackError | None


class Head(Struct, frozen=True, gc=False):
    """The record without steps and most of its spec, and its lease at the time of the read, by the
    server's clock."""

    seq: int
    run: RunSnapshot
    claim_id: str | None
    lease_expires_at: datetime | None
    lease_live: bool


def head_of(row: HeadRow, callbacks: tuple[CallbackTarget, ...] | None = None) -> Head:
    run = _run(row, callbacks=callbacks or ())
    return Head(row.seq, run, row.claim_id, row.lease_expires_at, bool(row.lease_live))


def _run(row: HeadRow, **spec: Any) -> RunSnapshot:
    more = row.detail or _NO_DETAIL
    return RunSnapshot(
        run_id=row.run_id,
        workflow_name=row.workflow_name,
        status=row.status,
        version=row.version,
        fence=row.fence,
        owner_id=row.owner_id,
        takeovers=row.takeovers,
        takeovers_without_progress=row.takeovers_without_progress,
        recovery=row.recovery,
        queue=row.queue,
        priority=-row.rank,
        run_after=row.run_after,
        cancel_requested_at=row.cancel_requested_at,
        created_at=row.created_at,
        started_at=row.started_at,
        finished_at=row.finished_at,
        updated_at=row.updated_at,
        counts=row.counts,
        message=more.message,
        error=more.error,
        last_error=more.last_error,
        interrupted_reason=more.interrupted_reason,
        cancel_reason=more.cancel_reason,
        unconfirmed_hosts=more.unconfirmed_hosts,
        approval=more.approval,
        annotations=more.annotations,
        callback_error=row.callback_error,
        **spec,
    )


def detail_text(run: RunSnapshot) -> str | None:
    """Without the callback error, which has its own column."""
    detail = Detail(*_details(run))
    return None if detail == _NO_DETAIL else text(detail)


class RecordRow(Struct, array_like=True, gc=False):
    """``runs_by_id`` and ``runs_by_seq``."""

    head: HeadRow
    summary: SpecSummary
    callbacks: tuple[CallbackTarget, ...] | None
    vars: dict[str, Any] | None
    plan: tuple[PlannedStep, ...]
    steps: list[StepRow] | None
    tasks: list[TaskRow] | None
    definition_digest: str | None = None
    """``runs_by_seq`` only."""


class Record(NamedTuple):
    head: Head
    run: RunSnapshot
    definition_digest: str | None


class SummaryRow(Struct, array_like=True, gc=False):
    """``summaries_by_seq``."""

    head: HeadRow
    summary: SpecSummary


class ToWriteRow(Struct, array_like=True, gc=False):
    """``runs_to_write``."""

    head: HeadRow
    callbacks: tuple[CallbackTarget, ...] | None
    plan: tuple[PlannedStep, ...] | None
    """``None``: read without steps."""
    steps: list[StepRow] | None
    tasks: list[TaskRow] | None
    applied_id: str | None
    first_id: str | None
    at: datetime
    """Time of the read by the server's clock, and of decisions on it."""


_heads = msgspec.json.Decoder(HeadRow)
_records = msgspec.json.Decoder(RecordRow)
_summaries = msgspec.json.Decoder(SummaryRow)
_to_write = msgspec.json.Decoder(ToWriteRow)


def head_row(row: str) -> HeadRow:
    return decode(_heads, row)


def to_write(text: str) -> ToWriteRow:
    row = decode(_to_write, text)
    row.at = row.at.astimezone(UTC)
    return row


def snapshot_of(found: str) -> RunSnapshot:
    row = decode(_records, found)
    head = row.head
    return _present(head, _whole(head, row))


def record_of(found: Text) -> Record:
    row = decode(_records, found)
    head = row.head
    run = _whole(head, row)
    bare = replace(run, steps=(), vars={})
    live = bool(head.lease_live)
    return Record(
        Head(head.seq, bare, head.claim_id, head.lease_expires_at, live),
        _present(head, run),
        row.definition_digest,
    )


def _whole(head: HeadRow, row: RecordRow) -> RunSnapshot:
    steps = assembled(head.status, head.finished_at, row.plan, row.steps or (), row.tasks or ())
    return _run(
        head, **_spec(row.summary), callbacks=row.callbacks or (), vars=row.vars or {}, steps=steps
    )


def summary_of(found: str) -> RunSummary:
    row = decode(_summaries, found)
    head = row.head
    return summarize(_present(head, _run(head, **_spec(row.summary))))


def steps_of(run: RunSnapshot, row: ToWriteRow) -> tuple[StepState, ...]:
    if row.plan is None:
        return ()
    return assembled(run.status, run.finished_at, row.plan, row.steps or (), row.tasks or ())


def _spec(summary: SpecSummary) -> dict[str, Any]:
    fields = asdict(summary)
    del fields["run_after"]  # the head has it too
    return fields


def _present(head: HeadRow, run: RunSnapshot) -> RunSnapshot:
    live = bool(head.lease_live)
    return present(run, lease_live=live, expires_at=head.lease_expires_at)


def readable(texts: Iterable[str], read: Callable[[str], T]) -> Iterator[T]:
    """Without runs that this version cannot read, for example after the database was edited."""
    for found in texts:
        try:
            yield read(found)
        except StoreIncompatible as wrong:
            _log.warning("run %s is left out: %s", _run_id_in(found), wrong)


def _run_id_in(found: str) -> str:
    """In a head, or a row that begins with one."""
    head: Any = msgspec.json.decode(found)
    return str((head[0] if isinstance(head[0], list) else head)[1])


# Runs as written.


class NewRunRow(Struct, gc=False, omit_defaults=True, kw_only=True):
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
    retry_of: str | None = None
    update_id: str | None = None


class ChangedRunRow(Struct, gc=False, omit_defaults=True, kw_only=True):
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
    update_id: str | None = None


class ProgressRow(Struct, gc=False, omit_defaults=True):
    """A ``ChangedRunRow`` without status: columns not here are kept."""

    i: int
    seq: int
    base: int
    base_fence: int
    base_owner: str | None
    version: int
    updated_at: datetime | None
    counts: Counts
    update_id: str | None = None


class NewDeliveryRow(Struct, gc=False):
    i: int
    id: str
    target: str
    ordinal: int
    origin: str
    event: str


# Callbacks.


class DeliveryRow(Struct, array_like=True, gc=False):
    """The fragment ``delivery``."""

    id: str
    run_id: str
    workflow_name: str
    callbacks: list[CallbackTarget]
    target: str
    event: RecordedEvent
    run_status: RunStatus
    state: DeliveryState
    attempts: int
    due_at: datetime
    settled_at: datetime | None
    died_at: datetime | None
    last_error: str | None
    redelivery: bool
    token: str | None
    settled_token: str | None
    seq: int
    number: int


class ChangedDeliveryRow(Struct, gc=False, omit_defaults=True, kw_only=True):
    """For ``put_deliveries``. ``delay``: seconds until it is due, by the server's clock. The error
    is JSON within JSON."""

    number: int
    state: str
    attempts: int
    due_at: datetime
    delay: float | None = None
    settled_at: datetime | None = None
    died_at: datetime | None = None
    redelivery: bool
    token: str | None = None
    settled_token: str | None = None
    last_error: str | None = None


_deliveries = msgspec.json.Decoder(DeliveryRow)


def delivery_of(found: str) -> Kept:
    row = decode(_deliveries, found)
    delivery = Delivery(
        id=row.id,
        run_id=row.run_id,
        workflow_name=row.workflow_name,
        target=target_of(row.callbacks, row.target, row.id),
        event=row.event,
        run_status=row.run_status,
        state=row.state,
        attempts=row.attempts,
        due_at=row.due_at,
        settled_at=row.settled_at,
        last_error=row.last_error,
        died_at=row.died_at,
        redelivery=row.redelivery,
        token=row.token,
        settled_token=row.settled_token,
    )
    return Kept(delivery, row.seq, row.number)


def changed_delivery(
    number: int, delivery: Delivery, delay: float | None = None
) -> ChangedDeliveryRow:
    return ChangedDeliveryRow(
        number=number,
        state=delivery.state,
        attempts=delivery.attempts,
        due_at=delivery.due_at,
        delay=delay,
        settled_at=delivery.settled_at,
        died_at=delivery.died_at,
        redelivery=delivery.redelivery,
        token=delivery.token,
        settled_token=delivery.settled_token,
        last_error=None if delivery.last_error is None else text(delivery.last_error),
    )


# Texts that PostgreSQL cannot store: with a NUL or a lone surrogate.

_ESCAPED = re.compile(r"\\(.)")


def can_exist(run_id: str) -> bool:
    """False for an invalid id, which the driver might not be able to send."""
    try:
        check_run_id(run_id)
    except InvalidRunId:
        return False
    return True


def must_exist(run_id: str) -> str:
    """Raises ``RunNotFound`` for an invalid id."""
    if not can_exist(run_id):
        raise RunNotFound(run_id)
    return run_id


def can_be_stored(text: str) -> bool:
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:
        return False


def escaped(name: str) -> str:
    """For a text column; names without NUL and backslash are unchanged."""
    return name.replace("\\", "\\\\").replace("\0", "\\0")


def unescaped(name: str) -> str:
    return _ESCAPED.sub(lambda found: "\0" if found[1] == "0" else found[1], name)
