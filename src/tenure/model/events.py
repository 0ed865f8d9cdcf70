"""What an update says happened. A run's journal is its events in order of (version, seq)."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from msgspec import Struct

from tenure.model.snapshot import ErrorInfo


class Event(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """``type`` is ``kind.what``: ``run.success``, ``host.failed``, ``lease.claimed`` …"""

    type: str
    status: str | None = None
    step: str | None = None
    step_index: int | None = None
    host: str | None = None
    message: str | None = None
    error: ErrorInfo | None = None
    data: dict[str, Any] | None = None

    @property
    def kind(self) -> str:
        return self.type.partition(".")[0]


class Position(NamedTuple):
    """A place in one run's journal; events after it are newer. Written ``version.seq``."""

    version: int = 0
    seq: int = -1

    def __str__(self) -> str:
        return f"{self.version}.{self.seq}"


class RecordedEvent(Event, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """An event with its place in the journal, stamped by the store."""

    run_id: str
    version: int
    seq: int
    at: datetime
    fence: int

    @property
    def position(self) -> Position:
        return Position(self.version, self.seq)


class Changes(Struct, frozen=True, kw_only=True):
    """A part of all histories. ``cursor`` opens the next part, also if there is none yet."""

    events: tuple[RecordedEvent, ...]
    cursor: str


def record(
    event: Event, *, run_id: str, version: int, seq: int, at: datetime, fence: int
) -> RecordedEvent:
    return RecordedEvent(
        type=event.type,
        status=event.status,
        step=event.step,
        step_index=event.step_index,
        host=event.host,
        message=event.message,
        error=event.error,
        data=event.data,
        run_id=run_id,
        version=version,
        seq=seq,
        at=at,
        fence=fence,
    )
