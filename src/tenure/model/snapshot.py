"""What a run is at one version: frozen values, shown to users exactly as they are here.

A snapshot never changes; ``apply`` makes the next one. The mappings inside (``vars``, ``hosts`` …)
are plain dicts for speed: treat them as read-only. Fields at their default are left out when
encoded, to keep stored rows small; ``codec.full_record`` has every field.
``gc=False``: these trees have no cycles, and thousands of them would slow the collector down.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypeVar

from msgspec import Struct

from tenure.model.status import TERMINAL_RUN, HostStatus, Recovery, RunStatus, StepKind, StepStatus


class ErrorInfo(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """Why something failed, in a form a person and a program can act on."""

    kind: str
    message: str
    step: str | None = None
    host: str | None = None
    exit_code: int | None = None
    stderr_tail: str | None = None
    failed_hosts: tuple[str, ...] = ()
    """The first twenty; ``failed_count`` counts them all."""
    failed_count: int = 0


class Approval(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """Whether the run must be approved before it begins, by when, and by whose approval it did."""

    required: bool = False
    by: str | None = None
    at: datetime | None = None
    note: str | None = None
    expires_at: datetime | None = None


class Annotation(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A note added later. Never changes a status; allowed on ended runs."""

    id: str
    data: dict[str, Any]
    by: str | None = None
    at: datetime | None = None


class CallbackTarget(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """Where a run's events are sent. ``name`` is unique within a run and identifies the target."""

    name: str
    url: str | None = None
    events: tuple[str, ...] = ("run",)
    """Kinds of events to send: ``run``, ``step``, ``host``."""
    secret_env: str | None = None
    headers: dict[str, str] = {}


class CallbackError(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """The newest dead letter of a run."""

    target: str
    event: str
    error: str
    attempts: int
    at: datetime


class ItemState(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """One loop item on one host, or (as ``HostState``) the host itself."""

    status: HostStatus = HostStatus.PENDING
    message: str | None = None
    kind: str | None = None
    """Of a failure: ``exit``, ``signal``, ``timeout``, ``unreachable``, …"""
    exit_code: int | None = None
    attempts: int = 0
    changed: bool | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    stdout: str | None = None
    stderr: str | None = None
    truncated: bool = False
    vars: dict[str, Any] = {}
    withheld: tuple[str, ...] = ()
    """Names of exported variables that held a secret: seen by later steps, kept nowhere."""


class HostState(ItemState, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    items: tuple[ItemState, ...] = ()


class StepState(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    index: int
    name: str = ""
    kind: StepKind = StepKind.STEP
    action: str = ""
    notified_by: int | None = None
    """Of a handler: index of the step it ran for."""
    status: StepStatus = StepStatus.PENDING
    message: str | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    hosts: dict[str, HostState] = {}


class Counts(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """How many steps and hosts were reached, by status.

    The rest of the totals was not reached: pending in an unfinished run; skipped, canceled or
    interrupted with the run once it ended.
    """

    steps: dict[StepStatus, int] = {}
    hosts: dict[HostStatus, int] = {}
    steps_total: int = 0
    hosts_total: int = 0


class RunSummary(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A run without its steps and variables: what lists show."""

    run_id: str
    workflow_name: str
    workflow_version: str | None = None
    workflow_digest: str | None = None
    status: RunStatus = RunStatus.QUEUED
    message: str | None = None
    error: ErrorInfo | None = None
    last_error: ErrorInfo | None = None
    interrupted_reason: str | None = None
    version: int = 0
    owner_id: str | None = None
    owner_lost: bool = False
    """Running without a live lease, by the store's clock at the moment of reading."""
    fence: int = 0
    lease_expires_at: datetime | None = None
    takeovers: int = 0
    takeovers_without_progress: int = 0
    """Takeovers since a host last finished; what ``max_takeovers`` limits."""
    recovery: Recovery = Recovery.INTERRUPT
    cancel_requested_at: datetime | None = None
    cancel_reason: str | None = None
    unconfirmed_hosts: tuple[str, ...] = ()
    approval: Approval = Approval()
    queue: str = "default"
    priority: int = 0
    run_after: datetime | None = None
    timeout: float | None = None
    labels: dict[str, str] = {}
    created_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    updated_at: datetime | None = None
    retry_of: str | None = None
    annotations: tuple[Annotation, ...] = ()
    callback_error: CallbackError | None = None
    counts: Counts = Counts()

    @property
    def ended(self) -> bool:
        return self.status in TERMINAL_RUN


class RunSnapshot(RunSummary, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A run at one version, down to each host."""

    vars: dict[str, Any] = {}
    callbacks: tuple[CallbackTarget, ...] = ()
    steps: tuple[StepState, ...] = ()


SUMMARY_FIELDS = RunSummary.__struct_fields__


def summarize(snapshot: RunSnapshot) -> RunSummary:
    return RunSummary(**{name: getattr(snapshot, name) for name in SUMMARY_FIELDS})


_Status = TypeVar("_Status", StepStatus, HostStatus)


class Tally(Struct, gc=False):
    """Counts of reached steps and hosts, updated as statuses change. Pending is not counted."""

    steps: dict[StepStatus, int]
    hosts: dict[HostStatus, int]
    steps_total: int
    hosts_total: int

    @classmethod
    def of(cls, counts: Counts) -> Tally:
        return cls(counts.steps.copy(), counts.hosts.copy(), counts.steps_total, counts.hosts_total)

    def counts(self) -> Counts:
        return Counts(
            steps=self.steps,
            hosts=self.hosts,
            steps_total=self.steps_total,
            hosts_total=self.hosts_total,
        )


def move(counts: dict[_Status, int], old: _Status, new: _Status) -> None:
    """Count one less of ``old``, if counted, and one more of ``new``."""
    if old is new:
        return
    left = counts.get(old)
    if left == 1:
        del counts[old]
    elif left is not None:
        counts[old] = left - 1
    counts[new] = counts[new] + 1 if new in counts else 1
