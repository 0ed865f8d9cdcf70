"""Submitting, steering and listing runs; pages and queries."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Struct

from tenure.model.leases import MAX_PRIORITY, MIN_PRIORITY
from tenure.model.snapshot import RunSummary
from tenure.model.status import DeliveryState, Recovery, RunStatus
from tenure.model.update import RecordedEvent
from tenure.wire.answers import Cursor, Moment, Name, PageSize, Sentence
from tenure.wire.callbacks import CallbackSummary
from tenure.workflow.yaml import MAX_DOCUMENT_BYTES


class NewCallback(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A target for events of the run; ``events`` are kinds: run, step, host."""

    url: Sentence
    events: tuple[str, ...] = ("run",)
    secret_env: Name | None = None
    headers: dict[str, str] = {}


class SubmitOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of this run. Those left out are taken from the workflow.

    There are no secrets: a run carries none, its worker has them.
    """

    run_id: str | None = None
    vars: dict[str, Any] = {}
    labels: dict[str, str] = {}
    callbacks: tuple[NewCallback, ...] = ()
    queue: Name | None = None
    priority: Annotated[int, Meta(ge=MIN_PRIORITY, le=MAX_PRIORITY)] | None = None
    run_after: Moment | None = None
    recovery: Recovery | None = None
    timeout: Annotated[float, Meta(ge=0)] | None = None
    limit: tuple[Name, ...] = ()
    local: bool = False
    approve: bool = False


class Submission(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``workflow`` is the text of a workflow file, or the same as an object. ``files`` are those
    its actions need, by the names in their arguments, in base64: nothing is read from the gateway's
    disk."""

    workflow: Annotated[str, Meta(max_length=MAX_DOCUMENT_BYTES)] | dict[str, Any]
    files: dict[str, bytes] = {}
    options: SubmitOptions = SubmitOptions()


class RetryRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """As ``tenure retry``: a new run, linked to the old one, does what that one left. Workers
    execute it."""

    run_id: str | None = None
    only_failed: bool = False
    from_step: Name | None = None
    again: tuple[Name, ...] = ()
    limit: tuple[Name, ...] = ()
    approve: bool = False


class Cancellation(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    reason: Sentence | None = None


class ApproveRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    note: Sentence | None = None


class AnnotateRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    data: dict[str, Any]


class ReconcileRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    reason: Sentence = "its owner is gone"


class Reconciled(Struct, frozen=True, kw_only=True):
    """``interrupted``: runs whose owner is gone; ``canceled``: those asked to stop before;
    ``expired``: not approved in time."""

    interrupted: tuple[str, ...]
    expired: tuple[str, ...]
    canceled: tuple[str, ...] = ()


# Lists. ``cursor`` opens the next page; null on the last one.


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
    """``after`` is a place in the run's journal, ``version.seq``, or a whole version."""

    after: Annotated[str, Meta(pattern=EVENT_POSITION)] | None = None
    limit: PageSize = 100


class EventPage(Struct, frozen=True, kw_only=True):
    """``after`` is the place to continue from, also if there is nothing yet."""

    events: tuple[RecordedEvent, ...]
    after: str


class ChangesQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``after`` is a cursor of this feed; without it the feed begins with the oldest run, with
    ``now`` at the present."""

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
