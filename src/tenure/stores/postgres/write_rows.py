"""The rows of a batch, as they go to the server."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from tenure.model.snapshot import Counts


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
    """As ``ChangedRunRow``; without a status, all that is not here stays as it is."""

    i: int
    seq: int
    base: int
    base_fence: int
    base_owner: str | None
    version: int
    updated_at: datetime | None
    counts: Counts
    update_id: str | None = None


class DeliveryRow(Struct, gc=False):
    i: int
    id: str
    target: str
    ordinal: int
    origin: str
    event: str
