"""Lists, a page at a time. ``cursor`` opens the next page; null on the last one."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Struct

from tenure.model.events import RecordedEvent
from tenure.model.snapshot import RunSummary
from tenure.model.status import DeliveryState, RunStatus
from tenure.wire.bounds import Cursor, Moment, Name, PageSize
from tenure.wire.deliveries import CallbackSummary

Label = Annotated[str, Meta(pattern="^[^=]{1,200}=", max_length=2000)]
EVENT_POSITION = "^[0-9]{1,18}(\\.[0-9]{1,9})?$"


class NoQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class RunsQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``status`` and ``label`` (``key=value``) may be given several times: any of the statuses, all
    of the labels. ``created_to`` is exclusive."""

    status: tuple[RunStatus, ...] = ()
    workflow: Name | None = None
    queue: Name | None = None
    label: tuple[Label, ...] = ()
    created_from: Moment | None = None
    created_to: Moment | None = None
    owner: Name | None = None
    held: bool = False
    unapproved: bool = False
    canceling: bool = False
    limit: PageSize = 50
    cursor: Cursor | None = None


class RunPage(Struct, frozen=True, kw_only=True):
    runs: tuple[RunSummary, ...]
    cursor: str | None


class EventsQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``after`` is a place in the run's journal, ``version.seq``, or a version as a whole."""

    after: Annotated[str, Meta(pattern=EVENT_POSITION)] | None = None
    limit: PageSize = 100


class EventPage(Struct, frozen=True, kw_only=True):
    """``after`` goes on where this ended, also if nothing is there yet."""

    events: tuple[RecordedEvent, ...]
    after: str


class ChangesQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``after`` is a cursor of this feed; without it the feed begins with the oldest run, with
    ``now`` at whatever happens next."""

    after: Cursor | None = None
    limit: PageSize = 100


class ChangePage(Struct, frozen=True, kw_only=True):
    events: tuple[RecordedEvent, ...]
    after: str


class CallbacksQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    state: DeliveryState | None = None
    run_id: str | None = None
    limit: PageSize = 50
    cursor: Cursor | None = None


class CallbackPage(Struct, frozen=True, kw_only=True):
    callbacks: tuple[CallbackSummary, ...]
    cursor: str | None


class PresentWorker(Struct, frozen=True, kw_only=True):
    """A worker whose last heartbeat still counts, and the runs it owns."""

    owner_id: str
    queues: tuple[str, ...]
    concurrency: int
    running: int
    details: dict[str, Any]
    seen_at: datetime | None
    runs: tuple[str, ...]
    draining: bool = False


class Workers(Struct, frozen=True, kw_only=True):
    workers: tuple[PresentWorker, ...]
