"""A run's record as rows and JSON texts, for stores in SQL; no SQL and no decisions here.

Fields that change often have columns of their own; the others are a few JSON texts: what the run
was created with, its plan, and what is usually unset. Steps, hosts and loop items have a row once
they are no longer pending; how pending ones read after the run's end follows from that end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from tenure.model.codec import decode
from tenure.model.decide import waits_for_approval
from tenure.model.errors import StoreIncompatible
from tenure.model.leases import why_not_runnable
from tenure.model.outbox import Delivery, origin_of
from tenure.model.progress import StepDelta, Steps, close_hosts, close_step
from tenure.model.snapshot import (
    Annotation,
    Approval,
    CallbackError,
    CallbackTarget,
    ErrorInfo,
    HostState,
    ItemState,
    RunSnapshot,
    StepState,
)
from tenure.model.status import ENDED_STEP, TERMINAL_RUN, HostStatus, Recovery, RunStatus, StepKind
from tenure.model.update import Event, NewDelivery, record

Text = str | bytes
"""JSON, as a driver returns it."""

NOT_CLAIMABLE, READY, PARKED, UNAPPROVED = range(4)
"""Values of ``runs.readiness``."""


class Detail(Struct, frozen=True, gc=False, omit_defaults=True):
    """The run's fields that are usually unset, in one column."""

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
    """What a run was created with and lists show."""

    workflow_version: str | None = None
    workflow_digest: str | None = None
    run_after: datetime | None = None
    timeout: float | None = None
    labels: dict[str, str] = {}
    retry_of: str | None = None


class Kept(NamedTuple):
    """A delivery, the number of its run (``seq``), and its own."""

    delivery: Delivery
    seq: int
    number: int


def target_of(callbacks: Iterable[CallbackTarget], name: str, delivery_id: str) -> CallbackTarget:
    for target in callbacks:
        if target.name == name:
            return target
    raise StoreIncompatible(f"callback {delivery_id} goes to a target its run does not have")


def delivery_events(
    run: RunSnapshot, events: Sequence[Event], deliveries: Iterable[NewDelivery], at: datetime
) -> Iterator[tuple[NewDelivery, str, str]]:
    """New deliveries with their origin and event."""
    origins = {target.name: origin_of(target) for target in run.callbacks}
    for new in deliveries:
        event = record(
            events[new.seq],
            run_id=run.run_id,
            version=run.version,
            seq=new.seq,
            at=at,
            fence=run.fence,
        )
        yield new, origins[new.target], text(event)


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
    """Which claim index, if any, the run belongs in.

    A parked run waits for ``ready_at``. If the wall clock was set back to before its creation, a
    run may be in the ready index too early: claims check ``run_after`` again.
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
    """Pending and still without hosts."""
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


# Steps and hosts.

HOST_ITSELF = -1
"""The ``item`` of a host's own row in ``tasks``."""


class StepRow(Struct, frozen=True, gc=False, array_like=True):
    index: int
    body: StepState
    """Without its hosts."""
    added_hosts: tuple[str, ...] | None
    """The hosts of a step that is not in the plan."""


class TaskRow(Struct, frozen=True, gc=False, array_like=True):
    step: int
    host: str
    item: int
    body: HostState
    """Of items too: a host has all fields of an item."""


_names = msgspec.json.Decoder(tuple[str, ...])
_steps = msgspec.json.Decoder(StepState)
_hosts = msgspec.json.Decoder(HostState)


def step_row(index: int, body: Text, added_hosts: Text | None) -> StepRow:
    names = None if added_hosts is None else decode(_names, added_hosts)
    return StepRow(index, decode(_steps, body), names)


def host_of(body: Text) -> HostState:
    return decode(_hosts, body)


def assembled(
    status: RunStatus,
    finished_at: datetime | None,
    plan: Sequence[PlannedStep],
    steps: Iterable[StepRow],
    tasks: Iterable[TaskRow],
) -> tuple[StepState, ...]:
    """The plan with the rows applied; what is still open after the end of a step or of the run is
    closed. Changes the steps of the rows; items must come in order."""
    found: dict[int, StepState] = {}
    for row in steps:
        found[row.index] = row.body
        if row.added_hosts:
            row.body.hosts.update(dict.fromkeys(row.added_hosts, HostState()))
    for index, planned in enumerate(plan):
        step = found.get(index)
        if step is None:
            step = found[index] = planned_step(index, planned)
        step.hosts.update(dict.fromkeys(planned.hosts, HostState()))
    items: dict[tuple[int, str], list[ItemState]] = {}
    for task in tasks:
        if task.item == HOST_ITSELF:
            found[task.step].hosts[task.host] = task.body
        else:
            items.setdefault((task.step, task.host), []).append(_as_item(task.body))
    for (index, name), of_host in items.items():
        hosts = found[index].hosts
        hosts[name] = replace(hosts[name], items=tuple(of_host))
    in_order = (found[index] for index in sorted(found))
    if status in TERMINAL_RUN:
        return tuple(close_step(step, status, finished_at) for step in in_order)
    return tuple(close_hosts(step) if step.status in ENDED_STEP else step for step in in_order)


def _as_item(state: HostState) -> ItemState:
    return msgspec.convert(state, ItemState, from_attributes=True)


def bare(step: StepState) -> StepState:
    return replace(step, hosts={}) if step.hosts else step


def added_hosts(delta: StepDelta) -> list[str] | None:
    """The hosts of a step that is not in the plan."""
    return list(delta.after.hosts) if delta.before is None else None


def item_rows(
    steps: Steps, delta: StepDelta, name: str, host: HostState
) -> Iterator[tuple[int, ItemState]]:
    """The host itself, and its items that are new or differ from those in ``steps``."""
    yield HOST_ITSELF, replace(host, items=())
    old = None if delta.before is None else steps.host(delta.after.index, name)
    known = old.items if old is not None else ()
    for position, item in enumerate(host.items):
        if position >= len(known) or known[position] is not item:
            yield position, item


def started(step: StepState) -> StepDelta:
    """A step that starts with its run; the plan has it as pending."""
    hosts = {
        name: host for name, host in step.hosts.items() if host.status is not HostStatus.PENDING
    }
    return StepDelta(StepState(index=step.index), step, hosts)
