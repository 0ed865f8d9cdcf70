"""Between rows and the model's values. No SQL here, no decisions either."""

from __future__ import annotations

from datetime import UTC, datetime
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from tenure.model.codec import decode
from tenure.model.leases import present
from tenure.model.snapshot import (
    CallbackError,
    CallbackTarget,
    Counts,
    RunSnapshot,
    RunSummary,
    StepState,
    summarize,
)
from tenure.model.status import Recovery, RunStatus
from tenure.stores.record_rows import Detail, PlannedStep, SpecSummary, Text, text
from tenure.stores.step_rows import StepRow, TaskRow, assembled

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


_MOMENTS = tuple(name for name, kind in HeadRow.__annotations__.items() if "datetime" in kind)


class Head(Struct, frozen=True, gc=False):
    """The record without steps and most of its spec, and the lease beside it, judged by the
    server's clock when it was read."""

    seq: int
    run: RunSnapshot
    claim_id: str | None
    lease_expires_at: datetime | None
    lease_live: bool


def head_of(row: HeadRow, callbacks: tuple[CallbackTarget, ...] | None = None) -> Head:
    row = _told_in_utc(row)
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


def _told_in_utc(row: HeadRow) -> HeadRow:
    """For a server connection that a pooler gave us as somebody else left it."""
    if row.created_at.tzinfo is UTC:
        return row
    moments = {name: value for name in _MOMENTS if (value := getattr(row, name)) is not None}
    return replace(row, **{name: value.astimezone(UTC) for name, value in moments.items()})


def detail_text(run: RunSnapshot) -> str | None:
    """All but the callback error, which has a column of its own."""
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
    """As a reader sees it now."""
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
    """``None``: nobody asked for steps."""
    steps: list[StepRow] | None
    tasks: list[TaskRow] | None
    applied_id: str | None
    first_id: str | None
    at: datetime
    """When it was read, by the server's clock: what is decided on it is decided then."""


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
    """As a reader sees it now."""
    row = decode(_records, found)
    head = _told_in_utc(row.head)
    return _present(head, _whole(head, row))


def record_of(found: Text) -> Record:
    row = decode(_records, found)
    head = _told_in_utc(row.head)
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
        head,
        **_spec(row.summary),
        callbacks=row.callbacks or (),
        vars=row.vars or {},
        steps=steps,
    )


def summary_of(found: str) -> RunSummary:
    row = decode(_summaries, found)
    head = _told_in_utc(row.head)
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
