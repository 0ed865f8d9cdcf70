"""What a callback says."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from tenure.model.events import RecordedEvent
from tenure.model.snapshot import ErrorInfo
from tenure.model.status import RunStatus


class CallbackPayload(Struct, frozen=True, kw_only=True):
    """``status`` is the status of what the event is about: the run, or a step or host of it."""

    type: str
    run_id: str
    workflow_name: str
    status: str
    run_status: RunStatus
    step: str | None
    host: str | None
    timestamp: datetime
    error: ErrorInfo | None
    version: int
    seq: int


def payload(event: RecordedEvent, workflow_name: str, run_status: RunStatus) -> CallbackPayload:
    return CallbackPayload(
        type=event.type,
        run_id=event.run_id,
        workflow_name=workflow_name,
        status=event.status or "",
        run_status=run_status,
        step=event.step,
        host=event.host,
        timestamp=event.at,
        error=event.error,
        version=event.version,
        seq=event.seq,
    )
