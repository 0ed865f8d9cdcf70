"""A run that comes alone: the two writes that everybody waits for when nothing else is going on.

Value by value, each with a statement of its own: for the server it is more work to take rows apart,
and to make ready for whatever may be in them, than to write one.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from tenure.stores.postgres.session import Call
from tenure.stores.postgres.write_rows import ChangedRunRow, NewRunRow
from tenure.stores.record_rows import text


def waits(run: NewRunRow) -> bool:
    """For somebody who will own it; nothing has begun."""
    return run.owner_id is None and run.started_at is None


def creation(run: NewRunRow, events: str, aboard: Sequence[str]) -> Call:
    """Of a run that ``waits``, with no callback owed."""
    return (
        "create_plain_run",
        run.run_id,
        run.workflow_name,
        run.status,
        run.version,
        run.fence,
        run.recovery,
        run.queue,
        run.rank,
        _moment(run.ready_at),
        run.readiness,
        run.approved,
        _moment(run.run_after),
        _moment(run.updated_at),
        text(run.counts),
        run.detail,
        run.digest,
        run.summary,
        run.callbacks,
        run.vars,
        run.plan,
        text(run.labels),
        run.definition,
        run.update_id,
        events,
        list(aboard),
        run.i,
        run.retry_of,
    )


def beginning(run: ChangedRunRow, events: str, steps_and_tasks: Sequence[str]) -> Call:
    """Of a run that nobody owned, with no callback owed."""
    return (
        "begin_run",
        run.seq,
        run.base,
        run.base_fence,
        run.status,
        run.version,
        run.fence,
        run.owner_id,
        run.claim_id,
        run.seconds,
        run.takeovers,
        run.takeovers_without_progress,
        run.readiness,
        run.approved,
        _moment(run.cancel_requested_at),
        _moment(run.started_at),
        _moment(run.finished_at),
        _moment(run.updated_at),
        text(run.counts),
        run.detail,
        run.update_id,
        events,
        *steps_and_tasks,
    )


def _moment(value: datetime | None) -> str | None:
    return None if value is None else value.isoformat()
