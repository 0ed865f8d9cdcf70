"""A run's record as the texts that stores of rows keep. No SQL here, no decisions either.

What changes often has columns of its own; the rest of a record are a few JSON texts: what it was
given at birth, its plan, what is usually unset. For steps and hosts see ``step_rows``.
"""

from __future__ import annotations

from datetime import datetime
from operator import attrgetter
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from tenure.model.codec import decode
from tenure.model.decide import waits_for_approval
from tenure.model.leases import why_not_runnable
from tenure.model.snapshot import (
    Annotation,
    Approval,
    CallbackError,
    CallbackTarget,
    ErrorInfo,
    RunSnapshot,
    StepState,
)
from tenure.model.status import Recovery, RunStatus, StepKind

Text = str | bytes
"""JSON, as a driver hands it over."""

NOT_CLAIMABLE, READY, PARKED, UNAPPROVED = range(4)
"""Values of ``runs.readiness``."""


class Detail(Struct, frozen=True, gc=False, omit_defaults=True):
    """The run's fields that are usually unset: one column for all of them."""

    message: str | None = None
    error: ErrorInfo | None = None
    last_error: ErrorInfo | None = None
    interrupted_reason: str | None = None
    cancel_reason: str | None = None
    unconfirmed_hosts: tuple[str, ...] = ()
    approval: Approval = Approval()
    annotations: tuple[Annotation, ...] = ()
    callback_error: CallbackError | None = None


class SpecSummary(Struct, frozen=True, gc=False, omit_defaults=True):
    """What a run was given at birth and lists show."""

    workflow_version: str | None = None
    workflow_digest: str | None = None
    run_after: datetime | None = None
    timeout: float | None = None
    labels: dict[str, str] = {}
    retry_of: str | None = None


class PlannedStep(Struct, frozen=True, gc=False, array_like=True):
    name: str
    kind: StepKind
    action: str
    hosts: tuple[str, ...]
    notified_by: int | None = None


_spec_of = attrgetter(*SpecSummary.__struct_fields__)
_summaries = msgspec.json.Decoder(SpecSummary)
_plans = msgspec.json.Decoder(tuple[PlannedStep, ...])
_callbacks = msgspec.json.Decoder(tuple[CallbackTarget, ...])
_vars = msgspec.json.Decoder(dict[str, Any])
_encode = msgspec.json.Encoder().encode


def text(value: Any) -> str:
    return _encode(value).decode()


def readiness(run: RunSnapshot, at: datetime) -> int:
    """The column that says which claim index, if any, this run belongs in.

    A parked run waits for ``ready_at``. If the wall clock has been set back to before the run was
    created that may be later than ``run_after``: such a run is offered, and claimers look twice.
    """
    if run.owner_id is not None or run.ended:
        return NOT_CLAIMABLE
    if run.status == RunStatus.RUNNING and run.recovery is not Recovery.RESUME:
        return NOT_CLAIMABLE
    if waits_for_approval(run):
        return UNAPPROVED
    at = max(at, run.created_at or at)
    return READY if why_not_runnable(run, at) is None else PARKED


def spec_summary(run: RunSnapshot) -> SpecSummary:
    return SpecSummary(*_spec_of(run))


def spec_fields(summary: Text) -> dict[str, Any]:
    return asdict(decode(_summaries, summary))


def with_spec(run: RunSnapshot, summary: Text) -> RunSnapshot:
    return msgspec.structs.replace(run, **spec_fields(summary))


def plan_text(steps: tuple[StepState, ...]) -> str:
    planned = [PlannedStep(s.name, s.kind, s.action, tuple(s.hosts), s.notified_by) for s in steps]
    return text(planned)


def plan_of(value: Text) -> tuple[PlannedStep, ...]:
    return decode(_plans, value)


def planned_step(index: int, planned: PlannedStep) -> StepState:
    """Pending, and its hosts still to come."""
    return StepState(
        index=index,
        name=planned.name,
        kind=planned.kind,
        action=planned.action,
        notified_by=planned.notified_by,
    )


def callbacks_of(value: Text | None) -> tuple[CallbackTarget, ...]:
    return () if value is None else decode(_callbacks, value)


def vars_of(value: Text | None) -> dict[str, Any]:
    return {} if value is None else decode(_vars, value)
